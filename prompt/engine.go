package prompt

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/prompt/tokenizer"
)

// Conversation is a chat for an engine's own template. The values are JSON as in a
// request, with its order of keys; without Tools or Kwargs they are empty.
type Conversation struct {
	Messages, Tools, Kwargs json.RawMessage
	AddGenerationPrompt     bool
	ContinueFinalMessage    bool
}

// Rendered is a conversation as an engine sees it. Text is empty, and there are no
// spans, where the engine does not tell it.
type Rendered struct {
	Text string
	tokenizer.Encoding
}

// Renderer is an Encoder that also renders chats, by a template of its own: an
// engine that is asked. It serves where there is no template here.
type Renderer interface {
	Chat(ctx context.Context, c Conversation) (Rendered, error)
}

// ask has the engine render a chat, and reports false where there is none to ask or
// a template of ours serves.
func (m *Model) ask(ctx context.Context, p *Prompt, r *Request, o RenderOptions) (bool, error) {
	engine, ok := m.encoder.(Renderer)
	if !ok || len(r.Messages) == 0 || m.template != nil || r.Template != "" {
		return false, nil
	}
	args, err := m.arguments(r, o)
	if err != nil {
		return true, err
	}
	var kwargs object
	for _, a := range args {
		kwargs = append(kwargs, field{a.Name, a.Value})
	}
	c := Conversation{Messages: r.forEngine(), Tools: r.Tools, AddGenerationPrompt: !r.NoOpening, ContinueFinalMessage: r.Continue}
	if kwargs != nil {
		c.Kwargs = kwargs.encode()
	}
	out, err := engine.Chat(ctx, c)
	switch {
	case err != nil:
		return true, fmt.Errorf("this is a chat: %w", err)
	case len(out.IDs) > MaxTokens:
		return true, tooLong
	}
	p.Text, p.Tokens, p.Encoder, p.Template = out.Text, out.IDs, m.encoder.Name(), "the engine's own chat template"
	if len(out.Spans) == len(out.IDs) {
		p.Spans = out.Spans
	}
	if p.Text != "" {
		p.Parts = cover(nil, len(p.Text), Plain)
	}
	return true, nil
}

// forEngine gives the messages as the API takes them: arguments of calls are texts.
func (r *Request) forEngine() json.RawMessage {
	var all []json.RawMessage
	for _, m := range r.Messages {
		m.calls = slices.Clone(m.calls)
		for i, raw := range m.calls {
			o, _ := fields(raw)
			function, _ := fields(o.get("function"))
			function = function.with("arguments", quote(string(function.get("arguments"))))
			m.calls[i] = o.with("function", function.encode()).encode()
		}
		all = append(all, m.encode(true))
	}
	return encodeList(all)
}
