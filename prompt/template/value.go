package template

import (
	"math"
	"strconv"
	"strings"
)

// value is a value of Python's: nil (None), bool, int64, bigInt, float64, str,
// *seq, *dict, undefined, *namespace, iterator, *loopVar or *function. None of
// them changes once made, save namespaces, iterators and loops: chat templates
// run in the immutable sandbox.
type value any

// bigInt is an integer beyond 64 bits, which is printed but not calculated with.
type bigInt string

// undefined is what a missing name or attribute gives; it says what was missing.
type undefined struct{ what string }

// absent is an optional argument that was not given.
type absent struct{}

// seqKind tells the types of Python that are sequences here.
type seqKind uint8

const (
	listSeq seqKind = iota
	tupleSeq
	rangeSeq
	viewSeq // of a dict: its items, keys or values
)

type seq struct {
	kind  seqKind
	items []value
	// view is how a viewSeq prints, or a rangeSeq: "dict_items", "range(0, 3)".
	view string
	// node is where in the input it comes from, nil for none.
	node *node
}

// dict keeps its keys in the order of insertion.
type dict struct {
	keys, values []value
	at           map[any]int
	node         *node
}

// noneKey stands for None as a key.
type noneKey struct{}

// key gives what two equal values have in common, as keys of dicts and sets.
func key(v value) (any, error) {
	switch v := v.(type) {
	case nil:
		return noneKey{}, nil
	case str:
		return v.s, nil
	case bool:
		return asInt(v), nil
	case int64, bigInt:
		return v, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v), nil
		}
		return v, nil
	case *seq:
		if v.kind == listSeq {
			return nil, typeError("unhashable type: 'list'")
		}
	case *dict:
		return nil, typeError("unhashable type: 'dict'")
	}
	return nil, unsupported("a key of type " + typeName(v))
}

func newDict(n int) *dict { return &dict{at: make(map[any]int, n)} }

func (d *dict) set(k, v value) error {
	h, err := key(k)
	if err != nil {
		return err
	}
	if i, ok := d.at[h]; ok {
		d.values[i] = v
		return nil
	}
	d.at[h] = len(d.keys)
	d.keys, d.values = append(d.keys, k), append(d.values, v)
	return nil
}

func (d *dict) get(k value) (value, bool, error) {
	h, err := key(k)
	if err != nil {
		return nil, false, err
	}
	i, ok := d.at[h]
	if !ok {
		return nil, false, nil
	}
	return d.values[i], true, nil
}

// name gives the value of a text key.
func (d *dict) name(s string) (value, bool) {
	i, ok := d.at[s]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// namespace is the only value whose attributes a template may set.
type namespace struct{ vars *dict }

// function is something that can be called: a macro, a method, a global.
type function struct {
	name string
	call native
	// macro is set for what a template defines; its errors have lines.
	macro bool
}

type kwArg struct {
	name string
	v    value
}

// typeName gives Python's name of a value's type.
func typeName(v value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, bigInt:
		return "int"
	case float64:
		return "float"
	case str:
		return "str"
	case *dict:
		return "dict"
	case undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *loopVar:
		return "LoopContext"
	case *function:
		return "function"
	case *seq:
		switch v.kind {
		case listSeq:
			return "list"
		case tupleSeq:
			return "tuple"
		case rangeSeq:
			return "range"
		}
		return v.view
	}
	return "generator"
}

// truth is Python's bool().
func truth(v value) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case str:
		return v.s != ""
	case *seq:
		return len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	}
	return true
}

// asInt gives a bool or an int as an int.
func asInt(v value) int64 {
	switch v := v.(type) {
	case bool:
		if v {
			return 1
		}
	case int64:
		return v
	}
	return 0
}

// isInt reports whether a value counts as an int that can be calculated with.
func isInt(v value) bool {
	switch v.(type) {
	case bool, int64:
		return true
	}
	return false
}

// asFloat gives any number as a float.
func asFloat(v value) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	return float64(asInt(v)), isInt(v)
}

// floatText is Python's repr of a float.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	exp := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, e, _ := strings.Cut(exp, "e")
	if n, _ := strconv.Atoi(e); n < -4 || n >= 16 {
		return mantissa + "e" + e // both write two digits at least
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
