package tui

import (
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/kvscope/kvscope/wire"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 100, 30, noColour)
	for text, want := range map[string][]string{
		"fl":          {"fleet"},
		"s":           {"streams", "sort ", "speed ", "set "},
		"replica ":    {"replica a", "replica b", "replica c"},
		"export ":     {"export json", "export csv", "export md", "export txt"},
		"theme d":     {"theme dark"},
		"speed 1":     {"speed 1", "speed 10", "speed 1000"},
		"sort de":     {"sort device"},
		"nothing":     nil,
		"quit ":       nil,
		"page late-j": {"page late-join"},
	} {
		if got := x.m.completeCommand(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	x.press(":", "s", "tab", "tab")
	if got := x.m.prompt.input.Value(); got != "sort " {
		t.Errorf("two tabs give %q", got)
	}
	x.press("shift+tab")
	if got := x.m.prompt.input.Value(); got != "streams" {
		t.Errorf("shift-tab gives %q", got)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 100, 30, noColour)
	for _, tt := range []struct{ command, want string }{
		{"streams", "2 Streams"},
		{"fleet", "1 Fleet"},
		{"find", "5 Findings"},
		{"replica z", `no replica "z"`},
		{"fly", `no command "fly"`},
		{"at noon", "is no moment"},
		{"at 04:15:00", "04:14:"},
		{"at 05:00:00", "outside of the recording"},
		{"speed 10", "speed 10×"},
		{"speed 7", `no speed "7"`},
		{"theme pink", `no theme "pink"`},
		{"page nothing", `there is no page on "nothing"`},
		{"help", "In view 5, Findings"},
	} {
		x.press(":").write(tt.command).press("enter")
		if s := x.text(); !strings.Contains(s, tt.want) {
			t.Errorf(":%s: no %q\n%s", tt.command, tt.want, s)
		}
		if x.m.prompt != nil { // what is invalid stays to be mended
			x.press("esc")
		}
	}
	x.press(":").write("quit").press("enter")
	if !x.quit {
		t.Error(":quit does not quit")
	}
}

func TestMoments(t *testing.T) {
	t.Parallel()
	base := wire.Time(time.Date(2026, 11, 30, 23, 50, 0, 0, time.UTC).UnixNano())
	const s = wire.Time(time.Second)
	for text, want := range map[string]wire.Time{
		"23:55":                base + 300*s,
		"23:50:01.5":           base + 15*s/10,
		"00:10:00":             base + 1200*s,
		"+90s":                 base + 90*s,
		"+90":                  base + 90*s,
		"-1m30s":               base - 90*s,
		"2026-11-30T23:50:00Z": base,
		"1796082600":           1796082600 * s,
	} {
		if got, err := parseMoment(text, base, base); err != nil || got != want {
			t.Errorf("%q: %d %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"noon", "+", "25:00:00", "7", "NaN"} {
		if got, err := parseMoment(text, base, base); err == nil {
			t.Errorf("%q: %d without an error", text, got)
		}
	}
}

func TestPaste(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "a_fleet", 100, 30, noColour)
	x.send(tea.PasteMsg{Content: "1 2 3\r4 5\r\n6"})
	s := x.text()
	if x.m.view().name() != pasteView || !strings.Contains(s, "2 CRs became LF") {
		t.Error(s)
	}
	// A megabyte comes whole.
	x.send(tea.PasteMsg{Content: strings.Repeat("12345 ", 1<<20/6)})
	if s := x.text(); !strings.Contains(s, "pasted 1 048 572 bytes") {
		t.Error(s)
	}
	// Into a prompt goes one line.
	x.press("1", "/")
	x.send(tea.PasteMsg{Content: "trust:exact\rx"})
	if got := x.m.prompt.input.Value(); got != "trust:exact" {
		t.Errorf("the prompt has %q", got)
	}
}

func TestPlayer(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 100, 30, noColour)
	at := func() int { return x.m.play.at }
	end := at()
	x.press(",")
	if at() >= end {
		t.Fatalf("a step back stays at %d", at())
	}
	x.press(".")
	x.press("[", "[")
	if s := x.text(); !strings.Contains(s, "04:19:21 replica-restart c: restarted") {
		t.Error(s)
	}
	x.press("@").write("-240s").press("enter")
	if got := clock(x.m.snap.Until); got > "04:15:21" || got < "04:15:15" {
		t.Errorf("four minutes before 04:19:21 is %s", got)
	}
	// Playing follows the clock and the speed, and stops at the end.
	before := x.m.snap.Until
	x.press("space", ">", ">", ">") // 10 times
	x.now = x.now.Add(time.Second)
	x.send(playTick{})
	if d := x.m.snap.Until - before; !x.m.play.playing || d < 5e9 || d > 10e9 {
		t.Errorf("a second at speed 10 went on by %s, playing %v", ago(d), x.m.play.playing)
	}
	x.now = x.now.Add(time.Hour)
	x.send(playTick{})
	if x.m.play.playing || at() != end {
		t.Errorf("at %d of %d, playing %v", at(), end, x.m.play.playing)
	}
	// A held key adds up while a move runs.
	x.m.play.busy, x.m.play.cancel = true, func() {}
	x.press(",", ",", ",")
	if w := x.m.play.next; w == nil || w.step != -3 {
		t.Errorf("waiting: %+v", w)
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	snap := bigFleet(t, 3)
	later := *snap
	later.Records += 1204
	x := newHarnessOn(t, Options{Feed: still{snap}, Look: lookOf(noColour)}, 120, 30)
	x.press("space")
	x.now = x.now.Add(42 * time.Second)
	x.send(tickMsg{&later})
	if s := x.text(); !strings.Contains(s, "frozen 00:42, +1 204 records") {
		t.Error(s)
	}
	x.press("space")
	if x.m.snap != &later || !strings.Contains(x.text(), "live") {
		t.Error("going on does not show the newest snapshot")
	}
	x.press("]")
	if s := x.text(); !strings.Contains(s, "only a recording has other moments") {
		t.Error(s)
	}
}
