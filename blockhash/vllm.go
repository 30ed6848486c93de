package blockhash

import (
	"crypto/sha256"

	"github.com/zeebo/xxh3"
)

// serializer writes Python objects as one of vLLM's two encodings. Tuples are
// opened and closed around their elements with the number of them.
type serializer interface {
	begin(buf []byte)
	end() []byte
	none()
	uint(n uint64)
	int(n int64)
	text(s string, tag bool)
	bytes(b []byte)
	openTuple(n int)
	closeTuple(n int)
}

func writeValue(s serializer, v *Value) {
	switch v.kind {
	case textValue, tagValue:
		s.text(v.text, v.kind == tagValue)
	case bytesValue:
		s.bytes([]byte(v.text))
	case intValue:
		s.int(v.n)
	case tupleValue:
		writeTuple(s, v.list)
	default:
		s.none()
	}
}

func writeTuple(s serializer, list []Value) {
	s.openTuple(len(list))
	for i := range list {
		writeValue(s, &list[i])
	}
	s.closeTuple(len(list))
}

func writeTokens(s serializer, tokens []uint64) {
	for _, t := range tokens {
		s.uint(t)
	}
}

// writeExtra writes what vLLM hashes beside the tokens: None or the tuple of
// extra keys, and from 0.33.0 with a speculative drafter (E, t1, ..., tL), where
// E is that and t the look-ahead tokens behind the block.
func writeExtra(s serializer, keys []Value, ahead []uint64) {
	if len(ahead) > 0 {
		s.openTuple(1 + len(ahead))
		writeExtra(s, keys, nil)
		writeTokens(s, ahead)
		s.closeTuple(1 + len(ahead))
		return
	}
	if len(keys) == 0 {
		s.none()
		return
	}
	writeTuple(s, keys)
}

// vllmEncode serializes one block as vLLM 0.10.2 to 0.33.0 does before hashing:
// the tuple (parent digest, tuple of token ids, extra).
func vllmEncode(s serializer, buf []byte, w *work) []byte {
	s.begin(buf)
	s.openTuple(3)
	s.bytes(w.parent.b[:w.parent.n])
	s.openTuple(len(w.tokens))
	writeTokens(s, w.tokens)
	s.closeTuple(len(w.tokens))
	writeExtra(s, w.keys, w.ahead)
	s.closeTuple(3)
	return s.end()
}

// vllmHash is one of vLLM's values of --prefix-caching-hash-algo: a digest over
// an encoding.
type vllmHash struct {
	encoding func(*work) serializer
	sum      func([]byte) Digest
}

func (h vllmHash) block(w *work) (Digest, error) {
	if err := w.vllmKeys(); err != nil {
		return Digest{}, err
	}
	w.buf = vllmEncode(h.encoding(w), w.buf[:0], w)
	return h.sum(w.buf), nil
}

// root is vLLM's NONE_HASH: the digest of the seed text. The seed is the value
// of PYTHONHASHSEED, or vllm-none-hash where it is unset (vLLM 0.29 and later,
// sha256 and sha256_cbor). Other unset seeds are random and out of reach.
func (h vllmHash) root(seed string) Digest {
	s := h.encoding(new(work))
	s.begin(nil)
	s.text(seed, false)
	return h.sum(s.end())
}

func pickled(w *work) serializer { return &w.pickler }
func cbored(w *work) serializer  { return &w.cbor }

func sumSHA256(b []byte) Digest {
	return Digest{b: sha256.Sum256(b), n: sha256.Size}
}

// sumXXH128 is XXH3-128 in its canonical, big-endian form.
func sumXXH128(b []byte) Digest {
	sum := xxh3.Hash128(b).Bytes()
	d := Digest{n: uint8(len(sum))}
	copy(d.b[:], sum[:])
	return d
}
