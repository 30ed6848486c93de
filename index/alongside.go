package index

import (
	"cmp"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// Alongside gives the tokens of stored chains that part from a prompt where it
// leaves all of them, each from the start of block at.Block on: at most so many
// chains, those that run along longest within that block first, each of at most
// so many blocks, as far as its tokens were kept. Where a chain forks again, the
// branch that the prompt has too, wherever, is taken. Chains of another LoRA or salt
// are left out. at is what Part gave for
// the same replica and prompt, with nothing applied between.
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
	asked := p.Tokens[min(at.Block*s.size, len(p.Tokens)):]
	type start struct {
		id     nodeID
		common int
	}
	var best []start // the longest common part first
	for c := x.nodes[id].child; c != none; c = x.nodes[c].next {
		common, known := x.text.common(x.nodes[c].seq, asked)
		if !known || x.nodes[c].holders == 0 || x.nodes[c].ns != p.namespace() {
			continue
		}
		i, _ := slices.BinarySearchFunc(best, common, func(b start, common int) int { return cmp.Compare(common, b.common) })
		if i < chains {
			best = slices.Insert(best, i, start{c, common})
			best = best[:min(len(best), chains)]
		}
	}
	mine := make(map[uint64]bool, len(locals))
	for _, local := range locals {
		mine[local] = true
	}
	var out [][]wire.Token
	for _, b := range best {
		out = append(out, x.chain(b.id, s.size, blocks, mine))
	}
	return out
}

// chain gives the tokens of a node and of what is resident below it.
func (x *Index) chain(id nodeID, size, blocks int, mine map[uint64]bool) []wire.Token {
	var out []wire.Token
	for range blocks {
		tokens := x.text.at[x.nodes[id].seq]
		for _, t := range tokens[:min(size, len(tokens))] { // a bigram's window has one more
			out = append(out, wire.Token(t))
		}
		next := none
		for c := x.nodes[id].child; c != none; c = x.nodes[c].next {
			if _, known := x.text.at[x.nodes[c].seq]; !known || x.nodes[c].holders == 0 {
				continue
			}
			if shared := mine[x.nodes[c].local]; shared || next == none {
				next = c
				if shared {
					break
				}
			}
		}
		if next == none {
			break
		}
		id = next
	}
	return out
}
