package route

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// This file is TensorRT-LLM's disaggregated serving (serve/router.py, 00895e31):
// its routers by KV cache and by load. Ties of both go round.

// trtTurn is the position of a counter that every choice moves on, as
// round-robin's.
const trtTurn = robinTurn

const trtBatch = trtTurn + 1

var trtLoadSettings = []setting{trtTurn: {name: "turn", def: "", kind: optional}}

var trtCacheSettings = []setting{
	trtTurn:  trtLoadSettings[trtTurn],
	trtBatch: {name: "max_batch_size", def: "64", kind: ratio, weight: true},
}

// trtHashed is how many blocks of a prompt the router hashes: its last token is
// left out, and the block that is cut short counts as a whole one.
func trtHashed(r *Request) int { return (max(0, r.Tokens-1) + r.BlockSize - 1) / r.BlockSize }

// trtMatched is how many of them a candidate holds on any tier. A match of complete
// blocks says nothing of the last one that is hashed: it lacks a token at least.
func trtMatched(r *Request, c *Candidate) int {
	if n := c.matched(); n <= r.Blocks() {
		return min(n, max(0, r.Tokens-1)/r.BlockSize)
	}
	return trtHashed(r)
}

// trtTerms are the two parts of a score.
func trtTerms(in *input, c *Candidate) (matched, load float64) {
	matched = float64(trtMatched(in.req, c)*in.req.BlockSize) / float64(max(1, trtHashed(in.req)*in.req.BlockSize))
	return matched, float64(c.load().Requests) / in.cfg.num(trtBatch)
}

func rankTRTCache(in *input) {
	for n, i := range in.eligible {
		matched, load := trtTerms(in, &in.cands[i])
		in.keys[n] = key{cost: load - matched}
	}
	trtRound(in)
}

func rankTRTLoad(in *input) {
	rankLeastLoaded(in)
	trtRound(in)
}

// trtRound breaks the ties of the best by the counter, where it is known.
func trtRound(in *input) {
	turn, known := robinStands(in)
	if !known {
		return
	}
	best, ties := in.best()
	if ties < 2 {
		return
	}
	nth := 0
	for n := range in.keys {
		if in.keys[n].cost == best.cost {
			in.keys[n].then = float64((nth - turn%ties + ties) % ties)
			nth++
		}
	}
}

func tellTRTCache(in *input, at int, s *Scored) {
	c := &in.cands[in.eligible[at]]
	matched, load := trtTerms(in, c)
	s.Terms = []Term{{"matched_tokens", matched, -matched}, {"active_requests", float64(c.load().Requests), load}}
	s.Rule = fmt.Sprintf("%s: score %s = matched tokens %d / padded tokens %d - active requests %d / %s",
		wire.Printable(string(s.Replica)), number(-s.Cost), trtMatched(in.req, c)*in.req.BlockSize,
		max(1, trtHashed(in.req)*in.req.BlockSize), c.load().Requests, number(in.cfg.num(trtBatch)))
}

func trtSteps(in *input) []string {
	if _, known := robinStands(in); known {
		return nil
	}
	return []string{"where the counter that breaks ties stands is not known (the setting turn says it)"}
}

func trtCacheSteps(in *input) []string {
	steps := trtSteps(in)
	if n := in.req.Tokens - 1; in.mem == nil && n > 0 && n%in.req.BlockSize != 0 {
		steps = append(steps, "the router hashes the last block, cut short, as well: whether anyone holds that is not known and counts as no")
	}
	if in.mem == nil {
		steps = append(steps, "the router hears of a cache after each request that ends there: it can be one behind")
	}
	return steps
}
