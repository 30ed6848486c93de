package template

import (
	"maps"
	"slices"
)

// Jinja decides before it renders which variable a name stands for. A name that a
// scope assigns before it reads it, and that no scope around mentions, is the
// scope's own from its beginning: loops and macros within that run before the
// assignment find it undefined, not the variable of the input. symbols repeats that
// decision.
type symbols struct {
	parent *symbols // of the scope around
	under  *symbols // the same scope outside of the branch of an if
	// own says of each name that is mentioned whether it starts undefined.
	own    map[string]bool
	stores map[string]bool
	inner  *[]innerScope
}

// innerScope is a scope within another, with what it starts with.
type innerScope struct {
	s      *scope
	params []target
	loads  []expr
}

// resolve fills the hidden names of a scope and of all within.
func (s *scope) resolve(parent *symbols, in *innerScope) {
	var inner []innerScope
	y := &symbols{parent: parent, own: map[string]bool{}, stores: map[string]bool{}, inner: &inner}
	if in != nil {
		for _, t := range in.params {
			y.param(t)
		}
		y.loads(in.loads...)
	}
	y.visit(s.body)
	for _, name := range slices.Sorted(maps.Keys(y.own)) {
		if y.own[name] {
			s.hidden = append(s.hidden, name)
		}
	}
	for _, i := range inner {
		i.s.resolve(y, &i)
	}
}

// mentioned looks a name up in this scope alone.
func (y *symbols) mentioned(name string) bool {
	for ; y != nil; y = y.under {
		if _, ok := y.own[name]; ok {
			return true
		}
	}
	return false
}

// around looks a name up in the scopes around.
func (y *symbols) around(name string) bool {
	for p := y.parent; p != nil; p = p.parent {
		if p.mentioned(name) {
			return true
		}
	}
	return false
}

func (y *symbols) load(name string) {
	if !y.mentioned(name) && !y.around(name) {
		y.own[name] = false
	}
}

func (y *symbols) store(name string) {
	y.stores[name] = true
	if !y.mentioned(name) {
		y.own[name] = !y.around(name)
	}
}

func (y *symbols) assign(t target) {
	switch {
	case t.attr != "":
		y.load(t.name)
	case t.tuple == nil:
		y.store(t.name)
	}
	for _, t := range t.tuple {
		y.assign(t)
	}
}

func (y *symbols) param(t target) {
	if t.tuple == nil {
		y.stores[t.name] = true
		y.own[t.name] = false
	}
	for _, t := range t.tuple {
		y.param(t)
	}
}

func (y *symbols) add(s *scope, params []target, loads ...expr) {
	*y.inner = append(*y.inner, innerScope{s, params, loads})
}

func (y *symbols) visit(body []stmt) {
	for _, s := range body {
		switch s := s.(type) {
		case print:
			y.loads(s.of)
		case branch:
			y.branch(s)
		case loopStmt:
			y.loads(s.over)
			y.add(s.body, []target{s.to, {name: "loop"}})
			y.add(s.none, nil)
		case assign:
			y.loads(s.of)
			y.assign(s.to)
		case assignBlock:
			y.assign(s.to)
			y.add(s.body, nil)
		case filterBlock:
			y.filters(s.filters)
			y.add(s.body, nil)
		case *macroDef:
			y.store(s.name)
			y.macro(&s.macroBody)
		case *callBlock:
			y.loads(s.call)
			y.macro(&s.body)
		case with:
			y.loads(s.of...)
			y.add(s.body, s.to)
		}
	}
}

func (y *symbols) macro(m *macroBody) {
	params := make([]target, len(m.params))
	for i, name := range m.params {
		params[i] = target{name: name}
	}
	y.add(m.body, params, m.defaults...)
}

// branch visits an if: what only some of its parts assign is looked up outside as
// well, and Jinja takes that to be so for all that its parts assign.
func (y *symbols) branch(b branch) {
	y.loads(b.test)
	stored := map[string]bool{}
	for _, body := range [][]stmt{b.yes, b.no} {
		part := &symbols{parent: y.parent, under: y, own: map[string]bool{}, stores: map[string]bool{}, inner: y.inner}
		part.visit(body)
		maps.Copy(y.own, part.own)
		maps.Copy(stored, part.stores)
	}
	for name := range stored {
		if !y.stored(name) {
			y.own[name] = false
		}
	}
	maps.Copy(y.stores, stored)
}

// stored reports whether the scope assigned a name before.
func (y *symbols) stored(name string) bool {
	for ; y != nil; y = y.under {
		if y.stores[name] {
			return true
		}
	}
	return false
}

func (y *symbols) filters(fs []filtering) {
	for _, f := range fs {
		y.args(f.argList)
	}
}

func (y *symbols) args(a argList) {
	y.loads(a.args...)
	for _, k := range a.kw {
		y.loads(k.of)
	}
}

// loads notes the names that expressions read.
func (y *symbols) loads(es ...expr) {
	for _, e := range es {
		switch e := e.(type) {
		case nameRef:
			y.load(e.name)
		case attrRef:
			y.loads(e.of)
		case itemRef:
			y.loads(e.of, e.key)
		case slicing:
			y.loads(e.from, e.to, e.step)
		case call:
			y.loads(e.fn)
			y.args(e.argList)
		case filtering:
			y.loads(e.in)
			y.args(e.argList)
		case testing:
			y.loads(e.in)
			y.args(e.argList)
		case unary:
			y.loads(e.of)
		case binary:
			y.loads(e.l, e.r)
		case comparing:
			y.loads(e.first)
			for _, c := range e.rest {
				y.loads(c.of)
			}
		case choice:
			y.loads(e.test, e.yes, e.no)
		case joining:
			y.loads(e.parts...)
		case listing:
			y.loads(e.items...)
		case tupling:
			y.loads(e.items...)
		case dictating:
			y.loads(e.keys...)
			y.loads(e.values...)
		}
	}
}
