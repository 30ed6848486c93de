package route

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/kvscope/kvscope/wire"
)

// key is what candidates are compared by: the lower the better.
type key struct{ cost, then float64 }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.cost, o.cost), cmp.Compare(k.then, o.then))
}

// input is a question on its way through a rule.
type input struct {
	cfg   *Config
	req   *Request
	cands []Candidate
	// eligible are the indices of those that no filter took out, and keys theirs.
	eligible []int
	keys     []key
	out      []string // by candidate: why it was taken out
	filters  []string
	// mem is what a Router remembers, nil where one prompt alone is asked about:
	// then what the candidates hold stands in for what the router believes of them.
	mem memory
	// ordered says that the candidates come in the system's own order, and quiet
	// that nobody reads filters.
	ordered, quiet bool
	// ring is the last hash ring, which goes by names alone.
	ring *ring
}

// Decide asks a rule where a request goes, of a router that remembers nothing.
func Decide(cfg *Config, req *Request, cands []Candidate) (Decision, error) {
	return (&input{cfg: cfg}).decide(req, cands)
}

func (in *input) decide(req *Request, cands []Candidate) (Decision, error) {
	p := in.cfg.policy
	if err := check(req, cands); err != nil {
		return Decision{}, fmt.Errorf("a request that %s cannot be asked about: %w", p.Name, err)
	}
	in.begin(req, cands)
	p.rank(in)
	d := Decision{Policy: p.Name, Candidates: make([]Scored, len(cands)), then: p.then}
	for i := range cands {
		d.Candidates[i] = Scored{Replica: cands[i].Replica, Load: cands[i].Load.State, Out: in.out[i]}
	}
	order := slices.Clone(in.eligible)
	keyOf := make([]key, len(cands))
	for n, i := range in.eligible {
		keyOf[i] = in.keys[n]
	}
	slices.SortStableFunc(order, func(a, b int) int { return keyOf[a].compare(keyOf[b]) })
	for n, i := range order {
		s := &d.Candidates[i]
		if s.Rank = n + 1; n > 0 && keyOf[i].compare(keyOf[order[n-1]]) == 0 {
			s.Rank = d.Candidates[order[n-1]].Rank
		}
		if s.Rank == 1 {
			d.Best = append(d.Best, i)
		}
	}
	chance := make([]float64, len(in.eligible))
	switch {
	case p.draws(in):
		pairChances(in, chance)
	case p.chances != nil:
		p.chances(in, chance)
	default:
		in.uniform(chance)
	}
	for n, i := range in.eligible {
		s := &d.Candidates[i]
		s.Cost, s.Then, s.Probability = in.keys[n].cost, in.keys[n].then, chance[n]
		p.tell(in, n, s)
		if s.Probability > 0 {
			d.Choice = append(d.Choice, i)
		}
	}
	slices.SortStableFunc(d.Choice, func(a, b int) int {
		return cmp.Compare(d.Candidates[b].Probability, d.Candidates[a].Probability)
	})
	d.Trace = append(in.filters, p.steps(in)...)
	d.Trace = append(d.Trace, d.outcome())
	return d, nil
}

// outcome is the last step of every rule.
func (d *Decision) outcome() string {
	switch n := len(d.Choice); {
	case n == 0:
		return "no candidate is eligible: the request fails"
	case n == 1:
		return join(d.Names(d.Choice)) + " is chosen"
	case n == len(d.Best):
		return fmt.Sprintf("%d candidates tie, each is chosen with the same probability: %s", n, join(d.Names(d.Choice)))
	}
	return fmt.Sprintf("any of %d candidates is drawn, the likeliest is %s", len(d.Choice), join(d.Names(d.Choice[:1])))
}

// listed is what breaks a tie where the system takes the first of its list: the
// position of an eligible candidate, or 0 where that order is not known.
func (in *input) listed(at int) float64 {
	if in.ordered {
		return float64(at)
	}
	return 0
}

