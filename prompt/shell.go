package prompt

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kvscope/kvscope/wire"
)

// word is a word of a shell's command line.
type word struct {
	text string
	// expands tells that the shell would put something else in its place: a
	// variable or a command's output.
	expands bool
}

// command is a simple command with what its standard input is fed from.
type command struct {
	words []word
	// here is the text of a here-document.
	here *word
}

// shell reads the first command of a text by the rules of a POSIX shell, and
// $'…' besides. What follows the command (|, &, ;, a redirection, a line) is
// left alone.
type shell struct {
	s  string
	at int

	quoted  bool
	marker  string // of a here-document to come
	literal bool   // its marker was quoted
	tabs    bool   // <<-
}

func (sh *shell) parse() (command, error) {
	var c command
	for {
		sh.blanks()
		switch rest := sh.s[sh.at:]; {
		case rest == "" || strings.ContainsRune("|&;>)\n\r#", rune(rest[0])):
			return c, sh.document(&c)
		case strings.HasPrefix(rest, "<<<"):
			sh.at += 3
			sh.blanks()
			w, err := sh.word()
			if err != nil {
				return c, err
			}
			c.here = &w
		case strings.HasPrefix(rest, "<<"):
			sh.at += 2
			if sh.tabs = strings.HasPrefix(sh.s[sh.at:], "-"); sh.tabs {
				sh.at++
			}
			sh.blanks()
			w, err := sh.word()
			if err != nil {
				return c, err
			}
			sh.marker, sh.literal = w.text, sh.quoted
		case rest[0] == '<':
			return c, errors.New("the command reads its input from a file: put the body into the command, or give the file's contents")
		default:
			w, err := sh.word()
			if err != nil {
				return c, err
			}
			c.words = append(c.words, w)
		}
	}
}

// blanks passes blanks and lines that are continued.
func (sh *shell) blanks() {
	for sh.at < len(sh.s) {
		switch n := continued(sh.s[sh.at:]); {
		case sh.s[sh.at] == ' ' || sh.s[sh.at] == '\t':
			sh.at++
		case n > 0:
			sh.at += n
		default:
			return
		}
	}
}

// continued gives the length of a backslash with the end of line that it hides.
func continued(s string) int {
	for _, end := range []string{"\\\r\n", "\\\n", "\\\r"} {
		if strings.HasPrefix(s, end) {
			return len(end)
		}
	}
	return 0
}

// word reads one word.
func (sh *shell) word() (word, error) {
	var w word
	var out strings.Builder
	sh.quoted = false
	start := sh.at
	for sh.at < len(sh.s) {
		c := sh.s[sh.at]
		if strings.IndexByte(" \t\r\n|&;<>()", c) >= 0 {
			break
		}
		var err error
		switch {
		case c == '\'':
			sh.quoted = true
			err = sh.single(&out)
		case c == '"':
			sh.quoted = true
			err = sh.double(&out, &w)
		case strings.HasPrefix(sh.s[sh.at:], "$'"):
			sh.quoted = true
			err = sh.ansi(&out)
		case c == '\\':
			if n := continued(sh.s[sh.at:]); n > 0 {
				sh.at += n
				continue
			}
			sh.at++
			if sh.at < len(sh.s) {
				out.WriteByte(sh.s[sh.at])
				sh.at++
			}
		default:
			w.expands = w.expands || c == '$' || c == '`'
			out.WriteByte(c)
			sh.at++
		}
		if err != nil {
			return w, err
		}
	}
	if sh.at == start {
		return w, fmt.Errorf("the command breaks at character %s", wire.Grouped(charAt(sh.s, sh.at)))
	}
	w.text = out.String()
	return w, nil
}

func (sh *shell) open(quote string, start int) error {
	return fmt.Errorf("the %s quote at character %s of the command is not closed", quote, wire.Grouped(charAt(sh.s, start)))
}

func (sh *shell) single(out *strings.Builder) error {
	start := sh.at
	n := strings.IndexByte(sh.s[start+1:], '\'')
	if n < 0 {
		return sh.open("single", start)
	}
	out.WriteString(sh.s[start+1 : start+1+n])
	sh.at = start + n + 2
	return nil
}

func (sh *shell) double(out *strings.Builder, w *word) error {
	start := sh.at
	for sh.at++; sh.at < len(sh.s); sh.at++ {
		switch c := sh.s[sh.at]; c {
		case '"':
			sh.at++
			return nil
		case '\\':
			if n := continued(sh.s[sh.at:]); n > 0 {
				sh.at += n - 1
				continue
			}
			if sh.at+1 < len(sh.s) && strings.IndexByte("$`\"\\", sh.s[sh.at+1]) >= 0 {
				sh.at++
			}
			out.WriteByte(sh.s[sh.at])
		default:
			w.expands = w.expands || c == '$' || c == '`'
			out.WriteByte(c)
		}
	}
	return sh.open("double", start)
}

// escapes are the one-letter escapes of $'…'.
var escapes = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v",
	'e': "\x1b", 'E': "\x1b", '\\': "\\", '\'': "'", '"': "\"", '?': "?",
}

// ansi reads $'…'.
func (sh *shell) ansi(out *strings.Builder) error {
	start := sh.at
	for sh.at += 2; sh.at < len(sh.s); sh.at++ {
		c := sh.s[sh.at]
		switch {
		case c == '\'':
			sh.at++
			return nil
		case c != '\\' || sh.at+1 == len(sh.s):
			out.WriteByte(c)
			continue
		}
		sh.at++
		c = sh.s[sh.at]
		switch digits, base := ansiDigits(c, sh.s[sh.at:]); {
		case escapes[c] != "":
			out.WriteString(escapes[c])
		case digits == "":
			out.WriteByte('\\')
			out.WriteByte(c)
		default:
			v, err := strconv.ParseUint(digits, base, 32)
			switch {
			case err != nil || v == 0 || c != 'x' && base == 16 && !utf8.ValidRune(rune(v)):
				return fmt.Errorf("the escape at character %s of the command is no character", wire.Grouped(charAt(sh.s, sh.at-1)))
			case base == 16 && c != 'x':
				out.WriteRune(rune(v))
			default:
				out.WriteByte(byte(v))
			}
			sh.at += len(digits)
			if base == 8 {
				sh.at--
			}
		}
	}
	return sh.open("$'", start)
}

// ansiDigits gives the digits of a numeric escape, whose letter begins s.
func ansiDigits(c byte, s string) (digits string, base int) {
	most, set := 0, "0123456789abcdefABCDEF"
	switch {
	case c == 'x':
		most = 2
	case c == 'u':
		most = 4
	case c == 'U':
		most = 8
	case c >= '0' && c <= '7':
		n := 1
		for n < min(3, len(s)) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		return s[:n], 8
	}
	n := 1
	for n < min(most+1, len(s)) && strings.IndexByte(set, s[n]) >= 0 {
		n++
	}
	return s[1:n], 16
}

// document reads the lines of a here-document, if one was announced.
func (sh *shell) document(c *command) error {
	if sh.marker == "" {
		return nil
	}
	_, rest, _ := strings.Cut(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(sh.s[sh.at:]), "\n")
	var out strings.Builder
	for line := range strings.SplitAfterSeq(rest, "\n") {
		if sh.tabs {
			line = strings.TrimLeft(line, "\t")
		}
		if strings.TrimSuffix(line, "\n") == sh.marker {
			w := word{text: out.String()}
			w.expands = !sh.literal && strings.ContainsAny(w.text, "$`")
			c.here = &w
			return nil
		}
		out.WriteString(line)
	}
	return errors.New("the here-document of the command has no end: its marker does not come again")
}
