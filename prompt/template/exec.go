package template

import (
	"errors"
	"fmt"
)

// located is an error with its line.
type located struct {
	line int
	err  error
}

func (l *located) Error() string { return fmt.Sprintf("line %d: %v", l.line, l.err) }
func (l *located) Unwrap() error { return l.err }

// at says where an error happened, unless it is said already.
func at(line int, err error) error {
	var l *located
	if err == nil || errors.Is(err, errBreak) || errors.Is(err, errContinue) || errors.As(err, &l) {
		return err
	}
	return &located{line, err}
}

// exec runs statements, which write to out.
func (r *run) exec(f *frame, body []stmt, out *buffer) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	for _, s := range body {
		if err := r.one(f, s, out); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) one(f *frame, s stmt, out *buffer) error {
	switch s := s.(type) {
	case text:
		return out.add(s.s)
	case print:
		v, err := r.eval(f, s.of)
		if err == nil {
			err = out.print(v)
		}
		return at(s.line, err)
	case branch:
		test, err := r.eval(f, s.test)
		switch {
		case err != nil:
			return at(s.line, err)
		case truth(test):
			return r.exec(f, s.yes, out)
		}
		return r.exec(f, s.no, out)
	case loopStmt:
		return at(s.line, r.loop(f, s, out))
	case assign:
		v, err := r.eval(f, s.of)
		if err == nil {
			err = r.assign(f, s.to, v)
		}
		return at(s.line, err)
	case assignBlock:
		v, err := r.block(s.body.frame(f), s.body, s.filters)
		if err == nil {
			err = r.assign(f, s.to, v)
		}
		return at(s.line, err)
	case filterBlock:
		v, err := r.block(s.body.frame(f), s.body, s.filters)
		if err == nil {
			err = out.print(v)
		}
		return at(s.line, err)
	case *macroDef:
		f.set(s.name, r.macro(f, &s.macroBody))
		return nil
	case *callBlock:
		return at(s.line, r.callBlock(f, s, out))
	case with:
		return at(s.line, r.with(f, s, out))
	case jump:
		return s.how
	}
	return unsupported(fmt.Sprintf("%T", s))
}

// block renders a body to a text and filters that.
func (r *run) block(f *frame, s *scope, fs []filtering) (value, error) {
	t, err := r.collect(func(b *buffer) error { return r.exec(f, s.body, b) })
	if err != nil {
		return nil, err
	}
	return r.filterAll(f, fs, t)
}

func (r *run) with(f *frame, s with, out *buffer) error {
	inner := s.body.frame(f)
	for i, to := range s.to {
		v, err := r.eval(f, s.of[i])
		if err != nil {
			return err
		}
		if err := r.assign(inner, to, v); err != nil {
			return err
		}
	}
	return r.exec(inner, s.body.body, out)
}

func (r *run) callBlock(f *frame, s *callBlock, out *buffer) error {
	fn, err := r.eval(f, s.call.fn)
	if err != nil {
		return err
	}
	v, err := r.call(f, fn, s.call.argList, nil, []kwArg{{"caller", r.macro(f, &s.body)}})
	if err != nil {
		return err
	}
	return out.print(v)
}

// assign gives a value to a name, an attribute of a namespace, or to several.
func (r *run) assign(f *frame, to target, v value) error {
	switch {
	case to.attr != "":
		ns, ok := lookUp(f, to.name).(*namespace)
		if !ok {
			return fmt.Errorf("%s is no namespace, so %s.%s cannot be set", to.name, to.name, to.attr)
		}
		return ns.vars.set(lit(to.attr), v)
	case to.tuple == nil:
		f.set(to.name, v)
		return nil
	}
	if err := missing(v); err != nil {
		return err
	}
	items, err := r.items(v)
	if err != nil {
		return err
	}
	if len(items) != len(to.tuple) {
		return fmt.Errorf("%d values cannot be assigned to %d names", len(items), len(to.tuple))
	}
	for i, t := range to.tuple {
		if err := r.assign(f, t, items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) loop(f *frame, s loopStmt, out *buffer) error {
	of, err := r.eval(f, s.over)
	if err != nil {
		return err
	}
	next, err := r.iterate(of)
	if err != nil {
		return err
	}
	if s.test != nil {
		next = r.filtered(f, s, next)
	}
	l := &loopVar{r: r, over: next}
	none := true
	for {
		v, ok, err := l.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := r.charge(frameSize); err != nil {
			return err
		}
		inner := s.body.frame(f)
		inner.set("loop", l)
		if err := r.assign(inner, s.to, v); err != nil {
			return err
		}
		err = r.exec(inner, s.body.body, out)
		if errors.Is(err, errBreak) {
			break
		}
		if err != nil && !errors.Is(err, errContinue) {
			return err
		}
		none = none && err != nil
	}
	// As in Jinja, a turn that a break or a continue cut short counts as none.
	if none {
		return r.exec(s.none.frame(f), s.none.body, out)
	}
	return nil
}

// filtered lets through what a loop's condition holds for.
func (r *run) filtered(f *frame, s loopStmt, next iterator) iterator {
	return func() (value, bool, error) {
		for {
			v, ok, err := next()
			if err != nil || !ok {
				return nil, false, err
			}
			inner := &frame{up: f}
			if err := r.assign(inner, s.to, v); err != nil {
				return nil, false, err
			}
			test, err := r.eval(inner, s.test)
			if err != nil {
				return nil, false, err
			}
			if truth(test) {
				return v, true, nil
			}
		}
	}
}

// macro makes a function of a macro's body; what it reads besides its parameters
// are the variables around it.
func (r *run) macro(f *frame, m *macroBody) *function {
	return &function{name: m.name, macro: true, call: func(r *run, args []value, kw []kwArg) (value, error) {
		inner := m.body.frame(f)
		if err := r.bind(inner, m, args, kw); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		return r.block(inner, m.body, nil)
	}}
}

// bind gives a macro's parameters their values.
func (r *run) bind(f *frame, m *macroBody, args []value, kw []kwArg) error {
	given := map[string]value{}
	rest := newDict(0)
	for _, k := range kw {
		given[k.name] = k.v
	}
	for i, name := range m.params {
		v, ok := given[name]
		switch {
		case i < len(args):
			v = args[i]
		case ok:
			delete(given, name)
		case i >= len(m.params)-len(m.defaults):
			var err error
			if v, err = r.eval(f, m.defaults[i-len(m.params)+len(m.defaults)]); err != nil {
				return err
			}
		default:
			v = undefined{fmt.Sprintf("parameter %q was not provided", name)}
		}
		f.set(name, v)
	}
	if m.caller {
		if _, param := f.own("caller"); !param {
			v, ok := given["caller"]
			if !ok {
				v = undefined{"no caller defined"}
			}
			f.set("caller", v)
			delete(given, "caller")
		}
	}
	for _, k := range kw {
		if v, ok := given[k.name]; ok {
			if !m.kwargs {
				return typeError("the macro takes no argument %q", k.name)
			}
			if err := rest.set(lit(k.name), v); err != nil {
				return err
			}
		}
	}
	if m.kwargs {
		f.set("kwargs", rest)
	}
	more := args[min(len(args), len(m.params)):]
	if m.varargs {
		f.set("varargs", &seq{kind: tupleSeq, items: more})
	} else if len(more) > 0 {
		return typeError("the macro takes not more than %d arguments", len(m.params))
	}
	return nil
}
