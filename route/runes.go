package route

import "strings"

// symbolChars is how many characters a token counts for where a workload has no
// text, so that thresholds and limits in characters hold.
const symbolChars = 4

// runesOf gives the text of a prompt as a router reads it: the contents joined by
// sep. Where there are none, symbols or tokens stand for it. Each of the runes
// counts weight characters.
func runesOf(r *Request, sep string) (text []rune, weight int) {
	switch {
	case len(r.Contents) > 0:
		return []rune(strings.Join(r.Contents, sep)), 1
	case len(r.Symbols) > 0:
		return r.Symbols, min(max(1, r.Width), 1<<20) * symbolChars
	}
	text = make([]rune, len(r.IDs))
	for i, id := range r.IDs {
		text[i] = rune(id)
	}
	return text, symbolChars
}
