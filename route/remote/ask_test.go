package remote_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/route/remote"
	"github.com/kvscope/kvscope/wire"
)

// frontend answers as the recorded one.
func frontend(t testing.TB, metrics, completion string) *server {
	return &server{pages: map[string]page{
		"GET /metrics":         {http.StatusOK, golden(t, metrics)},
		"POST /v1/completions": {http.StatusOK, golden(t, completion)},
	}}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	s := frontend(t, "metrics.txt", "probe.json")
	got, err := s.client().Probe(t.Context(), host, prompt())
	if err != nil {
		t.Fatal(err)
	}
	want := &remote.Choice{Prefill: first, Decode: first, Tokens: prompt().Tokens}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("choice (-want +got):\n%s", d)
	}
	s = frontend(t, "metrics.txt", "probe.json")
	p := remote.Prompt{Model: "m", Tokens: numbers(1, 3), LoRA: "adapter", Salt: "s"}
	if _, err := s.client().Probe(t.Context(), host, p); err != nil {
		t.Fatal(err)
	}
	s.sentOnly(t, "GET /metrics",
		`POST /v1/completions {"model":"adapter","prompt":[1,2,3],"cache_salt":"s","max_tokens":1,"nvext":{"annotations":["query_instance_id:"]}}`)
}

// Where prefill and decode are parted, each has its worker.
func TestProbeParted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, worker    string
		prefill, decode wire.Replica
	}{
		{"both", `{"prefill_worker_id":7,"prefill_dp_rank":1,"decode_worker_id":8,"decode_dp_rank":0}`, "7/1", "8/0"},
		{"decode alone", `{"prefill_worker_id":null,"decode_worker_id":8,"decode_dp_rank":2}`, "8/2", "8/2"},
		{"prefill alone", `{"prefill_worker_id":7,"prefill_dp_rank":1}`, "7/1", "7/1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := frontend(t, "metrics.txt", "probe.json")
			s.pages["POST /v1/completions"] = page{http.StatusOK, `{"nvext":{"worker_id":` + tt.worker + `}}`}
			got, err := s.client().Probe(t.Context(), host, prompt())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(&remote.Choice{Prefill: tt.prefill, Decode: tt.decode}, got); d != "" {
				t.Errorf("choice (-want +got):\n%s", d)
			}
		})
	}
}

// A server that would run the request must not get it.
func TestProbeHarmless(t *testing.T) {
	t.Parallel()
	const known = `dynamo_component_router_worker_registered{dp_rank="0"} `
	long := strings.Repeat("x", 1<<17)
	for _, tt := range []struct {
		name, metrics string
		asks          bool
	}{
		{"no metrics", "", false},
		{"vLLM", "vllm:num_requests_running 1\n", false},
		{"a frontend of another mode", `dynamo_component_router_requests_total{router_id="1"} 2` + "\n", false},
		{"no worker left", known + "0\n", false},
		{"only said of", "# HELP " + known + "1\n", false},
		{"within a line", "x " + known + "1\n", false},
		{"behind a long line", long + "\n" + known + "1\n", true},
		{"within a long line", long + known + "1\n", false},
		{"one of two", known + "0\n" + known + "1\n", true},
		{"no line end", known + "1", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := frontend(t, "metrics.txt", "probe.json")
			s.pages["GET /metrics"] = page{http.StatusOK, tt.metrics}
			_, err := s.client().Probe(t.Context(), host, prompt())
			if asked := len(s.asked) == 2; asked != tt.asks || asked != (err == nil) {
				t.Errorf("sent %d requests, error %v", len(s.asked), err)
			}
			if err != nil && !strings.Contains(err.Error(), "so it was not sent") {
				t.Errorf("error %q", err)
			}
		})
	}
}

func TestIndexer(t *testing.T) {
	t.Parallel()
	want := &remote.Matches{Rows: []remote.Held{
		{Replica: first, Tokens: [wire.NumTiers]int{96}},
		{Replica: second, Tokens: [wire.NumTiers]int{48}},
	}}
	s := answering("POST /query", golden(t, "query.json"))
	got, err := s.client().Query(t.Context(), host+"/", prompt())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("matches (-want +got):\n%s", d)
	}
	s = answering("POST /query", golden(t, "query.json"))
	if _, err := s.client().Query(t.Context(), host, remote.Prompt{Model: "m", Tokens: numbers(1, 2), LoRA: "l", Salt: "s"}); err != nil {
		t.Fatal(err)
	}
	s.sentOnly(t, `POST /query {"token_ids":[1,2],"model_name":"m","lora_name":"l","cache_salt":"s"}`)

	// Hashes are signed there.
	s = answering("POST /query_by_hash", golden(t, "query.json"))
	got, err = s.client().QueryByHash(t.Context(), host, "m", []uint64{1, 1<<64 - 2})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("matches (-want +got):\n%s", d)
	}
	s.sentOnly(t, `POST /query_by_hash {"block_hashes":[1,-2],"model_name":"m"}`)
}

