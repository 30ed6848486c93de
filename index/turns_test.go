package index

import (
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// TestTurns tells what a store says of where a request went.
func TestTurns(t *testing.T) {
	t.Parallel()
	chain := func(x *Index, name wire.Replica, parent uint64, blocks ...uint64) {
		st := Store{}
		if parent != 0 {
			st.Parent = wire.IntHandle(parent)
		}
		for _, b := range blocks {
			st.Blocks = append(st.Blocks, Block{wire.IntHandle(b), 1000 + b})
		}
		x.Store(name, st)
	}
	x := New(Options{})
	want := map[wire.Replica]Turns{}
	step := func(what string, name wire.Replica, more Turns, parent uint64, blocks ...uint64) {
		t.Helper()
		chain(x, name, parent, blocks...)
		want[name] = want[name].Add(more)
		for _, r := range []wire.Replica{"a", "b"} {
			if got := x.Stats(r).Turns; got != want[r] {
				t.Fatalf("%s: %s has %+v, want %+v", what, r, got, want[r])
			}
		}
	}
	step("the first prompt", "a", Turns{Cold: 1}, 0, 1, 2, 3, 4)
	step("its second turn", "a", Turns{Kept: 1}, 4, 5, 6)
	step("a block of the answer", "a", Turns{}, 6, 7)
	step("the third turn, elsewhere", "b", Turns{Moved: 1, MovedBlocks: 7}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	step("the fourth, back again", "a", Turns{Moved: 1, Returned: 1, MovedBlocks: 2}, 7, 8, 9, 10, 11)
	step("another prompt with the same beginning", "a", Turns{}, 2, 20, 21)
	step("the same beginning on another replica", "b", Turns{}, 2, 22, 23)
	step("a prompt whole from elsewhere", "b", Turns{}, 2, 20, 21)
	step("and one that nobody has", "b", Turns{Cold: 1}, 0, 30)
	if n := x.Holders(wire.IntHandle(3)); n != 2 {
		t.Errorf("block 3 has %d holders, and it is on both", n)
	}
	if n := x.Holders(wire.IntHandle(99)); n != 0 {
		t.Errorf("a block that nobody knows has %d holders", n)
	}
}
