package index

import (
	"slices"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// Known is what a replica's handle stands for.
type Known struct {
	// Seq names the content of the whole chain up to this block, Parent that of the
	// chain before it, 0 at a root.
	Seq, Parent uint64
	// Depth counts the chain's blocks, this one included.
	Depth     int
	Namespace blockhash.Namespace
}

// Resolve says what a replica's handle stands for, and reports false where that is
// not known.
func (x *Index) Resolve(name wire.Replica, h wire.Handle) (Known, bool) {
	r := x.replicas[name]
	if r == nil {
		return Known{}, false
	}
	id := r.table.Get(key(h))
	if id == none {
		return Known{}, false
	}
	n := &x.nodes[id]
	k := Known{Seq: n.seq, Depth: int(n.depth), Namespace: n.ns}
	if n.parent != none {
		k.Parent = x.nodes[n.parent].seq
	}
	return k, true
}

// Lineage gives the tokens of the chain of blocks of one size that ends in the block
// named seq, from its root on, and each block's Seq; of a chain of more than most
// blocks the first most. It reports false where a block is not known any more, or its
// tokens were not kept.
func (x *Index) Lineage(seq uint64, size, most int) (tokens []wire.Token, seqs []uint64, ok bool) {
	id := x.bySeq.Get(seq)
	if id == none || size <= 0 || most <= 0 {
		return nil, nil, false
	}
	for ; id != none; id = x.nodes[id].parent {
		if int(x.nodes[id].depth) <= most {
			seqs = append(seqs, x.nodes[id].seq)
		}
	}
	slices.Reverse(seqs)
	tokens = make([]wire.Token, 0, len(seqs)*size)
	for _, s := range seqs {
		kept := x.text.at[s]
		if len(kept) < size {
			return nil, nil, false
		}
		for _, t := range kept[:size] { // a bigram's window has one more
			tokens = append(tokens, wire.Token(t))
		}
	}
	return tokens, seqs, true
}
