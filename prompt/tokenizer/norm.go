package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// piece is a stretch of the text on its way to the model. Its text may have been
// changed; its bytes know where they are from.
type piece struct {
	text string
	at   int    // where text begins in the original, unless from says it
	from []from // one per byte of text, nil where the text is the original's
}

// from is a span of the original text. Texts are below 4 GB.
type from struct{ start, end uint32 }

func (p piece) cut(start, end int) piece {
	out := piece{text: p.text[start:end], at: p.at + start}
	if p.from != nil {
		out.from = p.from[start:end]
	}
	return out
}

// span gives the whole characters of the original that a non-empty stretch of the
// text is from.
func (p piece) span(start, end int) Span {
	if p.from != nil {
		return Span{int(p.from[start].start), int(p.from[end-1].end)}
	}
	for start > 0 && !utf8.RuneStart(p.text[start]) {
		start--
	}
	for end < len(p.text) && !utf8.RuneStart(p.text[end]) {
		end++
	}
	return Span{p.at + start, p.at + end}
}

// sources gives from, also where it was not needed so far.
func (p piece) sources() []from {
	if p.from != nil {
		return p.from
	}
	out := make([]from, 0, len(p.text))
	for i, r := range p.text {
		n := utf8.RuneLen(r)
		for range n {
			out = append(out, from{uint32(p.at + i), uint32(p.at + i + n)})
		}
	}
	return out
}

type normalizer interface {
	normalize(p piece, left *int) (piece, error)
}

// normalizers work one after the other.
type normalizers []normalizer

func (s normalizers) normalize(p piece, left *int) (piece, error) {
	for _, n := range s {
		var err error
		if p, err = n.normalize(p, left); err != nil {
			return p, err
		}
	}
	return p, nil
}

// prepend puts a text before any text that is not empty. What is added, and the
// first character too, are from that character.
type prepend string

func (n prepend) normalize(p piece, _ *int) (piece, error) {
	if p.text == "" || n == "" {
		return p, nil
	}
	sources := p.sources()
	first := make([]from, len(n), len(n)+len(sources))
	for i := range first {
		first[i] = sources[0]
	}
	return piece{text: string(n) + p.text, at: p.at, from: append(first, sources...)}, nil
}

// replace puts a text in the place of each match, from the match's last character.
type replace struct {
	find finder
	with string
}

func (n replace) normalize(p piece, left *int) (piece, error) {
	start, end, ok, err := n.find.find(p.text, 0, left)
	if err != nil || !ok {
		return p, err
	}
	sources := p.sources()
	var text strings.Builder
	text.Grow(len(p.text) + len(p.text)/4)
	out := make([]from, 0, len(sources)+len(sources)/4)
	last := 0
	for ok {
		text.WriteString(p.text[last:start])
		out = append(out, sources[last:start]...)
		text.WriteString(n.with)
		for range len(n.with) {
			out = append(out, sources[end-1])
		}
		last = end
		if text.Len() > maxChanged {
			return p, errLong
		}
		if start, end, ok, err = n.find.find(p.text, last, left); err != nil {
			return p, err
		}
	}
	text.WriteString(p.text[last:])
	return piece{text: text.String(), at: p.at, from: append(out, sources[last:]...)}, nil
}

// form is a Unicode normal form. The reference has the tables of Unicode 9.0: what
// came later stays as it is and keeps its place.
type form struct {
	form    norm.Form
	canon   norm.Form // its decomposition
	compose bool
}

var forms = map[string]form{
	"NFC":  {norm.NFC, norm.NFD, true},
	"NFD":  {norm.NFD, norm.NFD, false},
	"NFKC": {norm.NFKC, norm.NFKD, true},
	"NFKD": {norm.NFKD, norm.NFKD, false},
}

// mark is a character on its way through a normal form: with its combining class,
// and how many characters less than itself it took from the text, as the
// reference counts them: 1 for one that a decomposition added, below 0 for one
// that others went into.
type mark struct {
	r      rune
	class  uint8
	change int
}

