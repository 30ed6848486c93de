package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// MismatchKind says why two make other tokens of one request.
type MismatchKind uint8

// The kinds.
const (
	// Unexplained is all that is none of the others.
	Unexplained MismatchKind = iota
	NoTemplate
	OtherTemplate
	DoubledBOS
	MissingBOS
	SpecialAsText
	ListAsJSON
	ListDropped
	OtherWhiteSpace
	OtherVocabulary
)

// mismatchKinds names the kinds, and says in a sentence what is the case.
var mismatchKinds = [...]struct {
	name string
	line func(m *Mismatch, where string) string
}{
	Unexplained: {"unknown", func(*Mismatch, string) string { return "why is not known" }},
	NoTemplate: {"no-template", func(m *Mismatch, where string) string {
		return "no chat template was applied " + where + ", which has " + m.Detail
	}},
	OtherTemplate: {"other-template", func(m *Mismatch, _ string) string {
		line := fmt.Sprintf("the chat template writes other markup: %s here, %s there", m.Ours, m.Theirs)
		if m.Detail != "" {
			line += " (" + m.Detail + ")"
		}
		return line
	}},
	DoubledBOS: {"doubled-bos", func(_ *Mismatch, where string) string {
		return "token 0 is doubled " + where + ": all blocks differ from block 0 on"
	}},
	MissingBOS: {"missing-bos", func(_ *Mismatch, where string) string {
		return "token 0, the beginning of text, is missing " + where + ": all blocks differ from block 0 on"
	}},
	SpecialAsText: {"special-as-text", func(m *Mismatch, where string) string {
		return fmt.Sprintf("a special token is spelled out as text %s (%s)", where, m.Detail)
	}},
	ListAsJSON: {"list-as-json", func(_ *Mismatch, where string) string {
		return "the content list is rendered as JSON text " + where
	}},
	ListDropped: {"list-dropped", func(m *Mismatch, where string) string {
		return fmt.Sprintf("the content list of %s renders no token %s", m.Detail, where)
	}},
	OtherWhiteSpace: {"white-space", func(m *Mismatch, _ string) string {
		return fmt.Sprintf("nothing but white space differs: %s here, %s there", m.Ours, m.Theirs)
	}},
	OtherVocabulary: {"other-vocabulary", func(m *Mismatch, _ string) string { return "the vocabulary is another: " + m.Detail }},
}

func (k MismatchKind) String() string { return mismatchKinds[k].name }

// Mismatch says how two sequences of tokens of one request differ: ours, and those
// of an engine, which are the truth. It holds no text of the request.
type Mismatch struct {
	Kind MismatchKind
	// Here is set where what the kind names is on our side.
	Here bool
	// Token is the first that differs, and Tokens are the lengths of ours and theirs.
	Token  int
	Tokens [2]int
	// Ours and Theirs say what stands at Token: markup of the template, white space,
	// or in a word what else.
	Ours, Theirs string
	// Detail says more of some kinds.
	Detail string
}

// Line says in a sentence what is the case; there is a name for the other side, such as
// "in the engine".
func (m *Mismatch) Line(there string) string {
	if m.Here {
		there = "here"
	}
	return mismatchKinds[m.Kind].line(m, there)
}

// Lost counts the full blocks of theirs that ours does not find: all from the first
// that differs on, since a block's hash covers those before it.
func (m *Mismatch) Lost(size int) int {
	if size < 1 {
		return 0
	}
	return max(m.Tokens[1]/size-m.Token/size, 0)
}

// Mismatched says how what an engine made of a request differs from ours. It reports
// false where neither has a token that the other has not: one may go on where the other
// ends. Tokens behind a medium are not compared. speech spells tokens of ours, and may
// be nil; r may be nil where only tokens are known.
func Mismatched(r *prompt.Request, ours *prompt.Prompt, engine []wire.Token, speech Speech) (Mismatch, bool) {
	n := wire.CommonPrefix(ours.Tokens, engine)
	certain := len(ours.Tokens) - ours.Doubt
	if n == len(engine) || n >= certain {
		return Mismatch{}, false
	}
	p := newPair(r, ours, engine, n, speech)
	for _, find := range []func() (Mismatch, bool){
		p.bos, p.foreign, p.special, p.listAsJSON, p.listDropped, p.retokenized, p.bare, p.whiteSpace, p.gibberish, p.markup,
	} {
		if m, ok := find(); ok {
			return p.finish(m), true
		}
	}
	return p.finish(Mismatch{}), true
}

