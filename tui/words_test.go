package tui

import (
	"context"
	"errors"
	"strings"

	"pgregory.net/rapid"

	prompts "github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// The special tokens and roles of the recorded fleets, by their ids in Qwen's
// vocabulary.
var told = map[wire.Token]string{
	151643: "<|endoftext|>", 151644: "<|im_start|>", 151645: "<|im_end|>",
	198: "\n", 8948: "system", 872: "user", 77091: "assistant",
}

// syllables make up words for all other tokens.
var syllables = []string{"ka", "lo", "mi", "ne", "ru", "sa", "to", "vi", "el", "an"}

// fakeWords is a tokenizer of which only the text of tokens is needed: roles and
// special ones are as they are recorded, the others are words made of their ids.
type fakeWords struct {
	state string
	busy  bool
	// texts counts the questions, and read the texts that were read.
	texts *int
	read  *[]string
}

func (f fakeWords) State() (string, bool) { return f.state, f.busy }

func (f fakeWords) Text(id wire.Token) (string, bool) {
	if f.texts != nil {
		*f.texts++
	}
	if text, ok := told[id]; ok {
		return text, true
	}
	word := " "
	for n := uint64(id); n > 0; n /= 100 {
		word += syllables[n%10]
	}
	return word, true
}

// Read takes the token ids of a recorded chat for the chat itself.
func (f fakeWords) Read(ctx context.Context, text string) (*prompts.Prompt, error) {
	if f.read != nil {
		*f.read = append(*f.read, text)
	}
	p, err := noWords{}.Read(ctx, text)
	if err != nil {
		return nil, errors.New("the template needs a tool that is not there")
	}
	p.Template, p.Encoder = "qwen3 template", "pure Go"
	part := prompts.Part{Message: -1}
	for i, id := range p.Tokens {
		word, _ := f.Text(id)
		at := len(p.Text)
		if id == 151644 {
			if i > 0 {
				part.End = at
				p.Parts = append(p.Parts, part)
			}
			part = prompts.Part{Span: prompts.Span{Start: at}, Message: part.Message + 1}
			if i+1 < len(p.Tokens) {
				part.Role, _ = f.Text(p.Tokens[i+1])
			}
		}
		p.Text += word
		p.Spans = append(p.Spans, prompts.Span{Start: at, End: len(p.Text)})
	}
	part.End = len(p.Text)
	part.Kind = prompts.Opening
	p.Parts = append(p.Parts, part)
	return p, nil
}

// oddWords say what no tokenizer should.
type oddWords struct{}

func (oddWords) Read(context.Context, string) (*prompts.Prompt, error) {
	return nil, errors.New("\x1b[31mno")
}

func (oddWords) Text(id wire.Token) (string, bool) { return odd[int(id)%len(odd)], id != 69 }

func (oddWords) Encode(context.Context, string) ([]wire.Token, []prompts.Span, error) {
	return []wire.Token{1}, []prompts.Span{{Start: -5, End: 1 << 40}}, nil
}

func (oddWords) State() (string, bool) { return "\x1b]0;state\x07", false }

// odd are texts that break screens.
var odd = []string{
	"", " ", "a", "word", "\n", "\r\n", "\t", "\x1b[2J", "\u202e", "\u200b", "\u0301", "e\u0301", "日本語", "👩\u200d💻", "🇩🇪", "\xff", "\xe6\x97",
	"\x00", "\u009b5m", strings.Repeat("long", 9), strings.Repeat("\u0301", 99), strings.Repeat("\n", 9), strings.Repeat("x", 3*maxRun), "\ufe0f", "한", "\u00a0",
}

// oddPrompt is a prompt of n tokens, with or without a text, parts and spans that
// need not fit each other.
func oddPrompt(t *rapid.T, n int) *prompts.Prompt {
	p := &prompts.Prompt{Tokens: make([]wire.Token, n), Template: "\x1b[1mt", Encoder: "\u202e", Notes: []string{"\x1b[31mnote"}}
	for i := range p.Tokens {
		p.Tokens[i] = wire.Token(rapid.IntRange(0, 99).Draw(t, "token"))
	}
	if rapid.Bool().Draw(t, "ids alone") {
		return p
	}
	hostile := rapid.Bool().Draw(t, "hostile spans")
	for range p.Tokens {
		at := len(p.Text)
		p.Text += rapid.SampledFrom(odd[:len(odd)-1]).Draw(t, "text")
		span := prompts.Span{Start: at, End: len(p.Text)}
		if hostile {
			span = prompts.Span{Start: rapid.IntRange(-9, 999).Draw(t, "start"), End: rapid.IntRange(-9, 999).Draw(t, "end")}
		}
		p.Spans = append(p.Spans, span)
		if rapid.IntRange(0, 9).Draw(t, "part") == 0 || len(p.Spans) == n {
			part := prompts.Part{Kind: prompts.Kind(rapid.IntRange(0, 5).Draw(t, "kind")), Message: len(p.Parts)/2 - 1, Role: "\x1b[5mrole\n"}
			if len(p.Parts) > 0 {
				part.Start = p.Parts[len(p.Parts)-1].End
			}
			part.End = len(p.Text)
			p.Parts = append(p.Parts, part)
		}
	}
	return p
}

// Encode is not needed: without it what a change would give is counted on tokens.
func (fakeWords) Encode(context.Context, string) ([]wire.Token, []prompts.Span, error) {
	return nil, nil, errors.New("words are made up")
}
