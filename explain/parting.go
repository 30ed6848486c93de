package explain

import (
	"context"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// Of the stored chains that a prompt leaves, so many are looked at, each for so
// many blocks beyond the prompt's own.
const (
	maxChains   = 4
	beyondAsked = 16
)

// Speech turns tokens into text and back.
type Speech interface {
	// Text gives the bytes that a token stands for, and reports false where that
	// is not known.
	Text(wire.Token) (string, bool)
	// Encode gives the tokens of a rendered text.
	Encode(ctx context.Context, text string) ([]wire.Token, []prompt.Span, error)
}

// Compare finds what parts a prompt from the stored chain from which it lost
// most, and sets Diff, in which A is that chain. speech is nil where there is no
// tokenizer. Diff stays nil where no chain's tokens were kept.
func (d *Divergence) Compare(ctx context.Context, p *prompt.Prompt, speech Speech) error {
	opt := diff.Options{BlockSize: d.size}
	p = Spelled(p, speech)
	var best *prompt.Prompt
	for _, chain := range d.chains {
		stored := Spelled(&prompt.Prompt{
			Tokens: slices.Concat(p.Tokens[:min(d.Block*d.size, len(p.Tokens))], chain),
			LoRA:   p.LoRA, Salt: p.Salt, // it was found among such chains
		}, speech)
		one, err := diff.Compare(stored, p, opt)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if d.Diff == nil || one.Reuse.Lost > d.Diff.Reuse.Lost {
			d.Diff, best = one, stored
		}
	}
	if best == nil || speech == nil || d.Diff.NeedsText {
		return nil
	}
	// Now exactly: tokenizing a long prompt anew takes longer than all before.
	opt.Encode = func(text string) ([]wire.Token, []prompt.Span, error) { return speech.Encode(ctx, text) }
	exact, err := diff.Compare(best, p, opt)
	if err != nil {
		return err
	}
	d.Diff = exact
	return ctx.Err()
}

// Resume takes over what an earlier divergence of the same prompt was found to be,
// if it was at the same place: a moving fleet is asked again and again. It reports
// whether it did.
func (d *Divergence) Resume(earlier *Divergence) bool {
	if earlier == nil || earlier.Diff == nil || earlier.Block != d.Block || earlier.Token != d.Token {
		return false
	}
	d.Diff = earlier.Diff
	return true
}

// Spelled gives a prompt that has token ids alone with their text, as it is where a
// token is not known. speech may be nil.
func Spelled(p *prompt.Prompt, speech Speech) *prompt.Prompt {
	if speech == nil || p.Text != "" || len(p.Tokens) == 0 {
		return p
	}
	var b strings.Builder
	spans := make([]prompt.Span, len(p.Tokens))
	for i, t := range p.Tokens {
		text, ok := speech.Text(t)
		if !ok {
			return p
		}
		spans[i].Start = b.Len()
		b.WriteString(text)
		spans[i].End = b.Len()
	}
	out := *p
	out.Text, out.Spans = b.String(), spans
	out.Parts = []prompt.Part{{Span: prompt.Span{End: b.Len()}, Kind: prompt.Plain, Message: -1}}
	return &out
}
