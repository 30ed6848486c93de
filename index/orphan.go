package index

import (
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// orphan is a block on one replica whose content hash is not known, because
// the chain before it is not, or because its store had no tokens for it. A
// block that is only known as somebody's parent is an orphan too.
type orphan struct {
	item
	parent *orphan
	kids   []*orphan
	nth    int // its place among its parent's kids
	slots  []orphanSlot
	// content tells an orphan whose local hash is, or can be, computed once
	// its parent is known.
	content bool
	// announced tells a block that was stored from one that was only named.
	announced bool
}

type orphanSlot struct {
	n     int32
	gen   uint32
	stamp uint32
	group int16
	tier  wire.Tier
	// proven is the newest proof, by a parent link, that it was resident.
	proven proof
}

// find gives the slot for a place, or nil.
func (o *orphan) find(group int16, tier wire.Tier) *orphanSlot {
	for i := range o.slots {
		if s := &o.slots[i]; s.group == group && s.tier == tier {
			return s
		}
	}
	return nil
}

func (o *orphan) slot(group int16, tier wire.Tier) *orphanSlot {
	if s := o.find(group, tier); s != nil {
		return s
	}
	o.slots = append(o.slots, orphanSlot{group: group, tier: tier})
	return &o.slots[len(o.slots)-1]
}

func (o *orphan) resident() bool {
	for i := range o.slots {
		if o.slots[i].n > 0 {
			return true
		}
	}
	return false
}

// enterOrphan adds a copy and keeps the replica's counts.
func (r *replica) enterOrphan(o *orphan, group int16, tier wire.Tier, announced bool) {
	counted := o.announced && o.resident()
	o.announced = o.announced || announced
	s := o.slot(group, tier)
	was := s.n
	s.n = addClamped(was, r.counted(was, 1))
	s.gen, s.stamp = r.gen, r.stamp
	r.addCopies(tier, int(s.n-was))
	if o.announced && !counted {
		r.stats.Orphans++
	}
}

// leaveOrphan takes a copy from a place and reports whether there was one.
func (x *Index) leaveOrphan(r *replica, o *orphan, group int16, tier wire.Tier) bool {
	s := o.find(group, tier)
	if s == nil || s.n == 0 {
		return false
	}
	s.n--
	r.addCopies(tier, -1)
	if s.n == 0 {
		r.noteGone(o.key, x.clock) // older proofs must not bring it back
	}
	if o.announced && !o.resident() {
		r.stats.Orphans--
	}
	x.dropIfIdle(r, o)
	return true
}

// emptyOrphan takes all copies out of the device tier, or out of all tiers.
func (r *replica) emptyOrphan(o *orphan, all bool) {
	was := o.resident()
	for i := range o.slots {
		s := &o.slots[i]
		if all || s.tier == wire.Device {
			r.stats.Cleared += uint64(s.n)
			r.addCopies(s.tier, -int(s.n))
			s.n, s.proven = 0, proof{} // nothing of before proves anything now
		}
	}
	if o.announced && was && !o.resident() {
		r.stats.Orphans--
	}
}

// dropIfIdle forgets an orphan that is not resident and leads to nothing, and
// those before it that then are so too.
func (x *Index) dropIfIdle(r *replica, o *orphan) {
	for o != nil && len(o.kids) == 0 && !o.resident() && r.orphans[o.key] == o {
		parent := o.parent
		x.detach(r, o)
		o = parent
	}
}

// detach takes an orphan out of the tables and away from its parent.
func (x *Index) detach(r *replica, o *orphan) {
	delete(r.orphans, o.key)
	if p := o.parent; p != nil {
		last := len(p.kids) - 1
		p.kids[o.nth], p.kids[last].nth = p.kids[last], o.nth
		p.kids = slices.Delete(p.kids, last, last+1)
		o.parent = nil
	}
	x.stopWaiting(r, o.key)
}

// stopWaiting takes a replica off the list for a handle.
func (x *Index) stopWaiting(r *replica, k uint64) {
	waiters, ok := x.waiting[k]
	if !ok {
		return
	}
	for i, w := range waiters {
		if w == r.id {
			waiters = append(waiters[:i:i], waiters[i+1:]...)
			break
		}
	}
	if len(waiters) == 0 {
		delete(x.waiting, k)
	} else {
		x.waiting[k] = waiters
	}
}

// orphan finds or makes the orphan for a handle; nil when there are too many.
func (x *Index) orphan(r *replica, k uint64) *orphan {
	if o := r.orphans[k]; o != nil {
		return o
	}
	if len(r.orphans) >= x.opt.MaxOrphans {
		return nil
	}
	o := &orphan{item: item{key: k}}
	r.orphans[k] = o
	return o
}

// missing finds or makes the orphan for a parent that was named but never
// announced.
func (x *Index) missing(r *replica, k uint64) *orphan {
	o := r.orphans[k]
	if o == nil {
		if o = x.orphan(r, k); o == nil {
			return nil
		}
		x.waiting[k] = append(x.waiting[k], r.id)
	}
	if !o.announced {
		r.stats.OrphanParents++
	}
	return o
}

// storeOrphans places a chain behind a parent whose content is not known.
func (x *Index) storeOrphans(r *replica, group int16, tier wire.Tier, parent uint64, items []item) {
	p := x.missing(r, parent)
	if p == nil {
		r.stats.Unindexed += uint64(len(items))
		return
	}
	if tier == wire.Device && r.isDense(group) {
		x.proveOrphan(r, p, group)
	}
	above := p
	for i := range items {
		o := x.orphan(r, items[i].key)
		if o == nil {
			r.stats.Unindexed += uint64(len(items) - i)
			break
		}
		if !o.content {
			x.link(r, o, items[i], above)
		}
		x.placeOrphan(r, o, group, tier)
		above = o
	}
	x.dropIfIdle(r, p) // where it got no block of its own
}

// link gives an orphan its content and the block before it. A chain that would
// bite its own tail stays as it is.
func (x *Index) link(r *replica, o *orphan, it item, above *orphan) {
	if len(o.kids) > 0 || above == o {
		for a := above; a != nil; a = a.parent {
			if a == o {
				return
			}
		}
	}
	x.stopWaiting(r, o.key)
	o.item, o.content, o.parent, o.nth = it, true, above, len(above.kids)
	above.kids = append(above.kids, o)
	if len(o.slots) > 0 {
		r.stamp++ // there is more before it now
	}
}

// placeOrphan makes an orphan resident.
func (x *Index) placeOrphan(r *replica, o *orphan, group int16, tier wire.Tier) {
	again := o.slot(group, tier).n > 0
	if again {
		r.stats.Duplicates++
	}
	if tier == wire.Device && r.isDense(group) {
		c := unattached
		if again {
			c = duplicate
		}
		r.stats.Ledger.count(c)
	}
	r.enterOrphan(o, group, tier, true)
}

// proveOrphan takes a parent link as evidence for a chain without beginning.
func (x *Index) proveOrphan(r *replica, o *orphan, group int16) {
	for ; o != nil; o = o.parent {
		s := o.slot(group, wire.Device)
		s.proven = proof{clock: x.clock, gen: r.gen}
		switch {
		case s.n == 0:
			r.enterOrphan(o, group, wire.Device, false)
		case s.stamp == r.stamp:
			return
		default:
			s.gen, s.stamp = r.gen, r.stamp
		}
	}
}
