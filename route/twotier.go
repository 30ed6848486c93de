package route

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// This file is Dynamo 1.6.1's policy dynamo-two-tier-cost-fn. Its ties fall to
// the row that comes first in an order that the router leaves open, so to us any
// of them can be it.

const (
	twoCache = iota
	twoAbs
	twoRel
)

var twoTierSettings = []setting{
	twoCache: {name: "cache_threshold", def: "0.5", kind: fraction, weight: true},
	twoAbs:   {name: "balance_abs_threshold", def: "32", kind: whole, weight: true},
	twoRel:   {name: "balance_rel_threshold", def: "1.1", kind: ratio, weight: true},
}

// twoTier is what the rule looked at.
type twoTier struct {
	fewest, most int // active requests
	overlap      float64
	ratio        float64
	byLoad       bool // the loads differ too much
	byCache      bool // else the overlap is long enough
}

func readTwoTier(in *input) (t twoTier) {
	for n, i := range in.eligible {
		requests := in.cands[i].load().Requests
		if n == 0 || requests < t.fewest {
			t.fewest = requests
		}
		t.most = max(t.most, requests)
		t.overlap = max(t.overlap, float64(in.cands[i].Match[wire.Device]))
	}
	t.byLoad = float64(t.most-t.fewest) > in.cfg.num(twoAbs) && float64(t.most) > in.cfg.num(twoRel)*float64(t.fewest)
	if blocks := in.req.begun(); blocks > 0 {
		t.ratio = t.overlap / float64(blocks)
	}
	t.byCache = !t.byLoad && t.ratio > in.cfg.num(twoCache)
	return t
}

// key compares by the overlap that is missing to the longest, where the cache
// decides, and by active requests.
func (t *twoTier) key(c *Candidate) key {
	requests := float64(c.load().Requests)
	if !t.byCache {
		return key{cost: requests}
	}
	return key{cost: t.overlap - float64(c.Match[wire.Device]), then: requests}
}

func rankTwoTier(in *input) {
	t := readTwoTier(in)
	for n, i := range in.eligible {
		in.keys[n] = t.key(&in.cands[i])
	}
}

func tellTwoTier(in *input, at int, s *Scored) {
	t, c := readTwoTier(in), &in.cands[in.eligible[at]]
	overlap := Term{Name: "device_overlap_blocks", Value: float64(c.Match[wire.Device])}
	requests := Term{Name: "active_requests", Value: float64(c.load().Requests)}
	if t.byCache {
		overlap.Cost = s.Cost
	} else {
		requests.Cost = s.Cost
	}
	s.Terms = []Term{overlap, requests}
	s.Rule = fmt.Sprintf("%s: device_overlap_blocks %s, active_requests %s",
		wire.Printable(string(s.Replica)), number(overlap.Value), number(requests.Value))
}

func twoTierSteps(in *input) []string {
	t := readTwoTier(in)
	steps := []string{fmt.Sprintf("load tier: %d to %d active requests, and it needs a spread above %s and a ratio above %s",
		t.fewest, t.most, number(in.cfg.num(twoAbs)), number(in.cfg.num(twoRel)))}
	if t.byLoad {
		return append(steps, "both hold: the least loaded")
	}
	steps = append(steps, fmt.Sprintf("cache tier: the longest device overlap is %s of %d request blocks, and it needs a ratio above %s",
		number(t.overlap), in.req.begun(), number(in.cfg.num(twoCache))))
	if t.byCache {
		return append(steps, "it holds: the least loaded of those with the longest overlap")
	}
	return append(steps, "neither tier applies: the least loaded")
}
