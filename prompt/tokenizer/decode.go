package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kvscope/kvscope/wire"
)

// maxReplaced is how long the text may be, in bytes, that a decoder puts in the
// place of another.
const maxReplaced = 16

// decoder works on the texts of tokens.
type decoder struct {
	do func(texts []string) []string
	// ends says that it is about the two ends of a text, not about what a token
	// stands for.
	ends bool
}

// Decode gives the text of tokens, special ones included. Bytes stay as they are,
// also where they are no UTF-8; ids that are none of the vocabulary's are left out.
func (t *Tokenizer) Decode(ids []wire.Token) string {
	texts := make([]string, 0, len(ids))
	for _, id := range ids {
		if id < wire.Token(len(t.present)) && t.present[id] {
			texts = append(texts, t.tokens[id])
		}
	}
	for _, d := range t.decoders {
		texts = d.do(texts)
		size := 0
		for i, text := range texts {
			if size += len(text); size > maxChanged { // rules that would never end
				texts = texts[:i]
				break
			}
		}
	}
	return strings.Join(texts, "")
}

// Token gives the bytes that a token stands for by itself, and whether it is a
// special one. It is false for an id that is none of the vocabulary's.
func (t *Tokenizer) Token(id wire.Token) (text string, special, ok bool) {
	if id >= wire.Token(len(t.present)) || !t.present[id] {
		return "", false, false
	}
	text = t.tokens[id]
	special, added := t.added[uint32(id)]
	if added {
		return text, special, true
	}
	texts := []string{text}
	for _, d := range t.decoders {
		if !d.ends {
			texts = d.do(texts)
		}
	}
	return strings.Join(texts, ""), false, true
}

// each makes a decoder of what happens to every token by itself.
func each(f func(string) string) func([]string) []string {
	return func(texts []string) []string {
		for i := range texts {
			texts[i] = f(texts[i])
		}
		return texts
	}
}

func fuse(texts []string) []string { return []string{strings.Join(texts, "")} }

// fallback gives the byte that a token such as <0x0A> stands for.
func fallback(text string) string {
	if len(text) == 6 && strings.HasPrefix(text, "<0x") && text[5] == '>' {
		if b, err := strconv.ParseUint(text[3:5], 16, 8); err == nil {
			return string([]byte{byte(b)})
		}
	}
	return text
}

func strip(content string, start, stop int) func(string) string {
	return func(text string) string {
		for range start {
			text = strings.TrimPrefix(text, content)
		}
		for range stop {
			text = strings.TrimSuffix(text, content)
		}
		return text
	}
}

// spaces is Metaspace's way back; what it put before the text goes.
func spaces(sign string, prefix bool) []decoder {
	back := decoder{do: each(func(text string) string { return strings.ReplaceAll(text, sign, " ") })}
	if !prefix {
		return []decoder{back}
	}
	first := decoder{ends: true, do: func(texts []string) []string {
		if len(texts) > 0 {
			texts[0] = strings.ReplaceAll(texts[0], sign, "")
		}
		return texts
	}}
	return []decoder{first, back}
}

func (l *loader) loadDecoder(raw json.RawMessage) error {
	kind, err := typeOf(raw)
	if err != nil || kind == "" {
		return err
	}
	if len(l.decoders) > maxStages {
		return errors.New("there are too many decoders")
	}
	var c struct {
		Decoders       []json.RawMessage
		Pattern        patternField
		Content        string
		Start, Stop    int
		Replacement    string
		PrependScheme  string `json:"prepend_scheme"`
		AddPrefixSpace *bool  `json:"add_prefix_space"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	add := func(f func([]string) []string) { l.decoders = append(l.decoders, decoder{do: f}) }
	switch kind {
	case "Sequence":
		for _, sub := range c.Decoders {
			if err := l.loadDecoder(sub); err != nil {
				return err
			}
		}
	case "ByteLevel":
		if !l.pre.bytes { // whose tokens are bytes already
			return refusal("the decoder ByteLevel without the pre-tokenizer")
		}
	case "ByteFallback":
		add(each(fallback))
	case "Fuse":
		add(fuse)
	case "Replace":
		if c.Pattern.String == nil || *c.Pattern.String == "" {
			return refusal("the decoder Replace of a regular expression")
		}
		if len(c.Content) > maxReplaced {
			return fmt.Errorf("the text of the decoder Replace is longer than %d bytes", maxReplaced)
		}
		old := *c.Pattern.String
		add(each(func(text string) string { return strings.ReplaceAll(text, old, c.Content) }))
	case "Strip":
		if utf8.RuneCountInString(c.Content) != 1 || c.Start < 0 || c.Stop < 0 || max(c.Start, c.Stop) > maxToken {
			return errors.New("the decoder Strip is broken: fetch the file again")
		}
		l.decoders = append(l.decoders, decoder{do: each(strip(c.Content, c.Start, c.Stop)), ends: true})
	case "Metaspace":
		if utf8.RuneCountInString(c.Replacement) != 1 {
			return errors.New("the replacement of Metaspace is not one character")
		}
		never := c.PrependScheme == "never" || c.AddPrefixSpace != nil && !*c.AddPrefixSpace
		l.decoders = append(l.decoders, spaces(c.Replacement, !never)...)
	default:
		return refusal("the decoder " + kind)
	}
	return nil
}
