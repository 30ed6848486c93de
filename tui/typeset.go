package tui

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// textLine is a line of a prompt's text as it is shown.
type textLine struct {
	// block is the one that the line begins in; head says that it begins here.
	block int
	head  bool
	// who speaks from here on, "" where that is who spoke before.
	who string
	// note is said in place of text.
	note   string
	pieces []piece
}

// piece is the part of a line that belongs to one block.
type piece struct {
	block int
	text  string
}

// setter breaks text into lines of w cells. Nothing of it reaches the terminal
// but what can be seen: the rest is escaped.
type setter struct {
	w     int
	lines []textLine
	used  int  // cells of the last line
	full  bool // the next text begins a line
}

// open begins a line.
func (t *setter) open(l textLine) {
	t.lines = append(t.lines, l)
	t.used, t.full = 0, l.note != ""
}

// put adds text of a block, all of it visible. A line's end in it ends a line.
func (t *setter) put(block int, text string) {
	var b strings.Builder
	flush := func() {
		if b.Len() == 0 {
			return
		}
		l := &t.lines[len(t.lines)-1]
		if n := len(l.pieces); n > 0 && l.pieces[n-1].block == block {
			l.pieces[n-1].text += b.String()
		} else {
			l.pieces = append(l.pieces, piece{block, b.String()})
		}
		b.Reset()
	}
	for word := true; text != ""; {
		shown, width, n := visible(text)
		room := width
		if word {
			room = max(room, t.word(text))
		}
		if t.full || t.used > 0 && t.used+room > t.w {
			flush()
			t.open(textLine{block: block})
		}
		b.WriteString(shown)
		t.used += width
		t.full, word = text[0] == '\n', text[0] == ' '
		text = text[n:]
	}
	flush()
}

// word gives the cells of the word that a text begins with, so that it can stay
// whole; 0 for one that is long, as text without blanks is.
func (t *setter) word(text string) int {
	most := min(len(text), t.w/3)
	if n := strings.IndexAny(text[:most], " \n\t"); n >= 0 {
		return n
	}
	if most == len(text) {
		return most
	}
	return 0
}

// bar marks where a block begins within a line.
func (t *setter) bar(block int) {
	if t.full || t.used+2 > t.w {
		t.open(textLine{block: block, head: true})
		return
	}
	l := &t.lines[len(t.lines)-1]
	if len(l.pieces) > 0 {
		l.pieces = append(l.pieces, piece{-1, glyphBar})
		t.used++
	}
}

// most bytes of one character with all that is combined with it. More than that
// is no writing.
const maxCluster = 32

// visible gives what the first character of a text looks like, its width in
// cells and its length in bytes. A line's end and a tab have a sign, and what
// does not show itself is escaped.
func visible(text string) (shown string, width, n int) {
	switch c := text[0]; {
	case c == '\n':
		return glyphReturn, 1, 1
	case c == '\t':
		return glyphArrow + "   ", 4, 1
	case c >= 0x20 && c < 0x7f && (len(text) == 1 || text[1] < 0x80):
		return text[:1], 1, 1
	}
	r, n := utf8.DecodeRuneInString(text)
	switch {
	case r == utf8.RuneError && n == 1:
		shown = fmt.Sprintf(`\x%02x`, text[0])
		return shown, len(shown), 1
	case r != ' ' && !unicode.IsPrint(r):
		return escaped(r, n)
	}
	cluster, width := ansi.FirstGraphemeCluster(text[:min(len(text), 4*maxCluster)], ansi.GraphemeWidth)
	if len(cluster) > maxCluster || strings.ContainsFunc(cluster, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
		cluster = text[:n]
		width = ansi.StringWidth(cluster)
	}
	if width <= 0 {
		return escaped(r, n)
	}
	return cluster, width, len(cluster)
}

func escaped(r rune, n int) (string, int, int) {
	shown := strconv.QuoteRuneToASCII(r)
	shown = shown[1 : len(shown)-1]
	return shown, len(shown), n
}
