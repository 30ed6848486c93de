package explain

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// StaleAfter is how old a load may be, in nanoseconds, before it is marked:
// metrics pages are fetched every two seconds.
const StaleAfter = 10e9

// Load is what is known of a replica's load.
type Load struct {
	route.Load
	// From says where it comes from, such as "the engine's metrics", and is empty
	// where nothing is known. At is when it was told, 0 where it was given by hand.
	From string
	At   wire.Time
	// Missing names the fields that nobody told, which count as 0.
	Missing []string
	// Note says what else to know of it.
	Note string
}

// WorkerLoad is a replica's load as a router's own metrics page has it. Numbers
// that the page does not say are negative.
type WorkerLoad struct {
	Replica                         wire.Replica
	PrefillTokens, Blocks, Requests float64
}

// Page is what a router's metrics page said at a moment.
type Page struct {
	At      wire.Time
	Workers []WorkerLoad
}

// Loads is the book of what routers tell each other over Dynamo's event plane. It
// is for one goroutine.
type Loads struct {
	book *route.Sequences
	// routers are those who booked a request.
	routers map[uint64]*router
	// links are those of the publishers.
	links map[wire.Replica]wire.LinkState
	// pairing compares the routers' choices.
	pairing pairing
	// Unread counts messages and events that could not be read.
	Unread int
}

// router is how far a publisher of bookings was heard.
type router struct {
	name wire.Replica
	next uint64
	// missed is when something of it may last have been missed, 0 if never.
	missed wire.Time
	books  bool
}

// maxRouters bounds what hostile messages can make us keep.
const maxRouters = 1 << 10

// NewLoads makes an empty book.
func NewLoads() *Loads {
	return &Loads{
		book: route.NewSequences(route.PlaneBooking()), routers: map[uint64]*router{},
		links: map[wire.Replica]wire.LinkState{},
	}
}

// Clone copies a book, so that each copy can go its own way.
func (l *Loads) Clone() *Loads {
	c := *l
	c.book = l.book.Clone()
	c.routers = make(map[uint64]*router, len(l.routers))
	for id, r := range l.routers {
		own := *r
		c.routers[id] = &own
	}
	c.links = maps.Clone(l.links)
	return &c
}

// Size is about how much memory the book takes, in bytes.
func (l *Loads) Size() int { return l.book.Size() }

// Push books a message of the plane, and reports whether it was one of bookings.
// It notes the links of those who send such messages.
func (l *Loads) Push(rec wire.Record) bool {
	if rec.Kind == wire.Link && rec.Link != wire.LinkUnknown {
		if _, known := l.links[rec.Replica]; known {
			l.links[rec.Replica] = rec.Link
		}
	}
	if rec.Kind != wire.Frames {
		return false
	}
	all, ok, err := wire.DecodeActivity(rec.Frames)
	if !ok {
		return false
	}
	publisher, _, _ := wire.PlaneSender(rec.Frames)
	_, seq, _, frames := wire.SplitFrames(rec.Frames)
	if err != nil || frames != nil {
		l.Unread++
		return true
	}
	r := l.heard(publisher, seq, rec)
	if r == nil {
		l.Unread++
		return true
	}
	for i := range all {
		a := &all[i]
		switch {
		case a.Kind == wire.BadActivity:
			l.Unread++
			r.missed = rec.At
		case a.Kind == wire.RequestAdded:
			r.books = true
			router := a.Router
			if router == 0 {
				router = publisher
			}
			l.pairing.book(rec.At, router, a.Replica)
		}
		l.book.Apply(rec.At, a)
	}
	return true
}

// heard notes a message, and what is missing before it. A number that falls is a
// new process's, whose first messages were missed unless it is 0.
func (l *Loads) heard(publisher, seq uint64, rec wire.Record) *router {
	r := l.routers[publisher]
	if r == nil {
		if len(l.routers) >= maxRouters {
			return nil
		}
		r = &router{}
		l.routers[publisher] = r
	}
	if seq != r.next && seq != 0 {
		r.missed = rec.At
	}
	r.next, r.name = seq+1, rec.Replica
	if _, known := l.links[r.name]; !known {
		l.links[r.name] = wire.LinkUnknown
	}
	return r
}

// booking says whether there is a book to speak of at a moment, and why it may
// lack requests. Without router_replica_sync only workers are heard, who tell of
// prefills that are done and of no booking.
func (l *Loads) booking(now wire.Time) (ok bool, lacks string) {
	expiry := route.PlaneBooking().Expiry
	for _, id := range slices.Sorted(maps.Keys(l.routers)) {
		r := l.routers[id]
		if !r.books {
			continue
		}
		ok = true
		switch link := l.links[r.name]; {
		case link != wire.LinkUp && link != wire.LinkUnknown:
			lacks = "the link to a router is " + link.String()
		case r.missed != 0 && now-r.missed < expiry && lacks == "":
			lacks = fmt.Sprintf("a router's messages from before are missing: requests that began then are not in it, for %d s more at the most",
				int(math.Ceil(float64(expiry-(now-r.missed))/1e9)))
		}
	}
	if l.book.Refused > 0 && lacks == "" {
		lacks = "there were more bookings than are kept"
	}
	return ok, lacks
}

