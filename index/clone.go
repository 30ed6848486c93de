package index

import (
	"maps"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// Clone copies an Index, so that the copy can go its own way. The tokens kept
// for showing are shared, so both must belong to one goroutine.
func (x *Index) Clone() *Index {
	c := *x
	c.nodes, c.slots = slices.Clone(x.nodes), slices.Clone(x.slots)
	c.bySeq = x.bySeq.Clone()
	c.replicas = make(map[wire.Replica]*replica, len(x.replicas))
	c.byID = make([]*replica, len(x.byID))
	for i, r := range x.byID {
		c.byID[i] = r.clone()
		c.replicas[r.name] = c.byID[i]
	}
	c.waiting = make(map[uint64][]int32, len(x.waiting))
	for k, ids := range x.waiting {
		c.waiting[k] = slices.Clone(ids)
	}
	c.roots = rootTable{
		up: slices.Clone(x.roots.up), byName: maps.Clone(x.roots.byName), recipe: maps.Clone(x.roots.recipe),
	}
	c.dead.buf = slices.Clone(x.dead.buf)
	c.scratch = new(matcher)
	return &c
}

func (r *replica) clone() *replica {
	c := *r
	c.table = r.table.Clone()
	c.gone = maps.Clone(r.gone)
	c.goneKeys = slices.Clone(r.goneKeys)
	c.groups = slices.Clone(r.groups)
	c.orphans = make(map[uint64]*orphan, len(r.orphans))
	for k, o := range r.orphans {
		d := *o
		d.slots = slices.Clone(o.slots)
		c.orphans[k] = &d
	}
	for _, d := range c.orphans {
		if d.parent != nil {
			d.parent = c.orphans[d.parent.key]
		}
		kids := make([]*orphan, len(d.kids))
		for i, kid := range d.kids {
			kids[i] = c.orphans[kid.key]
		}
		d.kids = kids
	}
	return &c
}

// Size estimates the memory of an Index in bytes, tokens kept for showing left
// out.
func (x *Index) Size() int {
	const nodeSize, slotSize, deadSize, entrySize, orphanSize = 72, 28, 24, 12, 200
	n := nodeSize*cap(x.nodes) + slotSize*cap(x.slots) + deadSize*len(x.dead.buf) + entrySize*x.bySeq.Places()
	for _, r := range x.byID {
		n += entrySize*r.table.Places() + orphanSize*len(r.orphans) + 64*len(r.gone)
	}
	return n
}
