package stream

import (
	"reflect"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

func TestRate(t *testing.T) {
	t.Parallel()
	const second = wire.Time(1e9)
	var st State
	at := startOfTime
	if got := st.Rate(at, 3); !slices.Equal(got, []uint32{0, 0, 0}) {
		t.Errorf("rate of nothing: %v", got)
	}
	rate := func(until wire.Time, want ...uint32) {
		t.Helper()
		if got := st.Rate(until, len(want)); !slices.Equal(got, want) {
			t.Errorf("rate until +%d s: %v, want %v", (until-at)/second, got, want)
		}
	}
	st.count(at, 3)
	st.count(at+second/2, 4)
	st.count(at+2*second, 5)
	st.count(at+second, 1) // a held batch
	rate(at+2*second, 0, 7, 1, 5)
	rate(at+4*second, 1, 5, 0, 0)
	rate(at, 0, 7)
	// The ring goes round, and what is behind it is gone.
	st.count(at+(rateLen+1)*second, 6)
	rate(at+(rateLen+1)*second, 0, 0, 6)
	rate(at+2*second, 0, 0, 5)
	st.count(at, 9)
	rate(at+2*second, 0, 0, 5)
	st.count(at+10_000*second, 8)
	rate(at+10_000*second, 0, 0, 8)
	rate(at+9_999*second, 0, 0, 0)
	// Receive times of a damaged recording.
	st.count(-at, 1)
	st.count(1<<63-1, 2)
	rate(1<<63-1, 0, 2)
	rate(-1<<63, 0, 0)
	if got := len(st.Rate(at, 500)); got != 500 {
		t.Errorf("%d bins", got)
	}
}

func TestRateIsOfNow(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(50, 51)
	lag := s.state().Lag
	s.now += 10e9
	s.begin(0).replay(0, 51).marker()
	st := s.state()
	is(s, "lag", st.Lag, lag)
	n := uint32(0)
	for _, events := range st.Rate(st.Until, rateLen) {
		n += events
	}
	is(s, "events of the last two minutes", n, 2) // those that came live
}

func TestTrust(t *testing.T) {
	t.Parallel()
	words := []Word{Exact, Replaying, Degraded, Stale, Blind}
	for i, w := range words {
		if w.Badness() != i {
			t.Errorf("%s is %d bad, want %d", w, w.Badness(), i)
		}
	}
	var reasons [4]Reason
	reasons[0] = GapOpen
	trust := Trust{Word: Exact, Reasons: reasons[:1]}
	a := trust.Degrade(OrphanParents)
	b := trust.Degrade(OverCapacity)
	if a.String() != "DEGRADED(gap, orphan-parents)" || b.String() != "DEGRADED(gap, over-capacity)" {
		t.Errorf("%s and %s", a, b)
	}
	if got := a.Degrade(GapOpen).String(); got != a.String() {
		t.Errorf("degraded twice: %s", got)
	}
	if got := (Trust{Word: Stale}).Degrade(GapOpen).String(); got != "STALE(gap)" {
		t.Errorf("a worse word: %s", got)
	}
	if !(Trust{Word: Exact}).Exact() || a.Exact() {
		t.Error("exact")
	}
}

// A clone and its original go different ways.
func TestClone(t *testing.T) {
	t.Parallel()
	a := play(t, 100)
	a.live(10)
	a.publish(bad())
	a.live(11).live(14).live(15).begin(12).live(18)
	is(a, "trust", a.tr.Trust("r").String(), "REPLAYING(undecodable, late-join)")
	b := &scene{t: t, tr: a.tr.Clone(), name: "r", now: a.now, rank: 0, made: slices.Clone(a.made)}
	is(b, "state", reflect.DeepEqual(a.state(), b.state()), true)
	a.replay(13, 13).then("doubt, apply 13 replayed, apply 14, apply 15", "REPLAYING(gap, undecodable, late-join, replay-clipped)")
	b.then("", "REPLAYING(undecodable, late-join)").gaps("12–13 not replayed", "16–17 not replayed")
	b.replay(12, 17).then("apply 12 replayed, apply 13 replayed, apply 14, apply 15, apply 16 replayed, apply 17 replayed, apply 18",
		"REPLAYING(undecodable, late-join)")
	a.marker().then("want 16", "REPLAYING(gap, undecodable, late-join, replay-clipped)")
	a.end("no").then("doubt, apply 18", "DEGRADED(gap, undecodable, late-join, replay-clipped)")
	b.marker().then("", "DEGRADED(undecodable, late-join)").gaps("12–13 healed", "16–17 healed")
	is(a, "bytes held", a.tr.heldBytes, 0)
	is(b, "bytes held", b.tr.heldBytes, 0)
	c := a.tr.Clone()
	if c.order[0] != c.replicas["r"] || c.order[0] == a.tr.order[0] || c.heldLimit != maxHeldBytes {
		t.Error("a clone is not whole, or not its own")
	}
	// Ranks stay with their name.
	a.rank = 1
	a.made = nil
	a.live(0)
	c = a.tr.Clone()
	c.Push(wire.Record{At: a.now, Replica: "r", Kind: wire.Link, Link: wire.LinkUp})
	c.Push(wire.Record{At: a.now, Replica: "r", Kind: wire.Link, Link: wire.LinkDown})
	is(a, "link of the clone's rank", c.Trust("r/1").Word, Stale)
	is(a, "link of the original's", a.tr.Trust("r/1").Word, Exact)
}

// A State is a copy, and so is a Trust.
func TestStateIsACopy(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.all(0, 2).live(4)
	st := s.state()
	trust := s.tr.Trust("r")
	st.Gaps[0].Reason, st.Marks[0].Text, st.Trust.Reasons[0], trust.Reasons[0] = "x", "x", "x", "x"
	s.then("doubt, apply 4", "DEGRADED(gap)").gaps("3–3 not replayed")
	is(s, "mark", s.state().Marks[0].Text, "")
	s.live(6)
	is(s, "gaps of the copy", len(st.Gaps), 1)
}
