package template

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is a text that remembers which of its bytes come from the input.
type str struct {
	s    string
	from []origin
	// safe is set by the filter safe: added to other texts it escapes those, even
	// where nothing else does. Only what Jinja does with a plain text, too, is
	// possible with it.
	safe bool
}

// origin says where some bytes of a text come from.
type origin struct {
	start, end int
	node       *node
}

func lit(s string) str { return str{s: s} }

// slice cuts a text by bytes.
func (t str) slice(start, end int) str {
	out := str{s: t.s[start:end]}
	for _, o := range t.from {
		if from, to := max(o.start, start), min(o.end, end); from < to {
			out.from = append(out.from, origin{from - start, to - start, o.node})
		}
	}
	return out
}

// like gives a text made of t by a change of every letter for itself, such as to
// upper case: what comes from the input as a whole still does.
func (t str) like(s string) str {
	if len(t.from) == 1 && t.from[0].start == 0 && t.from[0].end == len(t.s) && s != "" {
		return str{s: s, from: []origin{{0, len(s), t.from[0].node}}}
	}
	return lit(s)
}

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// buffer collects a text, within the bounds of a run.
type buffer struct {
	r    *run
	b    []byte
	from []origin
	// inside says that all that is written belongs to one origin already.
	inside bool
}

func (b *buffer) lit(s string) error {
	if err := b.r.charge(len(s)); err != nil {
		return err
	}
	if len(b.b)+len(s) > maxText {
		return errText
	}
	b.b = append(b.b, s...)
	return nil
}

func (b *buffer) add(t str) error {
	at := len(b.b)
	if err := b.lit(t.s); err != nil || len(t.from) == 0 || b.inside {
		return err
	}
	if err := b.r.charge(len(t.from) * originSize); err != nil {
		return err
	}
	for _, o := range t.from {
		o.start, o.end = o.start+at, o.end+at
		if last := len(b.from) - 1; last >= 0 && b.from[last].node == o.node && b.from[last].end == o.start {
			b.from[last].end = o.end
			continue
		}
		b.from = append(b.from, o)
	}
	return nil
}

// mark has all that write writes belong to one node.
func (b *buffer) mark(n *node, write func() error) error {
	if n == nil || b.inside {
		return write()
	}
	at := len(b.b)
	b.inside = true
	err := write()
	b.inside = false
	if len(b.b) > at {
		b.from = append(b.from, origin{at, len(b.b), n})
	}
	return err
}

func (b *buffer) str() str { return str{s: string(b.b), from: b.from} }

// collect makes a text of what write writes.
func (r *run) collect(write func(b *buffer) error) (str, error) {
	b := &buffer{r: r}
	if err := write(b); err != nil {
		return str{}, err
	}
	return b.str(), nil
}

// print writes a value as Python's str() gives it.
func (b *buffer) print(v value) error {
	switch v := v.(type) {
	case str:
		return b.add(v)
	case undefined:
		return nil
	}
	return b.repr(v)
}

// text is str() of a value.
func (r *run) text(v value) (str, error) {
	if s, ok := v.(str); ok {
		return s, nil
	}
	return r.collect(func(b *buffer) error { return b.print(v) })
}

var boolNames = map[bool]string{true: "True", false: "False"}

// repr writes a value as Python's repr() gives it.
func (b *buffer) repr(v value) error {
	if err := b.r.enter(); err != nil {
		return err
	}
	defer b.r.leave()
	switch v := v.(type) {
	case nil:
		return b.lit("None")
	case bool:
		return b.lit(boolNames[v])
	case int64:
		return b.lit(strconv.FormatInt(v, 10))
	case bigInt:
		return b.lit(string(v))
	case float64:
		return b.lit(floatText(v))
	case undefined:
		return b.lit("Undefined")
	case str:
		if v.safe {
			return errSafe
		}
		return b.reprText(v)
	case *seq:
		return b.mark(v.node, func() error { return b.reprSeq(v) })
	case *dict:
		return b.mark(v.node, func() error { return b.reprDict(v) })
	}
	return unsupported("printing a " + typeName(v))
}

// brackets are around the items of a sequence that prints.
var brackets = map[seqKind][2]string{
	listSeq: {"[", "]"}, tupleSeq: {"(", ")"}, viewSeq: {"([", "])"},
}

func (b *buffer) reprSeq(v *seq) error {
	if err := b.lit(v.view); err != nil || v.kind == rangeSeq {
		return err
	}
	around := brackets[v.kind]
	if v.kind == tupleSeq && len(v.items) == 1 {
		around[1] = ",)"
	}
	return b.list(around[0], around[1], ", ", len(v.items), func(i int) error { return b.repr(v.items[i]) })
}

func (b *buffer) reprDict(v *dict) error {
	return b.list("{", "}", ", ", len(v.keys), func(i int) error {
		if err := b.repr(v.keys[i]); err != nil {
			return err
		}
		if err := b.lit(": "); err != nil {
			return err
		}
		return b.repr(v.values[i])
	})
}

// list writes n items with separators between.
func (b *buffer) list(open, close, sep string, n int, item func(i int) error) error {
	if err := b.lit(open); err != nil {
		return err
	}
	for i := range n {
		if i > 0 {
			if err := b.lit(sep); err != nil {
				return err
			}
		}
		if err := item(i); err != nil {
			return err
		}
	}
	return b.lit(close)
}

var reprEscapes = map[rune]string{'\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

func (b *buffer) reprText(t str) error {
	quote := '\''
	if strings.ContainsRune(t.s, '\'') && !strings.ContainsRune(t.s, '"') {
		quote = '"'
	}
	return b.quote(t, string(quote), func(r rune) string {
		switch esc, ok := reprEscapes[r]; {
		case ok:
			return esc
		case r == quote:
			return `\` + string(quote)
		case unicode.IsPrint(r):
			return ""
		case r < 0x100:
			return fmt.Sprintf(`\x%02x`, r)
		case r < 0x10000:
			return fmt.Sprintf(`\u%04x`, r)
		}
		return fmt.Sprintf(`\U%08x`, r)
	})
}

// quote writes a text between quotes, with some characters replaced. What is
// between is the input's where the text as a whole is.
func (b *buffer) quote(t str, quote string, escape func(r rune) string) error {
	if err := b.lit(quote); err != nil {
		return err
	}
	var n *node
	if len(t.from) == 1 && t.from[0].end-t.from[0].start == len(t.s) {
		n = t.from[0].node
	}
	err := b.mark(n, func() error {
		done := 0
		for i, r := range t.s {
			esc := escape(r)
			if esc == "" {
				continue
			}
			if err := b.lit(t.s[done:i]); err != nil {
				return err
			}
			if err := b.lit(esc); err != nil {
				return err
			}
			done = i + utf8.RuneLen(r)
		}
		return b.lit(t.s[done:])
	})
	if err != nil {
		return err
	}
	return b.lit(quote)
}
