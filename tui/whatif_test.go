package tui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/observe"
	prompts "github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

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
	// explained are the questions of where a prompt goes.
	explained []explain.Query
	err       error
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

func (f *asking) Explain(_ context.Context, q explain.Query) (*explain.Answer, error) {
	f.explained = append(f.explained, q)
	return nil, explain.ErrNobody
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
	if e := v.receive(s, run(first)); e.run != nil || len(v.prompt.Tokens) != 5 {
		t.Errorf("an answer to a question before the newest one counts: %v", v.prompt.Tokens)
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
	v.prompt = newScript(&prompts.Prompt{Tokens: []wire.Token{1, 2, 3, 4, 11, 21, 12, 13, 5}})
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
		{func(p *observe.Parting) { p.Foreign = true }, "runs alongside it longest, but under another cache salt or LoRA."},
		{func(p *observe.Parting) { p.Asked = nil }, "r5 holds the same tokens under another cache salt or LoRA."},
		{func(p *observe.Parting) { p.Foreign, p.Known = false, false }, "r5 holds the nearest one, whose tokens were not kept"},
		{func(p *observe.Parting) { p.Replica, p.Stored = "", nil }, "none goes on from there"},
		{func(p *observe.Parting) { p.Block, p.Token = 0, 0 }, "No resident chain begins with its first token."},
	} {
		c.change(v.answer.Parting)
		if got := shown(v, s, 200, 20); !strings.Contains(got, c.want) {
			t.Errorf("%q is not in\n%s", c.want, got)
		}
	}
}

// A megabyte is read outside of Update: to paste it takes nothing beside reading
// it. Only the quickest of some is what each takes by itself.
func TestBigPasteDoesNotBlock(t *testing.T) {
	t.Parallel()
	feed := &asking{snap: &observe.Snapshot{}}
	text := strings.Repeat("123456, ", 1<<17) + "1"
	v := newWhatIf()
	pasting, reading := time.Hour, time.Hour
	for range 10 {
		begun := time.Now()
		e := v.paste(&scene{snap: feed.snap, feed: feed}, text)
		pasting = min(pasting, time.Since(begun))
		begun = time.Now()
		if a := e.run(context.Background()).(answered); a.err != nil || len(a.prompt.Tokens) != 1<<17+1 {
			t.Errorf("%d tokens, error %v", len(a.prompt.Tokens), a.err)
		}
		reading = min(reading, time.Since(begun))
	}
	if pasting > reading/10 {
		t.Errorf("to paste took %v, to read %v", pasting, reading)
	}
}
