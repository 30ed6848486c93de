package route

import (
	"fmt"

	"github.com/twmb/murmur3"

	"github.com/kvscope/kvscope/wire"
)

// This file is Ray Serve 2.60.0's ConsistentHashRouter. Its ring is made of the
// replicas' unique ids: it is Ray's own where the candidates are called by them.

const (
	rayVnodes = iota
	rayFallbacks
	rayHeader
)

var rayHashSettings = []setting{
	rayVnodes:    {name: "num_virtual_nodes", def: "100", kind: whole},
	rayFallbacks: {name: "num_fallback_replicas", def: "2", kind: whole},
	// In the header's name, not in the key, case does not count, nor whether it is
	// written with - or _.
	rayHeader: {name: "session_id_header_key", vars: []string{"RAY_SERVE_SESSION_ID_HEADER_KEY"}, def: "x-session-id", kind: free},
}

// finishRayHash keeps the ring in bounds. Ray refuses 0 points.
func finishRayHash(c *Config) {
	v := c.values[rayVnodes]
	if v.num < 1 || v.num > maxVnodes {
		n := min(max(v.num, 1), maxVnodes)
		c.imply(rayVnodes, text(n), fmt.Sprintf("%s (%s) is beyond 1 to %d", v.text, v.origin, maxVnodes))
	}
}

const rayHashSeed = 0xF9B4CA77

// rayRing hashes with MurmurHash3 x64-128, of which the lower half counts.
var rayRing = ringKind{sep: ":", hash: func(name string) (hi, lo uint64) {
	low, _ := murmur3.SeedStringSum128(rayHashSeed, rayHashSeed, name)
	return low, 0
}}

func rayRingOf(in *input) *ring { return ringOf(in, &rayRing, int(in.cfg.num(rayVnodes))) }

// rankRayHash counts the steps clockwise to a candidate. Without a session every
// request has a fresh key, which can fall anywhere.
func rankRayHash(in *input) {
	if in.req.Session == "" {
		return
	}
	steps := rayRingOf(in).steps(in.req.Session)
	for n, i := range in.eligible {
		in.keys[n] = key{cost: float64(steps[i])}
	}
}

func rayHashChances(in *input, p []float64) {
	if in.req.Session == "" {
		rayRingOf(in).shares(in, p)
		return
	}
	in.uniform(p)
}

func tellRayHash(in *input, _ int, s *Scored) {
	word, last := "primary", in.cfg.num(rayFallbacks)
	switch {
	case in.req.Session == "":
		word = "as likely as its share of the ring"
	case s.Cost > last:
		word = "beyond the fallbacks"
	case s.Cost > 0:
		word = fmt.Sprintf("fallback %s", number(s.Cost))
	}
	s.Terms = []Term{{"ring_steps", s.Cost, s.Cost}}
	s.Rule = fmt.Sprintf("%s: %s", wire.Printable(string(s.Replica)), word)
}

func rayHashSteps(in *input) []string {
	ring := fmt.Sprintf("a ring with %s points for each of %d candidates, hashed from their names: it is Ray's own if they are called by the replicas' unique ids",
		number(in.cfg.num(rayVnodes)), len(in.cands))
	if in.req.Session == "" {
		return []string{ring, fmt.Sprintf("no session (header %s): a fresh key for each request, which falls anywhere", wire.Printable(in.cfg.values[rayHeader].text))}
	}
	steps := []string{ring, fmt.Sprintf("the session's own place, then clockwise: the primary and up to %s fallbacks", number(in.cfg.num(rayFallbacks)))}
	if best, _ := in.best(); len(in.keys) > 0 && best.cost > in.cfg.num(rayFallbacks) {
		steps = append(steps, "none of them is eligible: Ray waits and asks them again, here the next one clockwise stands in")
	}
	return steps
}
