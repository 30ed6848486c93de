package tokenizer_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := fixtures.FS.ReadFile("tokenizer/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// small is the fixtures' own tokenizer.
func small(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load(fixture(t, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// encoded is a text as Python's tokenizers made tokens of it; spans are in bytes.
type encoded struct {
	Text  string
	IDs   []wire.Token
	Spans [][2]int
}

func (e encoded) spans() []tokenizer.Span {
	out := make([]tokenizer.Span, 0, len(e.Spans))
	for _, s := range e.Spans {
		out = append(out, tokenizer.Span{Start: s[0], End: s[1]})
	}
	return out
}

func TestFixture(t *testing.T) {
	t.Parallel()
	var golden struct{ Texts, Chats []encoded }
	if err := json.Unmarshal(fixture(t, "golden.json"), &golden); err != nil {
		t.Fatal(err)
	}
	tok := small(t)
	for _, want := range slices.Concat(golden.Texts, golden.Chats) {
		for _, special := range []bool{false, true} { // this tokenizer adds nothing
			got, err := tok.Encode(want.Text, special)
			if err != nil {
				t.Fatalf("%.80q: %v", want.Text, err)
			}
			if !slices.Equal(got.IDs, want.IDs) {
				t.Errorf("%.80q: %s", want.Text, firstDifference(got.IDs, want.IDs))
			}
			if spans := want.spans(); !slices.Equal(got.Spans, spans) {
				t.Errorf("%.80q: spans: %s", want.Text, firstDifference(got.Spans, spans))
			}
		}
	}
}
