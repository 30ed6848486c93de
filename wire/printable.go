package wire

import "strings"

// maxPrintable is how much of a foreign text is shown, in bytes.
const maxPrintable = 400

// Printable makes a text from outside fit to be shown on a terminal, in one
// line: control characters (escape sequences begin with one), marks that turn
// the direction of writing, invisible ones and bytes that are no UTF-8 become
// a question mark or a space, and a very long text is cut.
func Printable(s string) string {
	if len(s) > maxPrintable {
		s = s[:maxPrintable] + "…"
	}
	safe := true
	for i := 0; i < len(s) && safe; i++ {
		safe = s[i] >= 0x20 && s[i] < 0x7f
	}
	if safe {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < 0x20, r >= 0x7f && r < 0xa0, r == 0xfffd, r == 0xfeff,
			r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x2069:
			return '?'
		}
		return r
	}, s)
}
