package index

import (
	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// Residents calls do for every block that a replica has in a group for whole prefixes
// and whose chain is known, once for each tier that it is on. seq names the content of
// the whole chain up to the block, as Dynamo's sequence hash does.
func (x *Index) Residents(do func(name wire.Replica, tier wire.Tier, seq uint64, ns blockhash.Namespace)) {
	for id := 1; id < len(x.nodes); id++ {
		n := &x.nodes[id]
		for i := n.first; i != noSlot; i = x.slots[i].next {
			s := &x.slots[i]
			if r := x.byID[s.rep]; s.n > 0 && r.isDense(s.group) && x.firstOf(n, i) {
				do(r.name, s.tier, n.seq, n.ns)
			}
		}
	}
}

// firstOf reports whether no slot before this one says of the same tier of its
// replica that the node is there: several groups can have it.
func (x *Index) firstOf(n *node, at slotID) bool {
	s := &x.slots[at]
	for i := n.first; i != at; i = x.slots[i].next {
		o := &x.slots[i]
		if o.n > 0 && o.rep == s.rep && o.tier == s.tier && x.byID[o.rep].isDense(o.group) {
			return false
		}
	}
	return true
}

// Had reports whether a replica has the block named seq on a tier, in a group for
// whole prefixes, and whether it is remembered to have had it.
func (x *Index) Had(name wire.Replica, tier wire.Tier, seq uint64) (now, once bool) {
	r, id := x.replicas[name], x.bySeq.Get(seq)
	if r == nil || id == none {
		return false, false
	}
	for i := x.nodes[id].first; i != noSlot; i = x.slots[i].next {
		if s := &x.slots[i]; s.rep == r.id && s.tier == tier && r.isDense(s.group) {
			now, once = now || s.n > 0, once || s.held
		}
	}
	return now, once
}

// Depth is how many blocks of a chain, given by the names of its blocks from the root
// on, a replica has on the device without a hole, and how many on any tier.
func (x *Index) Depth(name wire.Replica, seqs []uint64) (device, all int) {
	for i, seq := range seqs {
		here, _ := x.Had(name, wire.Device, seq)
		if here && device == i {
			device++
		}
		for t := wire.Host; t < wire.NumTiers && !here; t++ {
			here, _ = x.Had(name, t, seq)
		}
		if !here {
			return device, i
		}
	}
	return device, len(seqs)
}
