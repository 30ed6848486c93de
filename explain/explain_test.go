package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// policy configures a policy with settings in the form name=value.
func policy(t interface{ Fatal(...any) }, name string, set ...string) *route.Config {
	p, err := route.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	var src route.Sources
	for _, s := range set {
		key, value, _ := strings.Cut(s, "=")
		src.Set = append(src.Set, route.Setting{Name: key, Value: value, Origin: "test"})
	}
	cfg, err := p.Configure(src)
	if err != nil {
		t.Fatal(err)
	}
	return &cfg
}

var exact = Trust{Exact: true, Known: true, Words: "EXACT", Model: "m"}

// fleetOf makes replicas r0, r1, … that hold so many blocks, of four tokens, of
// the chain of tokens from 0 on.
func fleetOf(blocks ...int) Fleet {
	f := Fleet{Now: 100 * second, Index: index.New(index.Options{}), Loads: NewLoads()}
	for i, n := range blocks {
		name := wire.Replica(fmt.Sprintf("r%d", i))
		f.Index.SetModel(name, "m")
		f.Index.SetBlockSize(name, 4)
		if n > 0 {
			store(name, f.Index, 0, n)
		}
		f.Replicas = append(f.Replicas, Replica{Name: name, Trust: exact})
	}
	return f
}

// TestCandidates reckons a prompt of 22 tokens, 5 full blocks and a half, by hand:
// r0 holds 5 blocks and is busy, r1 holds 2, r2 nothing and has no load told.
func TestCandidates(t *testing.T) {
	t.Parallel()
	f := fleetOf(5, 2, 0)
	f.Replicas[0].Load = wire.Load{Known: true, At: 99 * second, Running: 2, KVUsage: 0.5}
	f.Replicas[0].Capacity = 20
	f.Replicas[1].Load = wire.Load{Known: true, At: 99 * second}
	f.Replicas[1].Capacity = 20
	page := &Page{Workers: []WorkerLoad{{"r0", 40, -1, -1}}}
	a, err := Candidates(f, Query{Tokens: tokens(0, 22), Config: policy(t, "dynamo"), Page: page, PrefillRate: 1000})
	if err != nil {
		t.Fatal(err)
	}
	// cost = (40 + 22)/4 - 5 + 10 + 5 = 25.5, 22/4 - 2 + 0 + 5 = 8.5, 22/4 + 5 = 10.5
	want := []string{"r1 8.5: 2 blocks, 8 tokens, known, 0 + 14 ms", "r2 10.5: 0 blocks, 0 tokens, unknown, 0 + 22 ms", "r0 25.5: 5 blocks, 20 tokens, known, 40 + 2 ms"}
	var got []string
	for _, c := range a.Candidates {
		got = append(got, fmt.Sprintf("%s %v: %d blocks, %d tokens, %s, %v + %v ms", c.Replica, c.Cost, c.Match[wire.Device], c.CachedTokens, c.Load.State, c.WaitMS, c.PrefillMS))
	}
	if !slices.Equal(got, want) {
		t.Errorf("candidates\n%q, want\n%q", got, want)
	}
	if !slices.Equal(a.Choice, []wire.Replica{"r1"}) || a.Deciding != "device_overlap_credit" || a.Margin != 2 || a.Against != "r2" {
		t.Errorf("%v by %s %v against %s", a.Choice, a.Deciding, a.Margin, a.Against)
	}
	for _, term := range []string{"prompt_blocks", "new_decode_blocks", "host_overlap_credit"} {
		if !slices.Contains(a.Cancels, term) {
			t.Errorf("%s does not cancel: %v", term, a.Cancels)
		}
	}
	if a.Blocks != 5 || a.BlockSize != 4 || a.Tokens != 22 || a.Model != "m" || a.Divergence != nil {
		t.Errorf("%+v", a)
	}
	if len(a.Notes) != 1 || !strings.HasPrefix(a.Notes[0], "the load of 1 candidate is unknown and counts as 0") {
		t.Errorf("notes %q", a.Notes)
	}
	// More than two blocks' worth of tokens; no weight and no block makes it lose.
	if len(a.Flips) != 1 || a.Flips[0].What != "r1:active_prefill_tokens" || a.Flips[0].To != "9" || !slices.Equal(a.Flips[0].Then, []wire.Replica{"r2"}) {
		t.Errorf("flips %+v", a.Flips)
	}
}

