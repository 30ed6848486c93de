package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

// routers answer by "METHOD /path", and keep what they were sent.
type routers struct {
	*httptest.Server
	mu   sync.Mutex
	sent map[string]string
}

func newRouters(t *testing.T, pages map[string]string) *routers {
	t.Helper()
	r := &routers{sent: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		what := req.Method + " " + req.URL.Path
		body, _ := io.ReadAll(req.Body) // as much as there is
		r.mu.Lock()
		r.sent[what] = string(body)
		r.mu.Unlock()
		page, ok := pages[what]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, page) // the client notices
	}))
	t.Cleanup(r.Close)
	return r
}

// askedJSON is what is read of an answer here.
type askedJSON struct {
	Choice []string
	Damage string
	Asked  []struct {
		Who, At, Choice, Said, Why, Error string
		Agrees                            bool
		Differences                       []struct{ What, Replica, Text string }
		Decision                          *struct {
			HitRate float64 `json:"kv_hit_rate"`
		}
	}
}

const (
	registered = `dynamo_component_router_worker_registered{dp_rank="0",worker_id="7"} 1` + "\n"
	probed     = `{"nvext":{"worker_id":{"prefill_worker_id":%[1]d,"prefill_dp_rank":0,"decode_worker_id":%[1]d,"decode_dp_rank":0}}}`
)

