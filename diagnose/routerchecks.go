package diagnose

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// RouterPage is what checks see of a router: counts since it started, by its own metrics
// page. It is not changed once made.
type RouterPage struct {
	Name wire.Replica
	At   wire.Time
	// Kind is dynamo, sglang, ray or llm-d.
	Kind string
	// Requests counts those that it chose a replica for, and Truncated those that
	// it judged by the start of their body alone.
	Requests, Truncated float64
	// Overhead is the milliseconds that its phases took, "total" all of them.
	Overhead map[string]Spent
	// Workers are those that it sends to, and Booked the load that it has booked on
	// all of them, in whatever it counts in; negative where its page says nothing.
	Workers int
	Booked  float64
}

// Spent is a number of times and the milliseconds that they took together.
type Spent struct{ Times, Millis float64 }

// maxRouters is how many routers are judged.
const maxRouters = 64

// routers remembers the pages of routers over a window, beside the traffic.
type routers struct {
	traffic
	when  []wire.Time
	pages [][]RouterPage
}

func newRouters() Memory { return &routers{} }

// Step needs nothing: all is in the View.
func (*routers) Step(*stream.Step, *index.Index) {}

// Clone copies it.
func (m *routers) Clone() Memory {
	return &routers{traffic: *m.traffic.Clone().(*traffic), when: slices.Clone(m.when), pages: slices.Clone(m.pages)}
}

// spell is a router now and at the beginning of the window.
type spell struct {
	*RouterPage
	old *RouterPage
	// booked is the most that it had booked in between.
	booked float64
}

// spells gives the routers whose pages were read over the whole window, and that did
// not start anew.
func (m *routers) spells(v View) []spell {
	if n := len(m.when); n > 0 && v.Now < m.when[n-1] {
		*m = routers{}
	}
	if n := len(m.when); n == 0 || v.Now >= m.when[n-1]+lookEvery {
		m.when, m.pages = append(m.when, v.Now), append(m.pages, v.Routers[:min(len(v.Routers), maxRouters)])
		drop := 0
		for drop+1 < len(m.when) && m.when[drop+1] <= v.Now-window {
			drop++
		}
		m.when, m.pages = slices.Delete(m.when, 0, drop), slices.Delete(m.pages, 0, drop)
	}
	if m.when[0] > v.Now-window {
		return nil
	}
	var out []spell
	for i := range v.Routers[:min(len(v.Routers), maxRouters)] {
		s := spell{RouterPage: &v.Routers[i]}
		whole := v.Now-s.At <= window/2
		for k, page := range m.pages {
			at := slices.IndexFunc(page, func(r RouterPage) bool { return r.Name == s.Name })
			if whole = whole && at >= 0; !whole {
				break
			}
			if k == 0 {
				s.old = &page[at]
			}
			s.booked = max(s.booked, page[at].Booked)
		}
		if whole && s.Requests >= s.old.Requests && s.Truncated >= s.old.Truncated {
			out = append(out, s)
		}
	}
	return out
}

// over says how long that was.
func (m *routers) over(v View) string { return seconds(v.Now - m.when[0]) }

// spent is what a phase took in the window.
func (s *spell) spent(phase string) Spent {
	a, b := s.Overhead[phase], s.old.Overhead[phase]
	return Spent{a.Times - b.Times, a.Millis - b.Millis}
}

// ofRouter starts a finding on a router.
func ofRouter(s *spell, severity Severity) Finding {
	return Finding{Severity: severity, Subject: string(s.Name), Evidence: Evidence{Replica: s.Name}}
}

// A router is slow if it takes so many milliseconds for each of so many requests:
// Dynamo's needs 0.4 on a recorded page, and 20 is what an engine needs to compute
// some hundreds of prompt tokens that a good choice would save.
const (
	slowRequests = 50
	slowMillis   = 20
)

func routerBottleneck(v View, m Memory) []Finding {
	var out []Finding
	mem := m.(*routers)
	for _, s := range mem.spells(v) {
		all := s.spent("total")
		if all.Times < slowRequests || all.Millis < slowMillis*all.Times {
			continue
		}
		f := ofRouter(&s, Warning)
		f.Title = fmt.Sprintf("the router takes %.0f ms to choose, for each of %s requests in %s", all.Millis/all.Times, rounded(all.Times), mem.over(v))
		worst := ""
		for _, phase := range slices.Sorted(maps.Keys(s.Overhead)) {
			if phase != "total" && (worst == "" || s.spent(phase).Millis > s.spent(worst).Millis) {
				worst = phase
			}
		}
		if worst != "" {
			f.Title += fmt.Sprintf("; %s of it in %s", share(max(0, s.spent(worst).Millis), all.Millis), wire.Printable(worst))
		}
		f.Counterfactual = fmt.Sprintf("without it the first token of each request would come %.0f ms sooner", all.Millis/all.Times)
		f.Next = "give the router more CPU or more threads, larger blocks or a smaller index, and look for a tokenizer that runs in its request path; more routers help only if they share their state"
		out = append(out, f)
	}
	return out
}

func bodyTruncated(v View, m Memory) []Finding {
	var out []Finding
	mem := m.(*routers)
	for _, s := range mem.spells(v) {
		cut := s.Truncated - s.old.Truncated
		if cut <= 0 {
			continue
		}
		f := ofRouter(&s, Warning)
		f.Title = fmt.Sprintf("the router saw only the start of %s request bodies in %s", rounded(cut), mem.over(v))
		if n := s.Requests - s.old.Requests; n >= cut {
			f.Title += fmt.Sprintf(", of %s requests", rounded(n))
		}
		f.Counterfactual = "with their whole body these requests, the longest and dearest, would be sent by their prefix and not by load alone"
		f.Next = "raise the buffer above the largest body (Ray Serve: RAY_SERVE_HAPROXY_INGRESS_REQUEST_ROUTER_BUFSIZE, 8 MiB unless set), or send images by reference"
		out = append(out, f)
	}
	return out
}

// The load counts for nothing: a router chose so often without having booked anything
// on any worker, while the engines had so many requests at a time.
const (
	zeroRequests = 50
	zeroFlight   = 4
)

func loadTermZero(v View, m Memory) []Finding {
	mem := m.(*routers)
	flight := 0.0
	known := true
	for _, all := range mem.flows(v) {
		known = known && allLoaded(all)
		for i := range all {
			flight += all[i].flight
		}
	}
	var out []Finding
	for _, s := range mem.spells(v) {
		n := s.Requests - s.old.Requests
		if !known || s.Workers < 2 || s.Booked != 0 || s.booked != 0 || n < zeroRequests || flight < zeroFlight {
			continue
		}
		f := ofRouter(&s, Warning)
		f.Title = fmt.Sprintf("the load term is 0 for all %d workers while the engines have %.0f requests at a time: the cache term decides alone", s.Workers, flight)
		f.Counterfactual = fmt.Sprintf("with loads booked, %s choices in %s would have weighed queues against prefixes", rounded(n), mem.over(v))
		f.Next = "see that load is counted on the path in use (gRPC and HTTP differ in SGLang's gateway; Dynamo needs active block tracking), and until then lower the weight of the overlap"
		out = append(out, f)
	}
	return out
}
