package lab

import (
	"context"
	"fmt"

	"github.com/kvscope/kvscope/route"
)

// Plan is a table of runs: every workload on fleets of every size with caches of
// every capacity, through every policy.
type Plan struct {
	Workloads            []*Workload
	Policies             []*route.Config
	Replicas, Capacities []int
	// Base is the rest of the options.
	Base Options
}

// Group are the results of runs that differ by policy alone.
type Group struct {
	Workload *Workload
	Engine   Engine
	// Replicas at the start have so many blocks each.
	Replicas, Capacity int
	// Results are in the order of the policies.
	Results []*Result
}

// maxRuns bounds a plan.
const maxRuns = 10000

// Run runs the plan, workers at a time, and tells done as RunAll does. What it gives
// does not depend on workers.
func (p *Plan) Run(ctx context.Context, workers int, done func(n, of int)) ([]Group, error) {
	if n := len(p.Workloads) * len(p.Policies) * len(p.Replicas) * len(p.Capacities); n < 1 || n > maxRuns {
		return nil, fmt.Errorf("a plan of %d runs: give 1 to %d", n, maxRuns)
	}
	var groups []Group
	var runs []Options
	for _, w := range p.Workloads {
		for _, replicas := range p.Replicas {
			for _, capacity := range p.Capacities {
				groups = append(groups, Group{Workload: w, Engine: p.Base.Engine, Replicas: replicas, Capacity: capacity})
				for _, policy := range p.Policies {
					o := p.Base
					o.Workload, o.Policy, o.Replicas, o.Capacity = w, policy, replicas, capacity
					runs = append(runs, o)
				}
			}
		}
	}
	results, err := RunAll(ctx, runs, workers, done)
	if err != nil {
		return nil, err
	}
	for i := range groups {
		groups[i].Results = results[i*len(p.Policies):][:len(p.Policies)]
	}
	return groups, nil
}
