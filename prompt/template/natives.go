package template

import (
	"errors"
	"fmt"
	"strings"
)

// native is a function of ours that templates call: a filter or a method, whose
// first argument is what it works on, a test, or a global.
type native func(r *run, args []value, kw []kwArg) (value, error)

// fixed makes a native of a function with the named parameters; those that end
// with "?" may be left out and are absent{} then.
func fixed(do func(r *run, in []value) (value, error), params ...string) native {
	return func(r *run, args []value, kw []kwArg) (value, error) {
		in, err := bindNative(params, args, kw)
		if err != nil {
			return nil, err
		}
		return do(r, in)
	}
}

// positional is fixed without names, as most methods of Python's are.
func positional(do func(r *run, in []value) (value, error), params ...string) native {
	n := fixed(do, params...)
	return func(r *run, args []value, kw []kwArg) (value, error) {
		if len(kw) > 0 {
			return nil, typeError("it takes no argument by name")
		}
		return n(r, args, nil)
	}
}

func bindNative(params []string, args []value, kw []kwArg) ([]value, error) {
	if len(args) > len(params) {
		return nil, typeError("it takes not more than %d arguments", len(params)-1)
	}
	in := make([]value, len(params))
	copy(in, args)
	for i := len(args); i < len(in); i++ {
		in[i] = absent{}
	}
	for _, k := range kw {
		at := -1
		for i, p := range params {
			if strings.TrimSuffix(p, "?") == k.name {
				at = i
			}
		}
		if at < len(args) {
			return nil, typeError("it takes no argument %q here", k.name)
		}
		in[at] = k.v
	}
	for i, p := range params {
		if _, ok := in[i].(absent); ok && !strings.HasSuffix(p, "?") {
			return nil, typeError("its argument %q is missing", p)
		}
	}
	return in, nil
}

// or gives an argument, or what stands for it where it is absent.
func or(v, instead value) value {
	if _, ok := v.(absent); ok {
		return instead
	}
	return v
}

// intArg gives an argument that must be an integer, or a number where absent.
func intArg(v value, instead int64) (int64, error) {
	v = or(v, instead)
	if !isInt(v) {
		return 0, typeError("a %s is no integer", typeName(v))
	}
	return asInt(v), nil
}

func textArg(v value) (str, error) {
	t, ok := v.(str)
	if !ok {
		return t, typeError("a %s is no str", typeName(v))
	}
	return t, nil
}

// globals are the functions that every template has. It is filled by init since
// the functions call templates' macros, which look up globals.
var globals map[string]native

func init() {
	globals = map[string]native{
		"range":           positional(rangeOf, "start", "stop?", "step?"),
		"namespace":       newNamespace,
		"dict":            dictOf,
		"raise_exception": fixed(raise, "message"),
		"strftime_now":    fixed(now, "format"),
	}
}

func raise(r *run, in []value) (value, error) {
	t, err := r.text(in[0])
	if err != nil {
		return nil, err
	}
	return nil, errors.New(t.s)
}

func now(r *run, in []value) (value, error) {
	format, err := textArg(in[0])
	if err != nil {
		return nil, err
	}
	s, err := strftime(r.now, format.s)
	return lit(s), err
}

func rangeOf(r *run, in []value) (value, error) {
	if _, ok := in[1].(absent); ok {
		in[0], in[1] = int64(0), in[0]
	}
	var n [3]int64
	for i := range n {
		var err error
		if n[i], err = intArg(in[i], 1); err != nil {
			return nil, errors.Join(missing(in[i]), err)
		}
	}
	start, stop, step := n[0], n[1], n[2]
	if step == 0 {
		return nil, errors.New("the step cannot be zero")
	}
	var items []value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; {
		if len(items) >= maxRange {
			return nil, errRange
		}
		items = append(items, i)
		next := i + step
		if (next > i) != (step > 0) {
			break
		}
		i = next
	}
	view := fmt.Sprintf("range(%d, %d)", start, stop)
	if step != 1 {
		view = fmt.Sprintf("range(%d, %d, %d)", start, stop, step)
	}
	return &seq{kind: rangeSeq, items: items, view: view}, r.charge(len(items) * valueSize)
}

func newNamespace(r *run, args []value, kw []kwArg) (value, error) {
	d, err := dictOf(r, args, kw)
	if err != nil {
		return nil, err
	}
	return &namespace{d.(*dict)}, nil
}

// dictOf is Python's dict(…).
func dictOf(r *run, args []value, kw []kwArg) (value, error) {
	if len(args) > 1 {
		return nil, typeError("it takes one argument at most")
	}
	out := newDict(len(kw))
	if len(args) == 1 {
		if err := r.update(out, args[0]); err != nil {
			return nil, err
		}
	}
	for _, k := range kw {
		if err := out.set(lit(k.name), k.v); err != nil {
			return nil, err
		}
	}
	return out, r.charge(len(out.keys) * 4 * valueSize)
}

// update adds the items of a dict, or pairs.
func (r *run) update(to *dict, v value) error {
	if d, ok := v.(*dict); ok {
		for i, k := range d.keys {
			if err := to.set(k, d.values[i]); err != nil {
				return err
			}
		}
		return nil
	}
	pairs, err := r.items(v)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		kv, err := r.items(p)
		if err != nil {
			return err
		}
		if len(kv) != 2 {
			return typeError("a pair has two items")
		}
		if err := to.set(kv[0], kv[1]); err != nil {
			return err
		}
	}
	return nil
}
