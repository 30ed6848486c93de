package diff_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// pairs is how many random pairs each property is held against.
func pairs() int {
	if testing.Short() {
		return 100
	}
	return 1000
}

func random(r *rand.Rand, n, vocabulary int) []wire.Token {
	out := make([]wire.Token, n)
	for i := range out {
		out[i] = wire.Token(r.IntN(vocabulary))
	}
	return out
}

// A span of 1 to 40 tokens put into or replaced in a random prompt, of which only
// token ids are known: the whole of it is found, and nothing else.
func TestRandomSpans(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 1))
	for n := range pairs() {
		size := 1 + r.IntN(64)
		vocabulary := []int{100, 2000, 150000}[n%3]
		head := random(r, r.IntN(1500), vocabulary)
		tail := random(r, 60+r.IntN(1500), vocabulary)
		spanA, spanB := random(r, 1+r.IntN(40), vocabulary), random(r, r.IntN(41), vocabulary)
		switch n % 4 {
		case 0:
			spanB = nil
		case 1:
			spanB = random(r, len(spanA), vocabulary)
		}
		if n%2 == 0 {
			spanA, spanB = spanB, spanA
		}
		if slices.Equal(spanA, spanB) {
			continue
		}
		a, b := slices.Concat(head, spanA, tail), slices.Concat(head, spanB, tail)
		d, err := diff.Compare(&prompt.Prompt{Tokens: a}, &prompt.Prompt{Tokens: b}, diff.Options{BlockSize: size})
		if err != nil {
			t.Fatal(err)
		}
		common := shared(a, b)
		if d.Relation != diff.Parts || len(d.Spans) != 1 || d.Common != common || d.Block != common/size {
			t.Fatalf("pair %d: %v at %d with spans %+v, want one at %d", n, d.Relation, d.Common, d.Spans, common)
		}
		s := d.Spans[0]
		grows := len(spanB) - len(spanA)
		if s.Grows != grows || (s.Kind == diff.Replaced) != (grows == 0) || s.A.Start != common || s.B.Start != common {
			t.Fatalf("pair %d: %+v, want at %d growing by %d", n, s, common, grows)
		}
		// It is no longer than what was put in, and without it both are equal.
		restA, restB := slices.Concat(a[:s.A.Start], a[s.A.End:]), slices.Concat(b[:s.B.Start], b[s.B.End:])
		if s.A.End-s.A.Start > len(spanA) || !slices.Equal(restA, restB) {
			t.Fatalf("pair %d: span %+v, put in %d, %d tokens at %d", n, s, len(spanA), len(spanB), len(head))
		}
		movedA, movedB := append(restA, a[s.A.Start:s.A.End]...), append(restB, b[s.B.Start:s.B.End]...)
		want := diff.Reuse{Now: common / size, Moved: shared(movedA, movedB) / size, Removed: shared(restA, restB) / size}
		if s.Class == diff.BOS || s.Class == diff.ListOrder {
			want.Moved = d.Reuse.Moved
			want.Removed = d.Reuse.Removed
		}
		want.Lost = want.Moved - want.Now
		if d.Reuse != want {
			t.Fatalf("pair %d: %+v, want %+v", n, d.Reuse, want)
		}
	}
}

// word gives a random word of letters.
func word(r *rand.Rand) string {
	b := make([]byte, 2+r.IntN(9))
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}

func prose(r *rand.Rand, words []string, n int) string {
	var out strings.Builder
	for range n {
		// A few words are most of a text.
		i := int(float64(len(words)) * r.Float64() * r.Float64() * r.Float64())
		out.WriteString(words[i])
		out.WriteString([]string{" ", " ", " ", " ", ", ", ". ", "\n"}[r.IntN(7)])
	}
	return out.String()
}

func hexDigits(r *rand.Rand, n int) string {
	out := make([]byte, n)
	for i := range out {
		out[i] = "0123456789abcdef"[r.IntN(16)]
	}
	out[0], out[n-1] = 'a'+byte(r.IntN(6)), '0'+byte(r.IntN(10)) // letters and digits in any case
	return string(out)
}

