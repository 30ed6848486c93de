package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// maxConfig is the largest configuration file, in bytes.
	maxConfig = 1 << 20
	// maxMistakes is how many mistakes are told at once: a file with more is
	// another file, or has one that causes the others.
	maxMistakes = 20
)

// checker holds a file against the table of fields. It goes no deeper than the
// table, and follows no alias, so a hostile file costs no more than its size.
type checker struct {
	name string
	errs []error
}

// parseConfig reads a configuration. The error names each mistake with its
// line, and holds no value that can be a password.
func parseConfig(data []byte, name string) (config, error) {
	c := checker{name: name}
	cfg := config{}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF): // nothing but comments
		return cfg, nil
	case err != nil:
		return cfg, c.syntax(err)
	}
	if more := (yaml.Node{}); dec.Decode(&more) != io.EOF {
		return cfg, fmt.Errorf("%s:%d: a second document: put everything into the first", name, max(more.Line, 1))
	}
	if root := doc.Content[0]; !isNull(root) {
		c.section(root, &setting{kind: section, fields: settings}, "")
	}
	if len(c.errs) > 0 {
		return cfg, errors.Join(c.errs...)
	}
	if err := doc.Decode(&cfg); err != nil {
		return config{}, fmt.Errorf("%s: it cannot be read as a configuration: compare it with what `kvscope init -o -` writes", name)
	}
	return cfg, nil
}

var yamlLine = regexp.MustCompile(`line (\d+): (.*)`)

// syntax says where the file is no YAML.
func (c *checker) syntax(err error) error {
	line, what := "1", strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(what); m != nil {
		line, what = m[1], m[2]
	}
	// The name of the anchor is the value.
	if strings.Contains(what, "anchor") {
		what = "a value that begins with * or & must stand in quotes"
	}
	return fmt.Errorf("%s:%s: not YAML: %s", c.name, line, what)
}

func (c *checker) fail(n *yaml.Node, path string, err error) {
	if len(c.errs) == maxMistakes {
		return
	}
	if path != "" {
		err = fmt.Errorf("%s: %w", path, err)
	}
	c.errs = append(c.errs, fmt.Errorf("%s:%d: %w", c.name, n.Line, err))
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

var errAlias = errors.New("YAML's anchors are not followed: write the value out, or put a text that begins with * in quotes")

// section checks the fields of a mapping.
func (c *checker) section(n *yaml.Node, f *setting, path string) {
	switch n.Kind {
	case yaml.MappingNode:
	case yaml.AliasNode:
		c.fail(n, path, errAlias)
		return
	default:
		c.fail(n, path, errSection)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		known := f.field(key.Value)
		switch line := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode || known == nil:
			c.fail(key, path, f.unknown(key.Value))
			continue
		case line > 0:
			c.fail(key, path, fmt.Errorf("%s is given a second time, after line %d: keep one of them", key.Value, line))
			continue
		}
		seen[key.Value] = key.Line
		if !isNull(value) { // nothing is said
			c.value(value, known, strings.TrimPrefix(path+"."+key.Value, "."))
		}
	}
	for _, group := range f.needs {
		if !slices.ContainsFunc(group, func(key string) bool { return seen[key] > 0 }) {
			c.fail(n, path, fmt.Errorf("give %s", strings.Join(group, " or ")))
		}
	}
}

// value checks a value that is there.
func (c *checker) value(n *yaml.Node, f *setting, path string) {
	switch f.kind {
	case section:
		c.section(n, f, path)
		return
	case sections, texts:
		c.list(n, f, path)
		return
	}
	c.scalar(n, f, path)
}

func (c *checker) list(n *yaml.Node, f *setting, path string) {
	switch {
	case n.Kind == yaml.AliasNode:
		c.fail(n, path, errAlias)
		return
	case n.Kind != yaml.SequenceNode && f.kind == sections:
		c.fail(n, path, errors.New("give a list: each entry begins with -"))
		return
	case n.Kind != yaml.SequenceNode:
		c.fail(n, path, errors.New("give a list, such as [kv-events]"))
		return
	case int64(len(n.Content)) > f.most:
		c.fail(n, path, fmt.Errorf("%d entries: give at most %d", len(n.Content), f.most))
		return
	}
	for i, e := range n.Content {
		at := path + "[" + strconv.Itoa(i) + "]"
		if f.kind == sections {
			c.section(e, f, at)
			continue
		}
		c.scalar(e, &setting{kind: text, most: maxTopic}, at)
	}
}

func (c *checker) scalar(n *yaml.Node, f *setting, path string) {
	tag := n.ShortTag()
	switch {
	case n.Kind == yaml.AliasNode:
		c.fail(n, path, errAlias)
		return
	case n.Kind != yaml.ScalarNode:
		c.fail(n, path, fmt.Errorf("give %s, and no list or section", f.span()))
		return
	case n.Style&yaml.TaggedStyle != 0:
		c.fail(n, path, errors.New("write the value without a tag, and a text that begins with ! in quotes"))
		return
	}
	if err := f.check(n.Value); err != nil {
		c.fail(n, path, err)
		return
	}
	if want := map[kind]string{truth: "!!bool", number: "!!int", port: "!!int"}[f.kind]; want != "" && tag != want {
		c.fail(n, path, fmt.Errorf("%q: write it without quotes", n.Value))
	}
}

// unknown says that a key is none of f's, and which comes closest.
func (f *setting) unknown(key string) error {
	key = key[:min(len(key), maxWord)]
	best, least := "", len(key)/2+1
	names := make([]string, len(f.fields))
	for i := range f.fields {
		names[i] = f.fields[i].key
		if d := distance(key, names[i]); d < least {
			best, least = names[i], d
		}
	}
	if best != "" {
		return fmt.Errorf("there is no key %q: is it %s?", key, best)
	}
	return fmt.Errorf("there is no key %q here: the known ones are %s", key, strings.Join(names, ", "))
}

// distance is how many characters to put in, take out or replace to make b of
// a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
