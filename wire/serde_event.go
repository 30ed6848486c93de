package wire

import (
	"math"

	"github.com/tinylib/msgp/msgp"
)

// event reads an event, as a map or an array.
func (s *serde) event(e *serdeEvent) bool {
	switch msgp.NextType(s.b) {
	case msgp.MapType:
		return s.mapEvent(e)
	case msgp.ArrayType:
		return s.arrayEvent(e)
	}
	return s.failType("the event", "a tagged list or map")
}

// kind turns a tag into a kind; Ignored is Unknown.
func (s *serde) kind(e *serdeEvent, tag []byte) bool {
	e.kind = eventTags[string(tag)]
	if e.kind == Unknown && string(tag) != "Ignored" {
		return s.fail("the tag is not one that Dynamo knows (BlockStored, BlockRemoved, AllBlocksCleared, Ignored)")
	}
	return true
}

func (s *serde) mapEvent(e *serdeEvent) bool {
	n, rest, _ := msgp.ReadMapHeaderBytes(s.b)
	s.b = rest
	var tag []byte
	var seen FieldSet
	for ; n > 0; n-- {
		key, ok := s.text("a key")
		if !ok {
			return false
		}
		f, known := fieldsByName.get(key)
		switch {
		case string(key) == mmInfos:
			ok = s.mmInfos(e)
		case !known:
			s.skip(1)
		case f == fieldType:
			tag, ok = s.text("type")
		default:
			ok = s.field(e, f)
		}
		if !ok {
			return false
		}
		if known {
			seen |= 1 << f
		}
	}
	if !seen.has(fieldType) {
		return s.fail("the map has no key type")
	}
	if !s.kind(e, tag) {
		return false
	}
	for _, f := range required[e.kind] {
		if !seen.has(f) {
			return s.fail("%s is missing, and Dynamo requires it", fieldNames[f])
		}
	}
	e.settle()
	return true
}

// required are the fields that an event must have, even if as an empty list.
var required = [...][]field{
	Unknown: nil,
	Stored:  {fieldHashes, fieldTokens, fieldBlockSize},
	Removed: {fieldHashes},
	Cleared: nil,
}

// field reads the value of a field that Dynamo knows, and passes others.
func (s *serde) field(e *serdeEvent, f field) (ok bool) {
	what := fieldNames[f]
	switch f {
	case fieldHashes:
		e.hashes, ok = s.hashes(what)
	case fieldParent:
		if e.hasParent = !s.null(); !e.hasParent {
			return true
		}
		e.parent, ok = s.hash(what)
	case fieldTokens:
		return s.tokens(e)
	case fieldBlockSize:
		var negative bool
		if e.blockSize, negative, ok = s.integer(what); ok && negative {
			return s.fail("%s is negative", what)
		}
	case fieldMedium:
		e.medium, _, ok = s.optText(what)
	case fieldLoRAName:
		e.loraName, _, ok = s.optText(what)
	case fieldSalt:
		e.salt, e.salted, ok = s.optText(what)
	case fieldExtra:
		return s.extra(e)
	case fieldGroup:
		e.group, ok = s.optInt(what, 0, math.MaxUint32)
	case fieldSpec:
		e.spec, e.hasSpec, ok = s.optText(what)
	case fieldWindow:
		_, ok = s.optInt(what, 0, math.MaxUint32)
	case fieldLocality:
		return s.locality(e)
	case fieldOwnership:
		e.ownership, e.hasOwner, ok = s.optText(what)
	case fieldSession:
		_, _, ok = s.optText(what)
	default:
		s.skip(1)
		ok = true
	}
	return ok
}

// What locality holds for local blocks; everything else is not local.
const localWord, localNumber = "LOCAL", 0

