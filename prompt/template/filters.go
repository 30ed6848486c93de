package template

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// filters are those of Jinja that chat templates use, and transformers' tojson.
// What is not here is refused when a template is compiled. It is filled by init
// since map looks up filters.
var filters map[string]native

func init() {
	length := fixed(func(_ *run, in []value) (value, error) {
		n, err := length(in[0])
		return int64(n), err
	}, "value")
	deflt := fixed(func(_ *run, in []value) (value, error) {
		_, missing := in[0].(undefined)
		if missing || truth(or(in[2], false)) && !truth(in[0]) {
			return or(in[1], lit("")), nil
		}
		return in[0], nil
	}, "value", "default_value?", "boolean?")
	filters = map[string]native{
		"abs":        fixed(abs, "value"),
		"capitalize": onText(capitalize),
		"count":      length,
		"d":          deflt,
		"default":    deflt,
		"dictsort":   fixed(dictSort, "value", "case_sensitive?", "by?", "reverse?"),
		"first":      fixed(first, "value"),
		"float":      fixed(toFloat, "value", "default?"),
		"format":     formatFilter,
		"indent":     fixed(indent, "value", "width?", "first?", "blank?"),
		"int":        fixed(toInt, "value", "default?", "base?"),
		"items":      fixed(itemsOf, "value"),
		"join":       fixed(join, "value", "d?", "attribute?"),
		"last":       fixed(last, "value"),
		"length":     length,
		"list":       fixed(toList, "value"),
		"lower":      onText(lower),
		"map":        mapped,
		"max":        fixed(extreme(1), "value", "case_sensitive?", "attribute?"),
		"min":        fixed(extreme(-1), "value", "case_sensitive?", "attribute?"),
		"reject":     selecting(false, false),
		"rejectattr": selecting(true, false),
		"replace":    fixed(replaceFilter, "value", "old", "new", "count?"),
		"reverse":    fixed(reverse, "value"),
		"round":      fixed(round, "value", "precision?", "method?"),
		"safe":       fixed(safe, "value"),
		"select":     selecting(false, true),
		"selectattr": selecting(true, true),
		"sort":       fixed(sortFilter, "value", "reverse?", "case_sensitive?", "attribute?"),
		"string":     fixed(func(r *run, in []value) (value, error) { return r.text(in[0]) }, "value"),
		"sum":        fixed(sum, "value", "attribute?", "start?"),
		"title":      onText(titleFilter),
		"tojson":     fixed(toJSON, "value", "ensure_ascii?", "indent?", "separators?", "sort_keys?"),
		"trim":       fixed(trim, "value", "chars?"),
		"unique":     fixed(unique, "value", "case_sensitive?", "attribute?"),
		"upper":      onText(upper),
	}
}

// safeFilters take a text that is marked safe as any other.
var safeFilters = []string{"count", "d", "default", "length", "safe", "string", "tojson"}

func safe(r *run, in []value) (value, error) {
	t, err := r.text(in[0])
	t.safe = true
	return t, err
}

// onText makes a filter of a function of texts.
func onText(do func(t str) (str, error)) native {
	return fixed(func(r *run, in []value) (value, error) {
		t, err := r.text(in[0])
		if err != nil {
			return nil, err
		}
		if err := r.charge(len(t.s)); err != nil {
			return nil, err
		}
		return do(t)
	}, "value")
}

func abs(_ *run, in []value) (value, error) {
	if f, ok := in[0].(float64); ok {
		return math.Abs(f), nil
	}
	if isInt(in[0]) && asInt(in[0]) < 0 {
		return sign("-", in[0])
	}
	return sign("+", in[0])
}

func toList(r *run, in []value) (value, error) {
	items, err := r.items(in[0])
	if err != nil {
		return nil, err
	}
	return r.list(listSeq, slices.Clone(items))
}

