package route

import (
	"math/rand/v2"

	"github.com/kvscope/kvscope/wire"
)

// Router is a policy at work: it takes one request after the other, and remembers
// what a router of its system would. Its candidates come in the order in which the
// system lists its workers, which breaks ties where the system goes by it. It
// belongs to one goroutine.
type Router struct {
	cfg    Config
	rng    *rand.Rand
	mem    memory
	in     input
	chance []float64
}

// memory is what a router remembers from one request to the next.
type memory interface {
	// took is told that a request went to the eligible candidate at this position.
	took(in *input, at int)
}

// member is a memory that keeps books on each worker.
type member interface {
	joined(r wire.Replica)
	left(r wire.Replica)
}

// NewRouter makes one that has seen nothing. rng draws what the system leaves to
// chance.
func NewRouter(cfg Config, rng *rand.Rand) *Router {
	r := &Router{cfg: cfg, rng: rng}
	if make := cfg.policy.memory; make != nil {
		r.mem = make(&r.cfg)
	}
	r.in = input{cfg: &r.cfg, mem: r.mem, ordered: true, quiet: true}
	return r
}

// Joined tells that a worker has come, before it is a candidate for the first
// time. Without it, a router learns of workers as they are candidates.
func (r *Router) Joined(w wire.Replica) {
	if m, books := r.mem.(member); books {
		m.joined(w)
	}
}

// Left tells that a worker is gone for good.
func (r *Router) Left(w wire.Replica) {
	if m, books := r.mem.(member); books {
		m.left(w)
	}
}

// Route chooses a candidate, by its index, and remembers that it did; -1 is
// nobody. It trusts its input, of which Decide checks the form.
func (r *Router) Route(req *Request, cands []Candidate) int {
	in := &r.in
	in.begin(req, cands)
	if len(in.eligible) == 0 {
		return -1
	}
	p := r.cfg.policy
	p.rank(in)
	at := r.draw()
	if r.mem != nil {
		r.mem.took(in, at)
	}
	return in.eligible[at]
}

// draw takes one of the eligible candidates by their chances.
func (r *Router) draw() int {
	in := &r.in
	switch {
	case r.cfg.policy.draws(in):
		return r.pair()
	case r.cfg.policy.chances == nil:
		return r.tie()
	}
	r.chance = append(r.chance[:0], make([]float64, len(in.keys))...)
	r.cfg.policy.chances(in, r.chance)
	left, last := r.rng.Float64(), 0
	for at, p := range r.chance {
		if p == 0 {
			continue
		}
		if last = at; left < p {
			return at
		}
		left -= p
	}
	return last // the chances sum up to a little less than 1
}

// tie draws one of the best, all with the same chance.
func (r *Router) tie() int {
	best, ties := r.in.best()
	nth := 0
	if ties > 1 {
		nth = r.rng.IntN(ties)
	}
	for at, k := range r.in.keys {
		if k != best {
			continue
		}
		if nth == 0 {
			return at
		}
		nth--
	}
	return 0 // never: the best is among the keys
}

// pair draws two of the eligible candidates, each two as likely as any other, and
// takes one.
func (r *Router) pair() int {
	n := len(r.in.eligible)
	first := r.rng.IntN(n)
	if n == 1 {
		return first
	}
	second := r.rng.IntN(n - 1)
	if second >= first {
		second++
	}
	return r.cfg.policy.pair(&r.in, first, second)
}

// Decide tells what Route would do, and why. Nothing is remembered of it.
func (r *Router) Decide(req *Request, cands []Candidate) (Decision, error) {
	return (&input{cfg: &r.cfg, mem: r.mem, ordered: true, ring: r.in.ring}).decide(req, cands)
}
