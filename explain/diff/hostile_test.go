package diff_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

func repeat(t wire.Token, n int) []wire.Token { return slices.Repeat([]wire.Token{t}, n) }

// long are pairs of long prompts as ids, by what is hard about them.
func long(n int) map[string][2][]wire.Token {
	r := rand.New(rand.NewPCG(7, 4))
	base := random(r, n, 150000)
	other := random(r, n, 150000)
	head := slices.Clone(base)
	copy(head[100:], other[:20])
	both := slices.Clone(head)
	copy(both[n-200:], other[n-200:])
	edits := slices.Clone(base)
	for i := 50; i < n; i += 97 {
		edits[i] = 1
	}
	few := random(r, n, 2)
	return map[string][2][]wire.Token{
		"a span at the head":           {base, head},
		"at the head and another tail": {base, both},
		"edits all over":               {base, edits},
		"halves swapped":               {base, slices.Concat(base[n/2:], base[:n/2])},
		"nothing in common":            {base, other},
		"one token":                    {repeat(1, n), slices.Concat(repeat(1, n/2), []wire.Token{2}, repeat(1, n/2))},
		"one token and another":        {repeat(1, n), repeat(2, n)},
		"two tokens":                   {few, random(r, n, 2)},
		"period two":                   {slices.Repeat([]wire.Token{1, 2}, n/2), slices.Repeat([]wire.Token{2, 1, 3}, n/3)},
	}
}

