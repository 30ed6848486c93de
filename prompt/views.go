package prompt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// View is what somebody other than the engine makes of a request: a router that
// hashes text, or a client library that renders for itself. Where it differs from
// the engine's prompt, prefixes match in one place and not in the other.
type View struct {
	Name string
	// What says in words what is seen, Source where the rule is from.
	What, Source string

	see func(*Model, context.Context, *Prompt, *Request, RenderOptions) error
}

// Views are all that there are.
var Views = []View{
	{
		"sglang-router", "the contents and the assistant's reasoning, a space between them, without roles; no template",
		"sglang-router 0.3.2, text taken for its cache_aware tree",
		func(_ *Model, _ context.Context, p *Prompt, r *Request, _ RenderOptions) error {
			p.join(r, " ", true)
			return nil
		},
	},
	{
		"ray", "the contents with nothing between them, without roles; no template",
		"Ray Serve LLM 2.60.0, PrefixCacheAffinityRouter",
		func(_ *Model, _ context.Context, p *Prompt, r *Request, _ RenderOptions) error {
			p.join(r, "", false)
			return nil
		},
	},
	{
		"llm-d-approximate", "the messages as JSON text, role and content alone; no template",
		"llm-d-inference-scheduler, approximate prefix plugin up to 0.8",
		func(_ *Model, _ context.Context, p *Prompt, r *Request, _ RenderOptions) error { return p.asJSON(r) },
	},
	{
		"production-stack-kvaware", "the field prompt alone, so nothing of a chat",
		"vLLM production-stack a6c01db, kvaware routing",
		func(_ *Model, _ context.Context, p *Prompt, r *Request, _ RenderOptions) error {
			p.Text = r.Text
			p.Parts = cover(nil, len(p.Text), Plain)
			return nil
		},
	},
	{
		"content-as-json", "list content as its JSON text within the chat template",
		"vllm-project/aibrix issue 2002",
		func(m *Model, ctx context.Context, p *Prompt, r *Request, o RenderOptions) error {
			return m.write(ctx, p, r.withLists(func(list json.RawMessage) string { return string(compact(list)) }), o)
		},
	},
	{
		"list-dropped", "list content as an empty turn within the chat template",
		"PrimeIntellect-ai/renderers issue 134",
		func(m *Model, ctx context.Context, p *Prompt, r *Request, o RenderOptions) error {
			return m.write(ctx, p, r.withLists(func(json.RawMessage) string { return "" }), o)
		},
	},
	{
		"bos-twice", "the rendered chat tokenized as if it were a plain text, so with a second BOS",
		"vllm-project/vllm issues 27515 and 16976, sgl-project/sglang issue 888",
		func(m *Model, ctx context.Context, p *Prompt, r *Request, o RenderOptions) error {
			return m.write(ctx, p, r, o)
		},
	},
	{
		"cut", "the body up to its first bytes, 8 MiB if nothing else is said: what is longer is no JSON any more",
		"Ray Serve 2.60.0 behind HAProxy, RAY_SERVE_HAPROXY_INGRESS_REQUEST_ROUTER_BUFSIZE",
		func(m *Model, ctx context.Context, p *Prompt, r *Request, o RenderOptions) error {
			return m.cut(ctx, p, r, o)
		},
	},
}

// bufferSize is what HAProxy keeps of a body for Ray's router by default.
const bufferSize = 8 << 20

// View gives what the named view makes of a request. It has tokens where there is
// a tokenizer.
func (m *Model) View(ctx context.Context, r *Request, name string, o RenderOptions) (*Prompt, error) {
	for _, v := range Views {
		if v.Name != name {
			continue
		}
		if r.Text == "" && len(r.Messages) == 0 {
			return nil, errors.New("there is no text to view, only token ids: give the request")
		}
		p := newPrompt(r, o)
		if err := v.see(m, ctx, p, r, o); err != nil {
			return nil, err
		}
		p.Notes = append(p.Notes, fmt.Sprintf("as %s sees it: %s (%s)", v.Name, v.What, v.Source))
		if p.Text == "" || m.encoder == nil {
			return p, nil
		}
		return p, m.encode(ctx, p, name == "bos-twice" || len(r.Messages) == 0)
	}
	names := make([]string, len(Views))
	for i, v := range Views {
		names[i] = v.Name
	}
	return nil, fmt.Errorf("there is no such view: give one of %s", strings.Join(names, ", "))
}

// join fills in the messages' texts without a template.
func (p *Prompt) join(r *Request, between string, reasoning bool) {
	if len(r.Messages) == 0 {
		p.Text = r.Text
		p.Parts = cover(nil, len(p.Text), Plain)
		return
	}
	var b strings.Builder
	var known []Part
	add := func(i int, s string) {
		if b.Len() > 0 {
			b.WriteString(between)
		}
		start := b.Len()
		b.WriteString(s)
		known = append(known, Part{span(start, b.Len()), Content, i, r.Messages[i].Role})
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		for _, s := range m.Texts() {
			add(i, s)
		}
		if reasoning && m.reasoning != nil {
			add(i, *m.reasoning)
		}
	}
	p.Text = b.String()
	p.Parts = cover(known, len(p.Text), Markup)
}

// asJSON fills in the messages as Go's encoder writes their roles and contents.
func (p *Prompt) asJSON(r *Request) error {
	if len(r.Messages) == 0 {
		p.join(r, "", false)
		return nil
	}
	type message struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	}
	out := make([]message, len(r.Messages))
	for i := range r.Messages {
		m := &r.Messages[i]
		out[i] = message{m.Role, strings.Join(m.Texts(), "")}
		if m.list != nil {
			out[i].Content = m.list
		}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("messages as JSON: %w", err)
	}
	p.Text = string(raw)
	p.Parts = cover(nil, len(p.Text), Markup)
	return nil
}

// withLists gives the request with list content put into words.
func (r *Request) withLists(words func(json.RawMessage) string) *Request {
	out := *r
	out.Messages = make([]Message, len(r.Messages))
	for i, m := range r.Messages {
		if m.list != nil {
			m.parts = textPart(words(m.list))
		}
		out.Messages[i] = m
	}
	return &out
}

func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// cut fills in what a router makes of a body of which it gets the beginning.
func (m *Model) cut(ctx context.Context, p *Prompt, r *Request, o RenderOptions) error {
	most := o.Cut
	if most <= 0 {
		most = bufferSize
	}
	if len(r.body) <= most {
		return m.write(ctx, p, r, o)
	}
	p.Notes = append(p.Notes, fmt.Sprintf("of the body's %s bytes the router gets %s, which are no JSON: it sees no prompt", wire.Grouped(len(r.body)), wire.Grouped(most)))
	return nil
}
