package prompt

import (
	"context"
	"strings"
	"testing"
)

func TestViews(t *testing.T) {
	t.Parallel()
	m := load(t, map[string]string{templateFile: tagged}, Options{Encoder: bytewise{}})
	chat := `{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "<b>"}]}, {"role": "assistant", "content": "c", "reasoning": "r"}]}`
	for _, c := range []struct{ view, body, want, parts string }{
		{"sglang-router", chat, "S a <b> c r", "c0{S}m1{ }c1{a}m1{ }c1{<b>}m2{ }c2{c}m2{ }c2{r}"},
		{"sglang-router", `{"prompt": "Hi"}`, "Hi", "p{Hi}"},
		{"ray", chat, "Sa<b>c", "c0{S}c1{a<b>}c2{c}"},
		{"llm-d-approximate", chat, `[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"\u003cb\u003e"}]},{"role":"assistant","content":"c"}]`, ""},
		{"llm-d-approximate", `{"prompt": "Hi"}`, "Hi", ""},
		{"production-stack-kvaware", chat, "", ""},
		{"production-stack-kvaware", `{"prompt": "Hi"}`, "Hi", ""},
		{"content-as-json", chat, `<system>S</><user>[{"type":"text","text":"a"},{"type":"text","text":"<b>"}]</><assistant>c</><assistant>`, ""},
		{"list-dropped", chat, "<system>S</><user></><assistant>c</><assistant>", ""},
		{"bos-twice", chat, "<system>S</><user>a\n<b></><assistant>c</><assistant>", ""},
		{"cut", chat, "<system>S</><user>a\n<b></><assistant>c</><assistant>", ""},
	} {
		t.Run(c.view, func(t *testing.T) {
			t.Parallel()
			p, err := m.View(context.Background(), parse(t, c.body), c.view, RenderOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if p.Text != c.want || c.parts != "" && marked(p) != c.parts {
				t.Errorf("%q, want %q\n%s", p.Text, c.want, marked(p))
			}
			tokens := len(c.want)
			if c.view == "bos-twice" || strings.Contains(c.body, "prompt") {
				tokens++
			}
			if c.want != "" && len(p.Tokens) != tokens {
				t.Errorf("%d tokens, want %d", len(p.Tokens), tokens)
			}
			if note := p.Notes[len(p.Notes)-1]; !strings.HasPrefix(note, "as "+c.view+" sees it: ") {
				t.Error(note)
			}
		})
	}
	p, err := m.View(context.Background(), parse(t, chat), "cut", RenderOptions{Cut: 100})
	if err != nil || p.Text != "" || p.Tokens != nil || !strings.Contains(p.Notes[0], "it sees no prompt") {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := m.View(context.Background(), parse(t, chat), "SECRET", RenderOptions{}); err == nil || !strings.Contains(err.Error(), "sglang-router, ray") {
		t.Errorf("error %v", err)
	}
	if _, err := m.View(context.Background(), parse(t, "[1, 2]"), "ray", RenderOptions{}); err == nil || !strings.Contains(err.Error(), "only token ids") {
		t.Errorf("error %v", err)
	}
}
