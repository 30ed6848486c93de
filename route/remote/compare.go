package remote

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// Question is what is known here of a prompt, to be held against what routers
// say of it.
type Question struct {
	Config     *route.Config
	Request    route.Request
	Candidates []route.Candidate
	// After are the candidates as they are known once the answer is there, nil if
	// nobody looked again.
	After []route.Candidate
	// Tokens is the prompt; nil compares none.
	Tokens []wire.Token
	// Names gives our names of the replicas that Dynamo calls otherwise.
	Names map[wire.Replica]wire.Replica
}

// Answer is what live routers said, as far as they were asked.
type Answer struct {
	Choice  *Choice
	Matches *Matches
	// Loads are nil where nobody was asked for them.
	Loads []Load
}

// Difference is one thing that they know otherwise.
type Difference struct {
	// What is prompt, block_size, candidate, match, load, or event for what has
	// changed here meanwhile.
	What string
	// Replica is empty where it is about no single one.
	Replica wire.Replica
	Text    string
}

// Comparison sets an answer beside our own decision.
type Comparison struct {
	Ours route.Decision
	// Chosen is whom they chose, by our name, empty where they were not asked.
	Chosen wire.Replica
	// Agrees says that what they chose can be chosen here too; where they were
	// not asked to choose, that there is no difference.
	Agrees      bool
	Differences []Difference
	// Why is the whole in one sentence.
	Why string
}

// Compare holds our decision against their answer. Where they choose otherwise,
// it reckons again with what they know, and so finds the difference that matters.
func Compare(q *Question, a *Answer) (Comparison, error) {
	ours, err := route.Decide(q.Config, &q.Request, q.Candidates)
	if err != nil {
		return Comparison{}, err
	}
	c := Comparison{Ours: ours}
	for _, look := range []func(*Question, *Answer) []Difference{
		promptDifferences, sizeDifference, matchDifferences, loadDifferences, eventDifferences,
	} {
		c.Differences = append(c.Differences, look(q, a)...)
	}
	if a.Choice == nil {
		c.Agrees = !slices.ContainsFunc(c.Differences, func(d Difference) bool { return d.What != "event" })
		c.Why = cmp.Or(listed(c.Differences, ""), "what they say is what is known here")
		return c, nil
	}
	if c.Chosen = q.named(a.Choice.Decode); q.Request.Pool == route.Prefill {
		c.Chosen = q.named(a.Choice.Prefill)
	}
	at := slices.IndexFunc(ours.Candidates, func(s route.Scored) bool { return s.Replica == c.Chosen })
	if at < 0 {
		c.Differences = append(c.Differences, Difference{"candidate", c.Chosen, "they know a replica that is none of the candidates here"})
		c.Why = fmt.Sprintf("they chose %s, which is none of the candidates here: is its event stream among those observed?", printable(c.Chosen))
		return c, nil
	}
	if c.Agrees = slices.Contains(ours.Choice, at); c.Agrees {
		c.Why = agreed(&ours, at)
		return c, nil
	}
	if out := ours.Candidates[at].Out; out != "" {
		c.Why = fmt.Sprintf("they chose %s, which is taken out here: %s", printable(c.Chosen), out)
		return c, nil
	}
	c.Why = fmt.Sprintf("they chose %s, here it would be %s: %s", printable(c.Chosen), names(&ours), explain(q, a, &c))
	return c, nil
}

// agreed says what was left to chance.
func agreed(d *route.Decision, at int) string {
	who := printable(d.Candidates[at].Replica)
	switch n := len(d.Choice); {
	case n == 1:
		return "both choose " + who
	case n == len(d.Best):
		return fmt.Sprintf("they chose %s, one of %d that tie here: ties are broken at random", who, n)
	}
	return fmt.Sprintf("they chose %s, one of %d that can be drawn here, with a probability of %.3g", who, len(d.Choice), d.Candidates[at].Probability)
}

// trials are what a different choice can come from, the likeliest first: who
// knows what of the candidates.
var trials = []struct {
	says string
	what string // the differences that tell it
	with func(q *Question, a *Answer) []route.Candidate
}{
	{"an event arrived in between, and with what is known now the choice is theirs", "event", func(q *Question, _ *Answer) []route.Candidate { return q.After }},
	{"with the matches of their index the choice is theirs", "match", theirMatches},
	{"with their loads the choice is theirs", "load", theirLoads},
	{"with the matches of their index and their loads together the choice is theirs", "", func(q *Question, a *Answer) []route.Candidate {
		if a.Loads == nil {
			return nil
		}
		with := *q
		with.Candidates = theirMatches(q, a)
		return theirLoads(&with, a)
	}},
}

