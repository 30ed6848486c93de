package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// stepped is a clock that a test moves; a fleet is its one waiter.
type stepped struct {
	mu    sync.Mutex
	now   time.Time
	fire  chan time.Time
	waits chan struct{}
}

func newStepped() *stepped {
	return &stepped{now: time.Unix(1_800_000_000, 0), fire: make(chan time.Time), waits: make(chan struct{}, 1)}
}

func (c *stepped) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *stepped) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	c.mu.Unlock()
	c.waits <- struct{}{}
	return c.fire, func() {}
}

// steps has the fleet make n steps.
func (c *stepped) steps(n int) {
	for range n {
		c.fire <- time.Time{}
		<-c.waits
	}
}

// chatOf reads a rendered prompt back into the messages that it was made of.
func chatOf(t *testing.T, text string) []map[string]string {
	t.Helper()
	var out []map[string]string
	for _, turn := range strings.Split(text, "<|im_start|>")[1:] {
		role, content, ok := strings.Cut(turn, "\n")
		if !ok {
			t.Fatalf("no turn: %q", turn)
		}
		if content, ended := strings.CutSuffix(content, "<|im_end|>\n"); ended {
			out = append(out, map[string]string{"role": role, "content": content})
		} else if role != "assistant" || content != "" {
			t.Fatalf("an open turn: %q", turn)
		}
	}
	return out
}

