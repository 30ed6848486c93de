package index

import (
	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/hashtable"
	"github.com/kvscope/kvscope/wire"
)

// replica finds or makes a replica.
func (x *Index) replica(name wire.Replica) *replica {
	r := x.replicas[name]
	if r == nil {
		r = &replica{id: int32(len(x.byID)), name: name, gen: 1, stamp: 1}
		r.reset(x)
		x.replicas[name] = r
		x.byID = append(x.byID, r)
	}
	return r
}

// reset empties a replica's tables for a new epoch.
func (r *replica) reset(x *Index) {
	for _, id := range r.table.All() {
		x.nodes[id].refs--
		x.prune(id)
	}
	r.table = hashtable.Table[nodeID]{}
	for k, o := range r.orphans {
		if !o.announced {
			x.stopWaiting(r, k)
		}
	}
	r.orphans = map[uint64]*orphan{}
	r.gone, r.goneKeys = nil, nil
	r.ident = identity{root: x.roots.fresh()}
	r.groups = nil
}

// step goes from a node (none: from the root) to its child with a local hash,
// none if there is none.
func (x *Index) step(id nodeID, local uint64) nodeID {
	seq := local
	if id != none {
		seq = blockhash.Next(x.nodes[id].seq, local, false)
	}
	if c := x.bySeq.Get(seq); c != none && x.nodes[c].parent == id && x.nodes[c].local == local {
		return c
	}
	return none
}

// child finds or makes the node with a local hash below a parent; none when
// the index is full or the content hash is taken by other content.
func (x *Index) child(parent nodeID, local uint64, ns blockhash.Namespace) nodeID {
	seq, depth := local, int32(1)
	if parent != none {
		seq = blockhash.Next(x.nodes[parent].seq, local, false)
		depth = x.nodes[parent].depth + 1
	}
	if id := x.bySeq.Get(seq); id != none {
		if n := &x.nodes[id]; n.parent != parent || n.local != local {
			x.Collisions++
			return none
		}
		if x.nodes[id].ns == 0 { // it may have come by its hash alone, which covers the namespace
			x.nodes[id].ns = ns
		}
		return id
	}
	if x.known >= x.opt.MaxBlocks {
		x.nodes[parent].refs++ // keeps it while others go
		x.makeRoom()
		x.nodes[parent].refs--
		if x.known >= x.opt.MaxBlocks {
			return none
		}
	}
	id := x.freeNodes
	if id != none {
		x.freeNodes = x.nodes[id].next
	} else {
		id = nodeID(len(x.nodes))
		x.nodes = append(x.nodes, node{})
	}
	p := &x.nodes[parent]
	x.nodes[id] = node{local: local, seq: seq, ns: ns, parent: parent, depth: depth, next: p.child}
	if p.child != none {
		x.nodes[p.child].prev = id
	}
	p.child = id
	x.bySeq.Set(seq, id)
	x.known++
	return id
}

// makeRoom forgets until there is room for a node, or nothing more to forget.
func (x *Index) makeRoom() {
	for x.known >= x.opt.MaxBlocks && x.dead.size > 0 {
		x.forgetOldest()
	}
	if x.known < x.opt.MaxBlocks {
		return
	}
	// Handles of blocks that their replica has no trace of keep nodes for
	// nothing: second ones, and those of prompts. Looking through all of them
	// is worth it once in a while.
	if x.full--; x.full < 0 {
		x.full = x.known / 8
		for _, r := range x.byID {
			x.sweep(r)
		}
	}
}

// sweep takes the handles without a meaning out of a replica's table.
func (x *Index) sweep(r *replica) {
	var stale []uint64
	for k, id := range r.table.All() {
		if !x.traced(id, r.id) {
			stale = append(stale, k)
		}
	}
	for _, k := range stale {
		id := r.table.Get(k)
		r.table.Remove(k)
		x.nodes[id].refs--
		x.prune(id)
	}
}

// traced reports whether a replica has, had or leads through a node.
func (x *Index) traced(id nodeID, rep int32) bool {
	for i := x.nodes[id].first; i != noSlot; i = x.slots[i].next {
		if x.slots[i].rep == rep {
			return true
		}
	}
	return false
}

// prune removes nodes that no replica holds, held, names or leads to, upwards.
func (x *Index) prune(id nodeID) {
	for id != none {
		n := &x.nodes[id]
		if n.first != noSlot || n.child != none || n.refs > 0 || n.depth == 0 {
			return
		}
		parent := n.parent
		if n.prev != none {
			x.nodes[n.prev].next = n.next
		} else {
			x.nodes[parent].child = n.next
		}
		if n.next != none {
			x.nodes[n.next].prev = n.prev
		}
		x.bySeq.Remove(n.seq)
		*n = node{next: x.freeNodes}
		x.freeNodes = id
		x.known--
		id = parent
	}
}

// find gives the slot of a node for (replica, group, tier), or nil. The
// pointer is good until a slot is made.
func (x *Index) find(id nodeID, rep int32, group int16, tier wire.Tier) *slot {
	for i := x.nodes[id].first; i != noSlot; {
		s := &x.slots[i]
		if s.rep == rep && s.group == group && s.tier == tier {
			return s
		}
		i = s.next
	}
	return nil
}

// slot gives the slot of a node for (replica, group, tier), making it if need
// be. The pointer is good until the next slot is made.
func (x *Index) slot(id nodeID, rep int32, group int16, tier wire.Tier) *slot {
	if s := x.find(id, rep, group, tier); s != nil {
		return s
	}
	i := x.freeSlots
	if i != noSlot {
		x.freeSlots = x.slots[i].next
	} else {
		i = slotID(len(x.slots))
		x.slots = append(x.slots, slot{})
	}
	n := &x.nodes[id]
	x.slots[i] = slot{next: n.first, rep: rep, group: group, tier: tier}
	n.first = i
	return &x.slots[i]
}

