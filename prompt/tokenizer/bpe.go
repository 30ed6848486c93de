package tokenizer

import (
	"math"
	"strings"
	"unicode/utf8"
)

// bpe is the model: it begins with one symbol per character, or per byte, and
// merges the neighbours of the lowest rank until no pair has one.
//
// It is safe for concurrent use once loaded.
type bpe struct {
	bytes    *[256]uint32      // of a model of bytes: the symbol of each
	chars    map[rune]uint32   // of a model of characters
	whole    map[string]uint32 // words that are tokens without merges; nil if merges count
	fallback *[256]uint32      // symbols of bytes of unknown characters, noID where there is none
	unknown  uint32            // noID: unknown characters vanish
	fuse     bool
	merges   mergeTable
	// breaks is a character before which a text may be cut, unless the character
	// before it is one of glue: no merge reaches across. 0: nowhere.
	breaks rune
	glue   map[rune]bool
	cache  *cache
}

const (
	noID  = math.MaxUint32
	maxID = 1 << 24 // of token ids
)

// mergeTable is an open hash table of pairs: a Go map takes half of the time of an
// encoding.
type mergeTable struct {
	slots []mergeSlot
	shift uint
}

type mergeSlot struct {
	pair     uint64
	rank, id uint32
}

const noPair = math.MaxUint64

func newMergeTable(n int) mergeTable {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	t := mergeTable{make([]mergeSlot, 1<<bits), 64 - bits}
	for i := range t.slots {
		t.slots[i].pair = noPair
	}
	return t
}

// slot gives the place of a pair, or where it would be.
func (t *mergeTable) slot(a, b uint32) *mergeSlot {
	pair := uint64(a)<<32 | uint64(b)
	mask := uint64(len(t.slots) - 1)
	for i := pair * 0x9e3779b97f4a7c15 >> t.shift; ; i = (i + 1) & mask {
		if s := &t.slots[i&mask]; s.pair == pair || s.pair == noPair {
			return s
		}
	}
}

func (t *mergeTable) set(a, b, rank, id uint32) {
	*t.slot(a, b) = mergeSlot{uint64(a)<<32 | uint64(b), rank, id}
}

// rank gives noID for a pair that is not merged.
func (t *mergeTable) rank(a, b uint32) (rank, id uint32) {
	if s := t.slot(a, b); s.pair != noPair {
		return s.rank, s.id
	}
	return noID, noID
}

// symbol is a token of a word and the length of what it stands for. Symbols are
// linked in a word that is merged with a heap.
type symbol struct {
	id, size   uint32
	prev, next int32
	rank, into uint32 // of the pair with the next one
}

// word gives the tokens of a word.
func (e *encoder) word(p piece) {
	m := &e.t.model
	if m.breaks == 0 {
		e.cached(p)
		return
	}
	start, before := 0, rune(0)
	for i, r := range p.text {
		if r == m.breaks && i > 0 && !m.glue[before] {
			e.cached(p.cut(start, i))
			start = i
		}
		before = r
	}
	e.cached(p.cut(start, len(p.text)))
}

func (e *encoder) cached(p piece) {
	m := &e.t.model
	if len(p.text) <= maxCached {
		if hit := m.cache.get(p.text); hit != nil {
			e.emit(p, hit.symbols)
			return
		}
	}
	e.symbols = m.start(e.symbols[:0], p.text)
	if len(e.symbols) > 1 {
		if len(e.symbols) <= maxScanned {
			e.symbols = m.scan(e.symbols)
		} else {
			e.symbols = e.sift()
		}
	}
	if len(p.text) <= maxCached {
		m.cache.put(p.text, e.symbols)
	}
	e.emit(p, e.symbols)
}

func (e *encoder) emit(p piece, symbols []symbol) {
	at := 0
	for _, s := range symbols {
		// A model that drops characters tells spans that are too far left, as the
		// reference does.
		end := min(at+int(s.size), len(p.text))
		e.add(s.id, p.span(at, end))
		at = end
	}
}

