package diff_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

func TestClasses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, a, b string
		class      diff.Class
		detail     string
		spanA      string // "" as the whole of a
	}{
		{"ISO seconds", "2026-11-30T04:10:00Z", "2026-11-30T04:11:07Z", diff.Timestamp, "second", ""},
		{"ISO offset", "2026-11-30 04:10:00+02:00", "2026-11-30 05:10:00+02:00", diff.Timestamp, "second", ""},
		{"milliseconds", "04:10:00.123", "04:10:00.124", diff.Timestamp, "ms", ""},
		{"nanoseconds", "2026-11-30T04:10:00.123456789Z", "2026-11-30T04:10:00.123456790Z", diff.Timestamp, "ns", ""},
		{"minutes with pm", "2:31 PM", "2:32 PM", diff.Timestamp, "minute", ""},
		{"compact", "20261130T041000Z", "20261130T041107Z", diff.Timestamp, "second", ""},
		{"ctime", "Mon Nov 30 04:10:00 2026", "Mon Nov 30 04:10:01 2026", diff.Timestamp, "second", ""},
		{"Unix seconds", "1796011899", "1796011900", diff.Timestamp, "second", ""},
		{"Unix milliseconds", "1796011899123", "1796011899124", diff.Timestamp, "ms", ""},
		{"Unix fraction", "1796011899.123456", "1796011899.223456", diff.Timestamp, "µs", ""},
		{"US date", "11/30/2026", "12/01/2026", diff.Date, "day", ""},
		{"words date", "November 30th, 2026", "December 1st, 2026", diff.Date, "day", ""},
		{"short day", "Tue Jun 16 2026", "Wed Jun 17 2026", diff.Date, "day", ""},
		{"full stop behind pm", "Sunday, November 30, 2025 9:59 PM. Begin.", "Sunday, November 30, 2025 10:00 PM. Begin.", diff.Timestamp, "minute", "Sunday, November 30, 2025 9:59 PM"},
		{"p.m.", "at 9:59 p.m.", "at 10:00 p.m.", diff.Timestamp, "minute", "9:59 p.m."},
		{"short US date", "11/30/25", "12/01/25", diff.Date, "day", ""},
		{"Chinese date", "今天是2025年11月30日", "今天是2025年12月1日", diff.Date, "day", "2025年11月30日"},
		{"Japanese date and weekday", "2025年11月30日 (日曜)", "2025年12月1日 (月曜)", diff.Date, "day", "2025年11月30日"},
		{
			"recent commits", "Current branch: main\n\nRecent commits:\n3bb47cf Render templates\n98a7b38 Take prompts",
			"Current branch: main\n\nRecent commits:\n0e0755b Read bodies\n3bb47cf Render templates", diff.GitStatus, "2 lines, then 2",
			"3bb47cf Render templates\n98a7b38 Take prompts\n",
		},
		{"counter", "turn 9", "turn 10", diff.Counter, "+1", "9"},
		{"version", "v1.2.3", "v1.2.4", diff.Edit, "", "3"},
		{"hash", "d41d8cd98f00b204e9800998ecf8427e", "9e107d9d372bb6826bd81d3542a419d6", diff.ID, "32 hex digits", ""},
		{"request id", "req_011CSHoEeqs5C35K2UUqR7Fy", "req_019ZkPqa2mR4uXw7TbVn3Edc", diff.ID, "28 characters", ""},
		{"words", "apples and pears", "cherries with plums", diff.Edit, "", ""},
		{"CR LF", "one\r\ntwo", "one\ntwo", diff.WhiteSpace, `"\r", then nothing`, "\r"},
		{"list on a line", "Colours: red, green, blue.", "Colours: blue, red, green.", diff.ListOrder, "3 items", " red, green, blue"},
		{"list of lines", "- red\n- green\n- blue\n", "- blue\n- red\n- green\n", diff.ListOrder, "3 lines", "- red\n- green\n- blue"},
		{"tools in lines", "{\n    \"name\": \"b\",\n    \"parameters\": {}\n}\n\n{\n    \"name\": \"a\",\n    \"parameters\": {}\n}\n", "{\n    \"name\": \"a\",\n    \"parameters\": {}\n}\n\n{\n    \"name\": \"b\",\n    \"parameters\": {}\n}\n", diff.ToolOrder, "", "    \"name\": \"b\",\n    \"parameters\": {}\n}\n\n{\n    \"name\": \"a\","},
		{"array", `{"required": ["a", "b", "c"]}`, `{"required": ["a", "c", "b"]}`, diff.ListOrder, "3 items", `"b", "c"`},
		{"escapes", `{"a": "é", "b": 1}`, `{"a": "\u00e9", "b": 1}`, diff.JSONSpacing, "other escapes", `{"a": "é`},
		{"indented", "{\n  \"a\": 1\n}", `{"a": 1}`, diff.JSONSpacing, "", "{\n  \"a\": 1\n"},
		{"other value", `{"a": "x", "b": 1}`, `{"a": "y", "b": 1}`, diff.Edit, "", "x"},
		{"full reasoning", "<think>\nhm\n</think>\n\nYes.", "Yes.", diff.ThinkBlock, "full in A", "<think>\nhm\n</think>\n\n"},
		{"tree", "├── a.go\n├── b/c.go\n", "├── a.go\n├── b/d.go\n", diff.FileList, "2 lines, then 2", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rest := "\n" + filler("x", 60)
			d := compare(t, plain("Some text:\n"+tt.a+rest), plain("Some text:\n"+tt.b+rest), 16)
			if d.Relation != diff.Parts {
				t.Fatalf("%v", d.Relation)
			}
			want := tt.spanA
			if want == "" {
				want = tt.a
			}
			if s := d.Spans[0]; s.Class != tt.class || s.Detail != tt.detail || s.A.Text != want {
				t.Errorf("%v (%s): %q, %q, want %v (%s): %q", s.Class, s.Detail, s.A.Text, s.B.Text, tt.class, tt.detail, want)
			}
		})
	}
}

