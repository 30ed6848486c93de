package template

import (
	"slices"
	"unicode/utf8"
)

// iterator gives values one by one, once, as Python's do.
type iterator func() (v value, ok bool, err error)

// over iterates over items.
func over(items []value) iterator {
	return func() (value, bool, error) {
		if len(items) == 0 {
			return nil, false, nil
		}
		v := items[0]
		items = items[1:]
		return v, true, nil
	}
}

// lazily is an iterator that starts when it is first asked, as Python's generators:
// what is wrong with it shows only then.
func lazily(start func() (iterator, error)) iterator {
	var next iterator
	return func() (value, bool, error) {
		if next == nil {
			var err error
			if next, err = start(); err != nil {
				return nil, false, err
			}
		}
		return next()
	}
}

// iterate is Python's iter().
func (r *run) iterate(v value) (iterator, error) {
	switch v := v.(type) {
	case *seq:
		return over(v.items), nil
	case *dict:
		return over(v.keys), nil
	case iterator:
		return v, nil
	case undefined:
		return over(nil), nil
	case *loopVar:
		return nil, unsupported("iterating over loop")
	case str:
		if v.safe {
			return nil, errSafe
		}
		at := 0
		return func() (value, bool, error) {
			if at >= len(v.s) {
				return nil, false, nil
			}
			_, n := utf8.DecodeRuneInString(v.s[at:])
			at += n
			return v.slice(at-n, at), true, nil
		}, nil
	}
	return nil, typeError("a %s cannot be iterated over", typeName(v))
}

// items collects all that a value iterates over. The caller must not change them.
func (r *run) items(v value) ([]value, error) {
	switch v := v.(type) {
	case *seq:
		return v.items, nil
	case *dict:
		return v.keys, nil
	}
	next, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	var out []value
	for {
		v, ok, err := next()
		if err != nil || !ok {
			return out, err
		}
		if err := r.charge(valueSize); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
}

// length is Python's len().
func length(v value) (int, error) {
	switch v := v.(type) {
	case str:
		return utf8.RuneCountInString(v.s), nil
	case *seq:
		return len(v.items), nil
	case *dict:
		return len(v.keys), nil
	case undefined:
		return 0, nil
	}
	return 0, typeError("a %s has no length", typeName(v))
}

// loopVar is the variable loop within a loop.
type loopVar struct {
	r     *run
	over  iterator
	ahead []value // what was read but not given out
	given int     // how many were given out
	prev  value   // before cur
	cur   value
	last  value // what changed() saw last
	seen  bool
}

func (l *loopVar) next() (value, bool, error) {
	if !l.peek() {
		v, ok, err := l.over()
		if !ok || err != nil {
			return nil, false, err
		}
		l.ahead = append(l.ahead, v)
	}
	if l.given == 0 {
		l.prev = undefined{"there is no previous item"}
	} else {
		l.prev = l.cur
	}
	l.cur = l.ahead[0]
	l.ahead = l.ahead[1:]
	l.given++
	return l.cur, true, nil
}

func (l *loopVar) peek() bool { return len(l.ahead) > 0 }

// fill reads ahead: one item, or all.
func (l *loopVar) fill(all bool) error {
	for all || !l.peek() {
		v, ok, err := l.over()
		if err != nil || !ok {
			return err
		}
		if err := l.r.charge(valueSize); err != nil {
			return err
		}
		l.ahead = append(l.ahead, v)
	}
	return nil
}

// loopAttrs are the attributes of loop that need no reading ahead.
var loopAttrs = map[string]func(l *loopVar) value{
	"index":    func(l *loopVar) value { return int64(l.given) },
	"index0":   func(l *loopVar) value { return int64(l.given - 1) },
	"first":    func(l *loopVar) value { return l.given == 1 },
	"previtem": func(l *loopVar) value { return l.prev },
	"depth":    func(*loopVar) value { return int64(1) },
	"depth0":   func(*loopVar) value { return int64(0) },
	"cycle":    func(l *loopVar) value { return &function{name: "cycle", call: l.cycle} },
	"changed":  func(l *loopVar) value { return &function{name: "changed", call: l.changed} },
}

func (l *loopVar) attr(name string) (value, error) {
	if get, ok := loopAttrs[name]; ok {
		return get(l), nil
	}
	switch name {
	case "last":
		err := l.fill(false)
		return !l.peek(), err
	case "nextitem":
		if err := l.fill(false); err != nil {
			return nil, err
		}
		if !l.peek() {
			return undefined{"there is no next item"}, nil
		}
		return l.ahead[0], nil
	case "length":
		err := l.fill(true)
		return int64(l.given + len(l.ahead)), err
	case "revindex":
		err := l.fill(true)
		return int64(len(l.ahead) + 1), err
	case "revindex0":
		err := l.fill(true)
		return int64(len(l.ahead)), err
	}
	return undefined{"loop has no attribute " + name}, nil
}

func (l *loopVar) cycle(_ *run, args []value, _ []kwArg) (value, error) {
	if len(args) == 0 {
		return nil, typeError("no items for cycling given")
	}
	return args[(l.given-1)%len(args)], nil
}

func (l *loopVar) changed(r *run, args []value, _ []kwArg) (value, error) {
	now := &seq{kind: tupleSeq, items: slices.Clone(args)}
	if l.seen {
		same, err := r.equal(l.last, now)
		if err != nil || same {
			return false, err
		}
	}
	l.last, l.seen = now, true
	return true, nil
}
