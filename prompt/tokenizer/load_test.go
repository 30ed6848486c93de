package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

// What is not implemented is refused with the component's name.
func TestLoadRefusals(t *testing.T) {
	t.Parallel()
	token := func(flags string) string {
		return `[{"id": 1000, "content": "<x>", "normalized": false, "special": true` + flags + `}]`
	}
	tests := []struct{ part, value, want string }{
		{"version", `"2.0"`, "another version than 1.0 is not implemented"},
		{"truncation", `{"max_length": 512}`, "truncation: what the file sets is not implemented"},
		{"padding", `{}`, "padding: what the file sets is not implemented"},
		{"normalizer", `{"type": "Lowercase"}`, "the normalizer Lowercase is not implemented"},
		{"normalizer", `{"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "BertNormalizer"}]}`, "the normalizer BertNormalizer"},
		{"normalizer", `{"type": "Replace", "pattern": {"String": ""}, "content": "x"}`, "a pattern that is empty"},
		{"normalizer", `{"type": "Replace", "pattern": {"Regex": "(?<=a)b"}, "content": "x"}`, `the pattern "(?<=a)b": lookbehind`},
		{"normalizer", `{"type": 7}`, "normalizer: json: "},
		{"pre_tokenizer", `{"type": "WhitespaceSplit"}`, "the pre-tokenizer WhitespaceSplit is not implemented"},
		{"pre_tokenizer", `{"type": "Split", "pattern": {"String": "a"}, "behavior": "Shuffled"}`, "the behavior Shuffled of Split"},
		{"pre_tokenizer", `{"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}`, "the prepend_scheme last of Metaspace"},
		{"pre_tokenizer", `{"type": "Metaspace", "replacement": "__"}`, "the replacement of Metaspace is not one character"},
		{"pre_tokenizer", `{"pattern": {}}`, "a component has no type"},
		{"post_processor", `{"type": "RobertaProcessing"}`, "the post-processor RobertaProcessing is not implemented"},
		{"post_processor", `{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}`, `TemplateProcessing has no token for "<s>"`},
		{"post_processor", `{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]}`, "a TemplateProcessing of other parts"},
		{"decoder", `{"type": "WordPiece"}`, "the decoder WordPiece is not implemented"},
		{"decoder", `{"type": "Strip", "content": " ", "start": -1}`, "the decoder Strip is broken"},
		{"added_tokens", token(`, "lstrip": true`), `lstrip of the added token "<x>" is not implemented`},
		{"added_tokens", token(`, "rstrip": true`), `rstrip of the added token "<x>" is not implemented`},
		{"added_tokens", token(`, "single_word": true`), `single_word of the added token "<x>" is not implemented`},
		{"added_tokens", `[{"id": 7777, "content": "<x>"}]`, `"<x>" has the id 7777, but would be given 1000`},
		{"added_tokens", `[{"id": 1000, "content": "<x>"}, {"id": 1001, "content": "<x>"}]`, `"<x>" is declared twice`},
		{"added_tokens", `[{"id": 1000, "content": ""}]`, "one has no content"},
		{"model", `{"type": "Unigram"}`, "the model Unigram is not implemented"},
		{"model", `{"type": "WordPiece"}`, "the model WordPiece is not implemented"},
		{"model", `{"dropout": 0.1}`, "dropout is not implemented"},
		{"model", `{"continuing_subword_prefix": "##"}`, "continuing_subword_prefix is not implemented"},
		{"model", `{"end_of_word_suffix": "</w>"}`, "end_of_word_suffix is not implemented"},
		{"model", `{"unk_token": "<none>"}`, `its unk_token "<none>" is not in the vocabulary`},
		{"model", `{"vocab": {"a": 0}}`, "a byte-level vocabulary without a token for the byte 0x"},
		{"model", `{"vocab": {"a": 0, "b": 0}}`, "have the same id"},
		{"model", `{"vocab": {"a": 9999999}}`, "the id 9999999 is far beyond the number of tokens, 1"},
		{"model", `{"vocab": {"a": 1e3}}`, "vocab: the JSON is broken"},
		{"model", `{"vocab": {"a": -1}}`, "vocab: the JSON is broken"},
		{"model", `{"merges": ["a b c"]}`, `merges: "a b c" is not two tokens`},
		{"model", `{"merges": [["a", "b", "c"]]}`, "merges: one is not two tokens"},
		{"model", `{"merges": [["q", "q"]]}`, `merges: number 0, of "q" and "q", is of or makes a token that the vocabulary lacks`},
	}
	for _, tt := range tests {
		_, err := tokenizer.Load(patched(t, parts{tt.part: json.RawMessage(tt.value)}))
		if err == nil || !strings.HasPrefix(err.Error(), "tokenizer.json: "+tt.part+": ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q in it", tt.part, tt.value, err, tt.want)
		}
	}
}

