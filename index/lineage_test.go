package index

import (
	"slices"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// TestLineage: a chain stored in two pieces is one, under whichever handles.
func TestLineage(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	tokens := make([]wire.Token, 12)
	for i := range tokens {
		tokens[i] = wire.Token(100 + i)
	}
	handle := func(n uint64) wire.Handle { return wire.Handle{N: n, Set: true} }
	store := func(name wire.Replica, parent wire.Handle, tokens []wire.Token, hashes ...uint64) {
		e := wire.Event{Kind: wire.Stored, Group: -1, BlockSize: 4, Tokens: tokens, Parent: parent}
		for _, h := range hashes {
			e.Hashes = append(e.Hashes, handle(h))
		}
		x.Apply(name, &e, false)
	}
	store("a", wire.Handle{}, tokens[:8], 1, 2)
	store("a", handle(2), tokens[8:], 3)
	store("b", wire.Handle{}, tokens, 11, 12, 13)
	a, okA := x.Resolve("a", handle(3))
	b, okB := x.Resolve("b", handle(13))
	before, _ := x.Resolve("a", handle(2))
	if !okA || !okB || a != b || a.Depth != 3 || a.Parent != before.Seq {
		t.Errorf("a %+v %t, b %+v %t, before it %+v", a, okA, b, okB, before)
	}
	got, seqs, ok := x.Lineage(a.Seq, 4, 8)
	if !ok || !slices.Equal(got, tokens) || len(seqs) != 3 || seqs[2] != a.Seq || seqs[1] != before.Seq {
		t.Errorf("lineage %v, %v, %t", got, seqs, ok)
	}
	if got, _, ok = x.Lineage(a.Seq, 4, 2); !ok || !slices.Equal(got, tokens[:8]) {
		t.Errorf("at most two blocks: %v, %t", got, ok)
	}
	for _, h := range []uint64{0, 99} {
		if _, ok := x.Resolve("a", handle(h)); ok {
			t.Errorf("handle %d is known", h)
		}
	}
	if _, ok := x.Resolve("c", handle(1)); ok {
		t.Error("a replica never seen knows a handle")
	}
	if _, _, ok := x.Lineage(12345, 4, 8); ok {
		t.Error("a block never seen has a lineage")
	}
	tight := New(Options{MaxText: entryCost + 16})
	x = tight
	store("a", wire.Handle{}, tokens, 1, 2, 3)
	a, _ = x.Resolve("a", handle(3))
	if _, _, ok := x.Lineage(a.Seq, 4, 8); ok {
		t.Error("tokens that were forgotten are given")
	}
}
