package lab

import (
	"slices"

	"github.com/kvscope/kvscope/hashtable"
)

// blockLRU is vLLM's block pool. Blocks that no sequence uses stay cached and wait
// in a queue, in the order in which they were given back, to be used for something
// else; a sequence gives its blocks back from its tail on. What a sequence computes
// is cached when it begins, as vLLM does when it schedules the work. A block that is
// cached already and is computed anew, as the last one of a prompt is, becomes
// another copy.
type blockLRU struct {
	// slots are the physical blocks, from 1 on. 0 is the anchor of the queue's ring:
	// what is behind it is used first.
	slots []slot
	nfree int
	// oldest is the oldest copy of each block.
	oldest hashtable.Table[int32]
	log    []change
}

type slot struct {
	prev, next int32
	// twin is the next younger copy of the same block, 0 for none.
	twin int32
	refs int32
	// holds is what can be found in it, 0 for nothing.
	holds block
}

func newBlockLRU(capacity int) *blockLRU {
	c := &blockLRU{slots: make([]slot, capacity+1), nfree: capacity}
	for i := range c.slots {
		c.slots[i].prev = int32((i + capacity) % (capacity + 1))
		c.slots[i].next = int32((i + 1) % (capacity + 1))
	}
	return c
}

func (c *blockLRU) insert(after, at int32) {
	next := c.slots[after].next
	c.slots[at].prev, c.slots[at].next = after, next
	c.slots[after].next, c.slots[next].prev = at, at
}

func (c *blockLRU) unlink(at int32) {
	s := &c.slots[at]
	c.slots[s.prev].next, c.slots[s.next].prev = s.next, s.prev
	c.nfree--
}

func (c *blockLRU) match(path []block) int {
	for i, b := range path {
		if c.oldest.Get(uint64(b)) == 0 {
			return i
		}
	}
	return len(path)
}

func (c *blockLRU) begin(s *sequence) bool {
	s.slots = s.slots[:0]
	idle := 0
	for _, b := range s.path[:s.usable] {
		at := c.oldest.Get(uint64(b))
		if at == 0 {
			break
		}
		if c.slots[at].refs == 0 {
			idle++
		}
		s.slots = append(s.slots, at)
	}
	s.hits = len(s.slots)
	if s.total-s.hits > c.nfree-idle {
		return false
	}
	for _, at := range s.slots {
		if c.slots[at].refs == 0 {
			c.unlink(at)
		}
		c.slots[at].refs++
	}
	for len(s.slots) < s.total {
		s.slots = append(s.slots, c.take())
	}
	c.store(s, s.hits, s.prompt)
	return true
}

// take gives the block that has been free for longest. What it held is evicted.
func (c *blockLRU) take() int32 {
	at := c.slots[0].next
	c.unlink(at)
	c.slots[at].refs = 1
	if c.slots[at].holds != 0 {
		c.forget(at)
	}
	return at
}

func (c *blockLRU) forget(at int32) {
	s := &c.slots[at]
	switch first := c.oldest.Get(uint64(s.holds)); {
	case first != at:
		for c.slots[first].twin != at {
			first = c.slots[first].twin
		}
		c.slots[first].twin = s.twin
	case s.twin != 0:
		c.oldest.Set(uint64(s.holds), s.twin)
	default:
		c.oldest.Remove(uint64(s.holds))
		c.log = append(c.log, change{s.holds, true})
	}
	s.holds, s.twin = 0, 0
}

// store makes blocks of a sequence findable.
func (c *blockLRU) store(s *sequence, from, to int) {
	for i := from; i < to; i++ {
		at, b := s.slots[i], s.path[i]
		c.slots[at].holds = b
		if copied := c.oldest.Get(uint64(b)); copied != 0 {
			for c.slots[copied].twin != 0 {
				copied = c.slots[copied].twin
			}
			c.slots[copied].twin = at
			continue
		}
		c.oldest.Set(uint64(b), at)
		c.log = append(c.log, change{block: b})
	}
}

func (c *blockLRU) prefilled(*sequence) {}

func (c *blockLRU) finish(s *sequence) {
	c.store(s, s.prompt, len(s.path))
	front := int32(0)
	for _, at := range slices.Backward(s.slots) {
		b := &c.slots[at]
		if b.refs--; b.refs > 0 {
			continue
		}
		c.nfree++
		if b.holds != 0 {
			c.insert(c.slots[0].prev, at)
			continue
		}
		// Nothing can be found in it, so it is used again before all others.
		c.insert(front, at)
		front = at
	}
}

func (c *blockLRU) used() int { return len(c.slots) - 1 - c.nfree }

func (c *blockLRU) changes() []change {
	out := c.log
	c.log = c.log[:0]
	return out
}
