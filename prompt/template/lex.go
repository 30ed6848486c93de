package template

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind of a token of a template's source.
type kind uint8

const (
	eofTok kind = iota
	dataTok
	exprBegin
	exprEnd
	stmtBegin
	stmtEnd
	nameTok
	stringTok
	intTok
	floatTok
	opTok
)

type token struct {
	kind kind
	text string
	line int
}

// ends are the closing marks of tags by their kind.
var ends = map[kind]string{exprBegin: "}}", stmtBegin: "%}"}

// operators are all there are, the longer ones first.
var operators = []string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

// closing pairs brackets.
var closing = map[string]string{"(": ")", "[": "]", "{": "}"}

// lexer splits a source with Jinja's trim_blocks and lstrip_blocks switched on,
// as transformers has them.
type lexer struct {
	src string
	pos int
	// lineStart says that what was read last ended a line.
	lineStart bool
	toks      []token
	// line is that of counted, which only grows, so counting is linear.
	line, counted int
}

// lex gives the tokens of a template, an eofTok last.
func lex(src string) ([]token, error) {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(src, "\n"), lineStart: true, line: 1}
	for l.pos < len(l.src) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.add(eofTok, "")
	return l.toks, nil
}

func (l *lexer) at(pos int) int {
	if pos > l.counted {
		l.line += strings.Count(l.src[l.counted:pos], "\n")
		l.counted = pos
	}
	return l.line
}

func (l *lexer) add(k kind, text string) {
	l.toks = append(l.toks, token{k, text, l.at(min(l.pos, len(l.src)))})
}

// take moves to a position, past what belongs to the tag.
func (l *lexer) take(to int) {
	l.lineStart = to > l.pos && l.src[to-1] == '\n'
	l.pos = to
}

// next reads text up to a tag, and the tag.
func (l *lexer) next() error {
	rest := l.src[l.pos:]
	open := openTag(rest)
	if open < 0 {
		l.add(dataTok, rest)
		l.pos = len(l.src)
		return nil
	}
	begin := l.pos + open
	inside := begin + 2
	sign := l.sign(inside)
	if sign != 0 {
		inside++
	}
	l.data(rest[:open], sign, l.src[begin+1] == '{')
	l.at(begin)
	switch l.src[begin+1] {
	case '#':
		return l.comment(inside)
	case '%':
		if end, ok := rawBegin(l.src, inside); ok {
			return l.raw(end)
		}
		l.pos = inside
		return l.tag(stmtBegin)
	}
	l.pos = inside
	return l.tag(exprBegin)
}

// openTag finds the first tag's begin.
func openTag(s string) int {
	for i := 0; ; i++ {
		j := strings.IndexByte(s[i:], '{')
		if j < 0 || i+j+1 >= len(s) {
			return -1
		}
		i += j
		if c := s[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
	}
}

// sign gives the white space control at a position: '-', '+' or 0.
func (l *lexer) sign(pos int) byte {
	if pos < len(l.src) && (l.src[pos] == '-' || l.src[pos] == '+') {
		return l.src[pos]
	}
	return 0
}

// data adds the text before a tag, stripped as the tag's sign says.
func (l *lexer) data(text string, sign byte, expr bool) {
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, isSpace)
	case sign == 0 && !expr:
		line := strings.LastIndexByte(text, '\n') + 1
		if (line > 0 || l.lineStart) && strings.TrimFunc(text[line:], isSpace) == "" {
			text = text[:line]
		}
	}
	if text != "" {
		l.add(dataTok, text)
	}
}

// after gives the position behind a closing mark of n bytes at pos, with the white
// space that belongs to it: all after "-", one line end after a block.
func (l *lexer) after(pos, n int, sign byte, block bool) int {
	pos += n
	switch {
	case sign == '-':
		return len(l.src) - len(strings.TrimLeftFunc(l.src[pos:], isSpace))
	case sign == 0 && block && strings.HasPrefix(l.src[pos:], "\n"):
		return pos + 1
	}
	return pos
}

func (l *lexer) comment(inside int) error {
	end := strings.Index(l.src[inside:], "#}")
	if end < 0 {
		return fmt.Errorf("line %d: the comment does not end", l.line)
	}
	var sign byte
	if end > 0 {
		sign = l.sign(inside + end - 1)
	}
	l.take(l.after(inside+end, 2, sign, true))
	return nil
}

