//go:build hftok

package hf

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/refdata"
)

// differ is how many random texts TestDiffer takes in all, unless KVSCOPE_DIFFER
// says (make differ).
const differ = 4000

// outcome is what became of a text in both engines.
type outcome string

const (
	same    outcome = "equal"
	refused outcome = "refused by pure Go for code points that its tables do not know"
	// The others are failures.
	wrongly outcome = "refused by pure Go"
	failed  outcome = "refused by Rust"
	ids     outcome = "other ids"
	spans   outcome = "the same ids with other spans"
	newer   outcome = "other ids, with code points that Go's tables do not know"
)

// compare encodes a text with both, with and without special tokens.
func compare(t testing.TB, ours *tokenizer.Tokenizer, theirs *Encoder, text string) (outcome, error) {
	for _, special := range []bool{false, true} {
		want, err := theirs.Encode(t.Context(), text, special)
		if err != nil {
			return failed, err
		}
		got, err := ours.Encode(text, special)
		unknown := strings.ContainsFunc(text, unassigned)
		switch {
		case err != nil && unknown:
			return refused, err
		case err != nil:
			return wrongly, err
		case slices.Equal(got.IDs, want.IDs) && slices.Equal(got.Spans, want.Spans):
		case slices.Equal(got.IDs, want.IDs):
			return spans, fmt.Errorf("ids %v, special %t: spans %v, want %v", got.IDs, special, got.Spans, want.Spans)
		case unknown:
			return newer, fmt.Errorf("special %t: ids %v, want %v", special, got.IDs, want.IDs)
		default:
			return ids, fmt.Errorf("special %t: ids %v, want %v", special, got.IDs, want.IDs)
		}
	}
	return same, nil
}

// unassigned reports whether Go's tables have no category for a code point. It may
// have one in later versions of Unicode, or in none.
func unassigned(r rune) bool {
	return !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co)
}

// shortest leaves characters out for as long as the outcome stays.
func shortest(t testing.TB, ours *tokenizer.Tokenizer, theirs *Encoder, text string, is outcome) string {
	for n := len(text); n > 0; n /= 2 {
		for at := 0; at < len([]rune(text)); {
			rs := []rune(text)
			less := string(slices.Delete(slices.Clone(rs), at, min(at+n, len(rs))))
			if got, _ := compare(t, ours, theirs, less); got == is {
				text = less
			} else {
				at += n
			}
		}
	}
	return text
}

// howMany is how many random texts there are in all: differ, or what make differ
// asks for.
func howMany(t *testing.T) int {
	t.Helper()
	env := os.Getenv("KVSCOPE_DIFFER")
	if env == "" {
		return differ
	}
	n, err := strconv.Atoi(env)
	if err != nil {
		t.Fatalf("KVSCOPE_DIFFER: %v", err)
	}
	return n
}

// The pure-Go engine and the Rust library give the same ids and spans of random
// texts, for every real tokenizer and our own.
func TestDiffer(t *testing.T) {
	t.Parallel()
	names := append([]string{own}, refdata.Tokenizers...)
	n := (howMany(t) + len(names) - 1) / len(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs, file := load(t, name)
			seed := fnv.New64()
			_, _ = seed.Write([]byte(name)) // it never fails
			g := newTexts(t, seed.Sum64(), file)
			held(t, theirs, file, func(yield func(string) bool) {
				for range n {
					if !yield(g.next()) {
						return
					}
				}
			})
		})
	}
}

// The same with every character there is, between letters, digits and spaces.
func TestDifferCodePoints(t *testing.T) {
	t.Parallel()
	if howMany(t) <= differ {
		t.Skip("minutes long: make differ runs it")
	}
	for _, name := range append([]string{own}, refdata.Tokenizers...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs, file := load(t, name)
			held(t, theirs, file, everyCodePoint)
		})
	}
}

// held compares the two engines on texts, and tells how many had which outcome.
func held(t *testing.T, theirs *Encoder, file []byte, texts iter.Seq[string]) {
	t.Helper()
	ours, err := tokenizer.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	count := map[outcome]int{}
	n := 0
	for text := range texts {
		n++
		is, _ := compare(t, ours, theirs, text)
		count[is]++
		if is == same || is == refused || count[is] > 5 {
			continue
		}
		text = shortest(t, ours, theirs, text, is)
		_, err := compare(t, ours, theirs, text)
		t.Errorf("%s: %+q: %v", is, text, err)
	}
	for _, is := range []outcome{same, refused, wrongly, failed, ids, spans, newer} {
		if count[is] > 0 {
			t.Logf("%d of %d texts %s", count[is], n, is)
		}
	}
	if bad := n - count[same] - count[refused]; bad > 0 || n == 0 {
		t.Errorf("%d of %d texts differ", bad, n)
	}
}

