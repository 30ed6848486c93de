package diagnose

import (
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// Severity of a finding.
type Severity uint8

// The severities.
const (
	Info Severity = iota
	Warning
	Error
)

var severityNames = [...]string{"info", "warning", "error"}

func (s Severity) String() string { return severityNames[min(int(s), len(severityNames)-1)] }

// MarshalText writes the word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// SeverityOf reads a word.
func SeverityOf(word string) (Severity, error) {
	for i, name := range severityNames {
		if word == name {
			return Severity(i), nil
		}
	}
	return 0, fmt.Errorf("unknown severity %q: use info, warning or error", word)
}

// Finding is one thing that is wrong, or worth knowing, with its evidence. Its
// JSON form is part of kvscope.findings/1.
type Finding struct {
	Code     string   `json:"code"`
	Kind     string   `json:"kind"`
	Severity Severity `json:"severity"`
	// Subject is a replica, or "fleet".
	Subject string    `json:"subject"`
	Since   wire.Time `json:"since"`
	// Until is when it ended; nil while it lasts.
	Until    *wire.Time `json:"until"`
	Title    string     `json:"title"`
	Evidence Evidence   `json:"evidence"`
	Effect   Effect     `json:"effect"`
	// Counterfactual says how it would be without the fault, "" where that is
	// not known.
	Counterfactual string `json:"counterfactual"`
	// Next is the next step to take.
	Next string `json:"next"`

	// about tells conditions of one check on one subject apart.
	about string
}

// Open reports whether the finding still holds.
func (f *Finding) Open() bool { return f.Until == nil }

// Evidence names what a finding rests on; nil where it does not apply.
type Evidence struct {
	Replica wire.Replica `json:"replica"`
	SeqFrom *uint64      `json:"seq_from"`
	SeqTo   *uint64      `json:"seq_to"`
	Block   *int         `json:"block"`
	Token   *int         `json:"token"`
	Span    *string      `json:"span"`
}

// Effect says how much it matters; nil where that is not known.
type Effect struct {
	Blocks *int `json:"blocks"`
	Tokens *int `json:"tokens"`
	// Share is of the replica's capacity, 0 to 1.
	Share *float64 `json:"share"`
}

// Replica is what checks see of one replica.
type Replica struct {
	stream.State
	// Model is the base model served, "" if unknown.
	Model string
	// Index holds the shadow index's numbers.
	Index index.Stats
	// Root tells hash roots apart; see index.Index.Root.
	Root int
	// Doubt is how many blocks of the device tier are in doubt: capacity less
	// counted residents; 0 when EXACT, -1 where the capacity is unknown.
	Doubt int
	// Drops are the messages of it that kvscope itself had to drop.
	Drops Drops
}

// Drops counts messages that the tap dropped because the program was slow.
type Drops struct {
	Messages    uint64
	Times       int
	First, Last wire.Time
}

// Router is what is known of the router in front of a fleet.
type Router struct{ Config route.Config }

// View is what checks see of a fleet.
type View struct {
	Now      wire.Time
	Replicas []Replica
	// Blocks are the index's numbers over all of them.
	Blocks Blocks
	// Router is the router in front, nil where nothing is known of it.
	Router *Router
	// Audit is how requests of a log turned out, nil without one.
	Audit *explain.Audit
	// Routers are those whose metrics pages are read, by name.
	Routers []RouterPage
	// Pairs count bookings of routers that came close together.
	Pairs explain.Pairs
	// Belief is what a router said of the caches, nil where none was asked.
	Belief *Belief
}

// Run runs all checks and gives the findings, worst first, then newest first. w is
// nil where nothing was watched.
func Run(v View, w *Watch) []Finding {
	var out []Finding
	if w != nil {
		out = w.findings()
	}
	for _, c := range Checks {
		if c.Run == nil {
			continue
		}
		for _, f := range c.Run(v) {
			f.Code, f.Kind = c.Code, c.Kind
			if f.about != "" { // what was watched of it says less
				out = slices.DeleteFunc(out, func(w Finding) bool {
					return w.Code == f.Code && w.Subject == f.Subject && w.about == f.about
				})
			}
			out = append(out, f)
		}
	}
	sortFindings(out)
	return out
}
