package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// Model is the name of the model that simulated engines serve.
const Model = "sim-model"

// version is the vLLM release that simulated engines behave like.
const version = "0.32.0"

// page is what an engine's HTTP pages say. It is not changed once made.
type page struct {
	opt     EngineOptions
	load    Load
	started wire.Time
	sources eventSource
}

// eventSource is the configuration of a publisher as vLLM 0.31 and later tell it.
type eventSource struct {
	Enabled   bool   `json:"enable_kv_cache_events"`
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint"`
	Buffer    int    `json:"buffer_steps"`
	HWM       int    `json:"hwm"`
	Queue     int    `json:"max_queue_size"`
	Topic     string `json:"topic"`
}

// handler serves the newest page.
func handler(newest func() *page) http.Handler {
	mux := http.NewServeMux()
	get := func(path string, serve func(http.ResponseWriter, *page)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			p := newest()
			if p == nil {
				http.Error(w, "the engine is starting", http.StatusServiceUnavailable)
				return
			}
			serve(w, p)
		})
	}
	get("/metrics", func(w http.ResponseWriter, p *page) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = io.WriteString(w, p.metrics()) // a client that is gone needs no page
	})
	get("/kv_event_sources", func(w http.ResponseWriter, p *page) {
		answer(w, map[string]eventSource{"0": p.sources})
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]string{"version": version})
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// metrics writes the page as the Prometheus client that vLLM uses does.
func (p *page) metrics() string {
	var b strings.Builder
	family := func(name, kind, help string, samples ...string) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		for _, s := range samples {
			b.WriteString(s)
		}
	}
	labels := `engine="0",model_name="` + Model + `"`
	sample := func(name, labels string, v float64) string {
		return fmt.Sprintf("%s{%s} %s\n", name, labels, strconv.FormatFloat(v, 'g', -1, 64))
	}
	one := func(name, kind, help string, v float64) { family(name, kind, help, sample(name, labels, v)) }

	family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.",
		"process_start_time_seconds "+strconv.FormatFloat(p.started.Seconds(), 'f', -1, 64)+"\n")
	one("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", float64(p.load.Running))
	one("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", float64(p.load.Waiting))
	one("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", p.load.Usage)
	one("vllm:prefix_cache_queries_total", "counter", "Prefix cache queries, in terms of number of queried tokens.", float64(p.load.Queried))
	one("vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in terms of number of cached tokens.", float64(p.load.Hit))
	one("vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.", float64(p.load.Preempted))
	one("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", float64(p.load.Prompt))
	one("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.", float64(p.load.Output))
	var finished []string
	for _, reason := range []string{"stop", "length", "abort", "error"} {
		n := 0
		if reason == "length" { // what simulated requests end by
			n = p.load.Finished
		}
		finished = append(finished, sample("vllm:request_success_total", `engine="0",finished_reason="`+reason+`",model_name="`+Model+`"`, float64(n)))
	}
	family("vllm:request_success_total", "counter", "Count of successfully processed requests.", finished...)
	caching := "True"
	if p.opt.NoCaching {
		caching = "False"
	}
	// vLLM counts its null block.
	family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", sample("vllm:cache_config_info", fmt.Sprintf(
		`block_size="%d",cache_dtype="auto",enable_prefix_caching="%s",engine="0",hash_block_size="None",kv_cache_size_tokens="%d",num_gpu_blocks="%d",prefix_caching_hash_algo="sha256"`,
		p.opt.BlockSize, caching, (p.opt.Blocks+1)*p.opt.BlockSize, p.opt.Blocks+1), 1))
	return b.String()
}
