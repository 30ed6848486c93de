package template

import (
	"cmp"
	"errors"
	"math"
	"strings"
)

var (
	errZero = errors.New("division by zero")
	// Go's power of floats differs from C's in the last bit.
	errPower = unsupported("a power that is a float")
	errView  = unsupported("this use of the keys, values or items of a dict")
)

// undefinedError is the error of using what is missing.
func undefinedError(u undefined) error { return errors.New(u.what) }

// missing reports the first of the operands that is undefined.
func missing(vs ...value) error {
	for _, v := range vs {
		if u, ok := v.(undefined); ok {
			return undefinedError(u)
		}
	}
	return nil
}

// calculate gives l op r for the operators of numbers, texts and lists.
func (r *run) calculate(op string, a, b value) (value, error) {
	if t, ok := a.(str); ok && op == "%" {
		return r.percent(t, b)
	}
	if isView(a) || isView(b) {
		return nil, errView
	}
	if err := missing(a, b); err != nil {
		return nil, err
	}
	if isInt(a) && isInt(b) && op != "/" {
		return intOp(op, asInt(a), asInt(b))
	}
	x, okA := asFloat(a)
	y, okB := asFloat(b)
	if okA && okB {
		return floatOp(op, x, y)
	}
	_, bigA := a.(bigInt)
	_, bigB := b.(bigInt)
	if (bigA || okA) && (bigB || okB) {
		return nil, errBigInt
	}
	switch op {
	case "+":
		return r.add(a, b)
	case "*":
		if isInt(a) {
			a, b = b, a
		}
		if isInt(b) {
			return r.repeat(a, asInt(b))
		}
	}
	return nil, typeError("%s %s %s is not possible", typeName(a), op, typeName(b))
}

// isView reports a dict's keys, values or items, which are sets in part.
func isView(v value) bool {
	s, ok := v.(*seq)
	return ok && s.kind == viewSeq
}

func (r *run) add(a, b value) (value, error) {
	switch x := a.(type) {
	case str:
		if y, ok := b.(str); ok {
			return r.addTexts(x, y)
		}
	case *seq:
		if y, ok := b.(*seq); ok && x.kind == y.kind && (x.kind == listSeq || x.kind == tupleSeq) {
			if err := r.charge((len(x.items) + len(y.items)) * valueSize); err != nil {
				return nil, err
			}
			items := make([]value, 0, len(x.items)+len(y.items))
			return &seq{kind: x.kind, items: append(append(items, x.items...), y.items...)}, nil
		}
	}
	return nil, typeError("%s + %s is not possible", typeName(a), typeName(b))
}

// addTexts joins two texts. Where one is safe and the other is not, that is escaped
// for HTML, as Jinja does.
func (r *run) addTexts(x, y str) (value, error) {
	safe := x.safe || y.safe
	out, err := r.collect(func(b *buffer) error {
		for _, t := range []str{x, y} {
			if !safe || t.safe {
				if err := b.add(t); err != nil {
					return err
				}
				continue
			}
			if err := b.quote(t, "", func(c rune) string { return htmlEscapes[c] }); err != nil {
				return err
			}
		}
		return nil
	})
	out.safe = safe
	return out, err
}

var htmlEscapes = map[rune]string{'&': "&amp;", '<': "&lt;", '>': "&gt;", '"': "&#34;", '\'': "&#39;"}

func (r *run) repeat(v value, n int64) (value, error) {
	n = max(n, 0)
	switch v := v.(type) {
	case str:
		if v.safe {
			return nil, errSafe
		}
		if n > int64(maxText/max(len(v.s), 1)) {
			return nil, errText
		}
		if len(v.from) == 0 || len(v.s) == 0 {
			return lit(strings.Repeat(v.s, int(n))), r.charge(int(n) * len(v.s))
		}
		return r.collect(func(out *buffer) error {
			for range n {
				if err := out.add(v); err != nil {
					return err
				}
			}
			return nil
		})
	case *seq:
		if v.kind != listSeq && v.kind != tupleSeq {
			break
		}
		if len(v.items) == 0 {
			return v, nil
		}
		if n > int64(maxMade/valueSize/len(v.items)) {
			return nil, errMade
		}
		if err := r.charge(int(n) * len(v.items) * valueSize); err != nil {
			return nil, err
		}
		items := make([]value, 0, int(n)*len(v.items))
		for range n {
			items = append(items, v.items...)
		}
		return &seq{kind: v.kind, items: items}, nil
	}
	return nil, typeError("a %s cannot be repeated", typeName(v))
}

func intOp(op string, a, b int64) (value, error) {
	switch op {
	case "+":
		if s := a + b; (s > a) == (b > 0) {
			return s, nil
		}
	case "-":
		if s := a - b; (s < a) == (b > 0) {
			return s, nil
		}
	case "*":
		if p, ok := product(a, b); ok {
			return p, nil
		}
	case "//", "%":
		if b == 0 {
			return nil, errZero
		}
		if b == -1 { // the one quotient that can overflow
			if op == "%" {
				return int64(0), nil
			}
			return intOp("-", 0, a)
		}
		q, m := a/b, a%b
		if m != 0 && (m < 0) != (b < 0) {
			q, m = q-1, m+b
		}
		if op == "%" {
			return m, nil
		}
		return q, nil
	case "**":
		return power(a, b)
	}
	return nil, errBigInt
}

