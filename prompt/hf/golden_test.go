//go:build hftok

package hf

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// own is the tokenizer of fixtures; the others are refdata's.
const own = "fixtures"

// load reads a tokenizer.
func load(t testing.TB, name string) (*Encoder, []byte) {
	t.Helper()
	var file []byte
	var err error
	if name == own {
		file, err = fixtures.FS.ReadFile("tokenizer/tokenizer.json")
	} else {
		file, err = os.ReadFile(filepath.Join(refdata.Tokenizer(t, name), "tokenizer.json"))
	}
	if err != nil {
		t.Fatal(err)
	}
	e, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, file
}

// The library gives what HuggingFace's Python package gave of our own tokenizer.
func TestGolden(t *testing.T) {
	t.Parallel()
	e, _ := load(t, own)
	b, err := fixtures.FS.ReadFile("tokenizer/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Texts []struct {
			Text  string
			IDs   []wire.Token
			Spans [][2]int
		}
	}
	if err := json.Unmarshal(b, &golden); err != nil || len(golden.Texts) == 0 {
		t.Fatalf("%d texts, %v", len(golden.Texts), err)
	}
	for _, g := range golden.Texts {
		if strings.Contains(g.Text, "\x00") {
			continue // see TestEncodeRefuses
		}
		want := tokenizer.Encoding{IDs: g.IDs, Spans: []tokenizer.Span{}}
		for _, s := range g.Spans {
			want.Spans = append(want.Spans, tokenizer.Span{Start: s[0], End: s[1]})
		}
		got, err := e.Encode(t.Context(), g.Text, false)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%q (-want +got):\n%s, error %v", g.Text, d, err)
		}
	}
}

// The library gives what HuggingFace's Python package gave.
func TestOracleGolden(t *testing.T) {
	t.Parallel()
	type golden struct {
		Name, Text string
		IDs        map[string]struct {
			T, F []wire.Token
			Off  [][2]int // in characters, of F; long texts have none
		}
	}
	texts := refdata.All[golden](t, filepath.Join(refdata.Root(t), "prompt", "tokenizer_golden.jsonl.gz"))
	for _, name := range refdata.Tokenizers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := load(t, name)
			compared := 0
			for _, g := range texts {
				want := g.IDs[name]
				plain, err := e.Encode(t.Context(), g.Text, false)
				if err != nil {
					t.Errorf("%s: %v", g.Name, err)
					continue
				}
				special, err := e.Encode(t.Context(), g.Text, true)
				if err != nil {
					t.Errorf("%s: %v", g.Name, err)
					continue
				}
				if !slices.Equal(plain.IDs, want.F) || !slices.Equal(special.IDs, want.T) {
					t.Errorf("%s: the ids differ", g.Name)
				}
				if spans := inBytes(g.Text, want.Off); len(want.Off) == len(want.F) && !slices.Equal(plain.Spans, spans) {
					t.Errorf("%s: spans (-want +got):\n%s", g.Name, cmp.Diff(spans, plain.Spans))
				}
				compared++
			}
			t.Logf("%d texts compared", compared)
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