func BenchmarkCompare(b *testing.B) {
	pairs := long(128 << 10)
	for _, name := range []string{"a span at the head", "at the head and another tail", "edits all over", "halves swapped", "nothing in common", "one token", "two tokens", "period two"} {
		p := pairs[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := diff.Compare(&prompt.Prompt{Tokens: p[0]}, &prompt.Prompt{Tokens: p[1]}, diff.Options{BlockSize: 16}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(7, 5))
	words := make([]string, 5000)
	for i := range words {
		words[i] = word(r)
	}
	text := prose(r, words, 100<<10)
	x, y := chat("Now: 2026-01-02T03:04:05Z\n"+text, "Where is it?"), chat("Now: 2026-01-02T03:04:59Z\n"+text, "What does it cost?")
	b.Run("text", func(b *testing.B) {
		b.ReportAllocs()
		b.ReportMetric(float64(len(x.Tokens)), "tokens")
		for b.Loop() {
			if _, err := diff.Compare(x, y, diff.Options{BlockSize: 16}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestLong(t *testing.T) {
	t.Parallel()
	n := 128 << 10
	if testing.Short() {
		n = 16 << 10
	}
	for name, p := range long(n) {
		d, err := diff.Compare(&prompt.Prompt{Tokens: p[0]}, &prompt.Prompt{Tokens: p[1]}, diff.Options{BlockSize: 16})
		if err != nil {
			t.Fatal(err)
		}
		check(t, d, &prompt.Prompt{Tokens: p[0]}, &prompt.Prompt{Tokens: p[1]})
		switch name {
		case "edits all over":
			// One token in 97: the first 16 are named and the others counted.
			if len(d.Spans) != diff.MaxSpans || len(d.Spans)+d.More != (n-50+96)/97 {
				t.Errorf("%s: %d spans and %d more", name, len(d.Spans), d.More)
			}
		case "nothing in common", "one token and another":
			if d.Relation != diff.Unrelated {
				t.Errorf("%s: %v", name, d.Relation)
			}
		}
	}
}

// Texts that recognisers could read again and again.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	n := 50_000
	if testing.Short() {
		n = 10_000
	}
	edit := func(s string) string {
		b := []byte(s)
		for i := len(b) / 50; i < len(b); i += len(b) / 20 {
			b[i] = '7'
		}
		return string(b)
	}
	for name, s := range map[string]string{
		"brackets":     strings.Repeat("[", n),
		"objects":      strings.Repeat(`{"a":`, n/5),
		"pairs":        "[" + strings.Repeat(`{"name":1},`, n/11) + "1]",
		"paths":        strings.Repeat("a/b.go\n", n/7),
		"statuses":     "git\n" + strings.Repeat(" M a/b.go\n", n/10),
		"one line":     strings.Repeat("a, ", n/3),
		"lines":        strings.Repeat("a b\n", n/4),
		"think":        strings.Repeat("<think>", n/7),
		"blanks":       strings.Repeat(" ", n),
		"no text":      strings.Repeat("\xbf", n),
		"digits":       strings.Repeat("2026-01-02T", n/11),
		"content list": strings.Repeat(`[{"type":"text","text":"`, n/24),
	} {
		a, b := plain(s), plain(edit(s))
		check(t, compare(t, a, b, 16), a, b)
		text := &prompt.Prompt{Text: edit(s)}
		d, err := diff.Compare(&prompt.Prompt{Text: s}, text, diff.Options{BlockSize: 16})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		check(t, d, a, b)
	}
}

// check holds what must be so for any two prompts.
func check(t *testing.T, d *diff.Diff, a, b *prompt.Prompt) {
	t.Helper()
	if d.Summary("A", "B") == "" {
		t.Error("no summary")
	}
	if d.HasTokens && d.Common != shared(a.Tokens, b.Tokens) {
		t.Errorf("%d tokens in common, want %d", d.Common, shared(a.Tokens, b.Tokens))
	}
	if (d.Relation == diff.Parts) != (len(d.Spans) > 0) || len(d.Spans) > diff.MaxSpans {
		t.Errorf("%v with %d spans", d.Relation, len(d.Spans))
	}
	at := [4]int{}
	for i, s := range d.Spans {
		for _, side := range []struct {
			e       diff.Extent
			p       *prompt.Prompt
			at, byt *int
		}{{s.A, a, &at[0], &at[1]}, {s.B, b, &at[2], &at[3]}} {
			e := side.e
			if e.Start < *side.at || e.End < e.Start || d.HasTokens && e.End > len(side.p.Tokens) || len(e.Text) > diff.MaxText {
				t.Errorf("span %d: %+v behind token %d", i, e, *side.at)
			}
			*side.at = e.End
			if e.From < 0 {
				continue
			}
			if e.From < *side.byt || e.To < e.From || e.To > len(side.p.Text) {
				t.Errorf("span %d: %+v behind byte %d", i, e, *side.byt)
			}
			*side.byt = e.To
			if utf8.ValidString(side.p.Text) && !utf8.ValidString(e.Text) {
				t.Errorf("span %d: %q is cut within a character", i, e.Text)
			}
		}
		if s.A.Start == s.A.End && s.B.Start == s.B.End && d.HasTokens {
			t.Errorf("span %d is empty: %+v", i, s)
		}
	}
	for _, p := range []diff.Place{d.A, d.B} {
		if len(p.Before) > diff.Around || len(p.After) > diff.Around {
			t.Errorf("%d and %d bytes around", len(p.Before), len(p.After))
		}
	}
	if r := d.Reuse; r.Now < 0 || r.Lost < 0 || r.Moved*d.BlockSize > len(a.Tokens)+len(b.Tokens) {
		t.Errorf("%+v", r)
	}
}

// hostile makes a prompt of bytes: its text, parts and spans need not fit together.
func hostile(text string, raw []byte, form uint8) *prompt.Prompt {
	p := &prompt.Prompt{}
	if form&1 != 0 {
		p.Text = text
	}
	number := func() int {
		if len(raw) < 2 {
			return 0
		}
		n := int(int16(binary.LittleEndian.Uint16(raw)))
		raw = raw[2:]
		return n
	}
	switch {
	case form&6 == 2:
		p.Tokens, p.Spans, _ = encode(text)
	case form&6 == 4:
		for _, c := range []byte(text) {
			p.Tokens = append(p.Tokens, wire.Token(c))
			p.Spans = append(p.Spans, prompt.Span{Start: number(), End: number()})
		}
	}
	if form&8 != 0 {
		for i := 0; len(raw) >= 4 && i < 20; i++ {
			p.Parts = append(p.Parts, prompt.Part{
				Span: prompt.Span{Start: number(), End: number()}, Kind: prompt.Kind(i % 6), Message: i / 3, Role: []string{"user", "system"}[i%2],
			})
		}
	}
	return p
}

func FuzzCompare(f *testing.F) {
	for _, p := range pains() {
		f.Add(p.a.Text, p.b.Text, []byte{}, uint8(3), uint8(3), uint8(16))
	}
	f.Add("", "a", []byte("123456789"), uint8(15), uint8(13), uint8(0))
	f.Add("\xff\xfe{\"a\":1", "\xc3(", []byte("\x01\x00\x09\x00"), uint8(13), uint8(5), uint8(1))
	f.Add("x-a: 1\n", "x-a: 2\n", []byte("\x00\x00\x09\x00"), uint8(1), uint8(1), uint8(4))
	f.Fuzz(func(t *testing.T, textA, textB string, raw []byte, formA, formB, size uint8) {
		if len(textA)+len(textB) > 1<<16 {
			t.Skip()
		}
		a, b := hostile(textA, raw, formA), hostile(textB, raw, formB)
		for _, enc := range []func(string) ([]wire.Token, []prompt.Span, error){nil, encode} {
			d, err := diff.Compare(a, b, diff.Options{BlockSize: int(size), Encode: enc})
			if err == nil {
				check(t, d, a, b)
			} else if !strings.HasPrefix(err.Error(), "compare prompts: ") {
				t.Error(err)
			}
		}
	})
}
