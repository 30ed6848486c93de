package tokenizer

import (
	"slices"
	"unicode"
)

// set is code points as ascending ranges that do not touch.
type set []span32

type span32 struct{ lo, hi rune }

func one(r rune) set { return set{{r, r}} }

var everything = set{{0, unicode.MaxRune}}

// union also brings ranges of any order into form.
func union(parts ...set) set {
	all := slices.Concat(parts...)
	slices.SortFunc(all, func(a, b span32) int { return int(a.lo - b.lo) })
	out := all[:0]
	for _, s := range all {
		if n := len(out); n > 0 && s.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, s.hi)
		} else {
			out = append(out, s)
		}
	}
	return out
}

func (s set) negate() set {
	var out set
	from := rune(0)
	for _, r := range s {
		if from < r.lo {
			out = append(out, span32{from, r.lo - 1})
		}
		from = r.hi + 1
	}
	if from <= unicode.MaxRune {
		out = append(out, span32{from, unicode.MaxRune})
	}
	return out
}

func (s set) minus(t set) set { return union(s.negate(), t).negate() }
func (s set) and(t set) set   { return union(s.negate(), t.negate()).negate() }

func (s set) has(r rune) bool {
	_, found := slices.BinarySearchFunc(s, r, func(x span32, r rune) int {
		switch {
		case x.hi < r:
			return -1
		case x.lo > r:
			return 1
		}
		return 0
	})
	return found
}

// added is what Unicode 16.0, which the reference's regular expressions know, has
// more than Go's tables, which are 15.0: by general category and by script. It was
// told by asking the reference about every code point.
var added = map[string]set{
	"Lu": {{0x1c89, 0x1c89}, {0xa7cb, 0xa7cc}, {0xa7da, 0xa7da}, {0xa7dc, 0xa7dc}, {0x10d50, 0x10d65}},
	"Ll": {{0x1c8a, 0x1c8a}, {0xa7cd, 0xa7cd}, {0xa7db, 0xa7db}, {0x10d70, 0x10d85}},
	"Lm": {{0x10d4e, 0x10d4e}, {0x10d6f, 0x10d6f}, {0x16d40, 0x16d42}, {0x16d6b, 0x16d6c}},
	"Lo": {
		{0x105c0, 0x105f3},
		{0x10d4a, 0x10d4d},
		{0x10d4f, 0x10d4f},
		{0x10ec2, 0x10ec4},
		{0x11380, 0x11389},
		{0x1138b, 0x1138b},
		{0x1138e, 0x1138e},
		{0x11390, 0x113b5},
		{0x113b7, 0x113b7},
		{0x113d1, 0x113d1},
		{0x113d3, 0x113d3},
		{0x11bc0, 0x11be0},
		{0x13460, 0x143fa},
		{0x16100, 0x1611d},
		{0x16d43, 0x16d6a},
		{0x18cff, 0x18cff},
		{0x1e5d0, 0x1e5ed},
		{0x1e5f0, 0x1e5f0},
		{0x2ebf0, 0x2ee5d},
	},
	"Mc": {
		{0x113b8, 0x113ba},
		{0x113c2, 0x113c2},
		{0x113c5, 0x113c5},
		{0x113c7, 0x113ca},
		{0x113cc, 0x113cd},
		{0x113cf, 0x113cf},
		{0x1171e, 0x1171e},
		{0x1612a, 0x1612c},
	},
	"Mn": {
		{0x897, 0x897},
		{0x10d69, 0x10d6d},
		{0x10efc, 0x10efc},
		{0x113bb, 0x113c0},
		{0x113ce, 0x113ce},
		{0x113d0, 0x113d0},
		{0x113d2, 0x113d2},
		{0x113e1, 0x113e2},
		{0x11f5a, 0x11f5a},
		{0x1611e, 0x16129},
		{0x1612d, 0x1612f},
		{0x1e5ee, 0x1e5ef},
	},
	"Nd": {
		{0x10d40, 0x10d49},
		{0x116d0, 0x116e3},
		{0x11bf0, 0x11bf9},
		{0x16130, 0x16139},
		{0x16d70, 0x16d79},
		{0x1ccf0, 0x1ccf9},
		{0x1e5f1, 0x1e5fa},
	},
	"Pd": {{0x10d6e, 0x10d6e}},
	"Po": {
		{0x1b4e, 0x1b4f},
		{0x1b7f, 0x1b7f},
		{0x113d4, 0x113d5},
		{0x113d7, 0x113d8},
		{0x11be1, 0x11be1},
		{0x16d6d, 0x16d6f},
		{0x1e5ff, 0x1e5ff},
	},
	"Sm": {{0x10d8e, 0x10d8f}},
	"So": {
		{0x2427, 0x2429},
		{0x2ffc, 0x2fff},
		{0x31e4, 0x31e5},
		{0x31ef, 0x31ef},
		{0x1cc00, 0x1ccef},
		{0x1cd00, 0x1ceb3},
		{0x1f8b2, 0x1f8bb},
		{0x1f8c0, 0x1f8c1},
		{0x1fa89, 0x1fa89},
		{0x1fa8f, 0x1fa8f},
		{0x1fabe, 0x1fabe},
		{0x1fac6, 0x1fac6},
		{0x1fadc, 0x1fadc},
		{0x1fadf, 0x1fadf},
		{0x1fae9, 0x1fae9},
		{0x1fbcb, 0x1fbef},
	},
	"Han": {{0x2ebf0, 0x2ee5d}},
}

// moved is what left its category after Go's tables.
var moved = map[string]set{"Mn": one(0x1171e)}

// numeric17 is what the reference's Digits, which goes by the tables of its
// compiler, knows more: numbers of Unicode 17.
var numeric17 = set{{0x11de0, 0x11de9}, {0x16ff4, 0x16ff6}}

// The categories and scripts that were compared with the reference.
var (
	categories = []string{
		"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No",
		"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp",
	}
	scripts = []string{"Han", "Hiragana", "Katakana", "Hangul", "Greek", "Thai"}
)

// property gives the code points of \p{name}.
func property(name string) (set, bool) {
	if slices.Contains(scripts, name) {
		return union(tableSet(unicode.Scripts[name]), added[name]), true
	}
	var out set
	for _, c := range categories {
		if c == name || name == c[:1] {
			out = union(out, tableSet(unicode.Categories[c]).minus(moved[c]), added[c])
		}
	}
	return out, out != nil
}

func tableSet(t *unicode.RangeTable) set {
	var out set
	add := func(lo, hi, stride rune) {
		for ; stride > 1 && lo < hi; lo += stride {
			out = append(out, span32{lo, lo})
		}
		out = append(out, span32{lo, hi})
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return union(out)
}