// TestQueues: llm-d's rule sees the engines' queues and the usage of their caches,
// and says whose are not known. r0 holds all 5 blocks: 2*5/5 + (1 - 0.75) + 0, r1
// 2 of them: 2*2/5 + (1 - 0.25) + 1.
func TestQueues(t *testing.T) {
	t.Parallel()
	f := fleetOf(5, 2, 0)
	f.Replicas[0].Load = wire.Load{Known: true, At: 99 * second, Running: 2, Waiting: 4, KVUsage: 0.75}
	f.Replicas[1].Load = wire.Load{Known: true, At: 99 * second, KVUsage: 0.25}
	page := &Page{Workers: []WorkerLoad{{"r2", 40, 1, 1}}}
	ask := func(policy *route.Config, edits ...Edit) []string {
		a, err := Candidates(f, Query{Tokens: tokens(0, 22), Config: policy, Page: page, Edits: edits})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range a.Candidates {
			out = append(out, fmt.Sprintf("%s %.4g without %s", c.Replica, c.Cost, strings.Join(c.Load.Missing, " ")))
		}
		return out
	}
	const engines = "active_prefill_tokens active_decode_blocks"
	for name, tt := range map[string]struct {
		got, want []string
	}{
		"llm-d": {
			ask(policy(t, "llm-d-precise")),
			[]string{"r1 -2.55 without " + engines, "r0 -2.25 without " + engines, "r2 -2 without waiting_requests kv_cache_usage"},
		},
		"by hand": {
			ask(policy(t, "llm-d-precise"), Edit{"r0:waiting_requests", "0"}, Edit{"r2:kv_cache_usage", "0.5"}),
			[]string{"r0 -3.25 without " + engines, "r1 -2.55 without " + engines, "r2 -1.5 without waiting_requests"},
		},
		"another rule": {
			ask(policy(t, "least-loaded")),
			[]string{"r1 0 without " + engines, "r2 1 without ", "r0 6 without " + engines},
		},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%s: %q, want %q", name, tt.got, tt.want)
		}
	}
}