func itemsOf(r *run, in []value) (value, error) {
	return lazily(func() (iterator, error) {
		switch v := in[0].(type) {
		case undefined:
			return over(nil), nil
		case *dict:
			pairs, err := r.pairs(v)
			return over(pairs), err
		}
		return nil, typeError("Can only get item pairs from a mapping.")
	}), nil
}

func first(r *run, in []value) (value, error) {
	next, err := r.iterate(in[0])
	if err != nil {
		return nil, err
	}
	v, ok, err := next()
	if !ok && err == nil {
		return undefined{"there is no first item, the sequence was empty"}, nil
	}
	return v, err
}

// reversible gives the items of what Python can go through from its end.
func (r *run) reversible(v value) ([]value, bool, error) {
	switch v.(type) {
	case str, *seq, *dict, undefined:
		items, err := r.items(v)
		return items, true, err
	}
	return nil, false, nil
}

func last(r *run, in []value) (value, error) {
	items, ok, err := r.reversible(in[0])
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, typeError("a %s cannot be reversed", typeName(in[0]))
	case len(items) == 0:
		return undefined{"there is no last item, the sequence was empty"}, nil
	}
	return items[len(items)-1], nil
}

func reverse(r *run, in []value) (value, error) {
	if t, ok := in[0].(str); ok {
		back := int64(-1)
		return r.sliceText(t, [3]*int64{2: &back})
	}
	items, once, err := r.reversible(in[0])
	if err == nil && !once {
		items, err = r.items(in[0])
	}
	if err != nil {
		return nil, err
	}
	if err := r.charge(len(items) * valueSize); err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	if once {
		return over(items), nil
	}
	return &seq{items: items}, nil
}

func join(r *run, in []value) (value, error) {
	sep, err := r.text(or(in[1], lit("")))
	if err != nil {
		return nil, err
	}
	get, err := r.getter(in[2], false, nil)
	if err != nil {
		return nil, err
	}
	items, err := r.items(in[0])
	if err != nil {
		return nil, err
	}
	return r.collect(func(b *buffer) error {
		for i, v := range items {
			if i > 0 {
				if err := b.add(sep); err != nil {
					return err
				}
			}
			v, err := get(v)
			if err != nil {
				return err
			}
			if err := b.print(v); err != nil {
				return err
			}
		}
		return nil
	})
}

func replaceFilter(r *run, in []value) (value, error) {
	for i := range 3 {
		t, err := r.text(in[i])
		if err != nil {
			return nil, err
		}
		in[i] = t
	}
	if in[3] == nil {
		in[3] = absent{}
	}
	return replace(r, in)
}

func trim(r *run, in []value) (value, error) {
	t, err := r.text(in[0])
	if err != nil {
		return nil, err
	}
	return r.strip(t, in[1], true, true)
}

func indent(r *run, in []value) (value, error) {
	t, err := textArg(in[0])
	if err != nil {
		return nil, err
	}
	var pad str
	if p, ok := in[1].(str); ok {
		pad = p
	} else {
		n, err := intArg(in[1], 4)
		if err != nil {
			return nil, err
		}
		if n > maxText {
			return nil, errText
		}
		if err := r.charge(int(max(n, 0))); err != nil {
			return nil, err
		}
		pad = lit(strings.Repeat(" ", int(max(n, 0))))
	}
	blank := truth(or(in[3], false))
	if err := r.charge(len(t.s)); err != nil {
		return nil, err
	}
	all := lines(t.s, false)
	if last := strings.TrimSuffix(t.s, "\n"); t.s == "" || len(last) < len(t.s) {
		all = append(all, span{len(t.s), len(t.s)}) // Jinja adds a line end before it splits
	}
	return r.collect(func(b *buffer) error {
		for i, line := range all {
			if i > 0 {
				if err := b.lit("\n"); err != nil {
					return err
				}
			}
			if i == 0 && truth(or(in[2], false)) || i > 0 && (blank || line.start < line.end) {
				if err := b.add(pad); err != nil {
					return err
				}
			}
			if err := b.cut(t, line.start, line.end); err != nil {
				return err
			}
		}
		return nil
	})
}

