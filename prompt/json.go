package prompt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// field is a field of a JSON object.
type field struct {
	key string
	raw json.RawMessage
}

// object is a JSON object with its fields in their order, which templates show.
// Of fields with one name the last counts, at the place of the first, as in
// Python.
type object []field

// get gives a field's value, nil where there is none or it is null.
func (o object) get(key string) json.RawMessage {
	for _, f := range o {
		if f.key == key && !isNull(f.raw) {
			return f.raw
		}
	}
	return nil
}

func (o object) has(key string) bool { return o.get(key) != nil }

// text gives a field that is a string, "" for any other.
func (o object) text(key string) string {
	s, _ := text(o.get(key))
	return s
}

// with gives the object with a field set: in its place, or at the end.
func (o object) with(key string, raw json.RawMessage) object {
	for i := range o {
		if o[i].key == key {
			o[i].raw = raw
			return o
		}
	}
	return append(o, field{key, raw})
}

// ordered gives the fields in the order of keys, the others behind them. A key
// that is missing is null with fill, else left out.
func (o object) ordered(fill bool, keys ...string) object {
	out := make(object, 0, len(o)+len(keys))
	taken := make(map[string]bool, len(keys))
	for _, key := range keys {
		taken[key] = true
		switch raw := o.get(key); {
		case raw != nil:
			out = append(out, field{key, raw})
		case fill:
			out = append(out, field{key, json.RawMessage("null")})
		}
	}
	for _, f := range o {
		if !taken[f.key] {
			out = append(out, f)
		}
	}
	return out
}

func (o object) encode() json.RawMessage {
	b := []byte{'{'}
	for i, f := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, quote(f.key)...), ':')
		b = append(b, f.raw...)
	}
	return append(b, '}')
}

func encodeList(items []json.RawMessage) json.RawMessage {
	return append(append([]byte{'['}, bytes.Join(asBytes(items), []byte{','})...), ']')
}

func asBytes(items []json.RawMessage) [][]byte {
	out := make([][]byte, len(items))
	for i, raw := range items {
		out[i] = raw
	}
	return out
}

// quote writes a JSON string.
func quote(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string into memory: neither fails
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// fields takes a valid JSON object apart. It gives false for other values.
func fields(raw json.RawMessage) (object, bool) {
	if kindOf(raw) != "an object" {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, false
	}
	out, places := object{}, map[string]int{}
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			return nil, false
		}
		if i, twice := places[name]; twice {
			out[i].raw = value
			continue
		}
		places[name] = len(out)
		out = append(out, field{name, value})
	}
	return out, true
}

const (
	// maxItems bounds the lists that are taken apart, which token ids never are.
	maxItems = 1 << 17
	// maxFields bounds the fields of all objects of an input.
	maxFields = 1 << 20
)

// list takes a valid JSON list apart. It gives false for other values, and for a
// list that is too long.
func list(raw json.RawMessage) ([]json.RawMessage, bool) {
	if !isList(raw) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, false
	}
	out := []json.RawMessage{}
	for dec.More() {
		var item json.RawMessage
		if len(out) == maxItems || dec.Decode(&item) != nil {
			return nil, false
		}
		out = append(out, item)
	}
	return out, true
}

// notList says what a value is that list gives nothing of.
func notList(raw json.RawMessage) string {
	switch {
	case !isList(raw):
		return kindOf(raw) + ", not a list"
	case first(raw) == ']':
		return "empty"
	}
	return "a list of more than " + wire.Grouped(maxItems) + " items"
}

// first gives the first character within a list.
func first(raw json.RawMessage) byte { return bytes.TrimLeft(raw[1:], " \t\r\n")[0] }

// countFields counts the fields of all objects in a valid JSON text.
func countFields(s string) int {
	n, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\':
			i++
		case s[i] == ':' && !quoted:
			n++
		}
	}
	return n
}

// text gives a JSON string. It gives false for other values.
func text(raw json.RawMessage) (string, bool) {
	var s string
	return s, len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || raw[0] == 'n' }
func isList(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '[' }

// kindOf says in words what a JSON value is, for errors, which show no values.
func kindOf(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

// firstValue reads the first JSON value of a text and says what follows it.
func firstValue(s string) (raw json.RawMessage, more bool, err error) {
	dec := json.NewDecoder(strings.NewReader(s))
	if err := dec.Decode(&raw); err != nil {
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &syntax):
			return nil, false, fmt.Errorf("the JSON breaks at character %s: %s", wire.Grouped(charAt(s, int(syntax.Offset)-1)), syntax.Error())
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, false, errors.New("the JSON object is not closed: its end is missing")
		}
		return nil, false, fmt.Errorf("the JSON cannot be read: %w", err)
	}
	return raw, strings.TrimSpace(s[dec.InputOffset():]) != "", nil
}

// loneSurrogate gives where a JSON text has an escaped half of a character
// without its other half, which no engine can tokenize; -1 where it has none.
func loneSurrogate(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		at := i
		i++ // whatever is escaped is no backslash of its own
		switch r := surrogate(s[at:]); {
		case r == 0:
		case r >= 0xdc00:
			return at
		default:
			if low := surrogate(s[at+6:]); low < 0xdc00 {
				return at
			}
			i = at + 11
		}
	}
	return -1
}

// surrogate gives the half of a character that is escaped at the start of s, 0
// where there is none.
func surrogate(s string) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0
	}
	v, err := strconv.ParseUint(s[2:6], 16, 16)
	if err != nil || v < 0xd800 || v > 0xdfff {
		return 0
	}
	return rune(v)
}
