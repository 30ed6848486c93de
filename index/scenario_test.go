package index

import (
	"fmt"
	"testing"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// ids gives n token ids from a start on.
func ids(from, n int) []wire.Token {
	out := make([]wire.Token, n)
	for i := range out {
		out[i] = wire.Token(from + i)
	}
	return out
}

// vllm makes a store as vLLM sends it, with true hashes of a recipe.
func vllm(t *testing.T, recipe string, chain []wire.Token, from int) *wire.Event {
	t.Helper()
	r, ok := blockhash.Named(recipe)
	if !ok {
		t.Fatal(recipe)
	}
	links, err := blockhash.Chain(r, blockhash.Digest{}, blockhash.Run[wire.Token]{Tokens: chain, BlockSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	e := &wire.Event{Kind: wire.Stored, BlockSize: 4, Group: 0, Tokens: chain[4*from : len(chain)/4*4]}
	if from > 0 {
		e.Parent = wire.IntHandle(links[from-1].Handle)
	}
	for _, l := range links[from:] {
		e.Hashes = append(e.Hashes, wire.IntHandle(l.Handle))
	}
	return e
}

const recipe = "vllm/sha256 seed=vllm-none-hash"

// TestOrphanByPrompt: the tap joined late, and the queried prompt's own digests
// give the missing beginning a meaning.
func TestOrphanByPrompt(t *testing.T) {
	t.Parallel()
	chain := ids(0, 24)
	x := New(Options{})
	x.Apply("r", vllm(t, recipe, chain, 4), false)
	if s := x.Stats("r"); s.Orphans != 2 || s.OrphanParents != 1 || s.Resident[wire.Device] != 0 || s.Ledger.Unattached != 2 {
		t.Fatalf("before: %+v", s)
	}
	if got := depth(x, "r", ids(100, 24)); got != 0 {
		t.Errorf("another prompt: %d", got)
	}
	if got := depth(x, "r", chain); got != 6 {
		t.Errorf("the prompt: %d blocks, want 6", got)
	}
	s := x.Stats("r")
	if s.Orphans != 0 || s.Resident[wire.Device] != 6 || s.Implied != 4 || s.Recipe != recipe {
		t.Errorf("after: %+v", s)
	}
}

// TestOrphanRemovedBefore: what was removed before its meaning became known
// does not come back to life.
func TestOrphanRemovedBefore(t *testing.T) {
	t.Parallel()
	chain := ids(0, 24)
	all := vllm(t, recipe, chain, 0).Hashes
	x := New(Options{})
	x.Apply("r", vllm(t, recipe, chain, 4), false)
	x.Remove("r", Place{}, all[1:2]) // means nothing yet
	if got := depth(x, "r", chain); got != 1 {
		t.Errorf("%d blocks, want 1: block 1 was removed after it was proved", got)
	}
	if s := x.Stats("r"); s.UnknownRemovals != 1 || s.Resident[wire.Device] != 5 {
		t.Errorf("%+v", s)
	}
	// Named as a parent again, it is back.
	x.Apply("r", vllm(t, recipe, ids(0, 28), 6), false)
	if got := depth(x, "r", ids(0, 28)); got != 7 {
		t.Errorf("after a new proof: %d blocks, want 7", got)
	}
}

// TestOrphanByOtherReplica: a replica of the same recipe and root knows what
// the handle is, before or after.
func TestOrphanByOtherReplica(t *testing.T) {
	t.Parallel()
	chain := ids(0, 24)
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		x := New(Options{})
		steps := []func(){
			func() { x.Apply("late", vllm(t, recipe, chain, 3), false) },
			func() { x.Apply("whole", vllm(t, recipe, chain, 0), false) },
		}
		steps[order[0]]()
		steps[order[1]]()
		x.Apply("late", vllm(t, recipe, ids(50, 8), 0), false) // tells late's recipe
		if got := x.MatchLocals(NewPrompt(Query{Tokens: chain}).cut(shape{4, false}).locals); len(got) != 2 || got[0].Depth() != 6 || got[1].Depth() != 6 {
			t.Errorf("order %v: %+v", order, got)
		}
	}
}

// TestRestart: a new process has an empty cache, its handles are its own, and
// what the old one had counts as evicted here.
func TestRestart(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	chain := ids(0, 16)
	x.Apply("r", stored(chain, 1<<40), false)
	x.Drop("r")
	if got := depth(x, "r", chain); got != 0 {
		t.Errorf("%d blocks survive a restart", got)
	}
	x.Apply("r", stored(ids(500, 16), 1<<40), false) // the same handles, other content
	if got := depth(x, "r", chain); got != 0 {
		t.Errorf("an old handle means %d old blocks", got)
	}
	x.Apply("r", stored(chain, 2<<40), false)
	if s := x.Stats("r"); s.Ledger.EvictedHere != 4 || s.Resident[wire.Device] != 8 {
		t.Errorf("%+v", s)
	}
}

// TestSalt: vLLM publishes the salt with a chain's first block only, and its
// blocks are nobody else's.
func TestSalt(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	chain := ids(0, 16)
	salted := stored(chain[:8], 1<<40)
	salted.Extra = [][]wire.ExtraKey{{{Text: "tenant"}}, nil}
	x.Apply("r", salted, false)
	more := stored(chain[8:], 2<<40)
	more.Parent = salted.Hashes[1]
	x.Apply("r", more, false)
	for salt, want := range map[string]int{"": 0, "other": 0, "tenant": 4} {
		if got := x.MatchOn("r", NewPrompt(Query{Tokens: chain, Salt: salt})).Depth(); got != want {
			t.Errorf("salt %q: %d blocks, want %d", salt, got, want)
		}
	}
}

// TestTiers: backup to the host, drop from the device, load back, evict.
func TestTiers(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	chain := ids(0, 12)
	on := func(tier wire.Tier) *wire.Event {
		e := stored(chain, 1<<40)
		e.Tier = tier
		return e
	}
	all := on(wire.Device).Hashes
	check := func(what string, device, host int) {
		t.Helper()
		m := x.MatchOn("r", NewPrompt(Query{Tokens: chain}))
		if m.Tiers[wire.Device] != device || m.Tiers[wire.Host] != host {
			t.Errorf("%s: %v, want %d on the device and %d on the host", what, m.Tiers, device, host)
		}
	}
	x.Apply("r", on(wire.Device), false)
	x.Apply("r", on(wire.Host), false)
	check("written through", 3, 0)
	x.Remove("r", Place{}, all[1:])
	check("tail dropped from the device", 1, 2)
	x.Remove("r", Place{}, all[:1])
	check("all dropped from the device", 0, 3)
	x.Apply("r", on(wire.Device), false)
	x.Remove("r", Place{Tier: wire.Host}, all)
	check("loaded back", 3, 0)
	x.Apply("r", on(wire.Host), false)
	x.Clear("r", false)
	check("device cleared", 0, 3)
	x.Clear("r", true)
	check("all cleared", 0, 0)
	if s := x.Stats("r"); s.Ledger.First != 3 || s.Ledger.EvictedHere != 3 || s.Duplicates != 0 {
		t.Errorf("%+v", s)
	}
}

// TestHybrid: a strict prefix of a longer prompt finds all its full-attention
// blocks and no sliding-window ones, so the engine reuses nothing (vLLM 0.32,
// window 64 and blocks of 32: 2 blocks).
func TestHybrid(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	long := ids(0, 40)
	full := stored(long, 1<<40)
	full.Group, full.Spec = 0, "full_attention"
	window := &wire.Event{
		Kind: wire.Stored, BlockSize: 4, Group: 1, Spec: "sliding_window", Window: 8,
		Tokens: long, Hashes: full.Hashes[8:], // the last two of ten
	}
	x.Apply("r", full, false)
	x.Apply("r", window, false)
	for _, c := range []struct {
		what        string
		prompt      []wire.Token
		device, upp int
	}{
		{"a repeat", long, 10, 10},
		{"an extension", ids(0, 60), 10, 10},
		{"a strict prefix", long[:24], 0, 6},
	} {
		m := x.MatchOn("r", NewPrompt(Query{Tokens: c.prompt}))
		if m.Tiers[wire.Device] != c.device || m.Upper != c.upp {
			t.Errorf("%s: %d usable of %d, want %d of %d", c.what, m.Tiers[wire.Device], m.Upper, c.device, c.upp)
		}
	}
	if s := x.Stats("r"); s.Misaligned != 1 || s.Resident[wire.Device] != 10 || s.Ledger.First != 10 {
		t.Errorf("%+v", s)
	}
}

// TestReannounced: kv_cache_report_mode=full announces what was reused; the
// copies pile up and show against the capacity.
func TestReannounced(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	for range 3 {
		x.Apply("r", stored(ids(0, 40), 1<<40), false)
	}
	s := x.Stats("r")
	if s.Resident[wire.Device] != 10 || s.Copies != 30 || s.Duplicates != 20 {
		t.Errorf("%+v", s)
	}
}

// TestCertain: after a missed event only what is heard of again is sure.
func TestCertain(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	chain := ids(0, 40)
	x.Apply("r", stored(chain[:24], 1<<40), false)
	x.Doubt("r")
	p := NewPrompt(Query{Tokens: chain})
	if m := x.MatchOn("r", p); m.Depth() != 6 || m.Certain != 0 {
		t.Errorf("after the doubt: %+v", m)
	}
	more := stored(chain[24:], 2<<40)
	more.Parent = wire.IntHandle(1<<40 + 5)
	x.Apply("r", more, false)
	if m := x.MatchOn("r", p); m.Depth() != 10 || m.Certain != 10 {
		t.Errorf("after a proof: %+v", m)
	}
}

// TestClone: a copy goes its own way.
func TestClone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		h := newHistory(int(seed))
		for range 30 {
			h.step()
		}
		c := h.x.Clone()
		before := fmt.Sprint(h.numbersOf(h.x))
		for range 30 { // the copy moves on with the model
			h.x, c = c, h.x
			h.step()
			if diff := h.differs(); diff != "" {
				t.Fatalf("seed %d: the copy: %s", seed, diff)
			}
			h.x, c = c, h.x
		}
		if after := fmt.Sprint(h.numbersOf(h.x)); after != before {
			t.Fatalf("seed %d: the original moved:\n%s\n%s", seed, before, after)
		}
	}
}
