package blockhash

import (
	"encoding/binary"
	"encoding/hex"
)

// maxDigest is the width of the widest digest, SHA-256.
const maxDigest = 32

// Digest is the full hash of a block, which the hash of its successor is
// computed from: 32 bytes for SHA-256, 16 for XXH3-128, 8 for Dynamo's sequence
// hash. The zero Digest stands before a chain's root. Digests are comparable.
type Digest struct {
	b [maxDigest]byte
	n uint8
}

// DigestOf copies b. It reports false, and gives the zero Digest, unless b has 1
// to 32 bytes. Where vLLM sends its hashes as bytes, the handle of a block is
// its digest, so a chain joined in the middle can be continued.
func DigestOf(b []byte) (Digest, bool) {
	if len(b) < 1 || len(b) > maxDigest {
		return Digest{}, false
	}
	d := Digest{n: uint8(len(b))}
	copy(d.b[:], b)
	return d, true
}

// Bytes is a copy of the digest's bytes, nil for the zero Digest.
func (d Digest) Bytes() []byte { return append([]byte(nil), d.b[:d.n]...) }

// IsZero tells the zero Digest.
func (d Digest) IsZero() bool { return d.n == 0 }

// String gives lower-case hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d.b[:d.n]) }

// first and last are the first and the last 8 bytes, big-endian.
func (d *Digest) first() uint64 { return binary.BigEndian.Uint64(d.b[:8]) }

func (d *Digest) last() uint64 {
	var n uint64
	for _, c := range d.b[max(0, int(d.n)-8):d.n] {
		n = n<<8 | uint64(c)
	}
	return n
}

// wordDigest is the digest of an algorithm with 64 bits.
func wordDigest(n uint64) Digest {
	d := Digest{n: 8}
	binary.BigEndian.PutUint64(d.b[:], n)
	return d
}
