package prompt

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

func TestParseTokens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       []wire.Token
		note, err  string
	}{
		{"array", "[1, 2,3]", []wire.Token{1, 2, 3}, "", ""},
		{"array over lines", "[\n  1,\n  2\n]\n", []wire.Token{1, 2}, "", ""},
		{"commas", "1,2, 3", []wire.Token{1, 2, 3}, "", ""},
		{"a comma at the end", "1, 2,\n", []wire.Token{1, 2}, "", ""},
		{"spaces", " 151644 8948\t198\n", []wire.Token{151644, 8948, 198}, "", ""},
		{"one", "7", []wire.Token{7}, "", ""},
		{"a wide id", "18446744073709551615", []wire.Token{1<<64 - 1}, "", ""},
		{"byte order mark", "\ufeff[1]", []wire.Token{1}, "", ""},
		{"token_ids", `{"token_ids": [1, 2]}`, []wire.Token{1, 2}, "token_ids", ""},
		{"prompt_token_ids first", `{"token_ids": [1], "prompt_token_ids": [2]}`, []wire.Token{2}, "prompt_token_ids", ""},
		{"a /tokenize answer", `{"count": 2, "tokens": [5, 6]}`, []wire.Token{5, 6}, "tokens", ""},
		{"a completion request", `{"model": "m", "prompt": [5, 6]}`, []wire.Token{5, 6}, "prompt", ""},
		{"a truth log's line", `{"kind": "chat", "request": {"messages": []}, "response": {"choices": [{"token_ids": [9]}], "prompt_token_ids": [1, 2]}}`, []wire.Token{1, 2}, "response.prompt_token_ids", ""},
		{"a completion's choice", `{"choices": [{"token_ids": [9], "prompt_token_ids": [1]}]}`, []wire.Token{1}, "choices[0].prompt_token_ids", ""},
		{"several objects", "{\"token_ids\": [1]}\n{\"token_ids\": [2]}\n", []wire.Token{1}, "token_ids of the first object", ""},

		{"empty", "", nil, "", "there is nothing in it"},
		{"blank", " \n", nil, "", "there is nothing in it"},
		{"empty list", "[]", nil, "", "the list is empty"},
		{"text", "Where is my parcel?", nil, "", "this is no list of token ids, such as [151644, 8948, 198]"},
		{"unicode text", "荷物", nil, "", "this is no list of token ids, such as [151644, 8948, 198]"},
		{"messages", `[{"role": "user"}]`, nil, "", "character 2, after 0 ids: “{\"role\":” is not a token id"},
		{"a word", "[1, two, 3]", nil, "", "character 5, after 1 id: “two” is not a token id"},
		{"after wide letters", "1 2 “é” x", nil, "", "character 5, after 2 ids: ““é””"},
		{"negative", "1 -2", nil, "", "character 3, after 1 id: “-2” is not a token id"},
		{"a fraction", "[1.5]", nil, "", "“1.5” is not a token id"},
		{"beyond 64 bits", "18446744073709551616", nil, "", "is not a token id"},
		{"a long word", "1 " + strings.Repeat("z", 99), nil, "", "“zzzzzzzzzzzzzzzz…” is not"},
		{"controls", "1 \x1b[31m", nil, "", "“?[31m” is not"},
		{"not closed", "[1, 2", nil, "", "] is missing after 2 ids"},
		{"more behind", "[1] 2", nil, "", "character 5, after 1 id: more follows the list"},
		{"two lists", "[[1], [2]]", nil, "", "character 2, after 0 ids: a list within the list"},
		{"two commas", "[1,,2]", nil, "", "character 4, after 1 id: a comma without an id"},
		{"object without", `{"messages": []}`, nil, "", "holds no token ids"},
		{"an answer's tokens", `{"choices": [{"token_ids": [9]}]}`, nil, "", "holds no token ids"},
		{"broken object", `{"token_ids": [1, }`, nil, "", "the JSON breaks at character 19"},
		{"cut object", `{"token_ids": [1, 2`, nil, "", "its end is missing"},
		{"a word in an object", `{"token_ids": [1, "x"]}`, nil, "", "in token_ids: character 5, after 1 id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, note, err := ParseTokens(c.text)
			if err == nil && c.err != "" || err != nil && (c.err == "" || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if !slices.Equal(got, c.want) || note != c.note {
				t.Errorf("got %v from %q, want %v from %q", got, note, c.want, c.note)
			}
		})
	}
}

func TestParseTokensBounds(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("1 ", MaxTokens+1)
	if _, _, err := ParseTokens(big); err == nil || !strings.Contains(err.Error(), "longest prompt") {
		t.Errorf("error %v", err)
	}
	if got, _, err := ParseTokens(big[2:]); err != nil || len(got) != MaxTokens {
		t.Errorf("%d tokens, error %v", len(got), err)
	}
}

func BenchmarkParseTokens(b *testing.B) {
	var list bytes.Buffer
	for list.Len() < 1<<20 {
		fmt.Fprintf(&list, "%d, ", 100000+list.Len()%50000)
	}
	list.WriteString("1")
	for _, c := range []struct{ name, text string }{
		{"list", list.String()}, {"object", `{"prompt_token_ids": [` + list.String() + `]}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				if _, _, err := ParseTokens(c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What is read, written again, reads the same.
func FuzzParseTokens(f *testing.F) {
	for _, s := range []string{"[1, 2]", "1 2 3", `{"token_ids": [1]}`, `{"response": {"prompt_token_ids": [1, 2]}}`, "text", "[1,,", "{\"a\":", "\ufeff7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, _, err := ParseTokens(text)
		if err != nil {
			if got != nil || err.Error() == "" {
				t.Fatalf("%v beside error %q", got, err)
			}
			return
		}
		if len(got) == 0 || len(got) > len(text) {
			t.Fatalf("%d tokens of %d bytes", len(got), len(text))
		}
		words := make([]string, len(got))
		for i, id := range got {
			words[i] = strconv.FormatUint(uint64(id), 10)
		}
		again, _, err := ParseTokens("[" + strings.Join(words, ",") + "]")
		if err != nil || !slices.Equal(again, got) {
			t.Fatalf("%v became %v, error %v", got, again, err)
		}
	})
}
