package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// MaxPrompt is the longest prompt that is looked up, in tokens.
const MaxPrompt = prompt.MaxTokens

// Query asks where a prompt would go.
type Query struct {
	Tokens []wire.Token
	// Model limits the candidates to its replicas. It may be empty where all
	// serve the same. Named is the one that the request itself names, which counts
	// where the fleet serves it: engines have aliases.
	Model, Named, LoRA, Salt string
	// BlockSize is the router's, and that of replicas that do not tell theirs; 0
	// takes what most replicas have.
	BlockSize int
	Config    *route.Config
	Pool      route.Pool
	// Edits are made in their order, each as of route.Edit.
	Edits []Edit
	// Page is what the router's own metrics page says of loads, nil without one.
	Page *Page
	// PrefillRate is how many tokens a replica computes in a second, 0 if unknown.
	PrefillRate float64
	// Contents and Session are those of a route.Request.
	Contents []string
	Session  string
	// Others are asked the same as Config.
	Others []*route.Config
}

// Edit is a value given by hand.
type Edit struct{ Key, Value string }

// Replica is what is known of one, but for what the index holds.
type Replica struct {
	Name     wire.Replica
	Trust    Trust
	Load     wire.Load
	Capacity int // in blocks, 0 if unknown
}

// Fleet is where an answer comes from. Asking changes index and loads as any
// question to them does.
type Fleet struct {
	Now      wire.Time
	Index    *index.Index
	Replicas []Replica
	Loads    *Loads
}

// Answer says where a prompt would go, and why.
type Answer struct {
	Now wire.Time
	// Tokens is the prompt's length, Blocks its full blocks of the router's size.
	Tokens, Blocks, BlockSize int
	Model                     string
	Policy, Rule              string
	Config                    []route.Setting
	// Candidates are in the order of their ranks, those taken out last.
	Candidates []Candidate
	// Best are those of the first rank, Choice all that can be chosen, the
	// likeliest first.
	Best, Choice []wire.Replica
	// Deciding is the term that speaks most for the best before Against, by
	// Margin; empty where nothing decided.
	Deciding string
	Margin   float64
	Against  wire.Replica
	// Why is that in a sentence, and Trace the rule's steps.
	Why   string
	Trace []string
	// Cancels names the terms that are equal for all and decide nothing.
	Cancels []string
	Flips   []route.Flip
	// Unlike says that no candidate has blocks of the router's size, so that none of
	// the prompt's can be found.
	Unlike bool
	// Divergence is nil where all full blocks are stored as one chain, and where all
	// are Unlike.
	Divergence *Divergence
	// Notes are what else to know.
	Notes []string
	// Given is what the rule was asked, with all edits made.
	Given Given
	// Asked is what live routers said of the prompt, filled in by who asked them.
	Asked []Asked
	// ByPolicy is what the query's Others say, in their order.
	ByPolicy []ByPolicy
}

// Given is what a rule decides by.
type Given struct {
	Config     *route.Config
	Request    route.Request
	Candidates []route.Candidate
}

// Asked is what one router said of a prompt, beside ours.
type Asked struct {
	// Who is router, indexer, selector or trace, and At its address or file.
	Who, At string
	// Choice is whom it chose, by our name, and empty where it was not asked to.
	Choice wire.Replica
	Agrees bool
	// Said is its answer in words, as far as Choice is not all of it, and Why how
	// it stands to ours, in one sentence.
	Said, Why   string
	Differences []AskedDifference
	// Err says why there is no answer; all but Who and At is then empty.
	Err string
	// Decision is nil where it was not looked up in a trace.
	Decision *Decision
}

// AskedDifference is one thing that a router knows otherwise.
type AskedDifference struct {
	What    string
	Replica wire.Replica // empty where it is about no single one
	Text    string
}

// Decision is one that a router has made.
type Decision struct {
	Request string
	At      wire.Time
	HitRate float64
}

