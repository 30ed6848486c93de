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