// A difference of each kind is seen, and shortened to what makes it.
func TestDifferCanFail(t *testing.T) {
	t.Parallel()
	_, file := load(t, own)
	ours, err := tokenizer.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		change   func(text string, i []uint32, s []tokenizer.Span) ([]uint32, []tokenizer.Span)
		want     outcome
		shortest string
	}{
		{"a token more", func(text string, i []uint32, s []tokenizer.Span) ([]uint32, []tokenizer.Span) {
			if strings.Contains(text, "w") {
				return append(i, 1), append(s, tokenizer.Span{})
			}
			return i, s
		}, ids, "w"},
		{"another span", func(text string, i []uint32, s []tokenizer.Span) ([]uint32, []tokenizer.Span) {
			if strings.Contains(text, "w") {
				s[0].End++
			}
			return i, s
		}, spans, "w"},
		{"a failure", func(text string, i []uint32, s []tokenizer.Span) ([]uint32, []tokenizer.Span) {
			if strings.Contains(text, "h") && strings.Contains(text, "d") {
				return nil, nil
			}
			return i, s
		}, failed, "hd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			real, _ := load(t, own)
			theirs := &Encoder{rust: changed{real.rust, tt.change}}
			const text = "hello, world!"
			if is, _ := compare(t, ours, theirs, text); is != tt.want {
				t.Errorf("the outcome is %q, want %q", is, tt.want)
			}
			if got := shortest(t, ours, theirs, text, tt.want); got != tt.shortest {
				t.Errorf("shortened to %q, want %q", got, tt.shortest)
			}
		})
	}
}

// changed is a library whose answers are changed.
type changed struct {
	rust
	change func(string, []uint32, []tokenizer.Span) ([]uint32, []tokenizer.Span)
}

func (c changed) encode(text string, special bool) ([]uint32, []tokenizer.Span) {
	i, s := c.rust.encode(text, special)
	return c.change(text, i, s)
}

// Both engines on the same texts, recorded chats and random ones: tokens per
// second, and in the last one, where they take turns, how many times as fast as
// Rust pure Go is.
func BenchmarkEncode(b *testing.B) {
	const name = "qwen3"
	theirs, file := load(b, name)
	ours, err := tokenizer.Load(file)
	if err != nil {
		b.Fatal(err)
	}
	g := newTexts(b, 1, file)
	var random []string
	for range 1000 {
		random = append(random, g.next())
	}
	for _, on := range []struct {
		name  string
		texts []string
	}{{name, conversations(b)}, {name + "-random", random}} {
		pure := func(b *testing.B) (tokens int) {
			for _, text := range on.texts {
				got, err := ours.Encode(text, false)
				if err != nil {
					b.Fatal(err)
				}
				tokens += len(got.IDs)
			}
			return tokens
		}
		rust := func(b *testing.B) (tokens int) {
			for _, text := range on.texts {
				got, err := theirs.Encode(b.Context(), text, false)
				if err != nil {
					b.Fatal(err)
				}
				tokens += len(got.IDs)
			}
			return tokens
		}
		for _, engine := range []struct {
			name   string
			encode func(*testing.B) int
		}{{"pure-go/", pure}, {"rust/", rust}} {
			b.Run(engine.name+on.name, func(b *testing.B) {
				b.ReportAllocs()
				tokens := 0
				for b.Loop() {
					tokens += engine.encode(b)
				}
				b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
		b.Run("ratio/"+on.name, func(b *testing.B) {
			var inGo, inRust time.Duration
			for b.Loop() {
				begin := time.Now()
				pure(b)
				between := time.Now()
				rust(b)
				inGo += between.Sub(begin)
				inRust += time.Since(between)
			}
			b.ReportMetric(inRust.Seconds()/inGo.Seconds(), "×rust")
		})
	}
}

// conversations are the recorded chats of a fleet, each as one text.
func conversations(b *testing.B) []string {
	b.Helper()
	f, err := fixtures.Open("a_fleet/truth.jsonl.gz")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }() // memory
	var out []string
	for dec := json.NewDecoder(f); dec.More(); {
		var r struct {
			Request struct{ Messages []struct{ Content string } }
		}
		if err := dec.Decode(&r); err != nil {
			b.Fatal(err)
		}
		var text strings.Builder
		for _, m := range r.Request.Messages {
			text.WriteString(m.Content)
			text.WriteString("\n")
		}
		out = append(out, text.String())
	}
	return out
}
