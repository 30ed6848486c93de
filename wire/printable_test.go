package wire

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                            "",
		"pod-1/0":                     "pod-1/0",
		"Zürich 日本 ≤":                 "Zürich 日本 ≤",
		"\x1b[31mred\x1b[0m":          "?[31mred?[0m",
		"a\nb\tc\rd":                  "a b c d",
		"bell\a nul\x00 del\x7f":      "bell? nul? del?",
		"c1 \u009b5m":                 "c1 ?5m",
		"\u202eabc\u200b\u2066\ufeff": "?abc???",
		"bad \xff\xfe":                "bad ??",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	if got := Printable(strings.Repeat("日", 1_000_000)); len(got) > maxPrintable+10 || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid %t", len(got), utf8.ValidString(got))
	}
}
