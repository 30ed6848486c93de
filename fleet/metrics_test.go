package fleet_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/wire"
)

func ptr[T any](v T) *T { return &v }

const config = `vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="%d",num_gpu_blocks="%d",prefix_caching_hash_algo="sha256_cbor"} 1.0
`

func TestParseMetrics(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		page  string
		rank  int
		facts wire.Facts
		load  wire.Load
	}{
		{
			name: "vllm, one engine",
			page: `# HELP process_start_time_seconds Start time.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.5e+09
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 640.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 320.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 4.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 5.0
` + fmt.Sprintf(config, 0, 101),
			facts: wire.Facts{
				Model: "m", BlockSize: 16, Capacity: 100, HashAlgo: "sha256_cbor",
				PrefixCaching: ptr(true), Started: 1_500_000_000_000_000_000,
			},
			load: wire.Load{
				Known: true, Running: 3, Waiting: 7, KVUsage: 0.25,
				QueriedTokens: 640, HitTokens: 320, Requests: 9,
			},
		},
		{
			name: "several engines, the rank's series, the process's start",
			page: "process_start_time_seconds 2\n" +
				`vllm:num_requests_running{engine="0",model_name="m"} 1
vllm:num_requests_running{engine="1",model_name="m"} 2
vllm:num_requests_waiting 50
` + fmt.Sprintf(config, 0, 11) + fmt.Sprintf(config, 1, 21),
			rank: 1,
			facts: wire.Facts{
				Model: "m", BlockSize: 16, Capacity: 20, HashAlgo: "sha256_cbor",
				PrefixCaching: ptr(true), Started: 2_000_000_000,
			},
			load: wire.Load{Known: true, Running: 2},
		},
		{
			name:  "the only engine, under another number",
			page:  "vllm:num_requests_running{engine=\"4\",model_name=\"m\"} 1\n",
			rank:  -1,
			facts: wire.Facts{Model: "m"},
			load:  wire.Load{Known: true, Running: 1},
		},
		{
			name: "older names, unset labels, no final newline",
			page: `vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:prefix_cache_queries{model_name="m"} 8
vllm:cache_config_info{block_size="16",enable_prefix_caching="None",num_gpu_blocks="None",prefix_caching_hash_algo="None"} 1`,
			facts: wire.Facts{Model: "m", BlockSize: 16},
			load:  wire.Load{Known: true, KVUsage: 0.5, QueriedTokens: 8},
		},
		{
			name: "the newer name wins, whatever the order",
			page: "vllm:kv_cache_usage_perc 0.75\nvllm:gpu_cache_usage_perc 0.5\n",
			load: wire.Load{Known: true, KVUsage: 0.75},
		},
		{
			name: "prefix caching off",
			page: `vllm:cache_config_info{block_size="16",enable_prefix_caching="False"} 1` + "\n",
			facts: wire.Facts{
				BlockSize: 16, PrefixCaching: ptr(false),
			},
		},
		{
			name: "numbers that are none",
			page: "vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\n" +
				"vllm:prefix_cache_queries_total -1\nvllm:prefix_cache_hits_total 1.7e308\nvllm:kv_cache_usage_perc 1.5\n" +
				"vllm:request_success_total{r=\"a\"} 1.7e308\nvllm:request_success_total{r=\"b\"} 1.7e308\n",
			load: wire.Load{Known: true, KVUsage: 1, HitTokens: 1.7e308},
		},
		{
			name: "a TYPE cannot turn a gauge into a histogram, other lines are not read",
			page: "# TYPE vllm:num_requests_running histogram\nvllm:num_requests_running 2\n" +
				"vllm:other{ broken\n<html>\n\x00\xff\n",
			load: wire.Load{Known: true, Running: 2},
		},
		{
			// The form of SGLang 0.5.23: schedulers of two tensor-parallel
			// ranks, a queue by priority, counters of the tokenizer process.
			name: "sglang",
			page: `sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="0"} 3.0
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="1"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",priority="5",tp_rank="0"} 2.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",priority="",tp_rank="0"} 6.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",priority="7",tp_rank="0"} 4.0
sglang:token_usage{model_name="m",tp_rank="0"} 0.125
sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 1030.0
sglang:max_total_num_tokens_swa{model_name="m",tp_rank="0"} 9999.0
sglang:page_size{model_name="m",tp_rank="0"} 64.0
sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 100.0
sglang:prompt_tokens_total{is_streaming="false",model_name="m"} 28.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 64.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 32.0
sglang:num_requests_total{is_streaming="true",model_name="m"} 2.0
sglang:num_requests_total{is_streaming="false",model_name="m"} 1.0
`,
			facts: wire.Facts{Model: "m", BlockSize: 64, Capacity: 16},
			load: wire.Load{
				Known: true, Running: 3, Waiting: 6, KVUsage: 0.125,
				QueriedTokens: 128, HitTokens: 96, Requests: 3,
			},
		},
		{
			name: "sglang with data-parallel ranks: counters of all ranks are nobody's",
			page: `sglang:num_running_reqs{dp_rank="0",model_name="m"} 3
sglang:num_running_reqs{dp_rank="1",model_name="m"} 4
sglang:num_requests_total{is_streaming="true",model_name="m"} 20
`,
			rank:  1,
			facts: wire.Facts{Model: "m"},
			load:  wire.Load{Known: true, Running: 4},
		},
		{
			// The form of Ray 2.60: no colon, each counter with and without
			// _total, labels of the node beside vLLM's.
			name: "ray serve",
			page: `ray_vllm_num_requests_running{Component="core_worker",ReplicaId="r1",WorkerId="w",engine="0",model_name="m"} 3.0
ray_vllm_kv_cache_usage_perc{ReplicaId="r1",engine="0",model_name="m"} 0.5
ray_vllm_prefix_cache_queries{ReplicaId="r1",engine="0",model_name="m"} 64.0
ray_vllm_prefix_cache_queries_total{ReplicaId="r1",engine="0",model_name="m"} 64.0
ray_vllm_cache_config_info{ReplicaId="r1",block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="11",prefix_caching_hash_algo="sha256_cbor"} 1.0
`,
			facts: wire.Facts{Model: "m", BlockSize: 16, Capacity: 10, HashAlgo: "sha256_cbor", PrefixCaching: ptr(true)},
			load:  wire.Load{Known: true, Running: 3, KVUsage: 0.5, QueriedTokens: 64},
		},
		{
			name: "a worker of Dynamo's around an engine that says nothing",
			page: `dynamo_component_inflight_requests{dynamo_endpoint="generate",worker_id="a"} 2
dynamo_component_inflight_requests{dynamo_endpoint="clear_kv_blocks",worker_id="a"} 7
dynamo_component_requests_total{dynamo_endpoint="generate",worker_id="a"} 9
dynamo_component_gpu_cache_usage_percent{dp_rank="0",model="m"} 0.25
dynamo_component_total_blocks{dp_rank="0",model="m"} 500
`,
			facts: wire.Facts{Capacity: 500},
			load:  wire.Load{Known: true, Running: 2, KVUsage: 0.25, Requests: 9},
		},
		{
			name:  "sglang before 0.5.11",
			page:  `sglang:cache_config_info{model_name="m",num_pages="40",page_size="16"} 1` + "\n",
			facts: wire.Facts{Model: "m", BlockSize: 16, Capacity: 40},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			facts, load, err := fleet.ParseMetrics(tt.page, tt.rank)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.facts, facts); d != "" {
				t.Errorf("facts (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.load, load); d != "" {
				t.Errorf("load (-want +got):\n%s", d)
			}
		})
	}
}

