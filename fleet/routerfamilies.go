package fleet

import (
	"math"

	dto "github.com/prometheus/client_model/go"
)

// routerFamily is one metric that a router's page is read for.
type routerFamily struct {
	name, router string
	// total gets the sum over all samples; each gets one at a time.
	total func(f *RouterFacts, v float64)
	each  func(r *routerReading, m *dto.Metric, v float64)
}

// routerFamilies is the table of metrics, read in this order: where two are the
// same thing, the later one wins, so older spellings come first.
//
// Dynamo: a recorded page of the 1.6.1 frontend. Its labels worker_id name the
// router itself in the component's metrics and the worker in the frontend's.
// SGLang: a recorded page of its router 0.3.2; cache_aware_* came with smg 1.13.
// Ray Serve: the proxy's metrics of 2.60, which Ray exports with and without
// _total. llm-d: the endpoint picker of 0.10 under its own name and under the
// inference extension's, and the metrics of the kv-cache library.
var routerFamilies = joined(
	[]routerFamily{
		{name: "dynamo_component_router_requests_total", router: "dynamo", total: setRouted},
		{name: "dynamo_component_router_kv_selected_cached_prefix_tokens_total", router: "dynamo", total: func(f *RouterFacts, v float64) { f.CachedTokens = v }},
		{name: "dynamo_component_router_kv_best_eligible_cached_prefix_tokens_total", router: "dynamo", total: func(f *RouterFacts, v float64) { f.BestTokens = v }},
		{name: "dynamo_component_router_kv_event_source_mismatch_workers", router: "dynamo", total: func(f *RouterFacts, v float64) { f.Unsourced = v }},
		{name: "dynamo_component_router_worker_registered", router: "dynamo", each: func(r *routerReading, m *dto.Metric, v float64) {
			if v > 0 {
				r.worker(m, "router_worker_id").Registered = true
			}
		}},
		{name: "dynamo_frontend_worker_active_decode_blocks", router: "dynamo", each: func(r *routerReading, m *dto.Metric, v float64) {
			w := r.worker(m, "worker_id")
			w.Blocks = plus(w.Blocks, v)
		}},
		{name: "dynamo_frontend_worker_active_prefill_tokens", router: "dynamo", each: func(r *routerReading, m *dto.Metric, v float64) {
			w := r.worker(m, "worker_id")
			w.PrefillTokens = plus(w.PrefillTokens, v)
		}},
		{name: "dynamo_frontend_router_queue_pending_requests", router: "dynamo", total: func(f *RouterFacts, v float64) { f.Queued = v }},
		{name: "dynamo_component_kv_cache_events_applied", router: "dynamo", each: func(r *routerReading, m *dto.Metric, v float64) {
			r.event(label(m, "event_type"), label(m, "status"), v)
		}},
		{name: "dynamo_component_kv_cache_event_warnings", router: "dynamo", each: func(r *routerReading, m *dto.Metric, v float64) {
			r.event("warning", label(m, "warning_kind"), v)
		}},
	},
	mean("dynamo", "dynamo_component_router_kv_hit_rate", 1, hitRate),
	phase("dynamo", "dynamo_router_overhead_block_hashing_ms", "block_hashing", 1),
	phase("dynamo", "dynamo_router_overhead_indexer_find_matches_ms", "find_matches", 1),
	phase("dynamo", "dynamo_router_overhead_seq_hashing_ms", "seq_hashing", 1),
	phase("dynamo", "dynamo_router_overhead_shared_cache_query_ms", "shared_cache_query", 1),
	phase("dynamo", "dynamo_router_overhead_scheduling_ms", "scheduling", 1),
	phase("dynamo", "dynamo_router_overhead_total_ms", "total", 1),

	[]routerFamily{
		{name: "smg_router_requests_total", router: "sglang", total: setRouted},
		{name: "smg_worker_selection_total", router: "sglang", each: choice("policy")},
		{name: "smg_manual_policy_branch_total", router: "sglang", each: choice("branch")},
		{name: "smg_cache_aware_policy_branch_total", router: "sglang", each: choice("branch")},
		{name: "smg_worker_requests_active", router: "sglang", each: func(r *routerReading, m *dto.Metric, v float64) {
			w := r.worker(m, "worker")
			w.Registered, w.Active = true, v
		}},
		{name: "smg_worker_health", router: "sglang", each: func(r *routerReading, m *dto.Metric, v float64) {
			w := r.worker(m, "worker")
			w.Registered, w.Unhealthy = true, v == 0
		}},
	},
	mean("sglang", "smg_cache_aware_match_ratio", 1, hitRate),

	ray("requests", setRouted),
	ray("truncations", func(f *RouterFacts, v float64) { f.Truncated = v }),
	ray("server_mismatch", func(f *RouterFacts, v float64) { f.Diverted = v }),
	phase("ray", "ray_serve_haproxy_ingress_router_latency_ms", "total", 1),

	[]routerFamily{
		{name: "inference_objective_request_total", router: "llm-d", total: setRouted},
		{name: "llm_d_epp_request_total", router: "llm-d", total: setRouted},
		{name: "llm_d_epp_kv_cache_events_messages_received_total", router: "llm-d", each: func(r *routerReading, _ *dto.Metric, v float64) {
			r.event("message", "received", v)
		}},
		{name: "llm_d_epp_kv_cache_events_zmq_errors_total", router: "llm-d", each: func(r *routerReading, m *dto.Metric, v float64) {
			r.event("message", "error: "+label(m, "operation"), v)
		}},
		{name: "llm_d_epp_kv_cache_events_stores_skipped_total", router: "llm-d", each: func(r *routerReading, m *dto.Metric, v float64) {
			r.event("stored", "skipped: "+label(m, "reason"), v)
		}},
		{name: "llm_d_epp_kv_cache_events_removals_skipped_total", router: "llm-d", each: func(r *routerReading, m *dto.Metric, v float64) {
			r.event("removed", "skipped: "+label(m, "reason"), v)
		}},
	},
	mean("llm-d", "inference_extension_prefix_indexer_hit_ratio", 1, hitRate),
	mean("llm-d", "llm_d_epp_prefix_indexer_hit_ratio", 1, hitRate),
	phase("llm-d", "inference_extension_scheduler_e2e_duration_seconds", "total", 1e3),
	phase("llm-d", "llm_d_epp_scheduler_e2e_duration_seconds", "total", 1e3),
	llmdIndex("kvcache_index_"),
	llmdIndex("llm_d_epp_kv_cache_index_"),
)

