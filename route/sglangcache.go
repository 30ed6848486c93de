package route

import (
	"fmt"
	"strconv"

	"github.com/kvscope/kvscope/wire"
)

// This file is cache_aware of SGLang router 0.3.2 (HTTP): the least loaded if the
// loads differ much, else who owns the text so far in the router's own tree, else
// the least loaded. Its numbers are 32-bit floats, as there.

const (
	sglThreshold = iota
	sglAbs
	sglRel
	sglEvery
	sglSize
)

// The command line's defaults; those of the library differ.
var sglangCacheSettings = []setting{
	sglThreshold: {name: "cache_threshold", flag: "--cache-threshold", def: "0.3", kind: fraction, weight: true},
	sglAbs:       {name: "balance_abs_threshold", flag: "--balance-abs-threshold", def: "64", kind: whole, weight: true},
	sglRel:       {name: "balance_rel_threshold", flag: "--balance-rel-threshold", def: "1.5", kind: ratio, weight: true},
	sglEvery:     {name: "eviction_interval_secs", flag: "--eviction-interval-secs", def: "60", kind: whole},
	sglSize:      {name: "max_tree_size", flag: "--max-tree-size", def: "67108864", kind: whole},
}

const (
	// sglangMostChars bounds the tree whatever its settings: beyond it, shares are
	// cut before their time.
	sglangMostChars = 1 << 27
)

// sglangCycle is what the router does at intervals.
type sglangCycle struct {
	every wire.Time // 0 for never
	due   wire.Time
	begun bool
}

// sglangLongest bounds an interval, in seconds.
const sglangLongest = 1e8

func newSGLangCycle(seconds float64) sglangCycle {
	return sglangCycle{every: wire.Time(min(seconds, sglangLongest)) * 1e9}
}

// pass lets time pass, and says when a cycle was last due, if one was. The first
// request starts the clock.
func (c *sglangCycle) pass(at wire.Time) (last wire.Time, due bool) {
	switch {
	case c.every == 0:
	case !c.begun:
		c.begun, c.due = true, at+c.every
	case at >= c.due:
		last = at - (at-c.due)%c.every
		c.due = last + c.every
		return last, true
	}
	return 0, false
}

// sglangMemory is the router's tree, of one model, and what it made of the last
// question. The tree goes over characters of text, or over the symbols of a
// workload that has no text: then each counts as Width tokens of four characters,
// in the thresholds as in the size.
type sglangMemory struct {
	tree  *sglangTree
	text  []rune
	chars int // that an element of text stands for
	node  int32
	view  sglangView
	cut   sglangCycle
	limit int // characters that a worker's share is cut down to
}

func newSGLangMemory(c *Config) memory {
	return &sglangMemory{
		tree:  newSGLangTree(),
		cut:   newSGLangCycle(c.num(sglEvery)),
		limit: int(c.num(sglSize)),
	}
}

// sglangBranch is the way that a decision went.
type sglangBranch uint8

const (
	sglangSpread sglangBranch = iota // the loads differ too much
	sglangHit                        // enough is matched, and its owner is there
	sglangStale                      // enough is matched, and its owner is gone
	sglangCold                       // too little is matched
)

// sglangView is what the rule looked at.
type sglangView struct {
	branch         sglangBranch
	least, most    int // in flight
	matched, total int // characters, or blocks where the engines stand in for the tree
	rate           float32
	owner          wire.Replica // of the match in the tree
}

// look reads the loads, and says whether they differ too much.
func (v *sglangView) look(in *input) bool {
	for n, i := range in.eligible {
		requests := in.cands[i].load().Requests
		if n == 0 || requests < v.least {
			v.least = requests
		}
		v.most = max(v.most, requests)
	}
	return v.most-v.least > int(in.cfg.num(sglAbs)) && float32(v.most) > float32(v.least)*float32(in.cfg.num(sglRel))
}

// rated says whether enough is matched.
func (v *sglangView) rated(in *input) bool {
	if v.total > 0 {
		v.rate = float32(v.matched) / float32(v.total)
	}
	return v.rate > float32(in.cfg.num(sglThreshold))
}

// sglangStands judges by what the engines hold, as nothing tells what is in the
// router's tree.
func sglangStands(in *input) (v sglangView) {
	if v.look(in) {
		return v
	}
	for _, i := range in.eligible {
		v.matched = max(v.matched, in.cands[i].matched())
	}
	v.total = in.req.begun()
	if v.branch = sglangCold; v.rated(in) {
		v.branch = sglangHit
	}
	return v
}

// judge asks the tree. It passes the time first: shares are cut when it is due.
func (m *sglangMemory) judge(in *input) (v sglangView) {
	m.meet(in)
	m.read(in.req)
	if _, due := m.cut.pass(in.req.At); due {
		m.tree.evict(m.limit / m.chars)
	}
	if v.look(in) {
		return v
	}
	m.node, v.matched = m.tree.match(m.text)
	v.total = len(m.text)
	if v.branch = sglangCold; !v.rated(in) {
		return v
	}
	v.branch = sglangStale
	if id := m.tree.holder(m.node); id >= 0 {
		v.owner = m.tree.names[id]
		for _, i := range in.eligible {
			if in.cands[i].Replica == v.owner {
				v.branch = sglangHit
			}
		}
	}
	return v
}

