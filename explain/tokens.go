package explain

import (
	"errors"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// MaxPrompt is the longest prompt that is looked up, in tokens.
const MaxPrompt = prompt.MaxTokens

// errText is said about everything that is not token ids.
var errText = errors.New("this is no list of token ids; prompts as text come later: give token ids, such as [151644, 8948, 198]")

// ParseTokens reads token ids from a list, from numbers apart, or from a JSON
// object that holds them; note says where in the object they were.
func ParseTokens(text string) (tokens []wire.Token, note string, err error) {
	tokens, note, err = prompt.ParseTokens(text)
	if errors.Is(err, prompt.ErrNoTokens) {
		err = errText
	}
	return tokens, note, err
}
