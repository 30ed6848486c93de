package report

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// spoken makes a prompt of messages, a token for each byte.
func spoken(role string, contents ...string) *prompt.Prompt {
	p := &prompt.Prompt{Template: "a\x1b[2Jtemplate", Encoder: "an\x1b[2Jencoder"}
	for i, c := range contents {
		from := len(p.Text)
		p.Text += c
		p.Parts = append(p.Parts, prompt.Part{Span: prompt.Span{Start: from, End: len(p.Text)}, Kind: prompt.Content, Message: i, Role: role})
	}
	for i := range len(p.Text) {
		p.Tokens = append(p.Tokens, wire.Token(p.Text[i]))
		p.Spans = append(p.Spans, prompt.Span{Start: i, End: i + 1})
	}
	return p
}

func compared(t *testing.T, a, b *prompt.Prompt) *diff.Diff {
	t.Helper()
	d, err := diff.Compare(a, b, diff.Options{BlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// hostile is what a prompt may hold to harm a terminal: escape sequences in one
// byte and in two, a bell, a carriage return, a mark that turns the direction of
// writing, and no UTF-8.
const hostile = "\x1b]0;title\a\u009b2J\r\u202eabc\xff"

// clocked are two prompts that part in a time, in text and roles full of escapes.
func clocked(role string) (a, b *prompt.Prompt) {
	return spoken(role, hostile+"It is 14:02:31 now. "+hostile, "Where is it? "+hostile),
		spoken(role, hostile+"It is 14:02:52 now. "+hostile, "Where is it? "+hostile)
}

// harmless checks a text for a terminal.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && (r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r == 0xfffd) {
			t.Errorf("%s: %U in %q", what, r, text)
			return
		}
	}
}

func written(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestDiffText: what parts two prompts, for people, without escapes of theirs.
func TestDiffText(t *testing.T) {
	t.Parallel()
	a, b := clocked("sys\x1b[31mtem")
	a.Notes, b.Notes = []string{"a \x1b[2Jnote"}, []string{"another\nnote"}
	d := compared(t, a, b)
	d.Notes = append(d.Notes, "of\x1b[2J both")
	got := written(t, func(w io.Writer) error { return DiffText(w, d, a, b) })
	harmless(t, "a time", got)
	for _, want := range []string{
		" in message 0, sys?[31mtem, a timestamp of 1 s resolution",
		"; a?[2Jtemplate; tokenizer: an?[2Jencoder.\n", `▸"31 now. \x1b]0;title\a`, `\u009b2J\r\u202eabc\xff`,
		"timestamp (second), replaced", "message 0, sys?[31mtem", `"14:02:31"`, `"14:02:52"`,
		"note: of?[2J both\n", "note: a ?[2Jnote\n", "note: another note\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}

	// Each way that prompts can stand to each other.
	plain, salted := spoken("user", "one two three four five six"), spoken("user", "one two three four five six")
	salted.Salt = "s"
	bare := func(ids ...wire.Token) *prompt.Prompt { return &prompt.Prompt{Tokens: ids} }
	unread := func(s string) *prompt.Prompt {
		return &prompt.Prompt{Text: s, Parts: []prompt.Part{{Span: prompt.Span{End: len(s)}, Kind: prompt.Plain, Message: -1}}}
	}
	for _, tt := range []struct {
		what      string
		a, b      *prompt.Prompt
		want, not string
	}{
		{"equal", plain, plain, "A and B are equal: 27 tokens, 1 full block", "differs"},
		{"another salt", plain, salted, "their cache salt differs, so they share no block", "Shared:"},
		{"longer", plain, spoken("user", "one two three four five six seven"), "B begins with all of A", "differs"},
		{"ids alone", bare(1, 2, 3, 4), bare(1, 2, 9, 4), "(--tokenizer)", "▸"},
		{"text alone", unread("It is 14:02:31 now."), unread("It is 14:02:52 now."), "there are no tokens, so no blocks are counted", "Shared:"},
		{"unrelated", spoken("user", strings.Repeat("a", 100)), spoken("user", strings.Repeat("b", 100)), "A and B are unrelated", "differs  "},
	} {
		d := compared(t, tt.a, tt.b)
		got := written(t, func(w io.Writer) error { return DiffText(w, d, tt.a, tt.b) })
		if !strings.Contains(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("%s: %q has to be in, and %q not\n%s", tt.what, tt.want, tt.not, got)
		}
	}
}

// TestDiffTextCut: however long prompts are, what is shown of them is not.
func TestDiffTextCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x1b[2J", 50_000)
	a, b := spoken(strings.Repeat("r", 5000), "x"+long+"1"), spoken(strings.Repeat("r", 5000), "x"+strings.ReplaceAll(long, "J", "K")+"2")
	d := compared(t, a, b)
	got := written(t, func(w io.Writer) error { return DiffText(w, d, a, b) })
	harmless(t, "long", got)
	const most = 20_000
	if len(got) > most {
		t.Errorf("%d bytes", len(got))
	}
	if got := written(t, func(w io.Writer) error { return DiffJSON(w, d, a, b) }); len(got) > 4*most {
		t.Errorf("%d bytes of JSON", len(got))
	}
	if got := short(strings.Repeat("日", 41)); got != `"`+strings.Repeat("日", 40)+`"…` {
		t.Error(got)
	}
	if got := short("日\xff\n"); got != `"日\xff\n"` {
		t.Error(got)
	}
}

// fieldsOf gives all fields by their paths, the elements of a list as one.
func fieldsOf(v any, at string, out map[string]any) {
	if _, had := out[at]; !had || out[at] == nil {
		out[at] = v
	}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			fieldsOf(value, strings.TrimPrefix(at+"."+key, "."), out)
		}
	case []any:
		for _, value := range v {
			fieldsOf(value, at+"[]", out)
		}
	}
}

