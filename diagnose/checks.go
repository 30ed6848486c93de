package diagnose

import (
	"cmp"
	"slices"
)

// Check is one row of the table.
type Check struct {
	// Code names the check and its page, docs/checks/<code>.md.
	Code string
	// Kind groups checks by what goes wrong.
	Kind  string
	Title string
	// Needs says in words what the check looks at.
	Needs string
	Run   func(View) []Finding
}

// Checks are all checks, in the order in which they are documented.
var Checks = []Check{
	{"seq-gap", "stream-gap", "batches were lost between publisher and tap", "the event stream", seqGap},
	{"late-join", "stream-gap", "the tap joined after the publisher's first batch", "the event stream", lateJoin},
	{"replica-restart", "stream-gap", "the publisher process was replaced", "the event stream or a metrics page", replicaRestart},
	{"cache-cleared", "phantom-hit", "the engine dropped its whole cache", "the event stream", cacheCleared},
	{"undecodable-events", "stream-silent", "events could not be read", "the event stream", undecodableEvents},
	{"over-capacity", "phantom-hit", "more blocks are announced than the engine has", "the event stream and a metrics page", overCapacity},
}

func sortFindings(f []Finding) {
	slices.SortStableFunc(f, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(b.Severity, a.Severity),
			cmp.Compare(openRank(a), openRank(b)),
			cmp.Compare(b.Since, a.Since),
			cmp.Compare(a.Subject, b.Subject),
		)
	})
}

func openRank(f Finding) int {
	if f.Open() {
		return 0
	}
	return 1
}
