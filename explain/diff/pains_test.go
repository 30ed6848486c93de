package diff_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// pain is a pair of prompts with what an operator once met, of our own words. The
// expected numbers come from the texts: those before the difference, and those with
// it moved or in one form, each tokenized and compared token by token.
type pain struct {
	id     string
	a, b   *prompt.Prompt
	class  diff.Class
	detail string
	// where: what both have before the first difference, in A's text.
	before string
	// cut and cutB are what is moved last on either side; same writes A's into B.
	cutA, cutB string
	same       bool
	message    int
	also       []diff.Class
}

const painBlock = 16

var (
	painSystem = "You help with parcels." + filler("s", 300)
	tools      = map[string]string{
		"zeta":  `{"name": "zeta", "description": "z things", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}`,
		"alpha": `{"name": "alpha", "description": "a things", "parameters": {"type": "object", "properties": {}}}`,
		"mu":    `{"name": "mu", "description": "m things", "parameters": {"type": "object", "required": []}}`,
	}
)

// withTools declares tools as Qwen's template does, a line each.
func withTools(names ...string) *prompt.Prompt {
	p := chatML(roles([]string{painSystem + "\n\n# Tools\n", "hi" + filler("u", 40)}))
	var lines strings.Builder
	for _, n := range names {
		lines.WriteString(tools[n] + "\n")
	}
	list := lines.String()
	at := p.Parts[1].End
	p.Text = p.Text[:at] + list + p.Text[at:]
	p.Parts = slices.Insert(p.Parts, 2, prompt.Part{Span: prompt.Span{Start: at, End: at}, Kind: prompt.Tools, Message: 0, Role: "system"})
	for i := 2; i < len(p.Parts); i++ {
		if i > 2 {
			p.Parts[i].Start += len(list)
		}
		p.Parts[i].End += len(list)
	}
	return tokenized(p)
}

