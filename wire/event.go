package wire

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// event reads the event that b begins with into e. It reports false where b
// breaks off within the event, which is Bad then with all of b as Raw.
func (d *Decoder) event(e *Event, b []byte) ([]byte, bool) {
	e.Group = -1
	memory := d.memory
	rest, err := d.readEvent(e, b)
	if err == nil && e.Kind != Unknown {
		return rest, true
	}
	// The event is given up, with what it holds, so its end has to be found
	// without its meaning.
	d.memory = memory
	rest, cut := skip(b)
	raw := b[:len(b)-len(rest)]
	if cut != nil {
		err = cut
	}
	bad := badEvent(err, raw)
	bad.Name, bad.Array, bad.Plane, bad.Len = e.Name, e.Array, e.Plane, e.Len
	if err == nil {
		bad.Kind = Unknown
	}
	*e = bad
	return rest, cut == nil
}

// readEvent reads an event whose tag is known, and leaves others Unknown.
func (d *Decoder) readEvent(e *Event, b []byte) (rest []byte, err error) {
	if d.plane.on {
		return d.routerEvent(e, b)
	}
	switch msgp.NextType(b) {
	case msgp.ArrayType:
		rest, err = d.arrayEvent(e, b)
	case msgp.MapType:
		rest, err = d.mapEvent(e, b)
	default:
		return nil, wrongType("a tagged list or map", b)
	}
	if err != nil || e.Kind == Unknown {
		return nil, err
	}
	if e.Hashes == nil && e.Kind != Cleared {
		return nil, fmt.Errorf("%s: missing", fieldNames[fieldHashes])
	}
	var known bool
	e.Tier, known = TierOf(e.Medium)
	e.UnknownMedium = !known
	return rest, nil
}

func (d *Decoder) tag(e *Event, b []byte) (rest []byte, err error) {
	tag, rest, err := readText(b)
	if err != nil {
		return nil, fmt.Errorf("tag: %w", err)
	}
	e.Kind = eventTags[string(tag)]
	e.Name, err = d.text(tag)
	return rest, err
}

func (d *Decoder) arrayEvent(e *Event, b []byte) ([]byte, error) {
	n, b, err := readList(b)
	if err != nil {
		return nil, err
	}
	e.Array, e.Len = true, n
	if n == 0 {
		return nil, errors.New("an empty list, without a tag")
	}
	// A number in front of the tag is a time that some publishers prepend.
	if t := msgp.NextType(b); n > 1 && (t == msgp.Float64Type || t == msgp.IntType || t == msgp.UintType) {
		if b, err = skip(b); err != nil {
			return nil, err
		}
		e.UnknownFields++
		n--
	}
	if b, err = d.tag(e, b); err != nil || e.Kind == Unknown {
		return nil, err
	}
	n--
	for _, f := range layouts[e.Kind].head {
		if n == 0 {
			return b, nil
		}
		if b, err = d.field(e, f, b); err != nil {
			return nil, err
		}
		n--
	}
	return d.tail(e, layouts[e.Kind].tail, b, n)
}

// tail reads the n positions behind the head: as fields where the types fit.
// Otherwise, as Dynamo reads the tuples of its 1.2 relays, the first five are
// told apart by type: the first number is the group, the second the window, a
// text is the attention kind. (Dynamo goes by position only from four elements
// on, so [nil, kind, window] gives it a group.)
func (d *Decoder) tail(e *Event, fields []field, b []byte, n int) (rest []byte, err error) {
	if !tailFits(b, min(n, len(attentionTail))) {
		fields = nil
		numbers := []field{fieldGroup, fieldWindow}
		for i := 0; i < len(attentionTail) && n > 0; i++ {
			switch isNumber, isText := tailType(b); {
			case isNumber && len(numbers) > 0:
				b, err = d.field(e, numbers[0], b)
				numbers = numbers[1:]
			case isText:
				b, err = d.field(e, fieldSpec, b)
			default:
				if _, isNil := readNil(b); !isNil {
					e.UnknownFields++
				}
				b, err = skip(b)
			}
			if err != nil {
				return nil, err
			}
			n--
		}
	}
	for _, f := range fields {
		if n == 0 {
			break
		}
		if b, err = d.field(e, f, b); err != nil {
			return nil, err
		}
		n--
	}
	e.UnknownFields += n
	return skipValues(b, uint64(n))
}

// tailFits reports whether the first n values of b have the types of
// attentionTail, or are nil.
func tailFits(b []byte, n int) bool {
	for _, f := range attentionTail[:n] {
		isNumber, isText := tailType(b)
		if f == fieldGroup || f == fieldWindow {
			isText = isNumber
		}
		_, isNil := readNil(b)
		if !isText && !isNil {
			return false
		}
		var err error
		if b, err = skip(b); err != nil {
			return false
		}
	}
	return true
}

// tailType reports whether b begins with a number that a group or a window
// can be, or with text.
func tailType(b []byte) (isNumber, isText bool) {
	switch msgp.NextType(b) {
	case msgp.IntType, msgp.UintType:
		u, _, err := msgp.ReadUint64Bytes(b)
		return err == nil && u <= math.MaxUint32, false
	case msgp.StrType, msgp.BinType:
		text, _, err := readText(b)
		return false, err == nil && utf8.Valid(text)
	}
	return false, false
}

func (d *Decoder) mapEvent(e *Event, b []byte) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return nil, errShort
	}
	e.Len = int(n)
	if err := d.findTag(e, b, n); err != nil || e.Kind == Unknown {
		return nil, err
	}
	return d.mapFields(e, b, n)
}

// findTag reads the value of the first key "type" among n entries that is
// known, or of the last one.
func (d *Decoder) findTag(e *Event, b []byte, n uint32) error {
	tagged := false
	for ; n > 0 && e.Kind == Unknown; n-- {
		key, value, err := readText(b)
		if err == nil && string(key) == fieldNames[fieldType] {
			tagged = true
			b, err = d.tag(e, value)
		} else {
			b, err = skipValues(b, 2)
		}
		if err != nil {
			return err
		}
	}
	if !tagged {
		return errors.New("a map without the key type")
	}
	return nil
}

// mapFields reads n entries into e. Of keys that come twice the last counts.
func (d *Decoder) mapFields(e *Event, b []byte, n uint32) ([]byte, error) {
	for ; n > 0; n-- {
		key, value, err := readText(b)
		f, known := fieldsByName.get(key)
		switch {
		case err != nil || !known:
			e.UnknownFields++
			b, err = skipValues(b, 2)
		case f == fieldType:
			b, err = d.tag(e, value)
		default:
			b, err = d.field(e, f, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}
