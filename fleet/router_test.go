package fleet_test

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// sample is a line of a page.
type sample struct {
	labels map[string]string
	value  float64
}

var anyLabel = regexp.MustCompile(`(\w+)="([^"]*)"`)

// samplesOf is the independent reading of a page: the lines that begin with a
// name, cut at the last blank.
func samplesOf(t *testing.T, text, name string) (out []sample) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		at := strings.LastIndexByte(rest, ' ')
		v, err := strconv.ParseFloat(rest[at+1:], 64)
		if err != nil {
			t.Fatal(err)
		}
		s := sample{map[string]string{}, v}
		for _, l := range anyLabel.FindAllStringSubmatch(rest[:at], -1) {
			s.labels[l[1]] = l[2]
		}
		out = append(out, s)
	}
	return out
}

func sumOf(t *testing.T, text, name string) (sum float64) {
	t.Helper()
	for _, s := range samplesOf(t, text, name) {
		sum += s.value
	}
	return sum
}

func meanOf(t *testing.T, text, name string) fleet.Mean {
	t.Helper()
	return fleet.Mean{Count: sumOf(t, text, name+"_count"), Sum: sumOf(t, text, name+"_sum")}
}

func pageOf(t *testing.T, root, name string) string {
	t.Helper()
	return string(refdata.Unpack(t, refdata.Files(t, root, name)[0]))
}

