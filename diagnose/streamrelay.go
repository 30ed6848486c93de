package diagnose

import (
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// relays remembers what engines announced and Dynamo's relays have not passed on yet,
// where both are listened to. A relay keeps the order and numbers its own messages, so
// a block is lost once a later one has come out.
type relays struct {
	// on says that there is an event plane at all; until then nothing is kept.
	on      bool
	engines map[wire.Replica]*relayed
	// pairs names the engine of a replica on the plane, found by a block that no
	// other engine waits for.
	pairs map[wire.Replica]wire.Replica
	// tried counts how often one was looked for in vain, since an engine came.
	tried map[wire.Replica]int
}

// relayed is one engine as its relay sees it.
type relayed struct {
	pending []passing
	plane   wire.Replica
	// lost counts blocks announced in the batches from to to, from a moment on.
	lost     int
	from, to uint64
	since    wire.Time
	// old is how many blocks the plane had when the engine restarted, at a moment.
	old       int
	restarted wire.Time
}

// passing is a block on its way through a relay.
type passing struct {
	hash wire.Handle
	seq  uint64
	at   wire.Time
}

const (
	maxPassing = 1024
	maxRelayed = 1 << 12
	// passTime is what a relay may take: it joins events for up to 15 s.
	passTime = wire.Time(30e9)
	// maxTries is how often the engine of a replica on the plane is looked for: it
	// may not be listened to.
	maxTries = 256
)

func newRelays() Memory {
	return &relays{engines: map[wire.Replica]*relayed{}, pairs: map[wire.Replica]wire.Replica{}, tried: map[wire.Replica]int{}}
}

// Clone copies it.
func (m *relays) Clone() Memory {
	c := newRelays().(*relays)
	c.on = m.on
	for name, one := range m.engines {
		copied := *one
		copied.pending = slices.Clone(one.pending)
		c.engines[name] = &copied
	}
	for plane, engine := range m.pairs {
		c.pairs[plane] = engine
	}
	for plane, n := range m.tried {
		c.tried[plane] = n
	}
	return c
}

// Step follows both sides.
func (m *relays) Step(s *stream.Step, idx *index.Index) {
	switch {
	case s.Kind == stream.Drop:
		if one := m.engines[s.Replica]; one != nil {
			one.restart(s.At, idx)
		}
	case s.Kind == stream.Apply && !s.Replayed:
		for i := range s.Batch.Events {
			e := &s.Batch.Events[i]
			switch {
			case e.Plane:
				m.on = true
				m.passed(s, e)
			case m.on && e.Kind == wire.Stored && e.Tier == wire.Device && e.Group <= 0:
				m.announced(s, e)
			}
		}
	}
}

// announced takes a store of an engine.
func (m *relays) announced(s *stream.Step, e *wire.Event) {
	one := m.engines[s.Replica]
	if one == nil {
		if len(m.engines) >= maxRelayed {
			return
		}
		one = &relayed{}
		m.engines[s.Replica] = one
		clear(m.tried)
	}
	for _, h := range e.Hashes {
		one.pending = append(one.pending, passing{h, s.Batch.Seq, s.At})
	}
	if n := len(one.pending); n > 2*maxPassing { // in one go, as copying costs
		one.pending = slices.Clone(one.pending[n-maxPassing:])
	}
}

// passed takes an event of the plane.
func (m *relays) passed(s *stream.Step, e *wire.Event) {
	engine, known := m.pairs[s.Replica]
	if !known && e.Kind == wire.Stored && len(e.Hashes) > 0 && m.tried[s.Replica] < maxTries {
		engine, known = m.pair(s.Replica, e.Hashes[0])
	}
	if !known || m.engines[engine] == nil {
		return
	}
	one := m.engines[engine]
	switch {
	case e.Kind == wire.Cleared:
		one.lost, one.old = 0, 0
	case e.Kind == wire.Stored && len(e.Hashes) == 0:
		one.lose(one.shell())
	case e.Kind == wire.Stored:
		for _, h := range e.Hashes {
			if i := slices.IndexFunc(one.pending, func(p passing) bool { return p.hash == h }); i >= 0 {
				one.lose(i)
				one.pending = one.pending[1:]
			}
		}
	}
}

// pair finds the one engine that waits for a block.
func (m *relays) pair(plane wire.Replica, h wire.Handle) (wire.Replica, bool) {
	var found wire.Replica
	for name, one := range m.engines {
		if one.plane != "" || !slices.ContainsFunc(one.pending, func(p passing) bool { return p.hash == h }) {
			continue
		}
		if found != "" {
			m.tried[plane]++
			return "", false
		}
		found = name
	}
	if found == "" || len(m.pairs) >= maxRelayed {
		m.tried[plane]++
		return "", false
	}
	// What came before the two were known to belong together may have passed.
	one := m.engines[found]
	one.plane, m.pairs[plane] = plane, found
	one.pending = one.pending[slices.IndexFunc(one.pending, func(p passing) bool { return p.hash == h }):]
	return found, true
}

// shell gives how many blocks belong to a store of which nothing but its empty shell
// was passed on: those of the oldest batch that is waited for.
func (r *relayed) shell() int {
	n := 0
	for n < len(r.pending) && r.pending[n].seq == r.pending[0].seq {
		n++
	}
	return n
}

// lose gives up the oldest n blocks.
func (r *relayed) lose(n int) {
	if n <= 0 {
		return
	}
	if r.lost == 0 {
		r.from, r.since = r.pending[0].seq, r.pending[0].at
	}
	r.lost, r.to = r.lost+n, r.pending[n-1].seq
	r.pending = r.pending[n:]
}

func (r *relayed) restart(at wire.Time, idx *index.Index) {
	r.pending, r.lost = nil, 0
	if r.plane != "" {
		r.old, r.restarted = told(idx.Stats(r.plane)), at
	}
}

// told counts the distinct blocks of the device tier that events announced.
func told(s index.Stats) int { return s.Resident[wire.Device] - s.Implied + s.Orphans }

func relayLoss(v View, memory Memory) []Finding {
	m := memory.(*relays)
	present := make(map[wire.Replica]bool, len(v.Replicas))
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		present[r.Replica] = true
		one := m.engines[r.Replica]
		if one == nil || one.plane == "" {
			continue
		}
		late := 0
		for late < len(one.pending) && v.Now-one.pending[late].at > passTime {
			late++
		}
		if one.lose(late); one.lost > 0 {
			f := about(r, Error, one.since)
			f.Evidence.SeqFrom, f.Evidence.SeqTo = p(one.from), p(one.to)
			f.Effect = blocksEffect(r, one.lost)
			f.Title = fmt.Sprintf("Dynamo's relay lost %s of batches %s–%s, and numbers on without a gap (as %s)", count(uint64(one.lost), "block"), wire.Grouped(one.from), wire.Grouped(one.to), one.plane)
			f.Counterfactual = "a router that listened to the engine itself would have these blocks, or see a gap"
			f.Next = "look in the worker's log for \"Failed to decode ZMQ KV batch\", \"Failed to find parent block\" and \"Block not published\"; its counter of dropped events stays 0"
			out = append(out, f)
		}
		if one.old > 0 && v.Now-one.restarted > passTime {
			f := about(r, Error, one.restarted)
			f.about = "restart"
			f.Effect = blocksEffect(r, one.old)
			f.Title = fmt.Sprintf("restarted, and Dynamo's relay did not clear %s of the old process (as %s)", count(uint64(one.old), "block"), one.plane)
			f.Counterfactual = "cleared at the restart, no router would count them"
			f.Next = "restart the worker's relay together with its engine, or remove and register the worker again"
			out = append(out, f)
		}
	}
	for name := range m.engines {
		if !present[name] {
			delete(m.engines, name)
		}
	}
	for plane := range m.tried {
		if !present[plane] {
			delete(m.tried, plane)
		}
	}
	for plane, engine := range m.pairs {
		if !present[plane] || m.engines[engine] == nil {
			delete(m.pairs, plane)
			if one := m.engines[engine]; one != nil {
				one.plane = ""
			}
		}
	}
	return out
}
