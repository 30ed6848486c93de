package tui

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

func TestParseTokens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       []wire.Token
		note, err  string
	}{
		{"array", "[1, 2,3]", []wire.Token{1, 2, 3}, "", ""},
		{"array over lines", "[\n  1,\n  2\n]\n", []wire.Token{1, 2}, "", ""},
		{"commas", "1,2, 3", []wire.Token{1, 2, 3}, "", ""},
		{"a comma at the end", "1, 2,\n", []wire.Token{1, 2}, "", ""},
		{"spaces", " 151644 8948\t198\n", []wire.Token{151644, 8948, 198}, "", ""},
		{"one", "7", []wire.Token{7}, "", ""},
		{"a wide id", "18446744073709551615", []wire.Token{1<<64 - 1}, "", ""},
		{"byte order mark", "\ufeff[1]", []wire.Token{1}, "", ""},
		{"token_ids", `{"token_ids": [1, 2]}`, []wire.Token{1, 2}, "token_ids", ""},
		{"prompt_token_ids first", `{"token_ids": [1], "prompt_token_ids": [2]}`, []wire.Token{2}, "prompt_token_ids", ""},
		{"a /tokenize answer", `{"count": 2, "tokens": [5, 6]}`, []wire.Token{5, 6}, "tokens", ""},
		{"a completion request", `{"model": "m", "prompt": [5, 6]}`, []wire.Token{5, 6}, "prompt", ""},
		{"a truth log's line", `{"kind": "chat", "request": {"messages": []}, "response": {"choices": [{"token_ids": [9]}], "prompt_token_ids": [1, 2]}}`, []wire.Token{1, 2}, "response.prompt_token_ids", ""},
		{"a completion's choice", `{"choices": [{"token_ids": [9], "prompt_token_ids": [1]}]}`, []wire.Token{1}, "choices[0].prompt_token_ids", ""},
		{"several objects", "{\"token_ids\": [1]}\n{\"token_ids\": [2]}\n", []wire.Token{1}, "token_ids of the first object", ""},

		{"empty", "", nil, "", "there is nothing in it"},
		{"blank", " \n", nil, "", "there is nothing in it"},
		{"empty list", "[]", nil, "", "the list is empty"},
		{"text", "Where is my parcel?", nil, "", "this is no list of token ids; prompts as text come later"},
		{"unicode text", "荷物", nil, "", "prompts as text come later"},
		{"messages", `[{"role": "user"}]`, nil, "", "character 2, after 0 ids: “{\"role\":” is not a token id"},
		{"a word", "[1, two, 3]", nil, "", "character 5, after 1 id: “two” is not a token id"},
		{"after wide letters", "1 2 “é” x", nil, "", "character 5, after 2 ids: ““é””"},
		{"negative", "1 -2", nil, "", "character 3, after 1 id: “-2” is not a token id"},
		{"a fraction", "[1.5]", nil, "", "“1.5” is not a token id"},
		{"beyond 64 bits", "18446744073709551616", nil, "", "is not a token id"},
		{"a long word", "1 " + strings.Repeat("z", 99), nil, "", "“zzzzzzzzzzzzzzzz…” is not"},
		{"controls", "1 \x1b[31m", nil, "", "“?[31m” is not"},
		{"not closed", "[1, 2", nil, "", "] is missing after 2 ids"},
		{"more behind", "[1] 2", nil, "", "character 5, after 1 id: more follows the list"},
		{"two lists", "[[1], [2]]", nil, "", "character 2, after 0 ids: a list within the list"},
		{"two commas", "[1,,2]", nil, "", "character 4, after 1 id: a comma without an id"},
		{"object without", `{"messages": []}`, nil, "", "holds no token ids"},
		{"an answer's tokens", `{"choices": [{"token_ids": [9]}]}`, nil, "", "holds no token ids"},
		{"broken object", `{"token_ids": [1, }`, nil, "", "the JSON breaks at character 19"},
		{"cut object", `{"token_ids": [1, 2`, nil, "", "its end is missing"},
		{"a word in an object", `{"token_ids": [1, "x"]}`, nil, "", "in token_ids: character 5, after 1 id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, note, err := parseTokens(c.text)
			if err == nil && c.err != "" || err != nil && (c.err == "" || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if !slices.Equal(got, c.want) || note != c.note {
				t.Errorf("got %v from %q, want %v from %q", got, note, c.want, c.note)
			}
		})
	}
}