// Where loads come from, for people.
const (
	fromPlane   = "the routers' bookings"
	fromPage    = "the router's metrics"
	fromMetrics = "the engine's metrics"
	fromHand    = "by hand"
)

// of gives a replica's load as a request with these sequence hashes sees it: what
// routers booked if they tell; else, field by field, what a router's page says or
// the engine's own metrics do. An engine counts blocks that it generates too, and
// says nothing of prompt tokens. Its queue and the usage of its cache nobody else
// tells: they are always its own, and From is about the rest.
func (l *Loads) of(now wire.Time, r *Replica, page *Page, sequence []uint64) Load {
	out := l.active(now, r, page, sequence)
	engine := ofEngine(r)
	fresh := now-engine.at <= StaleAfter || out.State == route.LoadStale
	tell := func(field int, to func(v float64)) {
		if v := engine.is[field]; fresh && v >= 0 {
			to(v)
			return
		}
		out.Missing = append(out.Missing, loadFields[field])
	}
	tell(waiting, func(v float64) { out.Waiting = int(math.Round(min(v, math.MaxInt32))) })
	tell(usage, func(v float64) { out.Usage = min(v, 1) })
	return out
}

// active is the load but for the engine's queue and usage.
func (l *Loads) active(now wire.Time, r *Replica, page *Page, sequence []uint64) Load {
	if ok, lacks := l.booking(now); ok {
		l.book.Expire(now)
		out := Load{Load: l.book.Load(r.Name, sequence), From: fromPlane, At: now, Note: lacks}
		if lacks != "" {
			out.State = route.LoadStale
		}
		return out
	}
	out := Load{Load: route.Load{State: route.LoadKnown}, At: now}
	sources := [...]told{page.about(r.Name, now), ofEngine(r)}
	for i, to := range []*int{&out.PrefillTokens, &out.Blocks, &out.Requests} {
		at := slices.IndexFunc(sources[:], func(t told) bool { return t.is[i] >= 0 })
		if at < 0 {
			out.Missing = append(out.Missing, loadFields[i])
			continue
		}
		t := &sources[at]
		*to = int(math.Round(min(t.is[i], math.MaxInt32)))
		out.At = min(out.At, t.at)
		switch {
		case out.From == "":
			out.From = t.from
		case out.From != t.from:
			out.From += " and " + t.from
		}
	}
	switch {
	case out.From == "":
		return Load{Missing: out.Missing}
	case now-out.At > StaleAfter:
		out.State = route.LoadStale
		out.Note = fmt.Sprintf("it is %d s old", (now-out.At)/1e9)
	}
	return out
}

// loadFields are the fields of a load, as route.EditFields names them.
var loadFields = [...]string{
	"active_prefill_tokens", "active_decode_blocks", "active_requests", waiting: "waiting_requests", usage: "kv_cache_usage",
}

// The fields that an engine alone tells.
const (
	waiting = iota + 3
	usage
)

// told is what one source says of the fields of a load; negative is nothing.
type told struct {
	from string
	at   wire.Time
	is   [len(loadFields)]float64
}

var nothing = [len(loadFields)]float64{-1, -1, -1, -1, -1}

func (p *Page) about(name wire.Replica, now wire.Time) told {
	out := told{from: fromPage, at: now, is: nothing}
	if p == nil {
		return out
	}
	if p.At != 0 {
		out.at = min(p.At, now)
	}
	for _, w := range p.Workers {
		if w.Replica == name {
			out.is = [...]float64{w.PrefillTokens, w.Blocks, w.Requests, waiting: -1, usage: -1}
		}
	}
	return out
}

// edited says that a field was given by hand.
func (l *Load) edited(field string) {
	at := slices.Index(l.Missing, field)
	if at >= 0 {
		l.Missing = slices.Delete(slices.Clone(l.Missing), at, at+1)
	}
	if !strings.HasSuffix(l.From, fromHand) {
		l.From = strings.TrimPrefix(l.From+" and "+fromHand, " and ")
	}
}

func ofEngine(r *Replica) told {
	out := told{from: fromMetrics, at: r.Load.At, is: nothing}
	if !r.Load.Known {
		return out
	}
	out.is[2] = r.Load.Running + r.Load.Waiting
	out.is[waiting], out.is[usage] = r.Load.Waiting, r.Load.KVUsage
	if r.Capacity > 0 {
		out.is[1] = r.Load.KVUsage * float64(r.Capacity)
	}
	return out
}
