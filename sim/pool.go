package sim

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// block is one physical block of an engine's cache.
type block struct {
	refs int
	// key says what is cached in it, nil for nothing that can be found again.
	key *key
	// prev and next are its neighbours among the free blocks.
	prev, next *block
}

// key is the name and content of a cached block.
type key struct {
	hash   uint64
	parent wire.Handle
	tokens []wire.Token
}

// pool is an engine's block cache, by vLLM's rules: blocks that no request uses
// stay cached and wait, in the order in which they were given back, to be used
// for something else. What was in them is forgotten only then.
type pool struct {
	// free is the ring's anchor: free.next is used first.
	free  block
	nfree int
	// cached holds the copies of each block, oldest first.
	cached map[uint64][]*block
	events []wire.Event
}

func newPool(n int) *pool {
	p := &pool{cached: map[uint64][]*block{}, nfree: n}
	p.free.next, p.free.prev = &p.free, &p.free
	all := make([]block, n)
	for i := range all {
		p.insert(p.free.prev, &all[i])
	}
	return p
}

func (p *pool) insert(after, b *block) {
	b.prev, b.next = after, after.next
	after.next.prev, after.next = b, b
}

func (b *block) unlink() {
	b.prev.next, b.next.prev = b.next, b.prev
	b.prev, b.next = nil, nil
}

// find gives the oldest copy of a block, nil if there is none.
func (p *pool) find(hash uint64) *block {
	if copies := p.cached[hash]; len(copies) > 0 {
		return copies[0]
	}
	return nil
}

// hold takes a cached block into use.
func (p *pool) hold(b *block) {
	if b.refs == 0 {
		b.unlink()
		p.nfree--
	}
	b.refs++
}

// take gives the block that has been free for longest. What it held is evicted.
func (p *pool) take() *block {
	b := p.free.next
	b.unlink()
	p.nfree--
	b.refs = 1
	if b.key != nil {
		p.forget(b)
	}
	return b
}

func (p *pool) forget(b *block) {
	hash := b.key.hash
	copies := slices.DeleteFunc(p.cached[hash], func(c *block) bool { return c == b })
	if len(copies) == 0 {
		delete(p.cached, hash)
	} else {
		p.cached[hash] = copies
	}
	b.key = nil
	p.events = append(p.events, wire.Event{
		Kind: wire.Removed, Hashes: []wire.Handle{wire.IntHandle(hash)}, Medium: medium,
	})
}

// store makes a block that is in use findable.
func (p *pool) store(b *block, k key) {
	b.key = &k
	p.cached[k.hash] = append(p.cached[k.hash], b)
}

// release gives a sequence's blocks back, from its tail on, so that a leaf is
// evicted before what it continues. Blocks that hold nothing to be found are
// used again before all others.
func (p *pool) release(blocks []*block) {
	front := &p.free
	for _, b := range slices.Backward(blocks) {
		if b.refs--; b.refs > 0 {
			continue
		}
		p.nfree++
		if b.key != nil {
			p.insert(p.free.prev, b)
			continue
		}
		p.insert(front, b)
		front = b
	}
}

// clear forgets all blocks. None may be in use.
func (p *pool) clear() {
	for b := p.free.next; b != &p.free; b = b.next {
		b.key = nil
	}
	clear(p.cached)
	p.events = append(p.events, wire.Event{Kind: wire.Cleared})
}

// Resident is a block in a cache.
type Resident struct {
	// Hash is the engine's own, and Parent that of the block before it, unset
	// at the root.
	Hash, Parent wire.Handle
	Tokens       []wire.Token
	// Copies counts the physical blocks that hold it.
	Copies int
}

// residents gives all blocks that can be found, by hash.
func (p *pool) residents() []Resident {
	out := make([]Resident, 0, len(p.cached))
	for _, hash := range slices.SortedFunc(maps.Keys(p.cached), cmp.Compare[uint64]) {
		copies := p.cached[hash]
		k := copies[0].key
		out = append(out, Resident{wire.IntHandle(hash), k.parent, k.tokens, len(copies)})
	}
	return out
}