func TestParseTokensBounds(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("1 ", observe.MaxPrompt+1)
	if _, _, err := parseTokens(big); err == nil || !strings.Contains(err.Error(), "longest prompt") {
		t.Errorf("error %v", err)
	}
	if got, _, err := parseTokens(big[2:]); err != nil || len(got) != observe.MaxPrompt {
		t.Errorf("%d tokens, error %v", len(got), err)
	}
}

func BenchmarkParseTokens(b *testing.B) {
	var list bytes.Buffer
	for list.Len() < 1<<20 {
		fmt.Fprintf(&list, "%d, ", 100000+list.Len()%50000)
	}
	list.WriteString("1")
	for _, c := range []struct{ name, text string }{
		{"list", list.String()}, {"object", `{"prompt_token_ids": [` + list.String() + `]}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				if _, _, err := parseTokens(c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What is read, written again, reads the same.
func FuzzParseTokens(f *testing.F) {
	for _, s := range []string{"[1, 2]", "1 2 3", `{"token_ids": [1]}`, `{"response": {"prompt_token_ids": [1, 2]}}`, "text", "[1,,", "{\"a\":", "\ufeff7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, _, err := parseTokens(text)
		if err != nil {
			if got != nil || err.Error() == "" {
				t.Fatalf("%v beside error %q", got, err)
			}
			return
		}
		if len(got) == 0 || len(got) > len(text) {
			t.Fatalf("%d tokens of %d bytes", len(got), len(text))
		}
		words := make([]string, len(got))
		for i, id := range got {
			words[i] = strconv.FormatUint(uint64(id), 10)
		}
		again, _, err := parseTokens("[" + strings.Join(words, ",") + "]")
		if err != nil || !slices.Equal(again, got) {
			t.Fatalf("%v became %v, error %v", got, again, err)
		}
	})
}

// truthLine gives the nth request of a fixture with token ids.
func truthLine(t testing.TB, fixture string, n int) string {
	t.Helper()
	f, err := fixtures.Open(fixture + "/truth.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"prompt_token_ids": [`) {
			if n == 0 {
				return lines.Text()
			}
			n--
		}
	}
	t.Fatalf("%s has no such request", fixture)
	return ""
}

func TestScreenWhatIf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fixture string
		request int
	}{{"a_fleet", 200}, {"d_restart", 100}, {"c_reset", 1}} {
		t.Run(c.fixture, func(t *testing.T) {
			t.Parallel()
			eachSize(t, func(t *testing.T, w, h int, mode string) {
				x := newHarness(t, c.fixture, w, h, mode)
				x.run(x.m.paste(truthLine(t, c.fixture, c.request)))
				x.m.toast = ""
				x.m.dirty = true
				x.golden(fmt.Sprintf("what-if-asked_%s_%dx%d_%s", c.fixture, w, h, mode))
			})
		})
	}
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		eachSize(t, func(t *testing.T, w, h int, mode string) { screen(t, "a_fleet", "what-if", w, h, mode) })
	})
}

// asking is a feed whose answers tests give.
type asking struct {
	snap  *observe.Snapshot
	asked []observe.Question
	err   error
}

func (f *asking) Snapshot() *observe.Snapshot { return f.snap }

func (f *asking) Ask(_ context.Context, q observe.Question) (*observe.Answer, error) {
	f.asked = append(f.asked, q)
	if f.err != nil {
		return nil, f.err
	}
	return &observe.Answer{Now: f.snap.Until, Tokens: len(q.Tokens), Rows: []observe.Row{{
		Replica: "r1", BlockSize: 2, Blocks: len(q.Tokens) / 2, Device: 1, CachedTokens: 2,
		Cells: []observe.Cell{observe.Hit, observe.Miss}, Trust: stream.Trust{Word: stream.Degraded},
	}}}, nil
}

