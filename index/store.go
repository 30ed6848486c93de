package index

import (
	"math"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// Block is a stored block: the engine's handle and the local content hash.
type Block struct {
	Handle wire.Handle
	Local  uint64
}

// Place says where blocks are: a KV-cache group (0 for models with one) and a
// tier.
type Place struct {
	Group int
	Tier  wire.Tier
}

// Store says that blocks, a chain in order, became resident on a replica.
type Store struct {
	Place
	// Parent is the handle of the block before the first; unset at a root.
	Parent wire.Handle
	Blocks []Block
	// Namespace is the seed of the local hashes at a root; children inherit it.
	Namespace blockhash.Namespace
}

// Store applies a store whose local hashes are known.
func (x *Index) Store(name wire.Replica, st Store) {
	r := x.replica(name)
	x.clock++
	items := make([]item, len(st.Blocks))
	for i, b := range st.Blocks {
		items[i] = item{key: key(b.Handle), local: b.Local}
	}
	x.store(r, st.inBounds(), st.Parent, items, st.Namespace)
	x.settle()
}

// inBounds gives a place with the numbers that are kept.
func (p Place) inBounds() Place {
	return Place{Group: min(max(p.Group, 0), math.MaxInt16), Tier: min(p.Tier, wire.External)}
}

// item is one block on its way into the index. Its local hash is known, or is
// computed from the store's text once the chain's namespace is.
type item struct {
	key   uint64
	local uint64
	text  *text
	at    int // position within text
}

func (it *item) hash(root bool, ns blockhash.Namespace) uint64 {
	if it.text == nil {
		return it.local
	}
	return it.text.local(it.at, root, ns)
}

// keepText keeps the tokens of a block, so that it can be shown.
func (x *Index) keepText(id nodeID, it *item) {
	if it.text != nil {
		x.text.add(x.nodes[id].seq, it.text.window(it.at))
	}
}

// store places a chain below its parent, or among the orphans.
func (x *Index) store(r *replica, at Place, parent wire.Handle, items []item, ns blockhash.Namespace) {
	r.stats.Stored += uint64(len(items))
	group := int16(at.Group)
	above, chain := none, !parent.Set
	if parent.Set {
		p := key(parent)
		above = r.table.Get(p)
		if above == none {
			above = x.infer(r, p, items)
		}
		if above == none {
			x.storeOrphans(r, group, at.Tier, p, items)
			return
		}
		if at.Tier == wire.Device && r.isDense(group) {
			if s := x.find(above, r.id, group, wire.Device); s == nil || s.n == 0 {
				x.enter(r, above, group, wire.Device, 1, evidence{implied: true, gen: r.gen})
			}
			chain = x.prove(r, above, group, proof{clock: x.clock, gen: r.gen})
		}
		ns = x.nodes[above].ns
	}
	t := x.turnAt(above)
	for i := range items {
		it := &items[i]
		id := x.child(above, it.hash(above == none, ns), ns)
		if id == none {
			r.stats.Unindexed += uint64(len(items) - i)
			return
		}
		leaf := x.nodes[id].child == none
		x.keepText(id, it)
		t.take(x.place(r, id, group, at.Tier, it.key, chain), leaf)
		above = id
	}
	r.stats.Turns.count(&t)
}

// place makes a node resident under a handle and tells whoever waited for it.
// chain says that all its ancestors are resident there too. It gives the row of the
// ledger that the block went to.
func (x *Index) place(r *replica, id nodeID, group int16, tier wire.Tier, k uint64, chain bool) class {
	x.learn(r, k, id, nil) // first, because it may tell that the block is here already
	c := uncounted
	if tier == wire.Device && r.isDense(group) {
		c = x.classify(r, id, group)
		r.stats.Ledger.count(c)
	}
	if s := x.find(id, r.id, group, tier); s != nil && s.n > 0 {
		r.stats.Duplicates++
	}
	x.enter(r, id, group, tier, 1, evidence{chain: chain, gen: r.gen})
	return c
}

// class is a row of the ledger.
type class uint8

const (
	first class = iota
	elsewhere
	evictedHere
	evictedElsewhere
	duplicate
	unattached
	// uncounted is a block that is not on the device, or in a group that needs
	// only some.
	uncounted
)

func (l *Ledger) count(c class) {
	rows := [...]*uint64{&l.First, &l.Elsewhere, &l.EvictedHere, &l.EvictedElsewhere, &l.Duplicate, &l.Unattached}
	*rows[c]++
}

// classify says why a block has to be stored on the device, before it is.
func (x *Index) classify(r *replica, id nodeID, group int16) class {
	var here, there, away bool
	for i := x.nodes[id].first; i != noSlot; {
		s := &x.slots[i]
		i = s.next
		switch {
		case s.tier != wire.Device || !s.held:
		case s.rep == r.id:
			if s.n > 0 && s.group == group {
				return duplicate
			}
			here = here || s.group == group
		case x.byID[s.rep].model != r.model:
		case s.n > 0:
			there = true
		default:
			away = true
		}
	}
	switch {
	case there:
		return elsewhere
	case here:
		return evictedHere
	case away:
		return evictedElsewhere
	}
	return first
}

// Remove says that one copy of each block left a place. Handles that name
// nothing resident there are counted.
func (x *Index) Remove(name wire.Replica, at Place, handles []wire.Handle) {
	r := x.replica(name)
	x.clock++
	r.stats.Removed += uint64(len(handles))
	at = at.inBounds()
	for _, h := range handles {
		x.remove(r, int16(at.Group), at.Tier, key(h))
	}
	x.settle()
}

func (x *Index) remove(r *replica, group int16, tier wire.Tier, k uint64) {
	if id := r.table.Get(k); id != none {
		if s := x.find(id, r.id, group, tier); s != nil && s.n > 0 {
			x.leave(r, id, s, 1, k)
			return
		}
	} else if o := r.orphans[k]; o != nil && x.leaveOrphan(r, o, group, tier) {
		return
	}
	r.stats.UnknownRemovals++
	r.noteGone(k, x.clock)
}

// Clear says that a replica's device tier was emptied, in every group; with
// all, that every tier was.
func (x *Index) Clear(name wire.Replica, all bool) {
	r := x.replica(name)
	x.clock++
	r.stats.LastClear = r.stats.Copies
	x.empty(r, all)
	x.settle()
	r.stats.MaxCopies = 0
	r.stamp++
}

// empty takes all blocks out of a replica's device tier, or of all its tiers.
func (x *Index) empty(r *replica, all bool) {
	for k, id := range r.table.All() {
		x.emptyNode(r, id, k, all)
	}
	for _, o := range r.orphans {
		r.emptyOrphan(o, all)
	}
	for _, o := range r.orphans {
		x.dropIfIdle(r, o)
	}
}

// emptyNode takes a node out of a replica's device tier, or of all its tiers.
func (x *Index) emptyNode(r *replica, id nodeID, k uint64, all bool) {
	for i := x.nodes[id].first; i != noSlot; {
		s := &x.slots[i]
		i = s.next
		if s.rep == r.id && s.n > 0 && (all || s.tier == wire.Device) {
			r.stats.Cleared += uint64(s.n)
			x.leave(r, id, s, s.n, k)
		}
	}
}

// Drop says that a replica's process is a new one: nothing is resident, and no
// old handle means anything any more.
func (x *Index) Drop(name wire.Replica) {
	r := x.replica(name)
	x.clock++
	r.stats.LastDrop = r.stats.Copies
	x.empty(r, true)
	x.settle()
	r.reset(x)
	r.stats.MaxCopies = 0
	x.Doubt(name)
	r.epoch = r.gen
}

// Forget makes as if a replica had never been seen, because a replay is about
// to tell its story from an earlier point.
func (x *Index) Forget(name wire.Replica) {
	r := x.replica(name)
	x.Drop(name)
	for id := range x.nodes {
		n := &x.nodes[id]
		for at := &n.first; *at != noSlot; {
			i := *at
			s := &x.slots[i]
			if s.rep != r.id {
				at = &s.next
				continue
			}
			*at = s.next
			*s = slot{next: x.freeSlots}
			x.freeSlots = i
		}
	}
	for id := range x.nodes {
		x.prune(nodeID(id))
	}
	r.stats = Stats{}
}

// Doubt says that events of a replica were missed: what is resident so far is
// no longer certain.
func (x *Index) Doubt(name wire.Replica) {
	r := x.replica(name)
	r.gen++
	r.stamp++
}