// checkFrontend holds what is read of a page of Dynamo's real frontend against
// the other reading, and against figures that were read off it by eye.
func checkFrontend(t *testing.T, root string) {
	t.Helper()
	text := pageOf(t, root, "dynamo/live/frontend_metrics_final.txt.gz")
	got, err := fleet.ParseRouter(text)
	if err != nil {
		t.Fatal(err)
	}
	const router, overhead = "dynamo_component_router_", "dynamo_router_overhead_"
	want := fleet.RouterFacts{
		Router:       "dynamo",
		Requests:     sumOf(t, text, router+"requests_total"),
		HitRate:      meanOf(t, text, router+"kv_hit_rate"),
		CachedTokens: sumOf(t, text, router+"kv_selected_cached_prefix_tokens_total"),
		BestTokens:   sumOf(t, text, router+"kv_best_eligible_cached_prefix_tokens_total"),
		Queued:       sumOf(t, text, "dynamo_frontend_router_queue_pending_requests"),
		Unsourced:    sumOf(t, text, router+"kv_event_source_mismatch_workers"),
		Overhead: map[string]fleet.Mean{
			"block_hashing":      meanOf(t, text, overhead+"block_hashing_ms"),
			"find_matches":       meanOf(t, text, overhead+"indexer_find_matches_ms"),
			"seq_hashing":        meanOf(t, text, overhead+"seq_hashing_ms"),
			"shared_cache_query": meanOf(t, text, overhead+"shared_cache_query_ms"),
			"scheduling":         meanOf(t, text, overhead+"scheduling_ms"),
			"total":              meanOf(t, text, overhead+"total_ms"),
		},
	}
	blocks, tokens := map[string]float64{}, map[string]float64{}
	for _, s := range samplesOf(t, text, "dynamo_frontend_worker_active_decode_blocks") {
		blocks[s.labels["worker_id"]] = s.value
	}
	for _, s := range samplesOf(t, text, "dynamo_frontend_worker_active_prefill_tokens") {
		tokens[s.labels["worker_id"]] = s.value
	}
	for _, s := range samplesOf(t, text, router+"worker_registered") { // in order of ids
		id := s.labels["router_worker_id"]
		want.Workers = append(want.Workers, fleet.RouterWorker{ID: id, Registered: true, Blocks: blocks[id], PrefillTokens: tokens[id]})
	}
	for _, s := range samplesOf(t, text, "dynamo_component_kv_cache_events_applied") { // in order too
		want.Events = append(want.Events, fleet.RouterEvents{Kind: s.labels["event_type"], Outcome: s.labels["status"], Count: s.value})
	}
	for _, s := range samplesOf(t, text, "dynamo_component_kv_cache_event_warnings") {
		want.Events = append(want.Events, fleet.RouterEvents{Kind: "warning", Outcome: s.labels["warning_kind"], Count: s.value})
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got.Requests != 70 || got.CachedTokens != 11952 || got.BestTokens != 12192 || len(got.Workers) != 4 || len(got.Events) != 28 {
		t.Errorf("%+v", got)
	}
	if v, ok := got.Overhead["total"].Value(); !ok || math.Abs(v-0.42512) > 1e-5 {
		t.Errorf("an overhead of %v ms, want 0.42512", v)
	}
	if _, ok := got.Overhead["shared_cache_query"].Value(); ok {
		t.Error("a mean of nothing")
	}
	if _, _, err := fleet.ParseMetrics(text, 0); !errors.Is(err, fleet.ErrNoEngine) {
		t.Errorf("a frontend is taken for an engine: error %v", err)
	}
}

// checkGateway does the same for SGLang's real router.
func checkGateway(t *testing.T, root string) {
	t.Helper()
	text := pageOf(t, root, "sglang-router/metrics.txt.gz")
	got, err := fleet.ParseRouter(text)
	if err != nil {
		t.Fatal(err)
	}
	want := fleet.RouterFacts{
		Router: "sglang", Requests: sumOf(t, text, "smg_router_requests_total"),
		Choices: map[string]float64{"cache_aware": sumOf(t, text, "smg_worker_selection_total")},
	}
	for _, port := range []string{"16101", "16102", "16103", "16104"} {
		want.Workers = append(want.Workers, fleet.RouterWorker{ID: "http://127.0.0.1:" + port, Rank: -1, Registered: true})
	}
	if d := cmp.Diff(want, got); d != "" || got.Requests != 300 || got.Choices["cache_aware"] != 300 {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// checkWorker does the same for the page of a real worker of Dynamo's.
func checkWorker(t *testing.T, root string) {
	t.Helper()
	text := pageOf(t, root, "dynamo/live/worker_system_metrics.txt.gz")
	facts, load, err := fleet.ParseMetrics(text, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := wire.Load{
		Known:   true,
		Running: sumOf(t, text, "vllm:num_requests_running"), Waiting: sumOf(t, text, "vllm:num_requests_waiting"),
		KVUsage: sumOf(t, text, "vllm:kv_cache_usage_perc"),
	}
	for _, s := range samplesOf(t, text, "dynamo_component_requests_total") {
		if s.labels["dynamo_endpoint"] == "generate" {
			want.Requests += s.value
		}
	}
	if d := cmp.Diff(want, load); d != "" || load.Requests != 17 || facts.Model != "qwen3-mock" {
		t.Errorf("facts %+v (-want +got)\n%s", facts, d)
	}
	if _, err := fleet.ParseRouter(text); !errors.Is(err, fleet.ErrNoRouter) {
		t.Errorf("a worker is taken for a router: error %v", err)
	}
}

func TestRouterPages(t *testing.T) {
	t.Parallel()
	checkFrontend(t, "testdata")
	checkGateway(t, "testdata")
	checkWorker(t, "testdata")
}

func TestOracleRouterPages(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	checkFrontend(t, root)
	checkGateway(t, root)
	checkWorker(t, root)
}

func TestParseRouter(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, page string
		want       fleet.RouterFacts
	}{
		{
			name: "dynamo with two ranks, queues of two classes and a bad event",
			page: `dynamo_component_router_worker_registered{dp_rank="0",router_worker_id="7",worker_id="ff"} 1
dynamo_component_router_worker_registered{dp_rank="1",router_worker_id="7",worker_id="ff"} 0
dynamo_frontend_worker_active_decode_blocks{dp_rank="1",worker_id="7",worker_type="decode"} 5
dynamo_frontend_worker_active_prefill_tokens{dp_rank="1",worker_id="7",worker_type="decode"} 600
dynamo_frontend_router_queue_pending_requests{policy_class="a"} 2
dynamo_frontend_router_queue_pending_requests{policy_class="b"} 3
dynamo_component_kv_cache_events_applied{event_type="stored",status="parent_block_not_found",dynamo_component="a"} 4
dynamo_component_kv_cache_events_applied{event_type="stored",status="parent_block_not_found",dynamo_component="b"} 5
dynamo_component_router_kv_event_source_mismatch_workers{model="m"} 1
`,
			want: fleet.RouterFacts{
				Router: "dynamo", Queued: 5, Unsourced: 1,
				Workers: []fleet.RouterWorker{{ID: "7", Registered: true}, {ID: "7", Rank: 1, Blocks: 5, PrefillTokens: 600}},
				Events:  []fleet.RouterEvents{{Kind: "stored", Outcome: "parent_block_not_found", Count: 9}},
			},
		},
		{
			name: "the gateway from 1.13 on, with a sick worker",
			page: `smg_cache_aware_policy_branch_total{branch="tree_match"} 6
smg_cache_aware_policy_branch_total{branch="spill"} 2
smg_cache_aware_match_ratio_sum 3.5
smg_cache_aware_match_ratio_count 8
smg_worker_requests_active{worker="http://a"} 4
smg_worker_health{worker="http://a"} 0
`,
			want: fleet.RouterFacts{
				Router: "sglang", HitRate: fleet.Mean{Count: 8, Sum: 3.5},
				Choices: map[string]float64{"tree_match": 6, "spill": 2},
				Workers: []fleet.RouterWorker{{ID: "http://a", Rank: -1, Registered: true, Unhealthy: true, Active: 4}},
			},
		},
		{
			name: "ray, which writes each counter twice",
			page: `ray_serve_haproxy_ingress_router_requests{application="a"} 10
ray_serve_haproxy_ingress_router_requests_total{application="a"} 10
ray_serve_haproxy_ingress_router_truncations_total{application="a"} 3
ray_serve_haproxy_ingress_router_server_mismatch_total{application="a"} 1
ray_serve_haproxy_ingress_router_latency_ms_sum{application="a",outcome="success"} 20
ray_serve_haproxy_ingress_router_latency_ms_sum{application="a",outcome="failure"} 10
ray_serve_haproxy_ingress_router_latency_ms_count{application="a",outcome="success"} 9
ray_serve_haproxy_ingress_router_latency_ms_count{application="a",outcome="failure"} 1
`,
			want: fleet.RouterFacts{
				Router: "ray", Requests: 10, Truncated: 3, Diverted: 1,
				Overhead: map[string]fleet.Mean{"total": {Count: 10, Sum: 30}},
			},
		},
		{
			name: "llm-d under both names",
			page: `inference_objective_request_total{model="m"} 5
llm_d_epp_request_total{model="m"} 6
inference_extension_scheduler_e2e_duration_seconds_sum 0.25
inference_extension_scheduler_e2e_duration_seconds_count 5
llm_d_epp_scheduler_e2e_duration_seconds_sum 0.5
llm_d_epp_scheduler_e2e_duration_seconds_count 6
kvcache_index_admissions_total 1
llm_d_epp_kv_cache_index_admissions_total 2
llm_d_epp_kv_cache_index_evictions_total 3
llm_d_epp_kv_cache_index_lookup_requests_total 4
llm_d_epp_kv_cache_index_lookup_hits_total 5
llm_d_epp_prefix_indexer_hit_ratio_sum 1.5
llm_d_epp_prefix_indexer_hit_ratio_count 6
llm_d_epp_kv_cache_events_messages_received_total{pod_identifier="a"} 1
llm_d_epp_kv_cache_events_messages_received_total{pod_identifier="b"} 2
llm_d_epp_kv_cache_events_stores_skipped_total{cache_kind="",reason="unsupported_cache_kind"} 7
`,
			want: fleet.RouterFacts{
				Router: "llm-d", Requests: 6, HitRate: fleet.Mean{Count: 6, Sum: 1.5},
				Overhead: map[string]fleet.Mean{"total": {Count: 6, Sum: 500}},
				Events: []fleet.RouterEvents{
					{Kind: "message", Outcome: "received", Count: 3},
					{Kind: "stored", Outcome: "skipped: unsupported_cache_kind", Count: 7},
				},
				Index: fleet.RouterIndex{Admitted: 2, Evicted: 3, Lookups: 4, Found: 5},
			},
		},
		{
			name: "numbers that are none",
			page: "smg_router_requests_total NaN\nsmg_worker_requests_active{worker=\"a\"} -1\n" +
				"smg_worker_selection_total{policy=\"x\",a=\"1\"} 1.7e308\nsmg_worker_selection_total{policy=\"x\",a=\"2\"} 1.7e308\n",
			want: fleet.RouterFacts{Router: "sglang", Choices: map[string]float64{"x": 1.7e308}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := fleet.ParseRouter(tt.page)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
	for page, want := range map[string]string{
		"":                        "no metric of a router",
		"go_goroutines 1\n":       "no metric of a router",
		"smg_worker_health{a=":    "cut off?",
		"smg_worker_health yes\n": "yes",
		strings.Repeat("smg_worker_health 1\n", fleet.MaxSamples+1): "65536 samples",
	} {
		if _, err := fleet.ParseRouter(page); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

func FuzzParseRouter(f *testing.F) {
	f.Add("dynamo_component_router_worker_registered{router_worker_id=\"1\",dp_rank=\"-9\"} 1\ndynamo_router_overhead_total_ms_sum 1e308\n")
	f.Add("llm_d_epp_scheduler_e2e_duration_seconds_sum 1.7e308\nsmg_worker_selection_total 1.7e308\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := fleet.ParseRouter(text)
		if err != nil {
			return
		}
		numbers := []float64{got.Requests, got.HitRate.Sum, got.CachedTokens, got.Queued, got.Truncated, got.Index.Found}
		for _, m := range got.Overhead {
			numbers = append(numbers, m.Sum, m.Count)
		}
		for _, w := range got.Workers {
			numbers = append(numbers, w.Blocks, w.PrefillTokens, w.Active)
		}
		for _, e := range got.Events {
			numbers = append(numbers, e.Count)
		}
		for _, n := range got.Choices {
			numbers = append(numbers, n)
		}
		for _, v := range numbers {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				t.Errorf("not a count: %+v", got)
			}
		}
	})
}
