package diagnose

import (
	"cmp"
	"slices"

	"github.com/kvscope/kvscope/wire"
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
	// Run gives findings that know themselves when they began and ended, from what
	// a View shows of the past; nil for a check of conditions.
	Run func(View) []Finding
	// Now gives what holds at this moment, at most one finding for each subject and
	// about. It is asked once a second with the check's Memory, nil without one.
	Now    func(View, Memory) []Finding
	Memory func() Memory
	// With is the code of the check whose Memory this one shares.
	With string
	// Open is how long a condition holds before it is a finding, and Close how long
	// it has not held when the finding is over.
	Open, Close wire.Time
}

// Checks are all checks, in the order in which they are documented.
var Checks = []Check{
	{Code: "seq-gap", Kind: "stream-gap", Title: "batches were lost between publisher and tap", Needs: "the event stream", Run: seqGap},
	{Code: "late-join", Kind: "stream-gap", Title: "the tap joined after the publisher's first batch", Needs: "the event stream", Run: lateJoin},
	{Code: "replica-restart", Kind: "stream-gap", Title: "the publisher process was replaced", Needs: "the event stream or a metrics page", Run: replicaRestart},
	{Code: "cache-cleared", Kind: "phantom-hit", Title: "the engine dropped its whole cache", Needs: "the event stream", Run: cacheCleared},
	{Code: "undecodable-events", Kind: "stream-silent", Title: "events could not be read", Needs: "the event stream", Run: undecodableEvents},
	{Code: "over-capacity", Kind: "phantom-hit", Title: "more blocks are announced than the engine has", Needs: "the event stream and a metrics page", Run: overCapacity},

	// Chains that share content and not their blocks: shift*.go.
	{Code: "boundary-shift", Kind: "boundary-shift", Title: "a text that changes stands before text that does not", Needs: "the event stream, with tokens; a tokenizer to say what the text is", Now: shiftsOf("boundary-shift"), Memory: newShifts},
	{Code: "order-shift", Kind: "order-shift", Title: "the same content comes in another order or form", Needs: "the event stream, with tokens; a tokenizer to say what the content is", Now: shiftsOf("order-shift"), With: "boundary-shift"},
	{Code: "template-drift", Kind: "template-drift", Title: "a prompt does not begin with what was generated before", Needs: "the event stream, with tokens; a tokenizer for all but doubled beginnings", Now: shiftsOf("template-drift"), With: "boundary-shift"},
	{Code: "multimodal-first", Kind: "boundary-shift", Title: "pictures that change stand before text that does not", Needs: "the event stream, with tokens and extra keys", Now: shiftsOf("multimodal-first"), With: "boundary-shift"},
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
