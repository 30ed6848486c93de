package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxInputDepth bounds how deep the values of an input nest.
const maxInputDepth = 400

// node is a place in the input: a name at the top, a key or an index below.
type node struct {
	up   *node
	name string
	at   int // the index where name is empty
}

// maxName bounds a key within a path, so that paths stay short.
const maxName = 64

func (n *node) path() string {
	switch {
	case n.up == nil:
		return n.name
	case n.name == "":
		return fmt.Sprintf("%s[%d]", n.up.path(), n.at)
	}
	return n.up.path() + "." + n.name
}

// message gives the index of the message that a place is in, -1 for none.
func (n *node) message() int {
	for ; n.up != nil; n = n.up {
		if n.up.up == nil && n.up.name == "messages" {
			return n.at
		}
	}
	return -1
}

// decode reads a JSON value with its keys in order, numbers as Python reads them.
func decode(name string, raw json.RawMessage) (value, error) {
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("%s: it is not UTF-8", name)
	}
	if loneSurrogate(raw) {
		return nil, fmt.Errorf("%s: %w", name, unsupported("half of a surrogate pair"))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	d := decoder{dec}
	v, err := d.value(&node{name: name}, 0)
	if errors.Is(err, io.EOF) {
		err = errors.New("the JSON ends too soon")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: something follows the value", name)
	}
	return v, nil
}

type decoder struct{ *json.Decoder }

func (d decoder) value(n *node, depth int) (value, error) {
	if depth > maxInputDepth {
		return nil, fmt.Errorf("it nests deeper than %d", maxInputDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case string:
		return textOf(n, t), nil
	case json.Number:
		return numberOf(string(t)), nil
	case json.Delim:
		if t == '[' {
			return d.list(n, depth)
		}
		return d.dict(n, depth)
	}
	return t, nil // nil or bool
}

func textOf(n *node, s string) str {
	if s == "" {
		return str{}
	}
	return str{s: s, from: []origin{{0, len(s), n}}}
}

func (d decoder) list(n *node, depth int) (value, error) {
	out := &seq{node: n}
	for d.More() {
		v, err := d.value(&node{up: n, at: len(out.items)}, depth+1)
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, v)
	}
	_, err := d.Token()
	return out, err
}

func (d decoder) dict(n *node, depth int) (value, error) {
	out := newDict(0)
	out.node = n
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		k, _ := t.(string) // an object's keys are
		at := &node{up: n, name: "?"}
		if k != "" {
			at.name = strings.ToValidUTF8(k[:min(len(k), maxName)], "")
		}
		v, err := d.value(at, depth+1)
		if err != nil {
			return nil, err
		}
		if err := out.set(textOf(at, k), v); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return out, err
}

// numberOf gives a float where there is a point or an exponent, else an int.
func numberOf(s string) value {
	if strings.ContainsAny(s, ".eE") {
		f, _ := strconv.ParseFloat(s, 64) // out of range is inf, as in Python
		return f
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return bigInt(s)
	}
	return n
}

// loneSurrogate reports an escape of half a pair, which Go would replace.
func loneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		u := surrogate(raw, i)
		if u == 0 {
			continue
		}
		if u >= 0xDC00 || i+5 >= len(raw) || raw[i+5] != '\\' || surrogate(raw, i+6) < 0xDC00 {
			return true
		}
		i += 10
	}
	return false
}

// surrogate gives the surrogate of a \u escape whose u is at i, else 0.
func surrogate(raw []byte, i int) uint64 {
	if i+5 > len(raw) || raw[i] != 'u' {
		return 0
	}
	u, err := strconv.ParseUint(string(raw[i+1:i+5]), 16, 16)
	if err != nil || u < 0xD800 || u > 0xDFFF {
		return 0
	}
	return u
}

