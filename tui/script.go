package tui

import (
	"math"
	"sort"
	"strconv"
	"strings"

	prompts "github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// script is a prompt as it is read on the screen: which text each of its tokens
// stands for.
type script struct {
	*prompts.Prompt
	// starts is where the text of each token begins, nil where there is no text or
	// nobody told which token is what of it.
	starts []uint32
}

// newScript works out what drawing needs of a prompt, in one pass: a prompt can
// have millions of tokens.
func newScript(p *prompts.Prompt) *script {
	s := &script{Prompt: p}
	if p.Text == "" || len(p.Spans) != len(p.Tokens) || len(p.Text) > math.MaxUint32 {
		return s
	}
	s.starts = make([]uint32, len(p.Spans))
	end := 0 // of all tokens before
	for i, span := range p.Spans {
		// A token that shares its character with the one before has no text of its
		// own; what lies between two tokens belongs to the first.
		at := min(max(end, span.Start), len(p.Text))
		if i == 0 {
			at = 0
		}
		s.starts[i] = uint32(at)
		end = min(max(end, at, span.End), len(p.Text))
	}
	return s
}

// offset gives where the text of a token begins.
func (s *script) offset(token int) int {
	if token >= len(s.starts) {
		return len(s.Text)
	}
	return int(s.starts[token])
}

// maxRun is how much of the text of one run of tokens is looked at, in bytes. A
// block of text is far shorter; what is not was made so.
const maxRun = 16 << 10

// run gives the text of tokens from to before to: their part of the prompt's text,
// what a tokenizer says of each, or else their ids. It can be cut; more says by
// how many bytes at least.
func (s *script) run(w Words, from, to int) (text string, more int) {
	to = min(to, len(s.Tokens))
	if from >= to {
		return "", 0
	}
	if s.starts != nil {
		text = s.Text[s.offset(from):s.offset(to)]
	} else if said, ok := spelled(w, s.Tokens[from:to], maxRun); ok {
		text = said
	} else {
		text = numbers(s.Tokens[from:to]) + " "
	}
	if len(text) > maxRun {
		return text[:maxRun], len(text) - maxRun
	}
	return text, 0
}

// worded says whether runs are text, and not ids.
func (s *script) worded(w Words) bool {
	if s.starts != nil {
		return true
	}
	_, ok := spelled(w, s.Tokens[:min(len(s.Tokens), 1)], maxRun)
	return ok
}

// numbers lists tokens by their ids, and stops once they are too many to show.
func numbers(tokens []wire.Token) string {
	var b strings.Builder
	for i, t := range tokens {
		if i > 0 {
			b.WriteByte(' ')
		}
		if b.WriteString(strconv.FormatUint(uint64(t), 10)); b.Len() > maxRun {
			break
		}
	}
	return b.String()
}

// part gives the index of the part of a byte of the text, -1 if there is none.
func (s *script) part(offset int) int {
	i := sort.Search(len(s.Parts), func(i int) bool { return offset < s.Parts[i].End })
	if i == len(s.Parts) {
		return -1
	}
	return i
}

// speaker names whose text a part is: the message's role, or what stands outside
// of messages.
func speaker(p *prompts.Part) string {
	switch {
	case p.Kind == prompts.Tools:
		return "tools"
	case p.Kind == prompts.Opening:
		return "opening"
	case p.Message < 0 || p.Kind == prompts.Plain:
		return ""
	}
	return clean(p.Role)
}

// turn is a place where another one speaks.
type turn struct {
	offset int
	who    string
}

// turns gives those in a range of the text, and the one at its start if the part
// there begins at it.
func (s *script) turns(from, to int) []turn {
	var out []turn
	at := s.part(from)
	if at < 0 || s.starts == nil {
		return nil
	}
	for ; at < len(s.Parts) && s.Parts[at].Start < to; at++ {
		p := &s.Parts[at]
		if p.Start < from || at > 0 && s.Parts[at-1].Message == p.Message && speaker(&s.Parts[at-1]) == speaker(p) {
			continue
		}
		out = append(out, turn{p.Start, speaker(p)})
	}
	return out
}

// named says whether anybody speaks.
func (s *script) named() bool {
	return s.starts != nil && (len(s.Parts) > 1 || len(s.Parts) == 1 && speaker(&s.Parts[0]) != "")
}

// inMessage says in words in which message a token is, from 0.
func (s *script) inMessage(token int) string {
	if s.starts == nil {
		return ""
	}
	at := s.part(s.offset(token))
	if at < 0 {
		return ""
	}
	who := speaker(&s.Parts[at])
	if m := s.Parts[at].Message; m >= 0 && who != "" {
		return "message " + wire.Grouped(m) + ", " + who
	}
	return who
}

// madeBy says which template and tokenizer made the prompt.
func (s *script) madeBy() string {
	var words []string
	if s.Template != "" {
		words = append(words, clean(s.Template))
	}
	if s.Encoder != "" {
		words = append(words, "tokenizer: "+clean(s.Encoder))
	}
	return strings.Join(words, ", ")
}
