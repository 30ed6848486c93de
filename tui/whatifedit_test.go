package tui

import (
	"fmt"
	"strings"
	"testing"
)

// asked is a recorded fleet with a prompt that b holds most of: by Dynamo's
// defaults it goes there.
func asked(t *testing.T, w, h int, mode string) *harness {
	t.Helper()
	x := newHarness(t, "a_fleet", w, h, mode)
	x.run(x.m.paste(truthLine(t, "a_fleet", 200)))
	return x
}

// says wants texts on the screen.
func (x *harness) says(texts ...string) {
	x.t.Helper()
	got := x.text()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			x.t.Errorf("%q is not in\n%s", text, got)
		}
	}
}

// TestWhatIfEdits: the choice follows a load, a match, a weight and the policy at
// once, and undoing brings it back. A flip that is named flips it.
func TestWhatIfEdits(t *testing.T) {
	t.Parallel()
	x := asked(t, 120, 50, noColour)
	const before = "It goes to b, before a by device_overlap_credit (16)."
	x.says(before, ":set b:active_prefill_tokens=513 (now 0): then a, c", "21.531, new_decode_blocks 21")

	x.press("L")
	x.says("set b:active_prefill_tokens=0")
	x.press("backspace").write("513").press("enter")
	x.says("It goes to any of a, c, which tie: before b by", "Edited* (u undoes): b:active_prefill_tokens=513", "known*", "by hand")
	x.press("u")
	x.says(before, "1 edit undone")
	if strings.Contains(x.text(), "Edited") {
		t.Errorf("an edit is still shown:\n%s", x.text())
	}

	x.press(":").write("set b:matched_blocks=4").press("enter")
	x.says("It goes to any of a, c", "4*", "128")
	x.press("u", ":").write("set overlap_score_credit=0").press("enter")
	x.says("It goes to any of a, b, c, which tie: all that are eligible are equal.")
	x.press(":").write("set overlap_score_credit=1").press("enter")
	x.says(before, "Edited* (u undoes): overlap_score_credit=1") // one value for each key
	x.press(":").write("policy least-loaded").press("enter")
	x.says("policy least-loaded", "all that are eligible are equal")
	if strings.Contains(x.text(), "Edited") {
		t.Errorf("a setting of another policy is shown:\n%s", x.text())
	}
	x.press(":").write("set b:active_requests=1").press("enter")
	x.says("It goes to any of a, c", "requests")
	x.press("L")
	x.says("set b:active_requests=1")
	x.press("esc")
	x.press("P")
	x.says("the router's rule", "of two candidates drawn at random")
	x.press("g", "enter")
	x.says("policy dynamo", before)
}

// TestWhatIfRefuses says what cannot be set, and how to get out of what cannot be
// answered.
func TestWhatIfRefuses(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "a_fleet", 160, 40, noColour)
	for text, want := range map[string]string{
		"set nothing":              "give SETTING=VALUE or REPLICA:FIELD=VALUE",
		"set speed=1":              "speed (set) is no setting of the policy dynamo",
		"set z:active_requests=1":  "z is no candidate",
		"set a:active_requests=-1": "is not a whole number from 0",
		"set a:temperature=1":      "a candidate has no temperature",
		"policy best":              "no policy is called",
		"model none":               "no replica serves",
	} {
		x.press(":").write(text).press("enter")
		x.says(want)
	}
	x.press("4", "L")
	x.says("L: there is no candidate yet: p pastes a prompt")
	x.press("u")
	x.says("u: nothing was edited")
	x.run(x.m.paste("1 2 3 4"))
	x.press(":").write("set a:matched_blocks=99").press("enter")
	x.says("Where it goes is not known", "a match of 99 blocks", "(u undoes the 1 edit)")
	x.press("u")
	x.says("It goes to any of a, b, c")
}

// TestWhatIfKeys: tab offers settings, loads, policies and models.
func TestWhatIfKeys(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "a_fleet", 160, 40, noColour)
	for text, want := range map[string]string{
		"set router_temp": "set router_temperature=",
		"set b:active_r":  "set b:active_requests=",
		"policy dynamo-":  "policy dynamo-two-tier-cost-fn",
	} {
		if got := x.m.completeCommand(text); len(got) != 1 || got[0] != want {
			t.Errorf("%q completes to %q, want %q", text, got, want)
		}
	}
}

// TestWhatIfWaits: what is edited while a prompt is read applies to that prompt.
func TestWhatIfWaits(t *testing.T) {
	t.Parallel()
	x := asked(t, 120, 50, noColour)
	v := x.m.whatIf()
	reading := v.paste(x.m.scene(), "1 2 3 4")
	if e, err := v.set(x.m.scene(), "a:active_requests=7"); err != nil || e.run != nil {
		t.Fatalf("it does not wait: %v", err)
	}
	again := v.receive(x.m.scene(), reading.run(t.Context()))
	if len(v.prompt.Tokens) != 4 || again.run == nil {
		t.Fatalf("prompt of %d, asked again: %v", len(v.prompt.Tokens), again.run != nil)
	}
	v.receive(x.m.scene(), again.run(t.Context()))
	if len(v.edits) != 1 || len(v.prompt.Tokens) != 4 {
		t.Errorf("edits %v of a prompt of %d", v.edits, len(v.prompt.Tokens))
	}
}

func TestScreenWhatIfEdited(t *testing.T) {
	t.Parallel()
	eachSize(t, func(t *testing.T, w, h int, mode string) {
		x := asked(t, w, h, mode)
		for _, text := range []string{"set b:active_prefill_tokens=600", "set c:active_requests=2", "set router_temperature=0.5"} {
			x.press(":").write(text).press("enter")
		}
		x.m.toast = ""
		x.m.dirty = true
		x.golden(fmt.Sprintf("what-if-edited_%dx%d_%s", w, h, mode))
	})
	t.Run("policy", func(t *testing.T) {
		t.Parallel()
		eachSize(t, func(t *testing.T, w, h int, mode string) {
			x := newHarness(t, "a_fleet", w, h, mode)
			x.press("4", "P")
			x.golden(fmt.Sprintf("what-if-policy_%dx%d_%s", w, h, mode))
		})
	})
}
