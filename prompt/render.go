package prompt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/kvscope/kvscope/prompt/template"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

// RenderOptions are what a request does not say itself.
type RenderOptions struct {
	// Now is the time that templates show.
	Now time.Time
	// LoRA is the adapter, where the user says that the request's model is one.
	LoRA string
	// Kwargs is a JSON object of arguments for the template, before the request's
	// own; nil for none.
	Kwargs json.RawMessage
	// Cut is the number of bytes of a body that the view "cut" keeps, 0 for the
	// default.
	Cut int
}

// Prompt turns a request into what an engine sees. Ids that came with the request
// are the truth: where ours differ, theirs are given and a note says so.
func (m *Model) Prompt(ctx context.Context, r *Request, o RenderOptions) (*Prompt, error) {
	p := newPrompt(r, o)
	special := len(r.Messages) == 0
	asked, err := m.ask(ctx, p, r, o)
	if !asked {
		err = m.write(ctx, p, r, o)
	}
	if !asked && err == nil && p.Text != "" {
		if r.Special != nil {
			special = *r.Special
		}
		err = m.encode(ctx, p, special)
	}
	if r.Tokens == nil {
		if err != nil {
			return nil, err
		}
		p.doubtMedia(r)
		return p, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p.use(r, err)
	return p, nil
}

func newPrompt(r *Request, o RenderOptions) *Prompt {
	p := &Prompt{Model: r.Model, LoRA: o.LoRA, Salt: r.Salt, Notes: slices.Clone(r.Notes)}
	if p.LoRA == "" {
		p.LoRA = r.LoRA
	}
	return p
}

// write fills in the prompt's text.
func (m *Model) write(ctx context.Context, p *Prompt, r *Request, o RenderOptions) error {
	if len(r.Messages) == 0 {
		p.Text = r.Text
		p.Parts = cover(nil, len(p.Text), Plain)
		return nil
	}
	out, err := m.render(ctx, r, o)
	if err != nil {
		return fmt.Errorf("this is a chat: %w", err)
	}
	if out.text == "" {
		return errors.New("the chat template renders this chat to nothing")
	}
	p.Text, p.Parts, p.Template = out.text, out.parts, m.from
	for _, i := range out.unseen(r.Messages) {
		p.Notes = append(p.Notes, fmt.Sprintf("nothing of message %d, %s, is found in the rendered chat: the template leaves it out, or writes it otherwise", i, r.Messages[i].Role))
	}
	if m.warning != "" {
		p.Notes = append(p.Notes, m.warning)
	}
	if r.Template != "" {
		p.Template = "the request's own chat template"
	}
	return nil
}

// Encode gives the tokens of a text; special adds what the tokenizer adds to a
// plain text, and a rendered chat has already.
func (m *Model) Encode(ctx context.Context, text string, special bool) (tokenizer.Encoding, error) {
	if m.encoder == nil {
		return tokenizer.Encoding{}, m.noEncoder
	}
	e, err := m.encoder.Encode(ctx, text, special)
	if err != nil {
		err = fmt.Errorf("tokens by %s: %w", m.encoder.Name(), err)
	}
	return e, err
}

// encodeMessages gives the messages as JSON, their contents as lists of parts
// where items are wanted.
func (r *Request) encodeMessages(items bool) json.RawMessage {
	messages := make([]json.RawMessage, len(r.Messages))
	for i := range r.Messages {
		messages[i] = r.Messages[i].encode(items)
	}
	return encodeList(messages)
}

var tooLong = fmt.Errorf("the prompt has more than %s tokens, the longest that is looked up", wire.Grouped(MaxTokens))

// encode fills in the tokens of the prompt's text.
func (m *Model) encode(ctx context.Context, p *Prompt, special bool) error {
	e, err := m.Encode(ctx, p.Text, special)
	switch {
	case err != nil:
		return err
	case len(e.IDs) > MaxTokens:
		return tooLong
	}
	p.Tokens, p.Encoder = e.IDs, m.encoder.Name()
	if len(e.Spans) == len(e.IDs) {
		p.Spans = e.Spans
	}
	return nil
}

// use takes the ids that came with the request, and keeps our text only where it
// makes the same; failed is why there is none.
func (p *Prompt) use(r *Request, failed error) {
	ours := p.Tokens
	switch same := wire.CommonPrefix(ours, r.Tokens); {
	case failed != nil:
		p.Notes = append(p.Notes, fmt.Sprintf("the ids of %s count, and the text is left out: %v", r.TokensFrom, failed))
	case ours == nil:
	case same == len(ours) && same == len(r.Tokens):
		p.Notes = append(p.Notes, fmt.Sprintf("the text makes the same tokens as %s", r.TokensFrom))
		return
	default:
		p.Notes = append(p.Notes, fmt.Sprintf("our tokens differ from those of %s at token %s; theirs count, and our text is left out", r.TokensFrom, wire.Grouped(same)))
	}
	p.Text, p.Parts, p.Spans, p.Template, p.Encoder = "", nil, nil, "", ""
	p.Tokens = slices.Clone(r.Tokens)
}

// doubtMedia marks the tokens from the first medium on: the engine puts
// placeholders there, as many as the medium takes.
func (p *Prompt) doubtMedia(r *Request) {
	if len(r.Media) == 0 {
		return
	}
	first := r.Media[0]
	start := len(p.Text)
	for _, part := range p.Parts {
		if part.Message == first.Message && (part.Kind == Content || part.Kind == Markup) || part.Message > first.Message {
			start = min(start, part.Start)
		}
	}
	n := 0
	if p.Spans != nil {
		n = slices.IndexFunc(p.Spans, func(s Span) bool { return s.End > start })
		if n < 0 {
			n = len(p.Tokens)
		}
	}
	p.Doubt = len(p.Tokens) - n
	p.Notes = append(p.Notes, fmt.Sprintf(
		"message %d holds %s: the engine puts placeholder tokens in its place and its hash into the extra keys of their blocks, so tokens from %s on cannot be compared",
		first.Message, article(first.Kind), wire.Grouped(n)))
}

func article(kind string) string {
	if kind == "image" || kind == "audio" {
		return "an " + kind
	}
	return "a " + kind
}

// render renders a chat.
func (m *Model) render(ctx context.Context, r *Request, o RenderOptions) (rendered, error) {
	t, items := m.template, m.items
	switch {
	case r.Template != "":
		own, err := template.Compile(r.Template)
		if err != nil {
			return rendered{}, fmt.Errorf("its own chat template cannot be used: %w", err)
		}
		t, items = own, m.lists(r.Template)
	case t == nil:
		return rendered{}, m.noTemplate
	case m.tools != nil && r.Tools != nil:
		t = m.tools
	}
	in := template.Input{
		Messages: r.encodeMessages(items), Tools: r.Tools,
		BOS: m.bos, EOS: m.eos, AddGenerationPrompt: !r.NoOpening, Now: o.Now,
	}
	var err error
	if in.Kwargs, err = m.arguments(r, o); err != nil {
		return rendered{}, err
	}
	spans, err := t.RenderSpans(ctx, in)
	if err != nil {
		return rendered{}, err
	}
	out := newRendered(spans, r.Messages)
	if r.Continue {
		err = out.leaveOpen(&r.Messages[len(r.Messages)-1])
	}
	return out, err
}

// arguments are the template's: the special tokens, the engine's own arguments,
// the user's, the request's, a later one in place of an earlier.
func (m *Model) arguments(r *Request, o RenderOptions) ([]template.Kwarg, error) {
	given, err := readKwargs(o.Kwargs)
	if err != nil {
		return nil, fmt.Errorf("what is given for the template %w", err)
	}
	var all object
	for _, from := range []object{m.special, m.kwargs, given, r.kwargs} {
		for _, f := range from {
			all = all.with(f.key, f.raw)
		}
	}
	var out []template.Kwarg
	for _, f := range all {
		if f.key != "add_generation_prompt" && f.key != "continue_final_message" { // those are fields of the request
			out = append(out, template.Kwarg{Name: f.key, Value: f.raw})
		}
	}
	return out, nil
}

// leaveOpen ends the text with the last message's, as continue_final_message asks
// for, by the rule of HuggingFace's transformers.
func (d *rendered) leaveOpen(m *Message) error {
	texts := m.Texts()
	if len(texts) == 0 {
		return errors.New("continue_final_message needs a text in the last message")
	}
	last := texts[len(texts)-1]
	bare := strings.TrimSpace(last)
	at := strings.LastIndex(d.text, bare)
	if at < 0 {
		return errors.New("the chat template changes the last message, so continue_final_message does not work with it")
	}
	end := at + len(bare)
	if left := strings.TrimLeftFunc(last, unicode.IsSpace); strings.HasPrefix(d.text[at:], last) {
		end = at + len(left)
	}
	d.text = d.text[:end]
	d.parts = clip(d.parts, end)
	return nil
}

// clip ends parts at a byte.
func clip(parts []Part, end int) []Part {
	var out []Part
	for _, p := range parts {
		if p.Start < end {
			p.End = min(p.End, end)
			out = append(out, p)
		}
	}
	return out
}
