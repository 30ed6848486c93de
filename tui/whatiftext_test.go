package tui

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/observe"
	prompts "github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// promptIDs gives the token ids of the nth request of a fixture.
func promptIDs(t testing.TB, fixture string, n int) []wire.Token {
	t.Helper()
	var line struct {
		Response struct {
			IDs []wire.Token `json:"prompt_token_ids"`
		} `json:"response"`
	}
	if err := json.Unmarshal([]byte(truthLine(t, fixture, n)), &line); err != nil {
		t.Fatal(err)
	}
	return line.Response.IDs
}

// reading is a recorded fleet that is asked about a chat in words: a prompt that
// it served, of which the token at changed, if there is one, is another.
func reading(t testing.TB, w, h int, mode string, changed int) *harness {
	t.Helper()
	p := recording(t, "a_fleet")
	x := newHarnessOn(t, Options{Feed: p, Player: p, Look: lookOf(mode), Words: fakeWords{}}, w, h)
	ids := promptIDs(t, "a_fleet", 200)
	if changed >= 0 {
		ids[changed] = 77
	}
	x.run(x.m.paste(numbers(ids)))
	x.m.toast, x.m.dirty = "", true
	return x
}

// TestScreenWhatIfText: the text with what is cached of it, as far as there is
// room, where it leaves what is stored, and alone.
func TestScreenWhatIfText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		keys []string
	}{{"shown", nil}, {"focus", []string{"tab"}}, {"alone", []string{"tab", "e", "down", "right"}}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachSize(t, func(t *testing.T, w, h int, mode string) {
				x := reading(t, w, h, mode, 300)
				x.frame()
				x.press(c.keys...)
				x.golden(fmt.Sprintf("what-if-text-%s_%dx%d_%s", c.name, w, h, mode))
			})
		})
	}
	t.Run("decoded", func(t *testing.T) {
		t.Parallel()
		eachSize(t, func(t *testing.T, w, h int, mode string) {
			x := reading(t, w, h, mode, 300)
			x.m.whatIf().prompt = newScript(&prompts.Prompt{Tokens: x.m.whatIf().prompt.Tokens})
			x.press("tab")
			x.golden(fmt.Sprintf("what-if-text-decoded_%dx%d_%s", w, h, mode))
		})
	})
	t.Run("loading", func(t *testing.T) {
		t.Parallel()
		eachSize(t, func(t *testing.T, w, h int, mode string) {
			p := recording(t, "a_fleet")
			x := newHarnessOn(t, Options{
				Feed: p, Player: p, Look: lookOf(mode), Words: fakeWords{state: "loading qwen3 tokenizer, 40 %", busy: true},
			}, w, h)
			x.press("4")
			x.m.whatIf().paste(x.m.scene(), "hello")
			x.golden(fmt.Sprintf("what-if-text-loading_%dx%d_%s", w, h, mode))
		})
	})
}

// TestTextIsLinked: the block under the cursor is the same in the strip, in the
// text and in the title, whichever replica is selected.
func TestTextIsLinked(t *testing.T) {
	t.Parallel()
	x := reading(t, 160, 60, noColour, 300)
	// It begins where the prompt leaves what is stored: 300 is in block 9 of 32.
	x.says("block 9 of 21 · tokens 288–319 · miss on b · message 1, user", "qwen3 template, tokenizer: pure Go")
	caret := func() int {
		t.Helper()
		for _, l := range strings.Split(x.text(), "\n") {
			if strings.Contains(l, "replica  rank") {
				return len([]rune(l[:strings.Index(l, glyphDown)]))
			}
		}
		return -1
	}
	at := caret()
	x.press("right")
	x.says("block 10 of 21 · tokens 320–351 · miss on b")
	if got := caret(); got != at+1 {
		t.Errorf("the caret goes from %d to %d", at, got)
	}
	x.press("tab", "left", "left", "left", "left", "left", "left")
	x.says("block 4 of 21 · tokens 128–159 · hit on b")
	x.press("tab", "down") // to the next replica
	x.says("block 4 of 21 · tokens 128–159 · hit on a")
	x.press("right")
	x.says("block 5 of 21 · tokens 160–191 · miss on a")
	x.press("tab", "G")
	x.says("behind the last full block · tokens 672–688", "rest")
	x.press("g")
	x.says("block 0 of 21")
	for range 400 {
		x.press("down")
	}
	x.says("behind the last full block")
	x.press("pgup", "ctrl+u", "up", "pgup", "pgup", "pgup", "pgup", "pgup", "pgup")
	x.says("block 0 of 21", "▸● ")
	x.press("esc")
	if x.m.whatIf().text.focus || x.m.view().name() != "what-if" {
		t.Error("esc does not go back to the replicas")
	}
	x.press("T")
	if strings.Contains(x.text(), "block 0 of 21") {
		t.Errorf("the text is not hidden:\n%s", x.text())
	}
	x.press("left")
	x.says("left: the prompt's text is not shown")
	x.press("T")
	x.says("block 0 of 21")
}

