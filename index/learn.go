package index

import (
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// learn records which block a handle names on a replica, and lets the chains
// go on that waited for it. keys, if not nil, are the handles of the chain up
// to n on this replica, root first.
func (x *Index) learn(r *replica, k uint64, id nodeID, keys []uint64) {
	type pair struct {
		r  *replica
		k  uint64
		id nodeID
	}
	if r.table.Get(k) == id && r.orphans[k] == nil && len(x.waiting) == 0 {
		return
	}
	x.nodes[id].refs++ // keeps it, as all in work, while others are made
	work := []pair{{r, k, id}}
	for first := true; len(work) > 0; first = false {
		p := work[len(work)-1]
		work = work[:len(work)-1]
		x.name(p.r, p.k, p.id)
		if o := p.r.orphans[p.k]; o != nil {
			for _, kid := range x.attach(p.r, o, p.id, keys) {
				ns := x.nodes[p.id].ns
				if c := x.child(p.id, kid.hash(false, ns), ns); c != none {
					x.keepText(c, &kid.item)
					x.nodes[c].refs++
					work = append(work, pair{p.r, kid.key, c})
				}
			}
		}
		keys = nil // only the first pair's
		for _, w := range x.waiting[p.k] {
			if w := x.byID[w]; w != p.r && x.shares(w, p.r, p.k) {
				x.nodes[p.id].refs++
				work = append(work, pair{w, p.k, p.id})
			}
		}
		if x.nodes[p.id].refs--; !first {
			x.prune(p.id)
		}
	}
	x.afterJoin()
}

// name enters a handle into a replica's table. A handle that named another
// block before is believed now: an engine has one block for a hash.
func (x *Index) name(r *replica, k uint64, id nodeID) {
	old := r.table.Get(k)
	if old == id {
		return
	}
	r.table.Set(k, id)
	x.nodes[id].refs++
	if old != none {
		x.emptyNode(r, old, k, true)
		for i := x.nodes[old].first; i != noSlot; i = x.slots[i].next {
			if s := &x.slots[i]; s.rep == r.id {
				s.held = false // a proof must not bring back what has no name
			}
		}
		x.nodes[old].refs--
	}
	switch n := &x.nodes[id]; {
	case n.root == 0:
		n.handle, n.root = k, r.ident.root
	case n.handle == k && isHash(k):
		x.join(n.root, r.ident.root)
	}
}

// isHash tells handles that look like hashes. Where two replicas use the same
// one they share recipe and root, because by chance it would not happen; small
// numbers are no hashes and prove nothing.
func isHash(k uint64) bool { return k>>32 != 0 }

// shares reports whether a handle means the same on two replicas that both
// use it, and remembers what that says about their roots.
func (x *Index) shares(a, b *replica, k uint64) bool {
	if isHash(k) {
		x.join(a.ident.root, b.ident.root)
	}
	return x.roots.same(a.ident.root, b.ident.root)
}

func (x *Index) join(a, b rootID) {
	if x.roots.join(a, b) {
		x.joined = true
	}
}

// afterJoin looks again at what waits, because replicas turned out to share a
// root: a handle that means something on one now means it on all of them.
func (x *Index) afterJoin() {
	for x.joined {
		x.joined = false
		for _, r := range x.byID {
			r.stamp++ // handles of more ancestors may be known
			x.findMissing(r)
		}
	}
}

// findMissing looks for the parents that a replica's chains wait for on the
// replicas that share its root.
func (x *Index) findMissing(r *replica) {
	var missing []uint64
	for k, o := range r.orphans {
		if !o.announced {
			missing = append(missing, k)
		}
	}
	slices.Sort(missing)
	for _, k := range missing {
		if id := x.elsewhere(r, k); id != none && r.orphans[k] != nil {
			x.learn(r, k, id, nil)
		}
	}
}

// attach turns an orphan into residency of a node, and gives back the orphans
// behind it, which can now be attached in turn.
func (x *Index) attach(r *replica, o *orphan, id nodeID, keys []uint64) []*orphan {
	counted := o.announced && o.resident()
	for _, s := range o.slots {
		if s.n > 0 {
			r.addCopies(s.tier, -int(s.n))
			x.enter(r, id, s.group, s.tier, s.n, evidence{implied: !o.announced, gen: s.gen})
		}
		if s.proven.clock > 0 {
			s.proven.keys = keys
			x.prove(r, x.nodes[id].parent, s.group, s.proven)
		}
	}
	if counted {
		r.stats.Orphans--
	}
	kids := o.kids
	o.kids = nil
	for _, kid := range kids {
		kid.parent = nil
	}
	x.detach(r, o)
	return kids
}

// proof is when a chain was proved, and what is known of it.
type proof struct {
	clock uint64
	gen   uint32 // the doubt generation then
	// keys are the handles of the chain on this replica, root first, if known.
	keys []uint64
}

// prove takes a parent link as evidence: the block that it named and all its
// ancestors were resident at a time. What is known of a block's removal since
// then stands, and an ancestor whose handle is not known is left out, because
// its removal could not be recognised. It reports whether all are resident now.
func (x *Index) prove(r *replica, id nodeID, group int16, at proof) bool {
	whole := true
	how := evidence{implied: true, chain: true, gen: at.gen}
walk:
	for ; id != none; id = x.nodes[id].parent {
		s := x.find(id, r.id, group, wire.Device)
		var k uint64
		var known bool
		if s == nil || s.n == 0 {
			if k, known = x.handleOn(r, id, at.keys); known && r.orphans[k] != nil {
				x.learn(r, k, id, nil) // it is one of those that wait
				s = x.find(id, r.id, group, wire.Device)
			}
		}
		switch {
		case s != nil && s.n > 0:
			if s.stamp == r.stamp && s.gen >= at.gen {
				break walk // the rest was seen to before
			}
			s.stamp, s.gen = r.stamp, max(s.gen, at.gen)
		case s != nil && s.held && s.gen >= r.epoch:
			if whole = whole && at.clock == x.clock; at.clock == x.clock {
				x.enter(r, id, group, wire.Device, 1, how)
			}
		case known && r.gone[k] <= at.clock:
			x.name(r, k, id)
			x.enter(r, id, group, wire.Device, 1, how)
		default:
			whole = false
		}
	}
	if !whole {
		r.stamp++ // what was stamped on the way has not all its ancestors
	}
	return whole
}

// handleOn gives a block's handle on a replica, if it is known.
func (x *Index) handleOn(r *replica, id nodeID, keys []uint64) (uint64, bool) {
	n := &x.nodes[id]
	switch {
	case int(n.depth) <= len(keys):
		return keys[n.depth-1], true
	case n.root != 0 && x.roots.same(n.root, r.ident.root):
		return n.handle, true
	}
	return 0, false
}

// infer finds the content of a parent that was never announced on a replica:
// a replica of the same root knows its handle, or a block behind it is known.
func (x *Index) infer(r *replica, parent uint64, items []item) nodeID {
	found := none
	if r.orphans[parent] == nil { // else we were told when it became known
		found = x.elsewhere(r, parent)
	}
	for i := 0; found == none && i < len(items); i++ {
		found = r.table.Get(items[i].key)
		for up := 0; found != none && up <= i; up++ {
			found = x.nodes[found].parent
		}
	}
	if found != none {
		x.learn(r, parent, found, nil)
	}
	return found
}

// elsewhere looks for a replica that knows a handle.
func (x *Index) elsewhere(r *replica, k uint64) nodeID {
	for _, other := range x.byID {
		if other != r {
			if id := other.table.Get(k); id != none && x.shares(r, other, k) {
				return id
			}
		}
	}
	return none
}

// noteGone remembers a removal that meant nothing to us, for the day when the
// handle gets a meaning.
func (r *replica) noteGone(k, clock uint64) {
	const most = 1 << 16
	if r.gone == nil {
		r.gone = map[uint64]uint64{}
	}
	if _, again := r.gone[k]; !again {
		if len(r.goneKeys) == most {
			delete(r.gone, r.goneKeys[0])
			r.goneKeys = r.goneKeys[1:]
		}
		r.goneKeys = append(r.goneKeys, k)
	}
	r.gone[k] = clock
	r.stamp++
}