func bodyOf(t *testing.T, messages []map[string]string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": sim.Model, "messages": messages})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// resident counts the tokens of a prompt that an engine would find in its cache:
// whole blocks, but never the last token.
func resident(truth sim.Truth, tokens []wire.Token) int {
	var parent wire.Handle
	n := 0
	for n+truth.BlockSize < len(tokens) {
		at := slices.IndexFunc(truth.Residents, func(r sim.Resident) bool {
			return r.Parent == parent && slices.Equal(r.Tokens, tokens[n:n+truth.BlockSize])
		})
		if at < 0 {
			break
		}
		parent = truth.Residents[at].Hash
		n += truth.BlockSize
	}
	return n
}

// said is what explain says of a prompt, as JSON.
type said struct {
	Candidates []struct {
		Replica string
		Cached  int `json:"predicted_cached_tokens"`
	}
	Divergence *struct {
		Lost int `json:"blocks_lost"`
		Diff struct {
			Spans []struct {
				Class, Kind string
				B           struct {
					Text    string
					Message *int
					Role    string
				}
			}
			Reuse struct {
				Now, Moved, Removed int
				Retokenized         bool
			} `json:"reusable_blocks"`
			Lost int `json:"blocks_lost"`
		}
	}
}

// defaults is Dynamo's policy as it is.
func defaults(t *testing.T) *route.Config {
	t.Helper()
	policy, err := route.Named("dynamo")
	if err != nil {
		t.Fatal(err)
	}
	config, err := policy.Configure(route.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	return &config
}

// ask explains a body as the command does, from its text on.
func ask(t *testing.T, s seen, m *prompt.Model, body string) (*prompt.Prompt, said) {
	t.Helper()
	p, r, err := (&promptFlags{}).prompt(t.Context(), m, []byte(body), "the prompt")
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Explain(t.Context(), explain.Query{Tokens: p.Tokens, Named: r.Model, Config: defaults(t)})
	if err != nil {
		t.Fatal(err)
	}
	if a.Divergence != nil {
		if err := a.Divergence.Compare(t.Context(), p, speech{m}); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := report.ExplainJSON(&b, a, p, ""); err != nil {
		t.Fatal(err)
	}
	var out said
	if err := json.Unmarshal(b.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return p, out
}

var timeOfDay = regexp.MustCompile(`\d\d:\d\d:\d\d\.\d\d`)

// stamped counts the stored chains that begin with the time of day.
func stamped(m *prompt.Model, truth []sim.Truth) int {
	n := 0
	for _, e := range truth {
		for _, r := range e.Residents {
			if !r.Parent.Set && strings.Contains(m.Tokenizer.Decode(r.Tokens), "Current time:") {
				n++
			}
		}
	}
	return n
}

// asksClocked asks for a request that was served, with another time of day.
func asksClocked(t *testing.T, s seen, m *prompt.Model, truth []sim.Truth, text string) {
	t.Helper()
	const other = "23:59:58.07"
	messages := chatOf(t, text)
	messages[0]["content"] = timeOfDay.ReplaceAllLiteralString(messages[0]["content"], other)
	p, got := ask(t, s, m, bodyOf(t, messages))
	predicted(t, got, truth, p.Tokens)
	d := got.Divergence
	if d == nil || len(d.Diff.Spans) == 0 {
		t.Fatalf("nothing parts %q: %+v", p.Text, d)
	}
	span := d.Diff.Spans[0]
	if span.Class != "timestamp" || span.B.Text != other || span.B.Message == nil || *span.B.Message != 0 || span.B.Role != "system" {
		t.Errorf("what parts it is %+v", span)
	}
	// The request itself is stored with its own time, so without it all of the
	// prompt's full blocks are shared.
	rest := demoEncode(m)(strings.Replace(p.Text, other, "", 1))
	reuse := d.Diff.Reuse
	if want := len(rest) / truth[0].BlockSize; reuse.Now != 0 || reuse.Moved != want || d.Diff.Lost != want || !reuse.Retokenized {
		t.Errorf("%+v, %d lost, want %d", reuse, d.Diff.Lost, want)
	}
}

// predicted holds what is predicted of each candidate against its engine's cache.
func predicted(t *testing.T, got said, truth []sim.Truth, tokens []wire.Token) (cached int) {
	t.Helper()
	for _, c := range got.Candidates {
		at := slices.IndexFunc(truth, func(e sim.Truth) bool { return e.Name == c.Replica })
		if want := resident(truth[at], tokens); c.Cached != want {
			t.Errorf("%s: %d tokens predicted, the engine holds %d", c.Replica, c.Cached, want)
		}
		cached += c.Cached
	}
	return cached
}

// TestExplainTextLive: a fleet whose conversations say something is followed, and
// explain is given the text of requests that it served. What it predicts is what
// the engines hold; where the time of day broke a prefix it says so, and what it
// says of the blocks that come back holds for the prompts so changed.
func TestExplainTextLive(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m := small(t)
	now := newStepped()
	const step = 25 * time.Millisecond
	engines, err := sim.StartFleet(ctx, sim.Options{
		Replicas: 2, Blocks: 500, BlockSize: 32, Step: step, Seed: 3, Faults: []string{"timestamp"}, Encode: demoEncode(m), Clock: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer engines.Close()
	<-now.waits
	full, err := tap.ParsePolicy("full") // the first batches may be out before the engines know of us
	if err != nil {
		t.Fatal(err)
	}
	src, err := followDemo(ctx, engines, tap.Options{Replay: tap.ReplayOptions{Policy: full}})
	if err != nil {
		t.Fatal(err)
	}
	defer src.close()
	live := src.live()
	ran := make(chan error, 1)
	go func() { ran <- live.Run(ctx, src) }()
	until := func(what string, ok func([]diagnose.Replica) bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !ok(live.Snapshot().Replicas); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited in vain until %s: %+v", what, live.Snapshot().Replicas)
			}
		}
	}
	until("the engines are reached", func(all []diagnose.Replica) bool {
		return len(all) == 2 && !slices.ContainsFunc(all, func(r diagnose.Replica) bool { return r.Link != wire.LinkUp })
	})
	follow := func(steps int) []sim.Truth {
		t.Helper()
		now.steps(steps)
		truth := engines.Truth()
		until("all is followed", func(all []diagnose.Replica) bool {
			for _, r := range all {
				at := slices.IndexFunc(truth, func(e sim.Truth) bool { return e.Name == string(r.Replica) })
				if !r.Heard || r.Last+1 != truth[at].Next || r.Held > 0 || !r.Trust.Exact() {
					return false
				}
			}
			return true
		})
		return truth
	}

	// Before the fault: every conversation's request is found as the engines have it.
	truth := follow(4 * int(time.Second/step))
	compared, cached := 0, 0
	served := engines.Requests()
	for _, r := range served {
		if r.Status != 200 || r.Family < 0 {
			continue
		}
		p, got := ask(t, live, m, bodyOf(t, chatOf(t, m.Tokenizer.Decode(r.Tokens))))
		if !slices.Equal(p.Tokens, r.Tokens) {
			t.Fatalf("the body makes other tokens than the engine was sent: %q", p.Text)
		}
		cached += predicted(t, got, truth, p.Tokens)
		compared += len(got.Candidates)
	}
	if compared < 20 || cached == 0 {
		t.Errorf("%d predictions, %d tokens", compared, cached)
	}

	// After it. Of the chains that part in one block a few are looked at, so it is asked
	// while no more begin with the time of day; blocks are long enough to hold it.
	const chains = 4
	clocked := 0
	for range 3 * int(time.Second/step) {
		truth = follow(1)
		if stamped(m, truth) > chains {
			break
		}
		log := engines.Requests()
		for _, r := range log[len(served):] {
			if text := m.Tokenizer.Decode(r.Tokens); r.Status == 200 && timeOfDay.MatchString(text) {
				clocked++
				asksClocked(t, live, m, truth, text)
			}
		}
		served = log
	}
	if clocked < 2 {
		t.Errorf("%d requests with the time of day", clocked)
	}
	t.Logf("%d predictions compared, %d requests with the time of day", compared, clocked)
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