func pains() []pain {
	system := func(head string) *prompt.Prompt { return chat(head+painSystem, "Where is it?") }
	q := "Where is parcel seven?"
	header := func(cch string) string {
		return "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=" + cch + ";"
	}
	files := func(names ...string) string { return "  " + strings.Join(names, "\n  ") + "\n" }
	filesA := files("a.go", "b.go", "cmd/c.go")
	filesB := files("a.go", "cmd/c.go", "cmd/d.go", "web/e.ts")
	think := "<think>\n\n</think>\n\n"
	opening := func(p *prompt.Prompt, more string) *prompt.Prompt {
		p.Text += more
		p.Parts[len(p.Parts)-1].End += len(more)
		return tokenized(p)
	}
	schema := func(inner string) *prompt.Prompt {
		return system(`Tools: [{"name": "find", "parameters": {"type": "object", ` + inner + `}}]` + "\n")
	}
	reminder := "<system-reminder>" + filler("r", 136) + "</system-reminder>\n"
	list := `[{"type":"text","text":"The answer is 4."}]`
	return []pain{
		{
			id: "P01", a: system(header("fa690") + "\n"), b: system(header("01c3e") + "\n"),
			class: diff.HeaderLine, detail: "x-anthropic-billing-header",
			before: strings.TrimSuffix(header(""), ";"), cutA: header("fa690"), cutB: header("01c3e"),
		},
		{
			id: "P03", a: system("Current time: 2026-02-06 14:31\n"), b: system("Current time: 2026-02-06 14:32\n"),
			class: diff.Timestamp, detail: "minute", before: "Current time: 2026-02-06 14:3",
			cutA: "2026-02-06 14:31", cutB: "2026-02-06 14:32",
		},
		{
			id: "P03 seconds", a: system("Now: Friday, 12 June 2026 14:31:07 UTC\n"), b: system("Now: Saturday, 13 June 2026 09:02:11 UTC\n"),
			class: diff.Timestamp, detail: "second", before: "Now:",
			cutA: "Friday, 12 June 2026 14:31:07 UTC", cutB: "Saturday, 13 June 2026 09:02:11 UTC",
		},
		{
			id: "P05", a: chat(painSystem+"\nCurrent date: 2026-09-14\n"+filler("h", 200), q), b: chat(painSystem+"\nCurrent date: 2026-09-15\n"+filler("h", 200), q),
			class: diff.Date, detail: "day", before: painSystem + "\nCurrent date: 2026-09-1",
			cutA: "2026-09-14", cutB: "2026-09-15",
		},
		{
			id: "P06", a: system("current_date: 2026-06-16T10:11:12.345678\n"), b: system("current_date: 2026-06-16T10:11:13.000001\n"),
			class: diff.Timestamp, detail: "µs", before: "current_date: 2026-06-16T10:11:1",
			cutA: "2026-06-16T10:11:12.345678", cutB: "2026-06-16T10:11:13.000001",
		},
		{
			id: "P07", a: system("Status:\n M src/app.ts\n?? notes.md\n\n"), b: system("Status:\n M src/app.ts\n M src/lib.ts\n?? notes.md\n\n"),
			class: diff.GitStatus, before: "Status:\n M src/app.ts",
			cutA: " M src/app.ts\n?? notes.md\n", cutB: " M src/app.ts\n M src/lib.ts\n?? notes.md\n",
		},
		{
			id: "P07 clean", a: system("Status:\n(clean)\n\n"), b: system("Status:\n M src/lib.ts\n?? notes.md\n\n"),
			class: diff.GitStatus, before: "Status:",
			cutA: "(clean)\n", cutB: " M src/lib.ts\n?? notes.md\n",
		},
		{
			id: "P08", a: system("<files>\n" + filesA + "</files>\nToday's date: Tue Jun 16 2026\n"),
			b:     system("<files>\n" + filesB + "</files>\nToday's date: Wed Jun 17 2026\n"),
			class: diff.FileList, before: "<files>\n  a.go\n", also: []diff.Class{diff.Date},
			cutA: filesA + "\x00Tue Jun 16 2026", cutB: filesB + "\x00Wed Jun 17 2026",
		},
		{
			id: "P09", a: chat("Follow <behavioral_directive>fix the login bug</behavioral_directive>"+painSystem, "fix the login bug"),
			b:     chat("Follow <behavioral_directive>fix the logout page now</behavioral_directive>"+painSystem, "fix the logout page now"),
			class: diff.UserText, before: "Follow <behavioral_directive>fix the",
			cutA: "fix the login bug", cutB: "fix the logout page now",
		},
		{
			id: "P11", a: chat(painSystem, q+"\n"+reminder+filler("d", 60), "ok", "go on"), b: chat(painSystem, q+"\n"+filler("d", 60), "ok", "go on"),
			class: diff.Deletion, before: painSystem + "<|im_end|>\n<|im_start|>user\n" + q, cutA: reminder, message: 1,
		},
		{
			id: "P13", a: withTools("zeta", "alpha", "mu"), b: withTools("alpha", "mu", "zeta"),
			class: diff.ToolOrder, before: painSystem + "\n\n# Tools\n" + `{"name": "`,
			cutA: tools["zeta"] + "\n" + tools["alpha"] + "\n" + tools["mu"], cutB: tools["alpha"] + "\n" + tools["mu"] + "\n" + tools["zeta"], same: true,
		},
		{
			id: "P14", a: withTools("mu", "zeta", "alpha"), b: withTools("mu", "alpha", "zeta"),
			class: diff.ToolOrder, before: painSystem + "\n\n# Tools\n" + tools["mu"] + "\n" + `{"name": "`,
			cutA: tools["zeta"] + "\n" + tools["alpha"], cutB: tools["alpha"] + "\n" + tools["zeta"], same: true,
		},
		{
			id: "P13 inline", a: system("Tools: [zeta, alpha, mu]. "), b: system("Tools: [alpha, mu, zeta]. "),
			class: diff.ToolOrder, before: "Tools: [", cutA: "zeta, alpha, mu", cutB: "alpha, mu, zeta", same: true,
		},
		{
			id: "P16", a: schema(`"properties": {"q": {}}, "required": ["q"]`), b: schema(`"required": ["q"], "properties": {"q": {}}`),
			class: diff.KeyOrder, before: `Tools: [{"name": "find", "parameters": {"type": "object", "`,
			cutA: `"properties": {"q": {}}, "required": ["q"]`, cutB: `"required": ["q"], "properties": {"q": {}}`, same: true,
		},
		{
			id: "P18", a: chat(painSystem, q, `<tool_call>{"a": 1, "b": [2, 3]}</tool_call>`, "go"+filler("d", 40)), b: chat(painSystem, q, `<tool_call>{"a":1,"b":[2,3]}</tool_call>`, "go"+filler("d", 40)),
			class: diff.JSONSpacing, before: painSystem + "<|im_end|>\n<|im_start|>user\n" + q + "<|im_end|>\n<|im_start|>assistant\n<tool_call>{\"a\":",
			cutA: `{"a": 1, "b": [2, 3]}`, cutB: `{"a":1,"b":[2,3]}`, same: true, message: 2,
		},
		{
			id: "P19", a: opening(chatML(roles([]string{painSystem, q})), think), b: opening(chatML(roles([]string{painSystem, q, "Hello!", "more"})), think),
			class: diff.ThinkBlock, detail: "empty in A", message: -1,
			before: painSystem + "<|im_end|>\n<|im_start|>user\n" + q + "<|im_end|>\n<|im_start|>assistant\n",
			cutA:   "assistant\n" + think, cutB: "assistant\n", same: true,
		},
		{
			id: "P21", a: chat(painSystem, q, think+"<tool_call>{}</tool_call>", "so"+filler("d", 40)), b: chat(painSystem, q, "<tool_call>{}</tool_call>", "so"+filler("d", 40)),
			class: diff.ThinkBlock, detail: "empty in A", message: 2,
			before: painSystem + "<|im_end|>\n<|im_start|>user\n" + q + "<|im_end|>\n<|im_start|>assistant\n",
			cutA:   think + "<tool_call>", cutB: "<tool_call>", same: true,
		},
		{
			id: "P22", a: plain("<bos><bos><|start|>system" + painSystem), b: plain("<bos><|start|>system" + painSystem), message: -1,
			class: diff.BOS, detail: "doubled", before: "<bos>", cutA: "<bos><bos>", cutB: "<bos>", same: true,
		},
		{
			id: "P24", a: chat(painSystem, list, "Yes."+filler("d", 40), "go"), b: chat(painSystem, "The answer is 4.", "Yes."+filler("d", 40), "go"),
			class: diff.ContentJSON, before: painSystem + "<|im_end|>\n<|im_start|>user\n", cutA: list, cutB: "The answer is 4.", same: true, message: 1,
		},
		{
			id: "P25", a: chat(painSystem, q, "The answer is 4.", "go"+filler("d", 40)), b: chat(painSystem, q, "", "go"+filler("d", 40)),
			class: diff.Deletion, detail: "a whole content", before: painSystem + "<|im_end|>\n<|im_start|>user\n" + q + "<|im_end|>\n<|im_start|>assistant\n",
			cutA: "The answer is 4.", message: 2,
		},
	}
}