// plain takes white space off a number's text. It refuses digits that Python
// reads and Go does not: those of other scripts, and with underscores between.
func plain(t str) (string, error) {
	s := strings.TrimFunc(t.s, isSpace)
	odd := strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII && unicode.IsDigit(r) })
	if bare := strings.ReplaceAll(s, "_", ""); odd || bare != s && number10(bare) {
		return "", unsupported("reading a number of other than plain digits")
	}
	return s, nil
}

// number10 reports whether s is a number that Python's float() reads.
func number10(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return (err == nil || errors.Is(err, strconv.ErrRange)) && !strings.ContainsAny(s, "xXpP_")
}

// pythonInt reads an integer as Python's int() does.
func pythonInt(t str, base int64) (value, bool, error) {
	if base != 10 {
		return nil, false, unsupported("reading an integer to another base than 10")
	}
	s, err := plain(t)
	unsigned := strings.TrimLeft(s, "+-")
	if err != nil || len(s)-len(unsigned) > 1 || unsigned == "" || digits(unsigned) < len(unsigned) {
		return nil, false, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, false, errBigInt
	}
	return n, true, nil
}

// pythonFloat reads a float as Python's float() does.
func pythonFloat(t str) (float64, bool, error) {
	s, err := plain(t)
	if err != nil || !number10(s) {
		return 0, false, err
	}
	f, _ := strconv.ParseFloat(s, 64) // out of range is inf, as in Python
	return f, true, nil
}

func toInt(r *run, in []value) (value, error) {
	instead := or(in[1], int64(0))
	base, err := intArg(in[2], 10)
	if err != nil {
		return nil, err
	}
	var f float64
	switch v := in[0].(type) {
	case undefined:
		return nil, undefinedError(v)
	case bool, int64:
		return asInt(v), nil
	case bigInt:
		return v, nil
	case float64:
		f = v
	case str:
		n, ok, err := pythonInt(v, base)
		if ok || err != nil {
			return n, err
		}
		if f, ok, err = pythonFloat(v); !ok || err != nil {
			return instead, err
		}
	default:
		return instead, nil
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return instead, nil
	}
	if math.Abs(f) >= 1<<63 {
		return nil, errBigInt
	}
	return int64(f), nil
}

func toFloat(_ *run, in []value) (value, error) {
	instead := or(in[1], 0.0)
	switch v := in[0].(type) {
	case undefined:
		return nil, undefinedError(v)
	case bigInt:
		return nil, errBigInt
	case str:
		f, ok, err := pythonFloat(v)
		if !ok || err != nil {
			return instead, err
		}
		return f, nil
	}
	if f, ok := asFloat(in[0]); ok {
		return f, nil
	}
	return instead, nil
}

func round(_ *run, in []value) (value, error) {
	digits, err := intArg(in[1], 0)
	if err != nil {
		return nil, err
	}
	if err := missing(in[0]); err != nil {
		return nil, err
	}
	f, ok := asFloat(in[0])
	switch {
	case !ok:
		return nil, typeError("a %s cannot be rounded", typeName(in[0]))
	case digits < 0 || digits > 22: // those powers of ten are exact
		return nil, unsupported("rounding to other than 0 to 22 digits")
	}
	method, ok := or(in[2], lit("common")).(str)
	switch scale := math.Pow10(int(digits)); {
	case ok && method.s == "ceil":
		return math.Ceil(f*scale) / scale, nil
	case ok && method.s == "floor":
		return math.Floor(f*scale) / scale, nil
	case !ok || method.s != "common":
		return nil, typeError("method must be common, ceil or floor")
	case isInt(in[0]):
		return asInt(in[0]), nil
	}
	// Formatting rounds as Python does: the exact value, halves to even.
	return strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(digits), 64), 64)
}