// TestTextParts: what the nearest chain goes on with stands where the prompt
// leaves it, in words.
func TestTextParts(t *testing.T) {
	t.Parallel()
	x := reading(t, 200, 60, noColour, 300)
	stored := promptIDs(t, "a_fleet", 200)[300:320]
	words, _ := spelled(fakeWords{}, stored, 1<<20)
	x.says(fmt.Sprintf("╳ b goes on with %q", words), "stored  "+fmt.Sprintf("%q", words))
}

// TestTextExport: a block can be copied, and the text exported, as it is.
func TestTextExport(t *testing.T) {
	t.Parallel()
	x := reading(t, 120, 50, noColour, -1)
	x.press("tab", "right", "y")
	v := x.m.whatIf()
	if e, _ := v.handleText(x.m.scene(), v.rows(x.m.scene()), actCopy); e.copy != v.prompt.Text[v.prompt.offset(32):v.prompt.offset(64)] {
		t.Errorf("copies %q", e.copy)
	}
	e, _ := v.handleText(x.m.scene(), v.rows(x.m.scene()), actCopyRow)
	var row map[string]string
	if err := json.Unmarshal([]byte(e.copy), &row); err != nil || row["block"] != "1" || row["from"] != "32" || row["to"] != "63" || row["cell"] != "hit" {
		t.Errorf("copies %s: %v", e.copy, err)
	}
	x.press("x", "j")
	var rows []map[string]string
	for _, data := range x.files {
		if err := json.Unmarshal([]byte(data), &rows); err != nil {
			t.Fatal(err)
		}
	}
	text := ""
	for _, r := range rows {
		text += r["text"]
	}
	if len(rows) != 22 || text != v.prompt.Text {
		t.Errorf("%d blocks, which are the whole text: %v", len(rows), text == v.prompt.Text)
	}
}

// bigText is a view of a million tokens in blocks of 16.
func bigText(words Words) (*whatIf, *scene) {
	const n = 1 << 20
	p := &prompts.Prompt{Tokens: make([]wire.Token, n), Text: strings.Repeat("some", n), Spans: make([]prompts.Span, n)}
	for i := range p.Spans {
		p.Spans[i] = prompts.Span{Start: 4 * i, End: 4*i + 4}
	}
	if words != nil {
		p.Text, p.Spans = "", nil
	}
	v := newWhatIf()
	v.prompt = newScript(p)
	v.answer = &observe.Answer{Tokens: n, Rows: []observe.Row{{Replica: "r", BlockSize: 16, Blocks: n / 16, Cells: make([]observe.Cell, n/16)}}}
	v.text.focus = true
	return v, &scene{snap: &observe.Snapshot{}, theme: newTheme("none", false), words: words}
}

// TestBigTextDraws looks at what is on the screen and at nothing else, wherever
// that is in a million tokens.
func TestBigTextDraws(t *testing.T) {
	t.Parallel()
	asked := 0
	v, s := bigText(fakeWords{texts: &asked})
	v.draw(s, 120, 40)
	for _, action := range []string{actBottom, actPageUp, actUp, actTop, actPageDown, actRight} {
		asked = 0
		v.handle(s, action)
		v.draw(s, 120, 40)
		if asked > 4000 {
			t.Errorf("%s looks at %d tokens", action, asked)
		}
	}
}

// A screen of a million tokens is drawn as fast as one of a hundred.
func BenchmarkBigText(b *testing.B) {
	v, s := bigText(nil)
	for b.Loop() {
		v.handle(s, actDown)
		v.draw(s, 200, 60)
	}
}

