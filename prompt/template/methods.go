package template

import (
	"errors"
	"strings"
	"unicode"
)

// methods are those of Python's types, by the type's name.
var methods map[string]map[string]native

func init() {
	sequence := map[string]native{
		"count": positional(countItems, "self", "value"),
		"index": positional(indexItem, "self", "value"),
	}
	methods = map[string]map[string]native{
		"str": {
			"strip":        positional(stripping(true, true), "self", "chars?"),
			"lstrip":       positional(stripping(true, false), "self", "chars?"),
			"rstrip":       positional(stripping(false, true), "self", "chars?"),
			"split":        fixed(split, "self", "sep?", "maxsplit?"),
			"rsplit":       fixed(rsplit, "self", "sep?", "maxsplit?"),
			"splitlines":   fixed(splitLines, "self", "keepends?"),
			"partition":    positional(partition(strings.Index, false), "self", "sep"),
			"rpartition":   positional(partition(strings.LastIndex, true), "self", "sep"),
			"startswith":   positional(affix(strings.HasPrefix), "self", "prefix"),
			"endswith":     positional(affix(strings.HasSuffix), "self", "suffix"),
			"removeprefix": positional(removing(true), "self", "prefix"),
			"removesuffix": positional(removing(false), "self", "suffix"),
			"replace":      positional(replace, "self", "old", "new", "count?"),
			"join":         positional(joinMethod, "self", "iterable"),
			"count":        positional(countText, "self", "sub"),
			"find":         positional(find(strings.Index), "self", "sub"),
			"rfind":        positional(find(strings.LastIndex), "self", "sub"),
			"index":        positional(indexText, "self", "sub"),
			"upper":        positional(cased(upper), "self"),
			"lower":        positional(cased(lower), "self"),
			"title":        positional(cased(title), "self"),
			"capitalize":   positional(cased(capitalize), "self"),
			"isdigit":      positional(all(isDigit), "self"),
			"isalpha":      positional(all(unicode.IsLetter), "self"),
			"isalnum":      positional(all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }), "self"),
			"isspace":      positional(all(isSpace), "self"),
			"isupper":      positional(isCase(unicode.IsUpper, unicode.IsLower), "self"),
			"islower":      positional(isCase(unicode.IsLower, unicode.IsUpper), "self"),
			"format":       formatMethod,
		},
		"dict": {
			"get":    positional(getItem, "self", "key", "default?"),
			"items":  positional(view("dict_items"), "self"),
			"keys":   positional(view("dict_keys"), "self"),
			"values": positional(view("dict_values"), "self"),
			"copy":   positional(func(_ *run, in []value) (value, error) { return in[0], nil }, "self"),
		},
		"list":  {"copy": positional(func(_ *run, in []value) (value, error) { return in[0], nil }, "self")},
		"tuple": {},
	}
	for name, m := range sequence {
		methods["list"][name], methods["tuple"][name] = m, m
	}
}

// changingMethods are what the immutable sandbox keeps templates from.
var changingMethods = map[string][]string{
	"list": {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"},
	"dict": {"clear", "pop", "popitem", "setdefault", "update"},
}

// refusedMethods are Python's attributes that are not implemented here: a
// template that uses one is refused rather than told that there is none.
var refusedMethods = map[string][]string{
	"str": {
		"casefold", "center", "encode", "expandtabs", "format_map", "isascii", "isdecimal",
		"isidentifier", "isnumeric", "isprintable", "istitle", "ljust", "maketrans", "rindex",
		"rjust", "swapcase", "translate", "zfill",
	},
	"dict": {"fromkeys"},
	"int": {
		"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes",
		"imag", "is_integer", "numerator", "real", "to_bytes",
	},
	"bool": {
		"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes",
		"imag", "is_integer", "numerator", "real", "to_bytes",
	},
	"float":       {"as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"},
	"range":       {"count", "index", "start", "step", "stop"},
	"dict_items":  {"isdisjoint", "mapping"},
	"dict_keys":   {"isdisjoint", "mapping"},
	"dict_values": {"mapping"},
	"generator":   {"close", "gi_code", "gi_frame", "gi_running", "gi_suspended", "gi_yieldfrom", "send", "throw"},
	"function":    {"arguments", "caller", "catch_kwargs", "catch_varargs", "explicit_caller", "name"},
}

func getItem(_ *run, in []value) (value, error) {
	v, ok, err := in[0].(*dict).get(in[1])
	if err != nil || ok {
		return v, err
	}
	return or(in[2], nil), nil
}

func view(name string) func(r *run, in []value) (value, error) {
	return func(r *run, in []value) (value, error) {
		d := in[0].(*dict)
		out := &seq{kind: viewSeq, view: name, items: d.keys}
		var err error
		switch name {
		case "dict_values":
			out.items = d.values
		case "dict_items":
			out.items, err = r.pairs(d)
		}
		return out, err
	}
}

func countItems(r *run, in []value) (value, error) {
	n := int64(0)
	for _, v := range in[0].(*seq).items {
		same, err := r.equal(v, in[1])
		if err != nil {
			return nil, err
		}
		if same {
			n++
		}
	}
	return n, nil
}

func indexItem(r *run, in []value) (value, error) {
	for i, v := range in[0].(*seq).items {
		if same, err := r.equal(v, in[1]); same || err != nil {
			return int64(i), err
		}
	}
	return nil, errors.New("the value is not in the list")
}