// promised are the fields of what parts two prompts; those with ? may be null.
var promised = []string{
	"relation", "summary", "block_size", "token?", "block?", "spans", "more_spans", "reusable_blocks?", "blocks_lost?",
	"namespace", "needs_tokenizer", "notes",
	"a.message?", "a.role", "a.part", "a.byte?", "a.before", "a.after", "b.message?", "b.role", "b.part", "b.byte?", "b.before", "b.after",
}

var promisedOfSpans = []string{
	"spans[].class", "spans[].detail", "spans[].kind", "spans[].resized_by", "spans[].remedy", "spans[].remedied", "spans[].last",
	"spans[].a.message?", "spans[].a.role", "spans[].a.part", "spans[].a.from_token", "spans[].a.to_token",
	"spans[].a.from_byte?", "spans[].a.to_byte?", "spans[].a.text", "spans[].b.text", "spans[].b.from_token",
}

var promisedOfReuse = []string{"reusable_blocks.now", "reusable_blocks.moved", "reusable_blocks.removed", "reusable_blocks.retokenized"}

// holdsTo checks that a JSON text has the promised fields, and gives all.
func holdsTo(t *testing.T, what, text, prefix string, promised ...string) map[string]any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	fieldsOf(v, "", all)
	for _, field := range promised {
		name, may := strings.CutSuffix(field, "?")
		value, there := all[prefix+name]
		if !there || value == nil && !may {
			t.Errorf("%s: %s is %v (there: %t) in\n%s", what, prefix+name, value, there, text)
		}
	}
	return all
}

