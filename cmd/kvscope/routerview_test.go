package main

import (
	"testing"

	"github.com/kvscope/kvscope/diagnose"
)

// TestRouterView reads what checks see of two routers' pages, written as the
// routers write theirs.
func TestRouterView(t *testing.T) {
	t.Parallel()
	dynamo, err := routerView(`dynamo_component_router_requests_total{router_id="1"} 76
dynamo_router_overhead_total_ms_sum{router_id="1"} 32.5
dynamo_router_overhead_total_ms_count{router_id="1"} 76
dynamo_component_router_worker_registered{router_worker_id="5"} 1
dynamo_component_router_worker_registered{router_worker_id="6"} 1
dynamo_frontend_worker_active_decode_blocks{worker_id="5"} 12
`)
	if err != nil || dynamo.Kind != "dynamo" || dynamo.Requests != 76 || dynamo.Workers != 2 || dynamo.Booked != 12 ||
		dynamo.Overhead["total"] != (diagnose.Spent{Times: 76, Millis: 32.5}) {
		t.Errorf("Dynamo: %+v, %v", dynamo, err)
	}
	ray, err := routerView("ray_serve_haproxy_ingress_router_requests_total 40\nray_serve_haproxy_ingress_router_truncations_total 3\n")
	if err != nil || ray.Requests != 40 || ray.Truncated != 3 || ray.Booked != -1 {
		t.Errorf("Ray: %+v, %v", ray, err)
	}
	if _, err := routerView("vllm:num_requests_running 1\n"); err == nil {
		t.Error("an engine's page was read as a router's")
	}
}
