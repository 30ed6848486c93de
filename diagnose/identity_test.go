package diagnose

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// memoriesOf are the checks of these files that remember something.
func memoriesOf() map[string]Memory {
	out := map[string]Memory{}
	for _, c := range Checks {
		switch c.Code {
		case "hash-mismatch", "block-size-mismatch", "namespace-collision", "tier-granularity", "phantom-hit", "unsupported-shape":
			out[c.Code] = c.Memory()
		}
	}
	return out
}

// hostile makes steps of any replica, with any events.
func hostile(rng *rand.Rand, n int) *stream.Step {
	s := &stream.Step{
		Kind: stream.Apply, Replica: wire.Replica(fmt.Sprint("r", rng.IntN(5000+n%2*5000)/(1+n/3%2*500))), At: wire.Time(n) * 1e8,
		Batch: &wire.Batch{Seq: uint64(n)},
	}
	if rng.IntN(200) == 0 {
		s.Kind, s.Batch = stream.Drop, nil
		return s
	}
	for range 1 + rng.IntN(4) {
		e := wire.Event{Kind: wire.EventKind(rng.IntN(5)), Tier: wire.Tier(rng.IntN(6)), Group: rng.IntN(3) - 1, BlockSize: rng.IntN(4), Fields: ^wire.FieldSet(0)}
		blocks, few := rng.IntN(5), uint64(4)<<(30*rng.IntN(2))
		for range blocks {
			e.Hashes = append(e.Hashes, wire.Handle{N: 1<<33 + rng.Uint64N(few), Set: true})
		}
		for range blocks * e.BlockSize {
			e.Tokens = append(e.Tokens, wire.Token(rng.IntN(3)))
		}
		if rng.IntN(3) > 0 {
			e.Parent = wire.Handle{N: 1<<33 + rng.Uint64N(few), Set: true}
		}
		if rng.IntN(2) > 0 {
			e.LoRAName = fmt.Sprint("adapter", rng.IntN(4))
		}
		if rng.IntN(2) > 0 {
			e.Extra = [][]wire.ExtraKey{{{Text: fmt.Sprint("adapter", rng.IntN(4)), List: []wire.ExtraKey{{IsInt: true, Int: 1}}}}}
		}
		e.UnknownMedium = rng.IntN(4) == 0
		s.Batch.Events = append(s.Batch.Events, e)
	}
	return s
}

// TestMemoriesAreBounded: whatever they are fed, and a copy goes its own way.
func TestMemoriesAreBounded(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 8))
	all, idx := memoriesOf(), index.New(index.Options{MaxBlocks: 1000})
	for n := range 8_000 {
		s := hostile(rng, n)
		for _, m := range all {
			m.Step(s, idx)
		}
		if n%16 == 0 && s.Batch != nil {
			for i := range s.Batch.Events {
				idx.Apply(s.Replica, &s.Batch.Events[i], false)
			}
		}
	}
	roots, tenants := all["hash-mismatch"].(*roots), all["namespace-collision"].(*tenants)
	for name, is := range map[string][2]int{
		"contents": {len(roots.seen), maxContents}, "order of contents": {len(roots.order), maxContents}, "pairs": {len(roots.pairs), maxPairs},
		"first blocks": {len(tenants.first), maxFirst}, "list of first blocks": {len(tenants.firstList), maxFirst},
		"adapters' blocks": {len(tenants.lora), maxLoRA}, "list of them": {len(tenants.loraList), maxLoRA}, "clashes": {len(tenants.found), maxRemembered},
		"shapes": {len(all["unsupported-shape"].(*shapes).of), maxRemembered},
		"sizes":  {len(all["block-size-mismatch"].(*sizes).of), maxRemembered},
		"tiers":  {len(all["tier-granularity"].(*tiers).of), maxRemembered}, "recomputed": {len(all["phantom-hit"].(*again).of), maxRemembered},
	} {
		if is[0] > is[1] || is[0] == 0 {
			t.Errorf("%s: %d, at most %d", name, is[0], is[1])
		}
	}
	for code, m := range all {
		before, alike := m.Clone(), m.Clone()
		for n := range 200 {
			m.Step(hostile(rng, 40_000+n), idx)
		}
		if !reflect.DeepEqual(before, alike) {
			t.Errorf("%s: a copy changes with what it was copied from", code)
		}
	}
}

// BenchmarkMemories is a step of eight blocks that nothing is wrong with, through all
// memories of these files.
func BenchmarkMemories(b *testing.B) {
	all, idx := memoriesOf(), index.New(index.Options{})
	s := &stream.Step{Kind: stream.Apply, Replica: "r", Batch: &wire.Batch{}}
	e := wire.Event{Kind: wire.Stored, BlockSize: 16, Tokens: make([]wire.Token, 128), Hashes: make([]wire.Handle, 8)}
	s.Batch.Events = []wire.Event{e}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		s.At = wire.Time(n) * 1e6
		for i := range e.Hashes {
			e.Hashes[i] = wire.Handle{N: uint64(8*n+i)<<20 | 1<<60, Set: true}
		}
		e.Tokens[0] = wire.Token(n)
		for _, m := range all {
			m.Step(s, idx)
		}
	}
}
