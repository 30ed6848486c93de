package observe

import (
	"cmp"
	"slices"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// maxRouters is how many routers are kept; those beyond are not.
const maxRouters = 64

// scrapeRouter takes a page of a router's. One that cannot be read leaves what the
// last one said, which has its time.
func (o *Observer) scrapeRouter(rec wire.Record) {
	if o.opt.RouterPage == nil || rec.Err != "" {
		return
	}
	r, err := o.opt.RouterPage(rec.Text)
	if err != nil {
		o.note(wire.Record{At: rec.At, Replica: rec.Replica, Kind: wire.Note, Text: err.Error()})
		return
	}
	r.Name, r.At = rec.Replica, rec.At
	at, known := slices.BinarySearchFunc(o.routers, r, func(a, b diagnose.RouterPage) int { return cmp.Compare(a.Name, b.Name) })
	next := slices.Clone(o.routers)
	switch {
	case known:
		next[at] = r
	case len(next) < maxRouters:
		next = slices.Insert(next, at, r)
	}
	o.routers = next
}
