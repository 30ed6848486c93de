package report

import (
	"io"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// ExplainSchema is that of ExplainJSON.
const ExplainSchema = "kvscope.explain/1"

type jsonExplain struct {
	Schema     string          `json:"schema"`
	At         wire.Time       `json:"at"`
	Damage     string          `json:"damage,omitempty"`
	Prompt     jsonPrompt      `json:"prompt"`
	Model      string          `json:"model"`
	Policy     string          `json:"policy"`
	Rule       string          `json:"rule"`
	Config     []jsonSetting   `json:"config"`
	Candidates []jsonCandidate `json:"candidates"`
	// Choice are all that can be chosen, the likeliest first, and Best those that
	// cost least: others are in Choice where one is drawn.
	Choice   []wire.Replica `json:"choice"`
	Best     []wire.Replica `json:"best"`
	Deciding string         `json:"deciding_term"`
	Margin   float64        `json:"margin"`
	Against  wire.Replica   `json:"against"`
	Why      string         `json:"why"`
	Cancels  []string       `json:"cancels"`
	Trace    []string       `json:"trace"`
	Flip     []jsonFlip     `json:"flip"`
	Diverges *jsonDiverges  `json:"divergence"`
	Notes    []string       `json:"notes"`
	Asked    []jsonAsked    `json:"asked"`
	// ByPolicy is what every policy says, where all were asked.
	ByPolicy []jsonByPolicy `json:"by_policy,omitempty"`
}

// jsonByPolicy is where one policy would send the prompt: choice as above with the
// probabilities of each, recomputed_tokens those that are expected to be computed
// anew, null where nobody is eligible. It is guessed where the router goes by what it
// remembers, for which what the replicas hold stands in, and by_names where the router
// hashes what replicas are called.
type jsonByPolicy struct {
	Policy     string         `json:"policy"`
	System     string         `json:"system"`
	Sticks     string         `json:"affinity"`
	Choice     []wire.Replica `json:"choice"`
	Chances    []float64      `json:"probabilities"`
	Guessed    bool           `json:"guessed"`
	ByNames    bool           `json:"by_names"`
	Recomputed *float64       `json:"recomputed_tokens"`
	Why        string         `json:"why"`
	Trace      []string       `json:"trace"`
}

// jsonAsked is what a live router said; a choice is empty where it was not asked
// to choose.
type jsonAsked struct {
	Who         string           `json:"who"`
	At          string           `json:"at"`
	Choice      wire.Replica     `json:"choice"`
	Agrees      bool             `json:"agrees"`
	Said        string           `json:"said"`
	Why         string           `json:"why"`
	Differences []jsonDifference `json:"differences"`
	Error       string           `json:"error"`
	Decision    *jsonDecision    `json:"decision,omitempty"`
}

type jsonDifference struct {
	What    string       `json:"what"`
	Replica wire.Replica `json:"replica"`
	Text    string       `json:"text"`
}

type jsonDecision struct {
	Request string    `json:"request"`
	At      wire.Time `json:"at"`
	HitRate float64   `json:"kv_hit_rate"`
}

type jsonPrompt struct {
	Tokens    int `json:"tokens"`
	Blocks    int `json:"blocks"`
	BlockSize int `json:"block_size"`
	// Bytes are those of its text, 0 where token ids were given; Template and
	// Encoder say how it became tokens.
	Bytes    int    `json:"bytes"`
	Template string `json:"template"`
	Encoder  string `json:"tokenizer"`
}

type jsonSetting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

type jsonCandidate struct {
	Replica wire.Replica `json:"replica"`
	Trust   string       `json:"trust"`
	Matched jsonTiers    `json:"matched"`
	Certain int          `json:"certain"`
	Cached  int          `json:"predicted_cached_tokens"`
	// Terms are what each adds to the cost, and Values the terms in the router's
	// own units.
	Terms       map[string]float64 `json:"terms"`
	Values      map[string]float64 `json:"values"`
	Cost        *float64           `json:"cost"`
	Rank        int                `json:"rank"`
	Probability float64            `json:"probability"`
	Out         string             `json:"out"`
	Formula     string             `json:"formula"`
	Load        string             `json:"load"`
	Loads       jsonLoads          `json:"load_values"`
	WaitMS      *float64           `json:"wait_ms"`
	PrefillMS   *float64           `json:"prefill_ms"`
	Note        string             `json:"note"`
}

type jsonLoads struct {
	Prefill  int       `json:"active_prefill_tokens"`
	Blocks   int       `json:"active_decode_blocks"`
	Shared   int       `json:"shared_prefix_blocks"`
	Requests int       `json:"active_requests"`
	Waiting  int       `json:"waiting_requests"`
	Usage    float64   `json:"kv_cache_usage"`
	From     string    `json:"from"`
	At       wire.Time `json:"at"`
	Missing  []string  `json:"missing"`
	Note     string    `json:"note"`
}

type jsonFlip struct {
	Kind string         `json:"kind"`
	What string         `json:"what"`
	From string         `json:"from"`
	To   string         `json:"to"`
	Then []wire.Replica `json:"then"`
}

type jsonDiverges struct {
	Token   int          `json:"token"`
	Block   int          `json:"block"`
	Against wire.Replica `json:"against"`
	// TokenKnown is false where the nearest chain's tokens were not kept: token is
	// then the block's first one.
	TokenKnown bool `json:"token_known"`
	Lost       int  `json:"blocks_lost"`
	// Foreign says that the nearest chain is of another LoRA or cache salt.
	Foreign bool `json:"foreign"`
	// Diff says what parts the prompt, b, from a stored chain, a; null where no
	// chain's tokens were kept.
	Diff *jsonDiff `json:"diff"`
}

// ExplainJSON writes where a prompt, asked, would go as kvscope.explain/1; damage
// as for JSON. Lists are never null.
func ExplainJSON(w io.Writer, a *explain.Answer, asked *prompt.Prompt, damage string) error {
	j := jsonExplain{
		Schema: ExplainSchema, At: a.Now, Damage: damage, Prompt: jsonPrompt{a.Tokens, a.Blocks, a.BlockSize, len(asked.Text), asked.Template, asked.Encoder},
		Model: a.Model, Policy: a.Policy, Rule: a.Rule, Config: []jsonSetting{}, Candidates: []jsonCandidate{},
		Choice: full(a.Choice), Best: full(a.Best), Deciding: a.Deciding, Margin: a.Margin, Against: a.Against,
		Why: a.Why, Cancels: full(a.Cancels), Trace: full(a.Trace), Flip: []jsonFlip{}, Notes: full(a.Notes), Asked: []jsonAsked{},
	}
	for _, s := range a.Config {
		j.Config = append(j.Config, jsonSetting(s))
	}
	for i := range a.Candidates {
		j.Candidates = append(j.Candidates, candidateJSON(&a.Candidates[i]))
	}
	for _, f := range a.Flips {
		j.Flip = append(j.Flip, jsonFlip{f.Kind.String(), f.What, f.From, f.To, full(f.Then)})
	}
	for _, said := range a.Asked {
		row := jsonAsked{said.Who, said.At, said.Choice, said.Agrees, said.Said, said.Why, []jsonDifference{}, said.Err, (*jsonDecision)(said.Decision)}
		for _, d := range said.Differences {
			row.Differences = append(row.Differences, jsonDifference(d))
		}
		j.Asked = append(j.Asked, row)
	}
	for i := range a.ByPolicy {
		p := &a.ByPolicy[i]
		row := jsonByPolicy{p.Policy, p.System, p.Sticks.String(), full(p.Choice), full(p.Chances), p.Guessed, p.ByNames, nil, p.Why, full(p.Trace)}
		if len(p.Choice) > 0 {
			row.Recomputed = &p.Anew
		}
		j.ByPolicy = append(j.ByPolicy, row)
	}
	if d := a.Divergence; d != nil {
		j.Diverges = &jsonDiverges{d.Token, d.Block, d.Replica, d.Known, d.Lost, d.Foreign, nil}
		if d.Diff != nil {
			j.Diverges.Diff = diffJSON(d.Diff)
		}
	}
	return write(w, j)
}

// full is a list that is not null.
func full[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func candidateJSON(c *explain.Candidate) jsonCandidate {
	j := jsonCandidate{
		Replica: c.Replica, Trust: c.Trust.Words, Certain: c.Certain, Cached: c.CachedTokens,
		Matched: jsonTiers{c.Match[wire.Device], c.Match[wire.Host], c.Match[wire.Disk], c.Match[wire.External]},
		Terms:   map[string]float64{}, Values: map[string]float64{}, Rank: c.Rank, Probability: c.Probability,
		Out: c.Out, Formula: c.Scored.Rule, Load: c.Load.State.String(), Note: c.Note,
		Loads: jsonLoads{
			c.Load.PrefillTokens, c.Load.Blocks, c.Load.Prefix, c.Load.Requests, c.Load.Waiting, c.Load.Usage,
			c.Load.From, c.Load.At, full(c.Load.Missing), c.Load.Note,
		},
	}
	for _, t := range c.Terms {
		j.Terms[t.Name], j.Values[t.Name] = t.Cost, t.Value
	}
	if c.Rank > 0 {
		j.Cost = &c.Cost
	}
	if c.Timed {
		j.WaitMS, j.PrefillMS = &c.WaitMS, &c.PrefillMS
	}
	return j
}
