package diagnose

import (
	"fmt"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// tiers remembers how each replica announces blocks below the device.
type tiers struct {
	of map[wire.Replica]*[wire.NumTiers]announced
}

// announced counts the blocks announced for one tier.
type announced struct {
	since wire.Time
	seq   uint64
	// blocks are all, blank those without tokens, odd those of a medium of
	// unknown spelling.
	blocks, blank, odd int
	medium             string // the newest odd one
	size               int    // in tokens, of the newest that says
}

func newTiers() Memory { return &tiers{map[wire.Replica]*[wire.NumTiers]announced{}} }

func (m *tiers) Clone() Memory {
	c := &tiers{make(map[wire.Replica]*[wire.NumTiers]announced, len(m.of))}
	for name, all := range m.of {
		one := *all
		c.of[name] = &one
	}
	return c
}

func (m *tiers) Step(s *stream.Step, _ *index.Index) {
	switch s.Kind {
	case stream.Drop, stream.Forget:
		delete(m.of, s.Replica)
	case stream.Apply:
		for i := range s.Batch.Events {
			if e := &s.Batch.Events[i]; e.Kind == wire.Stored && !e.Plane && (e.Tier != wire.Device || e.Aligned()) {
				m.saw(s, e)
			}
		}
	}
}

func (m *tiers) saw(s *stream.Step, e *wire.Event) {
	all := m.of[s.Replica]
	if all == nil {
		if len(m.of) >= maxRemembered {
			return
		}
		all = new([wire.NumTiers]announced)
		m.of[s.Replica] = all
	}
	a := &all[min(e.Tier, wire.NumTiers-1)]
	if a.blocks == 0 {
		a.since, a.seq = s.At, s.Batch.Seq
	}
	n := max(1, len(e.Hashes))
	a.blocks += n
	if len(e.Tokens) == 0 && !e.OpaqueTokens {
		a.blank += n
	}
	if e.UnknownMedium {
		a.odd += n
		a.medium = e.Medium
	}
	if e.BlockSize > 0 && e.Group <= 0 {
		a.size = e.BlockSize
	}
}

func tierGranularity(v View, mem Memory) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		all := mem.(*tiers).of[r.Replica]
		if all == nil || r.Link == wire.LinkGone {
			continue
		}
		device := all[wire.Device].size
		for tier := wire.Device + 1; tier < wire.NumTiers; tier++ {
			a := &all[tier]
			say := func(on string, s Severity, blocks int, title, without, next string) {
				f := about(r, s, a.since)
				f.about = tier.String() + "/" + on
				f.Evidence.SeqFrom = p(a.seq)
				f.Effect.Blocks = p(blocks)
				f.Title, f.Counterfactual, f.Next = title, without, next
				out = append(out, f)
			}
			if a.odd > 0 {
				say("medium", Warning, a.odd,
					fmt.Sprintf("%s announced for the medium %s, which no consumer is known to know: counted as external", count(uint64(a.odd), "block"), wire.Printable(a.medium)),
					"under a known name a router would weigh these blocks as what they are",
					"look how your router takes it: Dynamo drops such events, llm-d weighs an unknown tier like the device")
			}
			if a.blank > 0 {
				say("blank", Warning, a.blank,
					fmt.Sprintf("%s of %s announced for the %s tier come without tokens", wire.Grouped(a.blank), count(uint64(a.blocks), "block"), tier),
					"with their tokens a router that goes by content could count them as hits",
					"start vLLM's offloading connector with self_describing_kv_events (0.24 and later); until then a router sees hits on the device alone")
			}
			if a.size > 0 && device > 0 && a.size != device {
				say("size", Info, a.blocks,
					fmt.Sprintf("blocks of the %s tier have %d tokens, those of the device %d", tier, a.size, device),
					fmt.Sprintf("with equal sizes a prefix would be found there to the nearest %d tokens, not %d", device, a.size),
					"expect hits of that tier in its own steps; a router of one block size does not see it at all")
			}
		}
	}
	return out
}
