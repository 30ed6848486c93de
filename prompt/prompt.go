package prompt

import (
	"context"

	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

// Span is a half-open range of bytes of a Prompt's Text.
type Span = tokenizer.Span

// Encoder turns rendered text into tokens: our own engine, the Rust one behind a
// build tag (prompt/hf), or an engine that is asked (prompt/remote).
type Encoder interface {
	// Encode gives the tokens of text. With special it adds what the tokenizer
	// adds to a plain text, such as a BOS; a rendered chat has those already.
	Encode(ctx context.Context, text string, special bool) (tokenizer.Encoding, error)
	// Name says in a few words whose tokens these are, for the answer: "pure Go".
	Name() string
}

// Prompt is a request as an engine sees it.
type Prompt struct {
	// Text is what was tokenized, empty where token ids were given.
	Text string
	// Parts cover Text in order, without gaps or overlaps.
	Parts  []Part
	Tokens []wire.Token
	// Spans has one entry per token, nil where there is no text or the encoder
	// tells no offsets.
	Spans []Span
	// Template and Encoder say how it was made: "chat template of
	// tokenizer_config.json", "pure Go"; empty where not used.
	Template, Encoder string
	// Doubt is how many tokens at the end may be others in the engine: those from an
	// image on, in whose place it puts its own.
	Doubt int
	// Model is the one that the request names, maybe by an alias. LoRA and Salt
	// fold into the hashes of blocks.
	Model, LoRA, Salt string
	// Notes are what else the reader should know, such as parameters that were
	// not taken into account.
	Notes []string
}

// Kind says what a part of a prompt is.
type Kind uint8

// The kinds of parts.
const (
	// Markup is what the template itself wrote: role headers, separators, its own
	// instructions.
	Markup Kind = iota
	// Content is the text of a message.
	Content
	// Tools is where the tools are declared.
	Tools
	// Call is a message's tool calls.
	Call
	// Opening is the generation prompt at the end.
	Opening
	// Plain is the text of a prompt without messages.
	Plain
)

var kindWords = [...]string{"markup", "content", "tools", "tool calls", "generation prompt", "text"}

func (k Kind) String() string { return kindWords[k] }

// Part is a stretch of a prompt's text.
type Part struct {
	Span
	Kind Kind
	// Message is the index of the message that it belongs to, in the order of the
	// request, -1 for none; Role is that message's. Markup before a message's
	// content belongs to that message.
	Message int
	Role    string
}

// PartAt gives the index of the part that holds a byte of Text, -1 beyond its end.
func (p *Prompt) PartAt(offset int) int {
	for i, part := range p.Parts {
		if offset < part.End {
			return i
		}
	}
	return -1
}
