package diagnose

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// hostileSteps feeds a memory what no fleet sends: new blocks without end that no
// relay passes on, from engines that nobody sees, at times that jump.
func hostileSteps(m Memory, idx *index.Index, n int) {
	for i := range n {
		name := wire.Replica(fmt.Sprint("r", i%3))
		e := wire.Event{Kind: wire.Stored, Plane: i%4 == 3, Group: -1, Hashes: []wire.Handle{wire.IntHandle(uint64(i))}}
		m.Step(&stream.Step{
			Kind: stream.Apply, Replica: name, At: wire.Time(i%977) * second,
			Batch: &wire.Batch{Seq: uint64(i), Engine: wire.Time(1+i) * second, Events: []wire.Event{e}},
		}, idx)
	}
}

// streamView is a fleet that serves and says something else each second.
func streamView(at int) View {
	v := View{Now: wire.Time(at) * second}
	for i := range 3 {
		v.Replicas = append(v.Replicas, Replica{State: stream.State{
			Replica: wire.Replica(fmt.Sprint("r", i)), Epoch: 1, Batches: uint64(at * 7),
			Load:  wire.Load{Known: true, At: wire.Time(at) * second, Requests: float64(at * i), Running: 1},
			Facts: wire.Facts{Buffer: 10, HWM: 10},
		}})
	}
	return v
}

func TestStreamMemories(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"stream-silent", "publisher-stalled", "clock-skew", "buffer-too-short", "relay-loss"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			c := checkOf(code)
			idx := index.New(index.Options{})
			m := NewWatch().memory(c)
			hostileSteps(m, idx, 12_000)
			for at := range 40 {
				c.Now(streamView(at), m)
			}
			// A copy knows the same, and neither hears of what the other is told.
			copied, again := m.Clone(), m.Clone()
			hostileSteps(copied, idx, 500)
			c.Now(streamView(50), copied)
			c.Now(View{}, copied)
			if !reflect.DeepEqual(m, again) {
				t.Error("a copy's steps changed the original")
			}
			if a, b := c.Now(streamView(41), m), c.Now(streamView(41), again); !reflect.DeepEqual(a, b) {
				t.Errorf("the original says %+v, its copy %+v", a, b)
			}
			switch m := copied.(type) { // who is gone is forgotten
			case serving:
				if len(m) > 0 {
					t.Errorf("%d left", len(m))
				}
			case lags:
				if len(m) > 0 {
					t.Errorf("%d left", len(m))
				}
			case rates:
				if len(m) > 0 {
					t.Errorf("%d left", len(m))
				}
			case *relays:
				if len(m.engines)+len(m.pairs)+len(m.tried) > 0 {
					t.Errorf("%d, %d and %d left", len(m.engines), len(m.pairs), len(m.tried))
				}
			}
			if r, ok := m.(*relays); ok {
				for name, one := range r.engines {
					if len(one.pending) > 2*maxPassing {
						t.Errorf("%s: %d blocks wait", name, len(one.pending))
					}
				}
			}
		})
	}
}

// BenchmarkStreamChecks is a second of the stream's checks: 5,000 batches of 64
// replicas with Dynamo's plane beside them, and a look at all.
func BenchmarkStreamChecks(b *testing.B) {
	idx := index.New(index.Options{})
	w := NewWatch()
	var checks []*Check
	for i := range Checks {
		switch Checks[i].Code {
		case "prefix-caching-off", "events-off", "stream-silent", "publisher-stalled", "orphan-chains", "clock-skew", "buffer-too-short", "dead-replica-blocks", "relay-loss":
			checks = append(checks, &Checks[i])
		}
	}
	v := View{}
	for i := range 64 {
		v.Replicas = append(v.Replicas, Replica{State: stream.State{Replica: wire.Replica(fmt.Sprint("r", i)), Epoch: 1, Load: wire.Load{Known: true}}})
	}
	seq := uint64(0)
	for b.Loop() {
		for k := range 5000 {
			r := &v.Replicas[k%64]
			seq++
			e := wire.Event{Kind: wire.Stored, Plane: k%64 >= 32, Group: -1, Hashes: []wire.Handle{wire.IntHandle(seq - seq%64 + uint64(k%32))}}
			s := stream.Step{Kind: stream.Apply, Replica: r.Replica, At: v.Now, Batch: &wire.Batch{Seq: seq, Engine: v.Now + 1, Events: []wire.Event{e}}}
			for _, c := range checks {
				if m := w.memory(c); m != nil && c.With == "" {
					m.Step(&s, idx)
				}
			}
		}
		v.Now += second
		for _, c := range checks {
			c.Now(v, w.memory(c))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N)/10, "%core")
}
