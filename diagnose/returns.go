package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// returns remembers, beside the traffic, when a sample of blocks was stored and
// evicted: how long they stay, and how long after that they are wanted again.
type returns struct {
	traffic
	blocks map[blockOf]stay
	// order is that of arrival, oldest first.
	order []blockOf
	// back are the newest returns.
	back []comeback
}

type blockOf struct {
	replica wire.Replica
	hash    uint64
}

// stay is when a block came and went, 0 if it has not.
type stay struct{ stored, evicted wire.Time }

// comeback is a block that was stored again after its eviction.
type comeback struct {
	replica   wire.Replica
	at        wire.Time
	age, away wire.Time
}

// One block in so many is followed, by its hash, and so many of them at the most.
const (
	sampleOf     = 16
	maxSampled   = 4096
	maxComebacks = 256
)

func newReturns() Memory { return &returns{blocks: map[blockOf]stay{}} }

// Clone copies it.
func (m *returns) Clone() Memory {
	return &returns{
		traffic: *m.traffic.Clone().(*traffic), blocks: maps.Clone(m.blocks),
		order: slices.Clone(m.order), back: slices.Clone(m.back),
	}
}

// Step follows the blocks of a batch.
func (m *returns) Step(s *stream.Step, _ *index.Index) {
	if s.Kind != stream.Apply {
		return
	}
	for i := range s.Batch.Events {
		e := &s.Batch.Events[i]
		if e.Tier != wire.Device {
			continue
		}
		for _, h := range e.Hashes {
			if h.N%sampleOf != 0 {
				continue
			}
			switch k := (blockOf{s.Replica, h.N}); e.Kind {
			case wire.Stored:
				m.stored(k, s.At)
			case wire.Removed:
				if l, ok := m.blocks[k]; ok && l.evicted == 0 {
					l.evicted = s.At
					m.blocks[k] = l
				}
			}
		}
	}
}

func (m *returns) stored(k blockOf, at wire.Time) {
	l, known := m.blocks[k]
	if known && l.evicted == 0 {
		return // a second copy
	}
	if known {
		drop := max(0, len(m.back)+1-maxComebacks)
		m.back = append(m.back[drop:], comeback{k.replica, at, l.evicted - l.stored, at - l.evicted})
	} else {
		if len(m.order) >= maxSampled {
			delete(m.blocks, m.order[0])
			m.order = m.order[1:]
		}
		m.order = append(m.order, k)
	}
	m.blocks[k] = stay{stored: at}
}

// typical gives the medians of a replica's returns in the window, and false where
// there are too few to say.
func (m *returns) typical(now wire.Time, name wire.Replica) (age, away wire.Time, ok bool) {
	var ages, aways []wire.Time
	for i := range m.back {
		if b := &m.back[i]; b.replica == name && b.at > now-window {
			ages, aways = append(ages, b.age), append(aways, b.away)
		}
	}
	if len(ages) < 3 {
		return 0, 0, false
	}
	slices.Sort(ages)
	slices.Sort(aways)
	return ages[len(ages)/2], aways[len(aways)/2], true
}

// Evicted too early: so many of the blocks stored in the window had been there
// before, and this share of them.
const (
	returnedBlocks = 200
	returnedShare  = 0.2
)

func evictedBeforeReturn(v View, m Memory) []Finding {
	mem := m.(*returns)
	var out []Finding
	for _, all := range mem.flows(v) {
		for i := range all {
			r := &all[i]
			again, stored := r.ledger.EvictedHere, float64(r.stored())
			if again < returnedBlocks || float64(again) < returnedShare*stored {
				continue
			}
			f := about(r.Replica, Warning, 0)
			f.Title = fmt.Sprintf("%s of the %s blocks stored in %s had been here and were evicted", share(float64(again), stored), rounded(stored), mem.over(v))
			if age, away, ok := mem.typical(v.Now, r.Replica.Replica); ok {
				f.Title += fmt.Sprintf(": they stay for %s and are wanted again %s later", rough(age), rough(away))
			}
			if r.queried > 0 {
				f.Title += fmt.Sprintf("; the hit rate is %s", share(r.hit, r.queried))
			}
			f.Effect.Blocks, f.Effect.Tokens = p(int(again)), p(int(again)*r.Index.BlockSize)
			f.Counterfactual = fmt.Sprintf("a cache that kept them would have saved %s blocks of prefill in %s", wire.Grouped(again), mem.over(v))
			f.Next = "give the cache more blocks or a lower tier to evict to, or send this replica fewer families of prompts; a router that predicts hits from what it sent sees none of this"
			if n := r.Facts.Capacity; n > 0 {
				f.Effect.Share = p(float64(again) / float64(n))
			}
			out = append(out, f)
		}
	}
	return out
}

// rough writes a time as one says it.
func rough(t wire.Time) string {
	d := time.Duration(t)
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
