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
	var best *prompt.Prompt
	for _, chain := range d.chains {
		stored := Spell(slices.Concat(p.Tokens[:min(d.Block*d.size, len(p.Tokens))], chain), speech)
		stored.LoRA, stored.Salt = p.LoRA, p.Salt // it was found among such chains
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

// Spell makes a prompt of tokens, with their text where all of them are known.
func Spell(tokens []wire.Token, speech Speech) *prompt.Prompt {
	p := &prompt.Prompt{Tokens: tokens}
	if speech == nil {
		return p
	}
	var b strings.Builder
	spans := make([]prompt.Span, len(tokens))
	for i, t := range tokens {
		text, ok := speech.Text(t)
		if !ok {
			return p
		}
		spans[i].Start = b.Len()
		b.WriteString(text)
		spans[i].End = b.Len()
	}
	p.Text, p.Spans = b.String(), spans
	p.Parts = []prompt.Part{{Span: prompt.Span{End: b.Len()}, Kind: prompt.Plain, Message: -1}}
	return p
}