// TestSmallBlocks share lines, but not with what is cached otherwise.
func TestSmallBlocks(t *testing.T) {
	t.Parallel()
	tokens := make([]wire.Token, 40)
	for i := range tokens {
		tokens[i] = wire.Token(i)
	}
	cells := make([]observe.Cell, 40)
	for i := range 5 {
		cells[i] = observe.Hit
	}
	v := newWhatIf()
	v.prompt = newScript(&prompts.Prompt{Tokens: tokens})
	v.answer = &observe.Answer{Tokens: 40, Rows: []observe.Row{{
		Replica: "r", BlockSize: 1, Blocks: 40, Cells: cells, Trust: stream.Trust{Word: stream.Exact},
	}}}
	v.text.focus = true
	s := &scene{snap: &observe.Snapshot{}, theme: newTheme("none", true), maximised: true}
	got := shown(v, s, 80, 12)
	for _, want := range []string{"├0 │1 │2 │3 │4 \n", " .   5 ├5 │6", " .  16 ├16 │17"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// TestTextMarks: each line of the text has the mark of the strip, whatever the
// colours are.
func TestTextMarks(t *testing.T) {
	t.Parallel()
	cells := []observe.Cell{observe.Hit, observe.Lower, observe.Doubtful, observe.Miss, observe.Beyond, observe.Miss}
	for theme, want := range map[*theme]string{newTheme("dark", false): "●h?○+· ", newTheme("none", true): "#h?o+. "} {
		v := newWhatIf()
		v.prompt = newScript(&prompts.Prompt{Tokens: make([]wire.Token, 6*16+1)})
		v.answer = &observe.Answer{Tokens: 6*16 + 1, Rows: []observe.Row{{Replica: "r", BlockSize: 16, Blocks: 6, Cells: cells}}}
		v.text.focus = true
		var got string
		for _, line := range v.draw(&scene{snap: &observe.Snapshot{}, theme: theme, maximised: true}, 80, 8)[1:] {
			got += string([]rune(ansi.Strip(line))[1:2])
		}
		if got != want {
			t.Errorf("%s: marks %q, want %q", theme.name, got, want)
		}
	}
}

// oddRow is a replica's with any cells.
func oddRow(t *rapid.T, size, blocks int) *observe.Row {
	r := &observe.Row{Replica: "r", BlockSize: size, Blocks: blocks}
	for range blocks {
		r.Cells = append(r.Cells, observe.Cell(rapid.IntRange(0, 5).Draw(t, "cell")))
	}
	return r
}

// TestTextIsWhole: every byte of a prompt's text is shown, in order and once.
func TestTextIsWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.IntRange(1, 60).Draw(t, "tokens")
		p := &prompts.Prompt{Tokens: make([]wire.Token, tokens)}
		p.Text = "x"
		for range tokens { // ASCII looks the same however it is cut
			at := len(p.Text)
			p.Text += rapid.StringMatching(`[a-z \n\t\x1b]{0,12}`).Draw(t, "text")
			p.Spans = append(p.Spans, prompts.Span{Start: at, End: len(p.Text)})
		}
		for at := 0; at < len(p.Text); {
			end := min(len(p.Text), at+rapid.IntRange(1, 50).Draw(t, "part"))
			p.Parts = append(p.Parts, prompts.Part{Span: prompts.Span{Start: at, End: end}, Kind: prompts.Content, Message: len(p.Parts) / 2, Role: "user"})
			at = end
		}
		size := rapid.IntRange(1, 40).Draw(t, "size")
		pane := textPane{script: newScript(p), w: rapid.IntRange(leastText, 90).Draw(t, "w")}
		pane.grid = newGrid(&whatIfRow{Row: oddRow(t, size, tokens/size)}, tokens, size)
		if rapid.Bool().Draw(t, "parts") {
			pane.parting = &observe.Parting{Token: rapid.IntRange(0, tokens-1).Draw(t, "at")}
		}
		var got strings.Builder
		for u := range pane.grid.units() {
			for _, l := range pane.lay(noWords{}, u) {
				width := 0
				for _, piece := range l.pieces {
					width += len([]rune(piece.text))
					if piece.block >= 0 {
						got.WriteString(piece.text)
					}
				}
				if width > pane.w {
					t.Fatalf("%d cells of %d: %v", width, pane.w, l.pieces)
				}
			}
		}
		want := strings.NewReplacer("\n", glyphReturn, "\t", glyphArrow+"   ", "\x1b", `\x1b`).Replace(p.Text)
		if got.String() != want {
			t.Fatalf("shown\n%q, want\n%q", got.String(), want)
		}
	})
}

func TestVisible(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, shown string
		width, n    int
	}{
		{"ab", "a", 1, 1},
		{"\n", "↵", 1, 1},
		{"\t", "→   ", 4, 1},
		{"\r", `\r`, 2, 1},
		{"\x1b[2J", `\x1b`, 4, 1},
		{"\u202eabc", `\u202e`, 6, 3},
		{"\u200b", `\u200b`, 6, 3},
		{"\u00a0", `\u00a0`, 6, 2},
		{"\xe6\x97", `\xe6`, 4, 1},
		{"\u0301", `\u0301`, 6, 2},
		{"e\u0301x", "e\u0301", 1, 3},
		{"日本", "日", 2, 3},
		{"👩\u200d💻", "👩", 2, 4},
		{"a" + strings.Repeat("\u0301", 1000), "a", 1, 1},
	} {
		shown, width, n := visible(c.text)
		if shown != c.shown || width != c.width || n != c.n {
			t.Errorf("%q: %q, %d cells, %d bytes", c.text[:min(len(c.text), 9)], shown, width, n)
		}
	}
}

