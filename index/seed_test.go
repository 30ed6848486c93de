package index

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// seedTokens are the token streams of the published reference experiment.
type seedTokens struct {
	Block  int            `json:"block_size"`
	Corpus [][]wire.Token `json:"corpus"`
	Probe  []wire.Token   `json:"probe"`
	Base   []wire.Token   `json:"base"`
}

func readSeed(t *testing.T) seedTokens {
	t.Helper()
	var s seedTokens
	b, err := os.ReadFile(refdata.Files(t, refdata.Root(t), "seed/tokens.json")[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// brute is how many full blocks of a prompt a stored chain holds.
func brute(chain, prompt []wire.Token, size int) int {
	n := 0
	for n < len(chain)/size*size && n < len(prompt) && chain[n] == prompt[n] {
		n++
	}
	return n / size
}

// store announces a chain; handles are of the replica's own making.
func (s *seedTokens) store(x *Index, name wire.Replica, chain []wire.Token) []wire.Handle {
	e := &wire.Event{Kind: wire.Stored, BlockSize: s.Block, Group: -1}
	e.Tokens = chain[:len(chain)/s.Block*s.Block]
	for i := range len(e.Tokens) / s.Block {
		e.Hashes = append(e.Hashes, wire.IntHandle(handle(0, string(name)+fmt.Sprint(e.Tokens[:(i+1)*s.Block]))))
	}
	x.Apply(name, e, false)
	return e.Hashes
}

func depth(x *Index, name wire.Replica, prompt []wire.Token) int {
	return x.MatchOn(name, NewPrompt(Query{Tokens: prompt})).Depth()
}

// TestOracleSeedIndex: 4 replicas, corpus i on replica i mod 4 for i < 16; all
// prompts equal a brute-force scan, and the published figures hold.
func TestOracleSeedIndex(t *testing.T) {
	t.Parallel()
	s := readSeed(t)
	x := New(Options{})
	const replicas, stored = 4, 16
	chains := make([][][]wire.Token, replicas)
	handles := map[int][]wire.Handle{}
	name := func(r int) wire.Replica { return wire.Replica(fmt.Sprint("r", r)) }
	for i := range stored {
		r := i % replicas
		chains[r] = append(chains[r], s.Corpus[i])
		handles[i] = s.store(x, name(r), s.Corpus[i])
	}
	compared := 0
	for i, prompt := range append(s.Corpus[:len(s.Corpus):len(s.Corpus)], s.Probe) {
		for r := range replicas {
			want := 0
			for _, chain := range chains[r] {
				want = max(want, brute(chain, prompt, s.Block))
			}
			if got := depth(x, name(r), prompt); got != want {
				t.Errorf("prompt %d on replica %d: %d blocks, want %d", i, r, got, want)
			}
			compared++
		}
	}
	for r := range replicas {
		if got := depth(x, name(r), s.Probe); got != 4 {
			t.Errorf("probe on replica %d: %d blocks, want 4", r, got)
		}
	}
	x.Remove(name(2), Place{}, handles[2][5:6])
	if got := depth(x, name(2), s.Corpus[2]); got != 5 {
		t.Errorf("after removing block 5: %d blocks, want 5", got)
	}
	t.Logf("%d matches equal a brute-force scan", compared)
}

// TestOracleSeedBoundary: one changed, prepended or missing token.
func TestOracleSeedBoundary(t *testing.T) {
	t.Parallel()
	s := readSeed(t)
	x := New(Options{})
	s.store(x, "r0", s.Base)
	changed := func(i int) []wire.Token {
		c := append([]wire.Token(nil), s.Base...)
		c[i] = (c[i] + 1) % 50000
		return c
	}
	full := len(s.Base) / s.Block
	for _, c := range []struct {
		what   string
		prompt []wire.Token
		want   int
	}{
		{"token 63 changed", changed(63), 3},
		{"token 64 changed", changed(64), 4},
		{"a token of the tail changed", changed(full*s.Block + 3), full},
		{"a token prepended", append([]wire.Token{7}, s.Base...), 0},
		{"less than a block", s.Base[:s.Block-1], 0},
		{"unchanged", s.Base, full},
	} {
		if got := depth(x, "r0", c.prompt); got != c.want {
			t.Errorf("%s: %d blocks, want %d", c.what, got, c.want)
		}
	}
}
