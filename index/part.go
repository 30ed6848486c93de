package index

import (
	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// Parting is where a prompt leaves every stored chain.
type Parting struct {
	// Block is the first block that no chain shares, Token the first token in
	// it, from the prompt's start, that the nearest chain does not share;
	// both from 0.
	Block, Token int
	// Replica holds the nearest chain at that block; "" if none goes on there.
	Replica wire.Replica
	// Known says that the nearest chain's tokens were kept; without them Token
	// is the block's first one.
	Known bool
	// Foreign says that the nearest chain is of another LoRA or cache salt than the
	// prompt, which can have the same tokens.
	Foreign bool
	// Stored are the nearest chain's tokens from Token to the end of its block,
	// Asked the prompt's.
	Stored, Asked []wire.Token
}

// Part finds where a prompt parts from the chains that are resident anywhere,
// cut into blocks as a replica does, and the one that runs alongside longest.
// It reports false if all full blocks of the prompt are stored as one chain.
func (x *Index) Part(name wire.Replica, p *Prompt) (Parting, bool) {
	r := x.replicas[name]
	if r == nil || r.blockSize <= 0 {
		return Parting{}, false
	}
	s := shape{r.blockSize, r.bigram}
	locals := p.cut(s).locals
	id := none
	depth := 0
	for depth < len(locals) {
		c := x.step(id, locals[depth])
		if c == none || x.nodes[c].holders == 0 {
			break
		}
		id = c
		depth++
	}
	if depth == len(locals) {
		return Parting{}, false
	}
	part := Parting{Block: depth, Token: depth * s.size}
	// The block's own tokens: other replicas may cut larger blocks.
	asked := blockhash.Window(p.Tokens, s.size, depth, s.bigram)
	best, ns := none, p.namespace()
	for c := x.nodes[id].child; c != none; c = x.nodes[c].next {
		if x.nodes[c].holders == 0 {
			continue
		}
		common, known := x.text.common(x.nodes[c].seq, asked)
		before := part.Token - depth*s.size
		usable := part.Foreign && x.nodes[c].ns == ns
		if best == none || known && (!part.Known || common > before || common == before && usable) {
			best = c
			part.Foreign = x.nodes[c].ns != ns
			part.Known = known
			part.Token = depth*s.size + common
		}
	}
	part.Asked = asked[part.Token-depth*s.size:]
	if best != none {
		part.Replica = x.holder(best)
		if stored := x.text.at[x.nodes[best].seq]; part.Known {
			for _, t := range stored[part.Token-depth*s.size:] {
				part.Stored = append(part.Stored, wire.Token(t))
			}
		}
	}
	return part, true
}

// holder names one replica where a node is resident.
func (x *Index) holder(id nodeID) wire.Replica {
	for i := x.nodes[id].first; i != noSlot; i = x.slots[i].next {
		if s := &x.slots[i]; s.n > 0 {
			return x.byID[s.rep].name
		}
	}
	return ""
}
