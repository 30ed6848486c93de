package route

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// This file is manual of SGLang router 0.3.2: a key, sent in the header
// X-SMG-Routing-Key, stays with the worker that it was first given to.

const (
	manEvery = iota
	manIdle
	manMode
)

var sglangManualSettings = []setting{
	manEvery: {name: "eviction_interval_secs", flag: "--eviction-interval-secs", def: "60", kind: whole},
	manIdle:  {name: "max_idle_secs", flag: "--max-idle-secs", def: "14400", kind: whole},
	manMode:  {name: "assignment_mode", flag: "--assignment-mode", def: "random", kind: word, words: []string{"random", "min_load", "min_group"}},
}

// sglangMostKeys bounds the keys that are remembered: beyond it, a new one is not.
const sglangMostKeys = 1 << 20

// sglangKeys is where keys went. Of groups, a worker's keys, the router counts
// those with a request in flight; here all that are held to a worker count.
type sglangKeys struct {
	keys   map[string]*sglangPin
	groups map[wire.Replica]int
	sweep  sglangCycle
	idle   wire.Time
}

// sglangPin is one key's. Of its candidates, the older one is asked first.
type sglangPin struct {
	workers [2]wire.Replica
	count   int
	last    wire.Replica // where it went last
	at      wire.Time
}

func newSGLangKeys(c *Config) memory {
	m := &sglangKeys{keys: make(map[string]*sglangPin), groups: make(map[wire.Replica]int)}
	m.idle = wire.Time(min(c.num(manIdle), sglangLongest)) * 1e9
	if m.idle > 0 {
		m.sweep.every = newSGLangCycle(c.num(manEvery)).every
	}
	return m
}

// sglangManual says by which branch, in the words of the router's metric
// smg_manual_policy_branch_total, and to whom a key is held.
func sglangManual(in *input) (branch string, pinned wire.Replica) {
	if in.req.Session == "" {
		return "no_routing_id", ""
	}
	m, ok := in.mem.(*sglangKeys)
	if !ok {
		if in.sees(in.req.Affinity) {
			return "occupied_hit", in.req.Affinity
		}
		return "vacant", ""
	}
	pin := m.keys[in.req.Session]
	if pin == nil {
		return "vacant", ""
	}
	for _, w := range pin.workers[:pin.count] {
		if in.sees(w) {
			return "occupied_hit", w
		}
	}
	return "occupied_miss", ""
}

// sees reports whether a worker is an eligible candidate.
func (in *input) sees(r wire.Replica) bool {
	for _, i := range in.eligible {
		if in.cands[i].Replica == r {
			return true
		}
	}
	return false
}

// pass forgets the keys that were idle for too long when they were last looked
// through.
func (m *sglangKeys) pass(at wire.Time) {
	now, due := m.sweep.pass(at)
	if !due {
		return
	}
	for name, pin := range m.keys {
		if now-pin.at >= m.idle {
			m.groups[pin.last]--
			delete(m.keys, name)
		}
	}
}

func (m *sglangKeys) took(in *input, at int) {
	if in.req.Session == "" {
		return
	}
	chosen := in.cands[in.eligible[at]].Replica
	branch, _ := sglangManual(in)
	pin := m.keys[in.req.Session]
	switch {
	case pin == nil && len(m.keys) >= sglangMostKeys:
		return
	case pin == nil:
		pin = &sglangPin{}
		m.keys[in.req.Session] = pin
	default:
		m.groups[pin.last]--
	}
	if branch != "occupied_hit" {
		if pin.count == len(pin.workers) {
			pin.workers[0], pin.count = pin.workers[1], pin.count-1
		}
		pin.workers[pin.count] = chosen
		pin.count++
	}
	pin.last, pin.at = chosen, in.req.At
	m.groups[chosen]++
}

// cost is what a candidate is compared by.
func (m *sglangKeys) cost(in *input, c *Candidate, branch string, pinned wire.Replica) Term {
	switch mode := in.cfg.values[manMode].text; {
	case branch == "no_routing_id":
	case branch == "occupied_hit" && c.Replica != pinned:
		return Term{"not_pinned", 1, 1}
	case branch == "occupied_hit":
		return Term{"not_pinned", 0, 0}
	case mode == "min_load":
		return Term{"load", float64(c.load().Requests), float64(c.load().Requests)}
	case mode == "min_group" && m != nil:
		return Term{"routing_keys", float64(m.groups[c.Replica]), float64(m.groups[c.Replica])}
	}
	return Term{"drawn", 0, 0}
}

func rankSGLangManual(in *input) {
	m, _ := in.mem.(*sglangKeys)
	if m != nil {
		m.pass(in.req.At)
	}
	branch, pinned := sglangManual(in)
	for n, i := range in.eligible {
		in.keys[n] = key{cost: m.cost(in, &in.cands[i], branch, pinned).Cost}
	}
}

func tellSGLangManual(in *input, at int, s *Scored) {
	m, _ := in.mem.(*sglangKeys)
	branch, pinned := sglangManual(in)
	t := m.cost(in, &in.cands[in.eligible[at]], branch, pinned)
	s.Terms = []Term{t}
	s.Rule = fmt.Sprintf("%s: %s %s", wire.Printable(string(s.Replica)), t.Name, number(t.Value))
}

func sglangManualSteps(in *input) []string {
	branch, _ := sglangManual(in)
	var steps []string
	if in.mem == nil && in.req.Session != "" {
		steps = append(steps, "which keys the router holds cannot be read from outside: where the session went stands in for it")
	}
	mode := in.cfg.values[manMode].text
	switch branch {
	case "no_routing_id":
		return append(steps, "no_routing_id: no key, so a worker is drawn")
	case "occupied_hit":
		return append(steps, "occupied_hit: the key is held to a worker")
	case "occupied_miss":
		return append(steps, "occupied_miss: none of the key's workers is available, so it is given to one more by assignment mode "+mode)
	}
	return append(steps, "vacant: the key is new, so it is given to a worker by assignment mode "+mode)
}
