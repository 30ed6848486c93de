package report

import (
	"strings"
	"unicode"

	"github.com/kvscope/kvscope/wire"
)

// This file puts texts from outside into Markdown. Escaping by backslash is not
// enough: channels make links of addresses, and mentions of names, in what is plain
// text afterwards. In code spans none of them does, nor is there HTML.

// lookalikes stand for what ends a code span or a table's cell.
var lookalikes = strings.NewReplacer("`", "'", "|", "¦")

// code shows a text as it is, in a code span.
func code(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Co) { // what shows nothing, or something else everywhere
			return '?'
		}
		return r
	}, wire.Printable(s))
	s = strings.TrimSpace(lookalikes.Replace(s))
	if s == "" {
		s = `""`
	}
	return "`" + s + "`"
}

// prose shows a sentence, in which each word that is not plain is a code span.
func prose(s string) string {
	words := strings.Fields(wire.Printable(s))
	for i, word := range words {
		if plain(word) {
			continue
		}
		// What stands around a word belongs to the sentence.
		rest := strings.TrimLeft(word, "(“")
		core := strings.TrimRight(rest, ".,;:)”")
		if core == "" {
			core, rest = word, word
		}
		words[i] = word[:len(word)-len(rest)] + code(core) + rest[len(core):]
	}
	return strings.Join(words, " ")
}

// plain reports whether a word can mean nothing in Markdown, nor be made a link of.
func plain(word string) bool {
	runes := []rune(word)
	for i, r := range runes {
		switch {
		case unicode.IsLetter(r), unicode.IsMark(r), unicode.IsNumber(r):
		case r == '.' || r == ':': // inside a word they make an address of it
			ends := i == len(runes)-1 || i > 0 && !word09(runes[i+1]) && strings.ContainsRune(")]”\"',;", runes[i+1])
			number := i > 0 && i < len(runes)-1 && word09(runes[i-1]) && word09(runes[i+1])
			if !ends && !number {
				return false
			}
		case !strings.ContainsRune(`,;()%/?'"=+-–—≤≥×·…“”→`, r):
			return false
		}
	}
	// Lists, rules and headings begin with such a word, and numbers like addresses
	// have three dots.
	return strings.Count(word, ".") < 3 && strings.Trim(word, "-=+") != ""
}

func word09(r rune) bool { return r >= '0' && r <= '9' }
