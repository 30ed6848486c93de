package blockhash

import (
	"crypto/sha256"
	"encoding/binary"
)

// sglangPage is SGLang 0.5.23's digest of one page:
//
//	SHA-256(parent digest || words as u32 LE)
//
// without a parent at an unsalted root. The words are the page's token ids, or
// under EAGLE both ids of each of its overlapping pairs. A page with an id above
// 2^32-1 is written as 0xFF || words as u64 LE.
func sglangPage(w *work) (Digest, error) {
	w.buf = append(w.buf[:0], w.parent.b[:w.parent.n]...)
	words := w.tokens
	if w.bigram {
		w.pairs = w.pairs[:0]
		for i := range len(words) - 1 {
			w.pairs = append(w.pairs, words[i], words[i+1])
		}
		words = w.pairs
	}
	var all uint64
	for _, t := range words {
		all |= t
	}
	if all>>32 != 0 {
		w.buf = appendWide(w.buf, words)
	} else {
		for _, t := range words {
			w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(t))
		}
	}
	return sumSHA256(w.buf), nil
}

// sglangRoot is what stands before SGLang's first page: nothing, or with a cache
// salt SHA-256("sglang-cache-salt-v1" || 0x00 || salt).
func sglangRoot(c *Context) Digest {
	if c.Salt == "" {
		return Digest{}
	}
	return sumSHA256([]byte("sglang-cache-salt-v1\x00" + c.Salt))
}

// sglangHandle is the hash that SGLang 0.5.23 publishes: the first 8 bytes of
// the digest, big-endian, shown as a signed integer. In a namespace it is the
// same of
//
//	SHA-256(SHA-256("sglang-kv-event-namespace-v1" || part(key) || part(salt)) || number as u64 BE)
//	part(s) = 0x01 || length as u64 LE || s, or 0x00 without s
//
// Which of the two make a namespace is the Form: in the default format only the
// cache key of a LoRA adapter, in the dynamo format every cache key and the salt.
func sglangHandle(d *Digest, w *work) (uint64, error) {
	key, salt := w.ctx.ExtraKey, w.ctx.Salt
	switch {
	case w.ctx.LoRA != "" && key == "":
		return 0, errExtraKey
	case w.form == AnyForm && key+salt != "":
		return 0, ErrForm
	case w.form != SGLangDynamo:
		salt = ""
		if w.ctx.LoRA == "" {
			key = ""
		}
	}
	n := d.first()
	if key+salt == "" {
		return n, nil
	}
	b := append(w.buf[:0], "sglang-kv-event-namespace-v1"...)
	b = appendPart(appendPart(b, key), salt)
	seed := sha256.Sum256(b)
	w.buf = b
	published := sumSHA256(binary.BigEndian.AppendUint64(seed[:], n))
	return published.first(), nil
}

func appendPart(b []byte, s string) []byte {
	if s == "" {
		return append(b, 0)
	}
	b = binary.LittleEndian.AppendUint64(append(b, 1), uint64(len(s)))
	return append(b, s...)
}
