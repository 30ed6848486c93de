package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/wire"
)

// vllmSources is the answer of a vLLM server for one rank, as a real one of
// 0.32.0 gave it but for rank and addresses.
func vllmSources(rank int, endpoint string) string {
	return fmt.Sprintf(`{"%d":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":%q,"replay_endpoint":null,"buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":""}}`, rank, endpoint)
}

// withReplay is such an answer that names a replay socket.
func withReplay(endpoint string) string {
	return fmt.Sprintf(`{"0":{"endpoint":"tcp://*:5557","replay_endpoint":%q}}`, endpoint)
}

// elsewhere is what is said of a socket that is not at the host a.
func elsewhere(what, at string) string {
	return fmt.Sprintf("it says that its %[1]s socket is at %[2]s, and a, where it was asked, is another host: give %[1]s: %[2]s if that is right", what, at)
}

const twoRanks = `{
"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5558","replay_endpoint":"tcp://*:6558","buffer_steps":64,"hwm":100,"max_queue_size":200,"topic":"kv@a"},
"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557","buffer_steps":64,"hwm":100,"max_queue_size":200,"topic":"kv@a"}}`

const sglangInfo = `{"model_path":"/m","served_model_name":"qwen","page_size":64,"disable_radix_cache":false,"version":"0.5.23",
"kv_events_config":"{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\",\"hwm\":7,\"buffer_steps\":8,\"max_queue_size\":9}",
"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557,"topic":"kv","block_size":64,"dp_size":2,
"load_endpoint_port_base":5561,"load_topic":"load","replay_endpoint_port_base":5559}}`

// sglangWith changes the one kv_events of an otherwise plain server.
func sglangWith(events string) string {
	return `{"page_size":16,"disable_radix_cache":false,"kv_events":` + events + `}`
}

