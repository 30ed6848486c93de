package index

import (
	"cmp"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// Of the chains that part from a prompt at one place so many are looked at, those
// first that go on alike longest within that block, each for so many blocks.
const (
	beside      = 64
	besideDepth = 512
)

// Alongside gives the tokens of stored chains that part from a prompt where it
// leaves all of them, each from the start of block at.Block on: at most so many
// chains, those with most blocks of the prompt behind that place first, then those
// that run along longest within that block; each of at most so many blocks, as far
// as its tokens were kept. Where a chain forks again, the branch that the prompt has
// too, wherever, is taken. Chains of another LoRA or salt are left out. at is what
// Part gave for the same replica and prompt, with nothing applied between.
func (x *Index) Alongside(name wire.Replica, p *Prompt, at Parting, chains, blocks int) [][]wire.Token {
	r := x.replicas[name]
	if r == nil || r.blockSize <= 0 || chains <= 0 {
		return nil
	}
	s := shape{r.blockSize, r.bigram}
	locals := p.cut(s).locals
	id := none
	for _, local := range locals[:min(at.Block, len(locals))] {
		if id = x.step(id, local); id == none {
			return nil
		}
	}
	mine := make(map[uint64]bool, len(locals))
	for _, local := range locals[min(at.Block, len(locals)):] {
		mine[local] = true
	}
	best := x.forks(id, p, p.Tokens[min(at.Block*s.size, len(p.Tokens)):])
	for i := range best {
		best[i].shared = x.along(best[i].id, min(blocks, besideDepth), mine, nil)
	}
	slices.SortStableFunc(best, func(a, b fork) int { return cmp.Compare(b.shared, a.shared) })
	var out [][]wire.Token
	for _, b := range best[:min(len(best), chains)] {
		var tokens []wire.Token
		x.along(b.id, blocks, mine, func(id nodeID) {
			stored := x.text.at[x.nodes[id].seq]
			for _, t := range stored[:min(s.size, len(stored))] { // a bigram's window has one more
				tokens = append(tokens, wire.Token(t))
			}
		})
		out = append(out, tokens)
	}
	return out
}

// fork is a chain that parts from a prompt: by how many tokens of the block it runs
// along, and how many later blocks both have.
type fork struct {
	id             nodeID
	common, shared int
}

// forks gives the resident children of a node whose tokens are known, the most of
// asked in common first, at most beside of them.
func (x *Index) forks(id nodeID, p *Prompt, asked []wire.Token) []fork {
	var best []fork
	for c := x.nodes[id].child; c != none; c = x.nodes[c].next {
		common, known := x.text.common(x.nodes[c].seq, asked)
		if !known || x.nodes[c].holders == 0 || x.nodes[c].ns != p.namespace() {
			continue
		}
		i, _ := slices.BinarySearchFunc(best, common, func(b fork, common int) int { return cmp.Compare(common, b.common) })
		if i < beside {
			best = slices.Insert(best, i, fork{id: c, common: common})
			best = best[:min(len(best), beside)]
		}
	}
	return best
}

// along walks a node and what is resident below it, at most so many blocks, and
// gives how many of them are in mine.
func (x *Index) along(id nodeID, blocks int, mine map[uint64]bool, visit func(nodeID)) (shared int) {
	for range blocks {
		if visit != nil {
			visit(id)
		}
		if mine[x.nodes[id].local] {
			shared++
		}
		next := none
		for c := x.nodes[id].child; c != none; c = x.nodes[c].next {
			if _, known := x.text.at[x.nodes[c].seq]; !known || x.nodes[c].holders == 0 {
				continue
			}
			if own := mine[x.nodes[c].local]; own || next == none {
				next = c
				if own {
					break
				}
			}
		}
		if next == none {
			break
		}
		id = next
	}
	return shared
}