// pair is one request in two spellings.
type pair struct {
	r    *prompt.Request
	ours *prompt.Prompt
	// a is ours and b theirs, spelled where all of their tokens are known.
	a, b *prompt.Prompt
	n    int
	// textA and textB are their texts in one normal form: tokenizers have one of their own.
	textA, textB string
	// contents are the request's texts, those of lists marked.
	contents []content
	// inA and inB say which contents the texts hold.
	inA, inB []bool
	// unknown counts tokens of theirs that are none of our vocabulary, and known the
	// others.
	unknown, known int
}

type content struct {
	text    string
	message int
	list    bool
}

func newPair(r *prompt.Request, ours *prompt.Prompt, engine []wire.Token, n int, speech Speech) *pair {
	p := &pair{
		r: r, ours: ours, n: n,
		a: Spelled(&prompt.Prompt{Tokens: ours.Tokens}, speech), b: Spelled(&prompt.Prompt{Tokens: engine}, speech),
	}
	if speech != nil && p.b.Text == "" {
		for _, t := range engine[:min(len(engine), len(ours.Tokens)-ours.Doubt)] {
			if _, ok := speech.Text(t); ok {
				p.known++
			} else {
				p.unknown++
			}
		}
	}
	p.textA, p.textB = norm.NFC.String(p.a.Text), norm.NFC.String(p.b.Text)
	if r != nil {
		p.read(r)
	}
	p.inA, p.inB = p.found(p.textA), p.found(p.textB)
	return p
}

// read takes the request's contents.
func (p *pair) read(r *prompt.Request) {
	add := func(text string, message int, list bool) {
		if text = norm.NFC.String(strings.TrimSpace(text)); text != "" {
			p.contents = append(p.contents, content{text, message, list})
		}
	}
	if len(r.Messages) == 0 {
		add(r.Text, -1, false)
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		for _, text := range m.Texts() {
			add(text, i, m.List())
		}
	}
}

// finish fills in what all kinds have.
func (p *pair) finish(m Mismatch) Mismatch {
	m.Token, m.Tokens = p.n, [2]int{len(p.a.Tokens), len(p.b.Tokens)}
	m.Ours, m.Theirs = p.stands(p.a), p.stands(p.b)
	return m
}

// stands says what stands where both part, and nothing of what the request holds.
func (p *pair) stands(side *prompt.Prompt) string {
	text, ok := textAt(side, p.n)
	switch {
	case p.n == len(side.Tokens):
		return "the end"
	case !ok:
		return "another token"
	case text != "" && strings.TrimSpace(text) == "":
		return fmt.Sprintf("%q", text)
	case bracketed(text) && !p.within(text):
		return wire.Printable(text)
	}
	return "text"
}

// within reports whether the request itself holds a text.
func (p *pair) within(text string) bool {
	return slices.ContainsFunc(p.contents, func(c content) bool { return strings.Contains(c.text, text) })
}

// textAt gives the text of one token.
func textAt(side *prompt.Prompt, i int) (string, bool) {
	if side.Spans == nil || i >= len(side.Tokens) {
		return "", false
	}
	s := side.Spans[i]
	return side.Text[s.Start:s.End], true
}

// spelled reports whether the texts of both sides are known.
func (p *pair) spelled() bool { return p.a.Text != "" && p.b.Text != "" }

// brackets are how special tokens are written.
var brackets = regexp.MustCompile(`^(?:<[^\s<>]+>|\[/?[A-Z_]+\])$`)

func bracketed(text string) bool { return len(text) <= maxSpecial && brackets.MatchString(text) }

// maxSpecial is the longest text, in bytes, that is taken for a special token's.
const maxSpecial = 64

