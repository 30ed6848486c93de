package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kvscope/kvscope/wire"
)

// processor is a post-processor: it works on the tokens of the whole text.
type processor func(t *Tokenizer, text string, out *Encoding, special bool)

// template puts special tokens before and after the text's.
func template(before, after []wire.Token) processor {
	return func(_ *Tokenizer, _ string, out *Encoding, special bool) {
		if !special {
			return
		}
		ids := make([]wire.Token, 0, len(before)+len(out.IDs)+len(after))
		ids = append(append(append(ids, before...), out.IDs...), after...)
		spans := make([]Span, len(before), len(ids))
		spans = append(append(spans, out.Spans...), make([]Span, len(after))...)
		*out = Encoding{ids, spans}
	}
}

// trim takes white space off the spans of tokens, as many characters as the token
// has of it. With prefix, the one space that a tokenizer may have added before the
// text stays.
func trim(prefix bool) processor {
	return func(t *Tokenizer, text string, out *Encoding, _ bool) {
		for i, id := range out.IDs {
			token := t.tokens[id]
			space := func(r rune) bool { return r == ' ' } // the only one that bytes are spelled as
			if _, added := t.added[uint32(id)]; added {
				space = unicode.IsSpace
			}
			leading := utf8.RuneCountInString(token) - utf8.RuneCountInString(strings.TrimLeftFunc(token, space))
			trailing := utf8.RuneCountInString(token) - utf8.RuneCountInString(strings.TrimRightFunc(token, space))
			s := &out.Spans[i]
			if leading == 1 && prefix && (i == 0 || s.Start == 0) {
				leading = 0
			}
			for ; leading > 0 && s.Start < s.End; leading-- {
				_, n := utf8.DecodeRuneInString(text[s.Start:])
				s.Start += n
			}
			if trailing > utf8.RuneCountInString(text[max(0, s.End-utf8.UTFMax*trailing):s.End]) {
				continue // the text before is shorter than that
			}
			for ; trailing > 0 && s.Start < s.End; trailing-- {
				_, n := utf8.DecodeLastRuneInString(text[:s.End])
				s.End -= n
			}
		}
	}
}

// templatePiece is an entry of a TemplateProcessing.
type templatePiece struct {
	SpecialToken, Sequence *struct{ ID string }
}

func (l *loader) loadPost(raw json.RawMessage) error {
	kind, err := typeOf(raw)
	if err != nil || kind == "" {
		return err
	}
	if len(l.post) > maxStages {
		return errors.New("there are too many post-processors")
	}
	c := struct {
		Processors     []json.RawMessage
		Single         []templatePiece
		SpecialTokens  map[string]struct{ IDs []wire.Token } `json:"special_tokens"`
		AddPrefixSpace bool                                  `json:"add_prefix_space"`
		TrimOffsets    bool                                  `json:"trim_offsets"`
	}{AddPrefixSpace: true, TrimOffsets: true}
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	switch kind {
	case "Sequence":
		for _, sub := range c.Processors {
			if err := l.loadPost(sub); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		if !c.TrimOffsets {
			return nil
		}
		if !l.pre.bytes {
			return refusal("trim_offsets of ByteLevel without the pre-tokenizer ByteLevel")
		}
		l.post = append(l.post, trim(c.AddPrefixSpace))
		return nil
	case "TemplateProcessing":
		var parts [2][]wire.Token // before and after the text
		texts := 0
		for _, p := range c.Single {
			switch {
			case p.Sequence != nil && p.Sequence.ID == "A" && texts == 0:
				texts++
			case p.SpecialToken != nil:
				token, ok := c.SpecialTokens[p.SpecialToken.ID]
				for _, id := range token.IDs {
					ok = ok && id < wire.Token(len(l.present)) && l.present[id]
				}
				if !ok {
					return fmt.Errorf("TemplateProcessing has no token for %.100q", p.SpecialToken.ID)
				}
				parts[texts] = append(parts[texts], token.IDs...)
			default:
				return refusal("a TemplateProcessing of other parts than tokens and one text")
			}
		}
		if texts == 0 {
			return refusal("a TemplateProcessing without the text")
		}
		if len(parts[0])+len(parts[1]) > maxAdded {
			return errors.New("TemplateProcessing adds too many tokens")
		}
		l.post = append(l.post, template(parts[0], parts[1]))
		return nil
	}
	return refusal("the post-processor " + kind)
}