func TestDescribed(t *testing.T) {
	t.Parallel()
	on := true
	dialOut := `it dials tcp://10.9.9.9:5557 instead of listening, and only one consumer can be there: ` +
		`configure "endpoint": "tcp://*:5557" in --kv-events-config, or run kvscope at that address with events: tcp://*:5557 and bind: true`
	tests := []struct {
		name, path, body string
		engine           string // http://a:8000 if empty
		more             fleet.Replica
		want             []fleet.Member
	}{
		{
			name: "vllm, two ranks", path: "kv_event_sources", body: twoRanks,
			want: []fleet.Member{
				{Name: "a:8000/0", Events: "tcp://a:5557", Replay: "tcp://a:6557", Metrics: "http://a:8000/metrics", Buffer: 64, HWM: 100, Queue: 200},
				{Name: "a:8000/1", Events: "tcp://a:5558", Replay: "tcp://a:6558", Metrics: "http://a:8000/metrics", Rank: 1, Buffer: 64, HWM: 100, Queue: 200},
			},
		},
		{
			name: "vllm with what is given on top", path: "kv_event_sources", body: twoRanks,
			more: fleet.Replica{Name: "pod", Replay: "tcp://r:9000", Topics: []string{"kv@"}, Metrics: "http://m/x", User: "u", Password: "p"},
			want: []fleet.Member{
				{Name: "pod/0", Events: "tcp://a:5557", Replay: "tcp://r:9000", Topics: []string{"kv@"}, Metrics: "http://m/x", User: "u", Password: "p", Buffer: 64, HWM: 100, Queue: 200},
				{Name: "pod/1", Events: "tcp://a:5558", Replay: "tcp://r:9001", Topics: []string{"kv@"}, Metrics: "http://m/x", Rank: 1, User: "u", Password: "p", Buffer: 64, HWM: 100, Queue: 200},
			},
		},
		{
			name: "an address is given and the rest said", path: "kv_event_sources", body: twoRanks,
			more: fleet.Replica{Name: "pod", Events: "tcp://gate:7000"},
			want: []fleet.Member{
				{Name: "pod/0", Events: "tcp://gate:7000", Replay: "tcp://a:6557", Metrics: "http://a:8000/metrics", Buffer: 64, HWM: 100, Queue: 200},
				{Name: "pod/1", Events: "tcp://gate:7001", Replay: "tcp://a:6558", Metrics: "http://a:8000/metrics", Rank: 1, Buffer: 64, HWM: 100, Queue: 200},
			},
		},
		{
			name: "the wrong topic", path: "kv_event_sources", body: vllmSources(0, "tcp://*:5557"),
			more: fleet.Replica{Name: "pod", Topics: []string{"kv@"}},
			want: []fleet.Member{{
				Name: "pod", Topics: []string{"kv@"}, Metrics: "http://a:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000,
				Problem: `its topic is "", which none of the topics ["kv@"] is a prefix of: correct topics, or leave it out`,
			}},
		},
		{
			name: "behind a path, over IPv6", path: "kv_event_sources", body: vllmSources(3, "tcp://[::]:5560"), engine: "https://[fd00::1]:8000/base",
			want: []fleet.Member{{Name: "[fd00::1]:8000", Events: "tcp://[fd00::1]:5560", Metrics: "https://[fd00::1]:8000/base/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000}},
		},
		{
			name: "one rank of a larger group, at an address of its own", path: "kv_event_sources", body: vllmSources(3, "tcp://*:5560"),
			more: fleet.Replica{Name: "pod", Events: "tcp://gate:7000", Topics: []string{"kv@"}},
			want: []fleet.Member{{
				Name: "pod", Topics: []string{"kv@"}, Metrics: "http://a:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000,
				Problem: `its topic is "", which none of the topics ["kv@"] is a prefix of: correct topics, or leave it out`,
			}},
		},
		{
			name: "vllm dials out", path: "kv_event_sources", body: vllmSources(0, "tcp://10.9.9.9:5557"),
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000, Problem: dialOut}},
		},
		{
			name: "vllm dials out to where we listen", path: "kv_event_sources", body: vllmSources(0, "tcp://10.9.9.9:5557"),
			more: fleet.Replica{Name: "pod", Events: "tcp://*:5557", Bind: true},
			want: []fleet.Member{{Name: "pod", Events: "tcp://*:5557", Bind: true, Metrics: "http://a:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000}},
		},
		{
			name: "a port chosen by the system, told with the node's address", path: "kv_event_sources", body: vllmSources(0, "tcp://10.0.0.5:41233"),
			want: []fleet.Member{{Name: "a:8000", Events: "tcp://10.0.0.5:41233", Metrics: "http://a:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000}},
		},
		{
			name: "loopback is dialled", path: "kv_event_sources", body: vllmSources(0, "tcp://127.0.0.1:5557"), engine: "http://127.0.0.1:8000",
			want: []fleet.Member{{Name: "127.0.0.1:8000", Metrics: "http://127.0.0.1:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000, Problem: strings.ReplaceAll(dialOut, "10.9.9.9", "127.0.0.1")}},
		},
		{
			name: "loopback, written as IPv6", path: "kv_event_sources", body: vllmSources(0, "tcp://[::ffff:127.0.0.1]:5557"),
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000, Problem: elsewhere("events", "tcp://[::ffff:127.0.0.1]:5557")}},
		},
		{
			name: "what only looks like a wildcard", path: "kv_event_sources", body: vllmSources(0, "tcp://*.example:5557"),
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000, Problem: elsewhere("events", "tcp://*.example:5557")}},
		},
		{
			name: "listening at an address of its own", path: "kv_event_sources", body: vllmSources(0, "tcp://[::ffff:10.0.0.5]:5557"),
			want: []fleet.Member{{Name: "a:8000", Events: "tcp://[::ffff:10.0.0.5]:5557", Metrics: "http://a:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000}},
		},
		{
			name: "replay at our own machine", path: "kv_event_sources", body: withReplay("tcp://127.0.0.1:6557"),
			want: []fleet.Member{{Name: "a:8000", Events: "tcp://a:5557", NoReplay: elsewhere("replay", "tcp://127.0.0.1:6557"), Metrics: "http://a:8000/metrics", Rank: -1}},
		},
		{
			name: "replay at another host", path: "kv_event_sources", body: withReplay("tcp://169.254.1.1:22"),
			want: []fleet.Member{{Name: "a:8000", Events: "tcp://a:5557", NoReplay: elsewhere("replay", "tcp://169.254.1.1:22"), Metrics: "http://a:8000/metrics", Rank: -1}},
		},
		{
			name: "replay at another host, and given", path: "kv_event_sources", body: withReplay("tcp://169.254.1.1:22"),
			more: fleet.Replica{Name: "pod", Replay: "tcp://a:6557"},
			want: []fleet.Member{{Name: "pod", Events: "tcp://a:5557", Replay: "tcp://a:6557", Metrics: "http://a:8000/metrics", Rank: -1}},
		},
		{
			name: "replay at an address of its own", path: "kv_event_sources", body: withReplay("tcp://10.0.0.5:6557"),
			want: []fleet.Member{{Name: "a:8000", Events: "tcp://a:5557", Replay: "tcp://10.0.0.5:6557", Metrics: "http://a:8000/metrics", Rank: -1}},
		},
		{
			name: "all of it on this machine", path: "kv_event_sources", body: withReplay("tcp://127.0.0.1:6557"), engine: "http://localhost:8000",
			want: []fleet.Member{{Name: "localhost:8000", Events: "tcp://localhost:5557", Replay: "tcp://127.0.0.1:6557", Metrics: "http://localhost:8000/metrics", Rank: -1}},
		},
		{
			name: "sglang listening at another host", path: "server_info",
			body: `{"page_size":1,"kv_events_config":"{\"bind\":true}","kv_events":{"publisher":"zmq","endpoint_host":"169.254.1.1","endpoint_port_base":5557,"dp_size":1}}`,
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Problem: elsewhere("events", "tcp://169.254.1.1:5557")}},
		},
		{
			name: "ipc on this machine", path: "kv_event_sources", body: vllmSources(0, "ipc:///tmp/kv"), engine: "http://localhost:8000",
			want: []fleet.Member{{Name: "localhost:8000", Events: "ipc:///tmp/kv", Metrics: "http://localhost:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000}},
		},
		{
			name: "ipc on another", path: "kv_event_sources", body: vllmSources(0, "ipc:///tmp/kv"),
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000, Problem: "it publishes at ipc:///tmp/kv, which only its own machine can reach: configure tcp://*:5557, or run kvscope there with events: ipc:///tmp/kv"}},
		},
		{
			name: "inproc", path: "kv_event_sources", body: vllmSources(0, "inproc://kv"),
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Buffer: 10000, HWM: 100000, Queue: 100000, Problem: `"inproc://kv" reaches only within the engine's own process: give it tcp://*:port`}},
		},
		{
			name: "vllm with events off", path: "kv_event_sources", body: "{}",
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Problem: `it publishes no cache events: start it with --kv-events-config '{"enable_kv_cache_events": true, "endpoint": "tcp://*:5557"}'`}},
		},
		{
			name: "vllm with events disabled", path: "kv_event_sources", body: `{"0":{"enable_kv_cache_events":false,"publisher":"zmq","endpoint":"tcp://*:5557"}}`,
			more: fleet.Replica{Name: "pod", Events: "tcp://a:5557"},
			want: []fleet.Member{{Name: "pod", Metrics: "http://a:8000/metrics", Rank: -1, Problem: `it publishes no cache events: start it with --kv-events-config '{"enable_kv_cache_events": true, "endpoint": "tcp://*:5557"}'`}},
		},
		{
			name: "sglang with a load socket", path: "server_info", body: sglangInfo,
			want: []fleet.Member{
				{Name: "a:8000/0", Events: "tcp://a:5557", Replay: "tcp://a:5559", Metrics: "http://a:8000/metrics", Facts: wire.Facts{Model: "qwen", BlockSize: 64, PrefixCaching: &on}, Buffer: 8, HWM: 7, Queue: 9},
				{Name: "a:8000/1", Events: "tcp://a:5558", Replay: "tcp://a:5560", Metrics: "http://a:8000/metrics", Rank: 1, Facts: wire.Facts{Model: "qwen", BlockSize: 64, PrefixCaching: &on}, Buffer: 8, HWM: 7, Queue: 9},
				{Name: "a:8000/0", Kind: fleet.LoadOnly, Events: "tcp://a:5561", Topics: []string{"load"}, Facts: wire.Facts{Model: "qwen", BlockSize: 64, PrefixCaching: &on}},
				{Name: "a:8000/1", Kind: fleet.LoadOnly, Events: "tcp://a:5562", Topics: []string{"load"}, Rank: 1, Facts: wire.Facts{Model: "qwen", BlockSize: 64, PrefixCaching: &on}},
			},
		},
		{
			name: "an older path of sglang", path: "get_server_info", body: sglangWith(`{"publisher":"zmq","endpoint_host":"0.0.0.0","endpoint_port_base":5557,"topic":"","block_size":16,"dp_size":1}`),
			want: []fleet.Member{{Name: "a:8000", Events: "tcp://a:5557", Metrics: "http://a:8000/metrics", Rank: -1, Facts: wire.Facts{BlockSize: 16, PrefixCaching: &on}}},
		},
		{
			name: "sglang dials out", path: "server_info", body: sglangWith(`{"publisher":"zmq","endpoint_host":"10.9.9.9","endpoint_port_base":5557,"dp_size":1}`),
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Facts: wire.Facts{PrefixCaching: &on}, Problem: dialOut}},
		},
		{
			name: "sglang told to listen at a host", path: "server_info",
			body: `{"page_size":1,"kv_events_config":"{\"bind\":true}","kv_events":{"publisher":"zmq","endpoint_host":"10.0.0.5","endpoint_port_base":5557,"dp_size":1}}`,
			want: []fleet.Member{{Name: "a:8000", Events: "tcp://10.0.0.5:5557", Metrics: "http://a:8000/metrics", Rank: -1}},
		},
		{
			name: "sglang with events off", path: "server_info", body: `{"page_size":1,"disable_radix_cache":false}`,
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Facts: wire.Facts{PrefixCaching: &on}, Problem: `it publishes no cache events: start it with --kv-events-config '{"publisher": "zmq", "endpoint": "tcp://*:5557"}'`}},
		},
		{
			name: "sglang without its cache", path: "server_info", body: strings.Replace(sglangInfo, `"disable_radix_cache":false`, `"disable_radix_cache":true`, 1),
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Facts: wire.Facts{Model: "qwen", PrefixCaching: new(bool)}, Problem: "its prefix cache is off, so it has no cache events: start it without --disable-radix-cache"}},
		},
		{
			name: "sglang with ports beyond the last", path: "server_info", body: sglangWith(`{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":65535,"dp_size":2}`),
			want: []fleet.Member{
				{Name: "a:8000/0", Events: "tcp://a:65535", Metrics: "http://a:8000/metrics", Facts: wire.Facts{PrefixCaching: &on}},
				{Name: "a:8000/1", Metrics: "http://a:8000/metrics", Rank: 1, Facts: wire.Facts{PrefixCaching: &on}, Problem: "rank 1: port 65535 + 1 is above 65535: give the engine a lower port"},
			},
		},
		{
			name: "sglang with a negative port", path: "server_info", body: sglangWith(`{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":-5,"dp_size":1}`),
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Facts: wire.Facts{PrefixCaching: &on}, Problem: `"tcp://a:-5" has no port from 1 to 65535: give tcp://host:port`}},
		},
		{
			name: "an older vllm in its development mode", path: "server_info", body: `{"vllm_config":"model='m', ..."}`,
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Problem: "http://a:8000: it does not say where its event socket is, as vLLM before 0.31 does not: give events, such as tcp://a:5557"}},
		},
		{
			name: "an older vllm", path: "health", body: "",
			want: []fleet.Member{{Name: "a:8000", Metrics: "http://a:8000/metrics", Rank: -1, Problem: "http://a:8000: it does not say where its event socket is, as vLLM before 0.31 does not: give events, such as tcp://a:5557"}},
		},
		{
			name: "an older vllm whose address is given", path: "health", body: "",
			more: fleet.Replica{Name: "pod", Events: "tcp://a:5557", Ranks: 2},
			want: []fleet.Member{
				{Name: "pod/0", Events: "tcp://a:5557", Metrics: "http://a:8000/metrics"},
				{Name: "pod/1", Events: "tcp://a:5558", Metrics: "http://a:8000/metrics", Rank: 1},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			engine := tt.engine
			if engine == "" {
				engine = "http://a:8000"
			}
			w := newWeb(map[string]string{engine + "/" + tt.path: tt.body})
			r := tt.more
			r.Engine = engine
			f := finder(t, fleet.Spec{Replicas: []fleet.Replica{r}}, fleet.Options{
				Do: w.do, LookupHost: func(context.Context, string) ([]string, error) { return []string{"10.0.0.5"}, nil },
			})
			got, problems := f.Look(t.Context())
			wantErrors(t, problems)
			for i := range tt.want {
				tt.want[i].Found = "replicas[0]"
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			w.harmless(t)
		})
	}
}