var routerWanted = func() map[string]bool {
	m := make(map[string]bool, len(routerFamilies))
	for _, f := range routerFamilies {
		m[f.name] = true
	}
	return m
}()

func joined(parts ...[]routerFamily) []routerFamily {
	var all []routerFamily
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func setRouted(f *RouterFacts, v float64) { f.Requests = v }

func hitRate(f *RouterFacts, set func(*Mean)) { set(&f.HitRate) }

// mean reads a histogram's sum, times scale, and count.
func mean(router, name string, scale float64, at func(f *RouterFacts, set func(*Mean))) []routerFamily {
	return []routerFamily{
		{name: name + "_sum", router: router, total: func(f *RouterFacts, v float64) {
			at(f, func(m *Mean) { m.Sum = min(v, math.MaxFloat64/scale) * scale })
		}},
		{name: name + "_count", router: router, total: func(f *RouterFacts, v float64) {
			at(f, func(m *Mean) { m.Count = v })
		}},
	}
}

// phase reads the histogram of a phase's time.
func phase(router, name, phase string, scale float64) []routerFamily {
	return mean(router, name, scale, func(f *RouterFacts, set func(*Mean)) {
		if f.Overhead == nil {
			f.Overhead = map[string]Mean{}
		}
		m := f.Overhead[phase]
		set(&m)
		f.Overhead[phase] = m
	})
}

func choice(by string) func(r *routerReading, m *dto.Metric, v float64) {
	return func(r *routerReading, m *dto.Metric, v float64) {
		const most = 1 << 8
		if r.facts.Choices == nil {
			r.facts.Choices = map[string]float64{}
		}
		if word := label(m, by); len(r.facts.Choices) < most {
			r.facts.Choices[word] = plus(r.facts.Choices[word], v)
		}
	}
}

func ray(what string, total func(*RouterFacts, float64)) []routerFamily {
	name := "ray_serve_haproxy_ingress_router_" + what
	return []routerFamily{
		{name: name, router: "ray", total: total},
		{name: name + "_total", router: "ray", total: total},
	}
}

func llmdIndex(prefix string) []routerFamily {
	return []routerFamily{
		{name: prefix + "admissions_total", router: "llm-d", total: func(f *RouterFacts, v float64) { f.Index.Admitted = v }},
		{name: prefix + "evictions_total", router: "llm-d", total: func(f *RouterFacts, v float64) { f.Index.Evicted = v }},
		{name: prefix + "lookup_requests_total", router: "llm-d", total: func(f *RouterFacts, v float64) { f.Index.Lookups = v }},
		{name: prefix + "lookup_hits_total", router: "llm-d", total: func(f *RouterFacts, v float64) { f.Index.Found = v }},
	}
}
