package template

import (
	"fmt"
	"slices"
)

// eval gives the value of an expression.
func (r *run) eval(f *frame, e expr) (value, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	switch e := e.(type) {
	case literal:
		return e.v, nil
	case nameRef:
		return lookUp(f, e.name), nil
	case attrRef:
		of, err := r.eval(f, e.of)
		if err != nil {
			return nil, err
		}
		return r.attr(of, e.name)
	case itemRef:
		return r.evalItem(f, e)
	case call:
		fn, err := r.eval(f, e.fn)
		if err != nil {
			return nil, err
		}
		return r.call(f, fn, e.argList, nil, nil)
	case filtering:
		in, err := r.eval(f, e.in)
		if err != nil {
			return nil, err
		}
		return r.filter(f, e, in)
	case testing:
		in, err := r.eval(f, e.in)
		if err != nil {
			return nil, err
		}
		return r.call(f, &function{name: e.name, call: tests[e.name]}, e.argList, []value{in}, nil)
	case unary:
		of, err := r.eval(f, e.of)
		if err != nil {
			return nil, err
		}
		return sign(e.op, of)
	case binary:
		return r.evalBinary(f, e)
	case comparing:
		return r.evalChain(f, e)
	case choice:
		return r.evalChoice(f, e)
	case joining:
		return r.collect(func(b *buffer) error {
			for _, p := range e.parts {
				v, err := r.eval(f, p)
				if err != nil {
					return err
				}
				if err := b.print(v); err != nil {
					return err
				}
			}
			return nil
		})
	case listing:
		items, err := r.evalAll(f, e.items)
		return &seq{items: items}, err
	case tupling:
		items, err := r.evalAll(f, e.items)
		return &seq{kind: tupleSeq, items: items}, err
	case dictating:
		return r.evalDict(f, e)
	}
	return nil, unsupported(fmt.Sprintf("%T", e))
}

// lookUp gives a variable, or a global function, or what stands for neither.
func lookUp(f *frame, name string) value {
	if v, ok := f.get(name); ok {
		return v
	}
	if g, ok := globals[name]; ok {
		return &function{name: name, call: g}
	}
	return undefined{fmt.Sprintf("%q is undefined", name)}
}

func (r *run) evalAll(f *frame, es []expr) ([]value, error) {
	if err := r.charge(len(es) * valueSize); err != nil {
		return nil, err
	}
	out := make([]value, len(es))
	for i, e := range es {
		var err error
		if out[i], err = r.eval(f, e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *run) evalDict(f *frame, e dictating) (value, error) {
	if err := r.charge(len(e.keys) * 4 * valueSize); err != nil {
		return nil, err
	}
	d := newDict(len(e.keys))
	for i := range e.keys {
		k, err := r.eval(f, e.keys[i])
		if err != nil {
			return nil, err
		}
		v, err := r.eval(f, e.values[i])
		if err != nil {
			return nil, err
		}
		if err := d.set(k, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (r *run) evalBinary(f *frame, e binary) (value, error) {
	l, err := r.eval(f, e.l)
	if err != nil {
		return nil, err
	}
	if e.op == "and" && !truth(l) || e.op == "or" && truth(l) {
		return l, nil
	}
	rr, err := r.eval(f, e.r)
	if err != nil || e.op == "and" || e.op == "or" {
		return rr, err
	}
	return r.calculate(e.op, l, rr)
}

func (r *run) evalChain(f *frame, e comparing) (value, error) {
	l, err := r.eval(f, e.first)
	if err != nil {
		return nil, err
	}
	for _, c := range e.rest {
		of, err := r.eval(f, c.of)
		if err != nil {
			return nil, err
		}
		if holds, err := r.compare(c.op, l, of); err != nil || !holds {
			return false, err
		}
		l = of
	}
	return true, nil
}

func (r *run) evalChoice(f *frame, e choice) (value, error) {
	test, err := r.eval(f, e.test)
	switch {
	case err != nil:
		return nil, err
	case truth(test):
		return r.eval(f, e.yes)
	case e.no == nil:
		return undefined{"an if without else has no value"}, nil
	}
	return r.eval(f, e.no)
}

// sign gives an operator with one operand.
func sign(op string, v value) (value, error) {
	if op == "not" {
		return !truth(v), nil
	}
	if err := missing(v); err != nil {
		return nil, err
	}
	switch x := v.(type) {
	case bool, int64:
		if op == "-" {
			return intOp("-", 0, asInt(x))
		}
		return asInt(x), nil
	case float64:
		if op == "-" {
			return -x, nil
		}
		return x, nil
	case bigInt:
		return nil, errBigInt
	}
	return nil, typeError("a %s has no sign", typeName(v))
}

// call evaluates arguments and calls fn with them; args and kw are those known.
func (r *run) call(f *frame, fn value, list argList, args []value, kw []kwArg) (value, error) {
	more, err := r.evalAll(f, list.args)
	if err != nil {
		return nil, err
	}
	args = append(args, more...)
	for _, k := range list.kw {
		v, err := r.eval(f, k.of)
		if err != nil {
			return nil, err
		}
		kw = append(kw, kwArg{k.name, v})
	}
	if err := missing(fn); err != nil {
		return nil, err
	}
	fun, ok := fn.(*function)
	if !ok {
		return nil, typeError("a %s cannot be called", typeName(fn))
	}
	v, err := fun.call(r, args, kw)
	if err != nil && !fun.macro {
		err = fmt.Errorf("%s: %w", fun.name, err)
	}
	return v, err
}

func (r *run) filter(f *frame, e filtering, in value) (value, error) {
	if t, ok := in.(str); ok && t.safe && !slices.Contains(safeFilters, e.name) {
		return nil, fmt.Errorf("%s: %w", e.name, errSafe)
	}
	return r.call(f, &function{name: e.name, call: filters[e.name]}, e.argList, []value{in}, nil)
}

func (r *run) filterAll(f *frame, fs []filtering, in value) (value, error) {
	for _, e := range fs {
		var err error
		if in, err = r.filter(f, e, in); err != nil {
			return nil, err
		}
	}
	return in, nil
}
