package explain

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// table is a Speech of some tokens.
type table map[wire.Token]string

func (s table) Text(t wire.Token) (string, bool) { text, ok := s[t]; return text, ok }

func (s table) Encode(context.Context, string) ([]wire.Token, []prompt.Span, error) {
	return nil, nil, nil
}

var alphabet = table{
	1: "<s>", 2: "<|user|>", 3: "<|end|>", 4: "\n", 5: " ", 10: "Where", 11: " is", 12: " my", 13: " parcel", 14: "?", 15: " now",
	20: "<", 21: "|", 22: "user", 23: ">", 30: "[{", 31: `"type": "text", "text": "`, 32: `"}]`, 40: "[INST]", 50: "Where is", 60: "zebra", 61: " crossing",
}

func chatOf(t *testing.T, content string) *prompt.Request {
	t.Helper()
	r, err := prompt.Parse([]byte(`{"messages": [{"role": "user", "content": ` + content + `}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMismatched: each kind from a pair of sequences, as they are and the other way
// round.
func TestMismatched(t *testing.T) {
	t.Parallel()
	question := []wire.Token{10, 11, 12, 13, 14}
	chat := slices.Concat([]wire.Token{2, 4}, question, []wire.Token{3, 4})
	plain, list := `"Where is my parcel?"`, `[{"type": "text", "text": "Where is my parcel?"}]`
	for name, c := range map[string]struct {
		content      string
		ours, theirs []wire.Token
		kind         MismatchKind
		here         bool // what the kind names is ours
		two          bool // of two sides one has it
		token        int
		line         string
	}{
		"doubled BOS":             {plain, append([]wire.Token{1}, chat...), append([]wire.Token{1, 1}, chat...), DoubledBOS, false, true, 1, "token 0 is doubled in the engine: all blocks differ from block 0 on"},
		"missing BOS":             {plain, chat, append([]wire.Token{1}, chat...), MissingBOS, true, true, 0, "token 0, the beginning of text, is missing here: all blocks differ from block 0 on"},
		"no template":             {plain, chat, question, NoTemplate, false, true, 0, "no chat template was applied in the engine, which has the contents alone"},
		"no template, but a BOS":  {plain, chat, append([]wire.Token{1}, question...), NoTemplate, false, true, 0, "no chat template was applied in the engine, which has the contents alone"},
		"another template":        {plain, chat, slices.Concat([]wire.Token{40}, question), OtherTemplate, false, false, 0, "the chat template writes other markup: <|user|> here, [INST] there"},
		"special as text":         {plain, chat, slices.Concat([]wire.Token{20, 21, 22, 21, 23, 4}, question, []wire.Token{3, 4}), SpecialAsText, false, true, 0, "a special token is spelled out as text in the engine (1 token becomes 5)"},
		"list as JSON":            {list, chat, slices.Concat([]wire.Token{2, 4, 30, 31}, question, []wire.Token{32, 3, 4}), ListAsJSON, false, true, 2, "the content list is rendered as JSON text in the engine"},
		"JSON that was asked":     {plain, chat, slices.Concat([]wire.Token{2, 4, 30, 31}, question, []wire.Token{32, 3, 4}), OtherTemplate, false, false, 2, "the chat template writes other markup: text here, text there"},
		"list dropped":            {list, chat, []wire.Token{2, 4, 3, 4}, ListDropped, false, true, 2, "the content list of message 0 renders no token in the engine"},
		"white space":             {plain, chat, slices.Concat([]wire.Token{2, 4, 4}, question, []wire.Token{3, 4}), OtherWhiteSpace, false, false, 2, ""},
		"the same in other units": {plain, chat, slices.Concat([]wire.Token{2, 4, 50}, question[2:], []wire.Token{3, 4}), OtherVocabulary, false, false, 2, "the vocabulary is another: the same text is other tokens"},
		"none of the words":       {plain, chat, []wire.Token{60, 61, 60}, OtherVocabulary, false, false, 0, "the vocabulary is another: its ids spell nothing of the request"},
		"part of the words":       {plain, slices.Concat([]wire.Token{2, 4, 15}, question), []wire.Token{2, 4, 60, 10, 11}, OtherVocabulary, false, false, 2, "the vocabulary is another: its ids spell nothing of the request"},
	} {
		for _, turned := range []bool{false, true} {
			ours, theirs := c.ours, c.theirs
			if turned {
				ours, theirs = theirs, ours
			}
			m, differs := Mismatched(chatOf(t, c.content), &prompt.Prompt{Tokens: ours}, theirs, alphabet)
			if strings.HasSuffix(name, "of the words") && turned {
				continue // ours is what spells the request
			}
			here := c.here != (turned && c.two)
			if !differs || m.Kind != c.kind || m.Here != here || m.Token != c.token || m.Tokens != [2]int{len(ours), len(theirs)} {
				t.Errorf("%s, turned %t: %t, %s, here %t, at %d, %+v", name, turned, differs, m.Kind, m.Here, m.Token, m)
			}
			if line := m.Line("in the engine"); !turned && c.line != "" && line != c.line {
				t.Errorf("%s: %q", name, line)
			}
			for size := -1; size < 7; size++ {
				lost := 0
				for block := 1; size > 0 && block*size <= len(theirs); block++ {
					if block*size > c.token {
						lost++
					}
				}
				if m.Lost(size) != lost {
					t.Errorf("%s: %d blocks of %d lost, want %d", name, m.Lost(size), size, lost)
				}
			}
		}
	}
}

// TestNoMismatch: what is no fault of anybody.
func TestNoMismatch(t *testing.T) {
	t.Parallel()
	r := chatOf(t, `"Where is my parcel?"`)
	for name, c := range map[string]struct {
		ours   prompt.Prompt
		theirs []wire.Token
	}{
		"equal":                   {prompt.Prompt{Tokens: tokens(1, 8)}, tokens(1, 8)},
		"ours goes on":            {prompt.Prompt{Tokens: tokens(1, 9)}, tokens(1, 8)},
		"theirs goes on":          {prompt.Prompt{Tokens: tokens(1, 8)}, tokens(1, 9)},
		"in place of a picture":   {prompt.Prompt{Tokens: tokens(1, 8), Doubt: 4}, slices.Concat(tokens(1, 4), tokens(900, 30))},
		"nothing":                 {prompt.Prompt{}, tokens(1, 8)},
		"nothing there":           {prompt.Prompt{Tokens: tokens(1, 8)}, nil},
		"all is a picture's size": {prompt.Prompt{Tokens: tokens(1, 8), Doubt: 8}, tokens(5, 8)},
	} {
		if m, differs := Mismatched(r, &c.ours, c.theirs, alphabet); differs {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestMismatchedOnTokens: without a vocabulary, or with none that fits, only tokens tell.
func TestMismatchedOnTokens(t *testing.T) {
	t.Parallel()
	for _, speech := range []Speech{nil, table{}} {
		for _, c := range []struct {
			ours, theirs []wire.Token
			kind         MismatchKind
		}{
			{tokens(100, 8), append([]wire.Token{100}, tokens(100, 8)...), DoubledBOS},
			{tokens(101, 8), tokens(100, 9), MissingBOS},
			{tokens(100, 8), tokens(200, 8), Unexplained},
		} {
			if m, differs := Mismatched(nil, &prompt.Prompt{Tokens: c.ours}, c.theirs, speech); !differs || m.Kind != c.kind || m.Line("there") == "" {
				t.Errorf("%v against %v: %+v", c.ours, c.theirs, m)
			}
		}
	}
}

// TestMismatchedHostile: any tokens of any vocabulary are compared, and nothing of a
// request is shown.
func TestMismatchedHostile(t *testing.T) {
	t.Parallel()
	words := slices.Sorted(func(yield func(wire.Token) bool) {
		for w := range alphabet {
			if !yield(w) {
				return
			}
		}
	})
	odd := table{1000: "", 1001: "\xff", 1002: "<", 1003: "<>", 1004: "secret", 1005: "<secret>", 1006: strings.Repeat("<a>", 40)}
	for w, text := range alphabet {
		odd[w] = text
	}
	words = append(words, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1<<63)
	r := rand.New(rand.NewPCG(1, 2))
	some := func() (out []wire.Token) {
		for range r.IntN(12) {
			out = append(out, words[r.IntN(len(words))])
		}
		return out
	}
	requests := []*prompt.Request{nil, chatOf(t, `"a secret, <secret>"`), chatOf(t, `[{"type": "text", "text": "a secret, <secret>"}]`), chatOf(t, `null`)}
	kinds := map[MismatchKind]int{}
	for range 50_000 {
		q := requests[r.IntN(len(requests))]
		m, differs := Mismatched(q, &prompt.Prompt{Tokens: some(), Doubt: r.IntN(3)}, some(), odd)
		if !differs {
			continue
		}
		kinds[m.Kind]++
		if said := m.Line("there") + m.Ours + m.Theirs; q != nil && len(q.Messages[0].Texts()) > 0 && strings.Contains(said, "secret") {
			t.Fatalf("%+v: %s", m, said)
		}
	}
	if len(kinds) < 6 {
		t.Errorf("%v", kinds)
	}
}
