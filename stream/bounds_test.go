package stream

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/kvscope/kvscope/wire"
)

// What a hostile publisher or recording can make a Tracker keep or do.

func TestHeldBatchesAreBounded(t *testing.T) {
	t.Parallel()
	s := play(t, 10)
	s.all(0, 2).live(5).begin(3)
	s.all(6, 14).then("", "REPLAYING")
	is(s, "held", s.state().Held, 10)
	steps := "doubt"
	for seq := 5; seq <= 15; seq++ {
		steps += fmt.Sprintf(", apply %d", seq)
	}
	s.live(15).then(steps, "DEGRADED(gap)").gaps("3–4 the replay took longer than 10 live batches")
	is(s, "held", s.state().Held, 0)
	s.replay(3, 15).marker().then("", "DEGRADED(gap)")
	s.live(17).then("want 16", "REPLAYING(gap)")
}

func TestHeldBatchesOfARecordingAreBounded(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.all(5, 6).begin(0)
	for seq := uint64(7); seq < 2*unaskedHold; seq++ {
		s.live(seq)
		if held := s.tr.replicas["r"].held; len(held) > unaskedHold {
			t.Fatalf("%d held", len(held))
		}
	}
	s.then(said(s.steps), "DEGRADED(late-join)")
	is(s, "batches", s.state().Batches, 2*unaskedHold-5)
}

func TestHeldBytesAreBounded(t *testing.T) {
	t.Parallel()
	tr := New(Options{Hold: 1 << 30})
	tr.heldLimit = 1 << 20
	scenes := make([]*scene, 4)
	for i := range scenes {
		s := play(t, 0)
		s.tr, s.name = tr, wire.Replica(fmt.Sprint("r", i))
		s.live(0)
		scenes[i] = s
	}
	big := make([]byte, 64<<10)
	for round := range uint64(40) {
		for _, s := range scenes {
			s.publish(stored(1), big)
			s.live(2 + round)
			held := 0
			for _, r := range tr.order {
				if len(r.held) == 0 != (r.heldBytes == 0) {
					t.Fatalf("%s holds %d batches and %d bytes", r.Replica, len(r.held), r.heldBytes)
				}
				held += r.heldBytes
				for i := range r.held {
					if r.held[i].batch.Events != nil {
						t.Fatal("decoded events are held")
					}
				}
			}
			if held > tr.heldLimit || held != tr.heldBytes {
				t.Fatalf("%d bytes held, %d counted, %d allowed", held, tr.heldBytes, tr.heldLimit)
			}
		}
	}
	for _, s := range scenes {
		s.end("no answer")
		st := s.state()
		is(s, "missing", st.MissingNow, 1)
		is(s, "batches", st.Batches, 41)
		is(s, "events", st.Events.Stored, 41) // decoded again
	}
	is(scenes[0], "bytes", tr.heldBytes, 0)
}

// Sequence numbers up to the last one, and steps over nearly all of them.
func TestSequencesNearTheEnd(t *testing.T) {
	t.Parallel()
	const last = math.MaxUint64 - 1
	for _, hold := range []int{0, 5} {
		s := play(t, hold)
		s.made = [][]byte{encode(t, []any{s.now.Seconds(), []any{stored(1)}, 0})}
		push := func(seq uint64) *scene {
			s.publish(stored(1))
			return s.raw([]byte{}, seqFrame(seq), s.made[len(s.made)-1])
		}
		push(last-1).then(fmt.Sprintf("apply %d", uint64(last-1)), "DEGRADED(late-join)")
		push(last)
		is(s, "last", s.state().Last, last)
		push(math.MaxUint64).then("doubt", "DEGRADED(undecodable, late-join)")
		s.reborn()
		push(3).end("no")
		push(1 << 60).end("no")
		push(last).end("no")
		st := s.state()
		checkGaps(t, st)
		is(s, "missing", st.MissingNow, last-2)
		is(s, "gaps", len(st.Gaps), 3)
		is(s, "batches", st.Batches, 5)
		is(s, "epoch", st.Epoch, 2)
		s.begin(0).replay(0, 0) // part of a range of 2^60
		s.push(wire.Record{Kind: wire.ReplayFrames, Frames: [][]byte{{}, {}, seqFrame(1 << 50), s.made[0]}})
		s.marker().end("")
		checkGaps(t, s.state())
		is(s, "missing", s.state().MissingNow, last+1-2)
	}
}

