package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// stage is a pre-tokenizer. It hands what it makes of a piece on to pre.
type stage interface {
	split(e *encoder, p piece, next int) error
}

// finder finds what a Split or a Replace looks for, never nothing.
type finder interface {
	find(text string, from int, left *int) (start, end int, ok bool, err error)
}

// literal finds a text.
type literal string

func (l literal) find(text string, from int, _ *int) (int, int, bool, error) {
	i := strings.Index(text[from:], string(l))
	return from + i, from + i + len(l), i >= 0, nil
}

// patternField is a pattern as files have it.
type patternField struct {
	String, Regex *string
}

func (p patternField) compile() (finder, error) {
	switch {
	case p.Regex != nil:
		m, err := compilePattern(*p.Regex)
		if err != nil {
			return nil, fmt.Errorf("the pattern %.200q: %w: %s", *p.Regex, err, otherwise)
		}
		return m, nil
	case p.String != nil && *p.String != "":
		return literal(*p.String), nil
	}
	return nil, refusal("a pattern that is empty")
}

// cut is a stretch between matches, or a match.
type cut struct {
	start, end int
	match      bool
}

// cuts covers a text.
func cuts(f finder, text string, left *int) ([]cut, error) {
	var out []cut
	last := 0
	for last < len(text) {
		start, end, ok, err := f.find(text, last, left)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if start > last {
			out = append(out, cut{last, start, false})
		}
		out = append(out, cut{start, end, true})
		last = end
	}
	if last < len(text) {
		out = append(out, cut{last, len(text), false})
	}
	return out, nil
}

// behaviors say what becomes of the matches of a Split.
var behaviors = map[string]func([]cut) []cut{
	"Removed": func(in []cut) []cut {
		out := in[:0]
		for _, c := range in {
			if !c.match {
				out = append(out, c)
			}
		}
		return out
	},
	"Contiguous": func(in []cut) []cut {
		out := in[:0]
		for i, c := range in {
			if i > 0 && c.match == out[len(out)-1].match {
				out[len(out)-1].end = c.end
			} else {
				out = append(out, c)
			}
		}
		return out
	},
	// Of matches side by side, only the first is merged.
	"MergedWithPrevious": func(in []cut) []cut {
		out := in[:0]
		before := false
		for i, c := range in {
			if i > 0 && c.match && !before {
				out[len(out)-1].end = c.end
			} else {
				out = append(out, c)
			}
			before = c.match
		}
		return out
	},
	// Of matches side by side, only the last is merged.
	"MergedWithNext": func(in []cut) []cut {
		out := in[:0]
		for i, c := range in {
			merged := i > 0 && in[i-1].match && !c.match
			start := c.start
			if merged {
				start = out[len(out)-1].start
				out = out[:len(out)-1]
			}
			out = append(out, cut{start, c.end, c.match})
		}
		return out
	},
}

type split struct {
	find   finder
	merge  func([]cut) []cut // nil: every cut by itself
	invert bool
}

func (s split) split(e *encoder, p piece, next int) error {
	if s.merge == nil {
		return s.isolated(e, p, next)
	}
	all, err := cuts(s.find, p.text, &e.left)
	if err != nil {
		return err
	}
	if s.invert {
		for i := range all {
			all[i].match = !all[i].match
		}
	}
	for _, c := range s.merge(all) {
		if err := e.pre(p.cut(c.start, c.end), next); err != nil {
			return err
		}
	}
	return nil
}

// isolated is what nearly every tokenizer does, without a list of cuts.
func (s split) isolated(e *encoder, p piece, next int) error {
	for last := 0; last < len(p.text); {
		start, end, ok, err := s.find.find(p.text, last, &e.left)
		if err != nil {
			return err
		}
		if !ok {
			return e.pre(p.cut(last, len(p.text)), next)
		}
		if start > last {
			if err := e.pre(p.cut(last, start), next); err != nil {
				return err
			}
		}
		if err := e.pre(p.cut(start, end), next); err != nil {
			return err
		}
		last = end
	}
	return nil
}

