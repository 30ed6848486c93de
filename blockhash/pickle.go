package blockhash

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unicode/utf8"
)

// Opcodes of pickle protocol 5 (CPython Lib/pickletools.py).
const (
	opProto      = 0x80
	opFrame      = 0x95
	opStop       = '.'
	opNone       = 'N'
	opMark       = '('
	opMemoize    = 0x94
	opBinGet     = 'h'
	opLongBinGet = 'j'
	opBinInt1    = 'K'
	opBinInt2    = 'M'
	opBinInt     = 'J'
	opLong1      = 0x8a
	opShortBytes = 'C'
	opBytes      = 'B'
	opShortText  = 0x8c
	opText       = 'X'
	opTuple      = 't'
)

// opTupleOf holds the opcodes of tuples of 0 to 3 elements.
var opTupleOf = [...]byte{')', 0x85, 0x86, 0x87}

// Frame sizes of CPython's Modules/_pickle.c.
const (
	frameHeader = 9
	frameMin    = 4
	frameTarget = 64 << 10
)

// pickler writes what CPython 3.11 writes for pickle.dumps(obj,
// protocol=5), byte for byte, for the objects that vLLM hashes. The memo goes
// by object identity, so the writer has to know which equal strings are one
// object in the engine; see str.
type pickler struct {
	out   []byte
	frame int // offset of the open frame's header
	memo  uint32
	seen  []memoized
}

type memoized struct {
	text string
	at   uint32
}

func (p *pickler) begin(buf []byte) {
	p.out = append(buf, opProto, 5)
	p.memo, p.seen = 0, p.seen[:0]
	p.openFrame()
}

func (p *pickler) end() []byte {
	p.out = append(p.out, opStop)
	p.closeFrame()
	return p.out
}

func (p *pickler) openFrame() {
	p.frame = len(p.out)
	p.out = append(p.out, opFrame, 0, 0, 0, 0, 0, 0, 0, 0)
}

func (p *pickler) closeFrame() {
	body := p.out[p.frame+frameHeader:]
	if len(body) < frameMin {
		p.out = append(p.out[:p.frame], body...)
		return
	}
	binary.LittleEndian.PutUint64(p.out[p.frame+1:], uint64(len(body)))
}

// object comes before every object: the only place where a full frame ends.
func (p *pickler) object() {
	if len(p.out)-p.frame-frameHeader >= frameTarget {
		p.closeFrame()
		p.openFrame()
	}
}

func (p *pickler) none() {
	p.object()
	p.out = append(p.out, opNone)
}

func (p *pickler) uint(n uint64) {
	p.object()
	switch {
	case n < 1<<8:
		p.out = append(p.out, opBinInt1, byte(n))
	case n < 1<<16:
		p.out = append(p.out, opBinInt2, byte(n), byte(n>>8))
	case n <= math.MaxInt32:
		p.out = binary.LittleEndian.AppendUint32(append(p.out, opBinInt), uint32(n))
	default:
		p.long(n, bits.Len64(n), 0)
	}
}

func (p *pickler) int(n int64) {
	switch {
	case n >= 0:
		p.uint(uint64(n))
	case n >= math.MinInt32:
		p.object()
		p.out = binary.LittleEndian.AppendUint32(append(p.out, opBinInt), uint32(n))
	default:
		p.object()
		p.long(uint64(n), bits.Len64(^uint64(n)), 0xFF)
	}
}

// long writes two's complement in the fewest bytes that keep the sign.
func (p *pickler) long(n uint64, width int, sign byte) {
	size := width/8 + 1
	p.out = append(p.out, opLong1, byte(size))
	for i := range size {
		b := sign
		if i < 8 {
			b = byte(n >> (8 * i))
		}
		p.out = append(p.out, b)
	}
}

// text writes a str. One object is written once and then referred to: the tags
// that vLLM's code spells out, and the strings of which CPython only ever has
// one, "" and those of one Latin-1 character. All others came off the network
// and are distinct objects even when equal.
func (p *pickler) text(s string, tag bool) {
	p.object()
	shared := tag || singleton(s)
	if shared {
		for _, m := range p.seen {
			if m.text == s {
				p.get(m.at)
				return
			}
		}
		p.seen = append(p.seen, memoized{s, p.memo})
	}
	writePayload(p, opShortText, opText, s)
	p.memoize()
}

func singleton(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return s == "" || n == len(s) && r <= 0xFF
}

func (p *pickler) bytes(b []byte) {
	p.object()
	writePayload(p, opShortBytes, opBytes, b)
	p.memoize()
}

// writePayload puts a large payload outside of any frame, as CPython does.
func writePayload[B string | []byte](p *pickler, short, long byte, s B) {
	large := len(s) >= frameTarget
	if large {
		p.closeFrame()
	}
	if len(s) < 1<<8 {
		p.out = append(p.out, short, byte(len(s)))
	} else {
		p.out = binary.LittleEndian.AppendUint32(append(p.out, long), uint32(len(s)))
	}
	p.out = append(p.out, s...)
	if large {
		p.openFrame()
	}
}

func (p *pickler) memoize() {
	p.out = append(p.out, opMemoize)
	p.memo++
}

func (p *pickler) get(i uint32) {
	if i < 1<<8 {
		p.out = append(p.out, opBinGet, byte(i))
		return
	}
	p.out = binary.LittleEndian.AppendUint32(append(p.out, opLongBinGet), i)
}

// openTuple and closeTuple enclose the n elements of a tuple.
func (p *pickler) openTuple(n int) {
	p.object()
	if n >= len(opTupleOf) {
		p.out = append(p.out, opMark)
	}
}

func (p *pickler) closeTuple(n int) {
	if n < len(opTupleOf) {
		p.out = append(p.out, opTupleOf[n])
	} else {
		p.out = append(p.out, opTuple)
	}
	if n > 0 { // CPython does not memoize the empty tuple
		p.memoize()
	}
}
