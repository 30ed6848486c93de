package route

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// This file holds the reference policies, which a real router is measured by.

func noSteps(*input) []string { return nil }

// missing is how many of the prompt's complete blocks a candidate does not hold.
func missing(in *input, c *Candidate) float64 {
	return float64(max(0, in.req.Blocks()-c.matched()))
}

func rankAffinity(in *input) {
	for n, i := range in.eligible {
		in.keys[n] = key{cost: missing(in, &in.cands[i])}
	}
}

func tellAffinity(in *input, at int, s *Scored) {
	c := &in.cands[in.eligible[at]]
	s.Terms = []Term{{"missing_blocks", s.Cost, s.Cost}}
	s.Rule = fmt.Sprintf("%s: %d of %d blocks", wire.Printable(string(s.Replica)), c.matched(), in.req.Blocks())
}

func rankLeastLoaded(in *input) {
	for n, i := range in.eligible {
		in.keys[n] = key{cost: float64(in.cands[i].load().Requests)}
	}
}

func tellLeastLoaded(_ *input, _ int, s *Scored) {
	s.Terms = []Term{{"active_requests", s.Cost, s.Cost}}
	s.Rule = fmt.Sprintf("%s: %s active requests", wire.Printable(string(s.Replica)), number(s.Cost))
}

const robinTurn = 0

var roundRobinSettings = []setting{robinTurn: {name: "turn", def: "", kind: optional}}

// robin is whose turn it is.
type robin struct{ turn int }

func newRobin(c *Config) memory { return &robin{int(c.num(robinTurn))} }

func (r *robin) took(*input, int) { r.turn++ }

// robinStands gives the number of the turn. Where the router stands is not known
// unless it is said, so then each can be next.
func robinStands(in *input) (turn int, known bool) {
	if r, ok := in.mem.(*robin); ok {
		return r.turn, true
	}
	return int(in.cfg.num(robinTurn)), in.cfg.given(robinTurn)
}

// rankRoundRobin counts the turns until a candidate's own.
func rankRoundRobin(in *input) {
	turn, known := robinStands(in)
	if !known {
		return
	}
	size := len(in.eligible)
	for n := range in.eligible {
		turn := turn % size
		in.keys[n] = key{cost: float64((n - turn + size) % size)}
	}
}

func tellRoundRobin(_ *input, _ int, s *Scored) {
	s.Terms = []Term{{"turns_to_wait", s.Cost, s.Cost}}
	s.Rule = fmt.Sprintf("%s: %s turns to wait", wire.Printable(string(s.Replica)), number(s.Cost))
}

func roundRobinSteps(in *input) []string {
	if _, known := robinStands(in); known {
		return nil
	}
	return []string{"where the router stands is not known: each can be next (the setting turn says it)"}
}

// shorterOfTwo is the one with the lower key, and else the first one.
func shorterOfTwo(in *input, first, second int) int {
	if in.keys[second].compare(in.keys[first]) < 0 {
		return second
	}
	return first
}

// pairChances sees to every two, in both orders.
func pairChances(in *input, p []float64) {
	if len(p) == 1 {
		p[0] = 1
		return
	}
	for i := range p {
		for j := range p {
			if i != j {
				p[in.cfg.policy.pair(in, i, j)] += 1 / (float64(len(p)) * float64(len(p)-1))
			}
		}
	}
}

func powerOfTwoSteps(in *input) []string {
	return []string{fmt.Sprintf("two of %d are drawn, each pair as likely as any other", len(in.eligible))}
}
