package route

import (
	"math"
	"slices"
	"sort"

	"github.com/kvscope/kvscope/wire"
)

// Rules says how a router books.
type Rules struct {
	BlockSize int
	// Blocks, Prefill and Output say what it tracks: the blocks of active
	// requests, their prompt tokens to compute, and the blocks of what they
	// generate.
	Blocks, Prefill, Output bool
	// Reuse says that it takes equal blocks of two requests for one.
	Reuse bool
	// Expiry is how long a booking lives that nobody frees, and Scan how often
	// the router looks, in nanoseconds.
	Expiry, Scan wire.Time
}

const (
	second      = 1e9
	dynamoStale = 300 * second
	dynamoScan  = 30 * second
)

// PlaneBooking gives the rules by which to book what Dynamo's event plane tells:
// a router that does not track something does not tell of it either.
func PlaneBooking() Rules {
	return Rules{Blocks: true, Prefill: true, Reuse: true, Expiry: dynamoStale, Scan: dynamoScan}
}

// Booking gives the rules by which a configured Dynamo router books.
func (c *Config) Booking(blockSize int) Rules {
	r := PlaneBooking()
	r.BlockSize = blockSize
	if c.policy.rank == nil || c.policy.setting(dynamoSettings[dynTrackBlocks].name) != dynTrackBlocks {
		return r
	}
	r.Blocks, r.Prefill = c.on(dynTrackBlocks), c.on(dynTrackPrefill)
	r.Output, r.Reuse = c.on(dynTrackOutput), c.on(dynReuse)
	return r
}

// The most that is booked: what comes beyond is refused and counted.
const (
	maxRequests = 1 << 18
	maxBooked   = 1 << 22 // blocks
)

// Added is a request as it is booked.
type Added struct {
	Request string
	Replica wire.Replica
	// Blocks are the sequence hashes of the prompt's complete blocks.
	Blocks []uint64
	// Tokens is the prompt's length where known, and Prefill how many of them are
	// to be computed.
	Tokens, Prefill int
	// ExpectedOutput is in tokens, 0 where nobody said.
	ExpectedOutput int
}

// Sequences is a router's book of active requests, from which its loads come. It
// is for one goroutine.
type Sequences struct {
	rules    Rules
	requests map[string]*booked
	replicas map[wire.Replica]*book
	blocks   int
	scanned  wire.Time
	// Refused counts bookings beyond what is kept, Unknown ends of requests that
	// nobody booked, and Expired bookings that nobody freed.
	Refused, Unknown, Expired int
}

// booked is an active request.
type booked struct {
	Added
	at     wire.Time
	output []float64 // the weights of the blocks that it generated
	// less is how much its prompt's blocks weigh below 1, where none is shared.
	less float64
}

// book is what is held against one replica.
type book struct {
	requests, prefill int
	blocks            map[uint64]*held
	// alone weighs prompt blocks where none is shared, and output generated ones.
	alone, output float64
}

// held is a block of the prompts of active requests.
type held struct {
	requests int
	// less is how much its weight is below 1.
	less float64
}

// NewSequences makes an empty book.
func NewSequences(rules Rules) *Sequences {
	return &Sequences{rules: rules, requests: map[string]*booked{}, replicas: map[wire.Replica]*book{}}
}

// Clone copies a book, so that each copy can go its own way.
func (s *Sequences) Clone() *Sequences {
	c := *s
	c.requests = make(map[string]*booked, len(s.requests))
	for id, r := range s.requests {
		own := *r
		own.output = slices.Clone(r.output)
		c.requests[id] = &own
	}
	c.replicas = make(map[wire.Replica]*book, len(s.replicas))
	for name, b := range s.replicas {
		own := *b
		own.blocks = make(map[uint64]*held, len(b.blocks))
		for h, x := range b.blocks {
			held := *x
			own.blocks[h] = &held
		}
		c.replicas[name] = &own
	}
	return &c
}

// Size is about how much memory the book takes, in bytes.
func (s *Sequences) Size() int {
	const request, block = 256, 64 // with what the maps take
	return request*len(s.requests) + block*s.blocks
}

// Apply books an event of Dynamo's event plane, as received at a moment.
func (s *Sequences) Apply(at wire.Time, a *wire.Activity) {
	switch a.Kind {
	case wire.RequestAdded:
		s.Add(at, Added{
			Request: a.Request, Replica: a.Replica, Blocks: a.Blocks,
			Prefill: a.PrefillTokens, ExpectedOutput: a.ExpectedOutput,
		})
	case wire.PrefillCompleted:
		s.PrefillCompleted(a.Request)
	case wire.RequestFreed:
		s.Free(a.Request)
	}
}