// TestDiffContract: every promised field is there, and no list is null.
func TestDiffContract(t *testing.T) {
	t.Parallel()
	own := []string{"schema", "prompts[].tokens", "prompts[].bytes", "prompts[].template", "prompts[].tokenizer", "prompts[].notes"}
	a, b := clocked("system")
	got := written(t, func(w io.Writer) error { return DiffJSON(w, compared(t, a, b), a, b) })
	all := holdsTo(t, "a time", got, "", append(append(append(own, promised...), promisedOfSpans...), promisedOfReuse...)...)
	if all["schema"] != DiffSchema || all["spans[].class"] != "timestamp" || all["spans[].b.text"] != "14:02:52" {
		t.Errorf("%v %v %v", all["schema"], all["spans[].class"], all["spans[].b.text"])
	}
	// A token is a byte, and for machines text stays as it is.
	at := strings.Index(b.Text, "52 now")
	if before, is := all["b.before"].(string); all["token"] != float64(at) || !is || !strings.Contains(before, "\x1b]0;title\a") {
		t.Errorf("it parts at token %v, want %d, after %q", all["token"], at, all["b.before"])
	}

	// Without tokens their numbers are null, and nothing else is.
	text := func(s string) *prompt.Prompt { return &prompt.Prompt{Text: s} }
	got = written(t, func(w io.Writer) error {
		return DiffJSON(w, compared(t, text("It is 14:02:31 now"), text("It is 14:02:52 now")), text("A"), text("B"))
	})
	all = holdsTo(t, "text alone", got, "", append(append(own, promised...), promisedOfSpans...)...)
	for _, null := range []string{"token", "block", "reusable_blocks", "blocks_lost", "a.message"} {
		if all[null] != nil {
			t.Errorf("%s is %v without tokens or messages", null, all[null])
		}
	}
	// Nothing at all still has its lists.
	got = written(t, func(w io.Writer) error { return DiffJSON(w, &diff.Diff{}, &prompt.Prompt{}, &prompt.Prompt{}) })
	holdsTo(t, "nothing", got, "", append(own, promised...)...)
}

// TestExplainDiff: what parts a prompt from a stored chain is part of the answer.
func TestExplainDiff(t *testing.T) {
	t.Parallel()
	a, b := clocked("sys\x1b[31mtem")
	answer := decided(t, 2)
	answer.Divergence.Diff = compared(t, a, b)
	answer.Notes = append(answer.Notes, "of the\x1b[2J prompt")
	got := written(t, func(w io.Writer) error { return ExplainText(w, answer, b, "") })
	harmless(t, "explain", got)
	for _, want := range []string{
		"Read as ", "; a?[2Jtemplate; tokenizer: an?[2Jencoder.\n", "What parts it from a stored chain: a timestamp of 1 s resolution",
		`the stored chain  "`, `▸"52 now. \x1b]0;title\a`, "tokens of this prompt", `"14:02:31"`, "note: of the?[2J prompt\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	got = written(t, func(w io.Writer) error { return ExplainJSON(w, answer, b, "") })
	all := holdsTo(t, "explain", got, "", "prompt.bytes", "prompt.template", "prompt.tokenizer", "divergence.foreign", "divergence.token_known")
	holdsTo(t, "its diff", got, "divergence.diff.", append(append(promised, promisedOfSpans...), promisedOfReuse...)...)
	if all["prompt.bytes"] != float64(len(b.Text)) || all["divergence.diff.spans[].class"] != "timestamp" {
		t.Errorf("%v, %v", all["prompt.bytes"], all["divergence.diff.spans[].class"])
	}

	// What has nothing in common has no table, and the chain of another salt is
	// what it is said to be.
	one, other := spoken("user", strings.Repeat("a", 100)), spoken("user", strings.Repeat("b", 100))
	answer.Divergence.Diff = compared(t, one, other)
	if got := written(t, func(w io.Writer) error { return ExplainText(w, answer, other, "") }); strings.Contains(got, "tokens of") {
		t.Error(got)
	}
	foreign := *answer.Divergence
	foreign.Replica, foreign.Known, foreign.Foreign, foreign.Asked, foreign.Diff = "r\x1b[2J", true, true, nil, compared(t, a, b)
	got = written(t, func(w io.Writer) error {
		return ExplainText(w, &explain.Answer{Blocks: 2, Divergence: &foreign}, b, "")
	})
	harmless(t, "foreign", got)
	if !strings.Contains(got, "r?[2J holds the same tokens under another cache salt or LoRA (--salt, --lora)") || strings.Contains(got, "What parts it") {
		t.Error(got)
	}
}