// meet takes up workers that are new.
func (m *sglangMemory) meet(in *input) {
	for i := range in.cands {
		if _, known := m.tree.ids[in.cands[i].Replica]; !known {
			m.joined(in.cands[i].Replica)
		}
	}
}

// joined does what the router does with a worker that it registers: it owns the
// empty text.
func (m *sglangMemory) joined(r wire.Replica) { m.tree.insert(nil, m.tree.id(r)) }

func (m *sglangMemory) left(r wire.Replica) { m.tree.drop(m.tree.id(r)) }

// read takes the text of a request as the router does: the contents of messages,
// or several prompts, joined by single spaces, and token ids as numbers.
func (m *sglangMemory) read(r *Request) {
	m.text, m.chars = m.text[:0], 1
	switch {
	case len(r.Contents) > 0:
		for i, s := range r.Contents {
			if i > 0 {
				m.text = append(m.text, ' ')
			}
			for _, c := range s {
				m.text = append(m.text, c)
			}
		}
	case len(r.Symbols) > 0:
		m.text, m.chars = append(m.text, r.Symbols...), max(1, r.Width*symbolChars)
	default:
		var digits [20]byte
		for i, id := range r.IDs {
			if i > 0 {
				m.text = append(m.text, ' ')
			}
			for _, c := range strconv.AppendUint(digits[:0], uint64(id), 10) {
				m.text = append(m.text, rune(c))
			}
		}
	}
}

func (m *sglangMemory) took(in *input, at int) {
	switch m.view.branch {
	case sglangStale:
		m.tree.touch(m.node)
		if id, known := m.tree.ids[m.view.owner]; known {
			m.tree.drop(id)
		}
		return
	case sglangHit, sglangCold:
		m.tree.touch(m.node)
	}
	m.tree.insert(m.text, m.tree.id(in.cands[in.eligible[at]].Replica))
	if m.tree.size > sglangMostChars {
		m.tree.evict(sglangMostChars / 2 / len(m.tree.names))
	}
}

// sglangSeen gives what rank found.
func sglangSeen(in *input) (v sglangView, tree bool) {
	if m, ok := in.mem.(*sglangMemory); ok {
		return m.view, true
	}
	return sglangStands(in), false
}

// other says that the match is not a candidate's own.
func (v *sglangView) other(c *Candidate, tree bool) float64 {
	if tree && c.Replica == v.owner || !tree && c.matched() == v.matched {
		return 0
	}
	return 1
}

func rankSGLangCache(in *input) {
	if m, ok := in.mem.(*sglangMemory); ok {
		m.view = m.judge(in)
	}
	v, tree := sglangSeen(in)
	for n, i := range in.eligible {
		c := &in.cands[i]
		k := key{then: in.listed(n)}
		switch v.branch {
		case sglangHit:
			k.cost = v.other(c, tree)
		case sglangSpread, sglangCold:
			k.cost = float64(c.load().Requests)
		}
		in.keys[n] = k
	}
}

func tellSGLangCache(in *input, at int, s *Scored) {
	v, tree := sglangSeen(in)
	c := &in.cands[in.eligible[at]]
	load := Term{Name: "load", Value: float64(c.load().Requests)}
	other := Term{Name: "not_matched_worker", Value: v.other(c, tree)}
	word := ""
	switch v.branch {
	case sglangHit:
		if other.Cost = s.Cost; s.Cost == 0 {
			word = ", the matched worker"
		}
	case sglangSpread, sglangCold:
		load.Cost = s.Cost
	}
	s.Terms = []Term{load, other}
	s.Rule = fmt.Sprintf("%s: load %s%s", wire.Printable(string(s.Replica)), number(load.Value), word)
}

func sglangCacheSteps(in *input) []string {
	v, tree := sglangSeen(in)
	var steps []string
	unit := "characters"
	if !tree {
		unit = "blocks"
		steps = append(steps, "the router's tree cannot be read from outside: what the engines hold stands in for it")
	}
	steps = append(steps, fmt.Sprintf("max load %d, min load %d: imbalanced if they differ by more than %s and max is more than %s times min",
		v.most, v.least, number(in.cfg.num(sglAbs)), number(in.cfg.num(sglRel))))
	if v.branch == sglangSpread {
		return append(steps, "imbalanced: the first worker with the least load")
	}
	steps = append(steps, fmt.Sprintf("balanced: match rate %s (%d of %d %s), and it needs more than %s",
		number(float64(v.rate)), v.matched, v.total, unit, number(in.cfg.num(sglThreshold))))
	switch {
	case v.branch == sglangCold:
		return append(steps, "too little: the first worker with the least load")
	case v.branch == sglangStale:
		return append(steps, fmt.Sprintf("enough, but %s is not available: its share of the tree is deleted, and the first worker takes the request",
			wire.Printable(string(v.owner))))
	case tree:
		return append(steps, "enough: the worker that came first with it")
	}
	return append(steps, "enough: the longest holder; with several, the router takes the one that came first with it, which is not known")
}
