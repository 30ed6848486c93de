package explain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/kvscope/kvscope/wire"
)

// MaxPrompt is the longest prompt that is looked up, in tokens.
const MaxPrompt = 8 << 20

// errText is said about everything that is not token ids.
var errText = errors.New("this is no list of token ids; prompts as text come later: give token ids, such as [151644, 8948, 198]")

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
		return nil, "", errText
	}
	tokens, err = scanTokens([]byte(text))
	return tokens, "", err
}

// tokenDoc is an object that may hold a prompt's token ids: an engine's request
// or response, a /tokenize answer, a line of a truth log.
type tokenDoc struct {
	PromptTokenIDs json.RawMessage `json:"prompt_token_ids"`
	TokenIDs       json.RawMessage `json:"token_ids"`
	Tokens         json.RawMessage `json:"tokens"`
	Prompt         json.RawMessage `json:"prompt"`
	Response       json.RawMessage `json:"response"`
	Request        json.RawMessage `json:"request"`
	Choices        json.RawMessage `json:"choices"`
}

// find gives the ids of a document and the name of the field, the surest place
// first. An answer's own tokens are not a prompt, so of choices only
// prompt_token_ids count.
func (d *tokenDoc) find() (raw json.RawMessage, where string) {
	for _, f := range []struct {
		raw  json.RawMessage
		name string
	}{
		{d.PromptTokenIDs, "prompt_token_ids"}, {d.TokenIDs, "token_ids"}, {d.Tokens, "tokens"}, {d.Prompt, "prompt"},
	} {
		if isList(f.raw) {
			return f.raw, f.name
		}
	}
	var choices []struct {
		PromptTokenIDs json.RawMessage `json:"prompt_token_ids"`
	}
	if json.Unmarshal(d.Choices, &choices) == nil && len(choices) > 0 && isList(choices[0].PromptTokenIDs) {
		return choices[0].PromptTokenIDs, "choices[0].prompt_token_ids"
	}
	return nil, ""
}

func isList(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '[' }

func tokensInObject(text string) ([]wire.Token, string, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	var doc tokenDoc
	if err := dec.Decode(&doc); err != nil {
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &syntax):
			return nil, "", fmt.Errorf("the JSON breaks at character %s: %s", group(charAt(text, int(syntax.Offset)-1)), syntax.Error())
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, "", errors.New("the JSON object is not closed: its end is missing")
		}
		return nil, "", fmt.Errorf("the JSON cannot be read: %w", err)
	}
	raw, where := doc.find()
	for _, in := range []struct {
		raw  json.RawMessage
		name string
	}{{doc.Response, "response."}, {doc.Request, "request."}} {
		var inner tokenDoc
		if raw == nil && len(in.raw) > 0 && json.Unmarshal(in.raw, &inner) == nil {
			if raw, where = inner.find(); raw != nil {
				where = in.name + where
			}
		}
	}
	if raw == nil {
		return nil, "", errors.New("the JSON object holds no token ids (prompt_token_ids, token_ids, tokens, or a prompt of ids); prompts as text come later")
	}
	tokens, err := scanTokens(raw)
	if err != nil {
		return nil, "", fmt.Errorf("in %s: %w", where, err)
	}
	if rest := text[dec.InputOffset():]; strings.TrimSpace(rest) != "" {
		where += " of the first object"
	}
	return tokens, where, nil
}

// charAt gives the position of a byte in characters, from 1.
func charAt(text string, at int) int {
	return utf8.RuneCountInString(text[:min(max(at, 0), len(text))]) + 1
}

// scanTokens reads ids that commas or white space part, in brackets or not.
func scanTokens(b []byte) ([]wire.Token, error) {
	out := make([]wire.Token, 0, min(len(b)/4+1, MaxPrompt))
	fail := func(at int, format string, args ...any) error {
		return fmt.Errorf("character %s, after %s: %s", group(charAt(string(b), at)), plural(len(out), "id"), fmt.Sprintf(format, args...))
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
			if len(out) == MaxPrompt {
				return nil, fmt.Errorf("there are more than %s ids, the longest prompt that is looked up", group(MaxPrompt))
			}
			out = append(out, id)
			state = after
			i += n
		}
	}
	switch {
	case bracket && state != shut:
		return nil, fmt.Errorf("the list is not closed: ] is missing after %s", plural(len(out), "id"))
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
