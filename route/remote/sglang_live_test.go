package remote_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// sglangFleet is what the fleet's scripts write of SGLang's router before fake
// workers.
type sglangFleet struct {
	Policy  string   `json:"policy"`
	Router  string   `json:"router"`
	Order   []string `json:"worker_order"`
	Workers []struct {
		Name  string `json:"name"`
		URL   string `json:"url"`
		Stats string `json:"stats"`
	} `json:"workers"`

	totals map[string]int
	rng    *rand.Rand
	busy   []inFlight
}

// tokenTime is what a fake worker takes for a token, unless it is told another.
const tokenTime = 10 * time.Millisecond

// inFlight is a request that a worker has.
type inFlight struct {
	worker string
	ends   time.Time
	done   chan error
}

// sglangRouter skips the test where no fleet runs, and gives the router's
// settings: its command line's flags are in KVSCOPE_SGLANG_ARGS.
func sglangRouter(t *testing.T) (*sglangFleet, *route.Config) {
	t.Helper()
	file := os.Getenv("KVSCOPE_SGLANG_ROUTER")
	if file == "" {
		t.Skip("KVSCOPE_SGLANG_ROUTER names no fleet.json of a running SGLang router")
	}
	f := &sglangFleet{totals: make(map[string]int), rng: rand.New(rand.NewPCG(4, 2))}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, f)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := route.Named("sglang-" + strings.ReplaceAll(f.Policy, "_", "-"))
	if err != nil {
		t.Fatal(err)
	}
	flags, err := p.FromFlags(route.SplitCommand(os.Getenv("KVSCOPE_SGLANG_ARGS")))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := p.Configure(route.Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return f, &cfg
}

// total asks a fake worker how many requests it has had.
func (f *sglangFleet) total(t *testing.T, stats string) int {
	t.Helper()
	res, err := http.Get(stats)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var s struct {
		Total int `json:"total"`
	}
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s.Total
}

// prompt makes one up: often the beginning of an earlier one goes on, so that
// texts have several owners.
func (f *sglangFleet) prompt(earlier []string) string {
	words := []string{"cache", "block", "router", "naïve", "漢字", "prefix", "tree", "🙂", "worker", "token"}
	heads := []string{"You are a helpful assistant. ", "日本語で答えてください。", "System: be brief. ", ""}
	text := heads[f.rng.IntN(len(heads))]
	if len(earlier) > 0 && f.rng.IntN(3) > 0 {
		old := []rune(earlier[f.rng.IntN(len(earlier))])
		text = string(old[:len(old)/2+f.rng.IntN(len(old)/2+1)])
	}
	for range 1 + f.rng.IntN(8) {
		text += words[f.rng.IntN(len(words))] + " "
	}
	return text
}

// body gives a request in one of the forms that clients have, as the router reads
// it too.
func (f *sglangFleet) body(text string, tokens int) (path string, body any, req route.Request) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	req = route.Request{BlockSize: 16, Contents: []string{text}}
	sampling := map[string]int{"max_new_tokens": tokens}
	switch f.rng.IntN(4) {
	case 0:
		ids := make([]wire.Token, 0, len(text))
		for _, c := range text {
			ids = append(ids, wire.Token(c))
		}
		req.Contents, req.IDs = nil, ids
		return "/generate", map[string]any{"input_ids": ids, "sampling_params": sampling}, req
	case 1:
		if tokens > 1 {
			break // the router sends the limit on under a name that a fake worker does not read
		}
		at := strings.IndexByte(text+" ", ' ')
		system, user := text[:at], strings.TrimPrefix(text[at:], " ")
		if system != "" && user != "" {
			req.Contents = []string{system, user}
			return "/v1/chat/completions", map[string]any{"model": "fake", "max_tokens": tokens, "messages": []message{{"system", system}, {"user", user}}}, req
		}
	case 2:
		return "/v1/completions", map[string]any{"model": "fake", "prompt": text, "max_tokens": tokens}, req
	}
	return "/generate", map[string]any{"text": text, "sampling_params": sampling}, req
}