// What stands behind an image is the engine's to tell: two prompts that read alike
// can hold different ones.
func TestDoubt(t *testing.T) {
	t.Parallel()
	text := "Help." + filler("x", 62) // 64 tokens
	a, b := plain(text), plain(text)
	b.Doubt = 40 // the first 24 are sure
	const suffix = "; tokens from 24 on cannot be compared, since the engine puts media there"
	d := compare(t, a, b, 16)
	if got, want := d.Summary("A", "B"), "A and B are equal: 24 tokens, 1 full block"+suffix; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if d.Reuse.Now != 1 || d.Reuse.Moved != 1 || d.Reuse.Removed != 1 || d.Reuse.Lost != 0 {
		t.Errorf("%+v", d.Reuse)
	}
	b = plain("Now: 14:02:31 " + text)
	a = plain("Now: 14:02:52 " + text)
	a.Doubt = 20
	sure := len(a.Tokens) - 20
	d = compare(t, a, b, 4)
	if d.Reuse.Moved != sure/4 || d.Reuse.Lost != sure/4-d.Reuse.Now || !strings.HasSuffix(d.Summary("A", "B"), "since the engine puts media there") {
		t.Errorf("%+v: %s", d.Reuse, d.Summary("A", "B"))
	}
}

// What is only at the end of one side's message belongs to that message, not to
// the markup of the next.
func TestEndOfMessage(t *testing.T) {
	t.Parallel()
	text := "Help." + filler("x", 40)
	for _, pair := range [][2]string{{text, text + " "}, {text + " ", text}, {text, text + " More."}} {
		a, b := chat(pair[0], "Where?"), chat(pair[1], "Where?")
		for _, p := range []*prompt.Prompt{a, b} {
			p.Parts[2].Message, p.Parts[2].Role = 1, "user" // as package prompt has what is between two messages
		}
		d := compare(t, a, b, 16)
		if got := d.Summary("A", "B"); !strings.Contains(got, "in message 0, system") {
			t.Error(got)
		}
		if w := d.Spans[0].Where(); w.Message != 0 || w.Part != prompt.Content {
			t.Errorf("%+v", w)
		}
	}
}

