package route

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// This file is the routing logic prefixaware of the vLLM production stack.

const (
	stackPrefixMin = iota
	stackPrefixWindow
)

var stackPrefixSettings = []setting{
	stackPrefixMin:    {name: "prefix_min_match_length", flag: "--prefix-min-match-length", def: "0", kind: whole, weight: true},
	stackPrefixWindow: {name: "request_stats_window", flag: "--request-stats-window", def: "60"},
}

// stackChunk is the characters of a chunk of the trie.
const stackChunk = 128

var stackCut = cutter{sep: "\n", size: stackChunk, rest: true}

// stackPrefix remembers prompts. The router's trie grows for ever; here the chunks
// sent longest ago are forgotten beyond maxChunks.
type stackPrefix struct{ *stack }

func newStackPrefix(c *Config) memory { return stackPrefix{newStack(c.num(stackPrefixWindow))} }

func (m stackPrefix) took(in *input, at int) {
	var weight int
	m.keys, weight = stackCut.cut(m.keys[:0], in.req, 0)
	m.chunks.put(m.keys, weight, in.cands[in.eligible[at]].Replica, in.req.At)
	m.book(in, at)
}

// stackTrie is what the rule looked at.
type stackTrie struct {
	m       *stack
	depth   []int // chunks, or blocks where these stand in
	longest int
	chars   int // of the longest match
	short   bool
}

func readStackTrie(in *input) (v stackTrie) {
	if m, ok := in.mem.(stackPrefix); ok {
		v.m = m.stack
		var weight int
		m.keys, weight = stackCut.cut(m.keys[:0], in.req, 0)
		v.depth = m.chunks.depths(in, m.keys)
		for _, d := range v.depth {
			v.longest = max(v.longest, d)
		}
		v.chars = v.longest * weight * stackChunk
	} else {
		v.depth = make([]int, len(in.eligible))
		for n, i := range in.eligible {
			v.depth[n] = in.cands[i].matched()
			v.longest = max(v.longest, v.depth[n])
		}
		v.chars = v.longest * in.req.BlockSize * symbolChars
	}
	v.short = float64(v.chars) < in.cfg.num(stackPrefixMin)
	return v
}

func rankStackPrefix(in *input) {
	v := readStackTrie(in)
	if v.short {
		copy(in.keys, stackFallback(in, v.m))
		return
	}
	for n, d := range v.depth {
		in.keys[n] = key{cost: float64(v.longest - d)}
	}
}

func tellStackPrefix(in *input, at int, s *Scored) {
	v := readStackTrie(in)
	missing, other := Term{Name: "missing_chunks", Value: float64(v.longest - v.depth[at])}, Term{Name: "fallback"}
	if v.short {
		other = stackTerm(in, in.keys[at])
	} else {
		missing.Cost = s.Cost
	}
	s.Terms = []Term{missing, other}
	s.Rule = fmt.Sprintf("%s: %d of the %d chunks of the longest match", wire.Printable(string(s.Replica)), v.depth[at], v.longest)
}

func stackPrefixSteps(in *input) []string {
	v := readStackTrie(in)
	var steps []string
	if in.mem == nil {
		steps = append(steps, "the router's trie cannot be read from outside: what the engines hold stands in for it, a token for 4 characters")
	}
	steps = append(steps, fmt.Sprintf("the longest match is %d characters, and prefix_min_match_length is %s", v.chars, number(in.cfg.num(stackPrefixMin))))
	if v.short {
		return append(steps, "shorter: "+stackSteps(in))
	}
	count := 0
	for _, d := range v.depth {
		if d == v.longest {
			count++
		}
	}
	return append(steps, fmt.Sprintf("any of the %d that were sent all of it, evenly at random, whatever their load", count))
}
