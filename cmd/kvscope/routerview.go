package main

import (
	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fleet"
)

// routerView reads a router's metrics page for the checks.
func routerView(text string) (diagnose.Router, error) {
	facts, err := fleet.ParseRouter(text)
	if err != nil {
		return diagnose.Router{}, err
	}
	out := diagnose.Router{
		Kind: facts.Router, Requests: facts.Requests, Truncated: facts.Truncated,
		Overhead: map[string]diagnose.Spent{}, Booked: -1,
	}
	for phase, m := range facts.Overhead {
		out.Overhead[phase] = diagnose.Spent{Times: m.Count, Millis: m.Sum}
	}
	for i := range facts.Workers {
		if w := &facts.Workers[i]; w.Registered && !w.Unhealthy {
			out.Workers++
		}
	}
	if out.Workers > 0 {
		out.Booked = 0
		for i := range facts.Workers { // Dynamo names a worker otherwise where it says its load
			w := &facts.Workers[i]
			out.Booked += w.Blocks + w.PrefillTokens + w.Active
		}
	}
	return out, nil
}