// toJSON is the filter that transformers puts in the place of Jinja's own.
func toJSON(r *run, in []value) (value, error) {
	j := jsonWriter{item: ", ", colon: ": ", ascii: truth(or(in[1], false))}
	switch indent := or(in[2], nil).(type) {
	case nil:
	case str:
		j.indent, j.lines = indent.s, true
	default:
		n, err := intArg(indent, 0)
		if err != nil {
			return nil, err
		}
		if n > maxName {
			return nil, unsupported("an indent of more than 64")
		}
		j.indent, j.lines = strings.Repeat(" ", int(max(n, 0))), true
	}
	if j.lines {
		j.item = ","
	}
	if sep := or(in[3], nil); sep != nil {
		pair, err := r.items(sep)
		if err != nil {
			return nil, err
		}
		if len(pair) != 2 {
			return nil, typeError("separators are two texts")
		}
		for i, to := range []*string{&j.item, &j.colon} {
			t, err := textArg(pair[i])
			if err != nil {
				return nil, err
			}
			*to = t.s
		}
	}
	j.sorted = truth(or(in[4], false))
	return r.collect(func(b *buffer) error {
		j.buffer = b
		return j.write(in[0], 0)
	})
}

// jsonWriter writes as Python's json.dumps.
type jsonWriter struct {
	*buffer
	item, colon, indent  string
	lines, ascii, sorted bool
}

func (j jsonWriter) write(v value, depth int) error {
	if err := j.r.enter(); err != nil {
		return err
	}
	defer j.r.leave()
	switch v := v.(type) {
	case nil:
		return j.lit("null")
	case bool:
		return j.lit(strconv.FormatBool(v))
	case int64, bigInt:
		return j.repr(v)
	case float64:
		return j.lit(jsonFloat(v))
	case str:
		return j.text(v)
	case *seq:
		if v.kind > tupleSeq {
			break
		}
		return j.mark(v.node, func() error {
			return j.nested("[", "]", depth, len(v.items), func(i int) error { return j.write(v.items[i], depth+1) })
		})
	case *dict:
		return j.mark(v.node, func() error { return j.dict(v, depth) })
	}
	return typeError("a %s has no JSON", typeName(v))
}

var jsonFloats = strings.NewReplacer("inf", "Infinity", "nan", "NaN")

func jsonFloat(f float64) string { return jsonFloats.Replace(floatText(f)) }

// nested writes what is between brackets, on lines of its own where asked for.
func (j jsonWriter) nested(open, close string, depth, n int, item func(i int) error) error {
	sep := j.item
	if j.lines && n > 0 {
		if err := j.r.charge(2 * (depth + 1) * len(j.indent)); err != nil {
			return err
		}
		line := "\n" + strings.Repeat(j.indent, depth)
		open += line + j.indent
		sep += line + j.indent
		close = line + close
	}
	return j.list(open, close, sep, n, item)
}

func (j jsonWriter) dict(d *dict, depth int) error {
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	if j.sorted {
		if err := j.r.sort(order, func(i int) value { return d.keys[i] }, false); err != nil {
			return err
		}
	}
	return j.nested("{", "}", depth, len(order), func(i int) error {
		if err := j.key(d.keys[order[i]]); err != nil {
			return err
		}
		if err := j.lit(j.colon); err != nil {
			return err
		}
		return j.write(d.values[order[i]], depth+1)
	})
}

// key writes a key; what is no text becomes one.
func (j jsonWriter) key(k value) error {
	if t, ok := k.(str); ok {
		return j.text(t)
	}
	if err := j.lit(`"`); err != nil {
		return err
	}
	if err := j.write(k, 0); err != nil {
		return err
	}
	return j.lit(`"`)
}

var jsonEscapes = map[rune]string{
	'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\f': `\f`, '\b': `\b`,
}

func (j jsonWriter) text(t str) error {
	return j.quote(t, `"`, func(c rune) string {
		switch esc, ok := jsonEscapes[c]; {
		case ok:
			return esc
		case c < ' ', j.ascii && c > '~' && c < 0x10000:
			return fmt.Sprintf(`\u%04x`, c)
		case j.ascii && c > '~':
			c -= 0x10000
			return fmt.Sprintf(`\u%04x\u%04x`, 0xD800+c>>10, 0xDC00+c&0x3ff)
		}
		return ""
	})
}