// The same text in other tokens, as where an engine generated what a client then
// sends back.
func TestRetokenized(t *testing.T) {
	t.Parallel()
	a := plain("Yes." + filler("x", 40) + "\n\n\nand" + filler("y", 40))
	b := plain(a.Text)
	at := 0
	for a.Text[a.Spans[at].Start] != '\n' {
		at++
	}
	from := a.Spans[at].Start
	b.Tokens = append(append(append([]wire.Token{}, a.Tokens[:at]...), 198, 271), a.Tokens[at+1:]...)
	b.Spans = append(append(append([]prompt.Span{}, a.Spans[:at]...), prompt.Span{Start: from, End: from + 1}, prompt.Span{Start: from + 1, End: from + 3}), a.Spans[at+1:]...)
	d := compare(t, a, b, 8)
	s := d.Spans[0]
	if s.Class != diff.Retokenized || d.Common != at || s.Grows != 1 || s.A.Text != "\n\n\n" || s.B.Text != "\n\n\n" {
		t.Errorf("%+v at %d, want the line feeds at %d", s, d.Common, at)
	}
	// The other form keeps all: 84 tokens of a.
	if d.Reuse.Moved != len(a.Tokens)/8 {
		t.Errorf("%+v, want moved %d", d.Reuse, len(a.Tokens)/8)
	}
}

func TestRelations(t *testing.T) {
	t.Parallel()
	long := "Help." + filler("x", 63)
	for _, tt := range []struct {
		name     string
		a, b     *prompt.Prompt
		relation diff.Relation
		words    string
	}{
		{"equal", plain(long), plain(long), diff.Equal, "A and B are equal: 65 tokens, 4 full blocks"},
		{"B goes on", plain(long), plain(long + filler("y", 8)), diff.Extends, "B begins with all of A: 65 tokens, 4 full blocks"},
		{"A goes on", plain(long + filler("y", 8)), plain(long), diff.Extends, "A begins with all of B: 65 tokens, 4 full blocks"},
		{"chain", &prompt.Prompt{Tokens: ids(long)[:48]}, plain(long), diff.Extends, "B begins with all of A: 48 tokens, 3 full blocks"},
		{"empty", plain(""), plain(""), diff.Equal, "A and B are equal: 0 tokens, 0 full blocks"},
		{"nothing and something", plain(""), plain(long), diff.Extends, "B begins with all of A: 0 tokens, 0 full blocks"},
		{"unrelated", plain(long), plain("Help." + filler("y", 40)), diff.Unrelated, "A and B are unrelated: they share the first 2 tokens, 0 of 2 blocks"},
		{
			"salt", &prompt.Prompt{Tokens: ids(long), Salt: "s"}, &prompt.Prompt{Tokens: ids(long)}, diff.Equal,
			"A and B are equal: 65 tokens, 4 full blocks; their cache salt differs, so they share no block whatever their tokens are",
		},
		{"LoRA", &prompt.Prompt{Tokens: ids(long), LoRA: "s"}, plain(long), diff.Equal, "A and B are equal: 65 tokens, 4 full blocks; their LoRA differs, so they share no block whatever their tokens are"},
		{"text alone", &prompt.Prompt{Text: long}, &prompt.Prompt{Text: "Help. 7" + long[5:]}, diff.Parts, "A and B part at byte 6, a text that only B has"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := compare(t, tt.a, tt.b, 16)
			check(t, d, tt.a, tt.b)
			if got := d.Summary("A", "B"); d.Relation != tt.relation || got != tt.words {
				t.Errorf("%v: %s\nwant %v: %s", d.Relation, got, tt.relation, tt.words)
			}
			if d.Namespace != "" && d.Reuse != (diff.Reuse{}) {
				t.Errorf("%+v of different namespaces", d.Reuse)
			}
		})
	}
}

