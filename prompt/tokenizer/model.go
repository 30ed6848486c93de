package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxTokens = 2_000_000
	maxMerges = 4_000_000
	maxToken  = 4096 // bytes

	// An id may be so far beyond the number of tokens: files have few holes, and
	// tables by id are as long as the largest.
	maxHoles = 1 << 16
)

// modelFields are a model's settings.
type modelFields struct {
	Type          string
	Dropout       *float64
	UnkToken      *string `json:"unk_token"`
	Prefix        *string `json:"continuing_subword_prefix"`
	Suffix        *string `json:"end_of_word_suffix"`
	FuseUnk       bool    `json:"fuse_unk"`
	ByteFallback  bool    `json:"byte_fallback"`
	IgnoreMerges  bool    `json:"ignore_merges"`
	vocab, merges []byte
}

func readModel(raw []byte) (modelFields, error) {
	var m modelFields
	small := map[string]json.RawMessage{}
	r := &reader{data: raw}
	err := r.object(func(key []byte) error {
		value, err := r.skip()
		switch string(key) {
		case "vocab":
			m.vocab = value
		case "merges":
			m.merges = value
		case "type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
			"fuse_unk", "byte_fallback", "ignore_merges":
			small[string(key)] = value
		}
		return err
	})
	if err != nil {
		return m, err
	}
	text, err := json.Marshal(small)
	if err != nil {
		return m, errJSON
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, err
	}
	switch {
	case m.Type != "BPE" && m.Type != "":
		return m, refusal("the model " + m.Type)
	case m.Type == "" && m.merges == nil: // only early BPE files have no type
		return m, refusal("a model without a type")
	case m.vocab == nil || m.merges == nil:
		return m, errors.New("the model has no vocabulary or no merges: fetch the file again")
	case m.Dropout != nil && *m.Dropout != 0:
		return m, refusal("dropout")
	case m.Prefix != nil && *m.Prefix != "":
		return m, refusal("continuing_subword_prefix")
	case m.Suffix != nil && *m.Suffix != "":
		return m, refusal("end_of_word_suffix")
	}
	return m, nil
}

func (l *loader) loadModel(raw []byte) error {
	fields, err := readModel(raw)
	if err != nil {
		return err
	}
	if err := l.loadVocabulary(fields.vocab); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	m := &l.model
	m.unknown = noID
	m.fuse = fields.FuseUnk
	m.cache = newCache()
	if fields.UnkToken != nil {
		id, ok := l.vocabulary[*fields.UnkToken]
		if !ok {
			return fmt.Errorf("its unk_token %.100q is not in the vocabulary", *fields.UnkToken)
		}
		m.unknown = id
	}
	if l.pre.bytes {
		if err := l.startBytes(); err != nil {
			return err
		}
	} else {
		l.startChars(fields.ByteFallback)
	}
	if fields.IgnoreMerges {
		m.whole = map[string]uint32{}
		for id, have := range l.present {
			if have {
				m.whole[l.tokens[id]] = uint32(id)
			}
		}
	}
	if err := l.loadMerges(fields.merges); err != nil {
		return fmt.Errorf("merges: %w", err)
	}
	return nil
}

func (l *loader) loadVocabulary(raw []byte) error {
	l.vocabulary = make(map[string]uint32, len(raw)/48)
	r := &reader{data: raw}
	top := uint32(0)
	err := r.object(func(key []byte) error {
		id, err := r.number()
		if err != nil {
			return err
		}
		if len(key) > maxToken {
			return fmt.Errorf("a token is longer than %d bytes", maxToken)
		}
		if len(l.vocabulary) == maxTokens {
			return fmt.Errorf("there are more than %d tokens", maxTokens)
		}
		l.vocabulary[string(key)] = id
		top = max(top, id)
		return nil
	})
	if err != nil {
		return err
	}
	if int(top) > len(l.vocabulary)+maxHoles {
		return fmt.Errorf("the id %d is far beyond the number of tokens, %d: fetch the file again", top, len(l.vocabulary))
	}
	l.tokens = make([]string, top+1)
	l.present = make([]bool, top+1)
	for text, id := range l.vocabulary {
		if l.present[id] {
			return fmt.Errorf("%.100q and %.100q have the same id", l.tokens[id], text)
		}
		if l.pre.bytes {
			text, _ = fromAlphabet(text)
		}
		l.setToken(id, text)
	}
	return nil
}

// alphabet has a printable character for every byte, as byte-level vocabularies
// spell them; letters is the way back.
var alphabet, letters = func() (of [256]rune, back map[rune]byte) {
	back = map[rune]byte{}
	other := rune(256)
	for b := range of {
		of[b] = rune(b)
		if b <= ' ' || '~' < b && b < 0xa1 || b == 0xad {
			of[b] = other
			other++
		}
		back[of[b]] = byte(b)
	}
	return of, back
}()