// locality reads a Rust enum: a word, its number, or a map of it to nil.
func (s *serde) locality(e *serdeEvent) bool {
	const what = "locality"
	e.nonLocal = false
	if s.null() {
		return true
	}
	inMap := msgp.NextType(s.b) == msgp.MapType
	if inMap {
		n, rest, _ := msgp.ReadMapHeaderBytes(s.b)
		if n != 1 {
			return s.failType(what, "a word")
		}
		s.b = rest
	}
	switch msgp.NextType(s.b) {
	case msgp.StrType, msgp.BinType:
		word, rest, _ := readText(s.b)
		e.nonLocal = string(word) != localWord
		s.b = rest
	default:
		// Only in an unsigned form, even where the signed one is not negative.
		u, rest, err := msgp.ReadUint64Bytes(s.b)
		if err != nil || s.b[0] >= 0xd0 {
			return s.failType(what, "a word")
		}
		e.nonLocal = u != localNumber
		s.b = rest
	}
	return !inMap || s.null() || s.failType(what, "a word")
}

// arrayEvent reads [tag, ...].
func (s *serde) arrayEvent(e *serdeEvent) bool {
	n, _ := s.list("the event")
	if n == 0 {
		return s.fail("the list is empty, without a tag")
	}
	tag, ok := s.text("the tag")
	if !ok || !s.kind(e, tag) {
		return false
	}
	n--
	for i, f := range layouts[e.kind].head {
		if n == 0 {
			if i < minHead[e.kind] {
				return s.fail("the list ends before %s, which Dynamo requires", fieldNames[f])
			}
			break
		}
		n--
		switch f {
		case fieldLoRAID:
			_, ok = s.optUint(fieldNames[f])
		case fieldLoRAName:
			ok = s.namespaceSlot(e)
		default:
			ok = s.field(e, f)
		}
		if !ok {
			return false
		}
	}
	if layouts[e.kind].tail != nil {
		n -= s.tail(e, n)
	}
	s.skip(n)
	e.settle()
	return true
}

// minHead is how many positions behind the tag must be there.
var minHead = [...]int{Stored: 4, Removed: 1, Cleared: 0}

// optUint reads an unsigned integer of 64 bits, or nil.
func (s *serde) optUint(what string) (uint64, bool) {
	if s.null() {
		return 0, true
	}
	u, negative, ok := s.integer(what)
	if ok && negative {
		return 0, s.fail("%s is negative", what)
	}
	return u, ok
}

// namespaceSlot reads position 7: a LoRA name, or SGLang's map of cache_salt.
func (s *serde) namespaceSlot(e *serdeEvent) (ok bool) {
	if msgp.NextType(s.b) != msgp.MapType {
		e.loraName, _, ok = s.optText(fieldNames[fieldLoRAName])
		return ok
	}
	n, rest, _ := msgp.ReadMapHeaderBytes(s.b)
	s.b = rest
	found := false
	for ; n > 0; n-- {
		key, _, err := readText(s.b)
		s.skip(1)
		if err != nil || string(key) != fieldNames[fieldSalt] {
			s.skip(1)
			continue
		}
		if found {
			return s.fail("cache_salt comes twice")
		}
		if e.salt, found, _ = s.optText("cache_salt"); !found {
			return s.fail("cache_salt is nil")
		}
	}
	e.salted = e.salt != ""
	return found || s.fail("the map in place of lora_name has no cache_salt")
}

// tail reads up to five positions behind the head, and gives how many. See
// Decoder.tail; Dynamo goes by position only where there are four or more.
func (s *serde) tail(e *serdeEvent, n int) int {
	n = min(n, len(attentionTail))
	fits := n >= 4 && tailFits(s.b, n)
	grouped := false
	for _, f := range attentionTail[:n] {
		isNumber, isText := tailType(s.b)
		switch {
		case fits:
			s.field(e, f)
			continue
		case isNumber && !grouped:
			e.group, _ = s.optInt("", 0, math.MaxUint32)
			grouped = true
			continue
		case isText:
			e.spec, e.hasSpec, _ = s.optText("")
			continue
		case e.kind == Stored && msgp.NextType(s.b) == msgp.ArrayType:
			if media, ok := tryMMInfos(s.b); ok {
				e.media, e.hasMedia = media, true
			}
		}
		s.skip(1)
	}
	return n
}
