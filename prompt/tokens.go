package prompt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// MaxTokens is the longest prompt that is taken, in tokens.
const MaxTokens = 8 << 20

// ErrNoTokens is what ParseTokens says about everything that is not token ids.
var ErrNoTokens = errors.New("this is no list of token ids, such as [151644, 8948, 198]")

// ParseTokens reads token ids from a list, from numbers apart, or from a JSON
// object that holds them; note says where in the object they were.
func ParseTokens(text string) (tokens []wire.Token, note string, err error) {
	text = strings.TrimPrefix(text, "\ufeff")
	body := strings.TrimLeft(text, " \t\r\n")
	switch {
	case strings.TrimSpace(body) == "":
		return nil, "", errors.New("there is nothing in it: give token ids, such as [151644, 8948, 198]")
	case body[0] == '{':
		return tokensInObject(text)
	case body[0] != '[' && body[0] != '-' && (body[0] < '0' || body[0] > '9'):
		return nil, "", ErrNoTokens
	}
	tokens, err = scanTokens([]byte(text))
	return tokens, "", err
}

// tokenPlaces are the fields that may hold a prompt's token ids, the surest first:
// of an engine's request or response, a /tokenize answer, a line of a truth log.
var tokenPlaces = []string{"prompt_token_ids", "token_ids", "tokens", "prompt", "input_ids"}

// ids gives the token ids that an object holds and the name of their field. An
// answer's own tokens are not a prompt, so of choices only prompt_token_ids count.
func (o object) ids() (raw json.RawMessage, where string) {
	for _, name := range tokenPlaces {
		if raw := o.get(name); isList(raw) {
			return raw, name
		}
	}
	if choices, _ := list(o.get("choices")); len(choices) > 0 {
		if first, ok := fields(choices[0]); ok && isList(first.get("prompt_token_ids")) {
			return first.get("prompt_token_ids"), "choices[0].prompt_token_ids"
		}
	}
	return nil, ""
}

// allIDs looks for token ids in an object, then in a response and a request
// within it.
func (o object) allIDs() (raw json.RawMessage, where string) {
	if raw, where = o.ids(); raw != nil {
		return raw, where
	}
	for _, name := range []string{"response", "request"} {
		if inner, ok := fields(o.get(name)); ok {
			if raw, where = inner.ids(); raw != nil {
				return raw, name + "." + where
			}
		}
	}
	return nil, ""
}

func tokensInObject(text string) ([]wire.Token, string, error) {
	value, more, err := firstValue(text)
	if err != nil {
		return nil, "", err
	}
	o, _ := fields(value)
	raw, where := o.allIDs()
	if raw == nil {
		return nil, "", errors.New("the JSON object holds no token ids (prompt_token_ids, token_ids, tokens, or a prompt of ids)")
	}
	tokens, err := scanTokens(raw)
	if err != nil {
		return nil, "", fmt.Errorf("in %s: %w", where, err)
	}
	if more {
		where += " of the first object"
	}
	return tokens, where, nil
}

// scanTokens reads ids that commas or white space part, in brackets or not.
func scanTokens(b []byte) ([]wire.Token, error) {
	out := make([]wire.Token, 0, min(len(b)/4+1, MaxTokens))
	fail := func(at int, format string, args ...any) error {
		return fmt.Errorf("character %s, after %s: %s", wire.Grouped(charAt(string(b), at)), wire.Counted(len(out), "id"), fmt.Sprintf(format, args...))
	}
	const (
		start = iota // before a bracket
		ready        // an id may come
		comma        // one must come, or the end
		after        // a comma may come
		shut         // the bracket is closed
	)
	state, bracket := start, false
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case state == shut:
			return nil, fail(i, "more follows the list")
		case c == '[' && state == start:
			bracket, state = true, ready
			i++
		case c == '[':
			return nil, fail(i, "a list within the list: give one prompt's ids")
		case c == ']' && bracket:
			state = shut
			i++
		case c == ',' && state == after:
			state = comma
			i++
		case c == ',':
			return nil, fail(i, "a comma without an id before it")
		default:
			id, n := scanNumber(b[i:])
			if n == 0 {
				return nil, fail(i, "%s is not a token id", wordAt(b[i:]))
			}
			if len(out) == MaxTokens {
				return nil, fmt.Errorf("there are more than %s ids, the longest prompt that is looked up", wire.Grouped(MaxTokens))
			}
			out = append(out, id)
			state = after
			i += n
		}
	}
	switch {
	case bracket && state != shut:
		return nil, fmt.Errorf("the list is not closed: ] is missing after %s", wire.Counted(len(out), "id"))
	case len(out) == 0:
		return nil, errors.New("the list is empty: give token ids, such as [151644, 8948, 198]")
	}
	return out, nil
}

// scanNumber reads a whole number that ends where a word may end. It gives 0
// bytes for anything else.
func scanNumber(b []byte) (wire.Token, int) {
	var id uint64
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		digit := uint64(b[i] - '0')
		if id > (math.MaxUint64-digit)/10 {
			return 0, 0
		}
		id = 10*id + digit
	}
	if i < len(b) && !bytes.ContainsRune([]byte(" \t\r\n,]"), rune(b[i])) {
		return 0, 0
	}
	return wire.Token(id), i
}

// wordAt quotes the beginning of a text, for errors.
func wordAt(b []byte) string {
	const most = 16
	n := bytes.IndexAny(b, " \t\r\n,]")
	if n <= 0 || n > most {
		n = min(len(b), most)
	}
	word := wire.Printable(strings.ToValidUTF8(string(b[:n]), "?"))
	if n == most {
		word += "…"
	}
	return "“" + word + "”"
}
