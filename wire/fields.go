package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// optional are the fields without which an event still says which blocks, of
// what content, are where: a value of another type is skipped and counted.
const optional FieldSet = 1<<fieldLoRAID | 1<<fieldLocality | 1<<fieldSession |
	1<<fieldLookahead | 1<<fieldMMKeys

// What values take in memory, for Decoder.spend.
const (
	tokenBytes  = 8
	sliceBytes  = 24
	handleBytes = 32
	keyBytes    = 80
)

// field reads the value of one field, which can be nil, into e.
func (d *Decoder) field(e *Event, f field, b []byte) ([]byte, error) {
	e.Fields |= 1 << f
	if rest, ok := readNil(b); ok {
		return rest, nil
	}
	rest, err := d.value(e, f, b)
	if err != nil && optional.has(f) {
		e.UnknownFields++
		rest, err = skip(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fieldNames[f], err)
	}
	return rest, nil
}

// value reads the value of one field, which is not nil, into e.
func (d *Decoder) value(e *Event, f field, b []byte) (rest []byte, err error) {
	switch f {
	case fieldHashes:
		return d.hashes(e, b)
	case fieldParent:
		e.Parent, rest, err = d.hash(e, b)
	case fieldTokens:
		return d.tokens(e, b)
	case fieldBlockSize:
		e.BlockSize, rest, err = readInt(b)
	case fieldLoRAID:
		var id int
		if id, rest, err = readInt(b); err == nil {
			wide := int64(id)
			e.LoRAID = &wide
		}
	case fieldMedium:
		e.Medium, rest, err = d.readString(b)
	case fieldLoRAName:
		if e.Array && msgp.NextType(b) == msgp.MapType {
			return d.metadata(e, b)
		}
		e.LoRAName, rest, err = d.readString(b)
	case fieldExtra:
		return d.extra(e, b)
	case fieldGroup:
		e.Group, rest, err = readInt(b)
	case fieldSpec:
		e.Spec, rest, err = d.readString(b)
	case fieldWindow:
		e.Window, rest, err = readInt(b)
	case fieldLocality:
		e.Locality, rest, err = d.readString(b)
	case fieldOwnership:
		e.Ownership, rest, err = d.readString(b)
	case fieldSession:
		e.Session, rest, err = d.readString(b)
	case fieldLookahead:
		return d.lookahead(e, b)
	case fieldSalt:
		e.Salt, rest, err = d.readString(b)
	case fieldMMKeys:
		e.MMKeys, rest, err = countInner(b)
	}
	return rest, err
}

func (d *Decoder) readString(b []byte) (string, []byte, error) {
	text, rest, err := readText(b)
	if err != nil {
		return "", nil, err
	}
	s, err := d.text(text)
	return s, rest, err
}

// readInt reads an integer from 0; one beyond the range of int becomes the
// largest, which no real size or index reaches.
func readInt(b []byte) (int, []byte, error) {
	u, rest, err := readUint(b)
	return int(min(u, math.MaxInt)), rest, err
}