// Candidate is one replica that the prompt could go to.
type Candidate struct {
	route.Scored
	Trust Trust
	// Match is what a router of this block size believes it to hold, in blocks
	// per tier, and Certain how many of the first are sure.
	Match   [wire.NumTiers]int
	Certain int
	// CachedTokens is what the engine would report as cached.
	CachedTokens int
	// WaitMS is the time for prompt tokens that others have yet to compute there,
	// and PrefillMS that for the rest of this prompt, where Timed: with a rate.
	WaitMS, PrefillMS float64
	Timed             bool
	Load              Load
	Note              string
}

// Divergence is where a prompt leaves every stored chain.
type Divergence struct {
	index.Parting
	// Lost counts the prompt's full blocks from there on, which no cache has.
	Lost int
	// Diff says what parts the prompt, B, from a stored chain, A; nil until Compare
	// has found it.
	Diff *diff.Diff

	// chains are the tokens of stored chains from Block on, and size that of a
	// block.
	chains [][]wire.Token
	size   int
}

// ErrNobody says that nobody is known yet to whom a prompt could go.
var ErrNobody = errors.New("there is no candidate yet")

// Candidates answers a query. An error that is not ErrNobody is the query's.
func Candidates(f Fleet, q Query) (*Answer, error) {
	switch {
	case len(q.Tokens) == 0:
		return nil, errors.New("the prompt has no tokens")
	case len(q.Tokens) > MaxPrompt:
		return nil, errors.New("the prompt is too long")
	}
	model, err := q.model(f.Replicas)
	if err != nil {
		return nil, err
	}
	a := &Answer{Now: f.Now, Tokens: len(q.Tokens), Model: model}
	asked := index.NewPrompt(index.Query{Model: model, Tokens: q.Tokens, LoRA: q.LoRA, Salt: q.Salt})
	cands := f.candidates(model, asked, q.BlockSize)
	if len(cands) == 0 {
		return nil, fmt.Errorf("%w: no replica has been seen that serves the model", ErrNobody)
	}
	req := route.Request{
		Tokens: len(q.Tokens), Pool: q.Pool, At: f.Now, Model: model, Session: q.Session, Contents: q.Contents, IDs: q.Tokens,
	}
	if req.BlockSize, req.Bigram = form(cands, q.BlockSize); req.BlockSize == 0 {
		return nil, fmt.Errorf("%w: no replica has said its block size: give it, or wait for a cache event", ErrNobody)
	}
	a.BlockSize, a.Blocks = req.BlockSize, req.Blocks()
	sequence := asked.Sequence(req.BlockSize, req.Bigram)
	for i := range cands {
		c := &cands[i]
		c.load = f.Loads.of(f.Now, c.replica, q.Page, sequence)
		c.fit(&req)
	}
	if err := a.decide(&req, cands, q); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(cands, func(c candidate) bool { return c.usable })
	if a.Unlike = at < 0; !a.Unlike {
		name, size := cands[at].replica.Name, cands[at].stats.BlockSize
		if part, ok := f.Index.Part(name, asked); ok {
			chains := f.Index.Alongside(name, asked, part, maxChains, a.Blocks-part.Block+beyondAsked)
			a.Divergence = &Divergence{Parting: part, Lost: a.Blocks - part.Block, chains: chains, size: size}
		}
	}
	a.note(cands, q)
	return a, nil
}

