package route

import "slices"

// The settings of Dynamo's default policy, by index.
const (
	dynCredit = iota
	dynDecay
	dynScale
	dynRequests
	dynHost
	dynDisk
	dynShared
	dynSharedType
	dynTemperature
	dynEvents
	dynReplicaSync
	dynTrackBlocks
	dynTrackOutput
	dynReuse
	dynTrackPrefill
	dynHash
	dynKeyFile
	dynKeyID
	dynLoadModel
	dynTTL
	dynApproximate
	dynPredictedTTL
	dynQueueThreshold
	dynQueuePolicy
	dynThreads
	dynRemoteIndexer
	dynServeIndexer
	dynSessionIndex
	dynLegacy
	dynLoadAware
)

// dynamoSettings are the fields of KvRouterConfig of Dynamo 1.6.1, with the
// deprecated weight and the preset behind them. Only those that readDynamo and
// the bookkeeping read say anything about a choice; the others are known so that
// a router's whole configuration can be given and shown.
var dynamoSettings = []setting{
	dynCredit:         {name: "overlap_score_credit", flag: "--router-kv-overlap-score-credit", vars: []string{"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"}, def: "1", weight: true, moves: true},
	dynDecay:          {name: "overlap_score_credit_decay", flag: "--router-kv-overlap-score-credit-decay", vars: []string{"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY"}, def: "0", weight: true, moves: true},
	dynScale:          {name: "prefill_load_scale", flag: "--router-prefill-load-scale", vars: []string{"DYN_ROUTER_PREFILL_LOAD_SCALE"}, def: "1", weight: true, moves: true},
	dynRequests:       {name: "decode_active_request_weight", flag: "--router-decode-active-request-weight", vars: []string{"DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT"}, def: "0", weight: true, moves: true},
	dynHost:           {name: "host_cache_hit_weight", flag: "--router-host-cache-hit-weight", vars: []string{"DYN_ROUTER_HOST_CACHE_HIT_WEIGHT"}, def: "0.75", weight: true},
	dynDisk:           {name: "disk_cache_hit_weight", flag: "--router-disk-cache-hit-weight", vars: []string{"DYN_ROUTER_DISK_CACHE_HIT_WEIGHT"}, def: "0.25", weight: true},
	dynShared:         {name: "shared_cache_multiplier", flag: "--shared-cache-multiplier", vars: []string{"DYN_SHARED_CACHE_MULTIPLIER"}, kind: anyReal, weight: true, moves: true},
	dynSharedType:     {name: "shared_cache_type", flag: "--shared-cache-type", vars: []string{"DYN_SHARED_CACHE_TYPE"}, def: "none", kind: word, words: []string{"none", "hicache"}},
	dynTemperature:    {name: "router_temperature", flag: "--router-temperature", vars: []string{"DYN_ROUTER_TEMPERATURE"}, def: "0"},
	dynEvents:         {name: "use_kv_events", flag: "--router-kv-events", off: "--no-router-kv-events", vars: []string{"DYN_ROUTER_USE_KV_EVENTS", "DYN_USE_KV_EVENTS"}, def: "true", kind: onOff},
	dynReplicaSync:    {name: "router_replica_sync", flag: "--router-replica-sync", off: "--no-router-replica-sync", vars: []string{"DYN_ROUTER_REPLICA_SYNC"}, def: "false", kind: onOff},
	dynTrackBlocks:    {name: "router_track_active_blocks", flag: "--router-track-active-blocks", off: "--no-router-track-active-blocks", vars: []string{"DYN_ROUTER_TRACK_ACTIVE_BLOCKS"}, def: "true", kind: onOff},
	dynTrackOutput:    {name: "router_track_output_blocks", flag: "--router-track-output-blocks", off: "--no-router-track-output-blocks", vars: []string{"DYN_ROUTER_TRACK_OUTPUT_BLOCKS"}, def: "false", kind: onOff},
	dynReuse:          {name: "router_assume_kv_reuse", flag: "--router-assume-kv-reuse", off: "--no-router-assume-kv-reuse", vars: []string{"DYN_ROUTER_ASSUME_KV_REUSE"}, def: "true", kind: onOff},
	dynTrackPrefill:   {name: "router_track_prefill_tokens", flag: "--router-track-prefill-tokens", off: "--no-router-track-prefill-tokens", vars: []string{"DYN_ROUTER_TRACK_PREFILL_TOKENS"}, def: "true", kind: onOff},
	dynHash:           {name: "router_tracking_hash", flag: "--router-tracking-hash", vars: []string{"DYN_ROUTER_TRACKING_HASH"}, def: "public-xxh3-v1", kind: word, words: []string{"public-xxh3-v1", "keyed-xxh3-v1"}},
	dynKeyFile:        {name: "router_tracking_key_file", flag: "--router-tracking-key-file", vars: []string{"DYN_ROUTER_TRACKING_KEY_FILE"}, kind: free},
	dynKeyID:          {name: "router_tracking_key_id", flag: "--router-tracking-key-id", vars: []string{"DYN_ROUTER_TRACKING_KEY_ID"}, kind: free},
	dynLoadModel:      {name: "router_prefill_load_model", flag: "--router-prefill-load-model", vars: []string{"DYN_ROUTER_PREFILL_LOAD_MODEL"}, def: "none", kind: word, words: []string{"none", "ais"}},
	dynTTL:            {name: "router_ttl_secs", flag: "--router-ttl-secs", vars: []string{"DYN_ROUTER_TTL_SECS"}, def: "120"},
	dynApproximate:    {name: "router_approximate_cache_policy", flag: "--router-approximate-cache-policy", vars: []string{"DYN_ROUTER_APPROXIMATE_CACHE_POLICY"}, def: "ttl", kind: word, words: []string{"ttl", "lru"}},
	dynPredictedTTL:   {name: "router_predicted_ttl_secs", flag: "--router-predicted-ttl-secs", vars: []string{"DYN_ROUTER_PREDICTED_TTL_SECS"}, kind: anyReal},
	dynQueueThreshold: {name: "router_queue_threshold", flag: "--router-queue-threshold", vars: []string{"DYN_ROUTER_QUEUE_THRESHOLD"}, kind: anyReal, moves: true},
	dynQueuePolicy:    {name: "router_queue_policy", flag: "--router-queue-policy", vars: []string{"DYN_ROUTER_QUEUE_POLICY"}, def: "fcfs", kind: word, words: []string{"fcfs", "lcfs", "wspt"}},
	dynThreads:        {name: "router_event_threads", flag: "--router-event-threads", vars: []string{"DYN_ROUTER_EVENT_THREADS"}, def: "4", kind: whole},
	dynRemoteIndexer:  {name: "use_remote_indexer", flag: "--use-remote-indexer", off: "--no-use-remote-indexer", vars: []string{"DYN_USE_REMOTE_INDEXER"}, def: "false", kind: onOff},
	dynServeIndexer:   {name: "serve_indexer", flag: "--serve-indexer", off: "--no-serve-indexer", vars: []string{"DYN_SERVE_INDEXER"}, def: "false", kind: onOff},
	dynSessionIndex:   {name: "enable_session_prefix_index", flag: "--enable-session-prefix-index", off: "--no-enable-session-prefix-index", vars: []string{"DYN_ENABLE_SESSION_PREFIX_INDEX"}, def: "false", kind: onOff},
	dynLegacy:         {name: "overlap_score_weight", flag: "--router-kv-overlap-score-weight", vars: []string{"DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT", "DYN_OVERLAP_SCORE_WEIGHT"}, kind: anyReal},
	dynLoadAware:      {name: "load_aware", flag: "--load-aware", off: "--no-load-aware", def: "false", kind: onOff},
}

