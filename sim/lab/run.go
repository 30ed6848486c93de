package lab

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// run is a run under way.
type run struct {
	o *Options
	w *Workload
	// byCache says that the policy reads matches: what routers believe and which
	// blocks they book is kept for such alone. bySession says that it goes by sessions:
	// clients send their keys to such alone, or rules that prefer a key to the prompt
	// would not be seen at work.
	byCache, bySession bool

	now      wire.Time
	queue    queue
	replicas []replica
	routers  []router
	lossy    *rand.Rand
	// believed is what the events say, as far as they have come; late ones wait.
	believed *holders
	late     line[lateChange]
	// peers are bookings on their way to the other routers.
	peers   line[peerChange]
	cands   []route.Candidate
	match   []int
	req     route.Request
	flights []flight
	spare   []int32
	// started counts the roots that have come, and arrived all requests.
	started, arrived int
	m                meter
}

// replica is one engine.
type replica struct {
	cache      cache
	waiting    line[int32] // flights
	running    int
	prefilling bool
	// backlog is how many prompt tokens it has yet to compute, and queued how many
	// blocks those that wait will need.
	backlog, queued int
}

type router struct {
	rules *route.Router
	book  *book
}

// flight is a request on its way.
type flight struct {
	seq     sequence
	request int32
	router  int32
	entry   entry
	// arrived is when it came, and uncached how many of its tokens count for the
	// backlog.
	arrived  wire.Time
	uncached int
	// believed is the match that the router saw, in blocks.
	believed int
}

type lateChange struct {
	due     wire.Time
	replica int32
	change  change
}

type peerChange struct {
	due    wire.Time
	router int32 // who knows it already
	kind   bookChange
	entry  entry
}

// Run runs a workload by one policy. It fails on options that make no sense, and
// where ctx ends. It is pure: the same options give the same result.
func Run(ctx context.Context, o Options) (*Result, error) {
	return simulate(ctx, o, func(int) {})
}

// simulate is Run, which tells how many more requests have come every now and then.
func simulate(ctx context.Context, o Options, tell func(n int)) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	policy := o.Policy.Policy()
	r := &run{o: &o, w: o.Workload, byCache: policy.Sticks == route.CacheAffinity, bySession: policy.Sticks == route.SessionAffinity}
	all := o.Replicas + o.ScaleBy
	r.lossy = rand.New(rand.NewPCG(o.Seed, 1))
	r.match = make([]int, all)
	if r.byCache {
		r.believed = newHolders(all, r.w.last)
	}
	routers := max(1, o.Routers)
	shared := newBook(all, r.w.last, r.byCache)
	for i := range routers {
		b := shared
		if i > 0 && o.SyncDelay != 0 {
			b = newBook(all, r.w.last, r.byCache)
		}
		r.routers = append(r.routers, router{route.NewRouter(*o.Policy, rand.New(rand.NewPCG(o.Seed, uint64(2+i)))), b})
	}
	r.m.begin(r.w, all)
	r.grow(o.Replicas)
	if o.ScaleBy > 0 {
		r.queue.push(o.ScaleAt, fleetGrows, 0)
	}
	first := 1
	if !r.w.Open() {
		first = cmp.Or(o.Concurrency, r.w.all+r.w.each*o.Replicas)
	}
	for range first {
		r.start(0)
	}
	told := 0
	for n := 0; len(r.queue.heap) > 0; n++ {
		if n%(1<<14) == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			tell(r.arrived - told)
			told = r.arrived
		}
		e := r.queue.pop()
		r.m.until(e.at, r.replicas)
		r.now = e.at
		r.do(&e)
	}
	tell(r.arrived - told)
	if err := r.m.whole(len(r.w.requests)); err != nil {
		return nil, fmt.Errorf("%s with %s: %w", policy.Name, r.w.Name, err)
	}
	return r.result(), nil
}

