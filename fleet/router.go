package fleet

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
)

// ErrNoRouter says that a page is readable but holds no metric of a known
// router: a wrong port, most often.
var ErrNoRouter = errors.New("no metric of a router of Dynamo, SGLang, Ray Serve or llm-d on the page")

// RouterFacts are what a router says of itself on its metrics page: counts
// since it started, and gauges. Zero values are unknown or none.
type RouterFacts struct {
	// Router is dynamo, sglang, ray or llm-d.
	Router string
	// Requests counts the requests that it chose a worker for.
	Requests float64
	// HitRate is its own prediction, request by request: the share of the
	// prompt that the chosen worker was believed to hold.
	HitRate Mean
	// CachedTokens are prompt tokens that the chosen workers were believed to
	// hold, and BestTokens those that the best workers were.
	CachedTokens, BestTokens float64
	// Queued are requests that wait for a worker, now.
	Queued float64
	// Overhead is the time that each phase took, in milliseconds a request;
	// "total" is all of them.
	Overhead map[string]Mean
	// Choices counts choices by the policy, or the branch of it, that made them.
	Choices map[string]float64
	// Workers are those that it knows, by ID and rank.
	Workers []RouterWorker
	// Unsourced are workers from which it expects events and has none.
	Unsourced float64
	// Events are cache events by what became of them.
	Events []RouterEvents
	// Index is its index of blocks.
	Index RouterIndex
	// Truncated counts requests judged by the start of their body alone, and
	// Diverted those that went elsewhere than the router chose.
	Truncated, Diverted float64
}

// Mean is a number of observations and their sum.
type Mean struct{ Count, Sum float64 }

// Value is the mean. It reports false where nothing was observed.
func (m Mean) Value() (float64, bool) { return m.Sum / m.Count, m.Count > 0 }

// RouterWorker is a worker, as a router sees it.
type RouterWorker struct {
	// ID is Dynamo's worker id in decimal, or the worker's URL.
	ID string
	// Rank is its data-parallel rank, -1 where the router knows none.
	Rank int
	// Registered says that the router sends requests to it.
	Registered bool
	// Unhealthy says that the router found it so.
	Unhealthy bool
	// Blocks and PrefillTokens are the load that the router has booked on it,
	// and Active its requests in flight.
	Blocks, PrefillTokens, Active float64
}

// RouterEvents counts events of one kind with one outcome, in the router's
// words, such as stored and parent_block_not_found.
type RouterEvents struct {
	Kind, Outcome string
	Count         float64
}

// RouterIndex counts what a router's own index of blocks did.
type RouterIndex struct{ Admitted, Evicted, Lookups, Found float64 }

// routerReading is a page on its way into RouterFacts.
type routerReading struct {
	facts   RouterFacts
	workers map[workerKey]*RouterWorker
	events  map[RouterEvents]float64 // by what is told apart, with Count 0
}

type workerKey struct {
	id   string
	rank int
}

// ParseRouter reads the Prometheus text page of a router: Dynamo's frontend,
// SGLang's gateway, Ray Serve's proxy or llm-d's endpoint picker. What it
// bounds and ignores is as with ParseMetrics.
func ParseRouter(text string) (RouterFacts, error) {
	page, err := parse(text, func(name string) bool { return routerWanted[name] })
	if err != nil {
		return RouterFacts{}, err
	}
	r := routerReading{workers: map[workerKey]*RouterWorker{}, events: map[RouterEvents]float64{}}
	for i := range routerFamilies {
		f := &routerFamilies[i]
		if samples := page[f.name].GetMetric(); len(samples) > 0 {
			if r.facts.Router == "" {
				r.facts.Router = f.router
			}
			r.take(f, samples)
		}
	}
	if r.facts.Router == "" {
		return RouterFacts{}, ErrNoRouter
	}
	for _, w := range r.workers {
		r.facts.Workers = append(r.facts.Workers, *w)
	}
	slices.SortFunc(r.facts.Workers, func(a, b RouterWorker) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Rank, b.Rank))
	})
	for _, e := range slices.SortedFunc(maps.Keys(r.events), func(a, b RouterEvents) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Outcome, b.Outcome))
	}) {
		e.Count = r.events[e]
		r.facts.Events = append(r.facts.Events, e)
	}
	return r.facts, nil
}

// take hands a family's samples to its setters: their sum, or each.
func (r *routerReading) take(f *routerFamily, samples []*dto.Metric) {
	total := 0.0
	for _, m := range samples {
		v := m.GetUntyped().GetValue()
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			continue
		}
		if total += v; f.each != nil {
			f.each(r, m, v)
		}
	}
	if f.total != nil && !math.IsInf(total, 0) {
		f.total(&r.facts, total)
	}
}

// worker finds the worker that a sample is about; without an id it is a
// throw-away.
func (r *routerReading) worker(m *dto.Metric, idLabel string) *RouterWorker {
	k := workerKey{label(m, idLabel), -1}
	if rank, err := strconv.Atoi(label(m, "dp_rank")); err == nil {
		k.rank = rank
	}
	w := r.workers[k]
	if w == nil {
		w = &RouterWorker{ID: k.id, Rank: k.rank}
		if k.id != "" && len(r.workers) < maxMembers {
			r.workers[k] = w
		}
	}
	return w
}

// event counts an event.
func (r *routerReading) event(kind, outcome string, n float64) {
	const most = 1 << 10
	k := RouterEvents{Kind: kind, Outcome: outcome}
	if _, ok := r.events[k]; ok || len(r.events) < most {
		r.events[k] = plus(r.events[k], n)
	}
}

// plus adds what does not lead beyond all numbers.
func plus(a, b float64) float64 {
	if sum := a + b; !math.IsInf(sum, 0) {
		return sum
	}
	return a
}
