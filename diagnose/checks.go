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
	// The stream itself: see streamgaps.go, streamserve.go, streamclock.go, streamclear.go, streamrest.go.
	{Code: "replay-clipped", Kind: "stream-gap", Title: "the publisher's replay begins too late", Needs: "the event stream with its replays", Run: replayClipped},
	{Code: "replay-truncated", Kind: "stream-gap", Title: "a replay broke off before its end", Needs: "the event stream with its replays", Run: replayTruncated},
	{Code: "unfillable-hole", Kind: "stream-gap", Title: "a batch is in no replay", Needs: "the event stream with its replays", Run: unfillableHole},
	{Code: "clear-held-back", Kind: "phantom-hit", Title: "a cleared cache was announced late", Needs: "the event stream with the engine's times", Run: clearHeldBack},
	{Code: "prefix-caching-off", Kind: "stream-silent", Title: "the engine caches no prefixes", Needs: "a metrics page that tells its cache's settings", Now: prefixCachingOff, Close: 10e9},
	{Code: "events-off", Kind: "stream-silent", Title: "the engine serves and publishes no events", Needs: "the event stream and metrics pages", Now: eventsOff, Memory: newServing, Close: 5e9},
	{Code: "stream-silent", Kind: "stream-silent", Title: "events stopped while requests go on", Needs: "the event stream and metrics pages", Now: streamSilent, Memory: newServing, Close: 5e9},
	{Code: "publisher-stalled", Kind: "stream-safety", Title: "the publisher holds its engine up", Needs: "the event stream and metrics pages", Now: publisherStalled, Memory: newServing, Close: 5e9},
	{Code: "orphan-chains", Kind: "stream-gap", Title: "stored blocks have a parent that was never announced", Needs: "the event stream", Now: orphanChains, Open: 5e9, Close: 10e9},
	{Code: "clock-skew", Kind: "metric-misread", Title: "an engine's clock differs from ours", Needs: "the event stream with the engine's times", Now: clockSkew, Memory: newLags, Open: 10e9, Close: 60e9},
	{Code: "buffer-too-short", Kind: "stream-gap", Title: "the publisher's buffers hold too little", Needs: "the event stream, and the publisher's buffer_steps and hwm from /kv_event_sources (not in recordings)", Now: bufferTooShort, Memory: newRates, Open: 10e9, Close: 60e9},
	{Code: "tap-too-slow", Kind: "stream-safety", Title: "kvscope itself dropped messages", Needs: "the notes of kvscope's own tap", Run: tapTooSlow},
	{Code: "dead-replica-blocks", Kind: "phantom-hit", Title: "a replica is gone and its blocks were never removed", Needs: "the event stream with its links, and metrics pages", Now: deadReplicaBlocks, Open: 30e9, Close: 10e9},
	{Code: "relay-loss", Kind: "stream-gap", Title: "Dynamo's relay loses what the engine announced", Needs: "the event streams of an engine and of Dynamo's event plane side by side", Now: relayLoss, Memory: newRelays, Close: 5e9},
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
