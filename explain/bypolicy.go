package explain

import (
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// ByPolicy is where one rule would send a prompt.
type ByPolicy struct {
	// Policy is its name, System the router that has it, and Sticks what holds a
	// prompt to a replica there.
	Policy, System string
	Sticks         route.Affinity
	// Guessed says that the router goes by what it remembers of earlier prompts, which
	// nobody can read from outside: what the replicas hold stands in for it.
	Guessed bool
	// ByNames says that the router hashes what replicas are called: the answer holds
	// where it calls them as they are called here.
	ByNames bool
	// Choice are all that can be chosen, the likeliest first, and Chances theirs;
	// nobody where none is eligible.
	Choice  []wire.Replica
	Chances []float64
	// Anew is how many of the prompt's tokens are computed, as expected over Choice.
	Anew float64
	// Why is the rule's reason in a sentence, and Trace its steps.
	Why   string
	Trace []string
}

// others asks more rules what the answer's own was asked.
func (a *Answer) others(configs []*route.Config) error {
	anew := make(map[wire.Replica]int, len(a.Candidates))
	for i := range a.Candidates {
		anew[a.Candidates[i].Replica] = a.Tokens - a.Candidates[i].CachedTokens
	}
	for _, cfg := range configs {
		d, err := route.Decide(cfg, &a.Given.Request, a.Given.Candidates)
		if err != nil {
			return err
		}
		p := cfg.Policy()
		by := ByPolicy{
			Policy: p.Name, System: p.System, Sticks: p.Sticks, Guessed: p.Remembers(), ByNames: p.HashesNames(),
			Choice: d.Names(d.Choice), Why: d.Why(), Trace: d.Trace,
		}
		for _, at := range d.Choice {
			c := &d.Candidates[at]
			by.Chances = append(by.Chances, c.Probability)
			by.Anew += c.Probability * float64(anew[c.Replica])
		}
		a.ByPolicy = append(a.ByPolicy, by)
	}
	return nil
}
