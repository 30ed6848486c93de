package diagnose

import (
	"testing"

	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

func TestHeadline(t *testing.T) {
	t.Parallel()
	replica := func(name string, doubt, capacity int, word stream.Word, reasons ...stream.Reason) Replica {
		r := Replica{Doubt: doubt}
		r.Replica = wire.Replica(name)
		r.Trust = stream.Trust{Word: word, Reasons: reasons}
		r.Facts.Capacity = capacity
		return r
	}
	exact := func(name string) Replica { return replica(name, 0, 100, stream.Exact) }
	blind := func(name string) Replica { return replica(name, -1, 0, stream.Blind, stream.NoEvents) }
	late := func(name string, doubt int) Replica {
		return replica(name, doubt, 100, stream.Degraded, stream.LateJoin)
	}
	for _, tt := range []struct {
		name string
		in   []Replica
		want string
	}{
		{"none", nil, "No replica has been seen."},
		{"one", []Replica{exact("a")}, "The replica is EXACT: the index holds what the engine holds."},
		{"all", []Replica{exact("a"), exact("b")}, "All 2 replicas are EXACT: the index holds what the engines hold."},
		{
			"several plights, worst first",
			[]Replica{late("a", 7), exact("b"), blind("c")},
			"c has sent no cache event: events may be off, or the topic filter wrong. a was joined late: what it cached before shows only as it is used again (7 of 100 blocks in doubt). 1 replica is EXACT.",
		},
		{
			"one plight of several",
			[]Replica{late("a", 7), late("b", 3), exact("c"), exact("d")},
			"a and b were joined late: what they cached before shows only as it is used again (10 of 200 blocks in doubt). 2 replicas are EXACT.",
		},
		{
			"what makes hits guesses comes first",
			[]Replica{late("a", 7), replica("b", 0, 0, stream.Degraded, stream.GapOpen, stream.LateJoin)},
			"b has missed batches: its hits are guesses. a was joined late: what it cached before shows only as it is used again (7 of 100 blocks in doubt).",
		},
		{
			"of four all are named",
			[]Replica{blind("a"), blind("b"), blind("c"), blind("d")},
			"a, b, c and d have sent no cache event: events may be off, or the topic filter wrong.",
		},
		{
			"of many some",
			[]Replica{blind("a"), blind("b"), blind("c"), blind("d"), blind("e")},
			"a, b, c and 2 more have sent no cache event: events may be off, or the topic filter wrong.",
		},
		{
			"many plights",
			[]Replica{
				blind("a"),
				replica("b", 0, 0, stream.Blind, stream.NeverReached),
				replica("c", 0, 0, stream.Stale, stream.LinkLost),
				replica("d", 5, 100, stream.Replaying), late("e", 0),
			},
			"b was never reached. a has sent no cache event: events may be off, or the topic filter wrong. c has lost its link: what is shown is its last known state. 2 more replicas are not exact.",
		},
		{
			"who has left does not count",
			[]Replica{exact("a"), replica("b", 5, 100, stream.Stale, stream.Removed, stream.GapOpen)},
			"The replica is EXACT: the index holds what the engine holds. 1 replica has left the fleet.",
		},
		{
			"all have left",
			[]Replica{replica("b", 0, 0, stream.Blind, stream.Removed), replica("c", 0, 0, stream.Stale, stream.Removed)},
			"2 replicas have left the fleet.",
		},
		{"replaying", []Replica{replica("d", 5, 100, stream.Replaying)}, "d is replaying what was missed."},
	} {
		if got := Headline(View{Replicas: tt.in}, nil); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// TestHeadlineFinding: where all are trusted the worst finding comes first, and where not
// it comes unless it says the same once more.
func TestHeadlineFinding(t *testing.T) {
	t.Parallel()
	exact := Replica{State: stream.State{Replica: "a", Trust: stream.Trust{Word: stream.Exact}}}
	gap := Replica{State: stream.State{Replica: "b", Trust: stream.Trust{Word: stream.Degraded, Reasons: []stream.Reason{stream.GapOpen}}}}
	over := wire.Time(1)
	of := func(code string, severity Severity, subject, title string) Finding {
		return Finding{Code: code, Kind: checkOf(code).Kind, Severity: severity, Subject: subject, Title: title}
	}
	lost := of("seq-gap", Error, "b", "3 batches lost")
	ended := of("hash-mismatch", Error, "fleet", "is over")
	ended.Until = &over
	herd, moved := of("herding", Warning, "a", "gets 100 % of 90 requests"), of("ping-pong", Warning, "fleet", "half of all turns went elsewhere")
	note := of("late-join", Info, "a", "joined late")
	for _, tt := range []struct {
		in       Replica
		findings []Finding
		want     string
	}{
		{exact, []Finding{ended, note}, "The replica is EXACT: the index holds what the engine holds."},
		{exact, []Finding{ended, herd, note}, "a: gets 100 % of 90 requests. The replica is EXACT: the index holds what the engine holds."},
		{exact, []Finding{moved, herd}, "Half of all turns went elsewhere. 1 more finding is at warning or above. The replica is EXACT: the index holds what the engine holds."},
		{exact, []Finding{herd, moved, moved}, "a: gets 100 % of 90 requests. 2 more findings are at warning or above. The replica is EXACT: the index holds what the engine holds."},
		{gap, []Finding{lost}, "b has missed batches: its hits are guesses."},
		{gap, []Finding{lost, herd}, "b has missed batches: its hits are guesses. a: gets 100 % of 90 requests."},
	} {
		if got := Headline(View{Replicas: []Replica{tt.in}}, tt.findings); got != tt.want {
			t.Errorf("got %s\nwant %s", got, tt.want)
		}
	}
}