// recordedPrompt is one of the fixtures that a, b and c hold three blocks of 32 of.
// At recordedAt it goes to a, since c has 7 blocks and b 11 active.
func recordedPrompt(t *testing.T) (file string, tokens []wire.Token) {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", "script", "explain.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?s)-- prompt.txt --\n(.*?)-- `).FindSubmatch(script)[1]
	for _, word := range strings.Fields(string(text)) {
		var token wire.Token
		if _, err := fmt.Sscan(word, &token); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	file = filepath.Join(t.TempDir(), "prompt")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, tokens
}

const recordedAt = "1796011744.758"

func explainRecorded(t *testing.T, wantCode int, more ...string) (out string) {
	t.Helper()
	file, _ := recordedPrompt(t)
	args := append([]string{"explain", "@" + file, "--from", "../../fixtures/a_fleet", "--at", recordedAt}, more...)
	var b, errs bytes.Buffer
	if code := run(t.Context(), args, nil, &b, &errs); code != wantCode {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	return b.String()
}

// TestExplainAsks sets the answers of all that can be asked beside ours: worker 7
// is a, 8 is b and 9 is c.
func TestExplainAsks(t *testing.T) {
	t.Parallel()
	r := newRouters(t, map[string]string{
		"GET /metrics":         registered,
		"POST /v1/completions": fmt.Sprintf(probed, 7),
		"GET /workers": `[{"instance_id":7,"model_name":"tiny","routing_group":"default","block_size":32,` +
			`"listeners":{"0":{"endpoint":"tcp://127.0.0.1:1","status":"active"}}}]`,
		"POST /query_by_hash": `{"instances":{"7":{"dp":{"0":96},"cpu":96,"disk":96},"8":{"dp":{"0":96},"cpu":96,"disk":96},` +
			`"9":{"dp":{"0":64},"cpu":64,"disk":64}}}`,
		"POST /select":         `{"worker_id":9,"dp_rank":0}`,
		"POST /overlap_scores": `{"block_size":32,"workers":[{"worker_id":7,"dp_rank":0,"device_blocks":3},{"worker_id":8,"dp_rank":0,"device_blocks":3},{"worker_id":9,"dp_rank":0,"device_blocks":3}]}`,
		"GET /loads": `[{"model_name":"tiny","loads":[{"worker_id":7,"dp_rank":0,"potential_prefill_tokens":0,"potential_decode_blocks":50,"active_requests":3},` +
			`{"worker_id":8,"dp_rank":0,"potential_prefill_tokens":0,"potential_decode_blocks":11,"active_requests":1},` +
			`{"worker_id":9,"dp_rank":0,"potential_prefill_tokens":0,"potential_decode_blocks":7,"active_requests":1}]}]`,
	})
	_, tokens := recordedPrompt(t)
	_, hashes := blockhash.Rolling(tokens, 32, false, blockhash.NamespaceOf("", ""), nil)
	row := func(id string, ms, worker int, hashes []uint64) string {
		list, _ := json.Marshal(append(slices.Clone(hashes), 1)) // the block begun
		return fmt.Sprintf(`{"event":{"event_type":"request_end","event_time_unix_ms":%d,"request":{"request_id":%q,"request_received_ms":%[1]d,`+
			`"input_tokens":100,"output_tokens":2,"ttft_ms":1,"kv_hit_rate":0.75,"worker":{"prefill_worker_id":%[3]d,"decode_worker_id":%[3]d},`+
			`"replay":{"trace_block_size":32,"input_sequence_hashes":%s}}}}`+"\n", ms, id, worker, list)
	}
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	rows := row("early", 1796011000000, 9, hashes) +
		strings.Replace(row("probe", 1796011744757, 9, hashes), `"output_tokens":2,"ttft_ms":1`, `"output_tokens":0`, 1) + row("mine", 1796011744700, 8, hashes) + row("other", 1796011744758, 9, []uint64{4, 5, 6})
	if err := os.WriteFile(trace, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{
		"--ask-router", r.URL + "?token=secret", "--ask-indexer", r.URL, "--ask-selector", strings.Replace(r.URL, "http://", "http://me:secret@", 1), "--trace", trace,
		"--map", "7/0=a,8/0=b", "--map", "9/0=c",
	}
	var a askedJSON
	text := explainRecorded(t, exitFine, append(flags, "--json")...)
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	type row4 struct {
		Who, Choice string
		Agrees      bool
		Why, Said   string
	}
	want := []row4{
		{"indexer", "", false, "their index has 1 block fewer on c, device: 2, here 3", "tokens of it held: a 96, b 96, c 64"},
		{"router", "a", true, "both choose a", ""},
		{"selector", "c", false, "they chose c, here it would be a: with their loads the choice is theirs (they hold 0 tokens to compute, 50 blocks and 3 requests against a", "tokens of it held: a 96, b 96, c 96"},
		{"trace", "b", false, "they chose b, here it would be a: ", "request mine of 2026-11-30T04:09:04.700Z, kv_hit_rate 0.75, here 0.75; of 3 decisions for this prompt the nearest in time"},
	}
	if len(a.Asked) != len(want) || len(a.Choice) != 1 || a.Choice[0] != "a" {
		t.Fatalf("%+v", a)
	}
	for i, w := range want {
		got := &a.Asked[i]
		if !strings.HasPrefix(got.Why, w.Why) {
			t.Errorf("%s: %q, want %q", w.Who, got.Why, w.Why)
		}
		w.Why = got.Why
		if d := cmp.Diff(w, row4{got.Who, got.Choice, got.Agrees, got.Why, got.Said}); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	}
	if d := a.Asked[3].Decision; d == nil || d.HitRate != 0.75 {
		t.Errorf("decision %+v", d)
	}
	if d := a.Asked[0].Differences; len(d) != 1 || d[0].What != "match" || d[0].Replica != "c" {
		t.Errorf("differences %+v", d)
	}
	if strings.Contains(text, "secret") {
		t.Error("it tells a password or a token")
	}
	text = explainRecorded(t, exitFine, flags...)
	for _, line := range []string{
		"What was asked of routers:\n", "  router " + r.URL + " agrees: both choose a\n",
		"  indexer " + r.URL + " differs: their index has 1 block fewer on c, device: 2, here 3\n    tokens of it held: a 96, b 96, c 64\n",
		"me:xxxxx@",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
	// Each gets what its flag's help says, and the indexer no token.
	r.mu.Lock()
	defer r.mu.Unlock()
	var q struct {
		Hashes []int64 `json:"block_hashes"`
	}
	if err := json.Unmarshal([]byte(r.sent["POST /query_by_hash"]), &q); err != nil || len(q.Hashes) != 3 || strings.Contains(r.sent["POST /query_by_hash"], "token") {
		t.Errorf("the indexer was sent %s", r.sent["POST /query_by_hash"])
	}
	for _, what := range []string{"POST /v1/completions", "POST /select", "POST /overlap_scores"} {
		if !strings.Contains(r.sent[what], "151644,8948") || !strings.Contains(r.sent[what], `"tiny"`) {
			t.Errorf("%s was sent %s", what, r.sent[what])
		}
	}
	if len(r.sent) != 7 {
		t.Errorf("sent %v", r.sent)
	}
}

// TestExplainAskedAlone: each flag asks its own router, and nobody else is sent
// anything.
func TestExplainAskedAlone(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string][]string{
		"":             nil,
		"ask-router":   {"GET /metrics"}, // which shows no KV router
		"ask-indexer":  {"GET /workers"},
		"ask-selector": {"POST /select"},
	} {
		r := newRouters(t, map[string]string{"GET /metrics": "vllm:num_requests_running 1\n"})
		var more []string
		code := exitFine
		if flag != "" {
			more, code = []string{"--" + flag, r.URL}, exitInput
		}
		text := explainRecorded(t, code, more...)
		var got []string
		r.mu.Lock()
		for what := range r.sent {
			got = append(got, what)
		}
		r.mu.Unlock()
		if !slices.Equal(got, want) {
			t.Errorf("--%s: sent %q, want %q", flag, got, want)
		}
		// Ours stands all the same.
		if !strings.Contains(text, "It goes to a, before c") || (flag != "") != strings.Contains(text, " gives no answer: ") || (flag != "") != strings.HasPrefix(text, "INCOMPLETE: ") {
			t.Errorf("--%s:\n%s", flag, text)
		}
	}
}

// TestExplainStrangers: workers that cannot be joined with replicas are said to be.
func TestExplainStrangers(t *testing.T) {
	t.Parallel()
	r := newRouters(t, map[string]string{"GET /metrics": registered, "POST /v1/completions": fmt.Sprintf(probed, 7)})
	text := explainRecorded(t, exitFine, "--ask-router", r.URL)
	if want := "differs: none of their replicas is a candidate here, 7/0 for one: say with --map 7/0=REPLICA"; !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	for content, want := range map[string]string{
		"":               "has no decision for this prompt among 0",
		"x\n":            "1 of 1 lines could not be read",
		`{"t":1}` + "\n": "is the end of a request",
	} {
		if err := os.WriteFile(trace, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if text := explainRecorded(t, exitInput, "--trace", trace); !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// moving is a fleet in which a block arrives after the first look.
type moving struct {
	seen
	index *index.Index
	looks int
}

func (m *moving) Explain(_ context.Context, q explain.Query) (*explain.Answer, error) {
	if m.looks++; m.looks == 2 {
		e := wire.Event{Kind: wire.Stored, BlockSize: 2, Group: -1, Hashes: []wire.Handle{wire.IntHandle(1)}, Tokens: q.Tokens[:2]}
		m.index.Apply("8/0", &e, false)
	}
	f := explain.Fleet{Now: 1, Index: m.index, Loads: explain.NewLoads()}
	for _, name := range []wire.Replica{"7/0", "8/0"} {
		f.Replicas = append(f.Replicas, explain.Replica{Name: name, Trust: explain.Trust{Model: "m"}})
	}
	return explain.Candidates(f, q)
}

// TestExplainAskedMeanwhile: an event that comes while a router is asked is told
// from a real difference. Before it, 7/0 is chosen by a load given by hand.
func TestExplainAskedMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRouters(t, map[string]string{"GET /metrics": registered, "POST /v1/completions": fmt.Sprintf(probed, 8)})
	policy, err := route.Named("dynamo")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := policy.Configure(route.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	m := &moving{index: index.New(index.Options{})}
	q := explain.Query{Tokens: []wire.Token{1, 2, 3}, BlockSize: 2, Config: &cfg, Edits: []explain.Edit{{Key: "8/0:active_prefill_tokens", Value: "1"}}}
	a, err := m.Explain(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&askFlags{router: r.URL}).ask(t.Context(), m, nil, q, a, question{}); err != nil {
		t.Fatal(err)
	}
	want := "they chose 8/0, here it would be 7/0: an event arrived in between, and with what is known now the choice is theirs (1 block on 8/0, device, now, 0 before)"
	if len(a.Asked) != 1 || a.Asked[0].Why != want || a.Asked[0].Choice != "8/0" || m.looks != 2 {
		t.Errorf("%+v, want %q", a.Asked, want)
	}
}

// TestExplainAsksLive joins workers with the replicas of a running fleet by the
// event sockets that the indexer names.
func TestExplainAsksLive(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it listens to a fleet for a while")
	}
	engines, err := sim.StartFleet(t.Context(), sim.Options{Replicas: 2, Rate: 50, Step: 5 * time.Millisecond, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer engines.Close()
	args := []string{"explain", "[1,2,3]", "--for", "2s", "--json"}
	var workers []string
	for i, m := range engines.Members() {
		args = append(args, "--engine", m.URL)
		workers = append(workers, fmt.Sprintf(`{"instance_id":%d,"model_name":"sim","listeners":{"0":{"endpoint":%q}}}`, 7+i, m.Events))
	}
	r := newRouters(t, map[string]string{
		"GET /metrics": registered, "POST /v1/completions": fmt.Sprintf(probed, 8),
		"GET /workers": "[" + strings.Join(workers, ",") + "]", "POST /query_by_hash": `{"instances":{"7":{"dp":{"0":0}},"8":{"dp":{"0":0}}}}`,
	})
	var out, errs bytes.Buffer
	if code := run(t.Context(), append(args, "--ask-indexer", r.URL, "--ask-router", r.URL), nil, &out, &errs); code != exitFine {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var a askedJSON
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	if len(a.Asked) != 2 || !a.Asked[0].Agrees || a.Asked[1].Choice == "" || strings.Contains(a.Asked[1].Why, "none of") {
		t.Errorf("%s", out.String())
	}
}
