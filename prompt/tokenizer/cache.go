package tokenizer

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// cache remembers the tokens of words. A word has one place, where the last one
// that came stays.
//
// It is safe for concurrent use.
type cache struct {
	seed  maphash.Seed
	slots [cacheSize]atomic.Pointer[cached]
}

const (
	cacheSize = 1 << 16
	maxCached = 128 // bytes of a word; longer ones rarely come again
)

type cached struct {
	text    string
	symbols []symbol
}

func newCache() *cache { return &cache{seed: maphash.MakeSeed()} }

func (c *cache) slot(text string) *atomic.Pointer[cached] {
	return &c.slots[maphash.String(c.seed, text)%cacheSize]
}

// get gives nil for what is not there.
func (c *cache) get(text string) *cached {
	if hit := c.slot(text).Load(); hit != nil && hit.text == text {
		return hit
	}
	return nil
}

func (c *cache) put(text string, symbols []symbol) {
	c.slot(text).Store(&cached{strings.Clone(text), slices.Clone(symbols)})
}
