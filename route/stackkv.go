package route

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// This file is the routing logic kvaware of the vLLM production stack, which asks
// LMCache's controller. Its answer names one holder of each chunk, the first that
// told of it, and the router takes the first of the answer: who had the prompt's
// first chunk before all others.

const (
	stackKVThreshold = iota
	stackKVSessionKey
	stackKVWindow
	stackKVPort
	stackKVChunk
	stackKVAPI
)

var stackKVSettings = []setting{
	stackKVThreshold:  {name: "kv_aware_threshold", flag: "--kv-aware-threshold", def: "2000", kind: whole, weight: true},
	stackKVSessionKey: {name: "session_key", flag: "--session-key", kind: free},
	stackKVWindow:     {name: "request_stats_window", flag: "--request-stats-window", def: "60"},
	stackKVPort:       {name: "lmcache_controller_port", flag: "--lmcache-controller-port", def: "9000", kind: whole},
	// LMCache's own.
	stackKVChunk: {name: "chunk_size", vars: []string{"LMCACHE_CHUNK_SIZE"}, def: "256", kind: whole},
	// The router reads the field prompt alone, which chat requests do not have.
	stackKVAPI: {name: "api", def: "completions", kind: word, words: []string{"completions", "chat"}},
}

// finishStackKV refuses a chunk of no tokens.
func finishStackKV(c *Config) {
	if v := c.values[stackKVChunk]; v.num < 1 {
		c.imply(stackKVChunk, stackKVSettings[stackKVChunk].def, fmt.Sprintf("%s (%s) is no chunk size", v.text, v.origin))
	}
}

// stackKV remembers who was sent a prompt's first chunk, in that order. What the
// engines still hold of it is known from them.
type stackKV struct{ *stack }

func newStackKV(c *Config) memory { return stackKV{newStack(c.num(stackKVWindow))} }

func (m stackKV) first(in *input) []uint64 {
	cut := cutter{size: int(in.cfg.num(stackKVChunk)) * symbolChars, most: 1}
	m.keys, _ = cut.cut(m.keys[:0], in.req, 0)
	return m.keys
}

func (m stackKV) took(in *input, at int) {
	m.chunks.put(m.first(in), 1, in.cands[in.eligible[at]].Replica, in.req.At)
	m.book(in, at)
}

// stackLookup is what the rule looked at.
type stackLookup struct {
	m    *stack
	chat bool
	need int // tokens
	// tokens is what each eligible candidate holds, in whole chunks, and holders
	// how many hold any.
	tokens  []int
	holders int
	// first is the eligible candidate that the answer begins with, -1 if it can be
	// any of the holders. enough is how many of those that it can be hold what is
	// needed, of so many in all.
	first, enough, can int
	fallback           []key
}

func readStackLookup(in *input) (v stackLookup) {
	m, remembers := in.mem.(stackKV)
	v.m, v.first, v.chat = m.stack, -1, in.cfg.values[stackKVAPI].text == "chat"
	v.need = max(0, in.req.Tokens-int(in.cfg.num(stackKVThreshold)))
	v.tokens = make([]int, len(in.eligible))
	v.fallback = stackFallback(in, v.m)
	if v.chat {
		return v
	}
	chunk := int(in.cfg.num(stackKVChunk))
	for n, i := range in.eligible {
		v.tokens[n] = in.cands[i].matched() * in.req.BlockSize / chunk * chunk
		if v.tokens[n] > 0 {
			v.holders++
		}
	}
	if remembers {
		v.first = m.earliest(in, v.tokens)
	}
	for n := range v.tokens {
		if v.canBe(n) {
			v.can++
			if v.tokens[n] >= v.need {
				v.enough++
			}
		}
	}
	return v
}

// earliest finds the first holder, as far as it is known.
func (m stackKV) earliest(in *input, tokens []int) int {
	for _, key := range m.first(in) {
		c := m.chunks.get(key, in.req.At)
		if c == 0 {
			continue
		}
		for o := range int(m.chunks.chunks[c].owners) {
			id := m.chunks.owner(c, o)
			for n, i := range in.eligible {
				if known, ok := m.chunks.ids[in.cands[i].Replica]; ok && known == id && tokens[n] > 0 {
					return n
				}
			}
		}
	}
	return -1
}

// canBe says that the answer can begin with a candidate.
func (v *stackLookup) canBe(at int) bool {
	return v.tokens[at] > 0 && (v.first < 0 || v.first == at)
}

// takes says that it would then be taken.
func (v *stackLookup) takes(at int) bool { return v.canBe(at) && v.tokens[at] >= v.need }

func rankStackKV(in *input) {
	v := readStackLookup(in)
	for n := range in.eligible {
		switch {
		case v.enough == 0:
			in.keys[n] = v.fallback[n]
		case v.takes(n):
			in.keys[n] = key{}
		default:
			in.keys[n] = key{cost: 1, then: v.fallback[n].cost}
		}
	}
}

// stackKVChances gives each that the answer can begin with the same chance, and
// what falls to those with too little to the fallback.
func stackKVChances(in *input, p []float64) {
	v := readStackLookup(in)
	if v.enough == v.can || v.enough == 0 {
		in.uniform(p)
		return
	}
	own := in.keys
	in.keys = v.fallback
	in.uniform(p)
	in.keys = own
	for n := range p {
		p[n] *= float64(v.can-v.enough) / float64(v.can)
		if v.takes(n) {
			p[n] += 1 / float64(v.can)
		}
	}
}

func tellStackKV(in *input, at int, s *Scored) {
	v := readStackLookup(in)
	first, other := Term{Name: "not_first_holder"}, stackTerm(in, v.fallback[at])
	if v.enough > 0 {
		other.Cost = 0
		if !v.takes(at) {
			first.Value, first.Cost = 1, 1
		}
	}
	s.Terms = []Term{first, other}
	s.Rule = fmt.Sprintf("%s: %d tokens in LMCache's chunks, %s %s", wire.Printable(string(s.Replica)), v.tokens[at], other.Name, number(other.Value))
}

func stackKVSteps(in *input) []string {
	v := readStackLookup(in)
	if v.chat {
		return []string{"a chat request has no field prompt: the controller is asked about no tokens and finds nothing", stackSteps(in)}
	}
	steps := []string{fmt.Sprintf("%d candidates hold the prompt's first chunk of %s tokens, and the one taken must hold %d tokens",
		v.holders, number(in.cfg.num(stackKVChunk)), v.need)}
	if v.can > 1 {
		steps = append(steps, "the answer begins with whoever told of that chunk first: which one cannot be read from outside, so each can be")
	} else if v.can == 1 {
		steps = append(steps, "the answer begins with whoever told of that chunk first, however long its match")
	}
	switch {
	case v.enough == 0:
		steps = append(steps, "none of them holds enough: "+stackSteps(in))
	case v.enough < v.can:
		steps = append(steps, fmt.Sprintf("%d of them hold enough; if it is another: %s", v.enough, stackSteps(in)))
	}
	return steps
}
