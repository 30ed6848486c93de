package diagnose

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// A burst: a block that nobody had is stored on several replicas within so much time,
// which is how long routers take to hear of a store, with room.
const (
	burstWithin   = wire.Time(500e6)
	burstReplicas = 3
	// maxHeads is how many blocks are watched at a time, maxBursts how many bursts
	// are kept, and maxBurstFleet how many replicas are too many: each is asked
	// whether it knows a block.
	maxHeads      = 4096
	maxBursts     = 64
	maxBurstFleet = 128
)

// bursts remembers the first blocks of the newest stores, and who stored them too.
type bursts struct {
	heads map[uint64]head
	order []arrival
	// replicas numbers those that were heard.
	replicas map[wire.Replica]uint8
	done     []burst
}

// head is the first block of a store.
type head struct {
	at wire.Time
	// last is when it was stored last, and blocks how many came with it.
	last   wire.Time
	blocks int
	on     [8]uint8
	n      int
}

// arrival is when a block came to be watched.
type arrival struct {
	hash uint64
	at   wire.Time
}

// burst is one that was seen.
type burst struct {
	hash uint64
	head
}

func newBursts() Memory { return &bursts{heads: map[uint64]head{}, replicas: map[wire.Replica]uint8{}} }

// Clone copies it.
func (m *bursts) Clone() Memory {
	return &bursts{
		heads: maps.Clone(m.heads), order: slices.Clone(m.order),
		replicas: maps.Clone(m.replicas), done: slices.Clone(m.done),
	}
}

// Step looks at the first block of each store.
func (m *bursts) Step(s *stream.Step, idx *index.Index) {
	if s.Kind != stream.Apply || s.Replayed {
		return
	}
	name, known := m.replicas[s.Replica]
	if !known && len(m.replicas) < maxBurstFleet {
		name = uint8(len(m.replicas))
		m.replicas[s.Replica] = name
	}
	if n := len(m.replicas); n < 2 || n == maxBurstFleet {
		return
	}
	for i := range s.Batch.Events {
		e := &s.Batch.Events[i]
		// One block that goes on from another is most often an answer that grows.
		if e.Kind == wire.Stored && e.Tier == wire.Device && (len(e.Hashes) > 1 || len(e.Hashes) == 1 && !e.Parent.Set) {
			m.stored(s.At, name, e, idx)
		}
	}
}

func (m *bursts) stored(at wire.Time, name uint8, e *wire.Event, idx *index.Index) {
	hash := e.Hashes[0].N
	h, known := m.heads[hash]
	switch {
	case known && at-h.at <= burstWithin:
		// Whoever had it before the burst began is a holder more. Asked only now,
		// since most blocks are stored once: every replica has to be asked.
		if h.n == len(h.on) || slices.Contains(h.on[:h.n], name) || idx.Holders(e.Hashes[0]) > h.n {
			return
		}
		h.on[h.n] = name
		h.n++
		h.last, h.blocks = at, min(h.blocks, len(e.Hashes))
		m.heads[hash] = h
		if h.n >= burstReplicas {
			m.note(burst{hash, h})
		}
	case !known:
		for len(m.order) > 0 && (len(m.order) >= maxHeads || at-m.order[0].at > burstWithin) {
			delete(m.heads, m.order[0].hash)
			m.order = m.order[1:]
		}
		m.order = append(m.order, arrival{hash, at})
		h = head{at: at, last: at, blocks: len(e.Hashes), n: 1}
		h.on[0] = name
		m.heads[hash] = h
	}
}

// note keeps a burst, once however much it grows.
func (m *bursts) note(b burst) {
	for i := range m.done {
		if m.done[i].hash == b.hash && m.done[i].at == b.at {
			m.done[i] = b
			return
		}
	}
	drop := max(0, len(m.done)+1-maxBursts)
	m.done = append(m.done[drop:], b)
}

// oftenBursts in a window cost more than an accident.
const oftenBursts = 8

func burstAheadOfEvents(v View, m Memory) []Finding {
	mem := m.(*bursts)
	var worst *burst
	n, blocks := 0, 0
	for i := range mem.done {
		b := &mem.done[i]
		if b.at <= v.Now-window {
			continue
		}
		n++
		blocks += (b.n - 1) * b.blocks
		if worst == nil || b.n > worst.n {
			worst = b
		}
	}
	if worst == nil {
		return nil
	}
	f := Finding{Severity: Info, Subject: "fleet", Since: worst.at}
	f.Title = fmt.Sprintf("equal prompts were computed on %d replicas within %d ms, faster than a router hears of the first", worst.n, (worst.last-worst.at)/1e6)
	if n >= oftenBursts {
		f.Severity = Warning
	}
	if n > 1 {
		f.Title += fmt.Sprintf("; %d such bursts in %s", n, seconds(window))
	}
	f.Effect.Blocks = p(blocks)
	f.Counterfactual = fmt.Sprintf("sent to one replica after the other, at least %s blocks would have been computed once", wire.Grouped(blocks))
	f.Next = "have the router note what it just sent where, and not wait for the event (predict on route); or send one request of such a batch ahead"
	return []Finding{f}
}
