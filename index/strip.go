package index

import "github.com/kvscope/kvscope/wire"

// Cell is what a replica has of one block.
type Cell uint8

// The cells. A block that is resident behind the first missing one is a hole's
// far side: it is there and of no use.
const (
	Miss     Cell = iota
	Hit           // on the device, within the prefix
	Doubtful      // on the device, within the prefix, with evidence only from before a missed event
	Lower         // on a lower tier, within the prefix
	Beyond        // resident, but behind a hole
)

// Strip says for every block of a prompt what a replica has of it.
func (x *Index) Strip(name wire.Replica, p *Prompt) []Cell {
	r := x.replicas[name]
	if r == nil || r.blockSize <= 0 {
		return nil
	}
	s := shape{r.blockSize, r.bigram}
	locals := p.cut(s).locals
	cells := make([]Cell, len(locals))
	id := none
	prefix := true
	for i, local := range locals {
		if id = x.step(id, local); id == none {
			break
		}
		c := x.cell(r, id)
		if c == Miss {
			prefix = false
		} else if !prefix {
			c = Beyond
		}
		cells[i] = c
	}
	return cells
}

// cell says what a replica has of a node, taken alone.
func (x *Index) cell(r *replica, id nodeID) Cell {
	c := Miss
	for i := x.nodes[id].first; i != noSlot; {
		s := &x.slots[i]
		i = s.next
		if s.rep != r.id || s.n <= 0 {
			continue
		}
		switch {
		case s.tier != wire.Device:
			if c == Miss {
				c = Lower
			}
		case s.gen == r.gen:
			return Hit
		default:
			c = Doubtful
		}
	}
	return c
}
