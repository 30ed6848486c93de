package observe

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// TestLive: looked at while it runs, a fleet ends up as it would have unseen.
func TestLive(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	opt := Options{Scrape: fleet.ParseMetrics}
	l := NewLive(opt, nil)
	var looking sync.WaitGroup
	done := make(chan struct{})
	looking.Go(func() {
		var records uint64
		for {
			s := l.Snapshot()
			if s.Records < records {
				t.Errorf("a snapshot of %d records after one of %d", s.Records, records)
			}
			records = s.Records
			select {
			case <-done:
				return
			default:
			}
		}
	})
	if err := l.Run(ctx, fixture(t, "d_restart")); err != nil {
		t.Fatal(err)
	}
	close(done)
	looking.Wait()
	unseen := New(opt)
	if err := unseen.Run(ctx, fixture(t, "d_restart"), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(summary(unseen.Snapshot()), summary(l.Snapshot())); diff != "" {
		t.Error(diff)
	}
	if once, again := l.Snapshot(), l.Snapshot(); once != again {
		t.Error("another snapshot, and nothing has changed")
	}
}

// TestLiveClock: ages grow although nothing comes.
func TestLiveClock(t *testing.T) {
	t.Parallel()
	now := wire.Time(100e9)
	l := NewLive(Options{}, func() wire.Time { return now })
	if s := l.Snapshot(); s.Until != 0 {
		t.Errorf("time %d before the first record", s.Until)
	}
	l.obs.Push(wire.Record{At: now, Replica: "a", Kind: wire.Link, Link: wire.LinkUp})
	first := l.Snapshot()
	now += 5e8
	if l.Snapshot() != first {
		t.Error("a new snapshot after half a second of nothing")
	}
	now += 5e8
	if s := l.Snapshot(); s.Until != now {
		t.Errorf("it is %d, want %d", s.Until, now)
	}
}

// TestWants: what the stream misses is wanted, and said in the snapshot.
func TestWants(t *testing.T) {
	t.Parallel()
	type want struct {
		Replica wire.Replica
		From    uint64
	}
	var wants []want
	asked := Replay{Address: "tcp://h:1", Policy: "gaps", Requests: 1, Left: 11}
	o := New(Options{
		Stream: stream.Options{Hold: 8},
		Want:   func(r wire.Replica, from uint64) { wants = append(wants, want{r, from}) },
		Replay: func(r wire.Replica) (Replay, bool) { return asked, r == "a" },
	})
	batch := func(r wire.Replica, seq byte) wire.Record {
		return wire.Record{At: 1e9, Replica: r, Kind: wire.Frames, Frames: [][]byte{
			{}, {0, 0, 0, 0, 0, 0, 0, seq}, {0x93, 1, 0x90, 0}, // [1, [], 0]
		}}
	}
	for _, rec := range []wire.Record{batch("a", 0), batch("b", 0), batch("a", 4), batch("a", 5)} {
		o.Push(rec)
	}
	if diff := cmp.Diff([]want{{"a", 1}}, wants); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[wire.Replica]Replay{"a": asked}, o.Snapshot().Replay); diff != "" {
		t.Error(diff)
	}
}

// TestNotes: what a source says is kept, what it only passes on is not.
func TestNotes(t *testing.T) {
	t.Parallel()
	o := New(Options{})
	note := func(at wire.Time, text, err string) {
		o.Push(wire.Record{At: at, Replica: "a", Kind: wire.Note, Text: text, Err: err})
	}
	note(1, "dropped 3 messages", "")
	note(2, "a secret line", "a line of unknown kind")
	before := o.Snapshot()
	note(3, "listening", "")
	note(4, "dropped 3 messages", "")
	first := Note{At: 1, Replica: "a", Text: "dropped 3 messages", Times: 1}
	if diff := cmp.Diff([]Note{first}, before.Notes); diff != "" {
		t.Error(diff)
	}
	want := []Note{{At: 3, Replica: "a", Text: "listening", Times: 1}, {At: 4, Replica: "a", Text: "dropped 3 messages", Times: 2}}
	if diff := cmp.Diff(want, o.Snapshot().Notes); diff != "" {
		t.Error(diff)
	}
	for i := range 40 {
		note(5, string(rune('a'+i)), "")
	}
	if n := len(o.Snapshot().Notes); n != maxNotes {
		t.Errorf("%d notes are kept", n)
	}
}

// TestDepart: who has left the fleet stays for a while, and is then forgotten
// with its blocks; who comes back is not.
func TestDepart(t *testing.T) {
	t.Parallel()
	o := New(Options{})
	store := []byte{
		0x93, 1, 0x91, 0x97, 0xab, 'B', 'l', 'o', 'c', 'k', 'S', 't', 'o', 'r', 'e', 'd',
		0x91, 7, 0xc0, 0x92, 1, 2, 2, 0xc0, 0xa3, 'G', 'P', 'U', 0, // [1, [["BlockStored", [7], nil, [1, 2], 2, nil, "GPU"]], 0]
	}
	link := func(at wire.Time, r wire.Replica, state wire.LinkState) {
		o.Push(wire.Record{At: at, Replica: r, Kind: wire.Link, Link: state})
	}
	for _, r := range []wire.Replica{"a", "b", "c"} {
		link(1e9, r, wire.LinkUp)
		o.Push(wire.Record{At: 2e9, Replica: r, Kind: wire.Frames, Frames: [][]byte{{}, make([]byte, 8), store}})
	}
	if n := o.Snapshot().Blocks.Shared; n != 1 {
		t.Fatalf("%d blocks are on more than one replica, want 1", n)
	}
	link(3e9, "a", wire.LinkGone)
	link(3e9, "b", wire.LinkGone)
	link(4e9, "b", wire.LinkUp)
	if s := o.Snapshot(); len(s.Replicas) != 3 || s.Replicas[0].Trust.String() != "STALE(removed)" {
		t.Errorf("%d replicas, the first one %s", len(s.Replicas), s.Replicas[0].Trust)
	}
	o.Push(wire.Record{At: 200e9, Replica: "c", Kind: wire.Scrape})
	s := o.Snapshot()
	if len(s.Replicas) != 2 || s.Replicas[0].Replica != "b" || s.Replicas[1].Replica != "c" {
		t.Errorf("%d replicas are left", len(s.Replicas))
	}
	if s.Replicas[0].Index.Copies != 1 || s.Blocks.Resident != 1 {
		t.Errorf("%+v", s.Blocks)
	}
	link(201e9, "a", wire.LinkUp)
	o.Push(wire.Record{At: 202e9, Replica: "a", Kind: wire.Frames, Frames: [][]byte{{}, make([]byte, 8), store}})
	if s := o.Snapshot(); len(s.Replicas) != 3 || s.Replicas[0].Index.Copies != 1 || s.Replicas[0].Epoch != 1 {
		t.Errorf("back again: %+v", s.Replicas[0])
	}
}
