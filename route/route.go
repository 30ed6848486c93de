package route

import (
	"fmt"
	"math"
	"strings"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// LoadState says how far a load can be trusted.
type LoadState uint8

// The states of a load. An unknown load counts as 0.
const (
	LoadUnknown LoadState = iota
	LoadStale
	LoadKnown
)

var loadWords = [...]string{"unknown", "stale", "known"}

func (s LoadState) String() string {
	if int(s) < len(loadWords) {
		return loadWords[s]
	}
	return fmt.Sprintf("load state %d", uint8(s))
}

// Load is what a router holds against a replica.
type Load struct {
	State LoadState
	// PrefillTokens are the prompt tokens that active requests have yet to
	// compute.
	PrefillTokens int
	// Blocks are the distinct blocks of active requests, and Prefix says how many
	// of the prompt's own blocks, from its first one on, are among them.
	Blocks, Prefix int
	// Requests are the active ones, waiting or running, and Waiting those of them
	// that wait in the engine's queue.
	Requests, Waiting int
	// Usage is the share of the KV cache in use, 0 to 1.
	Usage float64
}

// Candidate is one replica that a request could go to.
type Candidate struct {
	Replica wire.Replica
	// Match is how many of the prompt's blocks it holds: on the device from the
	// first one on, then per tier the continuation of the tiers before.
	Match [wire.NumTiers]int
	// Shared is how many blocks beyond those on the device a cache holds that all
	// replicas share.
	Shared int
	Load   Load
	Taints []string
	// Overloaded says that the router's busy thresholds take it out.
	Overloaded bool
}

// matched is the length of the whole match.
func (c *Candidate) matched() int {
	n := 0
	for _, blocks := range c.Match {
		n += blocks
	}
	return n
}

// load gives the load as a router sees it.
func (c *Candidate) load() Load {
	if c.Load.State == LoadUnknown {
		return Load{}
	}
	return c.Load
}

// Pool is the part of a fleet that a request is routed in.
type Pool uint8

// The pools. A fleet whose replicas do all the work is aggregated.
const (
	Aggregated Pool = iota
	Prefill
	Decode
	Encode
)

// Request is what a router knows of a request.
type Request struct {
	// Tokens is the length of the prompt, BlockSize the router's own, and Bigram
	// says that it hashes overlapping pairs of tokens (speculative decoding).
	Tokens, BlockSize int
	Bigram            bool
	Pool              Pool
	// Allowed are the replicas, or workers with all their ranks, that the caller
	// permits; nil permits all.
	Allowed []wire.Replica
	// RequiredTaints must all be a candidate's own; PreferredTaints weigh for it.
	RequiredTaints  []string
	PreferredTaints map[string]float64
	// Pinned is where the request must go, and Affinity where its session went.
	Pinned, Affinity wire.Replica
	// At is when it comes, on any clock that goes on; 0 does for one alone.
	At wire.Time
	// Model is the model's name, and Session the key that holds it to a worker,
	// as its client sends it in a header; "" for none.
	Model, Session string
	// Output is how many tokens it may generate at most, 0 if not said.
	Output int
	// Contents are the texts of its messages, or its prompt, for routers that read
	// text. Each joins them in its own way, and none reads the roles.
	Contents []string
	// IDs are its tokens, for routers that hash them.
	IDs []wire.Token
	// Symbols stand for text and tokens in a workload that has neither: equal
	// symbols are equal pieces, of Width tokens each but for the last one.
	Symbols []rune
	Width   int
	// Cut says that the router gets a part of the body alone: one that parses it has
	// nothing of the prompt.
	Cut bool
}

// Blocks is the number of the prompt's complete blocks, which are hashed.
func (r *Request) Blocks() int { return blockhash.Blocks(r.Tokens, r.BlockSize, r.Bigram) }

// begun is the number of blocks that the prompt fills or begins.
func (r *Request) begun() int {
	n := r.Tokens / r.BlockSize
	if r.Tokens%r.BlockSize > 0 {
		n++
	}
	return n
}

// maxCount bounds every count that is given, so that sums of them stay whole
// numbers in a float64.
const maxCount = 1 << 48

// check refuses what no router can be asked.
func check(r *Request, cands []Candidate) error {
	if r.BlockSize < 1 || r.BlockSize > maxCount {
		return fmt.Errorf("a block size of %d tokens: give the router's own, for example 16", r.BlockSize)
	}
	if r.Tokens < 0 || r.Tokens > maxCount {
		return fmt.Errorf("a prompt of %d tokens: give a length from 0", r.Tokens)
	}
	for taint, weight := range r.PreferredTaints {
		if math.IsNaN(weight) || math.IsInf(weight, 0) {
			return fmt.Errorf("the weight of the taint %s is no number: give a finite one", wire.Printable(taint))
		}
	}
	seen := make(map[wire.Replica]bool, len(cands))
	for i := range cands {
		c := &cands[i]
		if seen[c.Replica] {
			return fmt.Errorf("two candidates are called %s: name each replica once", wire.Printable(string(c.Replica)))
		}
		seen[c.Replica] = true
		l := &c.Load
		if math.IsNaN(l.Usage) || l.Usage < 0 || l.Usage > 1 {
			return fmt.Errorf("%s: a KV cache usage that is no share: give a number from 0 to 1", wire.Printable(string(c.Replica)))
		}
		for _, n := range append([]int{c.Shared, l.PrefillTokens, l.Blocks, l.Prefix, l.Requests, l.Waiting}, c.Match[:]...) {
			if n < 0 || n > maxCount {
				return fmt.Errorf("%s: a count of %d: counts go from 0 to 2^48", wire.Printable(string(c.Replica)), n)
			}
		}
		if n := c.matched(); n > r.begun() {
			return fmt.Errorf("%s: a match of %d blocks, and the prompt has %d", wire.Printable(string(c.Replica)), n, r.begun())
		}
	}
	return nil
}

// Term is one part of a candidate's cost.
type Term struct {
	Name string
	// Value is in the router's own unit, Cost what it adds to the cost. The costs
	// of all terms sum up to the candidate's.
	Value, Cost float64
}

// Scored is what a rule makes of one candidate.
type Scored struct {
	Replica wire.Replica
	Load    LoadState
	// Out says why a filter took it out; the rest is empty then.
	Out   string
	Terms []Term
	// Cost is the lower the better. What Then is compared for ties of it.
	Cost, Then float64
	// Rank counts from 1, equal for ties, and is 0 for those taken out.
	Rank        int
	Probability float64
	// Rule is the reckoning in the router's own words.
	Rule string
}

// Decision is what a rule makes of a request.
type Decision struct {
	Policy     string
	Candidates []Scored // in the order given
	// Best holds the candidates of rank 1, and Choice all that can be chosen, the
	// likeliest first: the same where nothing but a tie is left to chance.
	// Both are indices.
	Best, Choice []int
	// Trace tells the rule's steps.
	Trace []string
	then  string
}

// Names gives the replicas of indices such as Best.
func (d *Decision) Names(at []int) []wire.Replica {
	out := make([]wire.Replica, len(at))
	for i, n := range at {
		out[i] = d.Candidates[n].Replica
	}
	return out
}

// Cancels names the terms that are equal for all eligible candidates, so that
// they decide nothing. It is empty where fewer than two are eligible.
func (d *Decision) Cancels() []string {
	var first *Scored
	var same []bool
	n := 0
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c.Rank == 0 {
			continue
		}
		if n++; n == 1 {
			first, same = c, make([]bool, len(c.Terms))
			for t := range same {
				same[t] = true
			}
		}
		for t := range c.Terms {
			same[t] = same[t] && c.Terms[t].Cost == first.Terms[t].Cost && c.Terms[t].Value == first.Terms[t].Value
		}
	}
	var out []string
	for t := range same {
		if n > 1 && same[t] {
			out = append(out, first.Terms[t].Name)
		}
	}
	return out
}