func TestWhatIfAsks(t *testing.T) {
	t.Parallel()
	feed := &asking{snap: &observe.Snapshot{Until: 5 * second}}
	s := &scene{snap: feed.snap, theme: newTheme("none", false), feed: feed}
	v := newWhatIf()
	run := func(e effect) any {
		t.Helper()
		if e.run == nil {
			t.Fatal("nothing is asked")
		}
		return e.run(context.Background())
	}
	text := func() string { return ansi.Strip(strings.Join(v.draw(s, 100, 20), "\n")) }

	first := v.paste(s, "1 2 3 4")
	second := v.paste(s, "5 6 7 8 9")
	v.receive(s, run(second))
	if e := v.receive(s, run(first)); e.run != nil || len(v.prompt) != 5 {
		t.Errorf("an answer to a question before the newest one counts: %v", v.prompt)
	}
	if got := text(); !strings.Contains(got, "prompt 5 tokens") || !strings.Contains(got, "~2 of 5 tokens (~40.0 %)") {
		t.Errorf("shown:\n%s", got)
	}

	// Another snapshot asks again, once, whether it comes before or after the answer.
	feed.snap = &observe.Snapshot{Until: 6e9}
	s.snap = feed.snap
	again := v.follow(s)
	if e := v.follow(s); e.run != nil {
		t.Error("asks twice")
	}
	s.snap = &observe.Snapshot{Until: 7e9}
	once := v.receive(s, run(again))
	if e := v.receive(s, run(once)); e.run != nil {
		t.Error("asks without a newer snapshot")
	}

	// A frozen screen does not follow, and says of when its answer is.
	s.frozen, s.snap = true, &observe.Snapshot{Until: 8e9}
	if e := v.follow(s); e.run != nil {
		t.Error("asks on a frozen screen")
	}
	if got := text(); !strings.Contains(got, "as of now, 00:00:06 UTC: the screen is frozen") {
		t.Errorf("shown:\n%s", got)
	}
	s.frozen = false

	// Trouble is said, and what was asked before goes on.
	follow := v.receive(s, run(v.paste(s, "1 x")))
	v.receive(s, run(follow))
	if got := text(); !strings.Contains(got, "character 3, after 1 id: “x”") || !strings.Contains(got, "prompt 5 tokens") {
		t.Errorf("shown:\n%s", got)
	}
	feed.err = errors.New("the fleet is gone")
	v.receive(s, run(v.handle(s, actAsk)))
	if got := text(); !strings.Contains(got, "the fleet is gone") {
		t.Errorf("shown:\n%s", got)
	}
	feed.err = nil
	v.receive(s, run(v.paste(s, "[1, 2]")))
	if got := text(); strings.Contains(got, "gone") || !strings.Contains(got, "prompt 2 tokens") {
		t.Errorf("shown:\n%s", got)
	}
}

func TestWhatIfParting(t *testing.T) {
	t.Parallel()
	s := &scene{snap: &observe.Snapshot{}, theme: newTheme("none", true)}
	v := newWhatIf()
	v.answer = &observe.Answer{Tokens: 9, Rows: []observe.Row{{Replica: "r5", BlockSize: 4, Blocks: 2, Device: 1}}, Parting: &observe.Parting{
		Block: 1, Token: 5, Replica: "r5", Known: true, Stored: []wire.Token{11, 12, 13}, Asked: []wire.Token{21, 12, 13},
	}}
	got := ansi.Strip(strings.Join(v.draw(s, 100, 20), "\n"))
	for _, want := range []string{"in block 1 at token 5 (from 0): r5 holds", "stored  11 12 13", "asked   21 12 13"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	for _, c := range []struct {
		change func(*observe.Parting)
		want   string
	}{
		{func(p *observe.Parting) { p.Known = false }, "r5 holds the nearest one, whose tokens were not kept"},
		{func(p *observe.Parting) { p.Replica, p.Stored = "", nil }, "none goes on from there"},
		{func(p *observe.Parting) { p.Block, p.Token = 0, 0 }, "No resident chain begins with its first token."},
	} {
		c.change(v.answer.Parting)
		if got := shown(v, s, 200, 20); !strings.Contains(got, c.want) {
			t.Errorf("%q is not in\n%s", c.want, got)
		}
	}
}

// A megabyte is read outside of Update and well under a tenth of a second.
func TestBigPasteDoesNotBlock(t *testing.T) {
	t.Parallel()
	feed := &asking{snap: &observe.Snapshot{}}
	text := strings.Repeat("123456, ", 1<<17) + "1"
	v := newWhatIf()
	begun := time.Now()
	e := v.paste(&scene{snap: feed.snap, feed: feed}, text)
	if d := time.Since(begun); d > 50*time.Millisecond {
		t.Errorf("paste took %v", d)
	}
	if a := e.run(context.Background()).(answered); a.err != nil || len(a.prompt) != 1<<17+1 {
		t.Errorf("%d tokens, error %v", len(a.prompt), a.err)
	}
}