func TestParseMetricsErrors(t *testing.T) {
	t.Parallel()
	sample := "vllm:num_requests_running 1\n"
	tests := []struct{ name, page, want string }{
		{"empty", "", "no vLLM or SGLang metric"},
		{"another program", "process_start_time_seconds 1\ngo_goroutines 5\n", "no vLLM or SGLang metric"},
		{"cut in the labels", `vllm:num_requests_running{engine="0`, "cut off?"},
		{"no number", "vllm:num_requests_running many\n", "many"},
		{"not UTF-8", "vllm:num_requests_running{model_name=\"\xff\"} 1\n", "label value"},
		{
			"nobody's rank",
			"vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"2\"} 1\n",
			`ranks ["0" "2"], and rank 1`,
		},
		{
			"a Ray node with two replicas",
			"ray_vllm_num_requests_running{ReplicaId=\"x\",engine=\"0\"} 1\nray_vllm_num_requests_running{ReplicaId=\"y\",engine=\"0\"} 1\n",
			`Ray replicas ["x" "y"], which share a rank`,
		},
		{"too large", strings.Repeat("#", fleet.MaxPage+1), "16777217 bytes"},
		{"too many samples", strings.Repeat(sample, fleet.MaxSamples+1), "65536 samples"},
		{"a huge label", sample[:25] + `{a="` + strings.Repeat("a", 3<<20) + `"} 1`, "2097152 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			facts, load, err := fleet.ParseMetrics(tt.page, 1)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q in it", err, tt.want)
			}
			if !cmp.Equal(facts, wire.Facts{}) || load != (wire.Load{}) {
				t.Errorf("an error came with %+v %+v", facts, load)
			}
		})
	}
	if _, _, err := fleet.ParseMetrics("", 0); !errors.Is(err, fleet.ErrNoEngine) {
		t.Errorf("error %v, want ErrNoEngine", err)
	}
}

func FuzzParseMetrics(f *testing.F) {
	for _, page := range pages(f)[:2] {
		f.Add(page.Text, 0)
	}
	f.Add("sglang:page_size{dp_rank=\"1\"} 16\nsglang:max_total_num_tokens{dp_rank=\"1\"} 1e300\n", 1)
	f.Add("process_start_time_seconds 1e18\nvllm:cache_config_info{num_gpu_blocks=\"0\"} 1\n", -1)
	f.Fuzz(func(t *testing.T, text string, rank int) {
		facts, load, err := fleet.ParseMetrics(text, rank)
		if err != nil {
			return
		}
		if facts.BlockSize < 0 || facts.Capacity < 0 {
			t.Errorf("negative: %+v", facts)
		}
		numbers := []float64{load.Running, load.Waiting, load.QueriedTokens, load.HitTokens, load.Requests}
		for _, v := range numbers {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				t.Errorf("not a count: %+v", load)
			}
		}
		if !(load.KVUsage >= 0 && load.KVUsage <= 1) {
			t.Errorf("not a share: %+v", load)
		}
	})
}

func BenchmarkParseMetrics(b *testing.B) {
	page := pages(b)[0]
	if !page.Full {
		b.Fatal("the first page of the recording is not a full one")
	}
	b.SetBytes(int64(len(page.Text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := fleet.ParseMetrics(page.Text, 0); err != nil {
			b.Fatal(err)
		}
	}
}
