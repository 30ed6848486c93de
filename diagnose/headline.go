package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// Headline says in a sentence or two what is wrong with a fleet, worst first,
// so that it can be read out on a call: whom not to trust, and the worst of the open
// findings, which are sorted as Run gives them.
func Headline(v View, findings []Finding) string {
	if len(v.Replicas) == 0 {
		return "No replica has been seen."
	}
	var said []string
	var present []*Replica
	for i := range v.Replicas {
		if r := &v.Replicas[i]; !slices.Contains(r.Trust.Reasons, stream.Removed) {
			present = append(present, r)
		}
	}
	groups := plighted(present)
	inexact, named := 0, 0
	for i, g := range groups {
		inexact += len(g.replicas)
		if i < 3 {
			said = append(said, g.String())
			named += len(g.replicas)
		}
	}
	switch n := inexact - named; {
	case n == 1:
		said = append(said, "1 more replica is not exact")
	case n > 1:
		said = append(said, fmt.Sprintf("%d more replicas are not exact", n))
	}
	said = append(said, worst(findings, inexact > 0)...)
	exact, gone := len(present)-inexact, len(v.Replicas)-len(present)
	switch {
	case len(present) == 0:
	case inexact == 0 && exact == 1:
		said = append(said, "The replica is EXACT: the index holds what the engine holds")
	case inexact == 0:
		said = append(said, fmt.Sprintf("All %d replicas are EXACT: the index holds what the engines hold", exact))
	case exact == 1:
		said = append(said, "1 replica is EXACT")
	case exact > 1:
		said = append(said, fmt.Sprintf("%d replicas are EXACT", exact))
	}
	switch {
	case gone == 1:
		said = append(said, "1 replica has left the fleet")
	case gone > 1:
		said = append(said, fmt.Sprintf("%d replicas have left the fleet", gone))
	}
	return strings.Join(said, ". ") + "."
}

// worst words the first open finding at warning or above, and counts the others. Where
// some replica's trust is told of, what makes it so is said already.
func worst(findings []Finding, distrust bool) []string {
	var first *Finding
	more := 0
	for i := range findings {
		f := &findings[i]
		switch {
		case !f.Open() || f.Severity < Warning:
		case distrust && (strings.HasPrefix(f.Kind, "stream-") || f.Code == "over-capacity" || f.Code == "dead-replica-blocks"):
		case first == nil:
			first = f
		default:
			more++
		}
	}
	if first == nil {
		return nil
	}
	title := strings.TrimSuffix(first.Title, ".")
	if first.Subject == "fleet" {
		letter, n := utf8.DecodeRuneInString(title)
		title = string(unicode.ToUpper(letter)) + title[n:]
	} else {
		title = wire.Printable(first.Subject) + ": " + title
	}
	switch more {
	case 0:
		return []string{title}
	case 1:
		return []string{title, "1 more finding is at warning or above"}
	}
	return []string{title, fmt.Sprintf("%d more findings are at warning or above", more)}
}

// plight words what is wrong with one replica, and with several.
type plight struct{ one, many string }

// plights words each reason that can come first.
var plights = map[stream.Reason]plight{
	stream.LinkLost: {
		"has lost its link: what is shown is its last known state",
		"have lost their links: what is shown is their last known state",
	},
	stream.Reconnected: {
		"came back and has been silent since: what it did meanwhile is unknown",
		"came back and have been silent since: what they did meanwhile is unknown",
	},
	stream.NeverReached: {"was never reached", "were never reached"},
	stream.NoEvents: {
		"has sent no cache event: events may be off, or the topic filter wrong",
		"have sent no cache event: events may be off, or the topic filter wrong",
	},
	stream.GapOpen: {
		"has missed batches: its hits are guesses",
		"have missed batches: their hits are guesses",
	},
	stream.ReplayClipped: {
		"could replay only part of what was missed",
		"could replay only part of what was missed",
	},
	stream.LateJoin: {
		"was joined late: what it cached before shows only as it is used again",
		"were joined late: what they cached before shows only as it is used again",
	},
	stream.OrphanParents: {
		"names blocks that were never announced: its hits are a lower bound",
		"name blocks that were never announced: their hits are a lower bound",
	},
	stream.Undecodable: {"sends events that cannot be read", "send events that cannot be read"},
	stream.OverCapacity: {
		"announces more blocks than it has: some of its hits are phantoms",
		"announce more blocks than they have: some of their hits are phantoms",
	},
	stream.IndexFull: {
		"has more blocks than the index may keep (raise --max-index)",
		"have more blocks than the index may keep (raise --max-index)",
	},
}

var replaying = plight{"is replaying what was missed", "are replaying what was missed"}

// company are the replicas in one plight.
type company struct {
	plight
	badness  int
	replicas []*Replica
}

// plighted groups the replicas that are not EXACT by what is wrong with them,
// worst first.
func plighted(replicas []*Replica) []company {
	var out []company
	for _, r := range replicas {
		if r.Trust.Exact() {
			continue
		}
		p := replaying
		if r.Trust.Word != stream.Replaying {
			p = plights[r.Trust.Reasons[0]]
		}
		at := slices.IndexFunc(out, func(c company) bool { return c.plight == p && c.badness == r.Trust.Word.Badness() })
		if at < 0 {
			at = len(out)
			out = append(out, company{plight: p, badness: r.Trust.Word.Badness()})
		}
		out[at].replicas = append(out[at].replicas, r)
	}
	slices.SortStableFunc(out, func(a, b company) int {
		return cmp.Or(b.badness-a.badness, cmp.Compare(a.urgency(), b.urgency()))
	})
	return out
}

// urgencies orders the plights of one word of trust: what makes hits guesses
// comes before what only hides some.
var urgencies = []stream.Reason{
	stream.NeverReached, stream.LinkLost, stream.NoEvents, stream.Reconnected, stream.GapOpen, stream.Undecodable,
	stream.OverCapacity, stream.IndexFull, stream.ReplayClipped, stream.OrphanParents, stream.LateJoin,
}

func (c company) urgency() int {
	return slices.IndexFunc(urgencies, func(r stream.Reason) bool { return plights[r] == c.plight })
}

func (c company) String() string {
	const most = 3
	var names []string
	doubt, capacity := 0, 0
	for i, r := range c.replicas {
		if i < most || len(c.replicas) == most+1 {
			names = append(names, wire.Printable(string(r.Replica)))
		}
		if r.Doubt > 0 && r.Trust.Word != stream.Replaying {
			doubt += r.Doubt
			capacity += r.Facts.Capacity
		}
	}
	if n := len(c.replicas) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	out, words := names[0], c.one
	if n := len(names); n > 1 {
		out, words = strings.Join(names[:n-1], ", ")+" and "+names[n-1], c.many
	}
	out += " " + words
	if doubt > 0 {
		out += fmt.Sprintf(" (%s of %s blocks in doubt)", wire.Grouped(doubt), wire.Grouped(capacity))
	}
	return out
}
