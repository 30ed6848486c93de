package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// reader walks JSON that is known to be UTF-8. It exists for the vocabulary and
// the merges, nearly all of a file of up to 33 MB, which encoding/json takes a
// second for; it cuts the rest out and leaves it to that package.
type reader struct {
	data []byte
	pos  int
}

var errJSON = errors.New("the JSON is broken")

const maxNesting = 100

func (r *reader) fail() error {
	return fmt.Errorf("%w at byte %d: fetch the file again", errJSON, r.pos)
}

// next gives the next byte that is not white space, 0 at the end.
func (r *reader) next() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *reader) expect(c byte) error {
	if r.next() != c {
		return r.fail()
	}
	r.pos++
	return nil
}

// each goes through the values of a list, or of an object with key.
func (r *reader) each(begin, end byte, do func() error) error {
	if err := r.expect(begin); err != nil {
		return err
	}
	if r.next() == end {
		r.pos++
		return nil
	}
	for {
		if err := do(); err != nil {
			return err
		}
		switch r.next() {
		case ',':
			r.pos++
		case end:
			r.pos++
			return nil
		default:
			return r.fail()
		}
	}
}

func (r *reader) list(do func() error) error { return r.each('[', ']', do) }

func (r *reader) object(do func(key []byte) error) error {
	return r.each('{', '}', func() error {
		key, err := r.text()
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		return do(key)
	})
}

// text gives a string, which is part of the file unless it has escapes.
func (r *reader) text() ([]byte, error) {
	if err := r.expect('"'); err != nil {
		return nil, err
	}
	start := r.pos
	for i := start; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c == '"':
			r.pos = i + 1
			return r.data[start:i], nil
		case c == '\\':
			return r.escaped(start, i)
		case c < ' ':
			r.pos = i
			return nil, r.fail()
		}
	}
	r.pos = len(r.data)
	return nil, r.fail()
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (r *reader) escaped(start, i int) ([]byte, error) {
	out := bytes.Clone(r.data[start:i])
	for i < len(r.data) {
		c := r.data[i]
		r.pos = i
		switch {
		case c == '"':
			r.pos = i + 1
			return out, nil
		case c < ' ':
			return nil, r.fail()
		case c != '\\':
			out = append(out, c)
			i++
			continue
		case i+1 < len(r.data) && r.data[i+1] != 'u':
			plain, ok := escapes[r.data[i+1]]
			if !ok {
				return nil, r.fail()
			}
			out = append(out, plain)
			i += 2
			continue
		}
		code, ok := r.unit(i)
		i += 6
		if ok && utf16.IsSurrogate(code) {
			low, second := r.unit(i)
			code = utf16.DecodeRune(code, low)
			ok = second && code != utf8.RuneError
			i += 6
		}
		if !ok {
			return nil, r.fail()
		}
		out = utf8.AppendRune(out, code)
	}
	return nil, r.fail()
}

// unit reads the \uXXXX at i.
func (r *reader) unit(i int) (rune, bool) {
	if i+6 > len(r.data) || r.data[i] != '\\' || r.data[i+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(r.data[i+2:i+6]), 16, 16)
	return rune(n), err == nil
}

// number reads a token id.
func (r *reader) number() (uint32, error) {
	r.next()
	start, n := r.pos, uint64(0)
	for r.pos < len(r.data) && r.pos-start < 10 && '0' <= r.data[r.pos] && r.data[r.pos] <= '9' {
		n = 10*n + uint64(r.data[r.pos]-'0')
		r.pos++
	}
	if r.pos == start || n > maxID {
		return 0, r.fail()
	}
	return uint32(n), nil
}

// skip gives the bytes of the next value, whose strings and brackets it checks;
// whoever decodes them checks the rest.
func (r *reader) skip() ([]byte, error) {
	r.next()
	start, depth := r.pos, 0
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case '"':
			if err := r.skipText(); err != nil {
				return nil, err
			}
			r.pos--
		case '[', '{':
			if depth++; depth > maxNesting {
				return nil, fmt.Errorf("the JSON is nested deeper than %d levels", maxNesting)
			}
		case ']', '}':
			if depth == 0 {
				return r.data[start:r.pos], nil
			}
			depth--
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return r.data[start:r.pos], nil
			}
			r.pos++
			continue
		default:
			r.pos++
			continue
		}
		r.pos++
		if depth == 0 {
			return r.data[start:r.pos], nil
		}
	}
	if depth > 0 || start == r.pos {
		return nil, r.fail()
	}
	return r.data[start:], nil
}

func (r *reader) skipText() error {
	for r.pos++; ; r.pos++ {
		n := bytes.IndexAny(r.data[r.pos:], `"\`)
		if n < 0 {
			r.pos = len(r.data)
			return r.fail()
		}
		r.pos += n
		if r.data[r.pos] == '"' {
			r.pos++
			return nil
		}
		if r.pos++; r.pos == len(r.data) { // the escaped byte
			return r.fail()
		}
	}
}
