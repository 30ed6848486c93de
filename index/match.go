package index

import (
	"slices"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// Query is a prompt as engines would hash it.
type Query struct {
	// Model limits the answer to replicas of that model; "" asks all.
	Model  string
	Tokens []wire.Token
	LoRA   string
	Salt   string
	// Extra holds further content of each block (images, embeddings).
	Extra [][]blockhash.Value
}

// Match is what one replica holds of a prompt.
type Match struct {
	Replica wire.Replica
	// BlockSize is the replica's, in tokens; Blocks the prompt's full blocks.
	BlockSize, Blocks int
	// Tiers counts matched blocks: the contiguous prefix on the device, then
	// its continuation on each lower tier in turn. A hole ends a match.
	Tiers [wire.NumTiers]int
	// Certain counts the leading blocks of which there is evidence from after
	// the last missed event; on an EXACT replica all of them.
	Certain int
	// Upper is what the groups that need every block promise alone. It is
	// above Tiers[Device] when another group lacks its part of the prefix.
	Upper int
}

// Depth is the number of matched blocks on all tiers.
func (m Match) Depth() int {
	n := 0
	for _, t := range m.Tiers {
		n += t
	}
	return n
}

// CachedTokens is what the engine would report as cached: the last prompt
// token is always recomputed, so at most floor((n-1)/B) blocks count.
func CachedTokens(blocks, blockSize, promptTokens int) int {
	if blockSize <= 0 || promptTokens <= 0 {
		return 0
	}
	return min(blocks, (promptTokens-1)/blockSize) * blockSize
}

// Prompt is a Query with what has been computed of it, so that asking again is
// cheap. It belongs to the goroutine that asks.
type Prompt struct {
	Query
	shapes map[shape]*shaped
}

// shape is how a replica cuts a prompt into blocks.
type shape struct {
	size   int
	bigram bool
}

// shaped is a prompt cut that way.
type shaped struct {
	locals, sequence []uint64
	chains           map[blockhash.Recipe][]blockhash.Link
}

// NewPrompt prepares a query.
func NewPrompt(q Query) *Prompt { return &Prompt{Query: q, shapes: map[shape]*shaped{}} }

func (p *Prompt) namespace() blockhash.Namespace { return blockhash.NamespaceOf(p.LoRA, p.Salt) }

func (p *Prompt) cut(s shape) *shaped {
	if c := p.shapes[s]; c != nil {
		return c
	}
	mm := make([][]uint64, len(p.Extra))
	for i, e := range p.Extra {
		_, mm[i] = blockhash.Content(e, p.LoRA, i == 0)
	}
	c := &shaped{chains: map[blockhash.Recipe][]blockhash.Link{}}
	c.locals, c.sequence = blockhash.Rolling(p.Tokens, s.size, s.bigram, p.namespace(), mm)
	p.shapes[s] = c
	return c
}

// Sequence gives the sequence hashes of the prompt's full blocks. The slice stays
// the Prompt's.
func (p *Prompt) Sequence(size int, bigram bool) []uint64 {
	if size <= 0 {
		return nil
	}
	return p.cut(shape{size, bigram}).sequence
}

// Match says what every replica of the prompt's model holds of it. The
// prompt's own tokens may first give a meaning to parents that were never
// announced (their digests are recomputed by the replica's hash recipe).
func (x *Index) Match(p *Prompt) []Match {
	var out []Match
	for _, r := range x.byID {
		if p.Model == "" || r.model == "" || r.model == p.Model {
			out = append(out, Match{Replica: r.name, BlockSize: r.blockSize})
		}
	}
	done := map[shape]map[wire.Replica]Match{}
	for i := range out {
		r := x.replicas[out[i].Replica]
		s := shape{r.blockSize, r.bigram}
		if done[s] == nil {
			done[s] = map[wire.Replica]Match{}
			for _, m := range x.matchShape(p, s) {
				done[s][m.Replica] = m
			}
		}
		if m, ok := done[s][r.name]; ok {
			m.BlockSize = s.size
			out[i] = m
		}
		out[i].Blocks = blockhash.Blocks(len(p.Tokens), s.size, s.bigram)
	}
	return out
}

// MatchOn says what one replica holds of a prompt.
func (x *Index) MatchOn(name wire.Replica, p *Prompt) Match {
	out := Match{Replica: name}
	r := x.replicas[name]
	if r == nil {
		return out
	}
	s := shape{r.blockSize, r.bigram}
	for _, m := range x.matchShape(p, s) {
		if m.Replica == name {
			out = m
		}
	}
	out.BlockSize, out.Blocks = s.size, blockhash.Blocks(len(p.Tokens), s.size, s.bigram)
	return out
}

func (x *Index) matchShape(p *Prompt, s shape) []Match {
	if s.size <= 0 {
		return nil
	}
	cut := p.cut(s)
	x.proveByPrompt(p, s, cut)
	x.settle()
	return x.MatchLocals(cut.locals)
}

// MatchLocals says what replicas hold of the chain with these local hashes,
// for every replica that holds at least one block of it.
func (x *Index) MatchLocals(locals []uint64) []Match {
	m := x.scratch
	m.begin(len(x.byID))
	x.walk(m, locals)
	hybrid := x.enroll(m)
	x.leap(m)
	x.follow(m)
	out := make([]Match, 0, len(m.touched)+len(hybrid))
	for _, rep := range m.touched {
		st := &m.state[rep]
		out = append(out, Match{
			Replica: x.byID[rep].name, Tiers: st.tiers, Certain: st.sure, Upper: st.tiers[wire.Device],
		})
	}
	for _, r := range hybrid {
		out = append(out, x.matchHybrid(r, locals))
	}
	return out
}

// matcher is the scratch space of one question.
type matcher struct {
	state   []matchState
	touched []int32
	active  []int32
	path    []nodeID
	spans   []span
}

type matchState struct {
	in bool // holds its first depth blocks
	// low is the deepest block that is known to have all before it, -1 for none.
	low, depth int
	seen       int // block that mask is about, counted from 1
	mask       uint8
	certain    uint8
	stage      wire.Tier
	doubt      bool
	sure       int
	tiers      [wire.NumTiers]int
	// vouched counts the first blocks that are certain on the device in one group.
	vouched int
	group   int16
}

func (m *matcher) begin(replicas int) {
	for _, rep := range m.touched {
		m.state[rep] = matchState{}
	}
	m.touched, m.active, m.path = m.touched[:0], m.active[:0], m.path[:0]
	for len(m.state) < replicas {
		m.state = append(m.state, matchState{})
	}
}

// walk finds the chain's nodes, as far as anybody holds them.
func (x *Index) walk(m *matcher, locals []uint64) {
	id := none
	for _, local := range locals {
		if id = x.step(id, local); id == none || x.nodes[id].holders == 0 {
			return
		}
		m.path = append(m.path, id)
	}
}

// enroll finds who holds the first block. Replicas with several groups are given
// back.
func (x *Index) enroll(m *matcher) (hybrid []*replica) {
	if len(m.path) == 0 {
		return nil
	}
	for k := x.nodes[m.path[0]].first; k != noSlot; k = x.slots[k].next {
		s := &x.slots[k]
		switch r := x.byID[s.rep]; {
		case s.n <= 0:
		case len(r.groups) > 1:
			if !slices.Contains(hybrid, r) {
				hybrid = append(hybrid, r)
			}
		case !m.state[s.rep].in:
			m.state[s.rep] = matchState{in: true, low: -1}
			m.touched = append(m.touched, s.rep)
		}
	}
	return hybrid
}

// span is a part of the chain in which some replicas' device prefixes end: they
// are known to hold all up to low, and not to be known for the block high.
type span struct{ low, high, replicas int }

// leap finds how far each replica certainly holds the chain on its device, by
// halving: a slot with the current stamp has all its ancestors, so that of a long
// chain that many hold few slots are looked at.
func (x *Index) leap(m *matcher) {
	m.spans = append(m.spans[:0], span{-1, len(m.path), len(m.touched)})
	first := true
	for len(m.spans) > 0 {
		p := m.spans[len(m.spans)-1]
		m.spans = m.spans[:len(m.spans)-1]
		mid := p.low + (p.high-p.low)/2
		if first { // most often all is held by somebody
			mid, first = p.high-1, false
		}
		if mid <= p.low || p.replicas == 0 {
			continue
		}
		on := 0
		for k := x.nodes[m.path[mid]].first; k != noSlot && on < p.replicas; k = x.slots[k].next {
			s := &x.slots[k]
			st := &m.state[s.rep]
			if r := x.byID[s.rep]; st.in && st.low == p.low && s.whole(r) {
				st.low, st.group = mid, s.group
				on++
			}
		}
		m.spans = append(m.spans, span{p.low, mid, p.replicas - on}, span{mid, p.high, on})
	}
	for _, rep := range m.touched {
		st := &m.state[rep]
		st.depth = st.low + 1
		st.tiers[wire.Device], st.sure, st.vouched = st.depth, st.depth, st.depth
	}
}

// whole reports whether a slot says that its replica holds the block and all
// before it on its device, and that all of it is certain.
func (s *slot) whole(r *replica) bool {
	return s.n > 0 && s.tier == wire.Device && s.stamp == r.stamp && s.gen == r.gen && r.isDense(s.group)
}

// follow goes on block by block from where each replica's leap ended.
func (x *Index) follow(m *matcher) {
	slices.SortStableFunc(m.touched, func(a, b int32) int { return m.state[a].depth - m.state[b].depth })
	waiting := m.touched
	for i := 0; ; i++ {
		if len(m.active) == 0 {
			if len(waiting) == 0 {
				return
			}
			i = m.state[waiting[0]].depth
		}
		if i >= len(m.path) {
			return
		}
		for ; len(waiting) > 0 && m.state[waiting[0]].depth == i; waiting = waiting[1:] {
			m.active = append(m.active, waiting[0])
		}
		for k := x.nodes[m.path[i]].first; k != noSlot; k = x.slots[k].next {
			s := &x.slots[k]
			if st := &m.state[s.rep]; s.n > 0 && st.in && st.depth == i {
				if st.seen != i+1 {
					st.seen, st.mask, st.certain = i+1, 0, 0
				}
				st.mask |= 1 << s.tier
				r := x.byID[s.rep]
				if s.gen == r.gen {
					st.certain |= 1 << s.tier
				}
				st.vouch(s, r, i)
			}
		}
		m.advance(i)
	}
}

// vouch stamps the slot of block i where all before it were seen to, so that the
// next question can leap.
func (st *matchState) vouch(s *slot, r *replica, i int) {
	switch {
	case s.tier != wire.Device || s.gen != r.gen || st.vouched != i || !r.isDense(s.group):
		return
	case i == 0:
		st.group = s.group
	case s.group != st.group:
		return
	}
	st.vouched = i + 1
	s.stamp = r.stamp
}

// advance counts block i for all who hold it; the others are done.
func (m *matcher) advance(i int) {
	keep := m.active[:0]
	for _, rep := range m.active {
		st := &m.state[rep]
		tier := st.stage
		if st.seen == i+1 {
			for tier < wire.NumTiers && st.mask&(1<<tier) == 0 {
				tier++
			}
		} else {
			tier = wire.NumTiers
		}
		if tier == wire.NumTiers {
			st.in = false
			continue
		}
		st.stage = tier
		st.depth++
		st.tiers[tier]++
		if st.doubt = st.doubt || st.certain&(1<<tier) == 0; !st.doubt {
			st.sure++
		}
		keep = append(keep, rep)
	}
	m.active = keep
}

// matchHybrid matches a replica with several KV-cache groups: a prefix is
// usable only if every group has what it needs of it. Groups with a sliding
// window need its last ceil((window-1)/B) blocks, as in vLLM's
// SlidingWindowManager; groups of other kinds that do not need every block
// (mamba, chunked) need the last one. Lower tiers are not counted.
func (x *Index) matchHybrid(r *replica, locals []uint64) Match {
	// behind[g][i] is how many blocks in a row group g has that end with i.
	behind := make([][]int, len(r.groups))
	sure, known := 0, 0
	id := none
	for i, local := range locals {
		if id = x.step(id, local); id == none {
			break
		}
		known++
		certain := true
		for g := range r.groups {
			streak := 0
			if s := x.find(id, r.id, r.groups[g].id, wire.Device); s != nil && s.n > 0 {
				streak = 1
				if i > 0 {
					streak += behind[g][i-1]
				}
				certain = certain && s.gen == r.gen
			}
			behind[g] = append(behind[g], streak)
		}
		if certain && sure == i {
			sure++
		}
	}
	// longest is the longest usable prefix of at most depth blocks.
	longest := func(depth int, of func(*group) bool) int {
		for ; depth > 0; depth-- {
			usable := true
			for g := range r.groups {
				group := &r.groups[g]
				usable = usable && (!of(group) || behind[g][depth-1] >= group.need(depth, r.blockSize))
			}
			if usable {
				break
			}
		}
		return depth
	}
	m := Match{Replica: r.name, Upper: longest(known, func(g *group) bool { return wire.Dense(g.spec) })}
	m.Tiers[wire.Device] = longest(m.Upper, func(*group) bool { return true })
	m.Certain = min(m.Tiers[wire.Device], sure)
	return m
}

// need is how many of its last blocks a group must have of a prefix.
func (g *group) need(depth, blockSize int) int {
	switch {
	case wire.Dense(g.spec):
		return depth
	case g.window > 0 && blockSize > 0:
		return min(depth, (g.window-1+blockSize-1)/blockSize)
	}
	return min(depth, 1)
}
