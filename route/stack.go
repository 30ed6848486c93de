package route

import (
	"crypto/md5"
	"encoding/binary"

	"github.com/kvscope/kvscope/wire"
)

// This file is what the routers of the vLLM production stack share: a ring for
// sessions, and the fewest requests in a sliding window for those without one.

// stackRing is uhashring's default: the MD5 digest as a number, and as many points
// for a worker as stackVnodes says.
var stackRing = ringKind{sep: "-", hash: func(name string) (hi, lo uint64) {
	sum := md5.Sum([]byte(name)) // the ring's own hash: nothing is kept secret by it
	return binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:])
}}

const stackVnodes = 160

// stack is what a router remembers.
type stack struct {
	window wire.Time
	// sent are the requests in the window, from the first one that is left on, and
	// counts how many each engine has of them. An engine that never had a request
	// has no entry; one that is gone keeps its own.
	sent   []stackSent
	counts map[wire.Replica]int
	// chunks is the trie, or the first chunks of prompts by their owners.
	chunks *holders
	keys   []uint64
}

type stackSent struct {
	at wire.Time
	to wire.Replica
}

// maxWindow bounds the requests of a window: older ones are forgotten early.
const maxWindow = 1 << 20

func newStack(window float64) *stack {
	return &stack{window: wire.Time(min(window, 1e9) * 1e9), counts: make(map[wire.Replica]int), chunks: newHolders(maxChunks, -1)}
}

// slide lets requests go that are older than the window.
func (m *stack) slide(now wire.Time) {
	gone := 0
	for gone < len(m.sent) && (now-m.sent[gone].at > m.window || len(m.sent)-gone > maxWindow) {
		m.counts[m.sent[gone].to]--
		gone++
	}
	if m.sent = m.sent[gone:]; len(m.sent) == 0 {
		m.sent = nil
	}
}

// book counts a request.
func (m *stack) book(in *input, at int) {
	to := in.cands[in.eligible[at]].Replica
	m.sent = append(m.sent, stackSent{in.req.At, to})
	m.counts[to]++
}

// stackFallback ranks the eligible candidates without any match: by the way on the
// ring from the session, or by the requests in the window, the first of the list
// on a tie. An engine that had no request yet comes before all others. Without a
// memory, active requests stand in for the window's.
func stackFallback(in *input, m *stack) []key {
	keys := make([]key, len(in.eligible))
	if in.req.Session != "" {
		steps := ringOf(in, &stackRing, stackVnodes).steps(in.req.Session)
		for n, i := range in.eligible {
			keys[n] = key{cost: float64(steps[i])}
		}
		return keys
	}
	if m != nil {
		m.slide(in.req.At)
	}
	for n, i := range in.eligible {
		c := &in.cands[i]
		keys[n] = key{cost: float64(c.load().Requests), then: in.listed(n)}
		if m == nil {
			continue
		}
		if count, known := m.counts[c.Replica]; known {
			keys[n].cost = float64(count)
		} else {
			keys[n].cost = -1
		}
	}
	return keys
}

// stackTerm is the term of stackFallback.
func stackTerm(in *input, k key) Term {
	if in.req.Session != "" {
		return Term{"ring_steps", k.cost, k.cost}
	}
	if in.mem == nil {
		return Term{"active_requests", k.cost, k.cost}
	}
	return Term{"requests_in_window", max(0, k.cost), k.cost}
}

// stackSteps tells stackFallback.
func stackSteps(in *input) string {
	switch {
	case in.req.Session != "":
		return "the session's place on the hash ring of all candidates, hashed from their names: it is the router's own if they are called by their URLs"
	case in.mem == nil:
		return "no session: the lowest QPS, an engine that had no request yet before all others; the router's window cannot be read from outside, so active requests stand in for it"
	}
	return "no session: the lowest QPS, an engine that had no request yet before all others, the first of the list on a tie"
}
