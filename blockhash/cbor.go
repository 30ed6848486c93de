package blockhash

import (
	"encoding/binary"
	"math"
)

// Major types and the null of CBOR (RFC 8949, section 3), shifted into place.
const (
	cborUint  = 0 << 5
	cborNeg   = 1 << 5
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborMap   = 5 << 5
	cborNull  = 0xf6
)

// cborWriter writes canonical CBOR, as Python cbor2's dumps(obj,
// canonical=True) does for the objects that vLLM hashes: definite lengths and
// shortest heads. Lists and tuples are both arrays.
type cborWriter struct{ out []byte }

func (w *cborWriter) begin(buf []byte) { w.out = buf }
func (w *cborWriter) end() []byte      { return w.out }

func (w *cborWriter) head(major byte, n uint64) {
	switch {
	case n < 24:
		w.out = append(w.out, major|byte(n))
	case n <= math.MaxUint8:
		w.out = append(w.out, major|24, byte(n))
	case n <= math.MaxUint16:
		w.out = binary.BigEndian.AppendUint16(append(w.out, major|25), uint16(n))
	case n <= math.MaxUint32:
		w.out = binary.BigEndian.AppendUint32(append(w.out, major|26), uint32(n))
	default:
		w.out = binary.BigEndian.AppendUint64(append(w.out, major|27), n)
	}
}

func (w *cborWriter) none()         { w.out = append(w.out, cborNull) }
func (w *cborWriter) uint(n uint64) { w.head(cborUint, n) }

func (w *cborWriter) int(n int64) {
	if n < 0 {
		w.head(cborNeg, ^uint64(n))
		return
	}
	w.uint(uint64(n))
}

func (w *cborWriter) text(s string, _ bool) {
	w.head(cborText, uint64(len(s)))
	w.out = append(w.out, s...)
}

func (w *cborWriter) bytes(b []byte) {
	w.head(cborBytes, uint64(len(b)))
	w.out = append(w.out, b...)
}

func (w *cborWriter) openTuple(n int) { w.head(cborArray, uint64(n)) }
func (w *cborWriter) closeTuple(int)  {}