func (f form) normalize(p piece, _ *int) (piece, error) {
	if f.form.IsNormalString(p.text) && strings.IndexFunc(p.text, isLate) < 0 {
		return p, nil
	}
	marks := f.decompose(p.text)
	if f.compose {
		marks = compose(marks)
	}
	return rewrite(p, marks), nil
}

func isLate(r rune) bool { return r >= utf8.RuneSelf && unicode.Is(lateTable, r) }

func (f form) decompose(text string) []mark {
	out := make([]mark, 0, len(text))
	pending := 0 // where characters begin that are not in order yet
	settle := func() {
		slices.SortStableFunc(out[pending:], func(a, b mark) int { return int(a.class) - int(b.class) })
		pending = len(out)
	}
	for _, r := range text {
		parts := string(r)
		if !isLate(r) {
			parts = f.canon.String(parts)
		}
		change := 0
		for _, part := range parts {
			m := mark{part, class(part), change}
			if m.class == 0 {
				settle()
			}
			out = append(out, m)
			change = 1
		}
	}
	settle()
	return out
}

func class(r rune) uint8 {
	if r < utf8.RuneSelf || isLate(r) {
		return 0
	}
	return norm.NFD.PropertiesString(string(r)).CCC()
}

// compose joins characters with the starter before them unless another of their
// class, or of a higher one, is between.
func compose(in []mark) []mark {
	out := in[:0:0]
	starter := -1 // its place in out
	blocked := -1 // the class of the last character that stayed after it
	for _, m := range in {
		if starter >= 0 && (blocked < 0 || blocked < int(m.class)) {
			if r, ok := pair(out[starter].r, m.r); ok {
				out[starter].r = r
				out[starter].change += m.change - 1
				continue
			}
		}
		out = append(out, m)
		switch {
		case m.class == 0:
			starter, blocked = len(out)-1, -1
		case starter >= 0:
			blocked = int(m.class)
		}
	}
	return out
}

func pair(a, b rune) (rune, bool) {
	if isLate(a) || isLate(b) || b < utf8.RuneSelf {
		return 0, false
	}
	joined := norm.NFC.String(string([]rune{a, b}))
	r, n := utf8.DecodeRuneInString(joined)
	return r, n == len(joined)
}

// rewrite gives each character the source that the reference gives it, which goes
// by how many characters each stands for.
func rewrite(p piece, marks []mark) piece {
	sources := p.sources()
	var text strings.Builder
	text.Grow(len(p.text))
	out := make([]from, 0, len(sources))
	offset := 0
	skip := func() {
		if offset < len(p.text) {
			_, n := utf8.DecodeRuneInString(p.text[offset:])
			offset += n
		}
	}
	for _, m := range marks {
		at := min(offset, len(sources)-1)
		if m.change > 0 {
			at = offset - 1
		}
		source := from{}
		if at >= 0 {
			source = sources[at]
		}
		for range utf8.RuneLen(m.r) {
			out = append(out, source)
		}
		text.WriteRune(m.r)
		for n := m.change; n <= 0; n++ {
			skip()
		}
	}
	return piece{text: text.String(), at: p.at, from: out}
}

func (l *loader) loadNormalizer(raw json.RawMessage) error {
	kind, err := typeOf(raw)
	if err != nil || kind == "" {
		return err
	}
	if len(l.normalizer) > maxStages {
		return errors.New("there are too many")
	}
	var c struct {
		Normalizers []json.RawMessage
		Prepend     string
		Pattern     patternField
		Content     string
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	if max(len(c.Prepend), len(c.Content)) > maxToken {
		return fmt.Errorf("the text of %s is longer than %d bytes", kind, maxToken)
	}
	var n normalizer
	switch f, ok := forms[kind]; {
	case ok:
		n = f
	case kind == "Sequence":
		for _, sub := range c.Normalizers {
			if err := l.loadNormalizer(sub); err != nil {
				return err
			}
		}
		return nil
	case kind == "Prepend":
		n = prepend(c.Prepend)
	case kind == "Replace":
		f, err := c.Pattern.compile()
		if err != nil {
			return err
		}
		n = replace{f, c.Content}
	default:
		return refusal("the normalizer " + kind)
	}
	l.normalizer = append(l.normalizer, n)
	return nil
}