// A broken file is one clear error, wherever it breaks.
func TestLoadBroken(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	tests := []struct{ name, data, want string }{
		{"empty", "", "the JSON is broken at byte 0"},
		{"a list", "[]", "the JSON is broken at byte 0"},
		{"not UTF-8", "{\"a\": \"\xff\"}", "it is not UTF-8"},
		{"more than one", "{} {}", "the JSON is broken at byte 3"},
		{"deep", `{"x": ` + deep + `}`, "the JSON is nested deeper than 100 levels"},
		{"no model", "{}", "model: "},
		{"half an escape", `{"model": {"vocab": {"\ud800": 0}, "merges": []}}`, "vocab: the JSON is broken"},
		{"a long token", `{"model": {"vocab": {"` + strings.Repeat("a", 5000) + `": 0}, "merges": []}}`, "vocab: a token is longer than 4096 bytes"},
		{"a long part", `{"normalizer": "` + strings.Repeat("a", 2<<20) + `"}`, "normalizer: it has 2097154 bytes, more than 1048576"},
	}
	for _, tt := range tests {
		_, err := tokenizer.Load([]byte(tt.data))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", tt.name, err, tt.want)
		}
	}
	data := fixture(t, "tokenizer.json")
	for n := 0; n < len(data)-2; n += 97 {
		if _, err := tokenizer.Load(data[:n]); err == nil {
			t.Errorf("a file cut at %d loads", n)
		}
	}
}

