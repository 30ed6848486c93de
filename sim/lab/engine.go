package lab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// Engine is a kind of engine.
type Engine uint8

// The engines.
const (
	// VLLM caches blocks one by one and evicts the one that has been free for
	// longest, a sequence's tail before its head.
	VLLM Engine = iota
	// SGLang keeps a radix tree of prompts (RadixAttention) and evicts whole leaves,
	// the one used longest ago first.
	SGLang
)

// engines is the table of them.
var engines = [...]struct {
	name string
	make func(capacity int) cache
}{
	VLLM:   {"vllm", func(n int) cache { return newBlockLRU(n) }},
	SGLang: {"sglang", func(n int) cache { return newRadix(n) }},
}

func (e Engine) String() string { return engines[min(int(e), len(engines)-1)].name }

// EngineNames are those that EngineNamed knows.
func EngineNames() []string {
	out := make([]string, len(engines))
	for i := range engines {
		out[i] = engines[i].name
	}
	return out
}

// EngineNamed finds an engine.
func EngineNamed(name string) (Engine, error) {
	at := slices.Index(EngineNames(), name)
	if at < 0 {
		return 0, fmt.Errorf("no engine is called %q: there are %s", wire.Printable(name), strings.Join(EngineNames(), ", "))
	}
	return Engine(at), nil
}

// cache is the prefix cache of one engine. A sequence begins, is prefilled and
// finishes, in this order.
type cache interface {
	// match is how many blocks of a path it holds, from the first one on. Nothing
	// counts as used by it.
	match(path []block) int
	// begin takes all blocks that a sequence will need, reuses what it can of them
	// and says in s.hits how many those are. It reports false, and takes nothing,
	// where too few can be freed.
	begin(s *sequence) bool
	prefilled(s *sequence)
	finish(s *sequence)
	// used is how many blocks sequences hold now, shared ones counted once.
	used() int
	// changes gives what was stored and evicted since it was last asked, in order.
	// The slice is the engine's own, until the next call of any method.
	changes() []change
}

// sequence is a request as a cache sees it, in blocks.
type sequence struct {
	// path names the complete blocks: prompt of them are the prompt's, and the rest
	// are there when it has finished.
	path   []block
	prompt int
	// usable is how many of them may come from the cache, and total how many blocks
	// it holds in the end, the last one perhaps incomplete.
	usable, total int
	// hits is how many came from the cache.
	hits int

	slots []int32 // of a blockLRU
	node  int32   // of a radix: the last of its path that is in the tree
	depth int     // and where in the path that one ends
}

// change is a cache event.
type change struct {
	block   block
	removed bool
}

// stored notes that blocks have come in.
func stored(to []change, blocks []block) []change {
	for _, b := range blocks {
		to = append(to, change{block: b})
	}
	return to
}
