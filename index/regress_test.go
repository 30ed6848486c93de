package index

import (
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// Faults found by hostile streams and by a second, independent model.

func big(n int) wire.Handle { return wire.IntHandle(uint64(n)<<40 | 7) }

// chainOn stores blocks with local hashes from text below a parent, 0 for none;
// their handles are first, first+1, ...
func chainOn(x *Index, name wire.Replica, tier wire.Tier, parent int, text string, first int) {
	st := Store{Place: Place{Tier: tier}}
	if parent != 0 {
		st.Parent = big(parent)
	}
	for i, c := range text {
		st.Blocks = append(st.Blocks, Block{big(first + i), uint64(c)})
	}
	x.Store(name, st)
}

// TestPartOfLargerBlocks: replicas that cut prompts differently stand side by
// side, and the nearest chain's block is longer than the one asked for.
func TestPartOfLargerBlocks(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	event := func(name wire.Replica, size int, from wire.Token, handle int) {
		e := &wire.Event{Kind: wire.Stored, Group: -1, BlockSize: size, Hashes: []wire.Handle{big(handle)}}
		for i := range size {
			e.Tokens = append(e.Tokens, from+wire.Token(i))
		}
		x.Apply(name, e, false)
	}
	event("big", 8, 1, 1)
	event("small", 4, 50, 2)
	p := NewPrompt(Query{Tokens: []wire.Token{1, 2, 3, 4, 5, 6, 7, 8}})
	got, ok := x.Part("small", p)
	if !ok || got.Block != 0 || got.Token != 4 || len(got.Asked) != 0 || got.Replica != "big" {
		t.Errorf("%+v, %t; want the end of the block", got, ok)
	}
}

// TestAskingMakesNoReplica: a query about a replica that was never seen leaves
// nothing behind.
func TestAskingMakesNoReplica(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	p := NewPrompt(Query{Tokens: []wire.Token{1, 2, 3, 4}})
	if m := x.MatchOn("nobody", p); m != (Match{Replica: "nobody"}) {
		t.Errorf("%+v", m)
	}
	if _, parts := x.Part("nobody", p); parts || x.Strip("nobody", p) != nil || len(x.byID) != 0 {
		t.Errorf("asking made %d replicas", len(x.byID))
	}
}

// TestGroupsAreBounded: a stream that numbers its groups without end does not
// make a slot for each.
func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	for i := range 2000 {
		e := &wire.Event{
			Kind: wire.Stored, Group: i, BlockSize: 1, Tokens: []wire.Token{1}, Hashes: []wire.Handle{big(1)},
		}
		x.Apply("r", e, false)
		e.Kind, e.Hashes = wire.Removed, []wire.Handle{big(5)}
		x.Apply("r", e, false)
	}
	s := x.Stats("r")
	if len(x.slots) > 2*maxGroups || s.Unindexed != 2000-maxGroups || s.Stored != 2000 {
		t.Errorf("%d slots for one block, %d left out", len(x.slots), s.Unindexed)
	}
}

// TestClearEndsProofs: what was proved of the device before it was cleared does
// not come back when a chain on the host is attached.
func TestClearEndsProofs(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	chainOn(x, "same", wire.Device, 0, "x", 50)
	chainOn(x, "r", wire.Device, 0, "x", 50)
	chainOn(x, "r", wire.Host, 2, "c", 3)
	chainOn(x, "r", wire.Device, 3, "d", 4)
	x.Clear("r", false)
	chainOn(x, "same", wire.Device, 0, "ab", 1)
	if s := x.Stats("r"); s.Resident != [wire.NumTiers]int{0, 1} || s.Copies != 0 || s.Cleared != 4 {
		t.Errorf("%+v, want one block, on the host", s)
	}
}