// TestScriptStarts: tokens that share a character, stand for nothing or lie about
// their place leave a text that is whole.
func TestScriptStarts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spans []prompts.Span
		want  []uint32
	}{
		{[]prompts.Span{{Start: 0, End: 2}, {Start: 2, End: 6}}, []uint32{0, 2}},
		{[]prompts.Span{{}, {Start: 0, End: 2}, {Start: 2, End: 6}}, []uint32{0, 0, 2}},                 // BOS
		{[]prompts.Span{{Start: 0, End: 2}, {Start: 2, End: 6}, {}}, []uint32{0, 2, 6}},                 // EOS
		{[]prompts.Span{{Start: 1, End: 2}, {Start: 3, End: 6}}, []uint32{0, 3}},                        // gaps
		{[]prompts.Span{{Start: 0, End: 3}, {Start: 0, End: 3}, {Start: 3, End: 6}}, []uint32{0, 3, 3}}, // one character
		{[]prompts.Span{{Start: -5, End: 99}, {Start: 50, End: 2}}, []uint32{0, 6}},
	} {
		p := newScript(&prompts.Prompt{Text: "abcdef", Tokens: make([]wire.Token, len(c.spans)), Spans: c.spans})
		if fmt.Sprint(p.starts) != fmt.Sprint(c.want) {
			t.Errorf("%v: %v, want %v", c.spans, p.starts, c.want)
		}
	}
}

// TestWhatIfReads: a paste of several lines, a file and the editor's text come to
// the reader as they are, and what it cannot read is said.
func TestWhatIfReads(t *testing.T) {
	t.Parallel()
	p := recording(t, "a_fleet")
	var read []string
	curl := "curl http://router/v1/chat/completions \\\n  -d '{\"messages\": []}'"
	x := newHarnessOn(t, Options{
		Feed: p, Player: p, Look: lookOf(noColour), Words: fakeWords{read: &read},
		OpenFile: func(string) ([]byte, error) { return []byte("a\r\nfile"), nil },
		Editor:   func(string) tea.Cmd { return func() tea.Msg { return Edited{Text: "an\r\nedit"} } },
	}, 120, 40)
	x.send(tea.PasteMsg{Content: strings.ReplaceAll(curl, "\n", "\r")})
	x.says("the template needs a tool that is not there")
	x.press("p").write("typed ")
	x.send(tea.PasteMsg{Content: curl})
	x.press("f").write("path").press("enter")
	x.press("E")
	want := []string{curl, "typed " + curl, "a\r\nfile", "an\r\nedit"}
	if fmt.Sprintf("%q", read) != fmt.Sprintf("%q", want) {
		t.Errorf("read %q, want %q", read, want)
	}
}

// TestSpell: the tokenizer is looked at while it loads and while a prompt waits
// for it, and not for ever.
func TestSpell(t *testing.T) {
	t.Parallel()
	p := recording(t, "a_fleet")
	x := newHarnessOn(t, Options{Feed: p, Player: p, Look: lookOf(noColour), Words: fakeWords{state: "loading, 40 %", busy: true}}, 120, 40)
	x.press("4")
	x.says("Now: loading, 40 %.")
	x.m.opt.Words = fakeWords{state: "loading, 80 %", busy: true}
	x.send(spellMsg{})
	x.says("Now: loading, 80 %.")
	x.m.opt.Words = fakeWords{}
	x.send(spellMsg{})
	if strings.Contains(x.text(), "loading") || x.m.spells {
		t.Errorf("it is still looked at: %v\n%s", x.m.spells, x.text())
	}
	x.m.whatIf().busy, x.m.whatIf().reading = true, true
	x.send(spellMsg{})
	if !x.m.spells {
		t.Error("nobody looks at the tokenizer while a prompt waits")
	}
}

// TestAsksAsTheRequest: adapter and salt go where blocks are looked up.
func TestAsksAsTheRequest(t *testing.T) {
	t.Parallel()
	feed := &asking{snap: &observe.Snapshot{}}
	s := &scene{snap: feed.snap, feed: feed, theme: newTheme("none", false)}
	v := newWhatIf()
	v.prompt = newScript(&prompts.Prompt{Tokens: []wire.Token{1}, LoRA: "adapter", Salt: "salt"})
	v.again(s).run(t.Context())
	if q, e := feed.asked[0], feed.explained[0]; q.LoRA != "adapter" || q.Salt != "salt" || e.LoRA != "adapter" || e.Salt != "salt" {
		t.Errorf("asks %+v and %+v", q, e)
	}
}
