package lab

import (
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// Result is what a policy made of a workload. Shares are from 0 to 1, times in
// seconds.
type Result struct {
	Policy string
	Sticks route.Affinity
	// Set are the settings of the policy that are not its defaults.
	Set []route.Setting
	// Requests were served, and Refused too long for the cache. Short of those served
	// have no block that could come from a cache; the shares leave them out.
	Requests, Refused, Short int
	// HitRate is the share of prompt tokens that came from caches.
	HitRate float64
	// Phantom is the share of prompt tokens that the router believed to be in the
	// chosen replica's cache and that were not, when the engine came to them. Only
	// where Believes is set does the policy go by what engines announce.
	Phantom  float64
	Believes bool
	// BacklogCV is the mean, over bins of half a second, of the standard deviation
	// over the mean of the prompt tokens that replicas have yet to compute, at the
	// bin's end; bins without any are left out. BlocksCV is that of the blocks that
	// their running requests hold.
	BacklogCV, BlocksCV float64
	// Makespan is from the first arrival to the last end.
	Makespan float64
	// TTFT is the time from arrival to the first token, Latency that to the last,
	// and Session that from a session's first arrival to its last end. Session is
	// only measured where a fleet's pace decides when requests come.
	TTFT, Latency, Session Times
	// Sticky is the share of later turns on their session's first replica, of
	// Later turns.
	Sticky float64
	Later  int
	// Share is each replica's share of the requests.
	Share []float64
}

// Times sums up times, in seconds.
type Times struct{ Mean, P50, P99 float64 }

// bin is the length of those that loads are sampled in.
const bin = second / 2

// meter measures a run.
type meter struct {
	refused, short, served int
	tokens, hits, phantom  int
	backlog, blocks        cvMean
	values                 []float64
	next                   wire.Time // the end of the bin
	begun                  bool
	from, to               wire.Time
	ttft, latency          []float64
	sessions               []sessionMark
	later, sticky          int
	placed                 []int
}

// sessionMark is where a session went first, from when to when it was.
type sessionMark struct {
	replica  int32
	begun    bool
	from, to wire.Time
}

// cvMean is a mean over bins.
type cvMean struct {
	sum  float64
	bins float64
}

func (c *cvMean) add(values []float64, bins wire.Time) {
	if slices.Max(values) > 0 {
		c.sum += variation(values) * float64(bins)
		c.bins += float64(bins)
	}
}

func (c *cvMean) mean() float64 { return c.sum / max(1, c.bins) }

func (m *meter) begin(w *Workload, replicas int) {
	m.sessions = make([]sessionMark, w.sessions)
	m.placed = make([]int, replicas)
	m.ttft = make([]float64, 0, len(w.requests))
	m.latency = make([]float64, 0, len(w.requests))
	m.next = bin
}

// until samples the bins that have ended by a time at which something will happen.
// Nothing has changed since the last event.
func (m *meter) until(at wire.Time, replicas []replica) {
	if at < m.next {
		return
	}
	bins := (at-m.next)/bin + 1
	m.next += bins * bin
	m.values = m.values[:0]
	for i := range replicas {
		m.values = append(m.values, float64(replicas[i].backlog))
	}
	m.backlog.add(m.values, bins)
	for i := range replicas {
		m.values[i] = float64(replicas[i].cache.used())
	}
	m.blocks.add(m.values, bins)
}

func (m *meter) arrive(q *request, to int, now wire.Time) {
	if !m.begun {
		m.begun, m.from = true, now
	}
	m.placed[to]++
	s := &m.sessions[q.session]
	if !s.begun {
		*s = sessionMark{int32(to), true, now, now}
		return
	}
	m.later++
	if s.replica == int32(to) {
		m.sticky++
	}
}

func (m *meter) serve(f *flight, prompt, size int, byCache bool) {
	m.served++
	if f.seq.usable == 0 {
		m.short++
		return
	}
	m.tokens += prompt
	m.hits += f.seq.hits * size
	if byCache {
		m.phantom += max(0, min(f.believed, f.seq.usable)-f.seq.hits) * size
	}
}

func (m *meter) first(took wire.Time) { m.ttft = append(m.ttft, took.Seconds()) }

func (m *meter) end(q *request, from, now wire.Time) {
	m.latency = append(m.latency, (now - from).Seconds())
	m.sessions[q.session].to = now
	m.to = max(m.to, now)
}

// whole makes sure that every request has come to its end.
func (m *meter) whole(requests int) error {
	if n := len(m.latency) + m.refused; n != requests {
		return fmt.Errorf("%d of %d requests came to an end", n, requests)
	}
	return nil
}

func ratio(part, of int) float64 { return float64(part) / float64(max(1, of)) }

func (r *run) result() *Result {
	m := &r.m
	out := &Result{
		Policy: r.o.Policy.Policy().Name, Sticks: r.o.Policy.Policy().Sticks,
		Requests: m.served, Refused: m.refused, Short: m.short,
		HitRate: ratio(m.hits, m.tokens), Phantom: ratio(m.phantom, m.tokens), Believes: r.byCache,
		BacklogCV: m.backlog.mean(), BlocksCV: m.blocks.mean(),
		Makespan: (m.to - m.from).Seconds(),
		TTFT:     sumUp(m.ttft), Latency: sumUp(m.latency),
		Sticky: ratio(m.sticky, m.later), Later: m.later,
	}
	if !r.w.Open() {
		var whole []float64
		for _, s := range m.sessions {
			if s.begun {
				whole = append(whole, (s.to - s.from).Seconds())
			}
		}
		out.Session = sumUp(whole)
	}
	for _, s := range r.o.Policy.Settings() {
		if s.Origin != route.OriginDefault {
			out.Set = append(out.Set, s)
		}
	}
	for _, n := range m.placed {
		out.Share = append(out.Share, ratio(n, m.served))
	}
	return out
}

// sumUp sorts its input. A quantile is the least value that so many are not above.
func sumUp(of []float64) Times {
	if len(of) == 0 {
		return Times{}
	}
	slices.Sort(of)
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	at := func(percent int) float64 { return of[(len(of)*percent+99)/100-1] }
	return Times{sum / float64(len(of)), at(50), at(99)}
}