// The counts are those of a test of the indexer itself: rank 0 holds 2 blocks on
// the device, 1 in host memory and 2 on disk, rank 1 holds 1, 0 and 1.
func TestIndexerTiers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, dp string
		want     []remote.Held
	}{
		{"one rank", `{"0":32}`, []remote.Held{{Replica: "7/0", Tokens: [wire.NumTiers]int{32, 16, 32}}}},
		{"two ranks", `{"0":32,"1":16}`, []remote.Held{
			{Replica: "7/0", Tokens: [wire.NumTiers]int{32}, DeviceOnly: true},
			{Replica: "7/1", Tokens: [wire.NumTiers]int{16}, DeviceOnly: true},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := answering("POST /query", `{"instances":{"7":{"longest_matched":80,"gpu":32,"dp":`+tt.dp+`,"cpu":48,"disk":80}}}`)
			got, err := s.client().Query(t.Context(), host, prompt())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got.Rows); d != "" {
				t.Errorf("rows (-want +got):\n%s", d)
			}
		})
	}
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	got, err := answering("GET /workers", golden(t, "workers.json")).client().Workers(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	var want []remote.Listener
	for _, w := range []struct {
		name wire.Replica
		port string
	}{{first, "26100"}, {second, "26130"}, {third, "26120"}, {fourth, "26110"}} {
		want = append(want, remote.Listener{
			Replica: w.name, Model: "qwen3-mock", Group: "default", BlockSize: 16,
			Endpoint: "tcp://127.0.0.1:" + w.port, Status: "active",
		})
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("workers (-want +got):\n%s", d)
	}
}

func TestSelection(t *testing.T) {
	t.Parallel()
	choice, err := answering("POST /select", golden(t, "select.json")).client().Select(t.Context(), host, prompt())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&remote.Choice{Prefill: first, Decode: first}, choice); d != "" {
		t.Errorf("choice (-want +got):\n%s", d)
	}
	matches, err := answering("POST /overlap_scores", golden(t, "overlap_scores.json")).client().Overlaps(t.Context(), host, prompt())
	if err != nil {
		t.Fatal(err)
	}
	want := &remote.Matches{BlockSize: 16, Rows: []remote.Held{
		{Replica: first, Tokens: [wire.NumTiers]int{96}}, {Replica: second, Tokens: [wire.NumTiers]int{48}}, {Replica: third}, {Replica: fourth},
	}}
	if d := cmp.Diff(want, matches); d != "" {
		t.Errorf("matches (-want +got):\n%s", d)
	}
	for _, tt := range []struct {
		model string
		want  []remote.Load
	}{
		// The prompt was reserved once: 150 tokens of which 96 are held, 9 blocks.
		{"qwen3-mock", []remote.Load{
			{Replica: first, Load: route.Load{State: route.LoadKnown, PrefillTokens: 54, Blocks: 9, Requests: 1}},
			{Replica: second, Load: route.Load{State: route.LoadKnown}},
			{Replica: third, Load: route.Load{State: route.LoadKnown}},
			{Replica: fourth, Load: route.Load{State: route.LoadKnown}},
		}},
		{"another", nil},
	} {
		loads, err := answering("GET /loads", golden(t, "loads.json")).client().Loads(t.Context(), host, tt.model)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, loads); d != "" {
			t.Errorf("loads of %s (-want +got):\n%s", tt.model, d)
		}
	}
	s := answering("POST /overlap_scores", `{"block_size":4,"workers":[{"worker_id":7,"dp_rank":1,"device_blocks":2,`+
		`"host_pinned_blocks":3,"disk_blocks":5,"host_pinned_extension_blocks":1,"disk_extension_blocks":2}]}`)
	matches, err = s.client().Overlaps(t.Context(), host, prompt())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]remote.Held{{Replica: "7/1", Tokens: [wire.NumTiers]int{8, 4, 8}}}, matches.Rows); d != "" {
		t.Errorf("tiers (-want +got):\n%s", d)
	}
}

