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

	// Routing: who gets what.
	{Code: "herding", Kind: "load-skew", Title: "one replica gets nearly all requests", Needs: "metrics pages of all replicas", Now: herding, Memory: newTraffic, Close: window},
	{Code: "saturated-hot-replica", Kind: "load-skew", Title: "requests wait on one replica while another is idle", Needs: "metrics pages of all replicas", Now: saturatedHotReplica, Open: 10e9, Close: 10e9},
	{Code: "starved-replica", Kind: "load-skew", Title: "a replica gets no request while the others are busy", Needs: "metrics pages of all replicas", Now: starvedReplica, Memory: newTraffic, Close: 10e9},
	{Code: "cold-index-pileup", Kind: "load-skew", Title: "prompts that nobody has all go to one replica", Needs: "the event stream; metrics pages to tell what it costs", Now: coldIndexPileup, Memory: newTraffic, Close: window},
	{Code: "ping-pong", Kind: "load-skew", Title: "conversations change replicas from turn to turn", Needs: "the event stream", Now: pingPong, Memory: newTraffic, Close: window},
	{Code: "evicted-before-return", Kind: "load-skew", Title: "blocks are evicted before they are wanted again", Needs: "the event stream", Now: evictedBeforeReturn, Memory: newReturns, Close: window},
	{Code: "burst-ahead-of-events", Kind: "load-skew", Title: "equal prompts are computed on several replicas at once", Needs: "the event stream, from replicas whose hashes agree", Now: burstAheadOfEvents, Memory: newBursts, Close: window},
	{Code: "load-term-zero", Kind: "load-skew", Title: "the router counts no load", Needs: "the router's metrics page and those of all replicas", Now: loadTermZero, Memory: newRouters, Close: window},
	{Code: "router-bottleneck", Kind: "load-skew", Title: "choosing a replica takes long", Needs: "the router's metrics page", Now: routerBottleneck, Memory: newRouters, Close: window},
	{Code: "body-truncated", Kind: "tokenizer-mismatch", Title: "the router saw only the start of some prompts", Needs: "the router's metrics page", Now: bodyTruncated, Memory: newRouters, Close: window},
	{Code: "weight-cancels", Kind: "load-skew", Title: "the overlap is 0 on all replicas, whatever it weighs", Needs: "metrics pages of all replicas", Now: weightCancels, Memory: newTraffic, Open: window, Close: window},
	{Code: "router-race", Kind: "load-skew", Title: "routers pick the same replica at the same time", Needs: "the routers' bookings on Dynamo's event plane", Now: routerRace, Memory: newRaces, Close: window},
	{Code: "no-reuse-to-find", Kind: "load-skew", Title: "no two prompts share a beginning", Needs: "the event stream and metrics pages of all replicas", Now: noReuseToFind, Memory: newTraffic, Open: window, Close: window},
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
