package prompt

import (
	"unicode/utf8"
)

// charAt gives the position of a byte in characters, from 1.
func charAt(text string, at int) int {
	return utf8.RuneCountInString(text[:min(max(at, 0), len(text))]) + 1
}

func span(start, end int) Span { return Span{Start: start, End: end} }
