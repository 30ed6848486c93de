package blockhash

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"
)

// dynamoSeed is the XXH3 seed of every Dynamo hash without a namespace.
const dynamoSeed = 1337

// Namespace separates equal tokens of different LoRA adapters and cache salts.
// The zero Namespace is a base model without salt.
type Namespace uint64

// NamespaceOf is Dynamo's namespace (dynamo-kv-router 1.6.1):
//
//	XXH3-64(lora, seed 0) + XXH3-64(salt, seed 1)   modulo 2^64
//
// where an empty string counts as absent and adds nothing.
func NamespaceOf(lora, salt string) Namespace {
	var ns Namespace
	if lora != "" {
		ns += Namespace(xxh3.HashStringSeed(lora, 0))
	}
	if salt != "" {
		ns += Namespace(xxh3.HashStringSeed(salt, 1))
	}
	return ns
}

// Local is Dynamo's local block hash (dynamo-kv-router 1.6.1):
//
//	XXH3-64(tokens as u32 LE || mm ascending as u64 LE, seed 1337 + ns)
//
// tokens are those of one block as [Window] cuts it, mm the hashes of the
// multimodal objects in it, in any order (see [MMHash]). Dynamo has no form for
// ids above 2^32-1; such a block is hashed as 0xFF || tokens as u64 LE || mm,
// which is kvscope's own extension and borrows SGLang's escape byte. Blocks of
// up to 1024 tokens do not allocate.
func Local[T Token](tokens []T, ns Namespace, mm []uint64) uint64 {
	switch n := 4*len(tokens) + 8*len(mm); {
	case n <= 256:
		var buf [256]byte
		return hashLocal(buf[:0], tokens, ns, mm)
	case n <= 4096:
		var buf [4096]byte
		return hashLocal(buf[:0], tokens, ns, mm)
	default:
		return hashLocal(make([]byte, 0, n), tokens, ns, mm)
	}
}

// hashLocal needs 4 bytes of capacity per token in buf.
func hashLocal[T Token](buf []byte, tokens []T, ns Namespace, mm []uint64) uint64 {
	var all uint64
	buf = buf[:4*len(tokens)]
	for i, t := range tokens {
		all |= uint64(t)
		binary.LittleEndian.PutUint32(buf[4*i:], uint32(t))
	}
	if all>>32 != 0 {
		buf = appendWide(buf[:0], tokens)
	}
	if len(mm) > 0 {
		from := len(buf)
		for _, h := range mm {
			buf = binary.LittleEndian.AppendUint64(buf, h)
		}
		sortWords(buf[from:], mm)
	}
	return xxh3.HashSeed(buf, dynamoSeed+uint64(ns))
}

// appendWide is the form of tokens of which some do not fit 32 bits.
func appendWide[T Token](buf []byte, tokens []T) []byte {
	buf = append(buf, 0xFF)
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(t))
	}
	return buf
}

// sortWords rewrites the words in b, which are those of mm, in ascending order
// and leaves mm alone.
func sortWords(b []byte, mm []uint64) {
	if slices.IsSorted(mm) {
		return
	}
	for i, h := range slices.Sorted(slices.Values(mm)) {
		binary.LittleEndian.PutUint64(b[8*i:], h)
	}
}

// Next is Dynamo's sequence hash of a block (dynamo-kv-router 1.6.1), which
// names the block together with all before it: the local hash itself for the
// first block (root; parent is then ignored), else
//
//	XXH3-64(parent as u64 LE || local as u64 LE, seed 1337)
func Next(parent, local uint64, root bool) uint64 {
	if root {
		return local
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], parent)
	binary.LittleEndian.PutUint64(b[8:], local)
	return xxh3.HashSeed(b[:], dynamoSeed)
}

// Rolling gives the local and the sequence hash of every complete block of
// tokens, which begin at the root. mm holds the multimodal hashes per block; it
// may be shorter than the blocks.
func Rolling[T Token](tokens []T, size int, bigram bool, ns Namespace, mm [][]uint64) (local, sequence []uint64) {
	n := Blocks(len(tokens), size, bigram)
	local, sequence = make([]uint64, n), make([]uint64, n)
	var parent uint64
	for i := range n {
		local[i] = Local(Window(tokens, size, i, bigram), ns, at(mm, i))
		parent = Next(parent, local[i], i == 0)
		sequence[i] = parent
	}
	return local, sequence
}

// MMHash is Dynamo's 64-bit form of a multimodal item's id (dynamo-llm 1.6.1):
// the first 16 digits of an id of 64 hexadecimal digits, else XXH3-64 of its
// bytes, seed 0. Dynamo ignores empty ids.
func MMHash(id string) uint64 {
	if len(id) == 64 && !hasNonHex(id) {
		n, _ := strconv.ParseUint(id[:16], 16, 64)
		return n
	}
	return xxh3.HashStringSeed(id, 0)
}

func hasNonHex(s string) bool {
	for _, c := range []byte(s) {
		digit := '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
		if !digit {
			return true
		}
	}
	return false
}

// at is s[i], or the zero value past the end.
func at[E any](s []E, i int) E {
	var zero E
	if i < 0 || i >= len(s) {
		return zero
	}
	return s[i]
}
