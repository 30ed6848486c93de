package template

import (
	"slices"
	"strconv"
	"strings"
)

// ignoreCase is what Jinja sorts and compares texts by.
func ignoreCase(v value) (value, error) {
	if t, ok := v.(str); ok {
		return lower(t)
	}
	return v, nil
}

// getter gives what a filter's attribute names of an item: "a.b" or an index.
func (r *run) getter(attribute value, fold bool, instead value) (func(v value) (value, error), error) {
	var parts []value
	switch a := or(attribute, nil).(type) {
	case nil:
	case str:
		for p := range strings.SplitSeq(a.s, ".") {
			if n, err := strconv.ParseInt(p, 10, 64); err == nil && digits(p) == len(p) {
				parts = append(parts, n)
				continue
			}
			parts = append(parts, lit(p))
		}
	default:
		parts = []value{a}
	}
	return func(v value) (value, error) {
		for _, p := range parts {
			var err error
			if v, err = r.item(v, p); err != nil {
				return nil, err
			}
			if _, none := v.(undefined); none && instead != nil {
				v = instead
			}
		}
		if fold {
			return ignoreCase(v)
		}
		return v, nil
	}, nil
}

// sort sorts indices by what by gives for them, and keeps the order of equals.
func (r *run) sort(order []int, by func(i int) value, backwards bool) error {
	var failed error
	slices.SortStableFunc(order, func(i, j int) int {
		if failed != nil {
			return 0
		}
		c, err := r.order("<", by(i), by(j))
		failed = err
		if backwards {
			return -c
		}
		return c
	})
	return failed
}

// sorted gives items in the order of their keys.
func (r *run) sorted(items, keys []value, backwards bool) (value, error) {
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	if err := r.sort(order, func(i int) value { return keys[i] }, backwards); err != nil {
		return nil, err
	}
	out := make([]value, len(items))
	for i, at := range order {
		out[i] = items[at]
	}
	return r.list(listSeq, out)
}

