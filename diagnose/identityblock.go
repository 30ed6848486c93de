package diagnose

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/kvscope/kvscope/wire"
)

// blockKind says what beside tokens the hash of a block covers.
type blockKind string

// The kinds, and what else two replicas can differ in.
const (
	plainBlock  blockKind = ""
	loraBlock   blockKind = "an adapter"
	saltedBlock blockKind = "a cache salt or other extra keys"
	otherWidth  blockKind = "width"
)

func (k blockKind) keyed() bool { return k == loraBlock || k == saltedBlock }

// next is the step to take where blocks of this kind alone differ.
func (k blockKind) next() string {
	if k == loraBlock {
		return "load the adapter from the same path and under the same name everywhere: vLLM hashes the name, and from 0.31 on the path too"
	}
	return "compare the engines' versions: how extra keys enter a hash changed with vLLM 0.19 and 0.31"
}

// firstBlock is the first block of a chain as a store tells it.
type firstBlock struct {
	// tokens stands for its tokens and their number, content for all that is
	// published of what its hash covers.
	tokens, content uint64
	handle          uint64
	width           int // of byte hashes, in bytes; 0 for integers
	kind            blockKind
	lora, salt      string
	// published says that the dialect has a place for extra keys.
	published bool
}

// blockReader reads first blocks; it keeps its buffer.
type blockReader struct{ buf []byte }

const maxBlock = 1 << 14 // tokens

// first gives the first block of a chain on the device, if that is what a store
// tells of.
func (m *blockReader) first(e *wire.Event) (firstBlock, bool) {
	if e.Kind != wire.Stored || e.Parent.Set || e.Plane || e.Tier != wire.Device ||
		e.BlockSize > maxBlock || !wire.Dense(e.Spec) || !e.Aligned() {
		return firstBlock{}, false
	}
	h := e.Hashes[0]
	b := firstBlock{
		handle: h.N, width: len(h.S), lora: e.LoRAName, salt: e.Salt,
		published: e.Fields.Has("extra_keys") || !e.Array,
	}
	n := e.BlockSize
	if e.Bigram {
		n++
	}
	buf := binary.LittleEndian.AppendUint64(m.buf[:0], uint64(e.BlockSize))
	for _, t := range e.Tokens[:n] {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(t))
	}
	if len(e.Lookahead) > 0 {
		for _, t := range e.Lookahead[0] {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(t))
		}
	}
	b.tokens = xxh3.Hash(buf)
	buf = buf[:0]
	buf = appendText(buf, e.LoRAName)
	if e.LoRAID != nil {
		buf = binary.LittleEndian.AppendUint64(append(buf, 1), uint64(*e.LoRAID))
	}
	buf = appendText(buf, e.Salt)
	if len(e.Extra) > 0 {
		for _, k := range e.Extra[0] {
			if buf = appendKey(buf, &k); k.Text != "" && k.Text != e.LoRAName {
				b.salt = k.Text
			}
		}
	}
	b.content = xxh3.HashSeed(buf, b.tokens)
	if m.buf = buf[:0]; cap(buf) > 1<<20 {
		m.buf = nil
	}
	switch {
	case e.LoRAName != "" || e.LoRAID != nil:
		b.kind = loraBlock
	case e.Salt != "" || len(e.Extra) > 0 && len(e.Extra[0]) > 0:
		b.kind = saltedBlock
	}
	return b, true
}

func appendText(buf []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(buf, uint32(len(s))), s...)
}

func appendKey(buf []byte, k *wire.ExtraKey) []byte {
	buf = appendText(buf, k.Text)
	buf = appendText(buf, string(k.Bytes))
	if k.IsInt {
		buf = binary.LittleEndian.AppendUint64(append(buf, 1), uint64(k.Int))
	}
	buf = append(buf, byte(len(k.List)))
	for i := range k.List {
		buf = appendKey(buf, &k.List[i])
	}
	return buf
}
