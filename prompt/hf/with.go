//go:build hftok

package hf

import (
	"fmt"

	"github.com/daulet/tokenizers"

	"github.com/kvscope/kvscope/prompt/tokenizer"
)

// Available reports whether this program has the Rust library.
const Available = true

type library struct{ t *tokenizers.Tokenizer }

func open(data []byte) (rust, error) {
	t, err := tokenizers.FromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: the Rust tokenizer refuses it: %w", err)
	}
	return library{t}, nil
}

func (l library) encode(text string, special bool) ([]uint32, []tokenizer.Span) {
	got := l.t.EncodeWithOptions(text, special, tokenizers.WithReturnOffsets())
	spans := make([]tokenizer.Span, len(got.Offsets))
	for i, o := range got.Offsets {
		spans[i] = tokenizer.Span{Start: int(o[0]), End: int(o[1])}
	}
	return got.IDs, spans
}

func (l library) close() { _ = l.t.Close() } // it never fails
