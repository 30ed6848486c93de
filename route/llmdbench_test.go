package route

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// BenchmarkRouters is one request of one of 1000 sessions, whose prompts grow to
// 24k tokens, on 8 workers.
func BenchmarkRouters(b *testing.B) {
	const turns, piece, sessions = 24, 1024, 1000
	var prompts [sessions][]rune
	for s := range prompts {
		for i := range turns {
			prompts[s] = append(prompts[s], rune(s*turns+i))
		}
	}
	for _, name := range []string{"llm-d-precise", "llm-d-approximate", "trtllm-kv-cache-aware", "trtllm-load-balancing"} {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			r := NewRouter(*configured(b, name), rng)
			var cands []Candidate
			for i := range 8 {
				cands = append(cands, cand(wire.Replica(fmt.Sprintf("worker-%d", i)), i, 0, 0, i))
			}
			req := Request{BlockSize: 16, Width: piece, Model: "m"}
			b.ReportAllocs()
			for b.Loop() {
				n := 1 + rng.IntN(turns)
				req.Tokens, req.Symbols = n*piece, prompts[rng.IntN(sessions)][:n]
				if r.Route(&req, cands) < 0 {
					b.Fatal("nobody")
				}
			}
		})
	}
}
