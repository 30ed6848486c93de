package template

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Python maps letters to upper and lower case by Unicode's full mapping, in which
// one letter may become several, as x/text does.

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

func upper(t str) (str, error) {
	if isASCII(t.s) {
		return t.like(strings.ToUpper(t.s)), nil
	}
	return t.like(cases.Upper(language.Und).String(t.s)), nil
}

func lower(t str) (str, error) {
	if isASCII(t.s) {
		return t.like(strings.ToLower(t.s)), nil
	}
	return t.like(cases.Lower(language.Und).String(t.s)), nil
}

// cased makes a method of a change of case.
func cased(change func(t str) (str, error)) func(r *run, in []value) (value, error) {
	return func(r *run, in []value) (value, error) {
		if err := r.charge(len(in[0].(str).s)); err != nil {
			return nil, err
		}
		return change(in[0].(str))
	}
}

// titled gives a letter as the first of a word.
func titled(r rune) (string, error) {
	if cases.Upper(language.Und).String(string(r)) != string(unicode.ToUpper(r)) {
		return "", unsupported("a capital of several letters")
	}
	return string(unicode.ToTitle(r)), nil
}

// capitals writes a text in lower case, save where starts holds: for the letters
// before it says whether the next is a word's first.
func capitals(t str, first func(before rune, start bool) bool) (str, error) {
	low := []rune(t.s)
	var b strings.Builder
	var before rune
	var done int
	flush := func(end int) error {
		l, err := lower(lit(string(low[done:end])))
		b.WriteString(l.s)
		done = end
		return err
	}
	for i, r := range low {
		if first(before, i == 0) {
			if err := flush(i); err != nil {
				return str{}, err
			}
			c, err := titled(r)
			if err != nil {
				return str{}, err
			}
			b.WriteString(c)
			done = i + 1
		}
		before = r
	}
	err := flush(len(low))
	return t.like(b.String()), err
}

func capitalize(t str) (str, error) {
	return capitals(t, func(_ rune, start bool) bool { return start })
}

// title is Python's: a word starts behind anything but a letter.
func title(t str) (str, error) {
	return capitals(t, func(before rune, start bool) bool {
		return start || !unicode.IsUpper(before) && !unicode.IsLower(before) && !unicode.IsTitle(before)
	})
}

// titleFilter is Jinja's: a word starts behind white space, a hyphen or a bracket.
func titleFilter(t str) (str, error) {
	return capitals(t, func(before rune, start bool) bool {
		return start || isSpace(before) || strings.ContainsRune("-({[<", before)
	})
}

// all makes a method that holds where every character, of one at least, does.
func all(is func(r rune) bool) func(r *run, in []value) (value, error) {
	return func(r *run, in []value) (value, error) {
		s := in[0].(str).s
		if strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII && unicode.Is(unicode.No, r) }) {
			return nil, unsupported("the class of a character such as a raised digit")
		}
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !is(r) }), r.charge(len(s) / 8)
	}
}

func isDigit(r rune) bool { return unicode.IsDigit(r) }

// isCase makes isupper and islower: no letter of the other case, and one of this.
func isCase(is, other func(r rune) bool) func(r *run, in []value) (value, error) {
	return func(r *run, in []value) (value, error) {
		s := in[0].(str).s
		bad := strings.ContainsFunc(s, func(r rune) bool { return other(r) || unicode.IsTitle(r) })
		return !bad && strings.ContainsFunc(s, is), r.charge(len(s) / 8)
	}
}
