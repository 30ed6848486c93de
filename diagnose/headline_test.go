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
		if got := Headline(View{Replicas: tt.in}); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}