// calm waits until no request is about to end, so that the router's loads are
// those that are known here.
func (f *sglangFleet) calm(t *testing.T) {
	t.Helper()
	const before, after = 80 * time.Millisecond, 25 * time.Millisecond
	for {
		at := slices.IndexFunc(f.busy, func(h inFlight) bool { return time.Until(h.ends) < before })
		if at < 0 {
			return
		}
		if err := <-f.busy[at].done; err != nil {
			t.Fatal(err)
		}
		f.busy = slices.Delete(f.busy, at, at+1)
		time.Sleep(after)
	}
}

// send gives a request to the router, and says which worker has got it while it
// is in flight.
func (f *sglangFleet) send(t *testing.T, path string, body any, key string, tokens int) string {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ask, err := http.NewRequest("POST", f.Router+path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	ask.Header.Set("Content-Type", "application/json")
	if key != "" {
		ask.Header.Set("X-SMG-Routing-Key", key)
	}
	h := inFlight{ends: time.Now().Add(time.Duration(tokens) * tokenTime), done: make(chan error, 1)}
	go func() {
		res, err := http.DefaultClient.Do(ask)
		if err == nil {
			_, err = new(bytes.Buffer).ReadFrom(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s answered %s", path, res.Status)
			}
		}
		h.done <- err
	}()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for _, w := range f.Workers {
			if n := f.total(t, w.Stats); n != f.totals[w.Name] {
				f.totals[w.Name] = n
				h.worker = w.Name
				f.busy = append(f.busy, h)
				return w.Name
			}
		}
	}
	t.Fatalf("no worker got a request in 10 s: %v", <-h.done)
	return ""
}

// TestLiveSGLangRouter predicts 300 decisions of a running router from outside,
// from its first request on.
func TestLiveSGLangRouter(t *testing.T) {
	f, cfg := sglangRouter(t)
	url := make(map[string]wire.Replica)
	for _, w := range f.Workers {
		url[w.Name] = wire.Replica(w.URL)
		if f.totals[w.Name] = f.total(t, w.Stats); f.totals[w.Name] > 0 {
			t.Fatalf("%s has had requests before: start the fleet anew, since the router remembers them", w.Name)
		}
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	router := route.NewRouter(*cfg, rand.New(rand.NewPCG(1, 2)))
	began := time.Now()
	var earlier []string
	certain, equal, chosen := 0, 0, make(map[string]int)
	const asked = 300
	for n := range asked {
		tokens := 1
		if f.rng.IntN(3) > 0 && len(f.busy) < 16 {
			tokens = 60 + f.rng.IntN(80)
		}
		text := f.prompt(earlier)
		earlier = append(earlier, text)
		key := ""
		if f.rng.IntN(8) > 0 {
			key = fmt.Sprint("key-", f.rng.IntN(40))
		}
		path, body, req := f.body(text, tokens)
		f.calm(t)
		req.At, req.Session = wire.Time(time.Since(began)), key
		cands := make([]route.Candidate, len(f.Order))
		for i, name := range f.Order {
			cands[i] = route.Candidate{Replica: url[name], Load: route.Load{State: route.LoadKnown}}
			for _, h := range f.busy {
				if h.worker == name {
					cands[i].Load.Requests++
				}
			}
		}
		d, err := router.Decide(&req, cands)
		if err != nil {
			t.Fatal(err)
		}
		got := f.send(t, path, body, key, tokens)
		chosen[got]++
		if !slices.Contains(d.Names(d.Choice), url[got]) {
			t.Errorf("request %d went to %s, and could go to %v: %q", n, got, d.Names(d.Choice), d.Trace)
		}
		if len(d.Choice) == 1 {
			if certain++; d.Names(d.Choice)[0] == url[got] {
				equal++
			}
		} else {
			req.Allowed = []wire.Replica{url[got]}
		}
		router.Route(&req, cands)
	}
	for _, h := range f.busy {
		if err := <-h.done; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%s: %d of %d decisions are certain, and %d of them equal; they went to %v", f.Policy, certain, asked, equal, chosen)
}