// grow adds replicas.
func (r *run) grow(n int) {
	for range n {
		name := replicaName(len(r.replicas))
		r.replicas = append(r.replicas, replica{cache: engines[r.o.Engine].make(r.o.Capacity)})
		r.cands = append(r.cands, route.Candidate{Replica: name, Load: route.Load{State: route.LoadKnown}})
		for i := range r.routers {
			r.routers[i].rules.Joined(name)
		}
	}
}

// start lets the next root come.
func (r *run) start(from wire.Time) {
	if r.started == len(r.w.roots) {
		return
	}
	at := r.w.roots[r.started]
	r.started++
	r.queue.push(from+r.w.requests[at].at, arrives, at)
}

func (r *run) do(e *event) {
	switch e.kind {
	case arrives:
		if r.w.Open() && r.isRoot(e.of) {
			r.start(0)
		}
		r.arrive(e.of)
	case prefillEnds:
		r.prefilled(e.of)
	case ends:
		r.end(e.of)
	case fleetGrows:
		r.grow(r.o.ScaleBy)
	}
}

// isRoot reports whether a request is the root that was started last.
func (r *run) isRoot(of int32) bool { return r.w.roots[r.started-1] == of }

// arrive routes a request.
func (r *run) arrive(of int32) {
	q := &r.w.requests[of]
	path, size := r.w.paths[q.path], r.w.BlockSize
	r.catchUp()
	k := r.arrived % len(r.routers)
	r.arrived++
	via := &r.routers[k]
	seen := int(q.prompt)
	if r.o.Truncate > 0 {
		seen = min(seen, r.o.Truncate)
	}
	known := path[:seen/size]
	if r.byCache {
		r.believed.depths(known, r.match[:len(r.cands)])
	}
	via.book.loads(known, r.cands)
	for i := range r.cands {
		c, rep := &r.cands[i], &r.replicas[i]
		c.Match[wire.Device] = r.match[i]
		if !r.byCache { // nothing is booked: what a router polls of its engines
			c.Load.Blocks = rep.cache.used() + rep.queued
		}
		c.Load.Waiting = rep.waiting.len()
		c.Load.Usage = float64(rep.cache.used()) / float64(r.o.Capacity)
	}
	r.req = route.Request{
		Tokens: seen, BlockSize: size, At: r.now + 1, Output: int(q.output), // 0 would be one request alone
		Symbols: path[:(seen+size-1)/size], Width: size, Cut: seen < int(q.prompt),
	}
	if r.bySession {
		r.req.Session = "s" + strconv.Itoa(int(q.session))
	}
	to := via.rules.Route(&r.req, r.cands)
	total := (int(q.prompt) + int(q.output) - 1 + size - 1) / size // the last token is never computed
	if to < 0 || total > r.o.Capacity {
		r.m.refused++
		r.done(of)
		return
	}
	believed := r.match[to]
	at := r.take()
	f := &r.flights[at]
	f.request, f.router, f.arrived, f.believed = of, int32(k), r.now, believed
	f.entry = entry{int32(to), int32(max(0, seen-believed*size)), known}
	r.booked(f, bookAdd)
	r.m.arrive(q, to, r.now)
	usable := (int(q.prompt) - 1) / size // the last token is computed anew
	f.seq.path, f.seq.prompt, f.seq.usable, f.seq.total = r.cached(q, path), int(q.prompt)/size, usable, total
	rep := &r.replicas[to]
	f.uncached = 0
	rep.waiting.push(at)
	rep.queued += total
	r.serve(to)
	if rep.waiting.len() > 0 { // it is the last of them
		f.uncached = int(q.prompt) - rep.cache.match(path[:usable])*size
		rep.backlog += f.uncached
	}
}

// cached is the part of a path that is in a cache in the end.
func (r *run) cached(q *request, path []block) []block {
	tokens := int(q.prompt)
	if r.w.answers {
		tokens += int(q.output) - 1
	}
	return path[:tokens/r.w.BlockSize]
}