// Add books a request. One that is booked already stays as it is.
func (s *Sequences) Add(at wire.Time, a Added) {
	s.Expire(at)
	if s.requests[a.Request] != nil {
		return
	}
	if !s.rules.Blocks {
		a.Blocks = nil
	}
	if !s.rules.Prefill {
		a.Prefill = 0
	}
	if len(s.requests) >= maxRequests || s.blocks+len(a.Blocks) > maxBooked || a.Prefill < 0 || a.Prefill > maxCount {
		s.Refused++
		return
	}
	s.blocks += len(a.Blocks)
	s.requests[a.Request] = &booked{Added: a, at: at}
	b := s.replicas[a.Replica]
	if b == nil {
		b = &book{blocks: map[uint64]*held{}}
		s.replicas[a.Replica] = b
	}
	b.requests++
	b.prefill += a.Prefill
	if !s.rules.Reuse {
		b.alone += float64(len(a.Blocks))
		return
	}
	for _, h := range a.Blocks {
		if b.blocks[h] == nil {
			b.blocks[h] = &held{}
		}
		b.blocks[h].requests++
	}
}

// PrefillCompleted takes a request's prompt tokens off: its first token came.
func (s *Sequences) PrefillCompleted(request string) {
	r := s.requests[request]
	if r == nil {
		s.Unknown++
		return
	}
	s.replicas[r.Replica].prefill -= r.Prefill
	r.Prefill = 0
}

// Free takes a request off.
func (s *Sequences) Free(request string) {
	r := s.requests[request]
	if r == nil {
		s.Unknown++
		return
	}
	delete(s.requests, request)
	s.blocks -= len(r.Blocks) + len(r.output)
	b := s.replicas[r.Replica]
	b.requests--
	b.prefill -= r.Prefill
	for _, w := range r.output {
		b.output -= w
	}
	if !s.rules.Reuse {
		b.alone -= float64(len(r.Blocks)) * (1 - r.less)
	} else {
		for _, h := range r.Blocks {
			if b.blocks[h].requests--; b.blocks[h].requests == 0 {
				delete(b.blocks, h)
			}
		}
	}
	if b.requests == 0 {
		delete(s.replicas, r.Replica)
	}
}

// Expire frees what is stale at a moment, if the router's next look is due.
func (s *Sequences) Expire(at wire.Time) {
	if s.scanned == 0 {
		s.scanned = at
	}
	if at < s.scanned+s.rules.Scan {
		return
	}
	s.scanned = at
	for id, r := range s.requests {
		if r.at < at-s.rules.Expiry {
			s.Free(id)
			s.Expired++
		}
	}
}

// Output says that a request has generated tokens so far. Where the router
// tracks output, a block is booked whenever one is begun; with an expected length
// the request's own blocks weigh the less the nearer its end is.
func (s *Sequences) Output(request string, tokens int) {
	r := s.requests[request]
	if r == nil || !s.rules.Output || s.rules.BlockSize < 1 || tokens < 0 || tokens > maxCount {
		return
	}
	begun := func(n int) int { return (n + s.rules.BlockSize - 1) / s.rules.BlockSize }
	want := begun(r.Tokens+tokens) - begun(r.Tokens)
	if want <= len(r.output) {
		return
	}
	if s.blocks+want-len(r.output) > maxBooked {
		s.Refused++
		return
	}
	b := s.replicas[r.Replica]
	for len(r.output) < want {
		r.output = append(r.output, 1)
		b.output++
		s.blocks++
	}
	if r.ExpectedOutput <= 0 {
		return
	}
	weight := max(0, 1-float64(tokens)/float64(r.ExpectedOutput))
	for i := range r.output {
		b.output += weight - r.output[i]
		r.output[i] = weight
	}
	if !s.rules.Reuse {
		b.alone -= float64(len(r.Blocks)) * (1 - weight - r.less)
		r.less = 1 - weight
		return
	}
	for _, h := range r.Blocks {
		if held := b.blocks[h]; held.requests == 1 {
			held.less = 1 - weight
		}
	}
}

// Load gives what is held against a replica, as a request with these blocks sees
// it. A replica that nobody booked is idle, not unknown: whoever asks must know
// that the book is whole.
func (s *Sequences) Load(replica wire.Replica, blocks []uint64) Load {
	b := s.replicas[replica]
	if b == nil {
		return Load{State: LoadKnown}
	}
	weight := float64(len(b.blocks)) + b.alone + b.output
	if s.rules.Output {
		for _, h := range b.blocks {
			weight -= h.less
		}
	}
	return Load{
		State:         LoadKnown,
		PrefillTokens: b.prefill,
		Blocks:        int(math.Round(max(0, weight))),
		// A hash names all blocks before its own too, and requests are booked and
		// freed whole: where a block is active, all before it are.
		Prefix:   sort.Search(len(blocks), func(i int) bool { return b.blocks[blocks[i]] == nil }),
		Requests: b.requests,
	}
}