// rawBegin reports whether the tag whose inside starts at pos is {% raw %}, and
// where its text starts.
func rawBegin(src string, pos int) (int, bool) {
	rest, ok := strings.CutPrefix(strings.TrimLeftFunc(src[pos:], isSpace), "raw")
	if !ok {
		return 0, false
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	if r, ok := strings.CutPrefix(rest, "-%}"); ok {
		return len(src) - len(strings.TrimLeftFunc(r, isSpace)), true
	}
	r, ok := strings.CutPrefix(rest, "%}")
	return len(src) - len(r), ok
}

func (l *lexer) raw(start int) error {
	l.take(start)
	for i := start; ; i += 2 {
		j := strings.Index(l.src[i:], "{%")
		if j < 0 {
			return fmt.Errorf("line %d: the raw block does not end", l.line)
		}
		i += j
		inside := i + 2
		sign := l.sign(inside)
		if sign != 0 {
			inside++
		}
		rest, ok := strings.CutPrefix(strings.TrimLeftFunc(l.src[inside:], isSpace), "endraw")
		if !ok {
			continue
		}
		rest = strings.TrimLeftFunc(rest, isSpace)
		end := len(l.src) - len(rest)
		endSign := l.sign(end)
		if endSign != 0 {
			end++
		}
		if !strings.HasPrefix(l.src[end:], "%}") {
			continue
		}
		l.data(l.src[start:i], sign, false)
		l.take(l.after(end, 2, endSign, true))
		return nil
	}
}

// tag reads the tokens of an expression or a statement.
func (l *lexer) tag(begin kind) error {
	l.add(begin, "")
	first := l.line
	var open []string
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		if len(open) == 0 {
			var sign byte
			if rest[0] == '-' || rest[0] == '+' && begin == stmtBegin {
				sign = rest[0]
			}
			end := rest
			if sign != 0 {
				end = rest[1:]
			}
			if strings.HasPrefix(end, ends[begin]) {
				l.add(begin+1, "")
				l.take(l.after(len(l.src)-len(end), 2, sign, begin == stmtBegin))
				return nil
			}
		}
		r, n := utf8.DecodeRuneInString(rest)
		if isSpace(r) {
			l.pos += n
			continue
		}
		t, n, err := word(rest)
		if err != nil {
			return fmt.Errorf("line %d: %w", l.at(l.pos), err)
		}
		if t.kind == opTok {
			switch close := closing[t.text]; {
			case close != "":
				open = append(open, close)
			case strings.Contains(")]}", t.text):
				if len(open) == 0 || open[len(open)-1] != t.text {
					return fmt.Errorf("line %d: %q closes nothing", l.at(l.pos), t.text)
				}
				open = open[:len(open)-1]
			}
		}
		l.add(t.kind, t.text)
		l.pos += n
	}
	return fmt.Errorf("line %d: the tag does not end", first)
}

// word reads one token inside of a tag and gives how many bytes it takes.
func word(s string) (token, int, error) {
	switch c := s[0]; {
	case c >= '0' && c <= '9':
		return number(s)
	case c == '\'' || c == '"':
		return quoted(s)
	}
	end := strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.M, r)
	})
	if end < 0 {
		end = len(s)
	}
	if end > 0 {
		return token{kind: nameTok, text: s[:end]}, end, nil
	}
	for _, op := range operators {
		if strings.HasPrefix(s, op) {
			return token{kind: opTok, text: op}, len(op), nil
		}
	}
	r, _ := utf8.DecodeRuneInString(s)
	return token{}, 0, fmt.Errorf("unexpected character %q", r)
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func number(s string) (token, int, error) {
	n := digits(s)
	k := intTok
	if n < len(s) && s[n] == '.' && digits(s[n+1:]) > 0 {
		k = floatTok
		n += 1 + digits(s[n+1:])
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		e := n + 1
		if e < len(s) && (s[e] == '+' || s[e] == '-') {
			e++
		}
		if d := digits(s[e:]); d > 0 {
			k, n = floatTok, e+d
		}
	}
	if n < len(s) && (s[n] == '_' || unicode.IsLetter(rune(s[n]))) || k == intTok && n > 1 && s[0] == '0' {
		return token{}, 0, unsupported("a number with letters, underscores or leading zeros")
	}
	return token{kind: k, text: s[:n]}, n, nil
}