// holds reports whether a replica has the node anywhere, and on a tier.
func (x *Index) holds(id nodeID, rep int32, tier wire.Tier) (anywhere, there bool) {
	for i := x.nodes[id].first; i != noSlot; {
		s := &x.slots[i]
		if s.rep == rep && s.n > 0 {
			anywhere = true
			there = there || s.tier == tier
		}
		i = s.next
	}
	return anywhere, there
}

// evidence says what is known beside the fact that a block is resident.
type evidence struct {
	// implied: by proof, not by an announcement of its own.
	implied bool
	// chain: all its ancestors are resident in the same place too.
	chain bool
	// gen is the doubt generation that the evidence is of.
	gen uint32
}

// enter adds copies of a node to a slot and keeps all counts.
func (x *Index) enter(r *replica, id nodeID, group int16, tier wire.Tier, copies int32, how evidence) {
	anywhere, there := x.holds(id, r.id, tier)
	s := x.slot(id, r.id, group, tier)
	was := s.n
	s.n = addClamped(s.n, r.counted(s.n, copies))
	s.held = true
	if s.gen = max(s.gen, how.gen); was == 0 {
		s.gen = how.gen
	}
	if s.stamp = 0; how.chain {
		s.stamp = r.stamp
	}
	r.addCopies(tier, int(s.n-was))
	if s.implied && !how.implied {
		s.implied = false
		r.stats.Implied--
	}
	if !anywhere {
		x.heldBy(id, 1)
	}
	if !there {
		r.stats.Resident[tier]++
	}
	if was > 0 {
		return
	}
	x.pairs++
	if how.implied {
		s.implied = true
		r.stats.Implied++
	}
	if p := x.nodes[id].parent; p != none {
		x.slot(p, r.id, group, tier).kids++
	}
}

// counted is how many more copies of a block count that has n.
func (r *replica) counted(n, copies int32) int32 {
	if r.single {
		return max(0, min(copies, 1-n))
	}
	return copies
}

// addClamped adds without running over.
func addClamped(n, more int32) int32 { return int32(min(int64(n)+int64(more), 1<<30)) }

func (r *replica) addCopies(tier wire.Tier, n int) {
	if tier == wire.Device {
		r.stats.Copies += n
		r.stats.MaxCopies = max(r.stats.MaxCopies, r.stats.Copies)
	}
}

// heldBy changes the number of a node's holders.
func (x *Index) heldBy(id nodeID, by int32) {
	n := &x.nodes[id]
	before := n.holders
	n.holders += by
	x.resident += b2i(n.holders > 0) - b2i(before > 0)
	x.shared += b2i(n.holders > 1) - b2i(before > 1)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// leave takes copies of a node from a slot that has them. k is its handle, so
// that the table can forget it later.
func (x *Index) leave(r *replica, id nodeID, s *slot, copies int32, k uint64) {
	group, tier := s.group, s.tier
	s.n -= copies
	r.addCopies(tier, -int(copies))
	if s.n > 0 {
		return
	}
	x.pairs--
	if s.implied {
		r.stats.Implied--
		s.implied = false
	}
	if s.kids > 0 {
		r.stamp++ // a hole: descendants no longer have all their ancestors
	}
	if parent := x.nodes[id].parent; parent != none {
		if p := x.find(parent, r.id, group, tier); p != nil {
			p.kids--
		}
	}
	anywhere, there := x.holds(id, r.id, tier)
	if !there {
		r.stats.Resident[tier]--
	}
	if !anywhere {
		x.heldBy(id, -1)
	}
	x.dead.push(eviction{node: id, rep: r.id, key: k, seq: x.nodes[id].seq})
}

// settle ends an operation: what it made known is used everywhere, and the
// oldest evictions go when there are too many.
func (x *Index) settle() {
	x.afterJoin()
	for x.dead.size > max(x.opt.History, x.pairs) {
		x.forgetOldest()
	}
}

// forgetOldest drops the oldest remembered eviction, and the node with it if
// nothing else needs it.
func (x *Index) forgetOldest() {
	e := x.dead.pop()
	n := &x.nodes[e.node]
	if n.seq != e.seq || n.depth == 0 {
		return // the place is another node's by now
	}
	r := x.byID[e.rep]
	resident := false
	for at := &n.first; *at != noSlot; {
		i := *at
		s := &x.slots[i]
		if s.rep == e.rep {
			if s.n == 0 && s.kids == 0 {
				*at = s.next
				*s = slot{next: x.freeSlots}
				x.freeSlots = i
				continue
			}
			resident = true
		}
		at = &s.next
	}
	if !resident && r.table.Get(e.key) == e.node {
		r.table.Remove(e.key)
		n.refs--
	}
	x.prune(e.node)
}

// eviction is a (replica, node) pair whose count fell to 0.
type eviction struct {
	key, seq uint64
	node     nodeID
	rep      int32
}

// ring is a queue that grows as needed.
type ring struct {
	buf        []eviction
	head, size int
}

func (q *ring) push(e eviction) {
	if q.size == len(q.buf) {
		grown := make([]eviction, max(64, 2*len(q.buf)))
		for i := range q.size {
			grown[i] = q.buf[(q.head+i)%len(q.buf)]
		}
		q.buf, q.head = grown, 0
	}
	q.buf[(q.head+q.size)%len(q.buf)] = e
	q.size++
}

func (q *ring) pop() eviction {
	e := q.buf[q.head]
	q.head = (q.head + 1) % len(q.buf)
	q.size--
	return e
}
