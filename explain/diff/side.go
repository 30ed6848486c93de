package diff

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// side is one prompt as units that can be compared: its tokens, or the words of
// its text where a prompt has no tokens.
type side struct {
	p     *prompt.Prompt
	units []wire.Token
	// text is empty and starts nil where the text of tokens is not known. Else
	// starts has the byte at which each unit begins, never falling, and the length
	// of the text behind the last.
	text   string
	starts []int
}

func (s *side) hasText() bool { return s.starts != nil }

// comparison is the work on two prompts.
type comparison struct {
	a, b *side
	// counted is set where units are tokens.
	counted bool
	// notes are of how the sides could be read.
	notes []string
	// budget is how many bytes recognisers may still read as JSON or lists.
	budget int
}

// maxRead bounds what the recognisers of one comparison read as JSON or lists, in
// bytes.
const maxRead = 4 << 20

func newComparison(a, b *prompt.Prompt) (*comparison, error) {
	c := &comparison{budget: maxRead}
	c.counted = counts(a) && counts(b)
	if !c.counted {
		if a.Text == "" && len(a.Tokens) > 0 || b.Text == "" && len(b.Tokens) > 0 {
			return nil, errNothing
		}
		c.a, c.b = words(a), words(b)
		return c, nil
	}
	c.a, c.b = c.tokens("A", a), c.tokens("B", b)
	return c, nil
}

// counts reports whether a prompt can be compared by tokens.
func counts(p *prompt.Prompt) bool { return len(p.Tokens) > 0 || p.Text == "" }

func (c *comparison) tokens(name string, p *prompt.Prompt) *side {
	s := &side{p: p, units: p.Tokens}
	switch {
	case p.Text == "" && len(p.Tokens) > 0:
		c.notes = append(c.notes, name+" has token ids without text, so classes are what tokens tell: give the tokenizer that they are of (--tokenizer)")
	case len(p.Spans) != len(p.Tokens):
		c.notes = append(c.notes, "the tokenizer of "+name+" does not tell which token is which text, so classes are what tokens tell")
	default:
		s.text = p.Text
		s.starts = make([]int, 0, len(p.Tokens)+1)
		at := 0 // where the last token that stands for text began
		end := 0
		for _, span := range p.Spans {
			if span.Start < span.End {
				at, end = max(at, min(span.Start, len(p.Text))), span.End
			} else {
				at = max(at, min(end, len(p.Text)))
			}
			s.starts = append(s.starts, at)
		}
		s.starts = append(s.starts, len(p.Text))
	}
	return s
}

// words cuts a text into words, and all else into characters.
func words(p *prompt.Prompt) *side {
	s := &side{p: p, text: p.Text, starts: []int{}}
	for i := 0; i < len(p.Text); {
		rest := p.Text[i:]
		n := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) })
		switch {
		case n < 0:
			n = len(rest)
		case n == 0:
			_, n = utf8.DecodeRuneInString(rest)
		}
		s.units, s.starts = append(s.units, wire.Token(xxh3.HashString(rest[:n]))), append(s.starts, i)
		i += n
	}
	s.starts = append(s.starts, len(p.Text))
	return s
}

// covering gives the units that hold a byte of from to to.
func (s *side) covering(from, to int) (start, end int) {
	n := len(s.units)
	start = sort.Search(n, func(i int) bool { return s.starts[i+1] > from })
	end = sort.Search(n, func(i int) bool { return s.starts[i] >= to })
	return start, max(start, end)
}

// where says in which part a unit or byte is; byte is -1 without text.
func (s *side) where(byt int) Where {
	w := Where{Message: -1, Part: prompt.Plain}
	parts := s.p.Parts
	if byt < 0 || len(parts) == 0 {
		return w
	}
	i := sort.Search(len(parts), func(i int) bool { return byt < parts[i].End })
	i = min(i, len(parts)-1) // the end of the text belongs to the last part
	return Where{Message: parts[i].Message, Role: parts[i].Role, Part: parts[i].Kind}
}

// place describes where one side parts at a unit and byte.
func (s *side) place(byt int) Place {
	p := Place{Byte: byt, Where: s.where(byt)}
	if byt >= 0 {
		p.Before = s.text[min(ceilRune(s.text, max(byt-Around, 0)), byt):byt]
		p.After = s.text[byt:max(floorRune(s.text, min(byt+Around, len(s.text))), byt)]
	}
	return p
}

// clip gives the beginning of a stretch of text.
func (s *side) clip(from, to int) string {
	if to-from > MaxText {
		to = max(from, floorRune(s.text, from+MaxText))
	}
	return s.text[from:to]
}

// floorRune moves a place back to where a character begins, ceilRune on. In bytes
// that are no text they may stay.
func floorRune(s string, i int) int {
	for j := i; j > i-utf8.UTFMax && j >= 0; j-- {
		if j == len(s) || utf8.RuneStart(s[j]) {
			return j
		}
	}
	return i
}

func ceilRune(s string, i int) int {
	for j := i; j < i+utf8.UTFMax; j++ {
		if j == len(s) || utf8.RuneStart(s[j]) {
			return j
		}
	}
	return i
}

func commonSuffix(a, b []wire.Token) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[len(a)-1-i] != b[len(b)-1-i] {
			return i
		}
	}
	return n
}

// textPrefix counts the leading bytes that two texts share, in whole characters.
func textPrefix(a, b string) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i == len(a) && i == len(b) {
		return i
	}
	return min(floorRune(a, i), floorRune(b, i))
}

func textSuffix(a, b string) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[len(a)-1-i] == b[len(b)-1-i] {
		i++
	}
	return min(len(a)-ceilRune(a, len(a)-i), len(b)-ceilRune(b, len(b)-i))
}
