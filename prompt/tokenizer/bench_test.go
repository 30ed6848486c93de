package tokenizer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/refdata"
)

// chat is a long prompt as agents send it: prose, code and JSON.
func chat(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "fixtures", "tokenizer", "corpus.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Repeat(string(data), 15) // about 100 KB
}

func benchmarkEncode(b *testing.B, tok *tokenizer.Tokenizer, text string) {
	b.Helper()
	tokens := 0
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		got, err := tok.Encode(text, false)
		if err != nil {
			b.Fatal(err)
		}
		tokens += len(got.IDs)
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}

func BenchmarkEncode(b *testing.B) {
	b.Run("fixture", func(b *testing.B) { benchmarkEncode(b, small(b), chat(b)) })
	root := refdata.Root(b)
	texts := map[string]string{}
	for _, row := range refdata.All[golden](b, filepath.Join(root, "prompt", "tokenizer_golden.jsonl.gz")) {
		texts[row.Name] = row.Text
	}
	for _, name := range refdata.Tokenizers {
		b.Run(name, func(b *testing.B) {
			tok := real(b, name)
			for _, text := range []string{"long100k_en", "long100k_mixed"} {
				b.Run(text, func(b *testing.B) { benchmarkEncode(b, tok, texts[text]) })
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range refdata.Tokenizers {
		b.Run(name, func(b *testing.B) {
			data, err := os.ReadFile(filepath.Join(refdata.Tokenizer(b, name), "tokenizer.json"))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := tokenizer.Load(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
