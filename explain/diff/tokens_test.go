package diff_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// markers are tokens of their own.
var markers = []string{"<|im_start|>", "<|im_end|>", "<|start|>", "<bos>", "<think>", "</think>", "<tool_call>", "</tool_call>"}

// piece gives the length of the first token of a text, by a small tokenizer of our
// own: markers whole, words with a space before them, digits one by one, as Qwen's
// has them, white space together, and everything else by bytes.
func piece(text string) int {
	for _, m := range markers {
		if text[0] == '<' && strings.HasPrefix(text, m) {
			return len(m)
		}
	}
	run := func(from int, in func(c byte) bool) int {
		n := from
		for n < len(text) && in(text[n]) {
			n++
		}
		return n
	}
	letter := func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
	space := func(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
	switch c := text[0]; {
	case letter(c):
		return run(0, letter)
	case c == ' ' && len(text) > 1 && letter(text[1]):
		return run(1, letter)
	case c == ' ' && len(text) > 1 && strings.IndexByte("{[(-\"'_", text[1]) >= 0:
		return 2
	case space(c):
		return run(0, space)
	}
	return 1
}

func encode(text string) ([]wire.Token, []prompt.Span, error) {
	var ids []wire.Token
	var spans []prompt.Span
	for at := 0; at < len(text); {
		n := piece(text[at:])
		h := uint64(14695981039346656037) // FNV-1a
		for i := range n {
			h = (h ^ uint64(text[at+i])) * 1099511628211
		}
		ids, spans = append(ids, wire.Token(h)), append(spans, prompt.Span{Start: at, End: at + n})
		at += n
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
