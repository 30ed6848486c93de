package template_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/prompt/template"
)

// fuzzSteps keeps one input of a fuzzer short.
const fuzzSteps = 20_000

func FuzzCompile(f *testing.F) {
	all, in := snippets(f)
	for _, s := range all {
		f.Add(s.T)
	}
	for _, s := range hostile {
		if len(s) < 1000 {
			f.Add(s)
		}
	}
	f.Add(chatML)
	f.Fuzz(func(t *testing.T, source string) {
		compiled, err := template.Compile(source)
		if err != nil {
			return
		}
		compiled.LimitSteps(fuzzSteps)
		got, err := compiled.RenderSpans(context.Background(), in)
		if err != nil {
			if strings.Contains(err.Error(), "broke the renderer") {
				t.Fatal(err)
			}
			return
		}
		end := 0
		for _, l := range got.Leaves {
			if l.Start < end || l.End <= l.Start || l.End > len(got.Text) {
				t.Fatalf("leaf %+v after byte %d of %d", l, end, len(got.Text))
			}
			end = l.End
		}
		if got.Opening < 0 || got.Opening > len(got.Text) {
			t.Fatalf("opening at %d of %d", got.Opening, len(got.Text))
		}
	})
}

func FuzzRender(f *testing.F) {
	compiled, err := template.Compile(chatML)
	if err != nil {
		f.Fatal(err)
	}
	compiled.LimitSteps(fuzzSteps)
	f.Add([]byte(`[{"role": "user", "content": "x"}]`), []byte(`[{"a": 1.0}]`))
	f.Add([]byte(`[{"role": "user", "content": [{"type": "text", "text": "\ud83d\ude00"}]}]`), []byte(`null`))
	f.Add([]byte(`[{"role": "a", "tool_calls": [{"function": {"name": "f", "arguments": {"": {"b": [1e9, -0, 12345678901234567890]}}}}]}]`), []byte(``))
	f.Fuzz(func(t *testing.T, messages, tools []byte) {
		got, err := compiled.RenderSpans(context.Background(), template.Input{
			Messages: json.RawMessage(messages), Tools: json.RawMessage(tools), AddGenerationPrompt: true,
		})
		if err != nil {
			if strings.Contains(err.Error(), "broke the renderer") {
				t.Fatal(err)
			}
			return
		}
		if !strings.HasSuffix(got.Text, "<|im_start|>assistant\n") || got.Text[got.Opening:] != "<|im_start|>assistant\n" {
			t.Fatalf("text %q with an opening at %d", got.Text, got.Opening)
		}
	})
}
