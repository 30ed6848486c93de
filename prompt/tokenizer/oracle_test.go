package tokenizer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// real loads a tokenizer of a real model.
func real(t testing.TB, name string) *tokenizer.Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(refdata.Tokenizer(t, name), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// golden is a text as Python's tokenizers made tokens of it.
type golden struct {
	Name string `json:"name"`
	Text string `json:"text"`
	IDs  map[string]struct {
		With    []wire.Token `json:"t"`
		Without []wire.Token `json:"f"`
		Offsets [][2]int     `json:"off"` // of Without, in characters; none for the 4 longest texts
	} `json:"ids"`
}

// byteSpans turns offsets in characters into spans.
func byteSpans(text string, offsets [][2]int) []tokenizer.Span {
	at := []int{0}
	for i, r := range text {
		at = append(at, i+utf8.RuneLen(r))
	}
	out := make([]tokenizer.Span, 0, len(offsets))
	for _, o := range offsets {
		out = append(out, tokenizer.Span{Start: at[o[0]], End: at[o[1]]})
	}
	return out
}

// firstDifference keeps the failure of a long text short.
func firstDifference[T comparable](got, want []T) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	near := func(all []T) []T { return all[min(i, len(all)):min(i+8, len(all))] }
	return fmt.Sprintf("%d and %d of them; from %d on %v, want %v", len(got), len(want), i, near(got), near(want))
}

func TestOracleGolden(t *testing.T) {
	t.Parallel()
	rows := refdata.All[golden](t, filepath.Join(refdata.Root(t), "prompt", "tokenizer_golden.jsonl.gz"))
	for _, name := range refdata.Tokenizers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := real(t, name)
			tokens, spans := 0, 0
			for _, row := range rows {
				want := row.IDs[name]
				plain, err := tok.Encode(row.Text, false)
				if err != nil {
					t.Fatalf("%s: %v", row.Name, err)
				}
				special, err := tok.Encode(row.Text, true)
				if err != nil {
					t.Fatalf("%s: %v", row.Name, err)
				}
				tokens += len(plain.IDs)
				if !slices.Equal(plain.IDs, want.Without) {
					t.Errorf("%s %.80q: %s", row.Name, row.Text, firstDifference(plain.IDs, want.Without))
				}
				if !slices.Equal(special.IDs, want.With) {
					t.Errorf("%s %.80q with special tokens: %s", row.Name, row.Text, firstDifference(special.IDs, want.With))
				}
				if want.Offsets == nil {
					continue
				}
				spans++
				if want := byteSpans(row.Text, want.Offsets); !slices.Equal(plain.Spans, want) {
					t.Errorf("%s %.80q: spans: %s", row.Name, row.Text, firstDifference(plain.Spans, want))
				}
			}
			t.Logf("%s: %d texts with and without special tokens, %d tokens, spans of %d texts",
				name, len(rows), tokens, spans)
		})
	}
}