// explain finds why their choice is none of ours.
func explain(q *Question, a *Answer, c *Comparison) string {
	if i := slices.IndexFunc(c.Differences, func(d Difference) bool { return d.What == "prompt" || d.What == "block_size" }); i >= 0 {
		return c.Differences[i].Text
	}
	for _, t := range trials {
		cands := t.with(q, a)
		if cands == nil {
			continue
		}
		d, err := route.Decide(q.Config, &q.Request, cands)
		if err == nil && slices.Contains(d.Names(d.Choice), c.Chosen) {
			if told := listed(c.Differences, t.what); told != "" {
				return t.says + " (" + told + ")"
			}
			return t.says
		}
	}
	if told := listed(c.Differences, "event"); told != "" {
		return "neither what was known before they were asked nor what is known now explains it: ask again (" + told + ")"
	}
	var unsure []string
	busy := false
	for i := range q.Candidates {
		l := &q.Candidates[i].Load
		if l.State != route.LoadKnown {
			unsure = append(unsure, fmt.Sprintf("%s (%s)", printable(q.Candidates[i].Replica), l.State))
		}
		busy = busy || l.PrefillTokens > 0 || l.Blocks > 0 || l.Requests > 0
	}
	switch {
	case a.Loads == nil && unsure != nil:
		return "the loads of these are not sure here, and theirs were not asked for: " + strings.Join(unsure, ", ")
	case a.Loads == nil && busy:
		return "theirs were not asked for, but loads may differ: those of metrics come late, and do not tell which of the prompt's blocks are active"
	case a.Loads == nil:
		return "nothing that was compared explains it; its loads were not asked for, and one may have come and gone: ask again, and if it stays so give its flags, variables or policy file"
	}
	return "nothing that was compared explains it, so the settings may differ: give its flags, variables or policy file"
}

func promptDifferences(q *Question, a *Answer) []Difference {
	if q.Tokens == nil || a.Choice == nil || a.Choice.Tokens == nil {
		return nil
	}
	theirs := a.Choice.Tokens
	n := min(len(q.Tokens), len(theirs))
	at := 0
	for at < n && q.Tokens[at] == theirs[at] {
		at++
	}
	if at == len(q.Tokens) && at == len(theirs) {
		return nil
	}
	return []Difference{{"prompt", "", fmt.Sprintf("they read the prompt as %d tokens, here it has %d, and they differ from token %d on: template or tokenizer differ",
		len(theirs), len(q.Tokens), at)}}
}

// otherSize reports whether their blocks cannot be compared with ours.
func otherSize(q *Question, a *Answer) bool {
	return a.Matches != nil && a.Matches.BlockSize != 0 && a.Matches.BlockSize != q.Request.BlockSize
}

func sizeDifference(q *Question, a *Answer) []Difference {
	if !otherSize(q, a) {
		return nil
	}
	return []Difference{{"block_size", "", fmt.Sprintf("their index has blocks of %d tokens, the request here %d, so what they match differs: are both told the engine's own?",
		a.Matches.BlockSize, q.Request.BlockSize)}}
}

// theirRow finds their row of a candidate, and reports false where nothing is
// known that could be compared.
func theirRow(q *Question, a *Answer, c *route.Candidate) (Held, bool) {
	for _, h := range a.Matches.Rows {
		if q.named(h.Replica) == c.Replica {
			return h, true
		}
	}
	return Held{}, !a.Matches.Partial
}

// blocks are their counts in our blocks, external ones as disk, as far as the
// prompt goes.
func (h *Held) blocks(r *route.Request) (out [wire.NumTiers]int) {
	left := (r.Tokens + r.BlockSize - 1) / r.BlockSize
	for t, tokens := range h.Tokens {
		n := min(tokens/r.BlockSize, left)
		out[min(t, int(wire.Disk))] += n
		left -= n
	}
	return out
}

func matchDifferences(q *Question, a *Answer) []Difference {
	if a.Matches == nil || otherSize(q, a) {
		return nil
	}
	var out []Difference
	for i := range q.Candidates {
		c := &q.Candidates[i]
		h, ok := theirRow(q, a, c)
		ours := c.Match
		ours[wire.Disk], ours[wire.External] = ours[wire.Disk]+ours[wire.External], 0
		if !ok || h.Weighted && ours != ([wire.NumTiers]int{wire.Device: ours[wire.Device]}) {
			continue
		}
		theirs := h.blocks(&q.Request)
		for t := range ours {
			if theirs[t] == ours[t] || h.DeviceOnly && wire.Tier(t) != wire.Device {
				continue
			}
			n, word := theirs[t]-ours[t], "more"
			if n < 0 {
				n, word = -n, "fewer"
			}
			out = append(out, Difference{"match", c.Replica, fmt.Sprintf("their index has %s %s on %s, %s: %d, here %d",
				some(n, "block"), word, printable(c.Replica), wire.Tier(t), theirs[t], ours[t])})
		}
	}
	return out
}