// bos knows a first token that one side has once more.
func (p *pair) bos() (Mismatch, bool) {
	may := func(ofTheirs bool) bool {
		side := p.a
		if ofTheirs {
			side = p.b
		}
		text, ok := textAt(side, 0)
		return !ok || text == "" || bracketed(text)
	}
	switch how, times := diff.Begins(p.a.Tokens, p.b.Tokens, p.n, may); {
	case how == diff.Doubled && may(false):
		return Mismatch{Kind: DoubledBOS, Here: times[0] > times[1]}, true
	case how == diff.MissingInB:
		return Mismatch{Kind: MissingBOS}, true
	case how == diff.MissingInA:
		return Mismatch{Kind: MissingBOS, Here: true}, true
	}
	return Mismatch{}, false
}

// foreign knows ids that are none of our vocabulary. Where none is known at all there
// is no vocabulary to speak of.
func (p *pair) foreign() (Mismatch, bool) {
	return Mismatch{Kind: OtherVocabulary, Detail: fmt.Sprintf("%s of %s ids there are unknown here", wire.Grouped(p.unknown), wire.Grouped(p.known+p.unknown))}, p.unknown > 0 && p.known > 0
}

// special knows a special token that the other side spells out.
func (p *pair) special() (Mismatch, bool) {
	if !p.spelled() {
		return Mismatch{}, false
	}
	for _, here := range []bool{false, true} {
		whole, parts := p.a, p.b
		if here {
			whole, parts = p.b, p.a
		}
		if pieces := spelledOut(whole, parts, p.n); pieces > 1 {
			return Mismatch{Kind: SpecialAsText, Here: here, Detail: fmt.Sprintf("1 token becomes %d", pieces)}, true
		}
	}
	return Mismatch{}, false
}

// spelledOut counts the tokens that spell out a special one of the other side, which is
// one of the first from n on, 0 where none does: a piece may begin with what is before it.
func spelledOut(whole, parts *prompt.Prompt, n int) int {
	const near = 3
	for i := n; i < min(n+near, len(whole.Tokens)); i++ {
		text, _ := textAt(whole, i)
		from := whole.Spans[i].Start
		if !bracketed(text) || from > len(parts.Text) || whole.Text[:from] != parts.Text[:from] || !strings.HasPrefix(parts.Text[from:], text) {
			continue
		}
		pieces := 0
		for k := n; k < len(parts.Tokens) && parts.Spans[k].Start < from+len(text); k++ {
			if parts.Spans[k].End > from {
				pieces++
			}
		}
		return pieces
	}
	return 0
}

// typedList is the beginning of a content list as JSON or as Python prints it.
var typedList = regexp.MustCompile(`\[\s*\{\s*\\?["'](?:type|text)\\?["']\s*:`)

// listAsJSON knows a content list that one side wrote as it came.
func (p *pair) listAsJSON() (Mismatch, bool) {
	if !p.spelled() || !p.hasList() {
		return Mismatch{}, false
	}
	a, b := len(typedList.FindAllStringIndex(p.textA, -1)), len(typedList.FindAllStringIndex(p.textB, -1))
	return Mismatch{Kind: ListAsJSON, Here: a > b}, a != b
}

func (p *pair) hasList() bool {
	return slices.ContainsFunc(p.contents, func(c content) bool { return c.list })
}

// found says which contents a text holds, in their order.
func (p *pair) found(text string) []bool {
	out := make([]bool, len(p.contents))
	for i, c := range p.contents {
		if at := strings.Index(text, c.text); at >= 0 {
			out[i] = true
			text = text[at+len(c.text):]
		}
	}
	return out
}

// listDropped knows a content list of which one side has nothing, though both have what
// came before it.
func (p *pair) listDropped() (Mismatch, bool) {
	if !p.spelled() {
		return Mismatch{}, false
	}
	for i, c := range p.contents {
		if p.inA[i] != p.inB[i] {
			return Mismatch{Kind: ListDropped, Here: p.inB[i], Detail: fmt.Sprintf("message %d", c.message)}, c.list
		}
	}
	return Mismatch{}, false
}

// retokenized knows the same text in other tokens.
func (p *pair) retokenized() (Mismatch, bool) {
	short := min(len(p.a.Text), len(p.b.Text))
	return Mismatch{Kind: OtherVocabulary, Detail: "the same text is other tokens"}, p.spelled() && p.a.Text[:short] == p.b.Text[:short]
}