// A stored chain is full blocks of ids, decoded by a tokenizer, and ends where the
// next block would have begun. It has no messages.
func TestChain(t *testing.T) {
	t.Parallel()
	a := chat("Now: 2026-11-30T04:10:00Z\nHelp."+filler("x", 100), "Where?")
	old := chat("Now: 2026-11-30T04:10:07Z\nHelp."+filler("x", 100), "Why?")
	end := old.Spans[95].End
	b := &prompt.Prompt{Text: old.Text[:end], Tokens: old.Tokens[:96], Spans: old.Spans[:96]}
	d := compare(t, a, b, 16)
	// 3 of the template, Now, :, a space, and 18 of the 20 characters.
	if s := d.Spans[0]; len(d.Spans) != 1 || s.Class != diff.Timestamp || !s.Remedied || !s.Rejoins || d.Common != 24 {
		t.Errorf("part at %d, spans %+v", d.Common, d.Spans)
	}
	// A span of 20 tokens moved: 76 are left of the chain.
	if r := d.Reuse; r.Now != 1 || r.Moved != 4 || r.Lost != 3 {
		t.Errorf("%+v, want now 1, moved 4", r)
	}
	if d.A.Message != 0 || d.B.Message != -1 {
		t.Errorf("messages %d, %d", d.A.Message, d.B.Message)
	}
	// The same chain without a tokenizer.
	d = compare(t, a, &prompt.Prompt{Tokens: b.Tokens}, 16)
	if s := d.Spans[0]; s.Class != diff.Edit || s.Kind != diff.Replaced || !d.NeedsText || d.Common != 24 || s.B.From != -1 || s.A.Text != "0" {
		t.Errorf("without text: %+v at %d", s, d.Common)
	}
	if len(d.Notes) != 1 || !strings.Contains(d.Notes[0], "give the tokenizer that they are of") {
		t.Errorf("notes %q", d.Notes)
	}
}

func TestTokenOrder(t *testing.T) {
	t.Parallel()
	run := func(from, n int) []wire.Token {
		out := make([]wire.Token, n)
		for i := range out {
			out[i] = wire.Token(from + i)
		}
		return out
	}
	join := func(parts ...[]wire.Token) *prompt.Prompt {
		p := &prompt.Prompt{}
		for _, s := range parts {
			p.Tokens = append(p.Tokens, s...)
		}
		return p
	}
	head, x, y, z, tail := run(0, 40), run(100, 30), run(200, 25), run(300, 20), run(400, 100)
	d := compare(t, join(head, x, y, z, tail), join(head, z, x, y, tail), 16)
	s := d.Spans[0]
	if len(d.Spans) != 1 || s.Class != diff.ListOrder || s.A.Start != 40 || s.A.End != 115 || s.B.End != 115 || s.Kind != diff.Replaced {
		t.Errorf("%+v", d.Spans)
	}
	if d.Reuse != (diff.Reuse{Now: 2, Moved: 13, Removed: 13, Lost: 11}) { // 215 tokens
		t.Errorf("%+v", d.Reuse)
	}
}

// Numbers all over a text have the same digits sooner or later; that is no order.
func TestTokenOrderOfDigits(t *testing.T) {
	t.Parallel()
	text := func(step int) string {
		var b strings.Builder
		for i := range 60 {
			fmt.Fprintf(&b, "w%d x%d same words here now ", i, i*7919%1000+step)
		}
		return b.String() + filler("x", 40)
	}
	for _, bare := range []bool{false, true} {
		a, b := plain(text(0)), plain(text(1))
		if bare {
			a, b = &prompt.Prompt{Tokens: a.Tokens}, &prompt.Prompt{Tokens: b.Tokens}
		}
		for _, s := range compare(t, a, b, 16).Spans {
			if s.Class == diff.ListOrder {
				t.Errorf("text %t: %v at %d to %d: %q", !bare, s.Class, s.A.Start, s.A.End, s.A.Text)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		a, b *prompt.Prompt
		size int
		want string
	}{
		{"no block size", plain("a"), plain("b"), 0, "a block of 0 tokens"},
		{"ids and text", &prompt.Prompt{Tokens: []wire.Token{1}}, &prompt.Prompt{Text: "a"}, 16, "give --tokenizer"},
	} {
		if _, err := diff.Compare(tt.a, tt.b, diff.Options{BlockSize: tt.size}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A tokenizer that fails leaves the count on tokens.
func TestEncodeFails(t *testing.T) {
	t.Parallel()
	a, b := plain("Turn 7 "+filler("x", 60)), plain("Turn 8 "+filler("x", 60))
	fails := func(string) ([]wire.Token, []prompt.Span, error) { return nil, nil, errors.New("no answer") }
	d, err := diff.Compare(a, b, diff.Options{BlockSize: 16, Encode: fails})
	if err != nil {
		t.Fatal(err)
	}
	if d.Reuse.Moved != 3 || d.Reuse.Retokenized || len(d.Notes) != 1 || !strings.Contains(d.Notes[0], "no answer") {
		t.Errorf("%+v, notes %q", d.Reuse, d.Notes)
	}
}
