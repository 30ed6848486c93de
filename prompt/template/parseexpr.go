package template

import (
	"slices"
	"strconv"
	"strings"
)

// constants are the names of values.
var constants = map[string]value{
	"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil,
}

// expression reads one, with Jinja's own ranks of operators: "~" binds closer than
// "+", a sign closer than a filter.
func (p *parser) expression(conditional bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	e, err := p.or()
	for n := 0; err == nil && conditional && p.skipName("if"); {
		if err := p.link(&n); err != nil {
			return nil, err
		}
		c := choice{yes: e}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			if c.no, err = p.expression(true); err != nil {
				return nil, err
			}
		}
		e = c
	}
	return e, err
}

// chain reads operands of one rank from left to right.
func (p *parser) chain(operand func() (expr, error), op func() string) (expr, error) {
	l, err := operand()
	for n := 0; err == nil; {
		o := op()
		if o == "" {
			return l, nil
		}
		if err = p.link(&n); err != nil {
			break
		}
		var r expr
		r, err = operand()
		l = binary{o, l, r}
	}
	return nil, err
}

func (p *parser) anyOp(ops ...string) func() string {
	return func() string {
		if p.cur().kind == opTok && slices.Contains(ops, p.cur().text) {
			return p.next().text
		}
		return ""
	}
}

func (p *parser) word(name string) func() string {
	return func() string {
		if p.skipName(name) {
			return name
		}
		return ""
	}
}

func (p *parser) or() (expr, error)  { return p.chain(p.and, p.word("or")) }
func (p *parser) and() (expr, error) { return p.chain(p.not, p.word("and")) }

func (p *parser) not() (expr, error) {
	if !p.skipName("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	e, err := p.not()
	return unary{"not", e}, err
}

func (p *parser) compare() (expr, error) {
	e, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := comparing{first: e}
	op := p.anyOp("==", "!=", "<", "<=", ">", ">=")
	for {
		o := op()
		switch {
		case o != "":
		case p.skipName("in"):
			o = "in"
		case p.isName("not") && p.look().kind == nameTok && p.look().text == "in":
			p.next()
			p.next()
			o = "not in"
		case c.rest == nil:
			return e, nil
		default:
			return c, nil
		}
		of, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.rest = append(c.rest, comparison{o, of})
	}
}

func (p *parser) sum() (expr, error) { return p.chain(p.concat, p.anyOp("+", "-")) }

func (p *parser) concat() (expr, error) {
	e, err := p.product()
	if err != nil || !p.isOp("~") {
		return e, err
	}
	j := joining{[]expr{e}}
	for p.skipOp("~") {
		e, err := p.product()
		if err != nil {
			return nil, err
		}
		j.parts = append(j.parts, e)
	}
	return j, nil
}

func (p *parser) product() (expr, error) { return p.chain(p.power, p.anyOp("*", "/", "//", "%")) }

func (p *parser) power() (expr, error) {
	return p.chain(func() (expr, error) { return p.unary(true) }, p.anyOp("**"))
}

func (p *parser) unary(filters bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	var e expr
	var err error
	if op := p.anyOp("-", "+")(); op != "" {
		e, err = p.unary(false)
		e = unary{op, e}
	} else {
		e, err = p.primary()
	}
	if err != nil {
		return nil, err
	}
	if e, err = p.postfix(e); err != nil || !filters {
		return e, err
	}
	return p.filtered(e)
}

func (p *parser) primary() (expr, error) {
	t := p.cur()
	switch t.kind {
	case nameTok:
		p.next()
		if v, ok := constants[t.text]; ok {
			return literal{v}, nil
		}
		p.loads[t.text] = t.line
		for _, m := range p.macros {
			m.uses(t.text)
		}
		return nameRef{t.text}, nil
	case stringTok:
		var s strings.Builder
		for p.cur().kind == stringTok {
			s.WriteString(p.next().text)
		}
		return literal{lit(s.String())}, nil
	case intTok:
		p.next()
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			return nil, p.fail("%w", errBigInt)
		}
		return literal{n}, nil
	case floatTok:
		p.next()
		f, _ := strconv.ParseFloat(t.text, 64) // the lexer let only floats through; inf as in Python
		return literal{f}, nil
	case opTok:
		switch t.text {
		case "(":
			p.next()
			e, err := p.tuple(nil, true, true)
			if err != nil {
				return nil, err
			}
			return e, p.expectOp(")")
		case "[":
			p.next()
			items, err := p.items("]", func() (expr, error) { return p.expression(true) })
			return listing{items}, err
		case "{":
			p.next()
			return p.dict()
		}
	}
	return nil, p.fail("unexpected %s", describe(t))
}

// uses notes the special names that a macro's body reads.
func (m *macroBody) uses(name string) {
	switch name {
	case "caller":
		m.caller = true
	case "varargs":
		m.varargs = true
	case "kwargs":
		m.kwargs = true
	}
}

// items reads what stands between commas up to a bracket; a comma may end it.
func (p *parser) items(end string, item func() (expr, error)) ([]expr, error) {
	var out []expr
	for !p.isOp(end) {
		if len(out) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.isOp(end) {
				break
			}
		}
		e, err := item()
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	p.next()
	return out, nil
}

func (p *parser) dict() (expr, error) {
	var d dictating
	values, err := p.items("}", func() (expr, error) {
		k, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		d.keys = append(d.keys, k)
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		return p.expression(true)
	})
	d.values = values
	return d, err
}

