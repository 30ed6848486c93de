//go:build hftok

package hf

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// texts makes random texts for one tokenizer. None holds a NUL or anything that
// is no UTF-8: the library cannot be asked about those.
type texts struct {
	r       *rand.Rand
	scripts [][]rune // the characters of each script
	marks   []rune
	added   []string // the tokenizer's added tokens
	pieces  []func() string
}

func newTexts(t testing.TB, seed uint64, file []byte) *texts {
	t.Helper()
	var known struct {
		Added []struct{ Content string } `json:"added_tokens"`
	}
	if err := json.Unmarshal(file, &known); err != nil {
		t.Fatal(err)
	}
	g := &texts{r: rand.New(rand.NewPCG(seed, 2)), marks: runes(unicode.M), added: []string{"<|none|>"}}
	for _, a := range known.Added {
		g.added = append(g.added, a.Content)
	}
	for _, name := range slices.Sorted(maps.Keys(unicode.Scripts)) {
		g.scripts = append(g.scripts, runes(unicode.Scripts[name]))
	}
	g.pieces = []func() string{
		g.words, g.words, g.code, g.space, g.script, g.script, g.emoji, g.special, g.special, g.combining, g.hangul, g.low, g.any, g.any,
	}
	return g
}

func runes(table *unicode.RangeTable) []rune {
	var out []rune
	for _, r := range table.R16 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			out = append(out, c)
		}
	}
	for _, r := range table.R32 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			out = append(out, c)
		}
	}
	return out
}

// next gives a text of up to ten pieces, mostly of unlike kinds.
func (g *texts) next() string {
	var b strings.Builder
	for range 1 + g.r.IntN(10) {
		b.WriteString(pick(g.r, g.pieces)())
	}
	return strings.ReplaceAll(b.String(), "\x00", "")
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// some joins up to n of what one gives.
func (g *texts) some(n int, one func() string) string {
	var b strings.Builder
	for range 1 + g.r.IntN(n) {
		b.WriteString(one())
	}
	return b.String()
}

var (
	words = strings.Fields(`the The THE parcel Parcel isn't ISN'T I'll we've they'RE d'être it’s naïve Straße ﬁne ＦＵＬＬ 12 1234567 3.14 1,000
		2026-11-30T04:10:00Z 0x1F ½ ² Ⅷ ٣ e-mail --- ... ?! $5 #tag @me "quoted" (a) [b] {c} a_b camelCase HTTPServer`)
	code = []string{
		"func f(x int) {\n\treturn x\n}\n", "    ", "\t\t", "\r\n", "if (a&&b) {", "};\n", "/* */", "// x\n", "</div>", "==", "!=", "->", "::", "<<=", "\\n",
		`{"k": [1, 2.50, null]}`, "SELECT *\nFROM t;", "a[i][j]", "λ x → x", "#!/bin/sh\n",
	}
	spaces = []string{" ", " ", "  ", "\n", "\n\n", "\t", "\r", "\r\n", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u2003", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\u180e", "▁", "Ġ"}
	emoji  = []string{"😀", "👍🏽", "👩\u200d👩\u200d👧", "🏳️\u200d🌈", "🇩🇪", "🇩", "❤️", "❤", "1️⃣", "☺︎", "🫠", "🧑🏿\u200d🚀", "\u200d", "\ufe0f", "🏴\U000e0067\U000e0062\U000e007f"}
)

func (g *texts) words() string {
	return g.some(8, func() string { return pick(g.r, []string{"", " ", " ", " "}) + pick(g.r, words) })
}
func (g *texts) code() string  { return g.some(4, func() string { return pick(g.r, code) }) }
func (g *texts) space() string { return g.some(5, func() string { return pick(g.r, spaces) }) }
func (g *texts) emoji() string { return g.some(4, func() string { return pick(g.r, emoji) }) }

func (g *texts) script() string {
	of := pick(g.r, g.scripts)
	return g.some(12, func() string { return string(pick(g.r, of)) })
}

// special is an added token as text, sometimes cut or between spaces.
func (g *texts) special() string {
	s := pick(g.r, g.added)
	switch g.r.IntN(5) {
	case 0:
		return " " + s + " "
	case 1:
		cut := []rune(s)
		return string(cut[:g.r.IntN(len(cut)+1)])
	case 2:
		return s + s
	}
	return s
}

func (g *texts) combining() string {
	return g.some(3, func() string {
		return string(pick(g.r, pick(g.r, g.scripts))) + g.some(4, func() string { return string(pick(g.r, g.marks)) })
	})
}

// hangul composes or not, by its letters.
func (g *texts) hangul() string {
	return g.some(4, func() string {
		return string([]rune{0x1100 + g.r.Int32N(20), 0x1161 + g.r.Int32N(22), 0x11a7 + g.r.Int32N(29)}[:1+g.r.IntN(3)])
	})
}

// low is text of controls and Latin-1.
func (g *texts) low() string {
	return g.some(8, func() string { return string(1 + g.r.Int32N(0xff)) })
}

// any is text of all code points, half of them below U+20000, where most have a
// meaning.
func (g *texts) any() string {
	return g.some(8, func() string {
		for {
			most := int32(unicode.MaxRune)
			if g.r.IntN(2) == 0 {
				most = 0x20000
			}
			if c := 1 + g.r.Int32N(most); c < 0xd800 || c > 0xdfff {
				return string(c)
			}
		}
	})
}

// everyCodePoint gives texts that hold each code point of the planes with
// characters but NUL, and some of each other plane, twelve at a time.
func everyCodePoint(yield func(string) bool) {
	var b strings.Builder
	n := 0
	for c := rune(1); c <= unicode.MaxRune; c++ {
		characters := c < 0x34000 || c >= 0xe0000 && c < 0xe1000
		if c >= 0xd800 && c <= 0xdfff || !characters && c%97 != 0 {
			continue
		}
		b.WriteString("a" + string(c) + string(c) + "1" + string(c) + " " + string(c) + "\u0301")
		if n++; n%12 == 0 {
			if !yield(b.String()) {
				return
			}
			b.Reset()
		}
	}
	yield(b.String())
}
