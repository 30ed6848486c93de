package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Tokenizer is a loaded tokenizer.json.
//
// It is safe for concurrent use.
type Tokenizer struct {
	raw, normalized trie // added tokens, found before and after the normalizer
	normalizer      normalizers
	pre             preTokenizer
	model           bpe
	post            []processor
	decoders        []decoder

	tokens  []string        // by id: the model's, in bytes where it is one of bytes
	added   map[uint32]bool // ids of added tokens: special or not
	present []bool
}

const (
	maxFile   = 256 << 20
	maxPart   = 1 << 20 // bytes, of all but the model and the added tokens
	maxStages = 50      // of one kind

	otherwise = "ask the engine's own tokenizer instead"
)

func refusal(what string) error { return fmt.Errorf("%s is not implemented: %s", what, otherwise) }

// Load reads a tokenizer.json. It refuses, by name, what it would not do exactly
// as HuggingFace's tokenizers does.
func Load(data []byte) (*Tokenizer, error) {
	t, err := load(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

func load(data []byte) (*Tokenizer, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(data), maxFile)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8: fetch the file again")
	}
	r := &reader{data: data}
	parts := map[string]json.RawMessage{}
	err := r.object(func(key []byte) (err error) {
		raw, err := r.skip()
		if slices.Contains(partNames, string(key)) {
			parts[string(key)] = raw
		}
		return err
	})
	if err == nil && r.next() != 0 {
		err = r.fail()
	}
	if err != nil {
		return nil, err
	}
	l := &loader{Tokenizer: &Tokenizer{added: map[uint32]bool{}}}
	for _, name := range partNames {
		raw, ok := parts[name]
		if !ok {
			raw = json.RawMessage("null")
		}
		if err := l.part(name, raw); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return l.Tokenizer, nil
}

// loader is a Tokenizer in the making.
type loader struct {
	*Tokenizer
	vocabulary map[string]uint32 // the model's tokens as the file spells them
}

// partNames are the parts of a file in the order in which they need each other.
var partNames = []string{
	"version", "truncation", "padding",
	"normalizer", "pre_tokenizer", "model", "added_tokens", "post_processor", "decoder",
}

func (l *loader) part(name string, raw json.RawMessage) error {
	null := string(raw) == "null"
	if len(raw) > maxPart && name != "model" && name != "added_tokens" {
		return fmt.Errorf("it has %d bytes, more than %d", len(raw), maxPart)
	}
	switch name {
	case "version":
		if string(raw) != `"1.0"` && !null {
			return refusal("another version than 1.0")
		}
	case "truncation", "padding":
		if !null {
			return refusal("what the file sets")
		}
	case "normalizer":
		return l.loadNormalizer(raw)
	case "pre_tokenizer":
		return l.pre.load(raw)
	case "model":
		return l.loadModel(raw)
	case "added_tokens":
		if null {
			return nil
		}
		return l.addTokens(raw)
	case "post_processor":
		return l.loadPost(raw)
	case "decoder":
		return l.loadDecoder(raw)
	}
	return nil
}

// typeOf gives the type of a component, "" for none.
func typeOf(raw json.RawMessage) (string, error) {
	if string(raw) == "null" || len(raw) == 0 {
		return "", nil
	}
	var c struct{ Type string }
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", err
	}
	if c.Type == "" {
		return "", errors.New("a component has no type")
	}
	return c.Type, nil
}

// addTokens gives added tokens the ids that the reference gives them: it does not
// go by the file's.
func (l *loader) addTokens(raw json.RawMessage) error {
	all, err := loadAdded(raw)
	if err != nil {
		return err
	}
	next := uint32(len(l.vocabulary))
	seen := map[string]bool{}
	for _, a := range all {
		if seen[a.Content] {
			return fmt.Errorf("%.100q is declared twice", a.Content)
		}
		seen[a.Content] = true
		id, ok := l.vocabulary[a.Content]
		if !ok {
			id = next
			next++
		}
		if id != a.ID {
			return fmt.Errorf("%.100q has the id %d, but would be given %d: %s", a.Content, a.ID, id, otherwise)
		}
		l.setToken(id, a.Content)
		l.added[id] = a.Special
	}
	// Of tokens that a normalizer makes equal, the first special one counts.
	slices.SortStableFunc(all, func(a, b addedToken) int {
		switch {
		case a.Special == b.Special:
			return 0
		case a.Special:
			return -1
		}
		return 1
	})
	for _, a := range all {
		if !a.Normalized {
			l.raw.put(a.Content, a.ID)
			continue
		}
		left := stepsPerByte * (len(a.Content) + 100)
		p, err := l.normalizer.normalize(piece{text: a.Content}, &left)
		if err != nil {
			return err
		}
		l.normalized.put(p.text, a.ID)
	}
	return nil
}

func (t *Tokenizer) setToken(id uint32, text string) {
	for int(id) >= len(t.tokens) {
		t.tokens = append(t.tokens, "")
		t.present = append(t.present, false)
	}
	t.tokens[id], t.present[id] = text, true
}