// model gives the model that a prompt is for.
func (q *Query) model(replicas []Replica) (string, error) {
	var models []string
	for i := range replicas {
		if m := replicas[i].Trust.Model; m != "" && !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	slices.Sort(models)
	names := func() string { return wire.Printable(strings.Join(models, ", ")) }
	switch {
	case q.Model == "" && slices.Contains(models, q.Named):
		return q.Named, nil
	case q.Model == "" && len(models) > 1:
		return "", fmt.Errorf("the fleet serves %d models, and a router chooses among the replicas of one: name it, one of %s", len(models), names())
	case q.Model == "" && len(models) == 1:
		return models[0], nil
	case q.Model != "" && len(models) > 0 && !slices.Contains(models, q.Model):
		return "", fmt.Errorf("no replica serves the model %s: there is %s", wire.Printable(q.Model), names())
	}
	return q.Model, nil
}

// candidate is one on its way into an answer.
type candidate struct {
	replica *Replica
	match   index.Match
	stats   index.Stats
	load    Load
	// usable says that its blocks are of the router's size.
	usable bool
	note   string
}

// candidates are the replicas of a model, those of which no event came included:
// a router chooses them as well.
func (f *Fleet) candidates(model string, prompt *index.Prompt, blockSize int) []candidate {
	for i := range f.Replicas {
		if name := f.Replicas[i].Name; blockSize > 0 && f.Index.Stats(name).BlockSize == 0 {
			f.Index.SetBlockSize(name, blockSize)
		}
	}
	matches := map[wire.Replica]index.Match{}
	for _, m := range f.Index.Match(prompt) {
		matches[m.Replica] = m
	}
	var out []candidate
	for i := range f.Replicas {
		r := &f.Replicas[i]
		if r.Trust.Model == "" || r.Trust.Model == model || model == "" {
			out = append(out, candidate{replica: r, match: matches[r.Name], stats: f.Index.Stats(r.Name)})
		}
	}
	return out
}

// form is how the router cuts prompts: as most replicas do, since a router takes
// the block size from the model's card, unless a size is given.
func form(cands []candidate, size int) (int, bool) {
	type form struct {
		size   int
		bigram bool
	}
	count := map[form]int{}
	best := form{size: size}
	for i := range cands {
		s := form{cands[i].stats.BlockSize, cands[i].stats.Bigram}
		if s.size <= 0 || size > 0 && s.size != size {
			continue
		}
		if count[s]++; count[s] > count[best] || count[s] == count[best] && s.size < best.size {
			best = s
		}
	}
	return best.size, best.bigram
}

// fit says whether the router's blocks are the replica's.
func (c *candidate) fit(req *route.Request) {
	c.usable = c.stats.BlockSize == req.BlockSize && c.stats.Bigram == req.Bigram
	switch {
	case c.usable:
	case c.stats.BlockSize == 0:
		c.note = "its block size is not known yet: nothing of it can match"
	default:
		c.note = fmt.Sprintf("its blocks have %d tokens: a router with blocks of %d indexes none of them", c.stats.BlockSize, req.BlockSize)
	}
}

// router gives the candidate as a router sees it. Of a hybrid model's cache it
// indexes only the groups that need every block.
func (c *candidate) router() route.Candidate {
	out := route.Candidate{Replica: c.replica.Name, Load: c.load.Load}
	if c.usable {
		out.Match = c.match.Tiers
		out.Match[wire.Device] = max(out.Match[wire.Device], c.match.Upper)
	}
	return out
}

// decide edits what there is to edit, and asks the rule.
func (a *Answer) decide(req *route.Request, cands []candidate, q Query) error {
	given := make([]route.Candidate, len(cands))
	for i := range cands {
		given[i] = cands[i].router()
	}
	cfg, edited := q.Config, given
	for _, e := range q.Edits {
		var err error
		if cfg, edited, err = route.Edit(cfg, edited, e.Key, e.Value); err != nil {
			return err
		}
	}
	d, err := route.Decide(cfg, req, edited)
	if err != nil {
		return err
	}
	a.Policy, a.Rule, a.Config = d.Policy, cfg.Policy().Rule, cfg.Settings()
	a.Best, a.Choice, a.Why, a.Trace, a.Cancels = d.Names(d.Best), d.Names(d.Choice), d.Why(), d.Trace, d.Cancels()
	if term, margin, against, ok := d.Deciding(); ok {
		a.Deciding, a.Margin, a.Against = term, margin, d.Candidates[against].Replica
	}
	a.Flips = route.Flips(cfg, req, edited)
	a.Given = Given{cfg, *req, edited}
	for i := range cands {
		a.Candidates = append(a.Candidates, cands[i].scored(d.Candidates[i], &given[i], &edited[i], req, &q))
	}
	slices.SortStableFunc(a.Candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(uint(a.Rank-1), uint(b.Rank-1)), cmp.Compare(a.Replica, b.Replica)) // rank 0 comes last
	})
	return a.others(q.Others)
}

