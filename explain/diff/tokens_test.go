package diff_test

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// pieces are the tokens of a small tokenizer of our own: markers whole, words with
// a space before them, digits one by one, as Qwen's has them.
var pieces = regexp.MustCompile(`<\|[a-z_]+\|>|</?[a-z_]+>| ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9<]|\s+|(?s:.)`)

func encode(text string) ([]wire.Token, []prompt.Span, error) {
	var ids []wire.Token
	var spans []prompt.Span
	for _, m := range pieces.FindAllStringIndex(text, -1) {
		h := fnv.New64a()
		_, _ = h.Write([]byte(text[m[0]:m[1]]))
		ids = append(ids, wire.Token(h.Sum64()))
		spans = append(spans, prompt.Span{Start: m[0], End: m[1]})
	}
	return ids, spans, nil
}

func ids(text string) []wire.Token { t, _, _ := encode(text); return t }

// tokenized fills in the tokens of a prompt.
func tokenized(p *prompt.Prompt) *prompt.Prompt {
	p.Tokens, p.Spans, _ = encode(p.Text)
	return p
}

func chat(contents ...string) *prompt.Prompt { return tokenized(chatML(roles(contents))) }

// roles gives texts as messages, of which the first is the system's.
func roles(contents []string) []message {
	all := []message{}
	for i, c := range contents {
		role := "system"
		if i > 0 {
			role = []string{"assistant", "user"}[i%2]
		}
		all = append(all, message{role, c})
	}
	return all
}

// plain is a text without messages.
func plain(text string) *prompt.Prompt { return tokenized(&prompt.Prompt{Text: text}) }

// shared counts leading tokens by the letter.
func shared(a, b []wire.Token) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// filler gives n words that occur nowhere else, one token each.
func filler(name string, n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, " %s%c%c%c", name, 'a'+i/676%26, 'a'+i/26%26, 'a'+i%26)
	}
	return out.String()
}

func compare(t testing.TB, a, b *prompt.Prompt, size int) *diff.Diff {
	t.Helper()
	d, err := diff.Compare(a, b, diff.Options{BlockSize: size, Encode: encode})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
