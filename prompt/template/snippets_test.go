package template_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/kvscope/kvscope/prompt/template"
)

// snippet is a line of testdata/snippets.jsonl: a template and Python's answer to
// it, which testdata/snippets.py made.
type snippet struct {
	T   string
	OK  *string
	Err string
}

func snippets(t testing.TB) ([]snippet, template.Input) {
	t.Helper()
	f, err := os.Open("testdata/snippets.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // read only
	var all []snippet
	for s := bufio.NewScanner(f); s.Scan(); {
		var row snippet
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	raw, err := os.ReadFile("testdata/snippets.json")
	if err != nil {
		t.Fatal(err)
	}
	var vars map[string]json.RawMessage
	if err := json.Unmarshal(raw, &vars); err != nil {
		t.Fatal(err)
	}
	bos := "<s>"
	in := template.Input{BOS: &bos, AddGenerationPrompt: true, Now: time.Date(2024, 2, 9, 7, 5, 3, 42000, time.UTC)}
	for name, v := range vars {
		in.Kwargs = append(in.Kwargs, template.Kwarg{Name: name, Value: v})
	}
	return all, in
}

func render(source string, in template.Input) (string, error) {
	t, err := template.Compile(source)
	if err != nil {
		return "", err
	}
	return t.Render(context.Background(), in)
}

// What Python renders we render, what it refuses we refuse, and what we do not
// implement we refuse by name: never is there another text.
func TestSnippetsAsPython(t *testing.T) {
	t.Parallel()
	all, in := snippets(t)
	equal, raised, refused := 0, 0, 0
	for _, s := range all {
		got, err := render(s.T, in)
		switch {
		case s.OK == nil && err == nil:
			t.Errorf("%s\n got %q\nwant an error: %s", s.T, got, s.Err)
		case s.OK == nil:
			raised++
		case errors.Is(err, template.ErrUnsupported):
			refused++
			t.Logf("refused: %s: %v", s.T, err)
		case err != nil:
			t.Errorf("%s\n got error %v\nwant %q", s.T, err, *s.OK)
		case got != *s.OK:
			t.Errorf("%s\n got %q\nwant %q", s.T, got, *s.OK)
		default:
			equal++
		}
	}
	t.Logf("%d templates: %d equal, %d raised as due, %d refused", len(all), equal, raised, refused)
}
