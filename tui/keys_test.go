package tui

import (
	"strings"
	"testing"
)

// TestKeys holds the tables of bindings against each other: no key twice, each
// with words, and each action known to somebody.
func TestKeys(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 120, 40, noColour)
	tables := map[string][]binding{"globals": globals, "views": x.m.viewBindings()}
	for _, v := range x.m.views {
		tables[v.name()] = v.bindings()
	}
	for name, table := range tables {
		seen := map[string]bool{}
		for _, b := range table {
			if b.help == "" || b.action == "" || len(b.keys) == 0 {
				t.Errorf("%s: %+v says too little", name, b.keys)
			}
			if b.short == "" && b.rank != 0 {
				t.Errorf("%s: %v has a rank but no word for the footer", name, b.keys)
			}
			for _, k := range b.keys {
				if seen[k] {
					t.Errorf("%s: key %q twice", name, k)
				}
				seen[k] = true
				keyPress(t, k)
			}
		}
	}
	for _, b := range x.m.viewBindings() {
		if g := find(b.keys[0], globals); g != nil {
			t.Errorf("key %q shows a view and is %q", b.keys[0], g.action)
		}
	}
	// The model's own actions must work from everywhere: no view hides them.
	for _, v := range x.m.views {
		for _, b := range v.bindings() {
			for _, k := range b.keys {
				if g := find(k, globals); g != nil && g.action != b.action && x.m.actions[g.action] != nil {
					t.Errorf("%s: key %q is %q there and %q elsewhere", v.name(), k, b.action, g.action)
				}
			}
		}
	}
}

// viewActions are those that belong to views and dialogs.
var viewActions = []string{
	actUp, actDown, actTop, actBottom, actHalfUp, actHalfDown, actPageUp, actPageDown, actLeft, actRight, actOpen,
	actNextPane, actPrevPane, actSort, actReverse, actColumns, actCopy, actCopyRow,
}

func TestActionsAreHandled(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, a := range viewActions {
		known[a] = true
	}
	own := actions()
	bound := map[string]bool{}
	for _, b := range globals {
		bound[b.action] = true
		if own[b.action] == nil && !known[b.action] {
			t.Errorf("nobody handles %q", b.action)
		}
	}
	for a := range own {
		if !bound[a] {
			t.Errorf("no key for %q", a)
		}
	}
	for _, a := range viewActions {
		if !bound[a] {
			t.Errorf("no key for %q", a)
		}
	}
}

// TestEveryKey presses each key of each view once: none may panic, and after
// each the screen still fits.
func TestEveryKey(t *testing.T) {
	t.Parallel()
	for _, v := range newViews() {
		t.Run(v.name(), func(t *testing.T) {
			t.Parallel()
			for _, b := range merged(v.bindings(), globals) {
				x := newHarness(t, "c_reset", 100, 30, noColour)
				x.m.show(v.name())
				x.press(b.keys[0])
				x.frame()
			}
		})
	}
}

func TestHelpRunsALine(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 80, 24, noColour)
	x.press("?")
	for i := 0; i < 60 && !strings.Contains(x.text(), glyphMarker+" 5  "); i++ {
		x.press("j")
	}
	x.press("enter")
	if x.m.view().name() != "findings" || x.m.overlay != nil {
		t.Errorf("in %s\n%s", x.m.view().name(), x.text())
	}
	// What cannot be done now is listed with the reason.
	x.press("?")
	found := false
	for i := 0; i < 60 && !found; i++ {
		found = strings.Contains(x.text(), "not now: no filter is set")
		x.press("j")
	}
	if !found {
		t.Error("no disabled line with its reason\n" + x.text())
	}
}

func TestEscNeverQuits(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "c_reset", 80, 24, noColour)
	x.press("2", "5", "/").write("x").press("enter", "e", "?", "esc", "esc", "esc", "esc", "esc", "esc", "esc")
	if x.quit {
		t.Error("esc quits")
	}
	if x.m.view().name() != "fleet" {
		t.Errorf("esc ends in %s", x.m.view().name())
	}
}

// TestStepsThatCancelOut: a step back and one forward, both while a move runs,
// are no move at all.
func TestStepsThatCancelOut(t *testing.T) {
	t.Parallel()
	m := newHarness(t, "c_reset", 80, 24, noColour).m
	m.play.busy, m.play.cancel = true, func() {}
	for _, step := range []int{-1, 1, 3, -1, -2} {
		m.move(stepBy(step))
	}
	if m.play.next != nil {
		t.Fatalf("a move of %d steps is left", m.play.next.step)
	}
	m.move(stepBy(-1))
	m.move(stepBy(-1))
	if m.play.next == nil || m.play.next.step != -2 {
		t.Errorf("two steps back became %+v", m.play.next)
	}
}
