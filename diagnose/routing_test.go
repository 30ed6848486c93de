package diagnose

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// TestRoutingMemories: whatever they are fed, memories stay small, and a copy goes its
// own way.
func TestRoutingMemories(t *testing.T) {
	t.Parallel()
	ret, bur := newReturns().(*returns), newBursts().(*bursts)
	idx := index.New(index.Options{})
	at := wire.Time(1e9)
	feed := func(m Memory, from, to uint64) {
		for i := from; i < to; i++ {
			at += 1e5
			s := &stream.Step{Kind: stream.Apply, At: at, Replica: wire.Replica(fmt.Sprint("r", i%100)), Batch: &wire.Batch{Events: []wire.Event{
				{Kind: wire.Stored, Hashes: []wire.Handle{wire.IntHandle(16 * i)}},
				{Kind: wire.Removed, Hashes: []wire.Handle{wire.IntHandle(16 * i)}},
				{Kind: wire.Stored, Hashes: []wire.Handle{wire.IntHandle(16 * i)}},
				{Kind: wire.Stored, Hashes: []wire.Handle{wire.IntHandle(16 * (i / 4))}},
			}}}
			m.Step(s, idx)
		}
	}
	feed(ret, 0, 20_000)
	feed(bur, 0, 20_000)
	if len(ret.blocks) > maxSampled || len(ret.order) > maxSampled || len(ret.back) > maxComebacks {
		t.Errorf("returns keep %d blocks, %d in order and %d returns", len(ret.blocks), len(ret.order), len(ret.back))
	}
	if len(bur.heads) > maxHeads || len(bur.order) > maxHeads || len(bur.done) > maxBursts || len(bur.replicas) > maxBurstFleet {
		t.Errorf("bursts keep %d heads, %d in order, %d bursts and %d replicas", len(bur.heads), len(bur.order), len(bur.done), len(bur.replicas))
	}
	if len(bur.done) == 0 || len(ret.back) == 0 {
		t.Error("nothing was noted")
	}
	for _, m := range []Memory{ret, bur} {
		kept, copied := m.Clone(), m.Clone()
		feed(copied, 30_000, 40_000)
		if !reflect.DeepEqual(m, kept) {
			t.Errorf("%T changed with its copy", m)
		}
	}
}

// TestTraffic: looks are kept for a window, are of the fleet as it was, and count
// nothing that was counted anew.
func TestTraffic(t *testing.T) {
	t.Parallel()
	view := func(s, requests int) View {
		v := View{Now: wire.Time(s) * 1e9}
		for i := range maxLooked + 8 {
			r := Replica{State: stream.State{Replica: wire.Replica(fmt.Sprintf("r%04d", i)), Epoch: 1}}
			r.Load = wire.Load{At: v.Now, Known: true, Requests: float64(requests), Running: 2}
			v.Replicas = append(v.Replicas, r)
		}
		return v
	}
	m := newTraffic().(*traffic)
	for s := 1; s <= 90; s++ {
		got := m.flows(view(s, 3*s))
		switch {
		case s < 61 && got != nil:
			t.Fatalf("judged after %d s", s)
		case s == 90 && (len(got) != 1 || len(got[0]) != maxLooked || got[0][0].requests != 3*float64((m.at[len(m.at)-1]-m.at[0])/1e9+4) || got[0][0].flight != 2):
			t.Fatalf("%d fleets, the first of %d with %+v", len(got), len(got[0]), got[0][0].requests)
		}
	}
	if n := len(m.at); n > 14 || n != len(m.looks) {
		t.Errorf("%d looks are kept", n)
	}
	kept := m.Clone()
	if got := m.flows(view(91, 5)); got != nil {
		t.Errorf("%d fleets whose counts fell", len(got))
	}
	m.flows(view(100, 5))
	if !reflect.DeepEqual(kept.(*traffic).at[0], wire.Time(26e9)) {
		t.Errorf("the copy begins at %d", kept.(*traffic).at[0])
	}
	m.see(View{Now: 5})
	if len(m.at) != 0 {
		t.Error("a clock that was set back leaves looks from the future")
	}
}

// BenchmarkRoutingStep is one batch of one store, as 5,000 a second come.
func BenchmarkRoutingStep(b *testing.B) {
	w := NewWatch()
	idx := index.New(index.Options{})
	var i uint64
	for b.Loop() {
		i++
		w.Step(&stream.Step{Kind: stream.Apply, At: wire.Time(i * 2e5), Replica: wire.Replica([]string{"a", "b", "c", "d"}[i%4]), Batch: &wire.Batch{Events: []wire.Event{
			{Kind: wire.Stored, Hashes: []wire.Handle{wire.IntHandle(i << 32), wire.IntHandle(i<<32 + 16), wire.IntHandle(i<<32 + 3)}},
		}}}, idx)
	}
}

// BenchmarkRoutingTick is one look at 64 replicas, once a second.
func BenchmarkRoutingTick(b *testing.B) {
	v := View{}
	for i := range 64 {
		v.Replicas = append(v.Replicas, Replica{State: stream.State{Replica: wire.Replica(fmt.Sprintf("r%02d", i)), Epoch: 1}, Model: "m"})
	}
	w := NewWatch()
	for b.Loop() {
		v.Now += 1e9
		for i := range v.Replicas {
			v.Replicas[i].Load = wire.Load{At: v.Now, Known: true, Requests: float64(v.Now / 1e9)}
		}
		w.Tick(v)
	}
}
