package index

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// check holds what must be true of any index, however it came about.
func check(t testing.TB, x *Index) {
	t.Helper()
	known, resident, shared, pairs := 0, 0, 0, 0
	for id := range x.nodes {
		n := &x.nodes[id]
		if n.depth == 0 {
			continue
		}
		known++
		holders := map[int32]bool{}
		for i := n.first; i != noSlot; i = x.slots[i].next {
			s := &x.slots[i]
			if s.n < 0 || s.kids < 0 {
				t.Fatalf("node %d: slot %+v", id, *s)
			}
			if s.n > 0 {
				pairs++
				holders[s.rep] = true
			}
		}
		if int(n.holders) != len(holders) {
			t.Fatalf("node %d: %d holders, has %d", id, n.holders, len(holders))
		}
		if len(holders) > 0 {
			resident++
		}
		if len(holders) > 1 {
			shared++
		}
		if x.bySeq.Get(n.seq) != nodeID(id) {
			t.Fatalf("node %d is not found by its hash", id)
		}
		if n.parent != none && x.nodes[n.parent].depth != n.depth-1 {
			t.Fatalf("node %d: depth %d below %d", id, n.depth, x.nodes[n.parent].depth)
		}
	}
	if known != x.known || resident != x.resident || shared != x.shared || pairs != x.pairs {
		t.Fatalf("counted %d known, %d resident, %d shared, %d pairs; kept %d, %d, %d, %d",
			known, resident, shared, pairs, x.known, x.resident, x.shared, x.pairs)
	}
	refs := map[nodeID]int32{}
	for _, r := range x.byID {
		for _, id := range r.table.All() {
			refs[id]++
		}
		for k, o := range r.orphans {
			if o.key != k || o.parent != nil && r.orphans[o.parent.key] != o.parent {
				t.Fatalf("%s: orphan %x is not where it should be", r.name, k)
			}
		}
	}
	for id, n := range refs {
		if x.nodes[id].refs != n {
			t.Fatalf("node %d: %d table entries, kept %d", id, n, x.nodes[id].refs)
		}
	}
}

// TestBounds: whatever comes, an index stays within its bounds, and what it
// dropped is counted.
func TestBounds(t *testing.T) {
	t.Parallel()
	opt := Options{MaxBlocks: 500, History: 50, MaxOrphans: 100, MaxText: 10 << 10}
	x := New(opt)
	rng := rand.New(rand.NewPCG(9, 9))
	var last []uint64
	for i := range 30_000 {
		e := stored(ids(rng.IntN(1<<20), 8), rng.Uint64())
		switch rng.IntN(5) {
		case 0:
			e.Parent = wire.IntHandle(rng.Uint64()) // never seen
		case 1:
			if len(last) > 0 {
				e.Parent = wire.IntHandle(last[rng.IntN(len(last))])
			}
		}
		name := wire.Replica([]string{"a", "b", "c"}[rng.IntN(3)])
		x.Apply(name, e, false)
		last = append(last, e.Hashes[1].N)
		if len(last) > 100 {
			x.Remove(name, Place{}, []wire.Handle{wire.IntHandle(last[0])})
			last = last[1:]
		}
		if i%1000 == 0 {
			check(t, x)
		}
		if rng.IntN(5000) == 0 {
			x.Drop(name)
		}
	}
	check(t, x)
	if x.known > opt.MaxBlocks || x.text.bytes > opt.MaxText || x.dead.size > max(opt.History, x.pairs) {
		t.Errorf("%d blocks, %d bytes of text, %d evictions remembered", x.known, x.text.bytes, x.dead.size)
	}
	dropped := uint64(0)
	for _, r := range x.byID {
		if len(r.orphans) > opt.MaxOrphans {
			t.Errorf("%s: %d orphans", r.name, len(r.orphans))
		}
		dropped += r.stats.Unindexed
	}
	if dropped == 0 {
		t.Error("nothing was counted as dropped")
	}
}

