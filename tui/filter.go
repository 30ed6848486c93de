package tui

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// filter is what was typed after `/`: terms that must all hold.
//
//	word          some cell contains it
//	field:word    that field contains it
//	field>n       that field's number is larger; also < >= <= =
//	/regexp/      some cell matches; field:/regexp/ for one field
//	!term         the term does not hold
//	"two words"   a word with spaces in it
//
// Letters match in either case. A nil filter matches everything.
type filter struct {
	text  string
	terms []term
}

type term struct {
	not   bool
	field string
	test  func(cell string) bool
}

// String gives the filter as it was typed.
func (f *filter) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// active says whether the filter hides anything at all.
func (f *filter) active() bool { return f != nil && len(f.terms) > 0 }

// match tests a row, given as its cells beside the names of their fields.
func (f *filter) match(fields, cells []string) bool {
	if f == nil {
		return true
	}
	for i := range f.terms {
		if f.terms[i].holds(fields, cells) == f.terms[i].not {
			return false
		}
	}
	return true
}

func (t *term) holds(fields, cells []string) bool {
	for i, cell := range cells {
		if (t.field == "" || i < len(fields) && t.field == fields[i]) && t.test(cell) {
			return true
		}
	}
	return false
}

// parseFilter reads a filter for rows with these fields. The error says what
// is wrong in words for the prompt.
func parseFilter(text string, fields []string) (*filter, error) {
	f := &filter{text: strings.TrimSpace(text)}
	words, err := split(text)
	if err != nil {
		return nil, err
	}
	for _, w := range words {
		t, err := parseTerm(w, fields)
		if err != nil {
			return nil, err
		}
		f.terms = append(f.terms, t)
	}
	return f, nil
}

// split cuts at spaces outside of quotes and regular expressions.
func split(text string) ([]string, error) {
	var out []string
	var word strings.Builder
	open := rune(0)
	escaped := false
	started := false
	for _, r := range text {
		switch {
		case escaped:
			escaped = false
			word.WriteRune(r)
		case open == '/' && r == '\\':
			escaped = true
			word.WriteRune(r)
		case open != 0 && r == open:
			open = 0
			if r == '/' {
				word.WriteRune(r)
			}
		case open != 0:
			word.WriteRune(r)
		case r == '"':
			open, started = r, true
		case r == '/' && opensRegexp(word.String()):
			open, started = r, true
			word.WriteRune(r)
		case r == ' ' || r == '\t':
			if started || word.Len() > 0 {
				out = append(out, word.String())
			}
			word.Reset()
			started = false
		default:
			word.WriteRune(r)
		}
	}
	switch open {
	case '"':
		return nil, errors.New(`a " is not closed`)
	case '/':
		return nil, errors.New("a regular expression is not closed: /…/")
	}
	if started || word.Len() > 0 {
		out = append(out, word.String())
	}
	return out, nil
}

// opensRegexp says that a slash behind this begins a regular expression and is
// not one of a name such as pod/0.
func opensRegexp(before string) bool {
	return before == "" || before == "!" || strings.HasSuffix(before, ":")
}

// comparison are the operators on numbers, longer ones first.
var comparisons = []struct {
	sign string
	test func(a, b float64) bool
}{
	{">=", func(a, b float64) bool { return a >= b }},
	{"<=", func(a, b float64) bool { return a <= b }},
	{">", func(a, b float64) bool { return a > b }},
	{"<", func(a, b float64) bool { return a < b }},
	{"=", func(a, b float64) bool { return a == b }},
}

func parseTerm(word string, fields []string) (term, error) {
	var t term
	rest := word
	rest, t.not = strings.CutPrefix(rest, "!")
	if rest == "" {
		return t, errors.New("! needs something to negate")
	}
	if i := strings.IndexAny(rest, ":<>="); i > 0 && isWord(rest[:i]) {
		name, known := fieldOf(rest[:i], fields)
		if !known {
			return t, fmt.Errorf("no field %q here: %s", rest[:i], strings.Join(fields, ", "))
		}
		t.field = name
		if rest[i] != ':' {
			return numeric(t, rest[i:])
		}
		rest = rest[i+1:]
		if rest == "" {
			return t, fmt.Errorf("%s: needs a word", name)
		}
	}
	if len(rest) >= 2 && rest[0] == '/' && rest[len(rest)-1] == '/' {
		re, err := regexp.Compile("(?i)" + rest[1:len(rest)-1])
		if err != nil {
			why := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
			return t, errors.New(strings.Replace(why, "(?i)", "", 1))
		}
		t.test = re.MatchString
		return t, nil
	}
	want := strings.ToLower(rest)
	t.test = func(cell string) bool { return strings.Contains(strings.ToLower(cell), want) }
	return t, nil
}

func numeric(t term, rest string) (term, error) {
	for _, c := range comparisons {
		value, ok := strings.CutPrefix(rest, c.sign)
		if !ok {
			continue
		}
		want, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return t, fmt.Errorf("%s%s needs a number, not %q", t.field, c.sign, value)
		}
		t.test = func(cell string) bool {
			n, ok := numberIn(cell)
			return ok && c.test(n, want)
		}
		return t, nil
	}
	return t, fmt.Errorf("%q is no comparison", rest)
}

// numberIn reads the first number of a cell such as "~14 210 / 16 384".
func numberIn(cell string) (float64, bool) {
	start := strings.IndexAny(cell, "0123456789")
	if start < 0 {
		return 0, false
	}
	digits := []byte{}
	if start > 0 && cell[start-1] == '-' {
		digits = append(digits, '-')
	}
	for i := start; i < len(cell); i++ {
		c := cell[i]
		grouped := c == ' ' && i+1 < len(cell) && cell[i+1] >= '0' && cell[i+1] <= '9'
		if c >= '0' && c <= '9' || c == '.' {
			digits = append(digits, c)
		} else if !grouped {
			break
		}
	}
	n, err := strconv.ParseFloat(string(digits), 64)
	return n, err == nil
}

func isWord(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// fieldOf finds a field by its name or an unambiguous beginning of it.
func fieldOf(name string, fields []string) (string, bool) {
	name = strings.ToLower(name)
	if slices.Contains(fields, name) {
		return name, true
	}
	found := ""
	for _, f := range fields {
		if strings.HasPrefix(f, name) {
			if found != "" {
				return "", false
			}
			found = f
		}
	}
	return found, found != ""
}