func TestEncodeRefusals(t *testing.T) {
	t.Parallel()
	tok := small(t)
	tests := []struct{ name, text, want string }{
		{"not UTF-8", "a\xffb", "the text is not UTF-8"},
		{"too long", strings.Repeat("a", 17<<20), "the text has 17825792 bytes, more than 16777216"},
	}
	for _, tt := range tests {
		if _, err := tok.Encode(tt.text, false); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", tt.name, err, tt.want)
		}
	}
	// A pattern that would never end does, and so does a normalizer that grows.
	slow, err := tokenizer.Load(patched(t, parts{"pre_tokenizer": json.RawMessage(
		`{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(?:a+)+b"}, "behavior": "Isolated"}, {"type": "ByteLevel", "add_prefix_space": false}]}`)}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Encode(strings.Repeat("a", 1000), false); err == nil || !strings.Contains(err.Error(), "a pattern of the tokenizer takes too long") {
		t.Errorf("a slow pattern: %v", err)
	}
	step := fmt.Sprintf(`{"type": "Replace", "pattern": {"String": "a"}, "content": %q}`, strings.Repeat("a", 4000))
	growing, err := tokenizer.Load(patched(t, parts{"normalizer": json.RawMessage(
		`{"type": "Sequence", "normalizers": [` + step + "," + step + "," + step + `]}`)}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := growing.Encode("a", false); err == nil || !strings.Contains(err.Error(), "makes this text too long") {
		t.Errorf("a growing normalizer: %v", err)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	tok := small(t)
	tests := []struct {
		id      wire.Token
		text    string
		special bool
		ok      bool
	}{
		{0, "!", false, true},
		{198, "\n", false, true},
		{220, " ", false, true},
		{127, "\xc3", false, true},
		{1001, "<|im_start|>", true, true},
		{1003, "<think>", false, true},
		{1005, "", false, false},
		{1 << 60, "", false, false},
	}
	for _, tt := range tests {
		text, special, ok := tok.Token(tt.id)
		if text != tt.text || special != tt.special || ok != tt.ok {
			t.Errorf("token %d: %q %v %v, want %q %v %v", tt.id, text, special, ok, tt.text, tt.special, tt.ok)
		}
	}
	if got := tok.Decode([]wire.Token{1001, 1 << 40, 0}); got != "<|im_start|>!" {
		t.Errorf("decoded %q", got)
	}
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	tok := small(t)
	text := chat(t)[:4000] + "日本語 e\u0301 🚀"
	want, err := small(t).Encode(text, true)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				got, err := tok.Encode(text, true)
				if err != nil || !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Spans, want.Spans) {
					t.Errorf("differs: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzLoad(f *testing.F) {
	data, err := fixtures.FS.ReadFile("tokenizer/tokenizer.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	tiny := `{"model": {"vocab": {"a": 0, "b": 1, "ab": 2, "▁": 3, "<unk>": 4}, "merges": ["a b"], "unk_token": "<unk>"}%s}`
	for _, more := range []string{
		"",
		`, "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "NFKC"}]}`,
		`, "normalizer": {"type": "Replace", "pattern": {"Regex": "[\\p{L}&&[^a-f]]+?x|(?i:ab|\\d{1,3})(?!b)"}, "content": "ab"}`,
		`, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}, "decoder": {"type": "Metaspace", "replacement": "▁"}`,
		`, "pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "MergedWithNext", "invert": true}`,
		`, "added_tokens": [{"id": 5, "content": "aa", "normalized": true, "special": true}]`,
	} {
		f.Add(fmt.Appendf(nil, tiny, more))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := tokenizer.Load(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "tokenizer.json: ") {
				t.Errorf("error %q", err)
			}
			return
		}
		check(t, tok, "ab a▁b e\u0301 日 <unk> aa\nx12345")
	})
}

// check encodes a text and holds what must be true of any tokenizer's answer.
func check(t *testing.T, tok *tokenizer.Tokenizer, text string) tokenizer.Encoding {
	t.Helper()
	got, err := tok.Encode(text, true)
	if err != nil {
		return got
	}
	if len(got.IDs) != len(got.Spans) {
		t.Fatalf("%q: %d ids, %d spans", text, len(got.IDs), len(got.Spans))
	}
	for i, s := range got.Spans {
		if s.Start < 0 || s.Start > s.End || s.End > len(text) {
			t.Fatalf("%q: span %v", text, s)
		}
		if _, _, ok := tok.Token(got.IDs[i]); !ok {
			t.Fatalf("%q: no token %d", text, got.IDs[i])
		}
	}
	tok.Decode(got.IDs)
	return got
}

func FuzzEncode(f *testing.F) {
	for _, text := range []string{"", "Hello, how are you?", "e\u0301a\u0316\u0301 \u1100\u1161\u11a8", "<|im_start|>user\nx<|im_end|>", "'ſ I'LL \r\n\r\n  x", "\x00\U000105c0🚀", "a\xffb"} {
		f.Add(text)
	}
	data, err := fixtures.FS.ReadFile("tokenizer/tokenizer.json")
	if err != nil {
		f.Fatal(err)
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		f.Fatal(err)
	}
	plain, err := tokenizer.Load(bytes.Replace(data, []byte(`"NFC"`), []byte(`"Sequence", "normalizers": []`), 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		check(t, tok, text)
		// Without a normalizer every byte comes back.
		if got := check(t, plain, text); got.IDs != nil && plain.Decode(got.IDs) != text {
			t.Errorf("%q comes back as %q", text, plain.Decode(got.IDs))
		}
	})
}