// serve starts what a replica can take.
func (r *run) serve(at int) {
	rep := &r.replicas[at]
	for !rep.prefilling && rep.running < r.o.Slots && rep.waiting.len() > 0 {
		n := *rep.waiting.first()
		f := &r.flights[n]
		if !rep.cache.begin(&f.seq) {
			return // until another one ends
		}
		rep.waiting.pop()
		rep.queued -= f.seq.total
		rep.running++
		rep.prefilling = true
		r.heard(at)
		prompt, hits := int(r.w.requests[f.request].prompt), f.seq.hits*r.w.BlockSize
		rep.backlog += prompt - hits - f.uncached
		f.uncached = prompt - hits
		r.m.serve(f, prompt, r.w.BlockSize, r.byCache)
		r.queue.push(r.now+duration(float64(f.uncached)/r.o.Prefill), prefillEnds, n)
	}
}

// duration is that of so many seconds.
func duration(s float64) wire.Time { return wire.Time(math.Ceil(s * float64(second))) }

// prefilled gives the first token.
func (r *run) prefilled(n int32) {
	f := &r.flights[n]
	q := &r.w.requests[f.request]
	at := int(f.entry.replica)
	rep := &r.replicas[at]
	rep.cache.prefilled(&f.seq)
	r.heard(at)
	rep.prefilling = false
	rep.backlog -= f.uncached
	r.booked(f, bookPrefilled)
	r.m.first(r.now - f.arrived)
	r.queue.push(r.now+duration(float64(q.output-1)/r.o.Decode), ends, n)
	r.serve(at)
}

// end gives the last token.
func (r *run) end(n int32) {
	f := &r.flights[n]
	at, of := int(f.entry.replica), f.request
	rep := &r.replicas[at]
	rep.cache.finish(&f.seq)
	r.heard(at)
	rep.running--
	r.booked(f, bookFree)
	r.m.end(&r.w.requests[of], f.arrived, r.now)
	r.spare = append(r.spare, n)
	r.done(of)
	r.serve(at)
}

// done lets come what follows a request, or the next root.
func (r *run) done(of int32) {
	switch next := r.w.requests[of].next; {
	case next >= 0:
		r.queue.push(r.now+r.w.requests[next].at, arrives, next)
	case !r.w.Open():
		r.start(r.now)
	}
}

func (r *run) take() int32 {
	if last := len(r.spare) - 1; last >= 0 {
		n := r.spare[last]
		r.spare = r.spare[:last]
		return n
	}
	r.flights = append(r.flights, flight{})
	return int32(len(r.flights) - 1)
}

// heard carries a replica's events to the routers: those of a step are one message.
func (r *run) heard(at int) {
	all := r.replicas[at].cache.changes()
	if !r.byCache || len(all) == 0 || r.o.EventLoss > 0 && r.lossy.Float64() < r.o.EventLoss {
		return
	}
	for _, c := range all {
		if r.o.EventDelay > 0 {
			r.late.push(lateChange{r.now + r.o.EventDelay, int32(at), c})
			continue
		}
		r.believe(at, c)
	}
}

func (r *run) believe(at int, c change) {
	if c.removed {
		r.believed.remove(at, c.block)
	} else {
		r.believed.add(at, c.block)
	}
}

// booked tells the router that sent a request what became of it, and the others
// later.
func (r *run) booked(f *flight, kind bookChange) {
	r.routers[f.router].book.change(kind, &f.entry)
	if len(r.routers) > 1 && r.o.SyncDelay > 0 {
		r.peers.push(peerChange{r.now + r.o.SyncDelay, f.router, kind, f.entry})
	}
}

// catchUp does what has come by now.
func (r *run) catchUp() {
	for r.late.len() > 0 && r.late.first().due <= r.now {
		c := r.late.pop()
		r.believe(int(c.replica), c.change)
	}
	for r.peers.len() > 0 && r.peers.first().due <= r.now {
		c := r.peers.pop()
		for i := range r.routers {
			if int32(i) != c.router {
				r.routers[i].book.change(c.kind, &c.entry)
			}
		}
	}
}