// What vLLM's metrics page has beside its description is read once, and again
// only while prefix caching is off.
func TestPrefixCachingOff(t *testing.T) {
	t.Parallel()
	const url = "http://a/metrics"
	page := func(on string) string {
		return "process_start_time_seconds 5\n" + `vllm:cache_config_info{block_size="16",enable_prefix_caching="` + on + `",engine="0",num_gpu_blocks="11",prefix_caching_hash_algo="sha256"} 1` + "\n" +
			`vllm:num_requests_running{engine="0",model_name="m"} 0` + "\n"
	}
	w := newWeb(map[string]string{"http://a/kv_event_sources": vllmSources(0, "tcp://*:5557"), url: page("False")})
	f := finder(t, fleet.Spec{Replicas: []fleet.Replica{{Engine: "http://a"}}}, fleet.Options{Do: w.do, LookupHost: noHosts})
	look := func() fleet.Member {
		t.Helper()
		got, problems := f.Look(t.Context())
		wantErrors(t, problems)
		return got[0]
	}
	off := look()
	if off.Problem != "prefix caching is off, so there are no cache events: start it with --enable-prefix-caching" || off.Events != "" {
		t.Errorf("%+v", off)
	}
	look()
	w.set(url, page("True"))
	on, yes := look(), true
	want := wire.Facts{Model: "m", BlockSize: 16, Capacity: 10, HashAlgo: "sha256", PrefixCaching: &yes}
	if d := cmp.Diff(want, on.Facts); d != "" || on.Problem != "" || on.Events != "tcp://a:5557" {
		t.Errorf("%+v %s", on, d)
	}
	look()
	if n := w.count(url); n != 3 {
		t.Errorf("the page was read %d times, want 3", n)
	}
	w.set("http://a/kv_event_sources", vllmSources(0, "tcp://*:5600"))
	look()
	if n := w.count(url); n != 4 {
		t.Errorf("the page was read %d times after a change, want 4", n)
	}
}

