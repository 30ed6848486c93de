package wire

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// This file reads payloads as strictly as the relay of Dynamo 1.6.1 does: Rust
// types that serde derives, over rmp-serde. What it accepts beyond the obvious
// (a bin for a text or a list of small integers, numbers for the words of
// locality) and what it refuses follow those libraries, and were compared with
// the real decoder on mutated payloads.

// serdeDepth is the deepest nesting that rmp-serde reads.
const serdeDepth = 1023

// serdeEvent is what the relay keeps of an event.
type serdeEvent struct {
	kind      EventKind // Unknown for the tag Ignored
	hashes    []uint64
	parent    uint64
	hasParent bool
	// tokens counts ids, with bigram one more than the pairs.
	tokens    int
	bigram    bool
	blockSize uint64
	medium    string
	loraName  string
	// salt is the namespace, from cache_salt or from the extra keys; salted
	// says that there was a field for it, which can be empty.
	salt   string
	salted bool
	// media are the multimodal objects: the field's own if it was given, else
	// those among the extra keys.
	media      []blockMedia
	hasMedia   bool
	extraMedia []blockMedia
	// saltKeys are the first block's extra keys that begin with saltPrefix.
	saltKeys  []string
	group     int64 // -1 for none
	spec      string
	hasSpec   bool
	nonLocal  bool
	ownership string
	hasOwner  bool
}

// blockMedia is one multimodal hash of the block at an index.
type blockMedia struct {
	block int
	hash  uint64
}

// serde reads one batch. The first fault stops it.
type serde struct {
	b     []byte
	fault string
	// content says that the value was buffered to try several types on it,
	// where serde no longer takes a bin for a list.
	content bool
}

func (s *serde) fail(format string, args ...any) bool {
	if s.fault == "" {
		s.fault = fmt.Sprintf(format, args...)
	}
	return false
}

// failType is fail for a value of another type than Dynamo reads.
func (s *serde) failType(what, want string) bool {
	return s.fail("%s holds %s, and Dynamo reads only %s there", what, found(s.b), want)
}

// measure checks that b begins with a whole value, and how deep it nests.
func measure(b []byte, depth int) (rest []byte, fault string) {
	if len(b) == 0 {
		return nil, "the payload is cut off"
	}
	size, elements, err := head(b)
	if err != nil {
		return nil, "the payload is cut off or not msgpack"
	}
	nests := elements > 0 || nestingHeads[b[0]]
	if b = b[size:]; !nests {
		return b, ""
	}
	if depth == serdeDepth {
		return nil, "values are nested deeper than Dynamo reads (" + strconv.Itoa(serdeDepth) + " levels)"
	}
	for ; elements > 0; elements-- {
		// Most elements are small numbers.
		if len(b) > 0 && (b[0] < 0x80 || b[0] >= 0xe0) {
			b = b[1:]
			continue
		}
		if b, fault = measure(b, depth+1); fault != "" {
			return nil, fault
		}
	}
	return b, ""
}

// nestingHeads are the first bytes of lists, maps and extensions, which count
// as a level even if they are empty.
var nestingHeads = func() (heads [256]bool) {
	for c := range heads {
		heads[c] = c >= 0x80 && c <= 0x9f || c >= 0xc7 && c <= 0xc9 || c >= 0xd4 && c <= 0xd8 || c >= 0xdc && c <= 0xdf
	}
	return heads
}()