// bare knows contents without a template's markup.
func (p *pair) bare() (Mismatch, bool) {
	if !p.spelled() || p.r == nil || len(p.r.Messages) == 0 || len(p.contents) == 0 {
		return Mismatch{}, false
	}
	a, b := p.isBare(p.textA), p.isBare(p.textB)
	return Mismatch{Kind: NoTemplate, Here: a != "", Detail: a + b}, (a == "") != (b == "")
}

// asJSON is the beginning of messages that nothing but a JSON encoder wrote, and ends
// are what a tokenizer adds to a plain text.
var (
	asJSON = regexp.MustCompile(`^(?:<[^\s<>]{1,62}>)?\s*\[\s*\{\s*"role"\s*:`)
	ends   = regexp.MustCompile(`^(?:<[^\s<>]{1,62}>)?|(?:<[^\s<>]{1,62}>)?$`)
)

// isBare says how a text has the contents where it has no markup, "" where it has some.
func (p *pair) isBare(text string) string {
	if asJSON.MatchString(text) {
		return "the messages as JSON text"
	}
	var rest strings.Builder
	for _, c := range p.contents {
		before, after, ok := strings.Cut(text, c.text)
		if !ok {
			return ""
		}
		rest.WriteString(before)
		text = after
	}
	rest.WriteString(text)
	if strings.ContainsFunc(ends.ReplaceAllString(rest.String(), ""), isWord) {
		return ""
	}
	return "the contents alone"
}

// isWord knows what is more than space and punctuation between contents.
func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '<' || r == '[' }

// whiteSpace knows texts that are one but for white space; one may go on.
func (p *pair) whiteSpace() (Mismatch, bool) {
	if !p.spelled() {
		return Mismatch{}, false
	}
	a, b := strings.Join(strings.Fields(p.textA), ""), strings.Join(strings.Fields(p.textB), "")
	return Mismatch{Kind: OtherWhiteSpace}, strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

// gibberish knows ids that spell nothing of the request, though ours do.
func (p *pair) gibberish() (Mismatch, bool) {
	const least = 8 // bytes, fewer may be there by chance
	if !p.spelled() {
		return Mismatch{}, false
	}
	ours := 0
	for i, c := range p.contents {
		if p.inB[i] && len(c.text) >= least {
			return Mismatch{}, false
		}
		if p.inA[i] && len(c.text) >= least {
			ours++
		}
	}
	return Mismatch{Kind: OtherVocabulary, Detail: "its ids spell nothing of the request"}, ours > 0
}

// markup is what is left of chats of which both sides have the contents, though one may
// end earlier.
func (p *pair) markup() (Mismatch, bool) {
	if !p.spelled() || p.r == nil || len(p.r.Messages) == 0 {
		return Mismatch{}, false
	}
	a, b := p.inA, p.inB
	for i := range a {
		if a[i] != b[i] && (i == 0 || slices.Contains(a[i:], true) && slices.Contains(b[i:], true)) {
			return Mismatch{}, false
		}
	}
	return Mismatch{Kind: OtherTemplate, Detail: p.class()}, true
}

// telling are the classes of differences that say what a template writes otherwise.
var telling = map[diff.Class]string{
	diff.Timestamp: "a time of day", diff.Date: "a date", diff.ToolOrder: "tools in another order", diff.KeyOrder: "JSON keys in another order",
	diff.JSONSpacing: "JSON with other white space", diff.ThinkBlock: "a think block",
}

// written are the parts of ours that a template makes of more than texts.
var written = map[prompt.Kind]string{prompt.Tools: "where tools are declared", prompt.Call: "in a tool call"}

func (p *pair) class() string {
	if d, err := diff.Compare(p.ours, p.b, diff.Options{BlockSize: 1}); err == nil && len(d.Spans) > 0 && telling[d.Spans[0].Class] != "" {
		return telling[d.Spans[0].Class]
	}
	if p.ours.Spans == nil {
		return ""
	}
	at := p.ours.PartAt(p.ours.Spans[p.n].Start)
	if at < 0 {
		return ""
	}
	return written[p.ours.Parts[at].Kind]
}