// loadAware is what the preset sets, whatever flags and variables say.
var loadAware = []struct {
	at   int
	text string
}{
	{dynCredit, "0"},
	{dynEvents, "false"},
	{dynTrackBlocks, "true"},
	{dynReuse, "false"},
	{dynTrackPrefill, "true"},
	{dynRemoteIndexer, "false"},
	{dynServeIndexer, "false"},
	{dynShared, "0"},
	{dynSharedType, "none"},
	{dynPredictedTTL, ""},
}

// Deprecated is a setting given in a way that its router warns of.
type Deprecated struct {
	Setting
	// Sets names the other setting that it sets in truth, "" if it does what its name
	// says.
	Sets string
}

// Deprecated gives the settings that came by a flag or variable which the router's
// next release takes from its policy file alone, or by one that has lost its meaning.
func (c *Config) Deprecated() []Deprecated {
	var out []Deprecated
	for i, v := range c.values {
		s := &c.policy.settings[i]
		if v.origin != s.flag && !slices.Contains(s.vars, v.origin) {
			continue
		}
		d := Deprecated{Setting: Setting{s.name, v.text, v.origin}}
		if s.name == dynamoSettings[dynLegacy].name {
			d.Sets = dynamoSettings[dynScale].name
		}
		if s.moves || d.Sets != "" {
			out = append(out, d)
		}
	}
	return out
}

// inferDynamo lets the deprecated weight and the preset of a layer overwrite
// others, in this order.
func inferDynamo(c *Config, layer []Setting) {
	for _, s := range layer {
		if s.Name != dynamoSettings[dynLegacy].name || !c.given(dynLegacy) {
			continue
		}
		// It is no overlap weight any more.
		weight, origin := c.num(dynLegacy), "overlap_score_weight, "+c.values[dynLegacy].origin
		c.imply(dynScale, text(weight), origin)
		if weight == 0 {
			c.imply(dynCredit, "0", origin)
		}
	}
	for _, s := range layer {
		if s.Name == dynamoSettings[dynLoadAware].name && c.on(dynLoadAware) {
			for _, o := range loadAware {
				c.imply(o.at, o.text, "load_aware, "+c.values[dynLoadAware].origin)
			}
		}
	}
}

// finishDynamo gives the multiplier of a shared cache its default, which depends
// on the type.
func finishDynamo(c *Config) {
	if c.given(dynShared) {
		return
	}
	by := map[string]float64{"none": 0, "hicache": 0.5}[c.values[dynSharedType].text]
	c.imply(dynShared, text(by), OriginDefault)
}

// imply sets a value that another one implies. They are all of the tables here,
// which a test reads.
func (c *Config) imply(at int, text, origin string) {
	if v, err := c.policy.settings[at].read(text, origin); err == nil {
		c.values[at] = v
	}
}
