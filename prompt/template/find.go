package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// maxConfig bounds a model's configuration files, which list all added tokens.
const maxConfig = 64 << 20

// Source is the templates of a model and what they need from its tokenizer.
type Source struct {
	// From says where the templates come from: "chat template of
	// tokenizer_config.json". It is empty where there is none.
	From string
	// Named has the templates by name; most models have "default" alone.
	Named map[string]string
	// BOS and EOS are nil where the tokenizer has none.
	BOS, EOS *string
}

// Given is a source of one template from elsewhere, such as a flag.
func (s Source) Given(text, from string) Source {
	s.From, s.Named = from, map[string]string{"default": text}
	return s
}

// Text picks a template as transformers does: one for tools where there are both
// tools and such a template.
func (s Source) Text(tools bool) (string, error) {
	if text, ok := s.Named["tool_use"]; ok && tools {
		return text, nil
	}
	text, ok := s.Named["default"]
	switch {
	case ok:
		return text, nil
	case s.From == "":
		return "", errors.New("the model has no chat template: give one, or a rendered prompt")
	}
	return "", fmt.Errorf("%s: none of its templates is called default", s.From)
}

// Find reads the folder of a model. A file chat_template.jinja goes before the
// template within tokenizer_config.json, and chat_template.json, of processors,
// comes last.
func Find(dir fs.FS) (Source, error) {
	var s Source
	var config struct {
		Template json.RawMessage `json:"chat_template"`
		BOS      json.RawMessage `json:"bos_token"`
		EOS      json.RawMessage `json:"eos_token"`
	}
	if err := readJSON(dir, "tokenizer_config.json", &config); err != nil {
		return s, err
	}
	var processor struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := readJSON(dir, "chat_template.json", &processor); err != nil {
		return s, err
	}
	for _, t := range []struct {
		raw json.RawMessage
		to  **string
	}{{config.BOS, &s.BOS}, {config.EOS, &s.EOS}} {
		token, err := tokenText(t.raw)
		if err != nil {
			return s, fmt.Errorf("tokenizer_config.json: %w", err)
		}
		*t.to = token
	}
	switch text, err := readFile(dir, "chat_template.jinja"); {
	case err == nil:
		return s.Given(string(text), "chat template of chat_template.jinja"), nil
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	}
	for _, in := range []struct {
		name string
		raw  json.RawMessage
	}{{"tokenizer_config.json", config.Template}, {"chat_template.json", processor.Template}} {
		named, err := templates(in.raw)
		if err != nil {
			return s, fmt.Errorf("%s: %w", in.name, err)
		}
		if named != nil {
			s.From, s.Named = "chat template of "+in.name, named
			return s, nil
		}
	}
	return s, nil
}

// readJSON reads a file into v, which stays as it is where there is none.
func readJSON(dir fs.FS, name string, v any) error {
	b, err := readFile(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func readFile(dir fs.FS, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(b) > maxConfig {
		return nil, fmt.Errorf("%s: it is longer than %d MiB", name, maxConfig>>20)
	}
	return b, nil
}

// templates reads a template, or a list of named ones; nil where there is none.
func templates(raw json.RawMessage) (map[string]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return map[string]string{"default": one}, nil
	}
	var list []struct{ Name, Template string }
	if json.Unmarshal(raw, &list) != nil {
		return nil, errors.New("chat_template is neither a text nor a list of named texts")
	}
	named := map[string]string{}
	for _, t := range list {
		named[t.Name] = t.Template
	}
	return named, nil
}

// tokenText reads a special token: a text, an object with its content, or null.
func tokenText(raw json.RawMessage) (*string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return &text, nil
	}
	var token struct{ Content *string }
	if json.Unmarshal(raw, &token) != nil || token.Content == nil {
		return nil, errors.New("a special token is neither a text, nor an object with its content, nor null")
	}
	return token.Content, nil
}