// TestMemoryReturns: what is removed and forgotten leaves nothing behind.
func TestMemoryReturns(t *testing.T) {
	t.Parallel()
	x := New(Options{History: 1})
	for i := range 2000 {
		e := stored(ids(1000*i, 16), uint64(1+i)<<32)
		x.Apply("r", e, false)
		for k := range e.Hashes {
			x.Remove("r", Place{}, e.Hashes[len(e.Hashes)-1-k:len(e.Hashes)-k])
		}
	}
	check(t, x)
	if x.known > 4 || x.byID[0].table.Len() > 4 {
		t.Errorf("%d blocks and %d handles are kept after everything was removed", x.known, x.byID[0].table.Len())
	}
}

// TestHostileHandles: cycles among orphans, blocks that are their own parent,
// one handle for much content, huge groups.
func TestHostileHandles(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	e := func(parent, hash uint64, from int) *wire.Event {
		s := stored(ids(from, 4), hash)
		s.Parent = wire.IntHandle(parent)
		return s
	}
	x.Apply("r", e(1, 2, 0), false)
	x.Apply("r", e(2, 1, 0), false) // a cycle
	x.Apply("r", e(3, 3, 0), false) // its own parent
	x.Apply("r", &wire.Event{
		Kind: wire.Stored, BlockSize: 1, Tokens: ids(0, 3), Parent: wire.IntHandle(9),
		Hashes: []wire.Handle{wire.IntHandle(4), wire.IntHandle(4), wire.IntHandle(4)},
	}, false) // its own child
	x.Remove("r", Place{}, []wire.Handle{wire.IntHandle(1), wire.IntHandle(2), wire.IntHandle(3), wire.IntHandle(4)})
	check(t, x)
	for i := range 100 {
		s := stored(ids(10*i, 4), 77) // one handle, other content each time
		s.Group = math.MaxInt
		x.Apply("r", s, false)
	}
	check(t, x)
	if s := x.Stats("r"); s.Resident[wire.Device] != 1 {
		t.Errorf("one handle keeps %d blocks", s.Resident[wire.Device])
	}
	x.Apply("r", &wire.Event{Kind: wire.Stored, Tier: 200, Hashes: []wire.Handle{wire.IntHandle(5)}}, false)
	x.Clear("r", true)
	x.Forget("r")
	check(t, x)
	if x.known != 0 {
		t.Errorf("%d blocks after everything was forgotten", x.known)
	}
}

// FuzzApply makes events out of bytes: nothing may panic, and what must be
// true of any index stays true.
func FuzzApply(f *testing.F) {
	f.Add([]byte("a store, a removal, a clear and so on, byte by byte"))
	f.Add(binary.LittleEndian.AppendUint64(nil, math.MaxUint64))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := New(Options{MaxBlocks: 64, History: 8, MaxOrphans: 16, MaxText: 1 << 10})
		next := func() int {
			if len(b) == 0 {
				return 0
			}
			c := int(b[0])
			b = b[1:]
			return c
		}
		for len(b) > 0 {
			name := wire.Replica([]string{"a", "b"}[next()%2])
			e := &wire.Event{
				Kind: wire.EventKind(next() % 5), BlockSize: next() % 3, Group: next()%4 - 1, Tier: wire.Tier(next() % 5),
				Bigram: next()%4 == 0, Spec: []string{"", "full_attention", "sliding_window"}[next()%3], Window: next() % 9,
			}
			for range next() % 5 {
				e.Hashes = append(e.Hashes, wire.IntHandle(uint64(next()%8)<<32))
			}
			for range next() % 9 {
				e.Tokens = append(e.Tokens, wire.Token(next()%3))
			}
			if p := next() % 9; p > 0 {
				e.Parent = wire.IntHandle(uint64(p-1) << 32)
			}
			switch next() % 12 {
			case 0:
				x.Drop(name)
			case 1:
				x.Forget(name)
			case 2:
				x.Match(NewPrompt(Query{Tokens: e.Tokens}))
			case 3:
				x = x.Clone()
			default:
				x.Apply(name, e, next()%2 == 0)
			}
			check(t, x)
		}
		if x.known > 64 {
			t.Fatalf("%d blocks", x.known)
		}
	})
}