// volatiles write a value of a class at random.
var volatiles = []struct {
	class diff.Class
	write func(r *rand.Rand) string
}{
	{diff.Timestamp, func(r *rand.Rand) string {
		return fmt.Sprintf("Now: 2026-%02d-%02dT%02d:%02d:%02dZ\n", 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60))
	}},
	{diff.Timestamp, func(r *rand.Rand) string {
		return fmt.Sprintf("(%d June 2026 %02d:%02d) ", 1+r.IntN(30), r.IntN(24), r.IntN(60))
	}},
	{diff.Timestamp, func(r *rand.Rand) string { return fmt.Sprintf("ts=%d; ", 1790000000+r.IntN(9999999)) }},
	{diff.Date, func(r *rand.Rand) string { return fmt.Sprintf("Today is 2026-%02d-%02d. ", 1+r.IntN(12), 1+r.IntN(28)) }},
	{diff.Counter, func(r *rand.Rand) string { return fmt.Sprintf("[turn %d] ", r.IntN(5000)) }},
	{diff.ID, func(r *rand.Rand) string {
		return fmt.Sprintf("id %s-%s-%s-%s-%s\n", hexDigits(r, 8), hexDigits(r, 4), hexDigits(r, 4), hexDigits(r, 4), hexDigits(r, 12))
	}},
	{diff.ID, func(r *rand.Rand) string { return "commit " + hexDigits(r, 40) + " " }},
	{diff.HeaderLine, func(r *rand.Rand) string { return "\nx-request-id: " + hexDigits(r, 5) + "; v=1\n" }},
}

// Values of every class at random places of random chats: the class is named, and
// what is left without the span is equal.
func TestRandomValues(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 2))
	words := make([]string, 2000)
	for i := range words {
		words[i] = word(r)
	}
	merging := small(t)
	for n := range pairs() {
		v := volatiles[n/2%len(volatiles)]
		enc := encode
		if n%2 == 0 {
			enc = merging
		}
		ids := func(text string) []wire.Token { ids, _, _ := enc(text); return ids }
		contents := []string{}
		for range 2 + r.IntN(4) {
			contents = append(contents, prose(r, words, 20+r.IntN(80)))
		}
		m := r.IntN(len(contents) - 1)
		at := strings.IndexByte(contents[m][r.IntN(len(contents[m])-16):]+" ", ' ')
		write := func() *prompt.Prompt {
			changed := slices.Clone(contents)
			changed[m] = contents[m][:at] + " " + v.write(r) + contents[m][at:]
			p := chatML(roles(changed))
			p.Tokens, p.Spans, _ = enc(p.Text)
			return p
		}
		a, b := write(), write()
		if a.Text == b.Text {
			continue
		}
		d, err := diff.Compare(a, b, diff.Options{BlockSize: 16, Encode: enc})
		if err != nil {
			t.Fatal(err)
		}
		if d.Relation != diff.Parts || len(d.Spans) != 1 {
			t.Fatalf("pair %d: %v, %+v", n, d.Relation, d.Spans)
		}
		s := d.Spans[0]
		if s.Class != v.class || s.A.Message != m || d.A.Message != m || !s.Rejoins {
			t.Errorf("pair %d: %v (%s) in message %d, want %v in %d: %q, %q", n, s.Class, s.Detail, s.A.Message, v.class, m, s.A.Text, s.B.Text)
		}
		cut := func(p *prompt.Prompt, e diff.Extent) string { return p.Text[:e.From] + p.Text[e.To:] }
		if cut(a, s.A) != cut(b, s.B) {
			t.Errorf("pair %d: the rest differs around %q, %q", n, s.A.Text, s.B.Text)
		}
		moved := shared(ids(cut(a, s.A)+a.Text[s.A.From:s.A.To]), ids(cut(b, s.B)+b.Text[s.B.From:s.B.To])) / 16
		now := shared(a.Tokens, b.Tokens) / 16
		if d.Reuse.Now != now || d.Reuse.Moved != moved || d.Reuse.Lost != max(moved-now, 0) {
			t.Errorf("pair %d: %+v, want now %d, moved %d", n, d.Reuse, now, moved)
		}
	}
}

// Prompts of the same words but nothing else in common are unrelated, also with
// the same template around them.
func TestUnrelated(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 3))
	words := make([]string, 3000)
	for i := range words {
		words[i] = word(r)
	}
	for n := range pairs() {
		var a, b *prompt.Prompt
		switch n % 3 {
		case 0:
			a = &prompt.Prompt{Tokens: random(r, 30+r.IntN(2000), 5000)}
			b = &prompt.Prompt{Tokens: random(r, 30+r.IntN(2000), 5000)}
		case 1:
			a, b = plain(prose(r, words, 40+r.IntN(400))), plain(prose(r, words, 40+r.IntN(400)))
		case 2:
			a = chat(prose(r, words, 40+r.IntN(500)), prose(r, words, 40+r.IntN(100)))
			b = chat(prose(r, words, 40+r.IntN(500)), prose(r, words, 40+r.IntN(100)), prose(r, words, 40), "go on")
		}
		d := compare(t, a, b, 16)
		if d.Relation != diff.Unrelated || d.Spans != nil || d.Reuse.Lost != 0 || d.Reuse.Now != shared(a.Tokens, b.Tokens)/16 {
			t.Errorf("pair %d: %v, %d spans, %+v", n, d.Relation, len(d.Spans), d.Reuse)
		}
	}
}