func TestPains(t *testing.T) {
	t.Parallel()
	for _, p := range pains() {
		t.Run(p.id, func(t *testing.T) {
			t.Parallel()
			d := compare(t, p.a, p.b, painBlock)
			t.Log(d.Summary("A", "B"))
			at := len(ids(p.before))
			if p.a.Parts != nil {
				at += len(ids("<|im_start|>system\n"))
			}
			if d.Relation != diff.Parts || d.Common != at || d.Block != at/painBlock {
				t.Fatalf("%v at token %d, block %d, want %d, %d: %+v, %+v", d.Relation, d.Common, d.Block, at, at/painBlock, d.A, d.B)
			}
			s := d.Spans[0]
			if s.Class != p.class || p.detail != "" && s.Detail != p.detail {
				t.Errorf("class %v (%s), want %v (%s): %q, %q", s.Class, s.Detail, p.class, p.detail, s.A.Text, s.B.Text)
			}
			if d.A.Message != p.message {
				t.Errorf("in message %d, want %d", d.A.Message, p.message)
			}
			p.wantReuse(t, d, ids)
			var also []diff.Class
			for _, s := range d.Spans[1:] {
				if s.Remedied {
					also = append(also, s.Class)
				}
			}
			if !slices.Equal(also, p.also) {
				t.Errorf("further spans %v, want %v", also, p.also)
			}
		})
	}
}

