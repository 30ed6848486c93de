package stream

import (
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
