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

	// The stream itself: see streamgaps.go, streamserve.go, streamclock.go, streamclear.go, streamrest.go.
	{Code: "replay-clipped", Kind: "stream-gap", Title: "the publisher's replay begins too late", Needs: "the event stream with its replays", Run: replayClipped},
	{Code: "replay-truncated", Kind: "stream-gap", Title: "a replay broke off before its end", Needs: "the event stream with its replays", Run: replayTruncated},
	{Code: "unfillable-hole", Kind: "stream-gap", Title: "a batch is in no replay", Needs: "the event stream with its replays", Run: unfillableHole},
	{Code: "clear-held-back", Kind: "phantom-hit", Title: "a cleared cache was announced late", Needs: "the event stream with the engine's times", Run: clearHeldBack},
	{Code: "prefix-caching-off", Kind: "stream-silent", Title: "the engine caches no prefixes", Needs: "a metrics page that tells its cache's settings", Now: prefixCachingOff, Close: 10e9},
	{Code: "events-off", Kind: "stream-silent", Title: "the engine serves and publishes no events", Needs: "the event stream and metrics pages", Now: eventsOff, Memory: newServing, Close: 5e9},
	{Code: "stream-silent", Kind: "stream-silent", Title: "events stopped while requests go on", Needs: "the event stream and metrics pages", Now: streamSilent, With: "events-off", Close: 5e9},
	{Code: "publisher-stalled", Kind: "stream-safety", Title: "the publisher holds its engine up", Needs: "the event stream and metrics pages", Now: publisherStalled, With: "events-off", Close: 5e9},
	{Code: "orphan-chains", Kind: "stream-gap", Title: "stored blocks have a parent that was never announced", Needs: "the event stream", Now: orphanChains, Open: 5e9, Close: 10e9},
	{Code: "clock-skew", Kind: "metric-misread", Title: "an engine's clock differs from ours", Needs: "the event stream with the engine's times", Now: clockSkew, Memory: newLags, Open: 10e9, Close: 60e9},
	{Code: "buffer-too-short", Kind: "stream-gap", Title: "the publisher's buffers hold too little", Needs: "the event stream, and the publisher's buffer_steps and hwm from /kv_event_sources (not in recordings)", Now: bufferTooShort, Memory: newRates, Open: 10e9, Close: 60e9},
	{Code: "tap-too-slow", Kind: "stream-safety", Title: "kvscope itself dropped messages", Needs: "the notes of kvscope's own tap", Run: tapTooSlow},
	{Code: "dead-replica-blocks", Kind: "phantom-hit", Title: "a replica is gone and its blocks were never removed", Needs: "the event stream with its links, and metrics pages", Now: deadReplicaBlocks, Open: 30e9, Close: 10e9},
	{Code: "relay-loss", Kind: "stream-gap", Title: "Dynamo's relay loses what the engine announced", Needs: "the event streams of an engine and of Dynamo's event plane side by side", Now: relayLoss, Memory: newRelays, Close: 5e9},

	// Identity and hash.
	{Code: "hash-mismatch", Kind: "hash-mismatch", Title: "replicas give the same tokens different hashes", Needs: "the event streams of two replicas of one model", Now: hashMismatch, Memory: newRoots, Close: minute},
	{Code: "block-size-mismatch", Kind: "hash-mismatch", Title: "block sizes differ", Needs: "the event stream; a metrics page for the model and the configured size", Now: blockSizeMismatch, Memory: newSizes, Close: minute},
	{Code: "dialect-mixed", Kind: "stream-silent", Title: "events come in more than one form", Needs: "the event stream", Now: dialectMixed, Close: minute},
	{Code: "foreign-replica", Kind: "stream-silent", Title: "topic or rank do not fit the replica they came from", Needs: "the event stream; a metrics page for the model", Now: foreignReplica, Open: 2e9, Close: minute},
	{Code: "namespace-collision", Kind: "phantom-hit", Title: "an adapter and a cache salt of one name share hashes", Needs: "the event stream, with extra keys", Now: namespaceCollision, Memory: newTenants, Close: minute},
	{Code: "cross-tenant", Kind: "phantom-hit", Title: "blocks of one tenant serve another", Needs: "the event stream, with adapters and extra keys", Now: crossTenant, With: "namespace-collision", Close: minute},

	// Belief against truth.
	{Code: "tier-granularity", Kind: "phantom-hit", Title: "a lower tier announces blocks that a router cannot use", Needs: "the event stream, with tiers below the device", Now: tierGranularity, Memory: newTiers, Close: minute},
	{Code: "hybrid-overprediction", Kind: "hybrid-groups", Title: "full attention alone promises more than a hybrid model can reuse", Needs: "the event stream, with groups", Now: hybridOverprediction, With: "phantom-hit", Close: minute},
	{Code: "phantom-hit", Kind: "phantom-hit", Title: "the index promises what the engine does not have", Needs: "the event stream, or a requests log (audit)", Run: phantomAudit, Now: phantomHit, Memory: newAgain, Close: minute},
	{Code: "ghost-miss", Kind: "ghost-miss", Title: "the engine has, or could have, what the index does not know", Needs: "the event stream and a metrics page, or a requests log (audit)", Run: ghostAudit, Now: ghostMiss, Close: minute},
	{Code: "router-divergence", Kind: "phantom-hit", Title: "the router's index differs from what the replicas announced", Needs: "a Dynamo indexer's dump or a router's request trace, beside the event stream", Run: routerDivergence},
	{Code: "deprecated-knob", Kind: "load-skew", Title: "the router is configured with deprecated settings", Needs: "the router's flags or variables", Now: deprecatedKnob, Close: minute},
	{Code: "unsupported-shape", Kind: "stream-silent", Title: "the router cannot read what an engine sends", Needs: "the event stream; the router's configuration for how bad it is", Now: unsupportedShape, Memory: newShapes, Close: minute},
	{Code: "index-growth", Kind: "index-cost", Title: "an index holds more than the fleet has", Needs: "the event stream", Now: indexGrowth, Open: minute, Close: minute},

	// Routing: who gets what.
	{Code: "herding", Kind: "load-skew", Title: "one replica gets nearly all requests", Needs: "metrics pages of all replicas", Now: herding, Memory: newTraffic, Close: window},
	{Code: "saturated-hot-replica", Kind: "load-skew", Title: "requests wait on one replica while another is idle", Needs: "metrics pages of all replicas", Now: saturatedHotReplica, Open: 10e9, Close: 10e9},
	{Code: "starved-replica", Kind: "load-skew", Title: "a replica gets no request while the others are busy", Needs: "metrics pages of all replicas", Now: starvedReplica, With: "herding", Close: 10e9},
	{Code: "cold-index-pileup", Kind: "load-skew", Title: "prompts that nobody has all go to one replica", Needs: "the event stream; metrics pages to tell what it costs", Now: coldIndexPileup, With: "herding", Close: window},
	{Code: "ping-pong", Kind: "load-skew", Title: "conversations change replicas from turn to turn", Needs: "the event stream", Now: pingPong, With: "herding", Close: window},
	{Code: "evicted-before-return", Kind: "load-skew", Title: "blocks are evicted before they are wanted again", Needs: "the event stream", Now: evictedBeforeReturn, Memory: newReturns, Close: window},
	{Code: "burst-ahead-of-events", Kind: "load-skew", Title: "equal prompts are computed on several replicas at once", Needs: "the event stream, from replicas whose hashes agree", Now: burstAheadOfEvents, Memory: newBursts, Close: window},
	{Code: "load-term-zero", Kind: "load-skew", Title: "the router counts no load", Needs: "the router's metrics page and those of all replicas", Now: loadTermZero, Memory: newRouters, Close: window},
	{Code: "router-bottleneck", Kind: "load-skew", Title: "choosing a replica takes long", Needs: "the router's metrics page", Now: routerBottleneck, With: "load-term-zero", Close: window},
	{Code: "body-truncated", Kind: "tokenizer-mismatch", Title: "the router saw only the start of some prompts", Needs: "the router's metrics page", Now: bodyTruncated, With: "load-term-zero", Close: window},
	{Code: "weight-cancels", Kind: "load-skew", Title: "the overlap is 0 on all replicas, whatever it weighs", Needs: "metrics pages of all replicas", Now: weightCancels, With: "herding", Open: window, Close: window},
	{Code: "router-race", Kind: "load-skew", Title: "routers pick the same replica at the same time", Needs: "the routers' bookings on Dynamo's event plane", Now: routerRace, Memory: newRaces, Close: window},
	{Code: "no-reuse-to-find", Kind: "load-skew", Title: "no two prompts share a beginning", Needs: "the event stream and metrics pages of all replicas", Now: noReuseToFind, With: "herding", Open: window, Close: window},

	// Chains that share content and not their blocks: shift*.go.
	{Code: "boundary-shift", Kind: "boundary-shift", Title: "a text that changes stands before text that does not", Needs: "the event stream, with tokens; a tokenizer to say what the text is", Now: shiftsOf("boundary-shift"), Memory: newShifts},
	{Code: "order-shift", Kind: "order-shift", Title: "the same content comes in another order or form", Needs: "the event stream, with tokens; a tokenizer to say what the content is", Now: shiftsOf("order-shift"), With: "boundary-shift"},
	{Code: "template-drift", Kind: "template-drift", Title: "a prompt does not begin with what was generated before", Needs: "the event stream, with tokens; a tokenizer for all but doubled beginnings", Now: shiftsOf("template-drift"), With: "boundary-shift"},
	{Code: "multimodal-first", Kind: "boundary-shift", Title: "pictures that change stand before text that does not", Needs: "the event stream, with tokens and extra keys", Now: shiftsOf("multimodal-first"), With: "boundary-shift"},
	{Code: "reuse-plateau", Kind: "boundary-shift", Title: "reuse ends at one place in most prompts", Needs: "the event stream, with tokens", Now: reusePlateau, With: "boundary-shift", Close: minute},

	// Tokens of engine and router: spelled.go, spelledchains.go.
	{Code: "tokenizer-mismatch", Kind: "tokenizer-mismatch", Title: "engine and router make other tokens of the same request", Needs: "a tokenizer; a requests log with the engine's token ids, or the event stream with tokens", Run: tokenizerMismatch, Now: spelledChains, Memory: newSpellings, Close: minute},
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