// The same with a tokenizer that merges what stands together.
func TestPainsTokenizer(t *testing.T) {
	t.Parallel()
	enc := small(t)
	for _, p := range pains() {
		if p.id == "P22" {
			continue // its BOS is no token of this tokenizer
		}
		t.Run(p.id, func(t *testing.T) {
			t.Parallel()
			for _, side := range []*prompt.Prompt{p.a, p.b} {
				side.Tokens, side.Spans, _ = enc(side.Text)
			}
			d, err := diff.Compare(p.a, p.b, diff.Options{BlockSize: painBlock, Encode: enc})
			if err != nil {
				t.Fatal(err)
			}
			common := shared(p.a.Tokens, p.b.Tokens)
			if d.Relation != diff.Parts || d.Common != common || d.Spans[0].Class != p.class || p.detail != "" && d.Spans[0].Detail != p.detail {
				t.Fatalf("%v at token %d, want %d, %v (%s): %+v", d.Relation, d.Common, common, p.class, p.detail, d.Spans)
			}
			p.wantReuse(t, d, func(text string) []wire.Token { ids, _, _ := enc(text); return ids })
		})
	}
}

// wantReuse holds what is reusable against the texts as they would be written.
func (p *pain) wantReuse(t *testing.T, d *diff.Diff, ids func(string) []wire.Token) {
	t.Helper()
	movedA, movedB := p.moved()
	now, moved := shared(p.a.Tokens, p.b.Tokens)/painBlock, shared(ids(movedA), ids(movedB))/painBlock
	if r := d.Reuse; r.Now != now || r.Moved != moved || r.Lost != moved-now || !r.Retokenized {
		t.Errorf("%+v, want now %d, moved %d: %+v", r, now, moved, d.Spans)
	}
}

// moved gives both texts with the remedy applied, by hand.
func (p *pain) moved() (a, b string) {
	a, b = p.a.Text, p.b.Text
	if p.same {
		return a, strings.Replace(b, p.cutB, p.cutA, 1)
	}
	cut := func(text, what string) string {
		tail := ""
		for piece := range strings.SplitSeq(what, "\x00") {
			if what != "" {
				text = strings.Replace(text, piece, "", 1)
				tail += piece
			}
		}
		return text + tail
	}
	return cut(a, p.cutA), cut(b, p.cutB)
}

// P22 as a stored chain shows it, and P26: ids alone.
func TestPainsTokensOnly(t *testing.T) {
	t.Parallel()
	rest := make([]wire.Token, 64)
	for i := range rest {
		rest[i] = wire.Token(1000 + i)
	}
	chain := func(head ...wire.Token) *prompt.Prompt { return &prompt.Prompt{Tokens: append(head, rest...)} }
	for _, tt := range []struct {
		id                 string
		a, b               *prompt.Prompt
		class              diff.Class
		common, now, moved int
	}{
		{"P22", chain(128000, 128000, 128006), chain(128000, 128006), diff.BOS, 1, 0, 4},
		{"P22 missing", chain(128006, 7, 8), chain(128000, 128006, 7, 8), diff.BOS, 0, 0, 4},
		{"P26", chain(200006, 17360, 200008, 3), chain(27, 91, 2941), diff.Edit, 0, 0, 4},
	} {
		t.Run(tt.id, func(t *testing.T) {
			t.Parallel()
			d, err := diff.Compare(tt.a, tt.b, diff.Options{BlockSize: 16})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(d.Summary("A", "B"))
			s := d.Spans[0]
			if s.Class != tt.class || d.Common != tt.common || d.Reuse.Now != tt.now || d.Reuse.Moved != tt.moved || !d.NeedsText {
				t.Errorf("%v at %d, %+v, needs text %v, want %v at %d, now %d, moved %d", s.Class, d.Common, d.Reuse, d.NeedsText, tt.class, tt.common, tt.now, tt.moved)
			}
			if s.A.From != -1 || d.A.Byte != -1 || len(d.Notes) == 0 {
				t.Errorf("text of a chain without text: %+v, notes %q", s.A, d.Notes)
			}
		})
	}
}