// digits is the Split that Digits is.
func digits(individual bool) split {
	numbers, _ := property("N")
	m := &matcher{sets: []set{union(numbers, numeric17)}, program: []inst{{op: inSet, bit: 1}, {op: inMatch}}}
	for c := range m.ascii {
		m.ascii[c] = m.mask(rune(c))
	}
	if individual {
		return split{find: m}
	}
	return split{find: m, merge: behaviors["Contiguous"]}
}

// prefix is ByteLevel's add_prefix_space; the rest of ByteLevel is a Split and a
// model of bytes.
type prefix struct{}

func (prefix) split(e *encoder, p piece, next int) error {
	if !strings.HasPrefix(p.text, " ") {
		p, _ = prepend(" ").normalize(p, nil) // it has no errors
	}
	return e.pre(p, next)
}

// metaspace puts a sign in the place of spaces and before the text.
type metaspace struct {
	sign          string
	always, first bool // where it is put before the text
	cut           bool
}

func (m metaspace) split(e *encoder, p piece, next int) error {
	p, err := replace{literal(" "), m.sign}.normalize(p, &e.left)
	if err != nil {
		return err
	}
	if m.always || m.first && p.span(0, len(p.text)).Start == 0 {
		if !strings.HasPrefix(p.text, m.sign) {
			p, _ = prepend(m.sign).normalize(p, nil) // it has no errors
		}
	}
	if !m.cut {
		return e.pre(p, next)
	}
	return split{find: literal(m.sign), merge: behaviors["MergedWithNext"]}.split(e, p, next)
}

// gpt2 is the pattern that ByteLevel has built in.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// preTokenizer is a chain of stages; bytes says that it ends with ByteLevel, so
// that the model sees bytes.
type preTokenizer struct {
	stages []stage
	bytes  bool
}

func (t *preTokenizer) load(raw json.RawMessage) error {
	kind, err := typeOf(raw)
	if err != nil || kind == "" {
		return err
	}
	if t.bytes {
		return refusal("the pre-tokenizer " + kind + " after ByteLevel")
	}
	if len(t.stages) > maxStages {
		return errors.New("there are too many pre-tokenizers")
	}
	c := struct {
		Pretokenizers  []json.RawMessage
		Pattern        patternField
		Behavior       string
		Invert         bool
		Individual     bool  `json:"individual_digits"`
		AddPrefixSpace *bool `json:"add_prefix_space"`
		UseRegex       bool  `json:"use_regex"`
		Replacement    string
		PrependScheme  string `json:"prepend_scheme"`
		Split          bool
	}{UseRegex: true, Split: true}
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	switch kind {
	case "Sequence":
		for _, sub := range c.Pretokenizers {
			if err := t.load(sub); err != nil {
				return err
			}
		}
		return nil
	case "Split":
		f, err := c.Pattern.compile()
		if err != nil {
			return err
		}
		merge, ok := behaviors[c.Behavior]
		if !ok && c.Behavior != "Isolated" {
			return refusal("the behavior " + c.Behavior + " of Split")
		}
		t.stages = append(t.stages, split{f, merge, c.Invert})
		return nil
	case "Digits":
		t.stages = append(t.stages, digits(c.Individual))
		return nil
	case "ByteLevel":
		if c.AddPrefixSpace == nil || *c.AddPrefixSpace {
			t.stages = append(t.stages, prefix{})
		}
		if c.UseRegex {
			m, err := compilePattern(gpt2)
			if err != nil {
				return err
			}
			t.stages = append(t.stages, split{find: m})
		}
		t.bytes = true
		return nil
	case "Metaspace":
		if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
			c.PrependScheme = "never"
		}
		m := metaspace{sign: c.Replacement, cut: c.Split}
		switch c.PrependScheme {
		case "always", "":
			m.always = true
		case "first":
			m.first = true
		case "never":
		default:
			return refusal("the prepend_scheme " + c.PrependScheme + " of Metaspace")
		}
		if utf8.RuneCountInString(m.sign) != 1 {
			return errors.New("the replacement of Metaspace is not one character")
		}
		t.stages = append(t.stages, m)
		return nil
	}
	return refusal("the pre-tokenizer " + kind)
}
