package lab

import (
	"github.com/kvscope/kvscope/hashtable"
	"github.com/kvscope/kvscope/route"
)

// book is what one router has booked of all requests, its own and those it hears
// of, by Dynamo's default rules: the prompt tokens that it believes have to be
// computed until the first token comes, the distinct complete blocks of prompts,
// and requests, until they end.
type book struct {
	prefill, requests, blocks []int // by replica
	// active says which blocks are booked, and counts how often; nil where the
	// policy does not go by caches.
	active *holders
	counts *hashtable.Table[int32]
	prefix []int
}

func newBook(replicas int, last block, byCache bool) *book {
	b := &book{
		prefill: make([]int, replicas), requests: make([]int, replicas), blocks: make([]int, replicas),
		prefix: make([]int, replicas),
	}
	if byCache {
		b.active, b.counts = newHolders(replicas, last), &hashtable.Table[int32]{}
	}
	return b
}

// entry is a request as it is booked.
type entry struct {
	replica int32
	// prefill is in tokens.
	prefill int32
	// path are the complete blocks of the prompt, as far as the router sees them.
	path []block
}

// bookChange is what happens to a booking.
type bookChange uint8

const (
	bookAdd bookChange = iota
	bookPrefilled
	bookFree
)

func (b *book) change(c bookChange, e *entry) {
	switch c {
	case bookAdd:
		b.requests[e.replica]++
		b.prefill[e.replica] += int(e.prefill)
	case bookPrefilled:
		b.prefill[e.replica] -= int(e.prefill)
		return
	case bookFree:
		b.requests[e.replica]--
	}
	if b.active == nil {
		return
	}
	for _, name := range e.path {
		at := uint64(e.replica)<<32 | uint64(name)
		n := b.counts.Get(at)
		switch {
		case c == bookAdd && n == 0:
			b.active.add(int(e.replica), name)
			b.blocks[e.replica]++
		case c == bookFree && n == 1:
			b.active.remove(int(e.replica), name)
			b.blocks[e.replica]--
		}
		if c == bookAdd {
			n++
		} else {
			n--
		}
		if n == 0 {
			b.counts.Remove(at)
		} else {
			b.counts.Set(at, n)
		}
	}
}

// loads fills what a request with this path sees of each replica.
func (b *book) loads(path []block, cands []route.Candidate) {
	if b.active != nil {
		b.active.depths(path, b.prefix[:len(cands)])
	}
	for i := range cands {
		l := &cands[i].Load
		l.PrefillTokens, l.Requests, l.Blocks, l.Prefix = b.prefill[i], b.requests[i], b.blocks[i], b.prefix[i]
	}
}
