package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// modelled is a model as commands hand it in.
type modelled struct{ *prompt.Model }

func (m modelled) Text(t wire.Token) (string, bool) {
	text, _, ok := m.Tokenizer.Token(t)
	return text, ok
}

func (m modelled) Encode(ctx context.Context, text string) ([]wire.Token, []prompt.Span, error) {
	e, err := m.Model.Encode(ctx, text, false)
	return e.IDs, e.Spans, err
}

// smallModel is the model of the fixtures.
var smallModel = sync.OnceValue(func() modelled { return withTemplate("") })

func withTemplate(template string) modelled {
	m, err := prompt.Load(context.Background(), os.DirFS("../fixtures/tokenizer"), prompt.Options{Template: template})
	if err != nil {
		panic(err) // the fixtures are ours
	}
	return modelled{m}
}

// ids are the tokens of a text, special ones parsed; apart gives those of its pieces.
func ids(text string) []wire.Token {
	e, err := smallModel().Tokenizer.Encode(text, false)
	if err != nil {
		panic(err)
	}
	return e.IDs
}

// apart encodes a text as if it had no special tokens: no piece holds a whole one.
func apart(text string) (out []wire.Token) {
	for _, piece := range strings.SplitAfter(text, "<|") {
		out = append(out, ids(piece)...)
	}
	return out
}

// talks are four prompts of one template about different things.
func talks(line string) (out []string) {
	for _, what := range []string{"a parcel", "the tools", "some logs", "an engine"} {
		out = append(out, fmt.Sprintf(line, "Please say what is known about "+what+" and where it is now, in short words."))
	}
	return out
}

// spelledWith are the records of prompts as something spells them.
func spelledWith(spell func(string) []wire.Token, texts []string) func(*testing.T) []wire.Record {
	return func(t *testing.T) []wire.Record {
		t.Helper()
		var prompts [][]wire.Token
		for _, text := range texts {
			prompts = append(prompts, spell(text))
		}
		return asked(t, -1, prompts...)
	}
}

const (
	chatLine = "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n"
	listLine = "<|im_start|>user\n[{\"type\": \"text\", \"text\": \"%s\"}]<|im_end|>\n<|im_start|>assistant\n"
	toolLine = "<|im_start|>user\n<result>[{\"type\": \"text\", \"text\": \"%s\"}]</result><|im_end|>\n<|im_start|>assistant\n"
)

// logged is a line of a requests log: the request's body and what an engine made of it.
func logged(t *testing.T, i int, body string, engine []wire.Token) string {
	t.Helper()
	made, err := json.Marshal(engine)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"kind":"chat","replica":"r1","status":200,"t_start":%d,"t_end":%d.5,"request":%s,"response":{"prompt_token_ids":%s,"usage":{"prompt_tokens_details":{"cached_tokens":0}}}}`,
		1+3*i, 1+3*i, body, made)
}

// log holds a model's tokens of some requests against an engine's.
func log(t *testing.T, model explain.Renderer, lines []string) []explain.Request {
	t.Helper()
	out, err := explain.NewSpeller(model, prompt.RenderOptions{}).ReadRequests(t.Context(), strings.NewReader(strings.Join(lines, "\n")), "log")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ofChats is a log of four requests, of which the engine renders one line each.
func ofChats(line string) func(*testing.T) []explain.Request {
	return func(t *testing.T) []explain.Request {
		t.Helper()
		var lines []string
		for i, what := range talks("%s") {
			lines = append(lines, logged(t, i, `{"messages": [{"role": "user", "content": "`+what+`"}]}`, ids(fmt.Sprintf(line, what))))
		}
		return log(t, smallModel(), lines)
	}
}

var tokenScenarios = []scenario{
	{
		code: "tokenizer-mismatch", name: "special tokens as text",
		speech: smallModel(), fault: spelledWith(apart, talks(chatLine)), twin: spelledWith(ids, talks(chatLine)),
		want: titled(diagnose.Warning, "4 of the last 4 stored prompts", "at token 0: a special token is spelled out as text in the engine (1 token becomes"),
	},
	{
		code: "tokenizer-mismatch", name: "the beginning doubled on all paths",
		speech: smallModel(),
		fault:  spelledWith(ids, talks("<|endoftext|><|endoftext|>"+chatLine)), twin: spelledWith(ids, talks("<|endoftext|>"+chatLine)),
		want: titled(diagnose.Warning, "4 of the last 4 stored prompts", "token 0 is doubled in the engine"),
	},
	{
		code: "tokenizer-mismatch", name: "lists as JSON text", // and results of tools, which may be such lists
		speech: smallModel(), fault: spelledWith(ids, talks(listLine)), twin: spelledWith(ids, talks(toolLine)),
		want: titled(diagnose.Warning, "4 of the last 4 stored prompts", "the content list is rendered as JSON text in the engine"),
	},
	{
		code: "tokenizer-mismatch", name: "ids beyond the vocabulary", // but not in the place of a picture
		speech: smallModel(),
		fault: plainly(
			slices.Concat(numbered(90000, 4), ids("one of them")), slices.Concat(numbered(90010, 4), ids("two of them")),
			slices.Concat(numbered(90020, 4), ids("the third of them")), slices.Concat(numbered(90030, 4), ids("and the last of them")),
		),
		twin: plainly(
			slices.Concat(ids("one of them here"), numbered(90000, 4)), slices.Concat(ids("two of them here"), numbered(90010, 4)),
			slices.Concat(ids("the third of them"), numbered(90020, 4)), slices.Concat(ids("and the last of them"), numbered(90030, 4)),
		),
		want: titled(diagnose.Warning, "the vocabulary is another", "ids of one are unknown here"),
	},
	{
		code: "tokenizer-mismatch", name: "another template in a log", speech: smallModel(),
		fault: spelledWith(ids, talks("user: %s\n\nassistant:")), requests: ofChats("user: %s\n\nassistant:"),
		twin: spelledWith(ids, talks(chatLine)), twinRequests: ofChats(chatLine),
		want: titled(diagnose.Warning, "4 of 4 requests are other tokens here than in the engine, from token 0 (block 0) on", "<|im_start|> here, text there"),
	},
}
