package template

import (
	"errors"
	"slices"
	"strings"
)

// attr is v.name: a method or attribute first, then an item.
func (r *run) attr(v value, name string) (value, error) {
	if err := missing(v); err != nil {
		return nil, err
	}
	if a, ok, err := r.own(v, name); ok || err != nil {
		return a, err
	}
	if d, ok := v.(*dict); ok {
		if item, ok := d.name(name); ok {
			return item, nil
		}
	}
	return noSuch(v, name), nil
}

func noSuch(v value, name string) undefined {
	return undefined{typeName(v) + " has no attribute or item \"" + name + "\""}
}

// own gives what Python knows as an attribute of v, methods included.
func (r *run) own(v value, name string) (value, bool, error) {
	if strings.HasPrefix(name, "__") {
		return nil, false, unsupported("the attribute " + name)
	}
	switch x := v.(type) {
	case *namespace:
		a, ok := x.vars.name(name)
		return a, ok, nil
	case *loopVar:
		a, err := x.attr(name)
		_, none := a.(undefined)
		return a, !none || name == "nextitem" || name == "previtem", err
	}
	if t, ok := v.(str); ok && t.safe {
		return nil, false, errSafe
	}
	kind := typeName(v)
	if m, ok := methods[kind][name]; ok {
		return &function{name: name, call: func(r *run, args []value, kw []kwArg) (value, error) {
			return m(r, append([]value{v}, args...), kw)
		}}, true, nil
	}
	if slices.Contains(refusedMethods[kind], name) {
		return nil, false, unsupported("the attribute " + name + " of " + kind)
	}
	if slices.Contains(changingMethods[kind], name) {
		return undefined{"templates must not call " + kind + "." + name + ", which would change a value"}, true, nil
	}
	return nil, false, nil
}

// evalItem is of[key], slices included.
func (r *run) evalItem(f *frame, e itemRef) (value, error) {
	of, err := r.eval(f, e.of)
	if err != nil {
		return nil, err
	}
	if s, ok := e.key.(slicing); ok {
		return r.evalSlice(f, of, s)
	}
	k, err := r.eval(f, e.key)
	if err != nil {
		return nil, err
	}
	return r.item(of, k)
}

// item is of[k]: an item first, then an attribute.
func (r *run) item(of, k value) (value, error) {
	if err := missing(of); err != nil {
		return nil, err
	}
	switch x := of.(type) {
	case *dict:
		if _, tuple := k.(*seq); tuple {
			break
		}
		if v, ok, err := x.get(k); ok && err == nil {
			return v, nil
		}
	case *seq:
		if x.kind != viewSeq && isInt(k) {
			i := asInt(k)
			if i < 0 {
				i += int64(len(x.items))
			}
			if i >= 0 && i < int64(len(x.items)) {
				return x.items[i], nil
			}
		}
	case str:
		if isInt(k) && x.safe {
			return nil, errSafe
		}
		if isInt(k) {
			return r.char(x, asInt(k))
		}
	}
	name, ok := k.(str)
	if !ok {
		return undefined{"a " + typeName(of) + " has no such item"}, nil
	}
	a, ok, err := r.own(of, name.s)
	if !ok && err == nil {
		return noSuch(of, name.s), nil
	}
	return a, err
}

// char is a text's i-th character.
func (r *run) char(t str, i int64) (value, error) {
	at, err := r.runes(t.s)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		i += int64(len(at) - 1)
	}
	if i < 0 || i >= int64(len(at)-1) {
		return undefined{"str has no such item"}, nil
	}
	return r.cut(t, at[i], at[i+1])
}

// runes gives where the characters of a text start, and its end.
func (r *run) runes(s string) ([]int, error) {
	if err := r.charge(8 * len(s)); err != nil {
		return nil, err
	}
	at := make([]int, 0, len(s)+1)
	for i := range s {
		at = append(at, i)
	}
	return append(at, len(s)), nil
}

// cut cuts a text by bytes.
func (r *run) cut(t str, start, end int) (str, error) {
	return t.slice(start, end), r.charge(len(t.from) * originSize)
}

func (r *run) evalSlice(f *frame, of value, s slicing) (value, error) {
	var at [3]*int64
	for i, e := range []expr{s.from, s.to, s.step} {
		if e == nil {
			continue
		}
		v, err := r.eval(f, e)
		switch {
		case err != nil:
			return nil, err
		case v == nil:
			continue
		case !isInt(v):
			return nil, errors.Join(missing(v), typeError("slice indices must be integers"))
		}
		n := asInt(v)
		at[i] = &n
	}
	if err := missing(of); err != nil {
		return nil, err
	}
	switch x := of.(type) {
	case str:
		if x.safe {
			return nil, errSafe
		}
		return r.sliceText(x, at)
	case *seq:
		if x.kind > tupleSeq {
			break
		}
		start, stop, step, err := bounds(at, len(x.items))
		if err != nil {
			return nil, err
		}
		var out []value
		for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
			out = append(out, x.items[i])
		}
		return r.list(x.kind, out)
	}
	return nil, unsupported("a slice of a " + typeName(of))
}

func (r *run) sliceText(t str, at [3]*int64) (value, error) {
	runes, err := r.runes(t.s)
	if err != nil {
		return nil, err
	}
	start, stop, step, err := bounds(at, len(runes)-1)
	if err != nil {
		return nil, err
	}
	if step == 1 {
		return r.cut(t, runes[start], runes[max(start, stop)])
	}
	return r.collect(func(b *buffer) error {
		for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
			if err := b.lit(t.s[runes[i]:runes[i+1]]); err != nil {
				return err
			}
		}
		return nil
	})
}

// bounds resolves a slice of n items as Python does. The step is at most n, so that
// counting on never overflows.
func bounds(at [3]*int64, n int) (start, stop, step int, err error) {
	step = 1
	if at[2] != nil {
		step = int(max(min(*at[2], int64(n)+1), -int64(n)-1))
	}
	low, high := 0, n
	start, stop = 0, n
	switch {
	case step == 0:
		return 0, 0, 0, errors.New("a slice's step cannot be zero")
	case step < 0:
		low, high = -1, n-1
		start, stop = n-1, -1
	}
	resolve := func(p *int64, to *int) {
		if p == nil {
			return
		}
		i := *p
		if i < 0 {
			i += int64(n)
		}
		*to = int(max(min(i, int64(high)), int64(low)))
	}
	resolve(at[0], &start)
	resolve(at[1], &stop)
	return start, stop, step, nil
}
