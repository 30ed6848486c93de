package main

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/wire"
)

// routerView reads a router's metrics page for the checks.
func routerView(text string) (diagnose.RouterPage, error) {
	facts, err := fleet.ParseRouter(text)
	if err != nil {
		return diagnose.RouterPage{}, err
	}
	out := diagnose.RouterPage{
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

// scraper fetches the pages of the members, and beside them those of the routers,
// as a whole.
func (c *liveConfig) scraper() scraper {
	engines := fleet.NewScraper(fleet.Options{Interval: c.Scrape}).Run
	if len(c.Routers) == 0 {
		return engines
	}
	var pages []fleet.Member
	for _, at := range c.Routers {
		name := at
		if u, err := url.Parse(at); err == nil && u.Host != "" {
			name = u.Host
		}
		pages = append(pages, fleet.Member{Name: wire.RouterName(name), Metrics: at})
	}
	const every = 5 * time.Second
	routers := fleet.NewScraper(fleet.Options{Interval: max(every, c.Scrape), WholeEvery: 1}).Run
	return func(ctx context.Context, members func() []fleet.Member, emit func(wire.Record)) {
		var both sync.WaitGroup
		both.Go(func() { engines(ctx, members, emit) })
		both.Go(func() { routers(ctx, func() []fleet.Member { return pages }, emit) })
		both.Wait()
	}
}
