package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// seenAs renders as somebody else sees a request; see prompt.Views.
type seenAs struct {
	modelled
	view string
}

func (s seenAs) Prompt(ctx context.Context, r *prompt.Request, o prompt.RenderOptions) (*prompt.Prompt, error) {
	return s.View(ctx, r, s.view, o)
}

// TestPainsOfTokens: the cases of the pain log in which two make other tokens of one
// request. Each is asked four times; an engine with blocks of four tokens has the ids
// that are written here as text.
func TestPainsOfTokens(t *testing.T) {
	t.Parallel()
	const question = "Where is my parcel? The tracking number is %d."
	user := func(content string) string { return `{"role": "user", "content": ` + content + `}` }
	list := func(text string) string { return `[{"type": "text", "text": "` + text + `"}]` }
	chat := "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n"
	turns := "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n%s<|im_end|>\n<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n"
	bos := withTemplate("<|endoftext|>{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n")
	for _, c := range []struct {
		id     string
		model  explain.Renderer
		body   string // of request n
		engine string // likewise
		// ours is what is rendered here, and part where its tokens and theirs part.
		ours, part string
		says       string
	}{
		{
			id: "P22 in the engine", model: bos, body: user(`"` + question + `"`), engine: "<|endoftext|><|endoftext|>" + chat,
			ours: "<|endoftext|>" + chat, part: "<|endoftext|>", says: "token 0 is doubled in the engine: all blocks differ from block 0 on",
		},
		{
			id: "P22 at the beginning of text", model: smallModel(), body: user(`"` + question + `"`), engine: "<|endoftext|>" + chat,
			ours: chat, part: "", says: "token 0, the beginning of text, is missing here: all blocks differ from block 0 on",
		},
		{
			id: "P24 in the router", model: seenAs{smallModel(), "content-as-json"}, body: user(list(question)), engine: chat,
			ours: strings.Replace(chat, question, `[{"type":"text","text":"`+question+`"}]`, 1), part: "<|im_start|>user\n", says: "the content list is rendered as JSON text here",
		},
		{
			id: "P24 in the engine", model: smallModel(), body: user(list(question)), engine: strings.Replace(chat, question, list(question), 1),
			ours: chat, part: "<|im_start|>user\n", says: "the content list is rendered as JSON text in the engine",
		},
		{
			id: "P25", model: smallModel(), body: user(`"What is 2 + 2?"`) + `, {"role": "assistant", "content": ` + list("The answer is 4.") + `}, ` + user(`"`+question+`"`),
			engine: strings.Replace(turns, "%s", "", 1), ours: strings.Replace(turns, "%s", "The answer is 4.", 1),
			part: "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n", says: "the content list of message 1 renders no token in the engine",
		},
		{
			id: "P26", model: smallModel(), body: user(`"` + question + `"`), engine: "(start)user(message)" + question + "(end)(start)assistant",
			ours: chat, part: "", says: "the chat template writes other markup: <|im_start|> here, text there",
		},
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			var prompts [][]wire.Token
			var lines []string
			token, lost := 1<<30, 0
			for n := range 4 {
				text := func(s string) string { return strings.Replace(s, "%d", fmt.Sprint(4711+n), 1) }
				engine, ours := ids(text(c.engine)), ids(text(c.ours))
				// Counted anew here: what both have, and the engine's blocks behind it.
				common := 0
				for common < min(len(engine), len(ours)) && engine[common] == ours[common] {
					common++
				}
				if common < len(ids(c.part)) {
					t.Fatalf("they part at token %d, before %q", common, c.part)
				}
				token = min(token, common)
				for block := range len(engine) / 4 {
					if 4*block+4 > common {
						lost++
					}
				}
				prompts = append(prompts, engine)
				lines = append(lines, logged(t, n, `{"messages": [`+text(c.body)+`]}`, engine))
			}
			o := New(Options{Requests: log(t, c.model, lines)})
			for _, rec := range asked(t, -1, prompts...) {
				o.Push(rec)
			}
			o.Audit()
			found := o.Snapshot().Findings
			i := slices.IndexFunc(found, func(f diagnose.Finding) bool { return f.Code == "tokenizer-mismatch" })
			if i < 0 {
				t.Fatalf("not found: %s", inWords(found))
			}
			f := found[i]
			t.Log(f.Title)
			titled(diagnose.Warning, "4 of 4 requests", fmt.Sprintf("from token %d (block %d) on", token, token/4), c.says,
				fmt.Sprintf("%d blocks of theirs match nothing", lost))(t, &f)
			if f.Subject != "r1" || *f.Evidence.Token != token || *f.Effect.Blocks != lost || lost == 0 || f.Next == "" {
				t.Errorf("%+v, want token %d and %d blocks", f, token, lost)
			}
			if shown := f.Title + f.Next + f.Counterfactual; strings.Contains(shown, "parcel") || strings.Contains(shown, "answer is") {
				t.Errorf("it shows the prompt: %s", shown)
			}
		})
	}
}
