package route

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// This file is round_robin, random and power_of_two of SGLang router 0.3.2, which
// remember no text. round_robin is the yardstick's: the first request goes to the
// first of the list.

func rankSGLangRandom(*input) {}

func tellSGLangRandom(_ *input, _ int, s *Scored) {
	s.Rule = fmt.Sprintf("%s: as good as any other", wire.Printable(string(s.Replica)))
}

// sglangTokens is the token load that the router polls of a worker. Requests in
// flight are counted for cache_aware and manual alone, so without it there is no
// load.
func sglangTokens(in *input, c *Candidate) (tokens float64, known bool) {
	return float64(c.load().Blocks) * float64(in.req.BlockSize), c.Load.State != LoadUnknown
}

func rankSGLangPower(in *input) {
	for n, i := range in.eligible {
		tokens, _ := sglangTokens(in, &in.cands[i])
		in.keys[n] = key{cost: tokens}
	}
}

func tellSGLangPower(_ *input, _ int, s *Scored) {
	s.Terms = []Term{{"token_load", s.Cost, s.Cost}}
	s.Rule = fmt.Sprintf("%s: %s tokens", wire.Printable(string(s.Replica)), number(s.Cost))
}

// sglangPowerOfTwo is the one drawn first where a load of the two is not known, or
// both are equal.
func sglangPowerOfTwo(in *input, first, second int) int {
	a, aKnown := sglangTokens(in, &in.cands[in.eligible[first]])
	b, bKnown := sglangTokens(in, &in.cands[in.eligible[second]])
	if aKnown && bKnown && b < a {
		return second
	}
	return first
}

func sglangPowerSteps(in *input) []string {
	return []string{
		fmt.Sprintf("two of %d are drawn, each pair as likely as any other", len(in.eligible)),
		"the polled token loads of the two count if both are known; requests in flight are not counted for this policy, so else the first one drawn wins",
	}
}
