package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A pattern is a regular expression of the reference's dialect (Oniguruma's) as a
// program for matcher. Only what is surely understood alike compiles; the rest is
// refused by name.

// node is a part of a pattern.
type node struct {
	op       op
	set      set     // of opSet
	subs     []*node // of all but opSet and opEnd
	min, max int     // of opRepeat; max is -1 for no bound
	mode     mode    // of opRepeat
	negative bool    // of opAhead
}

type op uint8

const (
	opSet    op = iota // one character of a set
	opCat              // one after the other
	opAlt              // the first that matches
	opRepeat           // subs[0], min to max times
	opAhead            // what follows matches subs[0], or does not
	opAtomic           // subs[0], never retried
	opEnd              // the end of a line
)

type mode uint8

const (
	greedy mode = iota
	lazy
	possessive
)

const (
	maxPattern = 10_000 // bytes
	maxGroups  = 50     // within each other
	maxRepeat  = 1000
)

type parser struct {
	rest  string
	fold  bool // under (?i
	depth int
}

func parsePattern(text string) (*node, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it is longer than %d bytes", maxPattern)
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("it is not UTF-8")
	}
	p := &parser{rest: text}
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if p.rest != "" {
		return nil, errors.New("a bracket closes that was not opened")
	}
	return n, nil
}

func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

func (p *parser) rune() (rune, error) {
	if p.rest == "" {
		return 0, errors.New("it ends too early")
	}
	r, n := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[n:]
	return r, nil
}

func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxGroups {
		return nil, fmt.Errorf("groups are nested deeper than %d", maxGroups)
	}
	defer func() { p.depth-- }()
	alt := &node{op: opAlt}
	for {
		n, err := p.sequence()
		if err != nil {
			return nil, err
		}
		alt.subs = append(alt.subs, n)
		if !p.take("|") {
			break
		}
	}
	if len(alt.subs) == 1 {
		return alt.subs[0], nil
	}
	return alt, nil
}

func (p *parser) sequence() (*node, error) {
	cat := &node{op: opCat}
	before := rune(-1) // the letter before, where it counts
	for p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
		n, letter, err := p.atom()
		if err != nil {
			return nil, err
		}
		if p.fold && foldsAsPair(before, letter) {
			return nil, fmt.Errorf("(?i) over %q, which stands for one letter too, is not implemented", string([]rune{before, letter}))
		}
		before = letter
		if n, err = p.repeat(n); err != nil {
			return nil, err
		}
		cat.subs = append(cat.subs, n)
	}
	return cat, nil
}

// foldsAsPair knows the pairs of ASCII letters that are equal to a ligature or a
// sharp s without regard to case.
func foldsAsPair(a, b rune) bool {
	switch string([]rune{unicode.ToLower(a), unicode.ToLower(b)}) {
	case "ss", "st", "ff", "fi", "fl":
		return true
	}
	return false
}

// groups are what may follow an opening bracket, the longest first.
var groups = []struct {
	open string
	make func(*node) *node
	why  string
}{
	{open: "(?:", make: func(n *node) *node { return n }},
	{open: "(?i:", make: func(n *node) *node { return n }},
	{open: "(?=", make: func(n *node) *node { return &node{op: opAhead, subs: []*node{n}} }},
	{open: "(?!", make: func(n *node) *node { return &node{op: opAhead, subs: []*node{n}, negative: true} }},
	{open: "(?>", make: func(n *node) *node { return &node{op: opAtomic, subs: []*node{n}} }},
	{open: "(?<=", why: "lookbehind"},
	{open: "(?<!", why: "lookbehind"},
	{open: "(?", why: "this kind of group"},
	{open: "(", make: func(n *node) *node { return n }},
}

