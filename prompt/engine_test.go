package prompt

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

// asked is an engine that renders chats.
type asked struct {
	got  *Conversation
	text string
	err  error
}

func (asked) Name() string { return "an engine" }

func (a asked) Encode(_ context.Context, text string, _ bool) (tokenizer.Encoding, error) {
	return tokenizer.Encoding{IDs: []wire.Token{wire.Token(len(text))}}, a.err
}

func (a asked) Chat(_ context.Context, c Conversation) (Rendered, error) {
	*a.got = c
	return Rendered{Text: a.text, Encoding: tokenizer.Encoding{IDs: []wire.Token{7, 8, 9}}}, a.err
}

// TestEngineRenders: where there is no template, an engine that is asked anyway has
// one; calls go to it as the API takes them.
func TestEngineRenders(t *testing.T) {
	t.Parallel()
	const body = `{"model": "m", "messages": [
		{"role": "user", "content": "Where is it?"},
		{"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{\"a\": 1}"}}]},
		{"role": "tool", "tool_call_id": "c1", "content": "Here."}],
		"tools": [{"type": "function", "function": {"name": "find"}}], "chat_template_kwargs": {"enable_thinking": false}}`
	r, err := Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var got Conversation
	m, err := Load(t.Context(), fstest.MapFS{}, Options{Encoder: asked{&got, "the text", nil}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Prompt(t.Context(), r, RenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Text != "the text" || len(p.Tokens) != 3 || p.Template != "the engine's own chat template" || len(p.Parts) != 1 {
		t.Errorf("%+v", p)
	}
	for _, want := range []string{`"arguments": "{\"a\": 1}"`, `"tool_call_id": "c1"`, `"text": "Where is it?"`} {
		if all := strings.ReplaceAll(string(got.Messages), `":"`, `": "`); !strings.Contains(all, want) {
			t.Errorf("%s is not in %s", want, all)
		}
	}
	if !got.AddGenerationPrompt || got.ContinueFinalMessage || !strings.Contains(string(got.Kwargs), "enable_thinking") || len(got.Tools) == 0 {
		t.Errorf("%+v", got)
	}
	if m, err = Load(t.Context(), fstest.MapFS{}, Options{Encoder: asked{&got, "", errors.New("refused")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Prompt(t.Context(), r, RenderOptions{}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}