// start gives a word as symbols that nothing has merged.
func (m *bpe) start(out []symbol, text string) []symbol {
	if m.whole != nil {
		if id, ok := m.whole[text]; ok {
			return append(out, symbol{id: id, size: uint32(len(text))})
		}
	}
	if m.bytes != nil {
		for i := range len(text) {
			out = append(out, symbol{id: m.bytes[text[i]], size: 1})
		}
		return out
	}
	unknown := symbol{id: m.unknown} // not yet told
	for i, r := range text {
		n := utf8.RuneLen(r)
		if id, ok := m.chars[r]; ok {
			if unknown.size > 0 {
				out = append(out, unknown)
				unknown.size = 0
			}
			out = append(out, symbol{id: id, size: uint32(n)})
			continue
		}
		if m.fallback != nil && m.falls(text[i:i+n]) {
			// An unknown character before it is told after it: so does the reference.
			for j := range n {
				out = append(out, symbol{id: m.fallback[text[i+j]], size: 1})
			}
			continue
		}
		if m.unknown == noID {
			continue
		}
		if unknown.size > 0 && !m.fuse {
			out = append(out, unknown)
			unknown.size = 0
		}
		unknown.size += uint32(n)
	}
	if unknown.size > 0 {
		out = append(out, unknown)
	}
	return out
}

func (m *bpe) falls(char string) bool {
	for i := range len(char) {
		if m.fallback[char[i]] == noID {
			return false
		}
	}
	return true
}

// maxScanned is the longest word, in symbols, that is quicker to look through for
// each merge than to keep a heap of.
const maxScanned = 40

func (m *bpe) scan(s []symbol) []symbol {
	for i := range len(s) - 1 {
		s[i].rank, s[i].into = m.merges.rank(s[i].id, s[i+1].id)
	}
	for {
		last := len(s) - 1
		best, rank := 0, uint32(noID)
		for i := range last {
			if s[i].rank < rank {
				best, rank = i, s[i].rank
			}
		}
		if rank == noID {
			return s
		}
		s[best].id = s[best].into
		s[best].size += s[best+1].size
		copy(s[best+1:], s[best+2:])
		s = s[:last]
		if best+1 < last {
			s[best].rank, s[best].into = m.merges.rank(s[best].id, s[best+1].id)
		}
		if best > 0 {
			s[best-1].rank, s[best-1].into = m.merges.rank(s[best-1].id, s[best].id)
		}
	}
}

// sift does what scan does with a heap of rank and place. What a merge made stale
// stays in the heap and is passed over when it comes up.
func (e *encoder) sift() []symbol {
	m, s := &e.t.model, e.symbols
	h := heap(e.heap[:0])
	pair := func(i int32) {
		if i < 0 {
			return
		}
		s[i].rank = noID
		if s[i].next >= 0 {
			s[i].rank, s[i].into = m.merges.rank(s[i].id, s[s[i].next].id)
			if s[i].rank != noID {
				h.push(uint64(s[i].rank)<<32 | uint64(i))
			}
		}
	}
	for i := range s {
		s[i].prev, s[i].next = int32(i-1), int32(i+1)
	}
	s[len(s)-1].next = -1
	for i := range s {
		pair(int32(i))
	}
	for len(h) > 0 {
		top := h.pop()
		i := int32(top & math.MaxUint32)
		if s[i].size == 0 || s[i].rank != uint32(top>>32) {
			continue
		}
		next := s[i].next
		s[i].id = s[i].into
		s[i].size += s[next].size
		s[i].next = s[next].next
		s[next].size = 0
		if s[i].next >= 0 {
			s[s[i].next].prev = i
		}
		pair(i)
		pair(s[i].prev)
	}
	e.heap = h
	out := s[:0]
	for _, x := range s {
		if x.size > 0 {
			out = append(out, x)
		}
	}
	return out
}

type heap []uint64

func (h *heap) push(v uint64) {
	s := append(*h, v)
	i := len(s) - 1
	for i > 0 && s[(i-1)/2] > v {
		s[i] = s[(i-1)/2]
		i = (i - 1) / 2
	}
	s[i] = v
	*h = s
}

func (h *heap) pop() uint64 {
	s := *h
	top, v := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if child+1 < len(s) && s[child+1] < s[child] {
			child++
		}
		if s[child] >= v {
			break
		}
		s[i] = s[child]
		i = child
	}
	s[i] = v
	return top
}

// setBreak looks for where text may be cut before a sign such as that of
// SentencePiece: words behind each other would be one long word otherwise, which
// no cache knows.
func (m *bpe) setBreak(sign rune, merged []string) {
	if _, ok := m.chars[sign]; !ok {
		return
	}
	m.glue = map[rune]bool{}
	for _, t := range merged {
		for i := 1; i < len(t); {
			n := strings.IndexRune(t[i:], sign)
			if n < 0 {
				break
			}
			before, _ := utf8.DecodeLastRuneInString(t[:i+n])
			m.glue[before] = true
			i += n + utf8.RuneLen(sign)
		}
	}
	m.breaks = sign
}