// atom gives the next character, class or group, and of a plain letter which.
func (p *parser) atom() (*node, rune, error) {
	for _, g := range groups {
		if !p.take(g.open) {
			continue
		}
		if g.why != "" {
			return nil, -1, fmt.Errorf("%s, %s, is not implemented", g.why, g.open)
		}
		outer := p.fold
		p.fold = outer || g.open == "(?i:"
		n, err := p.alternatives()
		p.fold = outer
		if err != nil {
			return nil, -1, err
		}
		if !p.take(")") {
			return nil, -1, errors.New("a bracket is not closed")
		}
		return g.make(n), -1, nil
	}
	r, err := p.rune()
	if err != nil {
		return nil, -1, err
	}
	switch r {
	case '.':
		return &node{op: opSet, set: one('\n').negate()}, -1, nil
	case '$':
		return &node{op: opEnd}, -1, nil
	case '^':
		return nil, -1, errors.New("the anchor ^ is not implemented")
	case '*', '+', '?':
		return nil, -1, fmt.Errorf("%c repeats nothing", r)
	case '[':
		s, err := p.class()
		return &node{op: opSet, set: s}, -1, err
	case '\\':
		s, _, err := p.escape()
		if err == nil {
			s, err = p.folded(s)
		}
		return &node{op: opSet, set: s}, -1, err
	case '{':
		return nil, -1, errors.New("a { that repeats nothing is not implemented")
	}
	s, err := p.folded(one(r))
	return &node{op: opSet, set: s}, r, err
}

// folded adds what (?i) does. The long s and the sign of Kelvin are what the
// reference takes for an s and a k.
func (p *parser) folded(s set) (set, error) {
	if !p.fold {
		return s, nil
	}
	if len(s) > 0 && s[len(s)-1].hi >= utf8.RuneSelf {
		return nil, errors.New("(?i) over characters beyond ASCII is not implemented")
	}
	out := s
	for c := 'a'; c <= 'z'; c++ {
		if lower, upper := s.has(c), s.has(unicode.ToUpper(c)); lower || upper {
			out = union(out, one(c), one(unicode.ToUpper(c)))
			switch c {
			case 's':
				out = union(out, one('ſ'))
			case 'k':
				out = union(out, one('\u212a'))
			}
		}
	}
	return out, nil
}

func (p *parser) repeat(n *node) (*node, error) {
	r := &node{op: opRepeat, subs: []*node{n}}
	braces := false
	switch {
	case p.take("?"):
		r.max = 1
	case p.take("*"):
		r.max = -1
	case p.take("+"):
		r.min, r.max = 1, -1
	case p.take("{"):
		braces = true
		bounds, rest, ok := strings.Cut(p.rest, "}")
		if !ok {
			return nil, errors.New("a { is not closed")
		}
		p.rest = rest
		low, high, ranged := strings.Cut(bounds, ",")
		var err error
		if r.min, err = bound(low, 0); err != nil {
			return nil, err
		}
		if r.max = r.min; ranged {
			if r.max, err = bound(high, -1); err != nil {
				return nil, err
			}
		}
		if r.max >= 0 && r.max < r.min || bounds == "," || bounds == "" {
			return nil, fmt.Errorf("{%s} is no count", bounds)
		}
	default:
		return n, nil
	}
	if n.op == opAhead || n.op == opEnd {
		return nil, errors.New("a repeated lookahead is not implemented")
	}
	switch {
	case p.take("?"):
		r.mode = lazy
	case p.take("+"):
		r.mode = possessive
	}
	if braces && r.mode != greedy {
		return nil, errors.New("? and + after {} are not implemented")
	}
	if p.rest != "" && strings.IndexByte("?*+{", p.rest[0]) >= 0 {
		return nil, errors.New("a repeated repetition is not implemented")
	}
	return r, nil
}

