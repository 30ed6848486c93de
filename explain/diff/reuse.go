package diff

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// reuse counts blocks as the package's comment says.
func (c *comparison) reuse(d *Diff, opt Options) {
	if d.Namespace != "" {
		return
	}
	r := &d.Reuse
	r.Now = d.common() / opt.BlockSize
	r.Moved, r.Removed = r.Now, r.Now
	if !remedied(d.Spans) {
		return
	}
	moved, removed := c.cutTokens(d.Spans)
	if opt.Encode != nil && c.a.hasText() && c.b.hasText() {
		m, rm, err := c.cutText(d.Spans, opt)
		if err != nil {
			d.Notes = append(d.Notes, fmt.Sprintf("the moved text cannot be tokenized, so its tokens are moved: %v", err))
		} else {
			moved, removed, r.Retokenized = m, rm, true
		}
	}
	r.Moved, r.Removed = min(moved, d.Certain)/opt.BlockSize, min(removed, d.Certain)/opt.BlockSize
	r.Lost = max(r.Moved-r.Now, 0)
}

func remedied(spans []Span) bool {
	for _, s := range spans {
		if s.Remedied {
			return true
		}
	}
	return false
}

// cutTokens gives the tokens that both prompts share with the spans moved last, and
// removed.
func (c *comparison) cutTokens(spans []Span) (moved, removed int) {
	var tails, rest [2][]wire.Token
	atA, atB := 0, 0
	a, b := c.a.units, c.b.units
	for _, s := range spans {
		if !s.Remedied {
			continue
		}
		rest[0] = append(rest[0], a[atA:s.A.Start]...)
		rest[1] = append(rest[1], b[atB:s.B.Start]...)
		inA, inB := a[s.A.Start:s.A.End], b[s.B.Start:s.B.End]
		if s.Remedy == SameForm {
			rest[0], rest[1] = append(rest[0], inA...), append(rest[1], inA...)
		} else {
			tails[0], tails[1] = append(tails[0], inA...), append(tails[1], inB...)
		}
		atA, atB = s.A.End, s.B.End
	}
	rest[0], rest[1] = append(rest[0], a[atA:]...), append(rest[1], b[atB:]...)
	removed = wire.CommonPrefix(rest[0], rest[1])
	return wire.CommonPrefix(append(rest[0], tails[0]...), append(rest[1], tails[1]...)), removed
}

// cutText does the same with texts, and tokenizes them.
func (c *comparison) cutText(spans []Span, opt Options) (moved, removed int, err error) {
	var tails, rest [2]strings.Builder
	atA, atB := 0, 0
	a, b := c.a.text, c.b.text
	for _, s := range spans {
		if !s.Remedied {
			continue
		}
		rest[0].WriteString(a[atA:s.A.From])
		rest[1].WriteString(b[atB:s.B.From])
		inA, inB := a[s.A.From:s.A.To], b[s.B.From:s.B.To]
		if s.Remedy == SameForm {
			rest[0].WriteString(inA)
			rest[1].WriteString(inA)
		} else {
			tails[0].WriteString(inA)
			tails[1].WriteString(inB)
		}
		atA, atB = s.A.To, s.B.To
	}
	rest[0].WriteString(a[atA:])
	rest[1].WriteString(b[atB:])
	var ids [2][]wire.Token
	var spansOf [2][]prompt.Span
	for i := range ids {
		text := rest[i].String() + tails[i].String()
		if i == 1 && text == rest[0].String()+tails[0].String() {
			ids[1], spansOf[1] = ids[0], spansOf[0]
			break
		}
		if ids[i], spansOf[i], err = opt.Encode(text); err != nil {
			return 0, 0, err
		}
		if len(spansOf[i]) != len(ids[i]) {
			return 0, 0, errors.New("the tokenizer does not tell which token is which text")
		}
	}
	moved = wire.CommonPrefix(ids[0], ids[1])
	removed = moved
	for removed > 0 && (spansOf[0][removed-1].End > rest[0].Len() || spansOf[1][removed-1].End > rest[1].Len()) {
		removed--
	}
	return moved, removed, nil
}
