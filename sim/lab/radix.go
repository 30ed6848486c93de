package lab

import "github.com/kvscope/kvscope/hashtable"

// radix is SGLang's radix cache (RadixAttention), in pages. A sequence locks the
// path that it uses and the tree gets its prompt once it is prefilled, and the rest
// when it has finished. Where that is in the tree by then, its own copy is given
// back. Leaves that nobody locks are evicted whole, the one used longest ago first.
type radix struct {
	// nodes are those of the tree, unused ones among them. 0 is the root, and the
	// anchor of the ring of nodes that nobody locks: what is behind it was used
	// longest ago. A path's nodes are put in from the leaf on, so that the first one
	// in the ring is always a leaf.
	nodes []radixNode
	spare []int32
	// first finds a node by its first page, whose name says what goes before it.
	first hashtable.Table[int32]
	// Of the capacity, tree pages are in the tree, locked ones of them in use, and
	// own pages belong to sequences alone.
	capacity, tree, locked, own int
	log                         []change
}

type radixNode struct {
	pages      []block
	parent     int32
	prev, next int32
	locks      int32
}

func newRadix(capacity int) *radix {
	return &radix{nodes: make([]radixNode, 1), capacity: capacity}
}

func (c *radix) insert(after, at int32) {
	next := c.nodes[after].next
	c.nodes[at].prev, c.nodes[at].next = after, next
	c.nodes[after].next, c.nodes[next].prev = at, at
}

func (c *radix) unlink(at int32) {
	n := &c.nodes[at]
	c.nodes[n.prev].next, c.nodes[n.next].prev = n.next, n.prev
}

// walk goes down a path as far as the tree has it: to a node, of which it may have
// the first pages alone.
func (c *radix) walk(path []block) (node int32, depth, partly int) {
	for depth < len(path) {
		at := c.first.Get(uint64(path[depth]))
		if at == 0 {
			break
		}
		pages, rest := c.nodes[at].pages, path[depth:]
		n := 1
		for n < len(pages) && n < len(rest) && pages[n] == rest[n] {
			n++
		}
		node, depth = at, depth+n
		if n < len(pages) {
			return node, depth, n
		}
	}
	return node, depth, 0
}

func (c *radix) match(path []block) int {
	_, depth, _ := c.walk(path)
	return depth
}

// reach is walk, which splits a node that the path has partly and counts all on
// the path as used now.
func (c *radix) reach(path []block) (node int32, depth int) {
	node, depth, partly := c.walk(path)
	if partly > 0 {
		node = c.split(node, partly)
	}
	for at := node; at != 0; at = c.nodes[at].parent {
		if c.nodes[at].locks == 0 {
			c.unlink(at)
			c.insert(c.nodes[0].prev, at)
		}
	}
	return node, depth
}

func (c *radix) add(n radixNode) int32 {
	var at int32
	if last := len(c.spare) - 1; last >= 0 {
		at, c.spare = c.spare[last], c.spare[:last]
		c.nodes[at] = n
	} else {
		at = int32(len(c.nodes))
		c.nodes = append(c.nodes, n)
	}
	c.first.Set(uint64(n.pages[0]), at)
	return at
}

// split cuts a node behind its first pages and gives the upper part.
func (c *radix) split(at int32, pages int) int32 {
	n := c.nodes[at]
	upper := c.add(radixNode{pages: n.pages[:pages], parent: n.parent, locks: n.locks})
	c.nodes[at].pages, c.nodes[at].parent = n.pages[pages:], upper
	c.first.Set(uint64(n.pages[pages]), at)
	if n.locks == 0 {
		c.insert(at, upper)
	}
	return upper
}

func (c *radix) lock(node int32) {
	for at := node; at != 0; at = c.nodes[at].parent {
		if c.nodes[at].locks++; c.nodes[at].locks == 1 {
			c.unlink(at)
			c.locked += len(c.nodes[at].pages)
		}
	}
}

func (c *radix) unlock(node int32) {
	for at := node; at != 0; at = c.nodes[at].parent {
		if c.nodes[at].locks--; c.nodes[at].locks == 0 {
			c.insert(c.nodes[0].prev, at)
			c.locked -= len(c.nodes[at].pages)
		}
	}
}

func (c *radix) begin(s *sequence) bool {
	node, depth := c.reach(s.path[:s.usable])
	c.lock(node)
	need, free := s.total-depth, c.capacity-c.tree-c.own
	if need > free+c.tree-c.locked {
		c.unlock(node)
		return false
	}
	c.evict(need - free)
	c.own += need
	s.hits, s.node, s.depth = depth, node, depth
	return true
}

// evict frees at least so many pages.
func (c *radix) evict(pages int) {
	for pages > 0 {
		at := c.nodes[0].next
		n := c.nodes[at]
		c.unlink(at)
		c.first.Remove(uint64(n.pages[0]))
		for _, b := range n.pages {
			c.log = append(c.log, change{b, true})
		}
		c.tree -= len(n.pages)
		pages -= len(n.pages)
		c.nodes[at] = radixNode{}
		c.spare = append(c.spare, at)
	}
}

// put brings a sequence's first blocks into the tree.
func (c *radix) put(s *sequence, blocks int) {
	path := s.path[:blocks]
	node, depth := c.reach(path)
	c.own -= blocks - s.depth
	if fresh := path[depth:]; len(fresh) > 0 {
		node = c.add(radixNode{pages: fresh, parent: node})
		c.insert(c.nodes[0].prev, node) // until it is locked
		c.tree += len(fresh)
		c.log = stored(c.log, fresh)
	}
	c.lock(node)
	c.unlock(s.node)
	s.node, s.depth = node, blocks
}

func (c *radix) prefilled(s *sequence) { c.put(s, s.prompt) }

func (c *radix) finish(s *sequence) {
	c.put(s, len(s.path))
	c.own -= s.total - len(s.path)
	c.unlock(s.node)
}

func (c *radix) used() int { return c.own + c.locked }

func (c *radix) changes() []change {
	out := c.log
	c.log = c.log[:0]
	return out
}