// endless is a body without an end.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	e.read += len(b)
	return len(b), nil
}

func (e *endless) Close() error { return nil }

func TestHostileDescriptions(t *testing.T) {
	t.Parallel()
	many := map[string]any{}
	for i := range 2000 {
		many[fmt.Sprint(i)] = map[string]any{"endpoint": "tcp://*:5557"}
	}
	crowd, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, path, body, want string }{
		{"empty", "kv_event_sources", "", "is not vLLM's"},
		{"null", "kv_event_sources", "null", "is not vLLM's"},
		{"a list", "kv_event_sources", "[]", "is not vLLM's"},
		{"HTML", "kv_event_sources", "<html>", "is not vLLM's"},
		{"ranks that are none", "kv_event_sources", `{"a":{}}`, "is not vLLM's"},
		{"a negative rank", "kv_event_sources", `{"-1":{}}`, "rank -1: expected 0 to 65535"},
		{"a rank beyond all", "kv_event_sources", `{"99999999999999999999":{}}`, "is not vLLM's"},
		{"types", "kv_event_sources", `{"0":{"endpoint":5}}`, "is not vLLM's"},
		{"many ranks", "kv_event_sources", string(crowd), "2000 ranks: the limit is 1024"},
		{"a million", "kv_event_sources", "[" + strings.Repeat("{},", 1_000_000) + "{}]", "is not vLLM's"},
		{"deep", "kv_event_sources", strings.Repeat("[", 1_000_000), "is not vLLM's"},
		{"sglang: empty", "server_info", "", "is not SGLang's"},
		{"sglang: a list", "server_info", "[]", "is not SGLang's"},
		{"sglang: cut", "server_info", sglangInfo[:200], "is not SGLang's"},
		{"sglang: types", "server_info", sglangWith(`{"publisher":1}`), "is not SGLang's"},
		{"sglang: a port that is a fraction", "server_info", sglangWith(`{"publisher":"zmq","endpoint_port_base":1.5}`), "is not SGLang's"},
		{"sglang: many ranks", "server_info", sglangWith(`{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":1,"dp_size":1000000}`), "1000000 ranks: the limit is 1024"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWeb(map[string]string{"http://a/" + tt.path: tt.body})
			got, problems := lookAt(t, w, fleet.Replica{Engine: "http://a"})
			wantErrors(t, problems, tt.want)
			if len(got) != 1 || got[0].Problem == "" || got[0].Events != "" {
				t.Errorf("members %+v", got)
			}
		})
	}
	t.Run("without end", func(t *testing.T) {
		t.Parallel()
		body := &endless{}
		w := newWeb(nil)
		w.other = func(*http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body}
		}
		_, problems := lookAt(t, w, fleet.Replica{Engine: "http://a"})
		wantErrors(t, problems, "the answer has more than 4194304 bytes")
		if body.read > 6<<20 {
			t.Errorf("read %d bytes", body.read)
		}
	})
	t.Run("a key is asked for", func(t *testing.T) {
		t.Parallel()
		w := newWeb(nil)
		w.other = func(*http.Request) *http.Response { return answer(http.StatusUnauthorized, "") }
		got, problems := lookAt(t, w, fleet.Replica{Engine: "http://u:secret@a"})
		wantErrors(t, problems, "GET http://u:xxxxx@a/kv_event_sources: 401 Unauthorized")
		if want := "GET http://u:xxxxx@a/kv_event_sources: 401 Unauthorized: it does not tell its event socket, so give events"; got[0].Problem != want {
			t.Errorf("problem %q", got[0].Problem)
		}
	})
}

