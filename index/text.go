package index

import (
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// textLog keeps the tokens of blocks, named by their sequence hash; when it is
// full the oldest go. It only ever helps to show where prompts part, nothing
// else depends on it. Content never changes, so clones share it.
type textLog struct {
	at    map[uint64][]uint32
	queue []uint64
	bytes int
	limit int
}

// entryCost is what an entry takes besides its tokens, in bytes.
const entryCost = 64

func newTextLog(limit int) *textLog { return &textLog{at: map[uint64][]uint32{}, limit: limit} }

// narrow copies tokens to 32 bits; empty if one does not fit.
func narrow(tokens []wire.Token) []uint32 {
	out := make([]uint32, len(tokens))
	for i, t := range tokens {
		if t>>32 != 0 {
			return []uint32{}
		}
		out[i] = uint32(t)
	}
	return out
}

// add keeps a copy of a block's tokens: they are part of a whole store's.
func (l *textLog) add(seq uint64, tokens []uint32) {
	if _, have := l.at[seq]; have || len(tokens) == 0 {
		return
	}
	l.at[seq] = slices.Clone(tokens)
	l.queue = append(l.queue, seq)
	l.bytes += entryCost + 4*len(tokens)
	for l.bytes > l.limit {
		old := l.queue[0]
		l.queue = l.queue[1:]
		l.bytes -= entryCost + 4*len(l.at[old])
		delete(l.at, old)
	}
}

// common is the number of leading tokens that a block shares with others, and
// whether the block's tokens are known.
func (l *textLog) common(seq uint64, tokens []wire.Token) (int, bool) {
	stored, ok := l.at[seq]
	if !ok {
		return 0, false
	}
	n := 0
	for n < len(stored) && n < len(tokens) && wire.Token(stored[n]) == tokens[n] {
		n++
	}
	return n, true
}
