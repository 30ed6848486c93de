package remote

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/refdata"
)

func pointers(strs ...string) []*string {
	var out []*string
	for _, s := range strs {
		out = append(out, &s)
	}
	return out
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		strs       []*string
		want       []tokenizer.Span
	}{
		{"as they are", "a b", pointers("a", " b"), []tokenizer.Span{{Start: 0, End: 1}, {Start: 1, End: 3}}},
		{"letters for bytes", "a é\n", pointers("a", "ĠÃ©", "Ċ"), []tokenizer.Span{{Start: 0, End: 1}, {Start: 1, End: 4}, {Start: 4, End: 5}}},
		{"bytes of one character", "é", pointers("Ã", "©"), []tokenizer.Span{{Start: 0, End: 2}, {Start: 0, End: 2}}},
		{"a mark for the space", "a é", pointers("a", "▁", "<0xC3>", "<0xA9>"), []tokenizer.Span{{Start: 0, End: 1}, {Start: 1, End: 2}, {Start: 2, End: 4}, {Start: 2, End: 4}}},
		{"added tokens around", "ab", pointers("<s>", "a", "b", "</s>"), []tokenizer.Span{{}, {Start: 0, End: 1}, {Start: 1, End: 2}, {}}},
		{"an added token in other letters", "a <｜b▁c｜>", pointers("a", "Ġ", "<｜b▁c｜>"), []tokenizer.Span{{Start: 0, End: 1}, {Start: 1, End: 2}, {Start: 2, End: 15}}},
		{"no text", "", pointers("<s>"), []tokenizer.Span{{}}},
		{"nothing", "", nil, nil},
		{"no strings", "a", nil, nil},
		{"a token without a string", "a", []*string{nil}, nil},
		{"another text", "ab", pointers("a", "c"), nil},
		{"a text that ends within a token", "ab", pointers("a", "bc"), nil},
		{"changed by the tokenizer", "A", pointers("a"), nil},
		{"a space that the tokenizer added", "a", pointers("▁a"), nil},
		{"an added token that looks like the text", "aa", pointers("a", "a", "a"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tt.want, spans(tt.text, tt.strs)); d != "" {
				t.Errorf("spans (-want +got):\n%s", d)
			}
		})
	}
}

// vocabulary gives how a real tokenizer spells its tokens, which is what vLLM
// sends.
func vocabulary(t *testing.T, name string) map[int]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(refdata.Tokenizer(t, name), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Model struct{ Vocab map[string]int }
		Added []struct {
			ID      int
			Content string
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	out := make(map[int]string, len(file.Model.Vocab))
	for s, id := range file.Model.Vocab {
		out[id] = s
	}
	for _, a := range file.Added {
		out[a.ID] = a.Content
	}
	return out
}

// The spans of what real tokenizers made of real texts are the offsets that they
// told, wherever there are spans.
func TestOracleSpans(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute under the race detector")
	}
	t.Parallel()
	type golden struct {
		Name, Text string
		IDs        map[string]struct {
			F   []int
			Off [][2]int
		}
	}
	texts := refdata.All[golden](t, filepath.Join(refdata.Root(t), "prompt", "tokenizer_golden.jsonl.gz"))
	for _, name := range []string{"qwen3", "deepseek_v3", "gemma3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			strs := vocabulary(t, name)
			equal, without, untold := 0, 0, 0
			for _, g := range texts {
				ids := g.IDs[name]
				var tokens []*string
				for _, id := range ids.F {
					s, ok := strs[id]
					if !ok {
						t.Fatalf("%s: no token %d", g.Name, id)
					}
					tokens = append(tokens, &s)
				}
				got := spans(g.Text, tokens)
				switch {
				case got == nil:
					without++
					continue
				case len(ids.Off) != len(ids.F): // long texts
					untold++
					continue
				}
				if want := inBytes(g.Text, ids.Off); !slices.Equal(got, want) {
					t.Errorf("%s: spans (-want +got):\n%s", g.Name, cmp.Diff(want, got))
					continue
				}
				equal++
			}
			if equal*10 < len(texts)*9 {
				t.Errorf("spans of %d texts, none of %d", equal, without)
			}
			t.Logf("spans of %d texts are the reference's, %d have none, of %d it tells no offsets", equal, without, untold)
		})
	}
}

// inBytes turns offsets in characters into such in bytes.
func inBytes(text string, offsets [][2]int) []tokenizer.Span {
	var at []int
	for i := range text {
		at = append(at, i)
	}
	at = append(at, len(text))
	var out []tokenizer.Span
	for _, o := range offsets {
		out = append(out, tokenizer.Span{Start: at[o[0]], End: at[o[1]]})
	}
	return out
}

func FuzzSpans(f *testing.F) {
	f.Add("a b", "a", " b", "")
	f.Add("é", "Ã", "©", "<s>")
	f.Fuzz(func(t *testing.T, text, a, b, c string) {
		if !utf8.ValidString(text) {
			return
		}
		got := spans(text, []*string{&a, &b, &c})
		if got != nil && len(got) != 3 {
			t.Fatalf("%d spans of 3 tokens", len(got))
		}
		for _, s := range got {
			if s.Start < 0 || s.End < s.Start || s.End > len(text) || !utf8.ValidString(text[s.Start:s.End]) {
				t.Fatalf("span %v of %d bytes", s, len(text))
			}
		}
	})
}
