package tokenizer

import "github.com/kvscope/kvscope/wire"

// Span is a half-open range of bytes of a text.
type Span struct{ Start, End int }

// Encoding is a text as tokens. Spans has one entry per id: the bytes of the text
// that the token stands for, as HuggingFace's tokenizers reports offsets (there in
// characters). It is empty for tokens that stand for no text, such as a BOS that
// the post-processor adds; tokens that share one character have overlapping spans.
type Encoding struct {
	IDs   []wire.Token
	Spans []Span
}