// fromAlphabet gives the bytes that a token spells, or the token as it is if it
// spells none.
func fromAlphabet(text string) (string, bool) {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		if r < 0x7f && r > ' ' {
			out = append(out, byte(r))
			continue
		}
		b, ok := letters[r]
		if !ok {
			return text, false
		}
		out = append(out, b)
	}
	return string(out), true
}

func (l *loader) startBytes() error {
	l.model.bytes = new([256]uint32)
	for b := range l.model.bytes {
		id, ok := l.vocabulary[string(alphabet[b])]
		// UTF-8 has neither 0xc0, 0xc1 nor anything from 0xf5 on.
		if !ok && b != 0xc0 && b != 0xc1 && b < 0xf5 {
			return refusal(fmt.Sprintf("a byte-level vocabulary without a token for the byte %#02x", b))
		}
		l.model.bytes[b] = id
	}
	return nil
}

func (l *loader) startChars(fallback bool) {
	l.model.chars = map[rune]uint32{}
	for text, id := range l.vocabulary {
		if r, n := utf8.DecodeRuneInString(text); n == len(text) && n > 0 {
			l.model.chars[r] = id
		}
	}
	if !fallback {
		return
	}
	l.model.fallback = new([256]uint32)
	for b := range l.model.fallback {
		id, ok := l.vocabulary[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			id = noID
		}
		l.model.fallback[b] = id
	}
}

// sign is what SentencePiece has in the place of a space.
const sign = '▁'

func (l *loader) loadMerges(raw []byte) error {
	r := &reader{data: raw}
	type merge struct{ a, b, into uint32 }
	// A merge has two bytes at least, and a comma.
	merges := make([]merge, 0, min(len(raw)/8, maxMerges))
	var joined []byte
	var words []string
	plain := true // every part is of characters, not of a byte or an unknown one
	err := r.list(func() error {
		a, b, err := readMerge(r)
		if err != nil || a == nil {
			return err
		}
		if len(merges) == maxMerges {
			return fmt.Errorf("there are more than %d", maxMerges)
		}
		joined = append(append(joined[:0], a...), b...)
		first, ok1 := l.vocabulary[string(a)]
		second, ok2 := l.vocabulary[string(b)]
		into, ok3 := l.vocabulary[string(joined)]
		if !ok1 || !ok2 || !ok3 {
			return fmt.Errorf("number %d, of %.100q and %.100q, is of or makes a token that the vocabulary lacks", len(merges), a, b)
		}
		merges = append(merges, merge{first, second, into})
		if !l.pre.bytes {
			plain = plain && l.plain(first) && l.plain(second)
			if strings.ContainsRune(l.tokens[into], sign) {
				words = append(words, l.tokens[into])
			}
		}
		return nil
	})
	if err == nil && r.next() != 0 {
		err = r.fail()
	}
	if err != nil {
		return err
	}
	l.model.merges = newMergeTable(len(merges))
	for rank, m := range merges {
		l.model.merges.set(m.a, m.b, uint32(rank), m.into)
	}
	// A word that is one token without merges would be cut into others, and what is
	// around a character that vanishes merges.
	if !l.pre.bytes && plain && l.model.whole == nil && l.model.unknown != noID {
		l.model.setBreak(sign, words)
	}
	return nil
}

// plain is false for tokens that stand for other text than they spell.
func (l *loader) plain(id uint32) bool {
	text := l.tokens[id]
	return id != l.model.unknown && !(len(text) == 6 && strings.HasPrefix(text, "<0x") && text[5] == '>')
}

// readMerge reads "a b" or ["a", "b"]; the former may also be a line of a file
// about its version, which gives nil.
func readMerge(r *reader) (a, b []byte, err error) {
	if r.next() == '"' {
		line, err := r.text()
		if err != nil {
			return nil, nil, err
		}
		if strings.HasPrefix(string(line), "#version") {
			return nil, nil, nil
		}
		first, second, ok := strings.Cut(string(line), " ")
		if !ok || strings.Contains(second, " ") {
			return nil, nil, fmt.Errorf("%.100q is not two tokens", line)
		}
		return []byte(first), []byte(second), nil
	}
	var parts [2][]byte
	n := 0
	err = r.list(func() error {
		if n == 2 {
			return errors.New("one is not two tokens")
		}
		n++
		parts[n-1], err = r.text()
		return err
	})
	if err == nil && n != 2 {
		err = errors.New("one is not two tokens")
	}
	return parts[0], parts[1], err
}
