package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/web"
	"github.com/kvscope/kvscope/wire"
)

// maxQuestion bounds a prompt that is sent, in bytes.
const maxQuestion = 16 << 20

// Options are what an Engine reaches the world by. Zero values mean the defaults
// given.
type Options struct {
	// Model is the name in the request, which vLLM needs for an adapter with a
	// tokenizer of its own; without it the engine's own model.
	Model string
	// Do carries out a request, and may add what authenticates it; web.Client's by
	// default.
	Do func(*http.Request) (*http.Response, error)
	// Timeout bounds one question, its whole answer included: 30 s. A long chat
	// waits in the engine for its tokenizer.
	Timeout time.Duration
}

// Error says that an engine gave no tokens.
type Error struct{ err error }

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Engine is an engine's /tokenize.
type Engine struct {
	base *url.URL
	opt  Options
}

var _ prompt.Encoder = (*Engine)(nil)

// New makes an Engine from the address of one: http://host:port, without /v1.
func New(base string, opt Options) (*Engine, error) {
	u, err := web.Parse(base)
	if err != nil {
		return nil, err
	}
	if opt.Do == nil {
		opt.Do = web.Client().Do
	}
	if opt.Timeout == 0 {
		opt.Timeout = 30 * time.Second
	}
	return &Engine{u, opt}, nil
}

// Name says whose tokens these are.
func (e *Engine) Name() string {
	return "the engine at " + wire.Printable(web.Shown(e.base))
}

// question is what is posted: of a text its prompt, of a chat its messages.
type question struct {
	Model    string          `json:"model,omitempty"`
	Prompt   *string         `json:"prompt,omitempty"`
	Messages json.RawMessage `json:"messages,omitempty"`
	Tools    json.RawMessage `json:"tools,omitempty"`
	Kwargs   json.RawMessage `json:"chat_template_kwargs,omitempty"`
	Opening  *bool           `json:"add_generation_prompt,omitempty"`
	Continue bool            `json:"continue_final_message,omitempty"`
	Special  bool            `json:"add_special_tokens"`
	Strings  bool            `json:"return_token_strs"`
}

// answer is what comes back. Strings are the tokens as the vocabulary spells
// them; SGLang and older releases of vLLM have none.
type answer struct {
	Tokens  []wire.Token `json:"tokens"`
	Strings []*string    `json:"token_strs"`
	Count   *json.Number `json:"count"`
}

// Encode gives the tokens of a text. Spans are there where the engine tells the
// tokens' strings and these are the text again, byte for byte; they are nil
// otherwise.
func (e *Engine) Encode(ctx context.Context, text string, special bool) (tokenizer.Encoding, error) {
	var none tokenizer.Encoding
	if !utf8.ValidString(text) {
		return none, errors.New("the text is not UTF-8, so it cannot be sent as JSON: convert it")
	}
	a, err := e.tokenize(ctx, question{Prompt: &text, Special: special})
	if err != nil {
		return none, err
	}
	return tokenizer.Encoding{IDs: a.Tokens, Spans: spans(text, a.Strings)}, nil
}

// Chat has the engine render a conversation by its own template. vLLM does;
// SGLang's /tokenize takes texts alone, and its complaint is the error.
//
// vLLM tells no text. It is put together from the strings of the tokens and then
// asked about in turn: it counts only if it has these very tokens.
func (e *Engine) Chat(ctx context.Context, c prompt.Conversation) (prompt.Rendered, error) {
	for _, part := range []struct {
		name string
		json json.RawMessage
		must bool
	}{{"messages", c.Messages, true}, {"tools", c.Tools, false}, {"chat_template_kwargs", c.Kwargs, false}} {
		if (part.must || len(part.json) > 0) && (!json.Valid(part.json) || !utf8.Valid(part.json)) {
			return prompt.Rendered{}, fmt.Errorf("the %s of the chat are no JSON in UTF-8", part.name)
		}
	}
	a, err := e.tokenize(ctx, question{
		Messages: c.Messages, Tools: c.Tools, Kwargs: c.Kwargs,
		Opening: &c.AddGenerationPrompt, Continue: c.ContinueFinalMessage,
	})
	if err != nil {
		return prompt.Rendered{}, err
	}
	out := prompt.Rendered{Encoding: tokenizer.Encoding{IDs: a.Tokens}}
	for _, text := range candidates(a.Strings) {
		again, err := e.Encode(ctx, text, false)
		if err != nil {
			return prompt.Rendered{}, err
		}
		if slices.Equal(again.IDs, out.IDs) {
			out.Text, out.Spans = text, again.Spans
			break
		}
	}
	return out, nil
}

// tokenize asks, and checks that the answer is at one with itself.
func (e *Engine) tokenize(ctx context.Context, q question) (*answer, error) {
	q.Model, q.Strings = e.opt.Model, true
	body, err := encode(q)
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxQuestion:
		return nil, fmt.Errorf("a prompt of %d MiB is not sent: the limit is %d", len(body)>>20, maxQuestion>>20)
	}
	u := e.base.JoinPath("tokenize")
	var a answer
	err = e.post(ctx, u, body, &a)
	if err == nil {
		err = a.check(q.Prompt != nil && *q.Prompt == "")
	}
	if err != nil {
		return nil, &Error{fmt.Errorf("tokenize %s: %w", wire.Printable(web.Shown(u)), err)}
	}
	return &a, nil
}

// encode writes JSON as other programs do: characters of HTML as they are.
func encode(q question) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(q)
	return b.Bytes(), err
}

func (a *answer) check(empty bool) error {
	switch n := len(a.Tokens); {
	case n == 0 && !empty:
		return errors.New("the answer has no tokens: is this the address of an engine?")
	case a.Count != nil && a.Count.String() != strconv.Itoa(n):
		return fmt.Errorf("the answer counts %s tokens and has %d", wire.Printable(a.Count.String()), n)
	case a.Strings != nil && len(a.Strings) != n:
		return fmt.Errorf("the answer has %d tokens and the strings of %d", n, len(a.Strings))
	}
	return nil
}