// theirMatches are the candidates with the matches of their index.
func theirMatches(q *Question, a *Answer) []route.Candidate {
	if a.Matches == nil {
		return nil
	}
	out := slices.Clone(q.Candidates)
	for i := range out {
		h, ok := theirRow(q, a, &out[i])
		if !ok {
			continue
		}
		if h.DeviceOnly { // the lower tiers are ours
			for t := wire.Host; t < wire.NumTiers; t++ {
				h.Tokens[t] = out[i].Match[t] * q.Request.BlockSize
			}
		}
		out[i].Match = h.blocks(&q.Request)
	}
	return out
}

func loadDifferences(q *Question, a *Answer) []Difference {
	var out []Difference
	for i := range q.Candidates {
		c := &q.Candidates[i]
		l, ok := q.theirLoad(a, c)
		if !ok || c.Load.State != route.LoadUnknown && sameLoad(l, c.Load) {
			continue
		}
		here := "here " + load(c.Load)
		if c.Load.State == route.LoadUnknown {
			here = "here it is unknown and counts as none"
		}
		out = append(out, Difference{"load", c.Replica, fmt.Sprintf("they hold %s against %s, %s", load(l), printable(c.Replica), here)})
	}
	return out
}

func (q *Question) theirLoad(a *Answer, c *route.Candidate) (route.Load, bool) {
	for _, l := range a.Loads {
		if q.named(l.Replica) == c.Replica {
			return l.Load, true
		}
	}
	return route.Load{}, false
}

func sameLoad(a, b route.Load) bool {
	return a.PrefillTokens == b.PrefillTokens && a.Blocks == b.Blocks && a.Requests == b.Requests
}

// theirLoads are the candidates with their loads. Which blocks of the prompt are
// active is ours.
func theirLoads(q *Question, a *Answer) []route.Candidate {
	if a.Loads == nil {
		return nil
	}
	out := slices.Clone(q.Candidates)
	for i := range out {
		if l, ok := q.theirLoad(a, &out[i]); ok {
			l.Prefix = min(out[i].Load.Prefix, l.Blocks)
			out[i].Load = l
		}
	}
	return out
}

// eventDifferences are what has changed here while they were asked.
func eventDifferences(q *Question, _ *Answer) []Difference {
	var out []Difference
	for i := range q.After {
		after := &q.After[i]
		at := slices.IndexFunc(q.Candidates, func(c route.Candidate) bool { return c.Replica == after.Replica })
		if at < 0 {
			out = append(out, Difference{"event", after.Replica, printable(after.Replica) + " has come"})
			continue
		}
		before := &q.Candidates[at]
		for t := range after.Match {
			if n, was := after.Match[t], before.Match[t]; n != was {
				out = append(out, Difference{"event", after.Replica, fmt.Sprintf("%s on %s, %s, now, %d before", some(n, "block"), printable(after.Replica), wire.Tier(t), was)})
			}
		}
		if !sameLoad(after.Load, before.Load) {
			out = append(out, Difference{"event", after.Replica, fmt.Sprintf("%s against %s now, %s before", load(after.Load), printable(after.Replica), load(before.Load))})
		}
	}
	return out
}

func (q *Question) named(r wire.Replica) wire.Replica { return cmp.Or(q.Names[r], r) }

// listed joins the texts of the differences of one kind, or of all.
func listed(all []Difference, what string) string {
	var out []string
	for _, d := range all {
		if what == "" || d.What == what {
			out = append(out, d.Text)
		}
	}
	return strings.Join(out, "; ")
}

func names(d *route.Decision) string {
	var out []string
	for _, r := range d.Names(d.Choice) {
		out = append(out, printable(r))
	}
	return cmp.Or(strings.Join(out, " or "), "none")
}

func printable(r wire.Replica) string { return wire.Printable(string(r)) }

func load(l route.Load) string {
	return fmt.Sprintf("%s to compute, %s and %s", some(l.PrefillTokens, "token"), some(l.Blocks, "block"), some(l.Requests, "request"))
}

func some(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
