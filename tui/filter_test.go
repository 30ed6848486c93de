package tui

import (
	"strings"
	"testing"
)

var testFields = []string{"replica", "trust", "device", "doubt"}

func TestFilter(t *testing.T) {
	t.Parallel()
	row := []string{"pod-1/0", "DEGRADED(gap)", "~14 210 / 16 384", "-3"}
	for text, want := range map[string]bool{
		"":                       true,
		"degraded":               true,
		"DEGR pod-1":             true,
		"exact":                  false,
		"!exact":                 true,
		"!!exact":                true, // the text "!exact" does not occur
		"trust:gap":              true,
		"replica:gap":            false,
		"tr:gap":                 true, // a beginning will do
		"device>14000":           true,
		"device>14210":           false,
		"device>=14210":          true,
		"device<1e9":             true,
		"device=14210":           true,
		"doubt<0":                true,
		"trust>1":                false, // no number there
		"/^pod-\\d/":             true,
		"/^\\d/":                 false,
		"!/^\\d/":                true,
		"trust:/gap|late/":       true,
		`"14 210"`:               true,
		`"14 211"`:               false,
		"pod-1/0":                true,
		"replica:pod-1/0 !stale": true,
	} {
		f, err := parseFilter(text, testFields)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := f.match(testFields, row); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	var none *filter
	if !none.match(testFields, row) || none.active() || none.String() != "" {
		t.Error("a nil filter hides something")
	}
}

func TestFilterErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/(/":       "missing closing )",
		"/abc":      "not closed",
		`"abc`:      "not closed",
		"!":         "negate",
		"colour:x":  "no field",
		"d:x":       "no field", // device or doubt
		"trust:":    "needs a word",
		"device>x":  "needs a number",
		"device>=":  "needs a number",
		"trust:/a/": "",
	} {
		_, err := parseFilter(text, testFields)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, s := range []string{"a b", "!x", "trust:/a|b/", "device>=1", `"x y"`, "/a\\/b/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseFilter(text, testFields)
		if err == nil {
			p.match(testFields, []string{"a", "b", "1", ""})
		}
	})
}

// TestFilterPrompt checks what the screen says while a filter is typed.
func TestFilterPrompt(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 100, 30, noColour)
	x.press("/").write("trust:stale")
	if s := x.text(); !strings.Contains(s, "valid: 1 of 3 rows") {
		t.Error(s)
	}
	x.write(" /(")
	s := x.text()
	if !strings.Contains(s, "invalid: a regular expression is not closed") || !strings.Contains(s, "DEGRADED(late-join)") {
		t.Error("an invalid filter must say why and hide nothing\n" + s)
	}
	x.press("enter")
	if x.m.prompt == nil {
		t.Error("an invalid filter was taken")
	}
	x.press("esc")
	if x.m.filters["fleet"].active() {
		t.Error("esc leaves a filter behind")
	}
}