func (p *parser) tupleEnd(stop []string) bool {
	t := p.cur()
	return t.kind == exprEnd || t.kind == stmtEnd || p.isOp(")") ||
		t.kind == nameTok && slices.Contains(stop, t.text)
}

// tuple reads an expression, or several with commas between. Only within
// parentheses it may be empty.
func (p *parser) tuple(stop []string, parentheses, conditional bool) (expr, error) {
	var items []expr
	tuple := false
	for {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		if p.tupleEnd(stop) {
			break
		}
		e, err := p.expression(conditional)
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.isOp(",") {
			break
		}
		tuple = true
	}
	switch {
	case tuple || items == nil && parentheses:
		return tupling{items}, nil
	case items == nil:
		return nil, p.fail("expected an expression, got %s", describe(p.cur()))
	}
	return items[0], nil
}

// postfix reads attributes, subscripts and calls.
func (p *parser) postfix(e expr) (expr, error) {
	for n := 0; ; {
		err := p.link(&n)
		if err != nil {
			return nil, err
		}
		switch {
		case p.skipOp("."):
			t := p.next()
			switch t.kind {
			case nameTok:
				e = attrRef{e, t.text}
			case intTok:
				n, err := strconv.ParseInt(t.text, 10, 64)
				if err != nil {
					return nil, p.fail("%w", errBigInt)
				}
				e = itemRef{e, literal{n}}
			default:
				return nil, p.fail("expected a name after \".\"")
			}
		case p.skipOp("["):
			e, err = p.subscript(e)
		case p.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) subscript(e expr) (expr, error) {
	keys, err := p.items("]", p.sliceOrKey)
	if err != nil {
		return nil, err
	}
	if len(keys) == 1 {
		return itemRef{e, keys[0]}, nil
	}
	return itemRef{e, tupling{keys}}, nil
}

func (p *parser) sliceOrKey() (expr, error) {
	var s slicing
	var err error
	if !p.isOp(":") {
		if s.from, err = p.expression(true); err != nil || !p.isOp(":") {
			return s.from, err
		}
	}
	p.next()
	if !p.isOp(":") && !p.isOp("]") && !p.isOp(",") {
		if s.to, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	if p.skipOp(":") && !p.isOp("]") && !p.isOp(",") {
		s.step, err = p.expression(true)
	}
	return s, err
}

func (p *parser) call(fn expr) (expr, error) {
	args, err := p.args()
	return call{fn, args}, err
}

func (p *parser) args() (argList, error) {
	var a argList
	if err := p.expectOp("("); err != nil {
		return a, err
	}
	_, err := p.items(")", func() (expr, error) {
		switch {
		case p.isOp("*") || p.isOp("**"):
			return nil, p.fail("%w", unsupported("* and ** in a call"))
		case p.cur().kind == nameTok && p.look().kind == opTok && p.look().text == "=":
			name := p.next().text
			p.next()
			e, err := p.expression(true)
			a.kw = append(a.kw, kwExpr{name, e})
			return nil, err
		case a.kw != nil:
			return nil, p.fail("an argument without a name follows one with a name")
		}
		e, err := p.expression(true)
		a.args = append(a.args, e)
		return nil, err
	})
	return a, err
}

// filtered reads filters, tests and calls.
func (p *parser) filtered(e expr) (expr, error) {
	for n := 0; ; {
		err := p.link(&n)
		if err != nil {
			return nil, err
		}
		switch {
		case p.isOp("|"):
			var fs []filtering
			if fs, err = p.filterChain(false); err != nil {
				return nil, err
			}
			for _, f := range fs {
				if err := p.link(&n); err != nil {
					return nil, err
				}
				f.in = e
				e = f
			}
		case p.skipName("is"):
			e, err = p.test(e)
		case p.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filterChain reads filters; the first has no "|" before it in a filter tag.
func (p *parser) filterChain(inline bool) ([]filtering, error) {
	var out []filtering
	for inline || p.skipOp("|") {
		inline = false
		name, err := p.dotted()
		if err != nil {
			return nil, err
		}
		f := filtering{name: name}
		if p.isOp("(") {
			if f.argList, err = p.args(); err != nil {
				return nil, err
			}
		}
		if _, ok := filters[name]; !ok {
			return nil, p.fail("%w", unsupported("the filter "+name))
		}
		out = append(out, f)
	}
	return out, nil
}

func (p *parser) dotted() (string, error) {
	name, err := p.ident()
	for err == nil && p.skipOp(".") {
		var more string
		more, err = p.ident()
		name += "." + more
	}
	return name, err
}

func (p *parser) test(in expr) (expr, error) {
	negated := p.skipName("not")
	name, err := p.dotted()
	if err != nil {
		return nil, err
	}
	if _, ok := tests[name]; !ok {
		return nil, p.fail("%w", unsupported("the test "+name))
	}
	t := testing{in: in, name: name}
	switch cur := p.cur(); {
	case p.isOp("("):
		t.argList, err = p.args()
	case p.isName("else") || p.isName("or") || p.isName("and"):
	case p.isName("is"):
		err = p.fail("a test cannot follow a test")
	case cur.kind == nameTok || cur.kind == stringTok || cur.kind == intTok || cur.kind == floatTok || p.isOp("[") || p.isOp("{"):
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		t.args = []expr{arg}
	}
	if err != nil {
		return nil, err
	}
	if negated {
		return unary{"not", t}, nil
	}
	return t, nil
}