func bound(text string, missing int) (int, error) {
	if text == "" {
		return missing, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n > maxRepeat {
		return 0, fmt.Errorf("the count {%s} is not between 0 and %d", text, maxRepeat)
	}
	return int(n), nil
}

// class reads what follows a [, up to its end.
func (p *parser) class() (set, error) {
	if p.depth++; p.depth > maxGroups {
		return nil, fmt.Errorf("classes are nested deeper than %d", maxGroups)
	}
	defer func() { p.depth-- }()
	if strings.HasPrefix(p.rest, ":") {
		return nil, errors.New("a class such as [:alpha:] is not implemented")
	}
	negative := p.take("^")
	if strings.HasPrefix(p.rest, "]") {
		return nil, errors.New("an empty class is not implemented")
	}
	var all, part set
	intersected := false
	for {
		if p.take("&&") {
			if intersected {
				return nil, errors.New("two && in one class are not implemented")
			}
			all, part, intersected = part, nil, true
			continue
		}
		if p.take("]") {
			break
		}
		s, r, err := p.member()
		if err != nil {
			return nil, err
		}
		if r >= 0 && strings.HasPrefix(p.rest, "-") && !strings.HasPrefix(p.rest, "-]") {
			p.take("-")
			_, hi, err := p.member()
			if err != nil {
				return nil, err
			}
			if hi < r {
				return nil, errors.New("a class has a range that is none")
			}
			s = set{{r, hi}}
		}
		part = union(part, s)
	}
	if intersected {
		part = all.and(part)
	}
	part, err := p.folded(part)
	if negative {
		part = part.negate()
	}
	return part, err
}

// member gives one part of a class, and if it is one character, which.
func (p *parser) member() (set, rune, error) {
	r, err := p.rune()
	if err != nil {
		return nil, -1, err
	}
	switch r {
	case '[':
		s, err := p.class()
		return s, -1, err
	case '\\':
		return p.escape()
	}
	return one(r), r, nil
}

var (
	controls = map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v', 'a': '\a', 'e': '\x1b'}
	shorts   = map[rune]func() set{
		's': func() set { return tableSet(unicode.White_Space) },
		'd': func() set { s, _ := property("Nd"); return s },
	}
)

// escape reads what follows a backslash, as member does.
func (p *parser) escape() (set, rune, error) {
	r, err := p.rune()
	if err != nil {
		return nil, -1, err
	}
	if c, ok := controls[r]; ok {
		return one(c), c, nil
	}
	if f, ok := shorts[unicode.ToLower(r)]; ok {
		s := f()
		if unicode.IsUpper(r) {
			s = s.negate()
		}
		return s, -1, nil
	}
	switch {
	case r == 'p' || r == 'P':
		name, rest, ok := strings.Cut(p.rest, "}")
		if !ok || !strings.HasPrefix(name, "{") {
			return nil, -1, errors.New(`\p without braces is not implemented`)
		}
		p.rest = rest
		s, ok := property(name[1:])
		if !ok {
			return nil, -1, fmt.Errorf(`the property \p%s} is not implemented`, name)
		}
		if r == 'P' {
			s = s.negate()
		}
		return s, -1, nil
	case r == 'u':
		return p.hex(4)
	case r == 'x' && p.take("{"):
		digits := strings.IndexByte(p.rest, '}')
		s, c, err := p.hex(digits)
		p.take("}")
		return s, c, err
	case r == 'x':
		return p.hex(2)
	case r < utf8.RuneSelf && (unicode.IsPunct(r) || unicode.IsSymbol(r) || r == ' '):
		return one(r), r, nil
	}
	return nil, -1, fmt.Errorf(`\%c is not implemented`, r)
}

func (p *parser) hex(digits int) (set, rune, error) {
	if digits < 1 || digits > 6 || digits > len(p.rest) {
		return nil, -1, errors.New("an escaped number is broken")
	}
	n, err := strconv.ParseUint(p.rest[:digits], 16, 32)
	if err != nil || n > unicode.MaxRune || digits == 2 && n >= utf8.RuneSelf {
		return nil, -1, errors.New("an escaped number is no character")
	}
	p.rest = p.rest[digits:]
	return one(rune(n)), rune(n), nil
}
