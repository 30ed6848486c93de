package diagnose

import (
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/wire"
)

// plateaus finds blocks at which reuse ends: requests find their prompts' blocks up to
// there, and each stores another block behind. Of more than maxPlateaus such blocks
// those with most requests are kept (Misra and Gries' frequent elements), so one that
// half of them end at is never lost.
type plateaus struct {
	all   []plateau
	named uint32
	// turns counts all requests, those that go on where another ended too.
	turns hours
}

// plateau is one of these blocks.
type plateau struct {
	id, weight uint32
	// seq names the block, of size tokens, the chain's depth-th.
	seq         uint64
	depth, size int
	// hour counts the requests, and the blocks that they stored.
	hour        hours
	since, last wire.Time
	// next are the first one's tokens behind it. Of the requests, near have at least
	// half of them, and all of those the first common.
	next           []wire.Token
	requests, near int
	common         int
	seen           [seenBlocks]uint64
}

// Bounds of what is remembered, and when it is a finding: half of all requests are more
// than chats give of which most go on for a third turn.
const (
	maxPlateaus   = 16
	seenBlocks    = 256 // of those behind, to know what is stored again
	maxNext       = 1 << 10
	plateauLeast  = 32
	plateauShare  = 0.5
	plateauNearly = 0.75 // of the requests must share the begun block
)

// clone copies it.
func (m *plateaus) clone() plateaus {
	c := *m
	c.all = slices.Clone(m.all)
	return c
}

// begin takes the first block that a request stores, and says by what name more of it
// is added, 0 where reuse ended at the root, or at what others have or had: that is for
// routing and capacity.
func (m *plateaus) begin(at wire.Time, first index.Known, e *wire.Event, holders int) uint32 {
	m.turns.add(at, 1, 0)
	if first.Parent == 0 || holders > 1 || len(e.Tokens) < e.BlockSize {
		return 0
	}
	f := m.of(first)
	if f == nil {
		return 0
	}
	seen := &f.seen[first.Seq%seenBlocks]
	if *seen == first.Seq {
		return 0
	}
	*seen = first.Seq
	tokens := e.Tokens[:min(e.BlockSize, maxNext)]
	if f.requests == 0 {
		f.since, f.size, f.next = at, e.BlockSize, slices.Clone(tokens)
		f.common = len(tokens)
	}
	f.requests++
	f.weight++
	f.last = max(f.last, at)
	f.hour.add(at, 1, 0)
	if n := prefix(f.next, tokens); 2*n >= len(f.next) {
		f.near++
		if f.requests > 1 {
			f.common = min(f.common, n)
		}
	}
	return f.id
}

// goOn takes a store that goes on where a chain ended. Prompts are stored in pieces and
// answers block by block; more than one block behind an answer's, or after a while, are
// the next turn of a chat or an agent.
func (m *plateaus) goOn(at wire.Time, c *chain, blocks int) {
	if blocks > 1 && (c.single || at-c.last >= whole) {
		m.turns.add(at, 1, 0)
		c.plateau = 0
	}
}

// of gives the plateau behind which a block is, nil if there is no room for a new one
// yet.
func (m *plateaus) of(first index.Known) *plateau {
	for i := range m.all {
		if f := &m.all[i]; f.seq == first.Parent {
			return f
		}
	}
	m.named++
	f := plateau{id: m.named, seq: first.Parent, depth: first.Depth - 1}
	if len(m.all) < maxPlateaus {
		m.all = append(m.all, f)
		return &m.all[len(m.all)-1]
	}
	free := -1
	for i := range m.all {
		if m.all[i].weight == 0 {
			free = i
			continue
		}
		m.all[i].weight--
	}
	if free < 0 {
		return nil
	}
	m.all[free] = f
	return &m.all[free]
}

// add takes more blocks that a request stored.
func (m *plateaus) add(id uint32, at wire.Time, blocks int) {
	for i := range m.all {
		if f := &m.all[i]; f.id == id && id != 0 {
			f.hour.add(at, 0, blocks)
		}
	}
}

// reusePlateau gives the blocks at which most reuse ends, but for those where text parts
// that should not: that is another finding.
func reusePlateau(v View, memory Memory) []Finding {
	m := memory.(*shifts)
	all, _ := m.plateaus.turns.last(v.Now)
	var out []Finding
	for i := range m.plateaus.all {
		f := &m.plateaus.all[i]
		n, stored := f.hour.last(v.Now)
		shifted := slices.ContainsFunc(m.families, func(s *family) bool { return s.head == f.seq && s.members >= least })
		if n < plateauLeast || float64(n) < plateauShare*float64(all) || v.Now-f.last > quiet || shifted {
			continue
		}
		out = append(out, f.finding(n, all, stored))
	}
	return out
}

func (f *plateau) finding(n, all, stored int) Finding {
	reused := n * f.depth
	out := Finding{
		Severity: Info, Subject: "fleet", Since: f.since, about: fmt.Sprint(f.id),
		Evidence: Evidence{Block: p(f.depth), Token: p(f.depth * f.size)},
		Effect:   Effect{Blocks: p(stored), Tokens: p(stored * f.size)},
		Title: fmt.Sprintf("reuse of %s of %s requests that stored blocks in the last hour ends at token %s (block %s), and no two of them share the next block: %s of their blocks, answers included, are what a cache can give",
			wire.Grouped(n), wire.Grouped(max(all, n)), wire.Grouped(f.depth*f.size), wire.Grouped(f.depth), percent(reused, reused+stored)),
		Counterfactual: "no router can reach more: what stands behind is new in each of them",
		Next:           "to reach more, put what stays the same before what changes, as far as it is the same",
	}
	// Where the whole block is the same, something else than tokens tells them apart.
	if float64(f.near) >= plateauNearly*float64(f.requests) && f.common > 0 && f.common < len(f.next) {
		out.Title += fmt.Sprintf("; %s more tokens are the same, but end inside a block of %d", wire.Grouped(f.common), f.size)
		out.Counterfactual = fmt.Sprintf("with smaller blocks, up to %s more of each would be reused", count(uint64(f.common), "token"))
		out.Next = fmt.Sprintf("try a smaller block size, or lengthen what stays the same by %s, to the end of a block", count(uint64(f.size-f.common), "token"))
	}
	return out
}
