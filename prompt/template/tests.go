package template

import (
	"errors"
	"strings"
	"unicode"
)

// tests are Jinja's, by all their names.
var tests map[string]native

func init() {
	kind := func(is func(v value) bool) native {
		return fixed(func(_ *run, in []value) (value, error) { return is(in[0]), nil }, "value")
	}
	compare := func(op string) native {
		return fixed(func(r *run, in []value) (value, error) { return r.compare(op, in[0], in[1]) }, "value", "other")
	}
	remainder := func(want int64) native {
		return fixed(func(r *run, in []value) (value, error) {
			m, err := r.calculate("%", in[0], int64(2))
			if err != nil {
				return nil, err
			}
			return r.equal(m, want)
		}, "value")
	}
	letters := func(is, other func(r rune) bool) native {
		return fixed(func(r *run, in []value) (value, error) {
			t, err := r.text(in[0])
			if err != nil {
				return nil, err
			}
			return isCase(is, other)(r, []value{t})
		}, "value")
	}
	tests = map[string]native{
		"boolean":   kind(func(v value) bool { _, ok := v.(bool); return ok }),
		"callable":  kind(callable),
		"defined":   kind(func(v value) bool { _, ok := v.(undefined); return !ok }),
		"undefined": kind(func(v value) bool { _, ok := v.(undefined); return ok }),
		"none":      kind(func(v value) bool { return v == nil }),
		"true":      kind(func(v value) bool { b, ok := v.(bool); return ok && b }),
		"false":     kind(func(v value) bool { b, ok := v.(bool); return ok && !b }),
		"float":     kind(func(v value) bool { _, ok := v.(float64); return ok }),
		"integer":   kind(func(v value) bool { _, ok := v.(bool); return !ok && typeName(v) == "int" }),
		"number":    kind(func(v value) bool { return strings.Contains("int float bool", typeName(v)) }),
		"string":    kind(func(v value) bool { _, ok := v.(str); return ok }),
		"mapping":   kind(func(v value) bool { _, ok := v.(*dict); return ok }),
		"sequence":  kind(sequence),
		"iterable":  kind(iterable),
		"odd":       remainder(1),
		"even":      remainder(0),
		"upper":     letters(unicode.IsUpper, unicode.IsLower),
		"lower":     letters(unicode.IsLower, unicode.IsUpper),
		"sameas":    fixed(sameAs, "value", "other"),
		"divisibleby": fixed(func(r *run, in []value) (value, error) {
			m, err := r.calculate("%", in[0], in[1])
			if err != nil {
				return nil, err
			}
			return r.equal(m, int64(0))
		}, "value", "num"),
		"in": fixed(func(r *run, in []value) (value, error) { return r.contains(in[1], in[0]) }, "value", "seq"),
	}
	for op, names := range map[string][]string{
		"==": {"eq", "equalto"}, "!=": {"ne"}, ">": {"gt", "greaterthan"}, ">=": {"ge"},
		"<": {"lt", "lessthan"}, "<=": {"le"},
	} {
		for _, name := range append(names, op) {
			tests[name] = compare(op)
		}
	}
}

// iterable holds for what Python iterates over, also where that is refused here.
func iterable(v value) bool {
	_, err := new(run).iterate(v)
	return err == nil || errors.Is(err, ErrUnsupported)
}

func callable(v value) bool {
	switch v.(type) {
	case *function, undefined, *loopVar:
		return true
	}
	return false
}

// sequence holds for what has a length and items; undefined has both in Jinja.
func sequence(v value) bool {
	switch v := v.(type) {
	case str, *dict, undefined:
		return true
	case *seq:
		return v.kind != viewSeq
	}
	return false
}

// sameAs compares what is one and the same in every Python.
func sameAs(_ *run, in []value) (value, error) {
	for _, v := range in {
		switch v.(type) {
		case nil, bool:
			other := in[0]
			if other == v {
				other = in[1]
			}
			_, none := other.(undefined)
			return !none && typeName(other) == typeName(v) && other == v, nil
		}
	}
	return nil, unsupported("the test sameas, save for none, true and false,")
}
