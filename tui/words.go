package tui

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	prompts "github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// Words turns prompts into tokens, and tokens into text.
type Words interface {
	// Read makes a prompt of what was pasted: text, a request body, a curl command
	// or token ids. It may take a while, and waits for a tokenizer on its way.
	Read(ctx context.Context, text string) (*prompts.Prompt, error)
	// Text gives the bytes that a token stands for; false where no tokenizer is
	// known yet or it has no such token. It is cheap: drawing asks it.
	Text(wire.Token) (text string, ok bool)
	// Encode gives the tokens of a rendered text; it may take a while too.
	Encode(ctx context.Context, text string) ([]wire.Token, []prompts.Span, error)
	// State says how far the tokenizer is: "loading qwen3 tokenizer, 40 %", "no
	// tokenizer: give --tokenizer DIR", why it failed, or nothing where it is
	// ready. It is busy as long as that can change by itself: only then, and while
	// a prompt is read, it is looked at again. It is cheap too.
	State() (words string, busy bool)
}

// noWords stand in where nobody handed any in: token ids alone are read.
type noWords struct{}

func (noWords) Read(_ context.Context, text string) (*prompts.Prompt, error) {
	tokens, where, err := prompts.ParseTokens(text)
	if err != nil {
		return nil, err
	}
	p := &prompts.Prompt{Tokens: tokens}
	if where != "" {
		p.Notes = []string{"read from " + where}
	}
	return p, nil
}

func (noWords) Text(wire.Token) (string, bool) { return "", false }

func (noWords) Encode(context.Context, string) ([]wire.Token, []prompts.Span, error) {
	return nil, nil, errors.New("there is no tokenizer")
}

func (noWords) State() (string, bool) { return "no tokenizer: only token ids are read", false }

// speech gives what turns tokens into text.
func (s *scene) speech() Words {
	if s.words == nil {
		return noWords{}
	}
	return s.words
}

// spelling is how often the tokenizer is looked at while it is on its way.
const spelling = 250 * time.Millisecond

// spellMsg asks for another look at the tokenizer.
type spellMsg struct{}

// spell looks how far the tokenizer is, and again after a while until it is ready
// and no prompt waits for it.
func (m *model) spell() tea.Cmd {
	state, busy := m.scene().speech().State()
	if state != m.state {
		m.state, m.dirty = state, true
	}
	if m.spells = busy || m.whatIf().waits(); !m.spells {
		return nil
	}
	return m.after(spelling, spellMsg{})
}

// quoted gives the text of tokens in quotes, control characters escaped and at
// most most bytes of it; false where one of them is not known.
func quoted(w Words, tokens []wire.Token, most int) (string, bool) {
	text, ok := spelled(w, tokens, most)
	if !ok {
		return "", false
	}
	more := ""
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text, more = text[:most], glyphMore
	}
	return quote(text) + more, true
}

// quote gives a text in quotes, as it can be seen: see visible.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for text != "" {
		shown, _, n := visible(text)
		if escape, ok := escapes[text[0]]; ok {
			shown = escape
		}
		b.WriteString(shown)
		text = text[n:]
	}
	b.WriteByte('"')
	return b.String()
}

// escapes are what quotes need besides.
var escapes = map[byte]string{'\n': `\n`, '\t': `\t`, '"': `\"`, '\\': `\\`}

// spelled gives the text of tokens, and stops once it is longer than most bytes.
func spelled(w Words, tokens []wire.Token, most int) (string, bool) {
	var b strings.Builder
	for _, t := range tokens {
		text, ok := w.Text(t)
		if !ok {
			return "", false
		}
		if b.WriteString(text[:min(len(text), most+1)]); b.Len() > most {
			break
		}
	}
	return b.String(), true
}
