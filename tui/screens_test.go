package tui

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/observe"
)

// held are screens that a view's own tests do not cover: what lies over a view
// and what stands below it.
var held = []struct {
	name string
	keys []string
	text string // typed after keys
}{
	{"help", []string{"?"}, ""},
	{"command", []string{":"}, ""},
	{"command-offers", []string{":", "s", "tab"}, ""},
	{"command-wrong", []string{":"}, "fly"},
	{"filter", []string{"/"}, "trust:stale"},
	{"filter-wrong", []string{"/"}, "replica:/(/"},
	{"export", []string{"x"}, ""},
	{"columns", []string{"o", "j", "space"}, ""},
	{"seek", []string{"@"}, "+10s"},
	{"page", []string{":"}, "page late-join"},
}

func TestScreenOver(t *testing.T) {
	t.Parallel()
	for _, s := range held {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			eachSize(t, func(t *testing.T, w, h int, mode string) {
				p := recording(t, "d_restart")
				x := newHarnessOn(t, Options{Feed: p, Player: p, Look: lookOf(mode), Page: somePage}, w, h)
				x.press(s.keys...).write(s.text)
				if s.name == "page" {
					x.press("enter")
				}
				x.golden(fmt.Sprintf("%s_%dx%d_%s", s.name, w, h, mode))
			})
		})
	}
}

func somePage(code string) (string, bool) {
	return "# " + code + ": the tap joined late\n\nWhat was cached **before** is not known, and shows\nonly as it is used again.\n\n" +
		"## How to fix\n\n- Start the tap before the engine.\n- Or let it replay: `replay_endpoint`.\n\n```\nvllm serve --kv-events-config …\n```\n", code == "late-join"
}

// TestLayoutAllSizes draws every view and what can lie over it at all sizes,
// and looks for panics, for lines too long and for lines too many.
func TestLayoutAllSizes(t *testing.T) {
	t.Parallel()
	recordings := map[string]Options{}
	for _, name := range []string{"a_fleet", "d_restart", "c_reset"} {
		p := recording(t, name)
		recordings[name] = Options{Feed: p, Player: p, Look: lookOf(noColour), Page: somePage}
	}
	recordings["big"] = Options{Feed: still{bigFleet(t, 300)}, Look: lookOf(inColour)}
	recordings["none"] = Options{Feed: still{&observe.Snapshot{}}, Look: lookOf(inASCII)}
	names := []string{"a_fleet", "d_restart", "c_reset", "big", "none"}
	keys := []string{
		"1", "2", "4", "5", "?", "o", "x", ":", "/", "@", "j", "k", "g", "G", "ctrl+d", "ctrl+u", "enter", "esc", "tab",
		"shift+tab", "s", "S", "e", "t", "space", "n", "left", "right", "pgdown", "pgup", "a", "backspace", "y", "Y", "P", "L", "u",
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(names).Draw(rt, "recording")
		w, h := rapid.IntRange(1, 250).Draw(rt, "w"), rapid.IntRange(1, 80).Draw(rt, "h")
		x := newHarnessOn(t, recordings[name], w, h)
		x.frame()
		for _, k := range rapid.SliceOfN(rapid.SampledFrom(keys), 0, 12).Draw(rt, "keys") {
			x.press(k)
			x.frame()
		}
		if t.Failed() {
			rt.Fatalf("%s %d×%d", name, w, h)
		}
	})
	// And every size once, at the start.
	x := newHarnessOn(t, recordings["d_restart"], 1, 1)
	for w := 1; w <= 250; w++ {
		for h := 1; h <= 80; h += 1 + w%3 {
			x.m.w, x.m.h, x.m.dirty = w, h, true
			x.frame()
		}
	}
}

// TestQuitStopsCommands checks that what a view runs ends with the program.
func TestQuitStopsCommands(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "c_reset", 80, 24, noColour)
	var ctx context.Context
	x.run(x.m.do(x.m.view(), effect{run: func(c context.Context) any { ctx = c; return nil }}))
	x.press("q")
	if !x.quit || ctx.Err() == nil {
		t.Errorf("quit %v, context error %v", x.quit, ctx.Err())
	}
}