// Deciding names the term that speaks most for the best candidate against the
// next one, which it gives by index, and by how much of the cost. It reports
// false where nobody is next: all are equal, or one alone is eligible.
func (d *Decision) Deciding() (term string, margin float64, against int, ok bool) {
	if len(d.Best) == 0 {
		return "", 0, 0, false
	}
	against = -1
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Rank > 1 && (against < 0 || c.Rank < d.Candidates[against].Rank) {
			against = i
		}
	}
	if against < 0 {
		return "", 0, 0, false
	}
	best, next := &d.Candidates[d.Best[0]], &d.Candidates[against]
	if best.Cost == next.Cost {
		return d.then, next.Then - best.Then, against, true
	}
	for t := range best.Terms {
		if m := next.Terms[t].Cost - best.Terms[t].Cost; m > margin {
			term, margin = best.Terms[t].Name, m
		}
	}
	return term, margin, against, true
}

// Why says in one sentence what decided.
func (d *Decision) Why() string {
	term, margin, against, ok := d.Deciding()
	names := join(d.Names(d.Best))
	switch {
	case len(d.Best) == 0:
		return "no candidate is eligible"
	case !ok && len(d.Best) > 1:
		return "all eligible candidates are equal: any of " + names
	case !ok:
		return names + " alone is eligible"
	}
	return fmt.Sprintf("%s before %s by %s (%s)", names, wire.Printable(string(d.Candidates[against].Replica)), term, number(margin))
}

func join(names []wire.Replica) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(wire.Printable(string(n)))
	}
	return b.String()
}
