package hf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

const (
	// maxFile bounds a tokenizer.json, in bytes: the largest known have 40 MB.
	maxFile = 256 << 20
	// maxText bounds a text, in bytes. Rust needs some hundred bytes per token.
	maxText = 64 << 20
)

// rust is what is used of the Rust library.
type rust interface {
	// encode gives ids and byte offsets. It gives nothing where the library
	// fails, and reads texts up to their first NUL.
	encode(text string, special bool) ([]uint32, []tokenizer.Span)
	// close frees its memory; nothing else may be called then.
	close()
}

// Encoder is a tokenizer.json in the Rust library. Close frees its memory.
type Encoder struct {
	mu   sync.RWMutex // held to write by Close alone
	rust rust         // nil when closed
}

var _ prompt.Encoder = (*Encoder)(nil)

// Load reads a tokenizer.json. In a program without the Rust library it fails and
// says how to build one with it.
func Load(data []byte) (*Encoder, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("tokenizer.json of %d MiB: the limit is %d", len(data)>>20, maxFile>>20)
	}
	data, err := whole(data)
	if err != nil {
		return nil, err
	}
	r, err := open(data)
	if err != nil {
		return nil, err
	}
	return &Encoder{rust: r}, nil
}

// whole leaves a file's truncation and padding out: engines encode whole texts
// whatever the file says of those two.
func whole(data []byte) ([]byte, error) {
	var set struct{ Truncation, Padding json.RawMessage }
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	null := []byte("null")
	if (set.Truncation == nil || bytes.Equal(set.Truncation, null)) && (set.Padding == nil || bytes.Equal(set.Padding, null)) {
		return data, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	delete(all, "truncation")
	delete(all, "padding")
	return json.Marshal(all)
}

// Name says whose tokens these are.
func (*Encoder) Name() string { return "HuggingFace tokenizers (Rust)" }

// Encode gives the tokens of a text. Rust is not interrupted once it runs.
func (e *Encoder) Encode(ctx context.Context, text string, special bool) (tokenizer.Encoding, error) {
	var none tokenizer.Encoding
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if len(text) > maxText {
		return none, fmt.Errorf("a text of %d MiB: the limit is %d", len(text)>>20, maxText>>20)
	}
	if at := strings.IndexByte(text, 0); at >= 0 {
		return none, fmt.Errorf("the text has a NUL at byte %d, where the Rust tokenizer would stop: use the pure-Go one", at)
	}
	if !utf8.ValidString(text) {
		return none, errors.New("the text is not UTF-8, so the Rust tokenizer would change it: send it as UTF-8")
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.rust == nil {
		return none, errors.New("the Rust tokenizer is closed")
	}
	ids, spans := e.rust.encode(text, special)
	switch {
	// A vocabulary without a token for what it does not know can make nothing of a
	// text, but a failure looks the same.
	case len(ids) == 0 && text != "":
		return none, errors.New("the Rust tokenizer gave no tokens: it failed and does not say why, or its vocabulary has nothing for this text")
	case len(ids) != len(spans):
		return none, fmt.Errorf("the Rust tokenizer gave %d tokens and %d offsets", len(ids), len(spans))
	}
	out := tokenizer.Encoding{IDs: make([]wire.Token, len(ids)), Spans: spans}
	for i, id := range ids {
		out.IDs[i] = wire.Token(id)
	}
	return out, nil
}

// Close frees the library's memory, once no Encode is running. It may be called
// again.
func (e *Encoder) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rust != nil {
		e.rust.close()
		e.rust = nil
	}
}