// TestCap: the last token is computed in any case, which the router does not know.
func TestCap(t *testing.T) {
	t.Parallel()
	a, err := Candidates(fleetOf(5), Query{Tokens: tokens(0, 20), Config: policy(t, "dynamo")})
	if err != nil || a.Candidates[0].Match[wire.Device] != 5 || a.Candidates[0].CachedTokens != 16 || a.Candidates[0].Timed {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestDivergence(t *testing.T) {
	t.Parallel()
	f := fleetOf(5, 3)
	prompt := slices.Concat(tokens(0, 9), []wire.Token{77}, tokens(10, 20))
	a, err := Candidates(f, Query{Tokens: prompt, Config: policy(t, "dynamo")})
	if err != nil {
		t.Fatal(err)
	}
	if d := a.Divergence; d == nil || d.Block != 2 || d.Token != 9 || d.Lost != 5 || d.Replica == "" || !d.Known {
		t.Errorf("%+v", d)
	}
}

func TestEdits(t *testing.T) {
	t.Parallel()
	f := fleetOf(5, 0)
	ask := func(edits ...Edit) *Answer {
		t.Helper()
		a, err := Candidates(f, Query{Tokens: tokens(0, 22), Config: policy(t, "dynamo"), Edits: edits})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	of := func(a *Answer, name wire.Replica) Candidate {
		return a.Candidates[slices.IndexFunc(a.Candidates, func(c Candidate) bool { return c.Replica == name })]
	}
	a := ask(Edit{"r0:active_decode_blocks", "30"}, Edit{"router_temperature", "1"})
	c := of(a, "r0")
	if c.Load.From != fromHand || c.Load.State != route.LoadKnown || !slices.Equal(c.Load.Missing, []string{"active_prefill_tokens", "active_requests"}) {
		t.Errorf("%+v", c.Load)
	}
	if a.Choice[0] != "r1" || len(a.Choice) != 2 || len(a.Best) != 1 {
		t.Errorf("%v of %v", a.Choice, a.Best)
	}
	if c := of(ask(Edit{"r0:matched_blocks", "1"}), "r0"); c.CachedTokens != 4 || c.Match[wire.Device] != 1 || !strings.Contains(c.Note, "by hand") {
		t.Errorf("%+v", c)
	}
	for key, want := range map[string]string{
		"r9:active_requests": "r9 is no candidate", "r0:speed": "a candidate has no speed", "speed": "speed (set) is no setting",
	} {
		if _, err := Candidates(f, Query{Tokens: tokens(0, 22), Config: policy(t, "dynamo"), Edits: []Edit{{key, "1"}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	f := fleetOf(5, 5, 0)
	f.Replicas[1].Trust.Model = "other"
	f.Replicas[2].Trust.Model = "" // nobody knows
	f.Index.SetModel("r1", "other")
	ask := func(model string) (string, error) {
		a, err := Candidates(f, Query{Tokens: tokens(0, 22), Model: model, Config: policy(t, "dynamo")})
		if err != nil {
			return "", err
		}
		var names []string
		for _, c := range a.Candidates {
			names = append(names, string(c.Replica))
		}
		return strings.Join(names, " "), nil
	}
	if got, err := ask("m"); err != nil || got != "r0 r2" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := ask(""); err == nil || !strings.Contains(err.Error(), "2 models") || !strings.Contains(err.Error(), "m, other") {
		t.Errorf("%v", err)
	}
	if _, err := ask("z"); err == nil || !strings.Contains(err.Error(), "no replica serves the model z") {
		t.Errorf("%v", err)
	}
}

// A request may name an adapter as its model, which says nothing of the fleet's.
func TestNamedModel(t *testing.T) {
	t.Parallel()
	f := fleetOf(5)
	for _, tt := range []struct {
		q    Query
		want bool
	}{
		{Query{Named: "adapter"}, true},
		{Query{Named: "adapter", LoRA: "adapter"}, false},
		{Query{Named: "adapter", Model: "m"}, false},
		{Query{Named: "m"}, false},
		{Query{}, false},
	} {
		tt.q.Tokens, tt.q.Config = tokens(0, 22), policy(t, "dynamo")
		a, err := Candidates(f, tt.q)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Contains(strings.Join(a.Notes, ""), "the request names the model adapter, which no replica is known to serve, so this is for m: if it is a LoRA adapter, say so (--lora)")
		if got != tt.want {
			t.Errorf("%+v: notes %q", tt.q, a.Notes)
		}
	}
}

func TestBlockSizes(t *testing.T) {
	t.Parallel()
	f := fleetOf(5, 5, 5)
	big := wire.Event{Kind: wire.Stored, BlockSize: 8, Group: -1, Hashes: []wire.Handle{wire.IntHandle(99)}, Tokens: tokens(0, 8)}
	f.Index.Apply("r3", &big, false)
	f.Index.SetModel("r3", "m")
	f.Replicas = append(f.Replicas, Replica{Name: "r3", Trust: exact}, Replica{Name: "r4", Trust: Trust{Words: "BLIND"}})
	a, err := Candidates(f, Query{Tokens: tokens(0, 22), Config: policy(t, "dynamo")})
	if err != nil || a.BlockSize != 4 {
		t.Fatal(a, err)
	}
	for _, c := range a.Candidates {
		switch c.Replica {
		case "r3": // its engine has 8 tokens of it all the same
			if c.Match[wire.Device] != 0 || c.CachedTokens != 8 || !strings.Contains(c.Note, "blocks have 8 tokens") {
				t.Errorf("%+v", c)
			}
		case "r4":
			if c.Match[wire.Device] != 0 || !strings.Contains(c.Note, "not known") {
				t.Errorf("%+v", c)
			}
		}
	}
	if a, err = Candidates(f, Query{Tokens: tokens(0, 22), Config: policy(t, "dynamo"), BlockSize: 8}); err != nil || a.BlockSize != 8 || a.Blocks != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	f = fleetOf(5, 5)
	if a, err = Candidates(f, Query{Tokens: tokens(0, 22), Config: policy(t, "dynamo"), BlockSize: 8}); err != nil || !a.Unlike || a.Divergence != nil {
		t.Errorf("no replica with blocks of that size: %+v, %v", a, err)
	}
	for name, empty := range map[string]Fleet{
		"nobody": {Index: index.New(index.Options{}), Loads: NewLoads()},
		"a replica that says nothing": {
			Index: index.New(index.Options{}), Loads: NewLoads(), Replicas: []Replica{{Name: "a"}},
		},
	} {
		if _, err := Candidates(empty, Query{Tokens: tokens(0, 22), Config: policy(t, "dynamo")}); !errors.Is(err, ErrNobody) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Candidates(f, Query{Config: policy(t, "dynamo")}); err == nil || errors.Is(err, ErrNobody) {
		t.Errorf("an empty prompt: %v", err)
	}
}

// TestHybrid: a router looks at the groups that need every block alone, and the
// engine needs the others' part of the prefix too.
func TestHybrid(t *testing.T) {
	t.Parallel()
	f := fleetOf(0)
	put := func(group, first, n int, spec string, window int) {
		e := wire.Event{Kind: wire.Stored, BlockSize: 4, Group: group, Spec: spec, Window: window, Tokens: tokens(4*first, 4*n)}
		for i := first; i < first+n; i++ {
			e.Hashes = append(e.Hashes, wire.IntHandle(uint64(i+1)))
		}
		if first > 0 {
			e.Parent = wire.IntHandle(uint64(first))
		}
		f.Index.Apply("r0", &e, false)
	}
	put(0, 0, 5, "full_attention", 0)
	put(1, 0, 3, "sliding_window", 4)
	a, err := Candidates(f, Query{Tokens: tokens(0, 22), Config: policy(t, "dynamo")})
	if err != nil {
		t.Fatal(err)
	}
	if c := a.Candidates[0]; c.Match[wire.Device] != 5 || c.CachedTokens != 12 || !strings.Contains(c.Note, "it can use 3 blocks") {
		t.Errorf("%+v", c)
	}
}

// TestFlipsFlip: a flip that an answer names, set by hand, does flip the choice,
// and to those that the answer says.
func TestFlipsFlip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := fleetOf(rapid.SliceOfN(rapid.IntRange(0, 8), 2, 6).Draw(t, "blocks")...)
		q := Query{
			Tokens: tokens(0, rapid.IntRange(1, 36).Draw(t, "tokens")),
			Config: policy(t, rapid.SampledFrom(route.Policies()).Draw(t, "policy")),
			Page:   &Page{},
		}
		for i := range f.Replicas {
			if rapid.Bool().Draw(t, "known") {
				q.Page.Workers = append(q.Page.Workers, WorkerLoad{
					f.Replicas[i].Name, float64(rapid.IntRange(0, 60).Draw(t, "prefill")),
					float64(rapid.IntRange(0, 20).Draw(t, "active")), float64(rapid.IntRange(0, 40).Draw(t, "requests")),
				})
			}
		}
		a, err := Candidates(f, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, flip := range a.Flips {
			q.Edits = []Edit{{flip.What, flip.To}}
			then, err := Candidates(f, q)
			if err != nil {
				t.Fatal(err)
			}
			lost := slices.ContainsFunc(a.Best, func(r wire.Replica) bool { return !slices.Contains(then.Best, r) })
			slices.Sort(then.Best)
			said := slices.Sorted(slices.Values(flip.Then))
			if !lost || !slices.Equal(then.Best, said) {
				t.Errorf("%+v: %v became %v", flip, a.Best, then.Best)
			}
		}
	})
}