// asks are all questions, by name.
var asks = map[string]func(context.Context, *remote.Client, string, remote.Prompt) error{
	"probe": func(ctx context.Context, c *remote.Client, at string, p remote.Prompt) error {
		_, err := c.Probe(ctx, at, p)
		return err
	},
	"query": func(ctx context.Context, c *remote.Client, at string, p remote.Prompt) error {
		_, err := c.Query(ctx, at, p)
		return err
	},
	"query by hash": func(ctx context.Context, c *remote.Client, at string, p remote.Prompt) error {
		locals, _ := blockhash.Rolling(p.Tokens, 16, false, blockhash.NamespaceOf("", ""), nil)
		_, err := c.QueryByHash(ctx, at, p.Model, locals)
		return err
	},
	"workers": func(ctx context.Context, c *remote.Client, at string, _ remote.Prompt) error {
		_, err := c.Workers(ctx, at)
		return err
	},
	"dump": func(ctx context.Context, c *remote.Client, at string, _ remote.Prompt) error {
		_, err := c.Dump(ctx, at)
		return err
	},
	"select": func(ctx context.Context, c *remote.Client, at string, p remote.Prompt) error {
		_, err := c.Select(ctx, at, p)
		return err
	},
	"overlaps": func(ctx context.Context, c *remote.Client, at string, p remote.Prompt) error {
		_, err := c.Overlaps(ctx, at, p)
		return err
	},
	"loads": func(ctx context.Context, c *remote.Client, at string, p remote.Prompt) error {
		_, err := c.Loads(ctx, at, p.Model)
		return err
	},
}

