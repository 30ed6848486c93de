package index

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// stored announces a chain of blocks of four tokens at the root.
func stored(tokens []wire.Token, first uint64) *wire.Event {
	e := &wire.Event{Kind: wire.Stored, BlockSize: 4, Group: -1, Tokens: tokens}
	for i := range len(tokens) / 4 {
		e.Hashes = append(e.Hashes, wire.IntHandle(first+uint64(i)))
	}
	return e
}

// TestPart finds the parting by brute force over all stored chains.
func TestPart(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		word := func(n int) []wire.Token {
			out := make([]wire.Token, n)
			for i := range out {
				out[i] = wire.Token(rng.IntN(2))
			}
			return out
		}
		x := New(Options{})
		var chains [][]wire.Token
		for i := range 1 + rng.IntN(6) {
			chain := word(4 * (1 + rng.IntN(5)))
			chains = append(chains, chain)
			x.Apply(wire.Replica(fmt.Sprint("r", i%2)), stored(chain, uint64(100*(i+1))), false)
		}
		x.Apply("r0", stored(chains[0], 100), false)
		prompt := word(rng.IntN(24))
		got, ok := x.Part("r0", NewPrompt(Query{Tokens: prompt}))

		blocks, common := 0, 0
		for _, chain := range chains {
			n := 0
			for n < len(chain) && n < len(prompt) && chain[n] == prompt[n] {
				n++
			}
			common = max(common, n)
			blocks = max(blocks, n/4)
		}
		if full := len(prompt) / 4; ok != (blocks < full) {
			t.Fatalf("seed %d: parts %t, %d of %d blocks are stored", seed, ok, blocks, full)
		}
		if !ok {
			continue
		}
		if got.Block != blocks || got.Token != max(common, 4*blocks) {
			t.Fatalf("seed %d: parts at block %d, token %d; want %d, %d", seed, got.Block, got.Token, blocks, common)
		}
		for i, tok := range got.Stored {
			if i == 0 && tok == prompt[got.Token] {
				t.Fatalf("seed %d: token %d is said to differ and does not", seed, got.Token)
			}
		}
		if (got.Replica == "") != (len(got.Stored) == 0) {
			t.Fatalf("seed %d: %+v", seed, got)
		}
	}
}

// TestPartAfterEviction: a chain that is gone everywhere is no company.
func TestPartAfterEviction(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	a := []wire.Token{1, 2, 3, 4, 5, 6, 7, 8}
	x.Apply("r", stored(a, 10), false)
	p := NewPrompt(Query{Tokens: []wire.Token{1, 2, 3, 4, 5, 6, 9, 9}})
	if got, ok := x.Part("r", p); !ok || got.Block != 1 || got.Token != 6 || got.Replica != "r" || fmt.Sprint(got.Stored) != "[7 8]" {
		t.Errorf("%+v, %t", got, ok)
	}
	x.Remove("r", Place{}, []wire.Handle{wire.IntHandle(11)})
	if got, ok := x.Part("r", p); !ok || got.Block != 1 || got.Token != 4 || got.Replica != "" {
		t.Errorf("after the eviction: %+v, %t", got, ok)
	}
}

// TestPartUnderAnotherName: the same tokens under another salt are no hit, and are
// said to be there.
func TestPartUnderAnotherName(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	tokens := []wire.Token{1, 2, 3, 4, 5, 6, 7, 8}
	e := stored(tokens, 10)
	e.LoRAName = "adapter"
	x.Apply("r", e, false)
	p := NewPrompt(Query{Tokens: tokens})
	got, ok := x.Part("r", p)
	if !ok || got.Block != 0 || got.Token != 4 || got.Replica != "r" || !got.Foreign {
		t.Errorf("%+v, %t", got, ok)
	}
	if beside := x.Alongside("r", p, got, 4, 4); beside != nil {
		t.Errorf("beside it: %v", beside)
	}
	x.Apply("r", stored([]wire.Token{1, 2, 3, 9}, 20), false)
	if got, _ := x.Part("r", p); !got.Foreign {
		t.Errorf("the nearer one is the adapter's: %+v", got)
	}
	if got, _ := x.Part("r", NewPrompt(Query{Tokens: tokens[:7], LoRA: "adapter"})); got.Foreign {
		t.Errorf("its own: %+v", got)
	}
}

// TestPartOfEqualChains: of chains that run alongside equally far, one that the
// prompt can use is named, whichever was stored first.
func TestPartOfEqualChains(t *testing.T) {
	t.Parallel()
	tokens := []wire.Token{1, 2, 3, 4, 5, 6, 7, 8}
	for _, names := range [][]string{{"", "adapter"}, {"adapter", ""}} {
		x := New(Options{})
		for i, lora := range names {
			e := stored(tokens, uint64(10*(i+1)))
			e.LoRAName = lora
			x.Apply("r", e, false)
		}
		for _, lora := range names {
			got, ok := x.Part("r", NewPrompt(Query{Tokens: []wire.Token{1, 2, 9, 9}, LoRA: lora}))
			if !ok || got.Token != 2 || got.Foreign {
				t.Errorf("stored %q, for %q: %+v", names, lora, got)
			}
		}
	}
}

// TestTextLog: the oldest tokens go first, and only they.
func TestTextLog(t *testing.T) {
	t.Parallel()
	l := newTextLog(10 * (entryCost + 16))
	for i := range uint64(25) {
		l.add(i, []uint32{uint32(i), 0, 0, 0})
		l.add(i, []uint32{9, 9, 9, 9}) // the first one stays
		if l.bytes > l.limit {
			t.Fatalf("%d bytes kept, limit %d", l.bytes, l.limit)
		}
	}
	for i := range uint64(25) {
		n, known := l.common(i, []wire.Token{wire.Token(i), 0, 0, 1})
		if known != (i >= 15) || known && n != 3 {
			t.Errorf("entry %d: %d in common, known %t", i, n, known)
		}
	}
}
