package index

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// model is the index as one would write it down: contents are the paths of
// their local hashes, everything is found by looking through everything, and
// nothing is ever forgotten.
type model struct {
	hybrid   bool
	clock    uint64
	replicas []*modelReplica
	// first is, for each content, the life of a replica that named it first.
	first map[string]life
	// group gives each life its set of those that turned out to share a root.
	group map[int]int
	lives int
}

// life is one epoch of one replica and what its handles are made of.
type life struct{ id, root int }

type modelReplica struct {
	name wire.Replica
	life
	table map[uint64]string
	// count, implied, certain and ever are by content, group and tier.
	count   map[place]int
	implied map[place]bool
	certain map[place]bool
	ever    map[place]bool // in any epoch
	held    map[place]bool // in this epoch
	orphans map[uint64]*modelOrphan
	gone    map[uint64]uint64

	duplicates, unknown, orphanParents uint64
	ledger                             Ledger
}

type place struct {
	content string
	group   int
	tier    wire.Tier
}

type modelOrphan struct {
	local     string
	parent    uint64
	content   bool // has a local hash and a parent
	announced bool
	count     map[Place]int
	certain   map[Place]bool
	proven    map[int]modelProof // by group
}

// modelProof is when an orphan was last proved, and whether that still counts
// as certain.
type modelProof struct {
	clock   uint64
	certain bool
}

func newModel(roots []int) *model {
	m := &model{first: map[string]life{}, group: map[int]int{}}
	for i, root := range roots {
		r := &modelReplica{name: wire.Replica(fmt.Sprint("r", i)), ever: map[place]bool{}}
		m.begin(r, root)
		m.replicas = append(m.replicas, r)
	}
	return m
}

// begin starts a life.
func (m *model) begin(r *modelReplica, root int) {
	m.lives++
	r.life = life{m.lives, root}
	m.group[m.lives] = m.lives
	r.table = map[uint64]string{}
	r.count, r.implied, r.certain, r.held = map[place]int{}, map[place]bool{}, map[place]bool{}, map[place]bool{}
	r.orphans, r.gone = map[uint64]*modelOrphan{}, map[uint64]uint64{}
}

// handle is what an engine of a root calls a content: 64 bits that look
// random. A restarted process keeps its root or not, as the caller says.
func handle(root int, content string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, root, "|", content)
	return h.Sum64() | 1<<40
}

func join(parent, local string) string {
	if parent == "" {
		return local
	}
	return parent + "/" + local
}

func parentOf(content string) string {
	if i := strings.LastIndexByte(content, '/'); i >= 0 {
		return content[:i]
	}
	return ""
}

// dense: groups of unknown kind are taken to need every block, and a prefix is
// then held where any of them has it. In a hybrid model group 1 needs only the
// last blocks of its window.
func (m *model) dense(group int) bool { return !m.hybrid || group == 0 }

func (m *model) related(a, b life) bool { return m.group[a.id] == m.group[b.id] }

// name notes that a handle is a content on a replica. Two lives of one root
// are known to be related once both use one handle.
func (m *model) name(r *modelReplica, content string) {
	r.table[handle(r.root, content)] = content
	first, ok := m.first[content]
	if !ok {
		m.first[content] = r.life
		return
	}
	if first.root == r.root {
		m.unite(first, r.life)
	}
}

func (m *model) unite(a, b life) {
	from, to := m.group[a.id], m.group[b.id]
	for id, g := range m.group {
		if g == from {
			m.group[id] = to
		}
	}
}

func (r *modelReplica) add(content string, group int, tier wire.Tier, n int, implied, certain bool) {
	p := place{content, group, tier}
	switch {
	case r.count[p] == 0:
		r.implied[p] = implied
		r.certain[p] = certain
	case !implied:
		r.implied[p] = false
	}
	r.count[p] += n
	r.certain[p] = r.certain[p] || certain
	r.ever[p], r.held[p] = true, true
}

// prove: a content and its ancestors were resident at a time.
func (m *model) prove(r *modelReplica, content string, group int, asOf uint64, certain bool) {
	for ; content != ""; content = parentOf(content) {
		p := place{content, group, wire.Device}
		h := handle(r.root, content)
		first, named := m.first[content]
		known := named && m.related(first, r.life)
		if o := r.orphans[h]; o != nil && known && r.count[p] == 0 {
			m.attach(r, h, o, content)
		}
		switch {
		case r.count[p] > 0:
			r.certain[p] = r.certain[p] || certain
		case r.held[p]:
			if asOf == m.clock {
				r.add(content, group, wire.Device, 1, true, certain)
			}
		case known && r.gone[h] <= asOf:
			m.name(r, content)
			r.add(content, group, wire.Device, 1, true, certain)
		}
	}
}