func product(a, b int64) (int64, bool) {
	if a == 0 || b == 0 {
		return 0, true
	}
	p := a * b
	return p, p/b == a && !(a == -1 && b == math.MinInt64) && !(b == -1 && a == math.MinInt64)
}

func power(a, b int64) (value, error) {
	if b < 0 {
		return nil, errPower
	}
	out := int64(1)
	for ; b > 0; b-- {
		switch a {
		case 0:
			return int64(0), nil
		case 1:
			return int64(1), nil
		case -1:
			return 1 - 2*(b%2), nil
		}
		p, ok := product(out, a)
		if !ok {
			return nil, errBigInt
		}
		out = p
	}
	return out, nil
}

func floatOp(op string, a, b float64) (value, error) {
	if b == 0 && (op == "/" || op == "//" || op == "%") {
		return nil, errZero
	}
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "/":
		return a / b, nil
	case "**":
		return nil, errPower
	}
	// As CPython does it, so that the last bit is the same.
	m := math.Mod(a, b)
	q := (a - m) / b
	switch {
	case m == 0:
		m = math.Copysign(0, b)
	case (m < 0) != (b < 0):
		m, q = m+b, q-1
	}
	if op == "%" {
		return m, nil
	}
	if q == 0 {
		return math.Copysign(0, a/b), nil
	}
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	return f, nil
}

// equal is Python's ==.
func (r *run) equal(a, b value) (bool, error) {
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.leave()
	if isInt(a) && isInt(b) {
		return asInt(a) == asInt(b), nil
	}
	if x, ok := asFloat(a); ok {
		y, ok := asFloat(b)
		return ok && x == y, nil
	}
	switch x := a.(type) {
	case str:
		y, ok := b.(str)
		return ok && x.s == y.s, nil
	case undefined:
		_, ok := b.(undefined)
		return ok, nil
	case nil, bigInt, *namespace, *loopVar, *function:
		return a == b, nil
	case *dict:
		y, ok := b.(*dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false, nil
		}
		for h, i := range x.at {
			j, ok := y.at[h]
			if !ok {
				return false, nil
			}
			if same, err := r.equal(x.values[i], y.values[j]); !same || err != nil {
				return false, err
			}
		}
		return true, nil
	case *seq:
		y, ok := b.(*seq)
		if !ok || x.kind != y.kind || len(x.items) != len(y.items) && x.kind != viewSeq {
			return false, nil
		}
		if x.kind == viewSeq {
			return false, errView
		}
		for i := range x.items {
			if same, err := r.equal(x.items[i], y.items[i]); !same || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	return false, unsupported("comparing a " + typeName(a))
}

// order is Python's < as a number below, at or above zero; NaN is in no order.
func (r *run) order(op string, a, b value) (int, error) {
	if err := r.enter(); err != nil {
		return 0, err
	}
	defer r.leave()
	if err := missing(a, b); err != nil {
		return 0, err
	}
	if isInt(a) && isInt(b) {
		return cmp.Compare(asInt(a), asInt(b)), nil
	}
	x, okA := asFloat(a)
	y, okB := asFloat(b)
	switch {
	case okA && okB:
		if math.IsNaN(x) || math.IsNaN(y) {
			return 0, unsupported("comparing what is no number")
		}
		return cmp.Compare(x, y), nil
	}
	switch x := a.(type) {
	case bigInt:
		return 0, errBigInt
	case str:
		if y, ok := b.(str); ok {
			return strings.Compare(x.s, y.s), nil
		}
	case *seq:
		y, ok := b.(*seq)
		if !ok || x.kind != y.kind || x.kind > tupleSeq {
			break
		}
		for i := range min(len(x.items), len(y.items)) {
			same, err := r.equal(x.items[i], y.items[i])
			if err != nil {
				return 0, err
			}
			if !same {
				return r.order(op, x.items[i], y.items[i])
			}
		}
		return cmp.Compare(len(x.items), len(y.items)), nil
	}
	if isView(a) || isView(b) {
		return 0, errView
	}
	return 0, typeError("%s %s %s is not possible", typeName(a), op, typeName(b))
}

// compare gives one comparison of a chain.
func (r *run) compare(op string, a, b value) (bool, error) {
	switch op {
	case "==", "!=":
		same, err := r.equal(a, b)
		return same == (op == "=="), err
	case "in", "not in":
		in, err := r.contains(b, a)
		return in == (op == "in"), err
	}
	c, err := r.order(op, a, b)
	return c < 0 && op[0] == '<' || c > 0 && op[0] == '>' || c == 0 && len(op) == 2, err
}

// contains is Python's v in of.
func (r *run) contains(of, v value) (bool, error) {
	switch of := of.(type) {
	case str:
		s, ok := v.(str)
		if !ok {
			if err := missing(v); err != nil {
				return false, err
			}
			return false, typeError("%s in str is not possible", typeName(v))
		}
		return strings.Contains(of.s, s.s), r.charge(len(of.s) / 16)
	case *dict:
		_, ok, err := of.get(v)
		return ok, err
	}
	next, err := r.iterate(of)
	if err != nil {
		return false, err
	}
	for {
		w, ok, err := next()
		if err != nil || !ok {
			return false, err
		}
		if same, err := r.equal(v, w); same || err != nil {
			return same, err
		}
	}
}
