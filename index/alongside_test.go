package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// TestAlongside holds each chain against all stored ones by brute force.
func TestAlongside(t *testing.T) {
	t.Parallel()
	compared := 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		word := func(n int) []wire.Token {
			out := make([]wire.Token, n)
			for i := range out {
				out[i] = wire.Token(rng.IntN(2))
			}
			return out
		}
		x := New(Options{})
		var chains [][]wire.Token
		for i := range 1 + rng.IntN(8) {
			chain := word(4 * (1 + rng.IntN(5)))
			chains = append(chains, chain)
			x.Apply("r", stored(chain, uint64(100*(i+1))), false)
		}
		prompt := word(4 + rng.IntN(24))
		p := NewPrompt(Query{Tokens: prompt})
		part, ok := x.Part("r", p)
		if !ok {
			continue
		}
		const most, blocks = 2, 3
		got := x.Alongside("r", p, part, most, blocks)
		if len(got) > most || (part.Replica != "") != (len(got) > 0) {
			t.Fatalf("seed %d: %d chains beside %+v", seed, len(got), part)
		}
		last := 1000
		for i, chain := range got {
			whole := append(slices.Clone(prompt[:4*part.Block]), chain...)
			full := len(chain) == 4*blocks
			if !slices.ContainsFunc(chains, func(c []wire.Token) bool {
				return len(c) >= len(whole) && slices.Equal(c[:len(whole)], whole)
			}) {
				t.Fatalf("seed %d: %v is stored nowhere", seed, whole)
			}
			if !full && slices.ContainsFunc(chains, func(c []wire.Token) bool {
				return len(c) > len(whole) && slices.Equal(c[:len(whole)], whole)
			}) {
				t.Fatalf("seed %d: %v goes on", seed, whole)
			}
			common := 0
			for common < 4 && 4*part.Block+common < len(prompt) && chain[common] == prompt[4*part.Block+common] {
				common++
			}
			// Those with more of the prompt's later blocks come first, and of equal
			// ones those that run along longest.
			score := 5*sharedBlocks(prompt[4*part.Block:], chain) + common
			if score > last {
				t.Fatalf("seed %d: chain %d, %v, comes behind a worse one", seed, i, chain)
			}
			last = score
			compared++
		}
	}
	if compared < 100 {
		t.Errorf("only %d chains compared", compared)
	}
}

// sharedBlocks counts the blocks of four of a chain that another has somewhere.
func sharedBlocks(prompt, chain []wire.Token) int {
	n := 0
	for i := 0; i+4 <= len(chain); i += 4 {
		for k := 0; k+4 <= len(prompt); k += 4 {
			if slices.Equal(chain[i:i+4], prompt[k:k+4]) {
				n++
				break
			}
		}
	}
	return n
}

// TestAlongsideFindsTheFamily: of many chains that part in the first block the one
// that goes on like the prompt comes first, though others run along longer there.
func TestAlongsideFindsTheFamily(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	for i := range wire.Token(40) {
		x.Apply("r", stored([]wire.Token{1, 2, 3, 100 + i, 200 + i, 200 + i, 200 + i, 200 + i}, uint64(100*(i+1))), false)
	}
	x.Apply("r", stored([]wire.Token{1, 9, 9, 9, 5, 6, 7, 8}, 9000), false)
	p := NewPrompt(Query{Tokens: []wire.Token{1, 2, 3, 4, 5, 6, 7, 8}})
	part, _ := x.Part("r", p)
	if got := x.Alongside("r", p, part, 2, 8); fmt.Sprint(got[0]) != "[1 9 9 9 5 6 7 8]" {
		t.Errorf("%v", got)
	}
}

// TestAlongsideTakesTheBranch: of several branches it is the prompt's own.
func TestAlongsideTakesTheBranch(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	head := []wire.Token{1, 2, 3, 4}
	for i, tail := range []wire.Token{50, 60, 70} {
		x.Apply("r", stored(append(slices.Clone(head), tail, tail, tail, tail), uint64(100*(i+1))), false)
	}
	p := NewPrompt(Query{Tokens: []wire.Token{1, 9, 3, 4, 60, 60, 60, 60}})
	part, _ := x.Part("r", p)
	got := x.Alongside("r", p, part, 4, 8)
	if want := "[[1 2 3 4 60 60 60 60]]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if got := x.Alongside("nobody", p, part, 4, 8); got != nil {
		t.Error(strings.TrimSpace(fmt.Sprint(got)))
	}
}
