package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// addedToken is an entry of a file's added_tokens.
type addedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

const (
	maxAdded      = 100_000
	maxAddedBytes = 1 << 20 // of all of them
)

func loadAdded(raw json.RawMessage) ([]addedToken, error) {
	var out []addedToken
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	if len(out) > maxAdded {
		return nil, fmt.Errorf("there are more than %d", maxAdded)
	}
	size := 0
	for _, a := range out {
		if size += len(a.Content); size > maxAddedBytes {
			return nil, fmt.Errorf("they are longer than %d bytes together", maxAddedBytes)
		}
		for _, f := range []struct {
			set  bool
			name string
		}{{a.SingleWord, "single_word"}, {a.LStrip, "lstrip"}, {a.RStrip, "rstrip"}} {
			if f.set {
				return nil, refusal(fmt.Sprintf("%s of the added token %.100q", f.name, a.Content))
			}
		}
		if a.Content == "" {
			return nil, errors.New("one has no content")
		}
	}
	return out, nil
}

// trie finds texts in a text: of those that begin first, the longest.
type trie struct {
	starts [256]bool
	nodes  []trieNode
}

type trieNode struct {
	next map[byte]int32
	id   uint32 // of the token that ends here, noID if none does
}

func (t *trie) put(text string, id uint32) {
	if text == "" {
		return
	}
	if len(t.nodes) == 0 {
		t.nodes = []trieNode{{id: noID}}
	}
	t.starts[text[0]] = true
	at := int32(0)
	for i := range len(text) {
		n := &t.nodes[at]
		next, ok := n.next[text[i]]
		if !ok {
			if n.next == nil {
				n.next = map[byte]int32{}
			}
			next = int32(len(t.nodes))
			n.next[text[i]] = next
			t.nodes = append(t.nodes, trieNode{id: noID})
		}
		at = next
	}
	if t.nodes[at].id == noID { // of equal ones the first counts
		t.nodes[at].id = id
	}
}

// find gives the first token at or after from. Walking on from each byte is
// quadratic in the longest token, so left bounds it too.
func (t *trie) find(text string, from int, left *int) (start, end int, id uint32, err error) {
	for ; from < len(text); from++ {
		if !t.starts[text[from]] {
			continue
		}
		at, id := int32(0), uint32(noID)
		for i := from; i < len(text); i++ {
			next, ok := t.nodes[at].next[text[i]]
			if !ok {
				break
			}
			*left--
			if at = next; t.nodes[at].id != noID {
				end, id = i+1, t.nodes[at].id
			}
		}
		if id != noID {
			return from, end, id, nil
		}
		if *left < 0 {
			return 0, 0, noID, errSteps
		}
	}
	return 0, 0, noID, nil
}

// each hands the tokens of a text, and what is between them, on.
func (t *trie) each(p piece, left *int, token func(id uint32, p piece), rest func(piece) error) error {
	for last := 0; last < len(p.text); {
		start, end, id, err := t.find(p.text, last, left)
		if err != nil {
			return err
		}
		if id == noID {
			return rest(p.cut(last, len(p.text)))
		}
		if start > last {
			if err := rest(p.cut(last, start)); err != nil {
				return err
			}
		}
		token(id, p.cut(start, end))
		last = end
	}
	return nil
}
