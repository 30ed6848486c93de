package stream

import (
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// Clone copies a Tracker, so that one recording can be followed from a moment
// more than once. Batches and payloads, which never change, are shared.
func (t *Tracker) Clone() *Tracker {
	c := &Tracker{
		opt: t.opt, seed: t.seed, Dropped: t.Dropped, heldBytes: t.heldBytes, heldLimit: t.heldLimit,
		replicas: make(map[wire.Replica]*replica, len(t.replicas)),
		order:    make([]*replica, 0, len(t.order)),
		ranks:    make(map[wire.Replica][]*replica, len(t.ranks)),
	}
	for _, r := range t.order {
		d := *r
		d.State = r.State.clone()
		d.reasons = slices.Clone(r.reasons)
		d.held = slices.Clone(r.held)
		if r.recent != nil {
			recent := *r.recent
			d.recent = &recent
		}
		c.replicas[d.Replica] = &d
		c.order = append(c.order, &d)
	}
	for name, subs := range t.ranks {
		for _, sub := range subs {
			c.ranks[name] = append(c.ranks[name], c.replicas[sub.Replica])
		}
	}
	return c
}