// batch reads a whole payload. Bytes behind the batch are ignored.
func (s *serde) batch() (events []serdeEvent, rank int64, ok bool) {
	if len(s.b) > MaxPayload {
		return nil, 0, s.fail("it is larger than kvscope judges (%d bytes)", len(s.b))
	}
	if _, fault := measure(s.b, 0); fault != "" {
		return nil, 0, s.fail("%s", fault)
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(s.b)
	switch {
	case err != nil:
		return nil, 0, s.failType("the batch", "a list of 3")
	case n != 3:
		// Its message names the list's second value where that is the reason.
		return nil, 0, s.fail("the batch has %d elements, and Dynamo takes exactly 3: time, events, rank", n)
	}
	s.b = rest
	if !s.number("the time of the batch") {
		return nil, 0, false
	}
	count, ok := s.list("the list of events")
	if !ok {
		return nil, 0, false
	}
	if count > maxEvents {
		return nil, 0, s.fail("it holds %d events, more than kvscope judges", count)
	}
	const usual = 64
	events = make([]serdeEvent, 0, min(count, usual))
	for i := range count {
		events = append(events, serdeEvent{group: -1})
		if !s.event(&events[i]) {
			s.fault = "event " + strconv.Itoa(i) + ": " + s.fault
			return nil, 0, false
		}
	}
	rank, ok = s.optInt("the rank", math.MinInt32, math.MaxInt32)
	return events, rank, ok
}

func (s *serde) number(what string) bool {
	switch msgp.NextType(s.b) {
	case msgp.IntType, msgp.UintType, msgp.Float64Type, msgp.Float32Type:
		s.skip(1)
		return true
	}
	return s.failType(what, "a number")
}

// skip passes n values, which measure has found to be whole.
func (s *serde) skip(n int) { s.b, _ = skipValues(s.b, uint64(n)) }

// null passes a nil.
func (s *serde) null() (isNil bool) {
	s.b, isNil = readNil(s.b)
	return isNil
}

// list reads the head of a list. An empty bin is an empty list.
func (s *serde) list(what string) (int, bool) {
	n, rest, err := readList(s.b)
	if err != nil || s.content && msgp.NextType(s.b) != msgp.ArrayType {
		return 0, s.failType(what, "a list")
	}
	s.b = rest
	return n, true
}

// text reads a str or bin of valid UTF-8. It aliases the payload.
func (s *serde) text(what string) ([]byte, bool) {
	text, rest, err := readText(s.b)
	switch {
	case err != nil:
		return nil, s.failType(what, "text")
	case !utf8.Valid(text):
		return nil, s.fail("%s is not valid UTF-8", what)
	}
	s.b = rest
	return text, true
}

// optText reads a text or nil.
func (s *serde) optText(what string) (text string, given, ok bool) {
	if s.null() {
		return "", false, true
	}
	b, ok := s.text(what)
	if word, known := commonWords.get(b); known {
		return word, ok, ok
	}
	return string(b), ok, ok
}

// integer reads an integer in 64 bits of either kind.
func (s *serde) integer(what string) (u uint64, negative, ok bool) {
	if t := msgp.NextType(s.b); t == msgp.IntType || t == msgp.UintType {
		if u, rest, err := msgp.ReadUint64Bytes(s.b); err == nil {
			s.b = rest
			return u, false, true
		}
		if n, rest, err := msgp.ReadInt64Bytes(s.b); err == nil {
			s.b = rest
			return uint64(n), true, true
		}
	}
	return 0, false, s.failType(what, "an integer of 64 bits")
}

// optInt reads an integer from low to high, or nil as low-1.
func (s *serde) optInt(what string, low, high int64) (int64, bool) {
	if s.null() {
		return low - 1, true
	}
	u, negative, ok := s.integer(what)
	if n := int64(u); ok && (n < low || n > high || negative != (n < 0)) {
		return 0, s.fail("%s is beyond what Dynamo reads (%d to %d)", what, low, high)
	}
	return int64(u), ok
}

// hashes reads a list of integers; a bin is a list of its bytes.
func (s *serde) hashes(what string) ([]uint64, bool) {
	if msgp.NextType(s.b) == msgp.BinType {
		bin, rest, _ := msgp.ReadBytesZC(s.b)
		hashes := make([]uint64, len(bin))
		for i, c := range bin {
			hashes[i] = uint64(c)
		}
		s.b = rest
		return hashes, true
	}
	n, ok := s.list(what)
	if !ok {
		return nil, false
	}
	hashes := make([]uint64, n)
	for i := range hashes {
		if hashes[i], ok = s.hash(what); !ok {
			return nil, false
		}
	}
	return hashes, true
}

func (s *serde) hash(what string) (uint64, bool) {
	u, _, ok := s.integer(what)
	return u, ok
}

// tokens counts ids of 32 bits, or pairs of them.
func (s *serde) tokens(e *serdeEvent) bool {
	const what = "token_ids"
	if msgp.NextType(s.b) != msgp.ArrayType {
		return s.failType(what, "a list")
	}
	n, _ := s.list(what)
	e.tokens, e.bigram = n, n > 0 && msgp.NextType(s.b) == msgp.ArrayType
	if !e.bigram {
		return s.tokenIDs(n)
	}
	e.tokens++
	for range n {
		if msgp.NextType(s.b) != msgp.ArrayType {
			return s.failType(what, "pairs where the first is a pair")
		}
		if n, _ := s.list(what); n != 2 {
			return s.fail("%s holds a list of %d where Dynamo reads a pair", what, n)
		}
		if !s.tokenIDs(2) {
			return false
		}
	}
	return true
}

func (s *serde) tokenIDs(n int) bool {
	var ids [64]Token // read to be counted only
	for n > 0 {
		plain, rest := readPlainTokens(ids[:min(n, len(ids))], s.b)
		if s.b = rest; plain > 0 {
			n -= plain
			continue
		}
		u, negative, ok := s.integer("token_ids")
		if !ok {
			return false
		}
		if negative || u > math.MaxUint32 {
			return s.fail("token_ids holds an id beyond 32 bits")
		}
		n--
	}
	return true
}
