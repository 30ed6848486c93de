package index

import "github.com/kvscope/kvscope/wire"

// Turns count stores by what they say of where a request went. A turn is a store of
// at least two new blocks that goes on where a chain ended: a prompt that has grown.
// Shorter stores are most often blocks of an answer, filled one by one.
type Turns struct {
	// Cold chains began with a block that was resident nowhere.
	Cold uint64
	// Kept turns went on where the chain was.
	Kept uint64
	// Moved turns went on elsewhere: what came before them was resident on another
	// replica, and MovedBlocks of it were stored here too. Returned of them came to
	// a replica that had left the same chain off earlier.
	Moved, Returned, MovedBlocks uint64
}

// Add sums two.
func (t Turns) Add(u Turns) Turns {
	t.Cold += u.Cold
	t.Kept += u.Kept
	t.Moved += u.Moved
	t.Returned += u.Returned
	t.MovedBlocks += u.MovedBlocks
	return t
}

// turn is one store, block by block.
type turn struct {
	// root says that it begins a chain, end that it goes on behind a block without
	// a child, and path behind one with a single child.
	root, end, path bool
	// leaf is what the last block from elsewhere was.
	leaf bool
	// cold says that its first block was nowhere.
	cold             bool
	all, away, fresh int
}

// turnAt begins a turn behind a block, none for the beginning of a chain.
func (x *Index) turnAt(above nodeID) turn {
	if above == none {
		return turn{root: true}
	}
	child := x.nodes[above].child
	return turn{end: child == none, path: child != none && x.nodes[child].next == none}
}

// take counts a block of the store, which had no child if leaf.
func (t *turn) take(c class, leaf bool) {
	t.cold = t.cold || t.all == 0 && (c == first || c == evictedHere || c == evictedElsewhere)
	t.all++
	switch {
	case c == elsewhere && t.fresh == 0:
		t.away, t.leaf = t.away+1, leaf
	case c == first:
		t.fresh++
	}
}

// minTurn is how many new blocks a turn has at least.
const minTurn = 2

func (t *Turns) count(one *turn) {
	if one.root && one.cold {
		t.Cold++
	}
	if one.fresh < minTurn || one.away+one.fresh < one.all {
		return
	}
	switch {
	case one.away == 0 && one.end:
		t.Kept++
	case one.away > 0 && one.leaf:
		t.Moved++
		t.MovedBlocks += uint64(one.away)
		if one.path {
			t.Returned++
		}
	}
}

// Holders is how many replicas hold a block, by the handle that any of them has
// for it.
func (x *Index) Holders(h wire.Handle) int {
	k := key(h)
	for _, r := range x.byID {
		if id := r.table.Get(k); id != none {
			return int(x.nodes[id].holders)
		}
	}
	return 0
}