func (m *model) store(r *modelReplica, at Place, parent string, locals []string) {
	m.clock++
	defer m.spread()
	above := parent
	if parent != "" {
		h := handle(r.root, parent)
		if _, ok := r.table[h]; !ok && r.orphans[h] == nil {
			for _, other := range m.replicas {
				if _, ok := other.table[h]; ok {
					m.unite(other.life, r.life)
					m.name(r, parent)
					break
				}
			}
		}
		behind := parent
		for _, local := range locals { // a known block says what comes before it
			behind = join(behind, local)
			if _, ok := r.table[handle(r.root, behind)]; ok && r.table[h] == "" {
				m.name(r, parent)
				m.spread()
			}
		}
		if _, ok := r.table[h]; !ok {
			m.storeOrphans(r, at, parent, locals)
			return
		}
		if at.Tier == wire.Device && m.dense(at.Group) {
			p := place{parent, at.Group, wire.Device}
			if r.count[p] == 0 {
				r.add(parent, at.Group, wire.Device, 1, true, true)
			}
			m.prove(r, parent, at.Group, m.clock, true)
		}
	}
	for _, local := range locals {
		above = join(above, local)
		m.name(r, above)
		m.spread()
		p := place{above, at.Group, at.Tier}
		if at.Tier == wire.Device && m.dense(at.Group) {
			m.classify(r, p)
		}
		if r.count[p] > 0 {
			r.duplicates++
		}
		r.add(above, at.Group, at.Tier, 1, false, true)
	}
}

func (m *model) classify(r *modelReplica, p place) {
	var here, there, away bool
	for _, other := range m.replicas {
		for q := range other.ever {
			switch {
			case q.content != p.content || q.tier != wire.Device:
			case other == r:
				here = here || q.group == p.group
			case other.count[q] > 0:
				there = true
			default:
				away = true
			}
		}
	}
	switch l := &r.ledger; {
	case r.count[p] > 0:
		l.Duplicate++
	case there:
		l.Elsewhere++
	case here:
		l.EvictedHere++
	case away:
		l.EvictedElsewhere++
	default:
		l.First++
	}
}

func (r *modelReplica) orphan(h uint64) *modelOrphan {
	if r.orphans[h] == nil {
		r.orphans[h] = &modelOrphan{count: map[Place]int{}, certain: map[Place]bool{}, proven: map[int]modelProof{}}
	}
	return r.orphans[h]
}

func (m *model) storeOrphans(r *modelReplica, at Place, parent string, locals []string) {
	h := handle(r.root, parent)
	if o := r.orphan(h); !o.announced {
		r.orphanParents++
	}
	if at.Tier == wire.Device && m.dense(at.Group) {
		for k := h; ; {
			o := r.orphan(k)
			o.proven[at.Group] = modelProof{m.clock, true}
			in := Place{at.Group, wire.Device}
			o.certain[in] = true
			if o.count[in] == 0 {
				o.count[in] = 1
			}
			if !o.content {
				break
			}
			k = o.parent
		}
	}
	above, content := h, parent
	for _, local := range locals {
		content = join(content, local)
		k := handle(r.root, content)
		o := r.orphan(k)
		if !o.content {
			o.content, o.local, o.parent = true, local, above
		}
		if o.count[at] > 0 {
			r.duplicates++
		}
		if at.Tier == wire.Device && m.dense(at.Group) {
			if o.count[at] > 0 {
				r.ledger.Duplicate++
			} else {
				r.ledger.Unattached++
			}
		}
		o.announced = true
		o.certain[at] = true
		o.count[at]++
		above = k
	}
	r.sweep()
}

// spread lets chains go on whose beginning has become known, until none can.
func (m *model) spread() {
	for changed := true; changed; {
		changed = false
		for _, r := range m.replicas {
			for _, h := range r.handles() {
				o := r.orphans[h]
				if o == nil { // attached meanwhile
					continue
				}
				content, ok := r.table[h]
				if !ok && !o.announced {
					for _, other := range m.replicas {
						if c, there := other.table[h]; there {
							m.unite(other.life, r.life)
							content, ok = c, true
						}
					}
				}
				if !ok {
					continue
				}
				changed = true
				m.attach(r, h, o, content)
			}
		}
	}
}

func (r *modelReplica) handles() []uint64 {
	var hs []uint64
	for h := range r.orphans {
		hs = append(hs, h)
	}
	slices.Sort(hs)
	return hs
}

func (m *model) attach(r *modelReplica, h uint64, o *modelOrphan, content string) {
	delete(r.orphans, h)
	m.name(r, content)
	for in, n := range o.count {
		if n > 0 {
			r.add(content, in.Group, in.Tier, n, !o.announced, o.certain[in])
		}
	}
	for group, p := range o.proven {
		m.prove(r, parentOf(content), group, p.clock, p.certain)
	}
	for _, kid := range r.orphans {
		if kid.content && kid.parent == h {
			m.name(r, join(content, kid.local))
		}
	}
}

