package fleet

import (
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/kvscope/kvscope/wire"
)

// family is one metric that a page is read for.
type family struct {
	name string
	// sum adds the rank's samples up (finish reasons, streaming or not).
	// Otherwise the largest counts: SGLang repeats a gauge for every scheduler
	// of a rank, and for every priority beside their total.
	sum bool
	// endpoint is the only value of Dynamo's label dynamo_endpoint that counts.
	endpoint string
	// process marks a metric of the whole process, which holds for each rank.
	process bool
	// value or labels puts what was found into the reading.
	value  func(r *reading, v float64)
	labels func(r *reading, m *dto.Metric)
}

// families is the table of metrics, read in this order: where two are the same
// thing, the later one wins, so older spellings come first.
//
// vLLM: recorded pages of 0.22 and 0.32; its counters lose or gain _total with
// the client library. vllm:gpu_prefix_cache_* is left out on purpose: early
// releases counted blocks there, not tokens. SGLang: its metrics collector of
// 0.5.23; cache_config_info is what releases before 0.5.11 had instead of the
// page_size and num_pages gauges. Dynamo: a worker's own metrics of 1.6, which
// come first since the engine's on the same page are better; total_blocks
// counts vLLM's null block too.
var families = withRay([]family{
	{name: "process_start_time_seconds", process: true, value: setStarted},

	{name: "dynamo_component_inflight_requests", endpoint: "generate", sum: true, value: setRunning},
	{name: "dynamo_component_requests_total", endpoint: "generate", sum: true, value: setRequests},
	{name: "dynamo_component_gpu_cache_usage_percent", value: setUsage},
	{name: "dynamo_component_total_blocks", value: func(r *reading, v float64) { r.facts.Capacity = count(v) }},

	{name: "vllm:num_requests_running", value: setRunning},
	{name: "vllm:num_requests_waiting", value: setWaiting},
	{name: "vllm:gpu_cache_usage_perc", value: setUsage},
	{name: "vllm:kv_cache_usage_perc", value: setUsage},
	{name: "vllm:prefix_cache_queries", sum: true, value: setQueried},
	{name: "vllm:prefix_cache_queries_total", sum: true, value: setQueried},
	{name: "vllm:prefix_cache_hits", sum: true, value: setHit},
	{name: "vllm:prefix_cache_hits_total", sum: true, value: setHit},
	{name: "vllm:request_success", sum: true, value: setRequests},
	{name: "vllm:request_success_total", sum: true, value: setRequests},
	{name: "vllm:cache_config_info", labels: vllmConfig},

	{name: "sglang:num_running_reqs", value: setRunning},
	{name: "sglang:num_queue_reqs", value: setWaiting},
	{name: "sglang:token_usage", value: setUsage},
	// Counted when a request finishes, over all tiers.
	{name: "sglang:prompt_tokens_total", sum: true, value: setQueried},
	{name: "sglang:cached_tokens_total", sum: true, value: setHit},
	{name: "sglang:num_requests_total", sum: true, value: setRequests},
	{name: "sglang:cache_config_info", labels: sglangConfig},
	{name: "sglang:page_size", value: func(r *reading, v float64) { r.pageTokens = count(v) }},
	{name: "sglang:max_total_num_tokens", value: func(r *reading, v float64) { r.poolTokens = count(v) }},
})

var wanted = func() map[string]*family {
	m := make(map[string]*family, len(families))
	for i := range families {
		m[families[i].name] = &families[i]
	}
	return m
}()

// rankLabels are the labels that name a data-parallel rank.
var rankLabels = []string{"engine", "dp_rank"}

// rayReplica is the label with which Ray Serve tells replicas apart.
const rayReplica = "ReplicaId"

// withRay adds vLLM's metrics as they are named on the page of a Ray node,
// where no colon is allowed.
func withRay(base []family) []family {
	all := base
	for _, f := range base {
		if name, ok := strings.CutPrefix(f.name, "vllm:"); ok {
			f.name = "ray_vllm_" + name
			all = append(all, f)
		}
	}
	return all
}

func setStarted(r *reading, v float64)  { r.facts.Started, _ = wire.TimeOf(v) }
func setRunning(r *reading, v float64)  { r.load.Running, r.load.Known = v, true }
func setWaiting(r *reading, v float64)  { r.load.Waiting, r.load.Known = v, true }
func setUsage(r *reading, v float64)    { r.load.KVUsage, r.load.Known = min(v, 1), true }
func setQueried(r *reading, v float64)  { r.load.QueriedTokens = v }
func setHit(r *reading, v float64)      { r.load.HitTokens = v }
func setRequests(r *reading, v float64) { r.load.Requests = v }

func vllmConfig(r *reading, m *dto.Metric) {
	r.facts.BlockSize = countLabel(m, "block_size")
	// Block 0 is the null block: it stands for skipped blocks and is never
	// given to a request.
	r.facts.Capacity = max(0, countLabel(m, "num_gpu_blocks")-1)
	if a := label(m, "prefix_caching_hash_algo"); a != "None" {
		r.facts.HashAlgo = a
	}
	if on, err := strconv.ParseBool(label(m, "enable_prefix_caching")); err == nil {
		r.facts.PrefixCaching = &on
	}
}

func sglangConfig(r *reading, m *dto.Metric) {
	r.pageTokens = countLabel(m, "page_size")
	r.facts.Capacity = countLabel(m, "num_pages")
}
