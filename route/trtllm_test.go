package route

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// TestTRTCache has prompts in blocks of 32: what is hashed is all but the last
// token, in whole blocks.
func TestTRTCache(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tokens int
		cand   Candidate
		set    []string
		want   float64
	}{
		"half":               {257, cand("a", 4, 0, 0, 0), nil, 4. / 8},
		"and busy":           {257, cand("a", 4, 0, 0, 16), nil, 4./8 - 16./64},
		"a smaller batch":    {257, cand("a", 4, 0, 0, 16), []string{"max_batch_size=32"}, 0},
		"idle and cold":      {257, cand("a", 0, 0, 0, 0), nil, 0},
		"a cut block":        {270, cand("a", 8, 0, 0, 0), nil, 8. / 9}, // 269 tokens: 8 blocks and 13 tokens
		"held as well":       {270, cand("a", 9, 0, 0, 0), nil, 1},
		"complete":           {256, cand("a", 8, 0, 0, 0), nil, 7. / 8}, // the eighth is hashed without its last token
		"one token":          {1, cand("a", 0, 0, 0, 0), nil, 0},
		"none":               {0, cand("a", 0, 0, 0, 0), nil, 0},
		"on the host":        {257, Candidate{Replica: "a", Match: [wire.NumTiers]int{2, 2}}, nil, 4. / 8},
		"busier than a hit":  {257, cand("a", 8, 0, 0, 128), nil, -1},
		"of an unknown load": {257, Candidate{Replica: "a", Match: [wire.NumTiers]int{8}, Load: Load{Requests: 9}}, nil, 1},
	} {
		d := decide(t, configured(t, "trtllm-kv-cache-aware", tt.set...), &Request{Tokens: tt.tokens, BlockSize: 32}, []Candidate{tt.cand})
		if got := scores(&d); !near(got, []float64{tt.want}) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		if c := &d.Candidates[0]; c.Terms[0].Cost+c.Terms[1].Cost != c.Cost || !strings.HasPrefix(c.Rule, "a: score ") {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestTRTTies: ties go round by a counter that every choice moves on.
func TestTRTTies(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 257, BlockSize: 32}
	tied := []Candidate{cand("a", 4, 0, 0, 32), cand("b", 0, 0, 0, 32), cand("c", 4, 0, 0, 32), cand("d", 0, 0, 0, 0), cand("e", 4, 0, 0, 32)}
	for name, tt := range map[string]struct {
		policy string
		cands  []Candidate
		ties   int
		want   []int // by the turns 2 to 6, and 8
	}{
		// a, c, d and e score 0: 4/8 - 32/64, and 0 - 0.
		"cache": {"trtllm-kv-cache-aware", tied, 4, []int{3, 4, 0, 2, 3, 0}},
		"load":  {"trtllm-load-balancing", tied[:3], 3, []int{2, 0, 1, 2, 0, 2}},
	} {
		r := NewRouter(*configured(t, tt.policy, "turn=2"), rand.New(rand.NewPCG(1, 2)))
		var got []int
		for range 5 {
			got = append(got, r.Route(&req, tt.cands))
		}
		// One that is alone at the top moves the counter on too.
		alone := slices.Clone(tt.cands)
		alone[1].Match[wire.Device], alone[1].Load.Requests = 8, 0
		if at := r.Route(&req, alone); at != 1 {
			t.Errorf("%s: the best is %d", name, at)
		}
		if got = append(got, r.Route(&req, tt.cands)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		// From outside any of the ties can be next.
		d := decide(t, configured(t, tt.policy), &req, tt.cands)
		if len(d.Best) != tt.ties || !strings.Contains(strings.Join(d.Trace, "\n"), "the setting turn says it") {
			t.Errorf("%s: %v, %q", name, d.Best, d.Trace)
		}
	}
	d := decide(t, configured(t, "trtllm-kv-cache-aware"), &Request{Tokens: 270, BlockSize: 32}, tied)
	if got := strings.Join(d.Trace, "\n"); !strings.Contains(got, "hashes the last block, cut short") || !strings.Contains(got, "one behind") {
		t.Errorf("%s", got)
	}
}