func TestErrors(t *testing.T) {
	t.Parallel()
	ran := frontend(t, "metrics.txt", "ran.json")
	unknown := frontend(t, "metrics.txt", "probe.json")
	unknown.pages["POST /v1/completions"] = page{http.StatusNotFound, golden(t, "probe_unknown_model.json")}
	silent := frontend(t, "metrics.txt", "probe.json")
	silent.pages["POST /v1/completions"] = page{http.StatusOK, `{"choices":[{"finish_reason":null}],"nvext":{}}`}
	for _, tt := range []struct {
		name, ask string
		server    *server
		at        string
		prompt    remote.Prompt
		want      string
	}{
		{"a frontend that ran the probe", "probe", ran, host, prompt(), "the frontend ran the request in place of naming a worker"},
		{"an unknown model", "probe", unknown, host, prompt(), "POST http://router:8000/v1/completions: 404 Not Found: Model not found"},
		{"no worker named", "probe", silent, host, prompt(), "the frontend's answer names no worker"},
		{"an unknown model of the indexer", "query", &server{pages: map[string]page{
			"POST /query": {http.StatusNotFound, golden(t, "query_unknown_model.json")},
		}}, host, prompt(), "POST http://router:8000/query: 404 Not Found: no indexer for model=nope routing_group=default"},
		{"a complaint in no known form", "loads", &server{}, host, prompt(), "GET http://router:8000/loads: 404 Not Found"},
		{"escapes in a complaint", "query", &server{pages: map[string]page{
			"POST /query": {http.StatusBadRequest, `{"error":"a\u001b[2Jb"}`},
		}}, host, prompt(), "400 Bad Request: a?[2Jb"},
		{"no URL", "query", &server{}, "router:8000", prompt(), "give http://host:port"},
		{"a password", "query", &server{}, "http://me:secret@router", prompt(), "POST http://me:xxxxx@router/query: 404"},
		{"a query", "query", &server{}, "http://router?token=secret", prompt(), "POST http://router/query: 404"},
		{"a bad URL with a password", "query", &server{}, "http://me:secret@router:x", prompt(), "not a URL: give http://host:port"},
		{"a long URL", "query", &server{}, "http://" + strings.Repeat("a", 3000), prompt(), "a URL of 3007 bytes: the limit is 2048"},
		{"no tokens", "select", &server{}, host, remote.Prompt{Model: "m"}, "the prompt has no tokens"},
		{"no model", "overlaps", &server{}, host, remote.Prompt{Tokens: numbers(1, 1)}, "name it"},
		{"no model for hashes", "query by hash", &server{}, host, remote.Prompt{Tokens: numbers(1, 1)}, "name it"},
		{"a wide token", "query", &server{}, host, remote.Prompt{Model: "m", Tokens: []wire.Token{1, 1 << 32}}, "token 1 of the prompt is 4294967296"},
		{"a page of another server", "query", answering("POST /query", "<html>"), host, prompt(), "is this address the right one?"},
		{"another service", "query", answering("POST /query", "{}"), host, prompt(), "is this the address of Dynamo's standalone indexer?"},
		{"another form", "loads", answering("GET /loads", `{"a":1}`), host, prompt(), "something else than the form asked for"},
		{"a negative count", "overlaps", answering("POST /overlap_scores", `{"block_size":-1}`), host, prompt(), "is not the JSON"},
		{"no block size", "overlaps", answering("POST /overlap_scores", `{"workers":[]}`), host, prompt(), "no block size"},
		{"no selection", "select", answering("POST /select", `{}`), host, prompt(), "is this the address of Dynamo's selection service?"},
		{"a worker with a name", "query", answering("POST /query", `{"instances":{"a":{"dp":{"0":1}}}}`), host, prompt(), "not named by numbers"},
		{"an endless answer", "loads", answering("GET /loads", strings.Repeat(" ", 17<<20)), host, prompt(), "the answer has more than 16777216 bytes"},
		{"a dump that is cut off", "dump", answering("GET /dump", golden(t, "dump.json")[:700]), host, prompt(), "the dump is cut off"},
		{"a dump of an unknown tier", "dump", answering("GET /dump", `{"m:g":{"events":[{"storage_tier":"tape"}]}}`), host, prompt(), `"tape", which is no tier known`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := asks[tt.ask](t.Context(), tt.server.client(), tt.at, tt.prompt)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("error %q tells the password", err)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := remote.New(remote.Options{Timeout: 3 * time.Second, Do: func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}})
		for name, ask := range asks {
			err := ask(t.Context(), c, host, prompt())
			if err == nil || !strings.HasSuffix(err.Error(), ": no answer within 3s") {
				t.Errorf("%s: error %v", name, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Loads(ctx, host, "m"); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v of a cancelled question", err)
		}
	})
}

// The client that is used by default sends a prompt to nobody but the server
// that was named.
func TestDefaultClient(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer other.Close()
	one := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	_, err := remote.New(remote.Options{}).Query(t.Context(), one.URL, prompt())
	if err == nil || !strings.Contains(err.Error(), "307 Temporary Redirect") {
		t.Errorf("error %v", err)
	}
	one.Close()
	_, err = remote.New(remote.Options{}).Query(t.Context(), one.URL, prompt())
	if want := "POST " + one.URL + "/query: connection refused"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

// Whatever a server says is an answer or an error.
func FuzzAnswers(f *testing.F) {
	for _, name := range []string{"probe.json", "ran.json", "query.json", "workers.json", "dump.json", "select.json", "overlap_scores.json", "loads.json", "metrics.txt", "query_unknown_model.json"} {
		f.Add(200, []byte(golden(f, name)))
	}
	f.Add(500, []byte(`{"message":"x"}`))
	metrics := golden(f, "metrics.txt")
	f.Fuzz(func(_ *testing.T, status int, body []byte) {
		for name, ask := range asks {
			s := &server{pages: map[string]page{"GET /metrics": {http.StatusOK, metrics}}}
			for _, what := range []string{"GET /metrics", "POST /v1/completions", "POST /query", "POST /query_by_hash", "GET /workers", "GET /dump", "POST /select", "POST /overlap_scores", "GET /loads"} {
				if what != "GET /metrics" || name != "probe" {
					s.pages[what] = page{status, string(body)}
				}
			}
			_ = ask(context.Background(), s.client(), host, prompt()) // an error is fine
		}
	})
}

// A chat is sent as it came, but for what asks for its answer.
func TestProbeChat(t *testing.T) {
	t.Parallel()
	const answer = `{"choices":[{"finish_reason":null}],"nvext":{"worker_id":{"prefill_worker_id":7,"decode_worker_id":7},"token_ids":[5,6]}}`
	s := &server{pages: map[string]page{
		"GET /metrics": {http.StatusOK, golden(t, "metrics.txt")}, "POST /v1/chat/completions": {http.StatusOK, answer},
	}}
	got, err := s.client().ProbeChat(t.Context(), host, []byte(`{"stream":true,"n":3,"max_completion_tokens":9,"messages":[{"role":"user","content":"<hi>"}],"model":"m","tools":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&remote.Choice{Prefill: "7/0", Decode: "7/0", Tokens: []wire.Token{5, 6}}, got); d != "" {
		t.Errorf("choice (-want +got):\n%s", d)
	}
	s.sentOnly(t, "GET /metrics",
		`POST /v1/chat/completions {"max_tokens":1,"messages":[{"role":"user","content":"\u003chi\u003e"}],"model":"m","nvext":{"annotations":["query_instance_id:"]},"tools":[]}`)
	s.pages["POST /v1/chat/completions"] = page{http.StatusOK, `{"nvext":{"worker_id":{"prefill_worker_id":7}}}`}
	for body, want := range map[string]string{
		`{"model":"m","messages":[]}`: "holds no token ids",
		`{"model":"m"}`:               "no JSON object with messages",
		`[1]`:                         "no JSON object with messages",
		`{"messages":[]}`:             "with its field model",
	} {
		if _, err := s.client().ProbeChat(t.Context(), host, []byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", body, err, want)
		}
	}
	s.pages["GET /metrics"] = page{http.StatusOK, ""}
	s.asked = nil
	if _, err := s.client().ProbeChat(t.Context(), host, []byte(`{"model":"m","messages":[]}`)); err == nil || len(s.asked) != 1 {
		t.Errorf("sent %q to what has no KV router", s.asked)
	}
}
