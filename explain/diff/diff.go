package diff

import (
	"errors"
	"fmt"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// Options say how two prompts are compared.
type Options struct {
	// BlockSize is the number of tokens of a block, at least 1.
	BlockSize int
	// Encode turns text into tokens as both prompts' tokens were made, nil where
	// there is no tokenizer. It is called at most twice. Where it fails, Moved and
	// Removed are counted on tokens, and a note says so.
	Encode func(text string) ([]wire.Token, []prompt.Span, error)
}

// Relation says in a word how two prompts stand to each other.
type Relation uint8

// The relations.
const (
	// Equal prompts have the same tokens.
	Equal Relation = iota
	// Extends: one prompt is a prefix of the other.
	Extends
	// Parts: they differ in the spans.
	Parts
	// Unrelated prompts share too little to call the rest a span.
	Unrelated
)

var relationWords = [...]string{"equal", "extends", "parts", "unrelated"}

func (r Relation) String() string { return relationWords[r] }

// Diff is what two prompts, A and B, have in common and where they part. It
// holds text of the prompts.
type Diff struct {
	Relation Relation
	// HasTokens is unset where a prompt came without tokens. Then all numbers of
	// tokens and blocks are 0, and only texts and bytes count.
	HasTokens bool
	// NeedsText is set where a prompt's tokens came without their text, so that
	// classes are what tokens tell: a tokenizer would tell more.
	NeedsText bool
	BlockSize int
	// Tokens are the lengths of A and B; Common the number of leading tokens that
	// they share: the first that differs is token Common, in block Common/BlockSize.
	Tokens        [2]int
	Common, Block int
	// Certain is how many leading tokens can be compared: behind them stands what the
	// engine makes of media.
	Certain int
	// A and B are where they part on either side.
	A, B Place
	// Spans are the differences in order, the first MaxSpans of them; More are left.
	Spans []Span
	More  int
	Reuse Reuse
	// Namespace names what keeps the prompts from sharing any block, whatever their
	// tokens are: "cache salt" or "LoRA". Then all of Reuse is 0.
	Namespace string
	// Notes are what else a reader should know.
	Notes []string
}

// Place is where a prompt parts from the other.
type Place struct {
	// Byte is the offset in the text, -1 without text.
	Byte int
	Where
	// Before and After are the text on both sides of that byte, at most Around
	// bytes each, whole characters where the text has them.
	Before, After string
}

// Where says in which part of its prompt something is.
type Where struct {
	// Message is the index of the message, -1 where none is known; Role and Part
	// are that place's, Plain where nothing is known.
	Message int
	Role    string
	Part    prompt.Kind
}

// Span is a stretch of A and what stands in its place in B.
type Span struct {
	Class Class
	// Detail is a word more of the class, maybe empty: a timestamp's resolution, a
	// header's name, by how much a counter moved.
	Detail string
	Kind   Kind
	// Grows is the number of tokens that B's side has more than A's, negative if
	// fewer: what follows shifts by so many.
	Grows  int
	A, B   Extent
	Remedy Remedy
	// Remedied is set where Reuse applies the remedy.
	Remedied bool
	// Last is set where no content follows on either side, but at most what the
	// template writes.
	Last bool
	// Rejoins is set where both prompts go on alike for at least a token.
	Rejoins bool
}

// Where says in which part of the prompts the span is: of the side that has a text
// there and, where both have, A's if it is known.
func (s *Span) Where() Where {
	if s.A.empty() && !s.B.empty() || !s.A.known() {
		return s.B.Where
	}
	return s.A.Where
}

// Extent is one side of a span.
type Extent struct {
	// Start and End are tokens, half-open.
	Start, End int
	// From and To are bytes of the text, half-open; both -1 without text. Tokens
	// that hold a byte of the text or that differ are all in Start to End.
	From, To int
	Where
	// Text is at most MaxText bytes of it.
	Text string
}

func (e *Extent) empty() bool { return e.Start == e.End && e.From == e.To }

// known reports whether a message or the tools are named.
func (w Where) known() bool { return w.Message >= 0 || w.Part == prompt.Tools }

// Reuse counts full blocks; the package's comment defines each number.
type Reuse struct {
	Now, Moved, Removed, Lost int
	// Retokenized is set where Moved and Removed come from the tokenizer.
	Retokenized bool
}

// Bounds of what a Diff holds.
const (
	// MaxSpans is the greatest number of spans that are named.
	MaxSpans = 16
	// Around is the greatest length of a text beside a byte, in bytes.
	Around = 96
	// MaxText is the greatest length of a span's text, in bytes.
	MaxText = 400
)

// Compare finds where two prompts part. It fails where they have nothing that can
// be compared.
func Compare(a, b *prompt.Prompt, opt Options) (*Diff, error) {
	if opt.BlockSize < 1 {
		return nil, fmt.Errorf("compare prompts: a block of %d tokens: give a block size of at least 1", opt.BlockSize)
	}
	c, err := newComparison(a, b)
	if err != nil {
		return nil, err
	}
	d := &Diff{
		HasTokens: c.counted, NeedsText: c.counted && (!c.a.hasText() || !c.b.hasText()),
		BlockSize: opt.BlockSize, Namespace: namespace(a, b),
	}
	c.find(d)
	if c.counted {
		d.Tokens = [2]int{len(a.Tokens), len(b.Tokens)}
		d.Block = d.Common / opt.BlockSize
		d.Certain = max(len(a.Tokens), len(b.Tokens))
		for _, p := range []*prompt.Prompt{a, b} {
			if p.Doubt > 0 {
				d.Certain = min(d.Certain, len(p.Tokens)-p.Doubt)
			}
		}
		c.reuse(d, opt)
	} else {
		d.forgetTokens()
	}
	return d, nil
}

func namespace(a, b *prompt.Prompt) string {
	switch {
	case a.LoRA != b.LoRA:
		return "LoRA"
	case a.Salt != b.Salt:
		return "cache salt"
	}
	return ""
}

// forgetTokens clears what was counted in words for want of tokens.
func (d *Diff) forgetTokens() {
	d.Common = 0
	for i := range d.Spans {
		s := &d.Spans[i]
		s.Kind, s.Grows = Uncounted, 0
		s.A.Start, s.A.End, s.B.Start, s.B.End = 0, 0, 0, 0
	}
	d.Notes = append(d.Notes, "there are no tokens, so no blocks are counted: give --tokenizer")
}

var errNothing = errors.New("compare prompts: one has token ids alone and the other text alone: give --tokenizer")
