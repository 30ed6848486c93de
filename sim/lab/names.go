package lab

import (
	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// block is the name of a block: of its content and of all that goes before it.
// Names count from 1. They are runes, so that a path of them is what a router that
// goes by text reads: it compares from the front, where both are the same.
type block = rune

// maxBlocks bounds the names, so that what is kept for each fits into memory.
const maxBlocks = 1 << 27

// names gives blocks their names.
type names struct {
	last block
	// after names a piece by the block before it, 0 for none.
	after map[piece]block
	// hashed names a block by its sequence hash.
	hashed map[uint64]block
}

// piece is content behind a block.
type piece struct {
	parent block
	symbol int64
}

func newNames() *names {
	return &names{after: map[piece]block{}, hashed: map[uint64]block{}}
}

// fresh names a block that nothing else can be equal to.
func (n *names) fresh() block {
	n.last++
	return n.last
}

// next names the block with this content behind another.
func (n *names) next(parent block, symbol int64) block {
	p := piece{parent, symbol}
	b, ok := n.after[p]
	if !ok {
		b = n.fresh()
		n.after[p] = b
	}
	return b
}

// tokens names the complete blocks of a prompt.
func (n *names) tokens(tokens []wire.Token, size int, ns blockhash.Namespace) []block {
	_, sequence := blockhash.Rolling(tokens, size, false, ns, nil)
	out := make([]block, len(sequence))
	for i, h := range sequence {
		b, ok := n.hashed[h]
		if !ok {
			b = n.fresh()
			n.hashed[h] = b
		}
		out[i] = b
	}
	return out
}
