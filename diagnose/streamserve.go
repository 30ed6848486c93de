package diagnose

import (
	"fmt"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// serving remembers of each replica a metrics page from after its last batch, which
// tells what was served since without an event.
type serving map[wire.Replica]served

type served struct {
	// batch is when the last batch came, base the first page behind it.
	batch wire.Time
	base  wire.Load
	// still is the first page since which nothing has moved on.
	still wire.Load
}

func newServing() Memory { return serving{} }

// Step has nothing to see: the View tells when batches came.
func (s serving) Step(*stream.Step, *index.Index) {}

// Clone copies it.
func (s serving) Clone() Memory {
	c := make(serving, len(s))
	for name, one := range s {
		c[name] = one
	}
	return c
}

// look brings a memory up to date, and forgets who is gone.
func (s serving) look(v View) {
	present := make(map[wire.Replica]bool, len(v.Replicas))
	for i := range v.Replicas {
		r := &v.Replicas[i]
		present[r.Replica] = true
		m, known := s[r.Replica]
		l := &r.Load
		switch {
		case !l.Known || l.At <= r.LastBatch:
			delete(s, r.Replica)
			continue
		case !known || m.batch != r.LastBatch || l.Requests < m.base.Requests || l.QueriedTokens < m.base.QueriedTokens:
			m = served{batch: r.LastBatch, base: *l, still: *l}
		}
		if l.Requests != m.still.Requests || l.QueriedTokens != m.still.QueriedTokens || l.Running < 1 {
			m.still = *l
		}
		s[r.Replica] = m
	}
	for name := range s {
		if !present[name] {
			delete(s, name)
		}
	}
}

// work is what a replica served since its last batch.
type work struct {
	requests float64
	// tokens are those of prompts that were computed, -1 where the page does not say.
	tokens float64
	since  wire.Time
}

const (
	// unknownBlock stands for a block size that nobody told, on the safe side.
	unknownBlock = 256
	// enoughRequests is how many finished requests must have made an event where
	// the page does not tell tokens.
	enoughRequests = 10
	// silence is how long nothing comes before that counts.
	silence = wire.Time(10e9)
)

// due gives what was served without an event, if that must have stored a block: at
// least one of the requests was given a block of tokens to compute. Those that run
// count too, since part of theirs can have been counted before.
func (s serving) due(r *Replica) (work, bool) {
	m, known := s[r.Replica]
	l := &r.Load
	if !known || !reaches(r) || l.At-m.base.At < silence {
		return work{}, false
	}
	w := work{requests: l.Requests - m.base.Requests, tokens: -1, since: m.base.At}
	if l.QueriedTokens <= 0 {
		return w, w.requests >= enoughRequests
	}
	w.tokens = l.QueriedTokens - l.HitTokens - m.base.QueriedTokens + m.base.HitTokens
	return w, w.requests >= 1 && w.tokens >= float64(blockSize(r))*(w.requests+l.Running)
}

// reaches reports whether silence can be told from a replica that left, and from
// messages that we lost.
func reaches(r *Replica) bool {
	return r.Link != wire.LinkGone && (r.Drops.Messages == 0 || r.Drops.Last < r.LastBatch)
}

func blockSize(r *Replica) int {
	for _, size := range []int{r.Index.BlockSize, r.Facts.BlockSize} {
		if size > 0 {
			return size
		}
	}
	return unknownBlock
}

// linkWords says how a link stands that is not up, "" where it is or is not known.
func linkWords(r *Replica) string {
	if r.Link == wire.LinkUp || r.Link == wire.LinkUnknown {
		return ""
	}
	words := "its link is " + r.Link.String()
	if r.LinkText != "" && r.LinkText != r.Link.String() {
		words += " (" + wire.Printable(r.LinkText) + ")"
	}
	return words
}

func cachingOff(r *Replica) bool { return r.Facts.PrefixCaching != nil && !*r.Facts.PrefixCaching }

func prefixCachingOff(v View, _ Memory) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		if !cachingOff(r) || r.Link == wire.LinkGone {
			continue
		}
		f := about(r, Warning, r.Joined)
		f.Title = "runs without prefix caching: it reuses nothing and publishes no event"
		f.Counterfactual = "with it, a prompt's beginning that was computed before would not be computed again"
		f.Next = "start the engine without --no-enable-prefix-caching (SGLang: without --disable-radix-cache), or take it out of the cache-aware router"
		out = append(out, f)
	}
	return out
}