// TestNewAncestorsAreProven: a chain without beginning grows upwards by a store
// on the host; the next one on the device proves those blocks too.
func TestNewAncestorsAreProven(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	chainOn(x, "r", wire.Device, 2, "c", 3)
	chainOn(x, "r", wire.Host, 1, "b", 2)
	chainOn(x, "r", wire.Device, 2, "d", 4)
	if s := x.Stats("r"); s.Copies != 4 {
		t.Errorf("%+v, want a, b, c and d on the device", s)
	}
}

// TestNeighbourKeepsItsRoom: handles that keep nothing alive but nodes do not
// fill the index for all others.
func TestNeighbourKeepsItsRoom(t *testing.T) {
	t.Parallel()
	x := New(Options{MaxBlocks: 1000, History: 100})
	for i := range 5000 {
		local := uint64(i)
		x.Store("r", Store{Blocks: []Block{{big(2 * i), local}}})
		x.Store("r", Store{Blocks: []Block{{big(2*i + 1), local}}}) // a second name
		x.Remove("r", Place{}, []wire.Handle{big(2 * i), big(2*i + 1)})
	}
	x.Store("q", Store{Blocks: []Block{{big(1), 1 << 40}}})
	if s := x.Stats("q"); s.Resident[wire.Device] != 1 || s.Unindexed != 0 {
		known, resident, _ := x.Blocks()
		t.Errorf("%d blocks known, %d resident, and the neighbour gets %+v", known, resident, s)
	}
}

// TestRenamedHandle: a handle that names another block is believed, and no
// proof brings back the block that has no name any more.
func TestRenamedHandle(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	chainOn(x, "r", wire.Device, 0, "ab", 1)
	chainOn(x, "r", wire.Device, 0, "z", 1)
	chainOn(x, "r", wire.Device, 2, "c", 3)
	x.Clear("r", true)
	if s := x.Stats("r"); s.Copies != 0 {
		t.Errorf("%+v after a clear: a block is resident that no handle reaches", s)
	}
}

// TestManyKids: chains that wait for one parent come and go in time that grows
// with their number and not with its square.
func TestManyKids(t *testing.T) {
	t.Parallel()
	const n = 100_000
	x := New(Options{})
	for i := range n {
		x.Store("r", Store{Parent: big(1), Blocks: []Block{{big(i + 2), uint64(i)}}})
	}
	for i := range n / 2 { // the first first: the worst order for a list
		x.Remove("r", Place{}, []wire.Handle{big(i + 2)})
	}
	x.Store("r", Store{Blocks: []Block{{big(1), 1}}})
	if s := x.Stats("r"); s.Orphans != 0 || s.Resident[wire.Device] != n/2+1 {
		t.Errorf("%+v, want half of them attached", s)
	}
}

// TestLongHybrid: a window that fits nowhere is found out in linear time.
func TestLongHybrid(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	e := &wire.Event{Kind: wire.Stored, BlockSize: 1, Spec: "full_attention"}
	for i := range 1 << 17 {
		e.Tokens, e.Hashes = append(e.Tokens, wire.Token(i)), append(e.Hashes, big(i+1))
	}
	x.Apply("r", e, false)
	x.Apply("r", &wire.Event{
		Kind: wire.Stored, Group: 1, Spec: "sliding_window", Window: 4096, Hashes: []wire.Handle{big(7)},
	}, false)
	if m := x.MatchOn("r", NewPrompt(Query{Tokens: e.Tokens})); m.Upper != 1<<17 || m.Depth() != 0 {
		t.Errorf("%+v, want 0 of at most %d", m, 1<<17)
	}
}

// TestTextKeepsNoMessages: the tokens kept of one block do not keep the message
// that they came in.
func TestTextKeepsNoMessages(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	e := &wire.Event{Kind: wire.Stored, Group: -1, BlockSize: 10, Tokens: make([]wire.Token, 1000)}
	for i := range 100 {
		e.Hashes = append(e.Hashes, big(i+1))
	}
	x.Apply("r", e, false)
	for _, kept := range x.text.at {
		if cap(kept) > 2*len(kept) {
			t.Fatalf("%d tokens kept for a block of %d", cap(kept), len(kept))
		}
	}
}
