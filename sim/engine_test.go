package sim

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/wire"
)

func newEngine(t testing.TB, opt EngineOptions) *Engine {
	t.Helper()
	e, err := NewEngine(opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func submit(t testing.TB, e *Engine, j Job) {
	t.Helper()
	if err := e.Submit(j); err != nil {
		t.Fatal(err)
	}
}

// tokens are n token ids from one on.
func tokens(from, n int) []wire.Token {
	out := make([]wire.Token, n)
	for i := range out {
		out[i] = wire.Token(from + i)
	}
	return out
}

// finish makes steps until nothing is left to do.
func finish(t testing.TB, e *Engine) ([]wire.Event, []Served) {
	t.Helper()
	var events []wire.Event
	var served []Served
	for range 100_000 {
		if l := e.Load(); l.Running+l.Waiting == 0 {
			return events, served
		}
		ev, done := e.Step()
		events, served = append(events, ev...), append(served, done...)
	}
	t.Fatal("the engine does not come to an end")
	return nil, nil
}

// said writes events in short: the first token of each block stored, and of
// each block removed.
func said(events []wire.Event) string {
	var out []string
	first := map[uint64]wire.Token{}
	for i := range events {
		e := &events[i]
		var of []string
		for k, h := range e.Hashes {
			if e.Kind == wire.Stored {
				first[h.N] = e.Tokens[k*e.BlockSize]
			}
			of = append(of, strconv.Itoa(int(first[h.N])))
		}
		word := map[wire.EventKind]string{wire.Stored: "+", wire.Removed: "-", wire.Cleared: "cleared"}[e.Kind]
		if e.Kind == wire.Stored && e.Parent.Set {
			word = strconv.Itoa(int(first[e.Parent.N])) + word
		}
		out = append(out, word+strings.Join(of, ","))
	}
	return strings.Join(out, " ")
}

// TestEngineEvents has what is known of vLLM: what is announced when.
func TestEngineEvents(t *testing.T) {
	t.Parallel()
	prompt := func(from, n int) Job { return Job{Prompt: tokens(from, n), Output: tokens(900, 1)} }
	tests := []struct {
		name   string
		opt    EngineOptions
		jobs   []Job // one after the other
		want   string
		cached []int
	}{
		{"a prompt at once, its tail never", EngineOptions{}, []Job{prompt(0, 11)}, "+0,4", []int{0}},
		{"a prompt in several steps", EngineOptions{StepTokens: 6}, []Job{prompt(0, 14)}, "+0 0+4,8", []int{0}},
		{
			"one block at a time while it generates, the last token never computed",
			EngineOptions{},
			[]Job{{Prompt: tokens(0, 6), Output: tokens(6, 7)}},
			"+0 0+4 4+8",
			[]int{0},
		},
		{
			"a hit says nothing",
			EngineOptions{},
			[]Job{prompt(0, 9), prompt(0, 9), prompt(0, 13)},
			"+0,4 4+8",
			[]int{0, 8, 8},
		},
		{
			"a prompt of whole blocks stores its last one again",
			EngineOptions{},
			[]Job{prompt(0, 8), prompt(0, 8)},
			"+0,4 0+4",
			[]int{0, 4},
		},
		{
			"what skips the cache stores all again",
			EngineOptions{},
			[]Job{prompt(0, 9), {Prompt: tokens(0, 9), Output: tokens(900, 1), SkipRead: true}},
			"+0,4 +0,4",
			[]int{0, 0},
		},
		{
			// The tail of the oldest sequence goes first; its unfinished block was free already.
			"eviction from the tail of the oldest",
			EngineOptions{Blocks: 6},
			[]Job{prompt(0, 9), prompt(100, 9), prompt(200, 17)},
			"+0,4 +100,104 -4 -0 -104 +200,204,208,212",
			[]int{0, 0, 0},
		},
		{
			"a hit makes young",
			EngineOptions{Blocks: 6},
			[]Job{prompt(0, 9), prompt(100, 9), prompt(0, 9), prompt(200, 13)},
			"+0,4 +100,104 -104 -100 +200,204,208",
			[]int{0, 0, 8, 0},
		},
		{"caching off", EngineOptions{NoCaching: true}, []Job{prompt(0, 9), prompt(0, 9)}, "", []int{0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.opt.BlockSize = 4
			tt.opt.Blocks = cmp.Or(tt.opt.Blocks, 100)
			e := newEngine(t, tt.opt)
			var events []wire.Event
			var cached []int
			for _, j := range tt.jobs {
				submit(t, e, j)
				ev, served := finish(t, e)
				events = append(events, ev...)
				for _, s := range served {
					cached = append(cached, s.Cached)
				}
			}
			if got := said(events); got != tt.want {
				t.Errorf("events %s, want %s", got, tt.want)
			}
			if !slices.Equal(cached, tt.cached) {
				t.Errorf("cached %v, want %v", cached, tt.cached)
			}
		})
	}
}

// TestEngineConcurrent: of equal prompts in one step the second finds what the
// first is about to compute.
func TestEngineConcurrent(t *testing.T) {
	t.Parallel()
	e := newEngine(t, EngineOptions{BlockSize: 4, Blocks: 20})
	for id := range 2 {
		submit(t, e, Job{Prompt: tokens(0, 9), Output: tokens(500, 3), ID: id})
	}
	events, served := e.Step()
	if got := said(events); got != "+0,4" || served != nil {
		t.Errorf("events %s, served %v", got, served)
	}
	if l := e.Load(); l.Running != 2 || math.Abs(l.Usage-0.2) > 1e-9 || l.Queried != 18 || l.Hit != 8 { // 2 shared blocks and 2 tails of 20
		t.Errorf("load %+v", l)
	}
	if got := e.Jobs(); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("jobs %v", got)
	}
	finish(t, e)
	if l := e.Load(); l.Usage != 0 || l.Finished != 2 || l.Output != 6 {
		t.Errorf("load %+v at the end", l)
	}
}

func TestEnginePreempts(t *testing.T) {
	t.Parallel()
	e := newEngine(t, EngineOptions{BlockSize: 4, Blocks: 6})
	for id := range 2 {
		submit(t, e, Job{Prompt: tokens(100*id, 9), Output: tokens(500+100*id, 12), ID: id})
	}
	_, served := finish(t, e)
	if l := e.Load(); l.Preempted == 0 || len(served) != 2 || served[0].ID != 0 {
		t.Errorf("load %+v, served %+v", l, served)
	}
}

func TestEngineReset(t *testing.T) {
	t.Parallel()
	e := newEngine(t, EngineOptions{BlockSize: 4, Blocks: 20})
	submit(t, e, Job{Prompt: tokens(0, 9), Output: tokens(500, 3)})
	e.Step()
	if e.Reset(false) {
		t.Error("a reset is granted while a request runs")
	}
	finish(t, e)
	if !e.Reset(false) || len(e.Residents()) != 0 || !e.Pending() {
		t.Errorf("%d blocks after a reset", len(e.Residents()))
	}
	if events, _ := e.Step(); events != nil { // it is idle
		t.Errorf("an idle engine says %s", said(events))
	}
	submit(t, e, Job{Prompt: tokens(0, 9), Output: tokens(500, 3)})
	if events, _ := e.Step(); said(events) != "cleared +0,4" {
		t.Errorf("events %s", said(events))
	}
	if !e.Reset(true) || e.Load().Running != 0 || e.Load().Waiting != 1 {
		t.Errorf("load %+v after a forced reset", e.Load())
	}
	if events, _ := e.Step(); said(events) != "cleared +0,4" {
		t.Errorf("events %s", said(events))
	}
}

// TestEngineNamespaces: jobs of another adapter or salt share no block, and their
// blocks come with the extra keys that vLLM publishes: the adapter's name with
// each, the salt with the first.
func TestEngineNamespaces(t *testing.T) {
	t.Parallel()
	e := newEngine(t, EngineOptions{Blocks: 40, BlockSize: 4})
	key := func(texts ...string) []wire.ExtraKey {
		var out []wire.ExtraKey
		for _, s := range texts {
			out = append(out, wire.ExtraKey{Text: s})
		}
		return out
	}
	hashes := map[wire.Handle]bool{}
	for _, tt := range []struct {
		lora, salt string
		extra      [][]wire.ExtraKey
	}{
		{"", "", [][]wire.ExtraKey{nil, nil}},
		{"l", "", [][]wire.ExtraKey{key("l"), key("l")}},
		{"", "s", [][]wire.ExtraKey{key("s"), nil}},
		{"l", "s", [][]wire.ExtraKey{key("l", "s"), key("l")}},
	} {
		for again := range 2 {
			submit(t, e, Job{Prompt: tokens(1, 9), Output: tokens(50, 1), LoRA: tt.lora, Salt: tt.salt})
			events, served := finish(t, e)
			if want := 8 * again; len(served) != 1 || served[0].Cached != want {
				t.Errorf("%+v, time %d: %+v, want %d cached", tt, again, served, want)
			}
			if again == 1 {
				continue
			}
			b, err := wire.Decode("", 0, AppendBatch(nil, 1, events, 0))
			if err != nil || len(b.Events) != 1 {
				t.Fatal(b, err)
			}
			got := b.Events[0]
			if got.LoRAName != tt.lora || !gocmp.Equal(got.Extra, tt.extra) {
				t.Errorf("%+v: published as %+v", tt, got)
			}
			for _, h := range got.Hashes {
				if hashes[h] {
					t.Errorf("%+v: %v is a block of another", tt, h)
				}
				hashes[h] = true
			}
		}
	}
}

func TestEngineRefuses(t *testing.T) {
	t.Parallel()
	if _, err := NewEngine(EngineOptions{Blocks: -1}); err == nil {
		t.Error("an engine of -1 blocks")
	}
	if _, err := NewEngine(EngineOptions{Blocks: 1 << 30}); err == nil {
		t.Error("an engine of 2^30 blocks")
	}
	e := newEngine(t, EngineOptions{BlockSize: 4, Blocks: 2})
	for _, j := range []Job{{Output: tokens(0, 1)}, {Prompt: tokens(0, 1)}, {Prompt: tokens(0, 8), Output: tokens(8, 1)}} {
		if e.Submit(j) == nil {
			t.Errorf("a job of %d and %d tokens", len(j.Prompt), len(j.Output))
		}
	}
}

// shadow is the naivest index of one engine: it believes its batches.
type shadow struct {
	counts  map[uint64]int
	content map[uint64]Resident
	// removals and clears count events.
	removals, clears int
}

// take decodes a payload and applies it, and fails where that makes no sense.
func (s *shadow) take(t *testing.T, payload []byte) {
	t.Helper()
	b, err := wire.Decode("", 0, payload)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Events {
		e := &b.Events[i]
		switch e.Kind {
		case wire.Stored:
			parent := e.Parent
			if parent.Set && s.counts[parent.N] == 0 {
				t.Fatalf("a store behind a block that is not there")
			}
			for k, h := range e.Hashes {
				r := Resident{Hash: h, Parent: parent, Tokens: e.Tokens[k*e.BlockSize : (k+1)*e.BlockSize]}
				if old, ok := s.content[h.N]; ok && !same(old, r) {
					t.Fatalf("one hash, two contents:\n%s", gocmp.Diff(old, r))
				}
				s.counts[h.N]++
				s.content[h.N] = r
				parent = h
			}
		case wire.Removed:
			s.removals++
			for _, h := range e.Hashes {
				if s.counts[h.N]--; s.counts[h.N] < 0 {
					t.Fatal("a block is removed that is not there")
				}
				if s.counts[h.N] == 0 {
					delete(s.counts, h.N)
				}
			}
		case wire.Cleared:
			s.clears++
			clear(s.counts)
		default:
			t.Fatalf("%s: %v", e.Kind, e.Err)
		}
	}
}

func (s *shadow) residents() []Resident {
	var out []Resident
	for _, h := range slices.Sorted(maps.Keys(s.counts)) {
		r := s.content[h]
		r.Copies = s.counts[h]
		out = append(out, r)
	}
	return out
}

func (s *shadow) total() (n int) {
	for _, c := range s.counts {
		n += c
	}
	return n
}

func newShadow() *shadow {
	return &shadow{counts: map[uint64]int{}, content: map[uint64]Resident{}}
}

// TestEngineProperty drives engines through histories that are likely to find
// their corners: small caches, few different prompts, concurrent requests. At
// each step, what the batches make is what the engine says is there, and a
// look-up finds what they say it would.
func TestEngineProperty(t *testing.T) {
	t.Parallel()
	preempted := 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		opt := EngineOptions{
			Blocks: 8 + rng.IntN(40), BlockSize: 1 + rng.IntN(5), StepTokens: 5 + rng.IntN(40), Running: 1 + rng.IntN(6),
		}
		e, s := newEngine(t, opt), newShadow()
		var jobs, done int
		prompt := func() []wire.Token {
			p := tokens(1000*rng.IntN(3), rng.IntN(3*opt.BlockSize))
			p = append(p, tokens(100*rng.IntN(3), 1+rng.IntN(3*opt.BlockSize))...)
			return p[:min(len(p), opt.Blocks*opt.BlockSize/2)]
		}
		for range 400 {
			if rng.IntN(3) == 0 {
				j := Job{Prompt: prompt(), Output: tokens(100*rng.IntN(3), 1+rng.IntN(9)), SkipRead: rng.IntN(10) == 0}
				if e.Submit(j) == nil {
					jobs++
				}
			}
			if rng.IntN(50) == 0 {
				e.Reset(rng.IntN(2) == 0)
			}
			events, served := e.Step()
			if len(events) > 0 {
				s.take(t, AppendBatch(nil, 1, events, 0))
			}
			for i := range served {
				if limit := (len(served[i].Prompt) - 1) / opt.BlockSize * opt.BlockSize; served[i].Cached > limit {
					t.Fatalf("seed %d: %d of %d tokens cached", seed, served[i].Cached, len(served[i].Prompt))
				}
			}
			done += len(served)
			if e.Pending() {
				continue // a reset that nobody heard of
			}
			if got, want := e.Residents(), s.residents(); !slices.EqualFunc(got, want, same) {
				t.Fatalf("seed %d: residents (-events +engine):\n%s", seed, gocmp.Diff(want, got))
			}
			if s.total() > opt.Blocks {
				t.Fatalf("seed %d: %d blocks in a cache of %d", seed, s.total(), opt.Blocks)
			}
			p := prompt()
			if got, want := e.Match(p), s.match(p, opt.BlockSize); got != want {
				t.Fatalf("seed %d: %d tokens match, want %d", seed, got, want)
			}
		}
		events, served := finish(t, e)
		if len(events) > 0 {
			s.take(t, AppendBatch(nil, 1, events, 0))
		}
		if done += len(served); done != jobs {
			t.Errorf("seed %d: %d of %d jobs done", seed, done, jobs)
		}
		preempted += e.Load().Preempted
	}
	if preempted == 0 {
		t.Error("no history has a preemption")
	}
}

func same(a, b Resident) bool {
	return a.Hash == b.Hash && a.Parent == b.Parent && a.Copies == b.Copies && slices.Equal(a.Tokens, b.Tokens)
}

// match finds a prompt by the content of the blocks, without any hash function.
func (s *shadow) match(prompt []wire.Token, size int) int {
	var at wire.Handle
	n := 0
next:
	for ; n+size < len(prompt); n += size {
		for h := range s.counts {
			r := s.content[h]
			if r.Parent == at && slices.Equal(r.Tokens, prompt[n:n+size]) {
				at = r.Hash
				continue next
			}
		}
		break
	}
	return n
}
