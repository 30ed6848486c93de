package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// Headline says in a sentence or two what is wrong with a fleet, worst first,
// so that it can be read out on a call.
func Headline(v View) string {
	if len(v.Replicas) == 0 {
		return "No replica has been seen."
	}
	worst := make([]*Replica, 0, len(v.Replicas))
	for i := range v.Replicas {
		if !v.Replicas[i].Trust.Exact() {
			worst = append(worst, &v.Replicas[i])
		}
	}
	slices.SortStableFunc(worst, func(a, b *Replica) int {
		return b.Trust.Word.Badness() - a.Trust.Word.Badness()
	})
	var said []string
	for _, r := range worst[:min(len(worst), 3)] {
		said = append(said, plight(r))
	}
	if n := len(worst) - len(said); n > 0 {
		said = append(said, fmt.Sprintf("%d more replicas are not exact", n))
	}
	exact := len(v.Replicas) - len(worst)
	switch {
	case len(worst) == 0 && exact == 1:
		said = append(said, "The replica is EXACT: the index holds what the engine holds")
	case len(worst) == 0:
		said = append(said, fmt.Sprintf("All %d replicas are EXACT: the index holds what the engines hold", exact))
	case exact == 1:
		said = append(said, "1 replica is EXACT")
	case exact > 1:
		said = append(said, fmt.Sprintf("%d replicas are EXACT", exact))
	}
	return strings.Join(said, ". ") + "."
}

// plights words each reason that can come first; %s is what is in doubt.
var plights = map[stream.Reason]string{
	stream.LinkLost:      "has lost its link: what is shown is its last known state",
	stream.Reconnected:   "came back and has been silent since: what it did meanwhile is unknown",
	stream.NeverReached:  "was never reached",
	stream.NoEvents:      "has sent no cache event: events may be off, or the topic filter wrong",
	stream.GapOpen:       "has missed batches: its hits are guesses",
	stream.ReplayClipped: "could replay only part of what was missed",
	stream.LateJoin:      "was joined late: what it cached before shows only as it is used again",
	stream.OrphanParents: "names blocks that were never announced: its hits are a lower bound",
	stream.Undecodable:   "sends events that cannot be read",
	stream.OverCapacity:  "announces more blocks than it has: some of its hits are phantoms",
	stream.IndexFull:     "has more blocks than the index may keep (raise --max-index)",
}

func plight(r *Replica) string {
	if r.Trust.Word == stream.Replaying {
		return wire.Printable(string(r.Replica)) + " is replaying what was missed"
	}
	s := wire.Printable(string(r.Replica)) + " " + plights[r.Trust.Reasons[0]]
	if r.Doubt > 0 {
		s += fmt.Sprintf(" (%d of %d blocks in doubt)", r.Doubt, r.Facts.Capacity)
	}
	return s
}
