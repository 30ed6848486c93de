package template

import (
	"errors"
	"strconv"
	"strings"
)

// escapes are the one-letter escapes of Python's strings.
var escapes = map[byte]string{
	'\\': "\\", '\'': "'", '"': "\"", '\n': "",
	'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// hexEscapes are those with a fixed number of hexadecimal digits.
var hexEscapes = map[byte]int{'x': 2, 'u': 4, 'U': 8}

// quoted reads a string literal with Python's escapes.
func quoted(s string) (token, int, error) {
	var b strings.Builder
	for i := 1; i < len(s); {
		switch s[i] {
		case s[0]:
			return token{kind: stringTok, text: b.String()}, i + 1, nil
		case '\\':
			n, err := escape(&b, s[i+1:])
			if err != nil {
				return token{}, 0, err
			}
			i += 1 + n
		default:
			b.WriteByte(s[i])
			i++
		}
	}
	return token{}, 0, errors.New("the string does not end")
}

// escape writes what the escape stands for whose text, after the backslash, s
// begins with, and gives how many bytes that takes.
func escape(b *strings.Builder, s string) (int, error) {
	if s == "" {
		return 0, errors.New("the string does not end")
	}
	if plain, ok := escapes[s[0]]; ok {
		b.WriteString(plain)
		return 1, nil
	}
	if n, ok := hexEscapes[s[0]]; ok {
		if len(s) < 1+n {
			return 0, errors.New("the string does not end")
		}
		v, err := strconv.ParseUint(s[1:1+n], 16, 32)
		if err != nil {
			return 0, errors.New("an escape in a string lacks digits")
		}
		if v >= 0xD800 && v <= 0xDFFF || v > 0x10FFFF {
			return 0, unsupported("a surrogate in a string")
		}
		b.WriteRune(rune(v))
		return 1 + n, nil
	}
	octal := 0
	for octal < 3 && octal < len(s) && s[octal] >= '0' && s[octal] <= '7' {
		octal++
	}
	if octal > 0 {
		v, _ := strconv.ParseUint(s[:octal], 8, 32) // three octal digits
		b.WriteRune(rune(v))
		return octal, nil
	}
	if s[0] == 'N' {
		return 0, unsupported(`\N{…} in a string`)
	}
	b.WriteByte('\\')
	return 0, nil
}
