package stream

import (
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// Word is the one word of trust that every replica carries.
type Word string

// The words, from best to worst.
const (
	// Exact: joined at the publisher's first batch or cleared since, and
	// nothing missed.
	Exact Word = "EXACT"
	// Replaying: missing batches were asked for and live ones are held.
	Replaying Word = "REPLAYING"
	// Degraded: something was missed; the reasons say what.
	Degraded Word = "DEGRADED"
	// Stale: the link is lost; this is the last known state.
	Stale Word = "STALE"
	// Blind: serving but silent, or never reached.
	Blind Word = "BLIND"
)

var badness = map[Word]int{Exact: 0, Replaying: 1, Degraded: 2, Stale: 3, Blind: 4}

// Badness orders words from 0 (EXACT) to 4 (BLIND).
func (w Word) Badness() int { return badness[w] }

// Reason says why a replica is not EXACT.
type Reason string

// The reasons.
const (
	LateJoin      Reason = "late-join"
	GapOpen       Reason = "gap"
	ReplayClipped Reason = "replay-clipped"
	OrphanParents Reason = "orphan-parents"
	Undecodable   Reason = "undecodable"
	OverCapacity  Reason = "over-capacity"
	IndexFull     Reason = "index-full"
	LinkLost      Reason = "link-lost"
	Reconnected   Reason = "reconnected" // nothing heard since, so losses are not visible yet
	NoEvents      Reason = "no-events"
	NeverReached  Reason = "never-reached"
	Removed       Reason = "removed" // discovery does not know it any more
)

// telling orders the reasons that a stream alone can give by what they say of
// the hits: those that may be phantoms before those that are a lower bound, and
// why that did not end last.
var telling = [...]Reason{GapOpen, Undecodable, LateJoin, ReplayClipped}

// Trust is a word with its reasons, most telling first.
type Trust struct {
	Word    Word
	Reasons []Reason
}

// Exact reports whether predictions on this replica are exact.
func (t Trust) Exact() bool { return t.Word == Exact }

// Degrade adds a reason found outside the stream. EXACT becomes DEGRADED; a
// worse word stays.
func (t Trust) Degrade(r Reason) Trust {
	for _, have := range t.Reasons {
		if have == r {
			return t
		}
	}
	t.Reasons = append(t.Reasons[:len(t.Reasons):len(t.Reasons)], r)
	if t.Word == Exact {
		t.Word = Degraded
	}
	return t
}

// String gives the word with its reasons: DEGRADED(gap, undecodable).
func (t Trust) String() string {
	if len(t.Reasons) == 0 {
		return string(t.Word)
	}
	words := make([]string, len(t.Reasons))
	for i, r := range t.Reasons {
		words[i] = string(r)
	}
	return string(t.Word) + "(" + strings.Join(words, ", ") + ")"
}

// trust is what the stream alone says of a replica.
func (r *replica) trust() Trust {
	t := Trust{Word: Exact, Reasons: append([]Reason(nil), r.reasons...)}
	first := func(w Word, reason Reason) Trust {
		return Trust{Word: w, Reasons: append([]Reason{reason}, t.Reasons...)}
	}
	switch {
	case r.Link == wire.LinkGone && r.Epoch == 0:
		return first(Blind, Removed)
	case r.Link == wire.LinkGone:
		return first(Stale, Removed)
	case r.Epoch == 0 && len(r.reasons) > 0:
		t.Word = Blind // it sends, and nothing of it can be read
		return t
	case r.Epoch == 0 && r.lost:
		t.Reasons = []Reason{LinkLost, NoEvents}
		t.Word = Blind
		return t
	case r.Epoch == 0 && r.Link == wire.LinkUnknown && r.Facts == (wire.Facts{}):
		return first(Blind, NeverReached)
	case r.Epoch == 0 && r.Link != wire.LinkUp && r.Link != wire.LinkUnknown:
		return first(Blind, NeverReached)
	case r.Epoch == 0:
		return first(Blind, NoEvents)
	case r.Link != wire.LinkUp && r.Link != wire.LinkUnknown:
		return first(Stale, LinkLost)
	case r.reconnected:
		return first(Stale, Reconnected)
	case r.holding:
		t.Word = Replaying
	case len(t.Reasons) > 0:
		t.Word = Degraded
	}
	return t
}
