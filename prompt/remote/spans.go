package remote

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kvscope/kvscope/prompt/tokenizer"
)

// spellings are the ways in which vocabularies write the bytes of a token: as
// they are, by GPT-2's letters for bytes, and with SentencePiece's space and
// <0x0A> for a byte. False means that a string is no such spelling.
var spellings = []func(string) (string, bool){
	func(s string) (string, bool) { return s, true },
	byteLevel,
	sentencePiece,
}

// spans finds where in the text each token is, and is nil unless one spelling
// makes the tokens' strings into the text, byte for byte. What comes before or
// after the text was added by the tokenizer, such as a BOS, and has empty spans.
func spans(text string, strs []*string) []tokenizer.Span {
	for _, spell := range spellings {
		if parts := spelled(strs, spell); parts != nil {
			if out := laid(text, parts); out != nil {
				return out
			}
		}
	}
	return nil
}

// candidates are the texts that tokens may spell together. SentencePiece comes
// first: its tokenizers read their mark for a space as one, so a text that still
// holds it has the same tokens. The letters of the other kind are no such thing.
func candidates(strs []*string) []string {
	var out []string
	for _, spell := range []func(string) (string, bool){sentencePiece, byteLevel} {
		text := strings.Join(spelled(strs, spell), "")
		if text != "" && utf8.ValidString(text) && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

func spelled(strs []*string, spell func(string) (string, bool)) []string {
	var out []string
	for _, s := range strs {
		if s == nil {
			return nil
		}
		part, ok := spell(*s)
		if !ok {
			part = *s // an added token, which is written as it is
		}
		out = append(out, part)
	}
	return out
}

// maxAdded is how many tokens before a text are looked for; a BOS is one.
const maxAdded = 8

// laid lays the parts over the text, where they hold it in one place only.
func laid(text string, parts []string) []tokenizer.Span {
	out := make([]tokenizer.Span, len(parts))
	if text == "" {
		return out
	}
	all := strings.Join(parts, "")
	first, at := -1, 0 // the first part of the text, and where it begins in all
	for i, begin := 0, 0; i < len(parts) && i <= maxAdded; i++ {
		if strings.HasPrefix(all[begin:], text) && ends(parts[i:], len(text)) {
			if first >= 0 {
				return nil // added tokens look like the text
			}
			first, at = i, begin
		}
		begin += len(parts[i])
	}
	if first < 0 {
		return nil
	}
	for i, end := first, at; i < len(parts); i++ {
		begin := end
		end += len(parts[i])
		if end-at > len(text) {
			break
		}
		out[i] = wholeCharacters(text, tokenizer.Span{Start: begin - at, End: end - at})
	}
	return out
}

// ends reports whether a part ends after n bytes.
func ends(parts []string, n int) bool {
	for _, p := range parts {
		if n <= 0 {
			break
		}
		n -= len(p)
	}
	return n == 0
}

// wholeCharacters widens a span to the characters that it has bytes of.
func wholeCharacters(text string, s tokenizer.Span) tokenizer.Span {
	if s.Start == s.End {
		return s
	}
	for s.Start > 0 && !utf8.RuneStart(text[s.Start]) {
		s.Start--
	}
	for s.End < len(text) && !utf8.RuneStart(text[s.End]) {
		s.End++
	}
	return s
}

// letters gives the byte that a letter of GPT-2's alphabet stands for: printable
// Latin-1 for itself, and for the other bytes, in order, the letters from U+0100.
var letters = func() map[rune]byte {
	out := map[rune]byte{}
	next := rune(0x100)
	for b := range rune(0x100) {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xff && b != 0xad {
			out[b] = byte(b)
			continue
		}
		out[next] = byte(b)
		next++
	}
	return out
}()

func byteLevel(s string) (string, bool) {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		b, ok := letters[r]
		if !ok {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}

func sentencePiece(s string) (string, bool) {
	if len(s) == len("<0x0A>") && strings.HasPrefix(s, "<0x") && s[5] == '>' {
		if b, err := strconv.ParseUint(s[3:5], 16, 8); err == nil {
			return string([]byte{byte(b)}), true
		}
	}
	return strings.ReplaceAll(s, "▁", " "), true
}