// scored joins what the rule made of a candidate with what is known of it.
func (c *candidate) scored(s route.Scored, given, edited *route.Candidate, req *route.Request, q *Query) Candidate {
	out := Candidate{
		Scored: s, Trust: c.replica.Trust, Match: edited.Match, Certain: c.match.Certain, Load: c.load, Note: c.note,
		CachedTokens: index.CachedTokens(c.match.Depth(), c.match.BlockSize, req.Tokens),
	}
	if edited.Match != given.Match {
		n := 0
		for _, blocks := range edited.Match {
			n += blocks
		}
		out.CachedTokens = index.CachedTokens(n, req.BlockSize, req.Tokens)
		out.Certain = min(out.Certain, n)
		out.Note = join(out.Note, "its match was set by hand")
	} else if c.usable && given.Match[wire.Device] > c.match.Tiers[wire.Device] {
		out.Note = join(out.Note, fmt.Sprintf("it can use %s of them: a group of its cache lacks its part", wire.Counted(c.match.Tiers[wire.Device], "block")))
	}
	out.Load.Load = edited.Load
	if !q.Config.Policy().ReadsQueue() {
		out.Load.Missing = slices.DeleteFunc(slices.Clone(out.Load.Missing), func(field string) bool {
			return field == loadFields[waiting] || field == loadFields[usage]
		})
	}
	for _, field := range loadFields {
		if slices.ContainsFunc(q.Edits, func(e Edit) bool { return e.Key == string(s.Replica)+":"+field }) {
			out.Load.edited(field)
		}
	}
	if rate := q.PrefillRate; rate > 0 {
		out.Timed = true
		out.WaitMS = float64(edited.Load.PrefillTokens) / rate * 1e3
		out.PrefillMS = float64(max(0, req.Tokens-out.CachedTokens)) / rate * 1e3
	}
	return out
}

func join(words, more string) string {
	if words == "" {
		return more
	}
	return words + "; " + more
}

// note says what holds for the answer as a whole.
func (a *Answer) note(cands []candidate, q Query) {
	say := func(when bool, format string, args ...any) {
		if when {
			a.Notes = append(a.Notes, fmt.Sprintf(format, args...))
		}
	}
	unknown, stale := 0, 0
	for i := range a.Candidates {
		switch a.Candidates[i].Load.State {
		case route.LoadUnknown:
			unknown++
		case route.LoadStale:
			stale++
		}
	}
	say(q.Model == "" && q.LoRA == "" && q.Named != "" && a.Model != "" && q.Named != a.Model,
		"the request names the model %s, which no replica is known to serve, so this is for %s: if it is a LoRA adapter, say so (--lora)",
		wire.Printable(q.Named), wire.Printable(a.Model))
	say(unknown > 0, "the load of %s is unknown and counts as 0: let metrics be read, or give it by hand", wire.Counted(unknown, "candidate"))
	say(stale > 0, "the load of %s is stale", wire.Counted(stale, "candidate"))
	most := index.CachedTokens(a.Blocks, a.BlockSize, a.Tokens)
	whole := func(c Candidate) bool { return c.CachedTokens == most }
	say(most < a.Blocks*a.BlockSize && slices.ContainsFunc(a.Candidates, whole),
		"an engine computes the last token of every prompt, so of its %s at most %d are reused: a hit rate of %.1f %%",
		wire.Counted(a.Blocks, "block"), most/a.BlockSize, 100*float64(most)/float64(a.Tokens))
	if q.Page != nil {
		mine := 0
		for _, w := range q.Page.Workers {
			if slices.ContainsFunc(cands, func(c candidate) bool { return c.replica.Name == w.Replica }) {
				mine++
			}
		}
		say(mine == 0, "the router's metrics speak of %s, none of which is a candidate here", wire.Counted(len(q.Page.Workers), "worker"))
	}
}