// metadata reads SGLang's map of fields in the place of lora_name.
func (d *Decoder) metadata(e *Event, b []byte) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return nil, errShort
	}
	e.Fields &^= 1 << fieldLoRAName
	for ; n > 0; n-- {
		key, value, err := readText(b)
		f, _ := fieldsByName.get(key)
		switch {
		case err == nil && (f == fieldSalt || f == fieldSession):
			b, err = d.field(e, f, value)
		default:
			e.UnknownFields++
			b, err = skipValues(b, 2)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// hashes reads a list of hashes. A bin is a list of its bytes, as for Dynamo.
func (d *Decoder) hashes(e *Event, b []byte) ([]byte, error) {
	if msgp.NextType(b) == msgp.BinType {
		bin, rest, err := msgp.ReadBytesZC(b)
		if err != nil {
			return nil, errShort
		}
		if err := d.spend(len(bin), handleBytes); err != nil {
			return nil, err
		}
		e.Hashes = make([]Handle, len(bin))
		for i, c := range bin {
			e.Hashes[i] = IntHandle(uint64(c))
		}
		return rest, nil
	}
	n, b, err := readList(b)
	if err == nil {
		err = d.spend(n, handleBytes)
	}
	if err != nil {
		return nil, err
	}
	e.Hashes = make([]Handle, n)
	for i := range e.Hashes {
		if e.Hashes[i], b, err = d.hash(e, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// hash reads an integer of either sign, a bin of any width, or text:
// TensorRT-LLM's v2_sha256 is the digest in hex, and stands for those bytes.
// Other text stands for its own bytes.
func (d *Decoder) hash(e *Event, b []byte) (Handle, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.UintType:
		u, rest, err := msgp.ReadUint64Bytes(b)
		e.Form |= FormUnsigned
		return IntHandle(u), rest, wrapShort(err)
	case msgp.IntType:
		n, rest, err := msgp.ReadInt64Bytes(b)
		if n < 0 {
			e.Form |= FormSigned
		} else {
			e.Form |= FormUnsigned
		}
		return IntHandle(uint64(n)), rest, wrapShort(err)
	case msgp.BinType, msgp.StrType:
		digest, rest, err := readText(b)
		if err == nil {
			err = d.spend(1, len(digest))
		}
		if err == nil && len(digest) == 0 {
			err = errors.New("found an empty hash")
		}
		if err != nil {
			return Handle{}, nil, err
		}
		e.Form |= FormBytes
		if msgp.NextType(b) == msgp.StrType {
			if raw, err := hex.DecodeString(string(digest)); err == nil {
				digest = raw
			}
		}
		return BytesHandle(digest), rest, nil
	}
	return Handle{}, nil, wrongType("a hash", b)
}

func wrapShort(err error) error {
	if err != nil {
		return errShort
	}
	return nil
}

// tokens reads token ids, or the overlapping pairs of them that speculative
// decoding (EAGLE) hashes.
func (d *Decoder) tokens(e *Event, b []byte) ([]byte, error) {
	e.Tokens, e.Bigram, e.OpaqueTokens = nil, false, false
	n, b, err := readList(b)
	if err != nil || n == 0 {
		return b, err
	}
	e.Bigram = msgp.NextType(b) == msgp.ArrayType
	extra := 0
	if e.Bigram {
		extra = 1
	}
	if err := d.spend(n+extra, tokenBytes); err != nil {
		return nil, err
	}
	e.Tokens = make([]Token, n+extra)
	if e.Bigram {
		return e.readPairs(b)
	}
	for i := 0; i < n; i++ {
		var plain int
		if plain, b = readPlainTokens(e.Tokens[i:], b); plain > 0 {
			i += plain - 1
			continue
		}
		if t := msgp.NextType(b); t == msgp.StrType || t == msgp.BinType {
			// TensorRT-LLM puts digests of multimodal items among the ids.
			e.Tokens, e.OpaqueTokens = nil, true
			return skipValues(b, uint64(n-i))
		}
		if e.Tokens[i], b, err = readToken(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// readPairs reads [a,b], [b,c], ... into e.Tokens, which is one longer than
// the pairs. Pairs that do not overlap leave no sequence.
func (e *Event) readPairs(b []byte) ([]byte, error) {
	for i := range len(e.Tokens) - 1 {
		n, rest, err := readList(b)
		if err == nil && n != 2 {
			err = fmt.Errorf("found a list of %d in place of a pair", n)
		}
		if err != nil {
			return nil, err
		}
		first, rest, err := readToken(rest)
		if err != nil {
			return nil, err
		}
		if i > 0 && first != e.Tokens[i] {
			e.OpaqueTokens = true
		}
		e.Tokens[i] = first
		if e.Tokens[i+1], b, err = readToken(rest); err != nil {
			return nil, err
		}
	}
	if e.OpaqueTokens {
		e.Tokens = nil
	}
	return b, nil
}

// readPlainTokens reads ids into dst as long as they are encoded as those of
// real vocabularies are, and gives how many; it is where decoding spends most
// of its time.
func readPlainTokens(dst []Token, b []byte) (n int, rest []byte) {
	const longest = 5
	for n < len(dst) && len(b) >= longest {
		switch c := b[0]; {
		case c < 0x80:
			dst[n], b = Token(c), b[1:]
		case c == 0xcc:
			dst[n], b = Token(b[1]), b[2:]
		case c == 0xcd:
			dst[n], b = Token(b[1])<<8|Token(b[2]), b[3:]
		case c == 0xce:
			dst[n], b = Token(b[1])<<24|Token(b[2])<<16|Token(b[3])<<8|Token(b[4]), b[5:]
		default:
			return n, b
		}
		n++
	}
	return n, b
}

func readToken(b []byte) (Token, []byte, error) {
	u, rest, err := readUint(b)
	return Token(u), rest, err
}

// lookahead reads one list of token ids, or nil, for each block.
func (d *Decoder) lookahead(e *Event, b []byte) ([]byte, error) {
	n, b, err := readList(b)
	if err == nil {
		err = d.spend(n, sliceBytes)
	}
	if err != nil {
		return nil, err
	}
	lists := make([][]Token, n)
	for i := range lists {
		rest, isNil := readNil(b)
		if isNil {
			b = rest
			continue
		}
		if n, b, err = readList(b); err == nil {
			err = d.spend(n, tokenBytes)
		}
		if err != nil {
			return nil, err
		}
		lists[i] = make([]Token, n)
		for j := range lists[i] {
			if lists[i][j], b, err = readToken(b); err != nil {
				return nil, err
			}
		}
	}
	e.Lookahead = lists
	return b, nil
}

// countInner counts the elements of the lists in a list.
func countInner(b []byte) (total int, rest []byte, err error) {
	n, b, err := readList(b)
	for ; err == nil && n > 0; n-- {
		if rest, isNil := readNil(b); isNil {
			b = rest
			continue
		}
		var inner int
		if inner, b, err = readList(b); err == nil {
			total += inner
			b, err = skipValues(b, uint64(inner))
		}
	}
	return total, b, err
}

// extra reads the extra keys: for each block a list of keys or nil. A single
// key in the place of a list is a list of one.
func (d *Decoder) extra(e *Event, b []byte) ([]byte, error) {
	n, b, err := readList(b)
	if err == nil {
		err = d.spend(n, sliceBytes)
	}
	if err != nil {
		return nil, err
	}
	e.Extra = make([][]ExtraKey, n)
	for i := range e.Extra {
		if rest, isNil := readNil(b); isNil {
			b = rest
			continue
		}
		var key ExtraKey
		if key, b, err = d.extraKey(e, b, 0); err != nil {
			return nil, err
		}
		if e.Extra[i] = key.List; key.List == nil {
			e.Extra[i] = []ExtraKey{key}
		}
	}
	return b, nil
}

// extraKey reads one extra key. Values of a type that no engine uses are
// counted and leave an empty key in their place.
func (d *Decoder) extraKey(e *Event, b []byte, depth int) (key ExtraKey, rest []byte, err error) {
	const maxDepth = 4
	switch msgp.NextType(b) {
	case msgp.StrType:
		key.Text, rest, err = d.readString(b)
	case msgp.BinType:
		var raw []byte
		if raw, rest, err = readText(b); err == nil {
			err = d.spend(1, len(raw))
		}
		if err == nil {
			key.Bytes = append([]byte{}, raw...)
		}
	case msgp.IntType:
		key.Int, rest, err = msgp.ReadInt64Bytes(b)
		key.IsInt, err = true, wrapShort(err)
	case msgp.UintType:
		var u uint64
		u, rest, err = msgp.ReadUint64Bytes(b)
		key.Int, key.IsInt, err = int64(u), true, wrapShort(err)
	case msgp.ArrayType:
		if depth == maxDepth {
			return key, nil, errors.New("lists nested too deep")
		}
		var n int
		if n, rest, err = readList(b); err == nil {
			err = d.spend(n, keyBytes)
		}
		if err != nil {
			return key, nil, err
		}
		key.List = make([]ExtraKey, n)
		for i := range key.List {
			if key.List[i], rest, err = d.extraKey(e, rest, depth+1); err != nil {
				return key, nil, err
			}
		}
	default:
		e.UnknownFields++
		rest, err = skip(b)
	}
	return key, rest, err
}
