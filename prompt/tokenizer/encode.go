package tokenizer

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/kvscope/kvscope/wire"
)

const (
	maxText    = 16 << 20 // bytes
	maxChanged = 64 << 20 // bytes of a text that a tokenizer's own rules make longer
)

var errLong = errors.New("the tokenizer's normalizer makes this text too long: cut the text")

// encoder is one call of Encode.
type encoder struct {
	t    *Tokenizer
	left int // steps of patterns
	out  Encoding

	symbols []symbol // of the word at hand
	heap    []uint64
}

// encoders keeps the working space of calls.
var encoders = sync.Pool{New: func() any { return &encoder{} }}

// Encode gives the tokens of a text. The tokens of the vocabulary that the text
// spells, such as <|im_end|>, are found with and without special, which adds what
// the tokenizer adds to a plain text.
func (t *Tokenizer) Encode(text string, special bool) (Encoding, error) {
	if len(text) > maxText {
		return Encoding{}, fmt.Errorf("the text has %d bytes, more than %d: cut it", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return Encoding{}, errors.New("the text is not UTF-8: tokenizers take nothing else")
	}
	e := encoders.Get().(*encoder)
	defer func() {
		*e = encoder{symbols: e.symbols, heap: e.heap}
		if cap(e.symbols) <= maxKept {
			encoders.Put(e)
		}
	}()
	e.t, e.left = t, stepsPerByte*(len(text)+100)
	guess := len(text)/4 + 8
	e.out = Encoding{make([]wire.Token, 0, guess), make([]Span, 0, guess)}
	err := t.raw.each(piece{text: text}, &e.left, e.token, func(p piece) error {
		p, err := t.normalizer.normalize(p, &e.left)
		if err != nil {
			return err
		}
		return t.normalized.each(p, &e.left, e.token, func(p piece) error { return e.pre(p, 0) })
	})
	if err != nil {
		return Encoding{}, err
	}
	for _, p := range t.post {
		p(t, text, &e.out, special)
	}
	return e.out, nil
}

// maxKept is the working space, in symbols, that is kept for the next call.
const maxKept = 1 << 16

func (e *encoder) add(id uint32, s Span) {
	e.out.IDs = append(e.out.IDs, wire.Token(id))
	e.out.Spans = append(e.out.Spans, s)
}

// token adds an added token.
func (e *encoder) token(id uint32, p piece) { e.add(id, p.span(0, len(p.text))) }

// pre hands a piece to the pre-tokenizers from the given one on, and what remains
// to the model.
func (e *encoder) pre(p piece, stage int) error {
	if p.text == "" {
		return nil
	}
	if stage < len(e.t.pre.stages) {
		return e.t.pre.stages[stage].split(e, p, stage+1)
	}
	e.word(p)
	return nil
}
