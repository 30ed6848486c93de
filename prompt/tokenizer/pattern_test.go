package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"github.com/dlclark/regexp2/v2"
)

// patterns are those that tokenizers in use split with, and some to try more of
// the dialect; all mean the same to regexp2.
var patterns = map[string]string{
	"gpt2":     gpt2,
	"llama3":   `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"qwen2":    `[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"qwen3.5":  `[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"o200k":    `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"deepseek": `[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_` + "`" + `{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"right":    `\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))`,
	"groups":   `(?:ab|a)+x|(a|b)*c|(?:a{2,3}b?){1,2}|(?>a+)b|.\d?\D`,
	"lazy":     `a.*?e|\S+?\s|\s*?\S`,
	"classes":  `[^\]\-a-f\x41\u00e9]+|[\d\S]`,
}

// known tells characters that Go's tables and regexp2 know as ours do.
func known(r rune) bool {
	for _, s := range added {
		if s.has(r) {
			return false
		}
	}
	return r != 0x1171e && !unicode.Is(unicode.Cs, r)
}

func randomText(rng *rand.Rand) string {
	pools := []string{"ab", "aabbcex", "abcXYZ '", " \n\r\t", "0123456789", "'.,!?/-]_", "éßǅʰאŒЖж中文かなأ٣½Ⅷ", "\u0301\u0316\u200d\u00a0\u3000🚀"}
	var b strings.Builder
	for range rng.IntN(12) {
		pool := []rune(pools[rng.IntN(len(pools))])
		for range rng.IntN(6) {
			b.WriteRune(pool[rng.IntN(len(pool))])
		}
		if r := rng.Int32N(unicode.MaxRune + 1); rng.IntN(4) == 0 && known(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// The matcher must find what a well-kept library finds.
func TestMatcher(t *testing.T) {
	t.Parallel()
	for name, pattern := range patterns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			re := regexp2.MustCompile(pattern, regexp2.None)
			m, err := compilePattern(pattern)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(7, 11))
			for range 2000 {
				text := randomText(rng)
				var want, got []string
				for found, err := re.FindStringMatch(text); found != nil; found, err = re.FindNextMatch(found) {
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, found.String())
				}
				left := 1 << 30
				for at := 0; ; {
					start, end, ok, err := m.find(text, at, &left)
					if err != nil {
						t.Fatal(err)
					}
					if !ok {
						break
					}
					got = append(got, text[start:end])
					at = end
				}
				if strings.Join(got, "|") != strings.Join(want, "|") {
					t.Fatalf("%q: found %q, want %q", text, got, want)
				}
			}
		})
	}
}

func TestPatternRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct{ pattern, want string }{
		{`(?<=a)b`, "lookbehind, (?<=, is not implemented"},
		{`(?<name>a)`, "this kind of group, (?, is not implemented"},
		{`a*`, "it can match nothing"},
		{`(a|b)*?c`, "a lazy repetition of a group"},
		{`(a*)+b`, "a repeated part that can match nothing"},
		{`\w+`, `\w is not implemented`},
		{`(a)\1`, `\1 is not implemented`},
		{`\bword`, `\b is not implemented`},
		{`^a`, "the anchor ^ is not implemented"},
		{`\p{Klingon}`, `the property \p{Klingon} is not implemented`},
		{`\pL`, `\p without braces`},
		{`[[:alpha:]]`, "a class such as [:alpha:]"},
		{`(?i:straße)`, `(?i) over "st"`},
		{`(?i:ж)`, "(?i) over characters beyond ASCII"},
		{`a{2}+`, "? and + after {}"},
		{`a{9999}`, "is not between 0 and 1000"},
		{`a**`, "a repeated repetition"},
		{`(a`, "a bracket is not closed"},
		{`a)`, "a bracket closes that was not opened"},
		{`[a`, "it ends too early"},
		{`a|`, "it can match nothing"},
		{strings.Repeat("(", 99), "nested deeper than 50"},
		{`((a{1000}b{1000}){1000}c){1000}`, "it is too long once its counts are written out"},
	}
	for _, tt := range tests {
		_, err := compilePattern(tt.pattern)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40q: %v, want %q in it", tt.pattern, err, tt.want)
		}
	}
}

// A pattern that tries all ways through a text ends by a count of steps.
func TestPatternEnds(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{`(?:a+)+b`, `(?:a|a)+b`, `(?:(?:ab?)+)+c`} {
		m, err := compilePattern(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{40, 100_000} {
			left := stepsPerByte * n
			if _, _, _, err := m.find(strings.Repeat("a", n), 0, &left); err != errSteps {
				t.Errorf("%s on %d: %v, want %v", pattern, n, err, errSteps)
			}
		}
	}
}