// keysOf gives what every item is sorted by.
func (r *run) keysOf(items []value, get func(v value) (value, error)) ([]value, error) {
	if err := r.charge(2 * len(items) * valueSize); err != nil {
		return nil, err
	}
	keys := make([]value, len(items))
	for i, v := range items {
		var err error
		if keys[i], err = get(v); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func sortFilter(r *run, in []value) (value, error) {
	if a, ok := in[3].(str); ok && strings.Contains(a.s, ",") {
		return nil, unsupported("sorting by more than one attribute")
	}
	get, err := r.getter(in[3], !truth(or(in[2], false)), nil)
	if err != nil {
		return nil, err
	}
	items, err := r.items(in[0])
	if err != nil {
		return nil, err
	}
	// Jinja sorts by lists of keys, which are compared by == first: so it sorts
	// even what has no order, as long as all of it is equal.
	keys, err := r.keysOf(items, func(v value) (value, error) {
		k, err := get(v)
		return &seq{items: []value{k}}, err
	})
	if err != nil {
		return nil, err
	}
	return r.sorted(items, keys, truth(or(in[1], false)))
}

func dictSort(r *run, in []value) (value, error) {
	d, ok := in[0].(*dict)
	if !ok {
		return nil, typeError("a %s has no items", typeName(in[0]))
	}
	by := d.keys
	switch t, _ := or(in[2], lit("key")).(str); t.s {
	case "key":
	case "value":
		by = d.values
	default:
		return nil, typeError("you can only sort by either key or value")
	}
	keys, err := r.keysOf(by, func(v value) (value, error) {
		if truth(or(in[1], false)) {
			return v, nil
		}
		return ignoreCase(v)
	})
	if err != nil {
		return nil, err
	}
	pairs, err := r.pairs(d)
	if err != nil {
		return nil, err
	}
	return r.sorted(pairs, keys, truth(or(in[3], false)))
}

// pairs gives a dict's items as tuples.
func (r *run) pairs(d *dict) ([]value, error) {
	if err := r.charge(len(d.keys) * 4 * valueSize); err != nil {
		return nil, err
	}
	out := make([]value, len(d.keys))
	for i := range out {
		out[i] = &seq{kind: tupleSeq, items: []value{d.keys[i], d.values[i]}}
	}
	return out, nil
}

func extreme(want int) func(r *run, in []value) (value, error) {
	return func(r *run, in []value) (value, error) {
		get, err := r.getter(in[2], !truth(or(in[1], false)), nil)
		if err != nil {
			return nil, err
		}
		items, err := r.items(in[0])
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return undefined{"there is no item, the sequence was empty"}, nil
		}
		keys, err := r.keysOf(items, get)
		if err != nil {
			return nil, err
		}
		best := 0
		for i := 1; i < len(keys); i++ {
			c, err := r.order("<", keys[i], keys[best])
			if err != nil {
				return nil, err
			}
			if c == want {
				best = i
			}
		}
		return items[best], nil
	}
}

func sum(r *run, in []value) (value, error) {
	get, err := r.getter(in[1], false, nil)
	if err != nil {
		return nil, err
	}
	items, err := r.items(in[0])
	if err != nil {
		return nil, err
	}
	total := or(in[2], int64(0))
	if _, ok := total.(str); ok {
		return nil, typeError("texts cannot be summed")
	}
	for _, v := range items {
		if v, err = get(v); err != nil {
			return nil, err
		}
		if total, err = r.calculate("+", total, v); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func unique(r *run, in []value) (value, error) {
	get, err := r.getter(in[2], !truth(or(in[1], false)), nil)
	if err != nil {
		return nil, err
	}
	seen := map[any]bool{}
	return r.each(in[0], func(v value) (value, bool, error) {
		k, err := get(v)
		if err != nil {
			return nil, false, err
		}
		h, err := key(k)
		if err != nil || seen[h] {
			return nil, false, err
		}
		seen[h] = true
		return v, true, r.charge(4 * valueSize)
	}), nil
}

// each gives what do gives for the items of v, where that is to be had.
func (r *run) each(v value, do func(v value) (value, bool, error)) iterator {
	return lazily(func() (iterator, error) {
		next, err := r.iterate(v)
		return func() (value, bool, error) {
			if err := r.enter(); err != nil { // an each of an each of an each …
				return nil, false, err
			}
			defer r.leave()
			for {
				v, ok, err := next()
				if !ok || err != nil {
					return nil, false, err
				}
				if v, ok, err = do(v); ok || err != nil {
					return v, err == nil, err
				}
			}
		}, err
	})
}

// nothing is what map, select and reject give for what is false.
var nothing = &seq{}

// mapped is Jinja's map: an attribute of each item, or each filtered.
func mapped(r *run, args []value, kw []kwArg) (value, error) {
	if len(args) == 0 {
		return nil, typeError("it needs a value")
	}
	in, args := args[0], args[1:]
	if !truth(in) {
		return r.each(nothing, nil), nil
	}
	if len(args) > 0 {
		name, err := textArg(args[0])
		if err != nil {
			return nil, err
		}
		filter, ok := filters[name.s]
		if !ok {
			return nil, unsupported("the filter " + name.s)
		}
		return r.each(in, func(v value) (value, bool, error) {
			v, err := filter(r, append([]value{v}, args[1:]...), kw)
			return v, true, err
		}), nil
	}
	opts, err := bindNative([]string{"attribute", "default?"}, nil, kw)
	if err != nil {
		return nil, err
	}
	get, err := r.getter(opts[0], false, or(opts[1], nil))
	return r.each(in, func(v value) (value, bool, error) {
		v, err := get(v)
		return v, true, err
	}), err
}

// selecting makes select, reject and their forms with an attribute.
func selecting(attr, want bool) native {
	return func(r *run, args []value, kw []kwArg) (value, error) {
		if len(args) == 0 {
			return nil, typeError("it needs a value")
		}
		in, args := args[0], args[1:]
		if !truth(in) {
			return r.each(nothing, nil), nil
		}
		var of value = absent{}
		if attr {
			if len(args) == 0 {
				return nil, typeError("it needs an attribute's name")
			}
			of, args = args[0], args[1:]
		}
		get, err := r.getter(of, false, nil)
		if err != nil {
			return nil, err
		}
		var test native
		if len(args) > 0 {
			name, err := textArg(args[0])
			if err != nil {
				return nil, err
			}
			var ok bool
			if test, ok = tests[name.s]; !ok {
				return nil, unsupported("the test " + name.s)
			}
			args = args[1:]
		}
		return r.each(in, func(v value) (value, bool, error) {
			is, err := get(v)
			if err == nil && test != nil {
				is, err = test(r, append([]value{is}, args...), kw)
			}
			return v, truth(is) == want, err
		}), nil
	}
}
