package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// saltPrefix marks a cache salt that Dynamo's own frontend put among the extra
// keys; it does not recognise any other salt there.
const saltPrefix = "dynamo-cache-salt:"

// mmInfos is the field of multimodal objects that old Dynamo workers add.
const mmInfos = "block_mm_infos"

// extra reads extra_keys: for each block nil or a list of keys.
func (s *serde) extra(e *serdeEvent) bool {
	const what = "extra_keys"
	e.saltKeys, e.extraMedia = nil, nil
	if s.null() {
		return true
	}
	blocks, ok := s.list(what)
	if !ok {
		return false
	}
	for block := range blocks {
		if s.null() {
			continue
		}
		if msgp.NextType(s.b) == msgp.BinType { // a list of its bytes
			s.skip(1)
			continue
		}
		n, ok := s.list(what)
		if !ok {
			return false
		}
		for range n {
			if !s.extraKey(e, block) {
				s.fault = "" // of one form among several
				return s.fail("%s holds a key of a form that Dynamo does not know, such as bytes or a tagged list", what)
			}
		}
	}
	return true
}

// extraKey reads a text, a [text, offset], a list of bytes or a plain value.
func (s *serde) extraKey(e *serdeEvent, block int) (ok bool) {
	var text []byte
	switch msgp.NextType(s.b) {
	case msgp.StrType, msgp.BinType:
		text, ok = s.text("a key")
		if ok && block == 0 && strings.HasPrefix(string(text), saltPrefix) {
			e.saltKeys = append(e.saltKeys, string(text))
		}
	case msgp.IntType, msgp.UintType, msgp.Float64Type, msgp.Float32Type, msgp.BoolType:
		s.skip(1)
		return true
	case msgp.ArrayType:
		n, _ := s.list("a key")
		if t := msgp.NextType(s.b); n != 2 || t != msgp.StrType && t != msgp.BinType {
			return s.byteList(n)
		}
		if text, ok = s.text("a hash"); ok {
			_, _, ok = s.integer("an offset")
		}
	}
	if hash, isMedia := mediaHash(text); ok && isMedia {
		e.extraMedia = append(e.extraMedia, blockMedia{block, hash})
	}
	return ok
}

func (s *serde) byteList(n int) bool {
	for range n {
		if u, negative, ok := s.integer("a byte"); !ok || negative || u > math.MaxUint8 {
			return false
		}
	}
	return true
}

// settle drops what an event of its kind cannot have, and derives from the
// extra keys what no field of its own gave.
func (e *serdeEvent) settle() {
	if e.kind == Unknown || e.kind == Cleared {
		*e = serdeEvent{
			kind: e.kind, group: -1,
			ownership: e.ownership, hasOwner: e.hasOwner && e.kind == Cleared,
		}
		return
	}
	if !e.salted {
		e.salt = saltOf(e.saltKeys, e.loraName)
	}
	if !e.hasMedia {
		e.media = e.extraMedia
	}
}

// saltOf finds the salt among the first block's keys that look like one. The
// first key equal to the LoRA name is that name.
func saltOf(keys []string, lora string) string {
	for _, k := range keys {
		if k == lora {
			lora = ""
			continue
		}
		if salt := k[len(saltPrefix):]; salt != "" {
			return salt
		}
	}
	return ""
}

// mediaHash reads a multimodal hash in the form that Dynamo's frontend gives
// it: 16 hexadecimal digits and 48 zeros.
func mediaHash(text []byte) (uint64, bool) {
	const digits, zeros = 16, 48
	if len(text) != digits+zeros || len(bytes.Trim(text[digits:], "0")) > 0 {
		return 0, false
	}
	var hash [digits / 2]byte
	_, err := hex.Decode(hash[:], text[:digits])
	return binary.BigEndian.Uint64(hash[:]), err == nil
}

// mmInfos reads block_mm_infos: for each block nil or its multimodal objects.
func (s *serde) mmInfos(e *serdeEvent) bool {
	e.media, e.hasMedia = nil, !s.null()
	if !e.hasMedia {
		return true
	}
	blocks, ok := s.list(mmInfos)
	for block := 0; ok && block < blocks; block++ {
		if s.null() {
			continue
		}
		ok = s.object([]string{"mm_objects"}, func(int) bool {
			n, ok := s.list("mm_objects")
			for ; ok && n > 0; n-- {
				var hash uint64
				hash, ok = s.mmObject()
				e.media = append(e.media, blockMedia{block, hash})
			}
			return ok
		})
	}
	return ok || s.fail("%s does not have the form that Dynamo reads", mmInfos)
}

func (s *serde) mmObject() (h uint64, ok bool) {
	ok = s.object([]string{"mm_hash", "offsets"}, func(i int) bool {
		if i == 0 {
			var negative, ok bool
			h, negative, ok = s.integer("mm_hash")
			return ok && !negative
		}
		n, ok := s.list("offsets")
		for ; ok && n > 0; n-- {
			ok = s.offsets()
		}
		return ok
	})
	return h, ok
}

// offsets reads a pair of integers from 0.
func (s *serde) offsets() bool {
	if bin, _, err := msgp.ReadBytesZC(s.b); err == nil && !s.content { // a list of its bytes, the first two count
		s.skip(1)
		return len(bin) >= 2
	}
	n, ok := s.list("offsets")
	if !ok || n != 2 {
		return false
	}
	for range n {
		if _, negative, ok := s.integer("offsets"); !ok || negative {
			return false
		}
	}
	return true
}

// object reads a Rust struct: a list of its fields, or a map of names or
// numbers to them with anything else besides.
func (s *serde) object(fields []string, read func(i int) bool) bool {
	if msgp.NextType(s.b) != msgp.MapType {
		n, ok := s.list("an object")
		if !ok || n != len(fields) {
			return false
		}
		for i := range fields {
			if !read(i) {
				return false
			}
		}
		return true
	}
	n, rest, _ := msgp.ReadMapHeaderBytes(s.b)
	s.b = rest
	var seen uint
	for ; n > 0; n-- {
		at := len(fields)
		if name, rest, err := readText(s.b); err == nil {
			s.b = rest
			for i, f := range fields {
				if f == string(name) {
					at = i
				}
			}
		} else if u, negative, ok := s.integer("a field"); ok && !negative {
			at = int(min(u, uint64(at)))
		} else {
			return false
		}
		switch {
		case at == len(fields):
			s.skip(1)
		case seen&(1<<at) != 0 || !read(at):
			return false
		}
		seen |= 1 << at
	}
	return seen&(1<<len(fields)-1) == 1<<len(fields)-1
}

// tryMMInfos reads block_mm_infos if the first value of b is that.
func tryMMInfos(b []byte) ([]blockMedia, bool) {
	s, e := serde{b: b, content: true}, serdeEvent{}
	ok := s.mmInfos(&e)
	return e.media, ok
}
