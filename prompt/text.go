package prompt

import (
	"strconv"
	"unicode/utf8"
)

// group writes a number with a space between thousands.
func group(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return group(n) + " " + one + "s"
}

// charAt gives the position of a byte in characters, from 1.
func charAt(text string, at int) int {
	return utf8.RuneCountInString(text[:min(max(at, 0), len(text))]) + 1
}

func span(start, end int) Span { return Span{Start: start, End: end} }