func (m *model) remove(r *modelReplica, at Place, content string) {
	m.clock++
	h := handle(r.root, content)
	p := place{content, at.Group, at.Tier}
	if _, ok := r.table[h]; ok {
		if r.count[p] > 0 {
			if r.count[p]--; r.count[p] == 0 {
				r.implied[p] = false
			}
			return
		}
	} else if o := r.orphans[h]; o != nil && o.count[at] > 0 {
		if o.count[at]--; o.count[at] == 0 {
			r.gone[h] = m.clock
		}
		r.sweep()
		return
	}
	r.unknown++
	r.gone[h] = m.clock
}

func (o *modelOrphan) resident() bool {
	for _, n := range o.count {
		if n > 0 {
			return true
		}
	}
	return false
}

// sweep forgets orphans that are not resident and lead to nothing.
func (r *modelReplica) sweep() {
	for changed := true; changed; {
		changed = false
		for h, o := range r.orphans {
			kids := false
			for _, k := range r.orphans {
				kids = kids || k.content && k.parent == h
			}
			if !kids && !o.resident() {
				delete(r.orphans, h)
				changed = true
			}
		}
	}
}

func (m *model) clear(r *modelReplica, all bool) {
	m.clock++
	for p := range r.count {
		if all || p.tier == wire.Device {
			delete(r.count, p)
			delete(r.implied, p)
		}
	}
	for _, o := range r.orphans {
		for in := range o.count {
			if all || in.Tier == wire.Device {
				delete(o.count, in)
			}
		}
		o.proven = map[int]modelProof{} // a proof of before the clear shows nothing after it
	}
	r.sweep()
}

func (r *modelReplica) doubt() {
	r.certain = map[place]bool{}
	for _, o := range r.orphans {
		o.certain = map[Place]bool{}
		for group, p := range o.proven {
			o.proven[group] = modelProof{p.clock, false}
		}
	}
}

// drop is a new process, of the same root or another.
func (m *model) drop(r *modelReplica, root int) {
	m.clear(r, true)
	m.begin(r, root)
}

// modelWindow is the sliding window of group 1 in blocks.
const modelWindow = 2

// matchHybrid tries every depth from the deepest on.
func (m *model) matchHybrid(r *modelReplica, locals []string) (depth, certain, upper int) {
	has := func(depth, group int) bool {
		return r.count[place{strings.Join(locals[:depth], "/"), group, wire.Device}] > 0
	}
	for upper < len(locals) && has(upper+1, 0) {
		upper++
	}
	for depth = upper; depth > 0; depth-- {
		tail := true
		for d := max(1, depth-modelWindow+1); d <= depth; d++ {
			tail = tail && has(d, 1)
		}
		if tail {
			break
		}
	}
	for ; certain < depth; certain++ {
		sure := true
		for group := range 2 {
			p := place{strings.Join(locals[:certain+1], "/"), group, wire.Device}
			sure = sure && (r.count[p] == 0 || r.certain[p])
		}
		if !sure {
			break
		}
	}
	return depth, certain, upper
}

// match is the plain way to answer.
func (m *model) match(r *modelReplica, locals []string) (tiers [wire.NumTiers]int, certain int) {
	content := ""
	stage := wire.Tier(0)
	sure := true
	for _, local := range locals {
		content = join(content, local)
		for stage < wire.NumTiers && r.count[place{content, 0, stage}]+r.count[place{content, 1, stage}] == 0 {
			stage++
		}
		if stage == wire.NumTiers {
			break
		}
		tiers[stage]++
		known := false
		for group := range 2 {
			p := place{content, group, stage}
			known = known || r.count[p] > 0 && r.certain[p]
		}
		if sure = sure && known; sure {
			certain++
		}
	}
	return tiers, certain
}

// numbers is what must equal the index's Stats.
func (r *modelReplica) numbers() Stats {
	s := Stats{Duplicates: r.duplicates, UnknownRemovals: r.unknown, OrphanParents: r.orphanParents, Ledger: r.ledger}
	on := map[string]bool{}
	for p, n := range r.count {
		if n == 0 {
			continue
		}
		if k := p.content + " " + strconv.Itoa(int(p.tier)); !on[k] {
			on[k] = true
			s.Resident[p.tier]++
		}
		if r.implied[p] {
			s.Implied++
		}
		if p.tier == wire.Device {
			s.Copies += n
		}
	}
	for _, o := range r.orphans {
		if o.announced && o.resident() {
			s.Orphans++
		}
		for in, n := range o.count {
			if in.Tier == wire.Device {
				s.Copies += n
			}
		}
	}
	return s
}