const startEvents = "start the engine with --kv-events-config '{\"enable_kv_cache_events\":true}' (SGLang takes --kv-events-config too), and check the port and topic that kvscope listens to"

func eventsOff(v View, m Memory) []Finding {
	s := m.(serving)
	s.look(v)
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		w, due := s.due(r)
		if !due || r.Epoch > 0 || r.Undecodable > 0 || cachingOff(r) {
			continue
		}
		f := about(r, Error, w.since)
		f.Title = fmt.Sprintf("serves, and has never published an event: %s finished in %s", count(uint64(w.requests), "request"), ago(r.Load.At-w.since))
		if words := linkWords(r); words != "" {
			f.Title += "; " + words
		}
		f.Effect = unseen(r, w)
		f.Counterfactual = "with events its blocks would be known; now a router that goes by events sees an empty cache"
		f.Next = startEvents
		out = append(out, f)
	}
	return out
}

// unseen tells how many blocks at most were stored without an event.
func unseen(r *Replica, w work) Effect {
	if w.tokens < 0 {
		return Effect{}
	}
	e := Effect{Tokens: p(int(w.tokens))}
	if size := blockSize(r); size != unknownBlock {
		e.Blocks = p(int(w.tokens) / size)
	}
	return e
}

func streamSilent(v View, m Memory) []Finding {
	s := m.(serving)
	s.look(v)
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		w, due := s.due(r)
		if !due || r.Epoch == 0 || cachingOff(r) {
			continue
		}
		f := about(r, Error, w.since)
		f.Evidence.SeqFrom = p(r.Last)
		f.Title = fmt.Sprintf("went silent after batch %s: no event for %s, while %s finished", wire.Grouped(r.Last), ago(r.Load.At-r.LastBatch), count(uint64(w.requests), "request"))
		f.Next = "look for an exception of the publisher thread in the engine's log, and for a firewall or proxy that drops idle connections"
		if words := linkWords(r); words != "" {
			f.Title += "; " + words
			f.Next = "look whether the event port can be reached from here, and whether the engine came back at another address"
		}
		f.Effect = unseen(r, w)
		f.Counterfactual = "each of these requests was given more than a block to compute, and would have announced it"
		out = append(out, f)
	}
	return out
}

// stallTime is how long nothing moves on before a publisher counts as stalled.
const stallTime = wire.Time(10e9)

func publisherStalled(v View, m Memory) []Finding {
	s := m.(serving)
	s.look(v)
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		one, known := s[r.Replica]
		still := r.Load.At - one.still.At
		if !known || r.Epoch == 0 || r.Load.Running < 1 || still < stallTime || linkWords(r) != "" || !reaches(r) || cachingOff(r) {
			continue
		}
		f := about(r, Error, one.still.At)
		f.Evidence.SeqFrom = p(r.Last)
		f.Title = fmt.Sprintf("stands still: no event and no finished request for %s, while %s", ago(still), running(r.Load.Running))
		f.Counterfactual = "kvscope is not the cause: its link is up, it dropped nothing, and a subscriber cannot hold a publisher up"
		f.Next = "look whether the engine's step loop hangs: vLLM blocks it when the publisher's queue (max_queue_size) is full, with health still green; restart it, and raise that queue"
		out = append(out, f)
	}
	return out
}

func running(n float64) string {
	if n == 1 {
		return "1 request runs"
	}
	return fmt.Sprintf("%.0f requests run", n)
}
