package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Template is a compiled template. It is safe for concurrent use.
type Template struct {
	root  *scope
	steps int
}

// Compile reads a template's source. It refuses by name what this package does not
// implement.
func Compile(source string) (*Template, error) {
	switch {
	case len(source) > maxSource:
		return nil, fmt.Errorf("chat template: it is longer than %d MiB", maxSource>>20)
	case !utf8.ValidString(source):
		return nil, errors.New("chat template: it is not UTF-8")
	}
	toks, err := lex(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	root, err := parse(toks)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return &Template{root, maxSteps}, nil
}

// Input is what a template is rendered with.
type Input struct {
	// Messages and Tools are JSON, whose keys keep their order. Without Tools the
	// template sees none, as transformers passes it.
	Messages, Tools json.RawMessage
	// BOS and EOS are the tokenizer's, nil where it has none; then they are not
	// defined, as with transformers.
	BOS, EOS            *string
	AddGenerationPrompt bool
	// Kwargs are further variables; they may override those above.
	Kwargs []Kwarg
	// Now is what strftime_now tells.
	Now time.Time
}

// Kwarg is a variable by its name, such as enable_thinking.
type Kwarg struct {
	Name  string
	Value json.RawMessage
}

// Rendered is a rendered template with a way back to the input.
type Rendered struct {
	Text string
	// Leaves are the parts of Text that come from the input, in order and without
	// overlaps.
	Leaves []Leaf
	// Opening is where the generation prompt starts: what Text has more than it
	// would have without AddGenerationPrompt. It is len(Text) where there is none,
	// or where it cannot be told.
	Opening int
}

// Leaf is a range of a rendered text that comes from one place of the input.
type Leaf struct {
	// Path is "messages[3].content" or "messages[2].content[0].text"; where a part
	// of the input was written as JSON, the whole of it: "tools[0]",
	// "messages[2].tool_calls[0].function.arguments".
	Path string
	// Message is the index of the message, -1 for none.
	Message    int
	Start, End int
}

// Render renders a template.
func (t *Template) Render(ctx context.Context, in Input) (string, error) {
	s, err := t.render(ctx, in)
	return s.s, err
}

// RenderSpans renders a template and tells which bytes come from which part of the
// input. Bytes that were changed on the way beyond recognition belong to no part.
func (t *Template) RenderSpans(ctx context.Context, in Input) (Rendered, error) {
	s, err := t.render(ctx, in)
	if err != nil {
		return Rendered{}, err
	}
	out := Rendered{Text: s.s, Opening: len(s.s), Leaves: make([]Leaf, len(s.from))}
	paths := map[*node]string{}
	for i, o := range s.from {
		if paths[o.node] == "" {
			paths[o.node] = o.node.path()
		}
		out.Leaves[i] = Leaf{Path: paths[o.node], Message: o.node.message(), Start: o.start, End: o.end}
	}
	if in.AddGenerationPrompt {
		in.AddGenerationPrompt = false
		closed, err := t.Render(ctx, in)
		if err == nil && strings.HasPrefix(s.s, closed) {
			out.Opening = len(closed)
		}
	}
	return out, context.Cause(ctx)
}

func (t *Template) render(ctx context.Context, in Input) (s str, err error) {
	defer func() {
		// A template is hostile input, and its values have many types.
		if p := recover(); p != nil {
			err = fmt.Errorf("chat template: it broke the renderer: %v", p)
		}
	}()
	f, err := in.frame()
	if err != nil {
		return str{}, fmt.Errorf("chat template: %w", err)
	}
	r := &run{ctx: ctx, now: in.Now, steps: t.steps}
	s, err = r.collect(func(b *buffer) error { return r.exec(t.root.frame(f), t.root.body, b) })
	if err != nil {
		return str{}, fmt.Errorf("chat template: %w", err)
	}
	return s, nil
}

// frame gives the variables that transformers gives.
func (in Input) frame() (*frame, error) {
	f := &frame{}
	f.set("documents", nil)
	f.set("add_generation_prompt", in.AddGenerationPrompt)
	for name, token := range map[string]*string{"bos_token": in.BOS, "eos_token": in.EOS} {
		if token != nil {
			f.set(name, lit(*token))
		}
	}
	vars := slices.Concat([]Kwarg{{"messages", in.Messages}, {"tools", in.Tools}}, in.Kwargs)
	for _, k := range vars {
		if len(k.Value) == 0 {
			k.Value = json.RawMessage("null")
		}
		v, err := decode(k.Name, k.Value)
		if err != nil {
			return nil, err
		}
		f.set(k.Name, v)
	}
	return f, nil
}