// uniform gives the ties of the best key equal chances.
func (in *input) uniform(p []float64) {
	best, ties := in.best()
	for i, k := range in.keys {
		if k == best {
			p[i] = 1 / float64(ties)
		}
	}
}

// best gives the lowest key, and how many have it.
func (in *input) best() (best key, ties int) {
	for i, k := range in.keys {
		switch {
		case i == 0 || k.cost < best.cost || k.cost == best.cost && k.then < best.then:
			best, ties = k, 1
		case k == best:
			ties++
		}
	}
	return best, ties
}

// begin takes a question in and filters the candidates.
func (in *input) begin(req *Request, cands []Candidate) {
	in.req, in.cands = req, cands
	in.out = slices.Grow(in.out[:0], len(cands))[:len(cands)]
	clear(in.out)
	in.eligible, in.filters = in.eligible[:0], nil
	for _, f := range filters {
		if !f.asked(in) {
			continue
		}
		out := 0
		for i := range cands {
			if in.out[i] == "" && !f.keeps(in, &cands[i]) {
				in.out[i] = f.why
				out++
			}
		}
		if !in.quiet {
			in.filters = append(in.filters, fmt.Sprintf("%s: %d taken out", f.name, out))
		}
	}
	for i := range cands {
		if in.out[i] == "" {
			in.eligible = append(in.eligible, i)
		}
	}
	in.keys = slices.Grow(in.keys[:0], len(in.eligible))[:len(in.eligible)]
	clear(in.keys)
}

// newInput begins a question to a rule that remembers nothing.
func newInput(cfg *Config, req *Request, cands []Candidate) *input {
	in := &input{cfg: cfg}
	in.begin(req, cands)
	return in
}

// filters take candidates out before any is scored, in this order.
var filters = []struct {
	name, why string
	// asked says that the filter has something to do.
	asked func(in *input) bool
	keeps func(in *input, c *Candidate) bool
}{
	{
		"allowed workers", "not among the allowed workers",
		func(in *input) bool { return in.req.Allowed != nil },
		func(in *input, c *Candidate) bool {
			return slices.ContainsFunc(in.req.Allowed, func(a wire.Replica) bool { return a == c.Replica || a == worker(c.Replica) })
		},
	},
	{
		"required taints", "lacks a required taint",
		func(in *input) bool { return len(in.req.RequiredTaints) > 0 },
		func(in *input, c *Candidate) bool {
			return !slices.ContainsFunc(in.req.RequiredTaints, func(t string) bool { return !slices.Contains(c.Taints, t) })
		},
	},
	{
		"overloaded workers", "overloaded by the router's busy thresholds",
		func(in *input) bool {
			return slices.ContainsFunc(in.cands, func(c Candidate) bool { return c.Overloaded })
		},
		func(_ *input, c *Candidate) bool { return !c.Overloaded },
	},
	{
		"pinned worker", "the request is pinned to another worker",
		func(in *input) bool { return in.req.Pinned != "" },
		func(in *input, c *Candidate) bool { return c.Replica == in.req.Pinned },
	},
	{
		"session affinity", "the session belongs to another worker",
		func(in *input) bool {
			at := slices.IndexFunc(in.cands, func(c Candidate) bool { return c.Replica == in.req.Affinity })
			return in.cfg.policy.affinity && in.req.Affinity != "" && at >= 0 && in.out[at] == ""
		},
		func(in *input, c *Candidate) bool { return c.Replica == in.req.Affinity },
	},
}

// worker gives the process that a replica is a rank of.
func worker(r wire.Replica) wire.Replica {
	for i := len(r) - 1; i > 0; i-- {
		if r[i] == '/' {
			return r[:i]
		}
		if r[i] < '0' || r[i] > '9' {
			break
		}
	}
	return r
}

// number writes a number as short as it can be read, with up to four decimals.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*1e4)/1e4, 'f', -1, 64)
}