func TestManyGaps(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	const n = 5000
	for seq := uint64(0); seq < 2*n; seq += 2 {
		s.live(seq)
	}
	st := s.state()
	checkGaps(t, st)
	is(s, "gaps", len(st.Gaps), history)
	is(s, "lost", st.GapsLost, n-1-history)
	is(s, "newest", st.Gaps[history-1].From, 2*n-3)
	is(s, "marks", len(st.Marks), history)
	is(s, "lost", st.MarksLost, n-history)
	is(s, "missing", st.MissingNow, n-1) // also those whose gaps fell off
	r := s.tr.replicas["r"]
	if cap(r.Gaps) > 4*history || cap(r.Marks) > 4*history {
		t.Errorf("room for %d gaps and %d marks", cap(r.Gaps), cap(r.Marks))
	}
}

func TestManyGapsHealed(t *testing.T) {
	t.Parallel()
	s := play(t, 1<<20)
	const n = 3000
	for seq := uint64(0); seq < 2*n; seq += 2 {
		s.live(seq)
	}
	is(s, "missing", s.state().MissingNow, n-1)
	s.begin(1)
	for seq := uint64(1); seq < n; seq++ {
		s.replay(seq, seq)
	}
	st := s.state()
	checkGaps(t, st)
	is(s, "missing", st.MissingNow, n/2-1)
	s.replay(n, 2*n).marker().then("", "EXACT")
	st = s.state()
	is(s, "missing", st.MissingNow, 0)
	is(s, "healed", st.GapsHealed, history)
	is(s, "batches", st.Batches, 2*n+1)
}

// One answer heals a wide gap batch by batch, which stays one gap.
func TestWideGapStaysOne(t *testing.T) {
	t.Parallel()
	s := play(t, 10)
	s.live(0).live(5000).begin(1)
	s.replay(1, 2500)
	s.gaps("1–2500 healed", "2501–4999 not replayed")
	is(s, "marks", len(s.state().Marks), 3)
}

func TestManyReplicas(t *testing.T) {
	t.Parallel()
	n := maxReplicas + 100
	if testing.Short() {
		n = 5000
	}
	tr := New(Options{})
	for i := range n {
		name := wire.Replica(fmt.Sprint("replica ", i))
		tr.Push(wire.Record{At: startOfTime, Replica: name, Kind: wire.Link, Link: wire.LinkUp})
		tr.Describe(name, startOfTime, wire.Facts{}, wire.Load{}, "")
	}
	want := min(n, maxReplicas)
	if got := len(tr.Names()); got != want {
		t.Errorf("%d replicas, want %d", got, want)
	}
	if got := tr.Dropped; got != uint64(2*(n-want)) {
		t.Errorf("%d dropped, want %d", got, 2*(n-want))
	}
	if size := unsafe.Sizeof(replica{}); size > 2048 {
		t.Errorf("a replica that is only named takes %d bytes", size)
	}
}

// A stream can name any number of ranks.
func TestManyRanks(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	for rank := range maxRanks + 5 {
		s.rank = rank
		s.publish(stored(1))
		s.raw([]byte{}, seqFrame(0), s.made[rank])
	}
	is(s, "ranks", len(s.tr.Ranks("r")), maxRanks)
	is(s, "dropped", s.tr.Dropped, 5)
	for _, name := range s.tr.Names() {
		is(s, "trust", s.tr.Trust(name).String(), "EXACT")
	}
	s.link(wire.LinkDown)
	is(s, "trust", s.tr.Trust("r/1023").Word, Stale)
}

// Two publishers on one name that give the same rank look like a process that
// restarts all the time: never exact, and never more than bounded.
func TestTwoPublishersOfOneName(t *testing.T) {
	t.Parallel()
	for _, hold := range []int{0, 100} {
		a := play(t, hold)
		b := &scene{t: t, tr: a.tr, name: "r", now: a.now, rank: 0}
		b.payload(500)
		for seq := range uint64(300) {
			b.now = a.now
			a.live(seq)
			b.live(501 + seq)
			a.now = b.now
			if seq > 0 && a.tr.Trust("r").Exact() {
				t.Fatalf("exact at %d", seq)
			}
			checkGaps(t, a.state())
		}
	}
}