func FuzzDescribed(f *testing.F) {
	f.Add(twoRanks, true)
	f.Add(sglangInfo, false)
	f.Fuzz(func(t *testing.T, body string, vllm bool) {
		path := map[bool]string{true: "kv_event_sources", false: "server_info"}[vllm]
		w := newWeb(nil)
		w.other = func(req *http.Request) *http.Response {
			if strings.HasSuffix(req.URL.Path, path) {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
			}
			return answer(http.StatusNotFound, "")
		}
		got, _ := lookAt(t, w, fleet.Replica{Engine: "http://a"})
		if len(got) == 0 || len(got) > 2048 {
			t.Fatalf("%d members", len(got))
		}
		for _, m := range got {
			if (m.Events == "") != (m.Problem != "") {
				t.Errorf("%+v: an address or a problem is wanted, and not both", m)
			}
		}
	})
}

// A page with many addresses makes kvscope look its host up once.
func TestHostIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	var ranks []string
	for i := range 1000 {
		ranks = append(ranks, fmt.Sprintf(`"%d":{"endpoint":"tcp://10.0.0.5:%d","replay_endpoint":"tcp://10.0.0.6:1"}`, i, 5000+i))
	}
	w := newWeb(map[string]string{"http://a/kv_event_sources": "{" + strings.Join(ranks, ",") + "}"})
	n := 0
	f := finder(t, fleet.Spec{Replicas: []fleet.Replica{{Engine: "http://a"}}}, fleet.Options{
		Do: w.do, LookupHost: func(context.Context, string) ([]string, error) { n++; return []string{"10.0.0.5"}, nil },
	})
	got, problems := f.Look(t.Context())
	wantErrors(t, problems)
	if len(got) != 1000 || got[999].Events != "tcp://10.0.0.5:5999" || got[999].Replay != "" || n != 1 {
		t.Errorf("%d members, the last %+v, %d look-ups", len(got), got[len(got)-1], n)
	}
}
