package template

import (
	"errors"
	"fmt"
	"slices"
)

const (
	// maxNesting bounds how deep tags and brackets may nest.
	maxNesting = 200
	// maxLinks bounds the operators, attributes or filters in a row.
	maxLinks = 1000
)

// parser reads statements; parseexpr.go has its part for expressions.
type parser struct {
	toks  []token
	depth int
	// loops counts the loops around, in the same macro.
	loops  int
	macros []*macroBody
	// loads and stores are the names that are read and written anywhere.
	loads, stores map[string]int
}

func (p *parser) cur() token  { return p.toks[0] }
func (p *parser) look() token { return p.toks[min(1, len(p.toks)-1)] }

func (p *parser) next() token {
	t := p.toks[0]
	if t.kind != eofTok {
		p.toks = p.toks[1:]
	}
	return t
}

func (p *parser) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: %w", p.cur().line, fmt.Errorf(format, args...))
}

func (p *parser) isOp(op string) bool     { return p.cur().kind == opTok && p.cur().text == op }
func (p *parser) isName(name string) bool { return p.cur().kind == nameTok && p.cur().text == name }

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expectOp(op string) error {
	if !p.skipOp(op) {
		return p.fail("expected %q, got %s", op, describe(p.cur()))
	}
	return nil
}

func (p *parser) ident() (string, error) {
	if p.cur().kind != nameTok {
		return "", p.fail("expected a name, got %s", describe(p.cur()))
	}
	return p.next().text, nil
}

func (p *parser) end(k kind) error {
	if p.cur().kind != k {
		return p.fail("expected the end of the tag, got %s", describe(p.cur()))
	}
	p.next()
	return nil
}

func describe(t token) string {
	switch t.kind {
	case eofTok:
		return "the end of the template"
	case exprEnd, stmtEnd:
		return "the end of the tag"
	}
	return fmt.Sprintf("%.40q", t.text)
}

// enter counts nesting; the caller leaves by p.depth--.
func (p *parser) enter() error {
	if p.depth++; p.depth > maxNesting {
		return p.fail("tags and brackets nest deeper than %d", maxNesting)
	}
	return nil
}

// link counts what follows in a row, which nests without brackets.
func (p *parser) link(n *int) error {
	if *n++; *n > maxLinks {
		return p.fail("more than %d operators in a row", maxLinks)
	}
	return nil
}

// parse reads a whole template.
func parse(toks []token) (*scope, error) {
	p := &parser{toks: toks, loads: map[string]int{}, stores: map[string]int{}}
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"cycler", "joiner", "lipsum", "self", "super"} {
		if line, ok := p.loads[name]; ok && p.stores[name] == 0 {
			return nil, fmt.Errorf("line %d: %w", line, unsupported(name))
		}
	}
	root := &scope{body: body}
	root.resolve(nil, nil)
	return root, nil
}

// body reads statements until one of the tags, which it leaves at its name, or,
// without tags, to the end.
func (p *parser) body(until ...string) ([]stmt, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	var out []stmt
	for {
		switch t := p.next(); t.kind {
		case eofTok:
			if until != nil {
				return nil, p.fail("the template ends before {%% %s %%}", until[0])
			}
			return out, nil
		case dataTok:
			out = append(out, text{lit(t.text)})
		case exprBegin:
			e, err := p.tuple(nil, false, true)
			if err != nil {
				return nil, err
			}
			if err := p.end(exprEnd); err != nil {
				return nil, err
			}
			out = append(out, print{t.line, e})
		case stmtBegin:
			if p.cur().kind == nameTok && slices.Contains(until, p.cur().text) {
				return out, nil
			}
			s, err := p.statement()
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		}
	}
}

// block reads a body and the tag that ends it.
func (p *parser) block(until string) ([]stmt, error) {
	if err := p.end(stmtEnd); err != nil {
		return nil, err
	}
	body, err := p.body(until)
	if err != nil {
		return nil, err
	}
	p.next()
	return body, p.end(stmtEnd)
}

// scope reads a block that has variables of its own.
func (p *parser) scope(until string) (*scope, error) {
	body, err := p.block(until)
	return &scope{body: body}, err
}

// refusedTags are Jinja's that chat templates have no use for.
var refusedTags = []string{"block", "extends", "include", "import", "from", "autoescape", "do", "trans", "debug"}

func (p *parser) statement() (stmt, error) {
	line := p.cur().line
	tag, err := p.ident()
	if err != nil {
		return nil, err
	}
	switch tag {
	case "if":
		return p.ifTag(line)
	case "for":
		return p.forTag(line)
	case "set":
		return p.setTag(line)
	case "macro":
		return p.macroTag(line)
	case "call":
		return p.callTag(line)
	case "filter":
		return p.filterTag(line)
	case "with":
		return p.withTag(line)
	case "print":
		var all joining
		for len(all.parts) == 0 || p.skipOp(",") {
			e, err := p.expression(true)
			if err != nil {
				return nil, err
			}
			all.parts = append(all.parts, e)
		}
		return print{line, all}, p.end(stmtEnd)
	case "generation": // transformers' mark around what the model wrote
		body, err := p.detached("endgeneration")
		return with{line: line, body: body}, err
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.fail("%s outside of a loop", tag)
		}
		return jump{jumps[tag]}, p.end(stmtEnd)
	}
	if slices.Contains(refusedTags, tag) {
		return nil, p.fail("%w", unsupported("the tag "+tag))
	}
	return nil, p.fail("unknown tag %.40q", tag)
}

// detached reads a scope that no break leaves.
func (p *parser) detached(until string) (*scope, error) {
	loops := p.loops
	p.loops = 0
	defer func() { p.loops = loops }()
	return p.scope(until)
}

func (p *parser) ifTag(line int) (stmt, error) {
	b := branch{line: line}
	var err error
	if b.test, err = p.tuple(nil, false, false); err != nil {
		return nil, err
	}
	if err = p.end(stmtEnd); err != nil {
		return nil, err
	}
	if b.yes, err = p.body("endif", "elif", "else"); err != nil {
		return nil, err
	}
	switch t := p.next(); t.text {
	case "elif": // as an if within the else, without nesting in the source
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer func() { p.depth-- }()
		s, err := p.ifTag(t.line)
		b.no = []stmt{s}
		return b, err
	case "else":
		b.no, err = p.block("endif")
		return b, err
	}
	return b, p.end(stmtEnd)
}

func (p *parser) forTag(line int) (stmt, error) {
	l := loopStmt{line: line}
	var err error
	if l.to, err = p.target([]string{"in"}, false); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.fail("expected \"in\", got %s", describe(p.cur()))
	}
	if l.over, err = p.tuple([]string{"recursive"}, false, false); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if l.test, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	if p.isName("recursive") {
		return nil, p.fail("%w", unsupported("a recursive loop"))
	}
	if err = p.end(stmtEnd); err != nil {
		return nil, err
	}
	p.loops++
	body, err := p.body("endfor", "else")
	p.loops--
	if err != nil {
		return nil, err
	}
	l.body, l.none = &scope{body: body}, &scope{}
	if p.next().text == "else" {
		l.none, err = p.scope("endfor")
		return l, err
	}
	return l, p.end(stmtEnd)
}

func (p *parser) setTag(line int) (stmt, error) {
	to, err := p.target(nil, true)
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		e, err := p.tuple(nil, false, true)
		if err != nil {
			return nil, err
		}
		return assign{line, to, e}, p.end(stmtEnd)
	}
	var filters []filtering
	if p.isOp("|") {
		if filters, err = p.filterChain(false); err != nil {
			return nil, err
		}
	}
	body, err := p.scope("endset")
	return assignBlock{line, to, filters, body}, err
}

func (p *parser) filterTag(line int) (stmt, error) {
	filters, err := p.filterChain(true)
	if err != nil {
		return nil, err
	}
	body, err := p.scope("endfilter")
	return filterBlock{line, filters, body}, err
}

func (p *parser) withTag(line int) (stmt, error) {
	w := with{line: line}
	for p.cur().kind != stmtEnd {
		if len(w.to) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		to, err := p.target(nil, false)
		if err != nil {
			return nil, err
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		e, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		w.to, w.of = append(w.to, to), append(w.of, e)
	}
	var err error
	w.body, err = p.scope("endwith")
	return w, err
}

func (p *parser) macroTag(line int) (stmt, error) {
	name, err := p.ident()
	if err != nil {
		return nil, err
	}
	p.stores[name] = line
	m := &macroDef{line, macroBody{name: name}}
	return m, p.macro(&m.macroBody, true, "endmacro")
}

func (p *parser) callTag(line int) (stmt, error) {
	c := &callBlock{line: line, body: macroBody{name: "caller"}}
	if p.isOp("(") {
		if err := p.signature(&c.body); err != nil {
			return nil, err
		}
	}
	e, err := p.expression(true)
	if err != nil {
		return nil, err
	}
	var ok bool
	if c.call, ok = e.(call); !ok {
		return nil, p.fail("a call block needs a call")
	}
	return c, p.macro(&c.body, false, "endcall")
}

// macro reads a body, after a signature where there is one.
func (p *parser) macro(m *macroBody, signature bool, until string) error {
	if signature {
		if err := p.signature(m); err != nil {
			return err
		}
	}
	p.macros = append(p.macros, m)
	defer func() { p.macros = p.macros[:len(p.macros)-1] }()
	var err error
	m.body, err = p.detached(until)
	return err
}

func (p *parser) signature(m *macroBody) error {
	if err := p.expectOp("("); err != nil {
		return err
	}
	for !p.isOp(")") {
		if len(m.params) > 0 {
			if err := p.expectOp(","); err != nil {
				return err
			}
		}
		name, err := p.ident()
		if err != nil {
			return err
		}
		p.stores[name] = p.cur().line
		m.params = append(m.params, name)
		if p.skipOp("=") {
			e, err := p.expression(true)
			if err != nil {
				return err
			}
			m.defaults = append(m.defaults, e)
		} else if m.defaults != nil {
			return p.fail("a parameter without a default follows one with a default")
		}
	}
	p.next()
	return nil
}

// target reads what is assigned to.
func (p *parser) target(stop []string, attr bool) (target, error) {
	var all []target
	tuple := false
	for len(all) == 0 || p.skipOp(",") {
		if len(all) > 0 {
			tuple = true
			if p.tupleEnd(stop) || p.isOp("=") {
				break
			}
		}
		t, err := p.oneTarget(attr)
		if err != nil {
			return target{}, err
		}
		all = append(all, t)
	}
	if !tuple {
		return all[0], nil
	}
	return target{tuple: all}, nil
}

func (p *parser) oneTarget(attr bool) (target, error) {
	if p.skipOp("(") {
		if err := p.enter(); err != nil {
			return target{}, err
		}
		defer func() { p.depth-- }()
		t, err := p.target(nil, attr)
		if err != nil {
			return target{}, err
		}
		return t, p.expectOp(")")
	}
	name, err := p.ident()
	if err != nil {
		return target{}, err
	}
	if _, constant := constants[name]; constant {
		return target{}, p.fail("cannot assign to %s", name)
	}
	if attr && p.skipOp(".") {
		a, err := p.ident()
		p.loads[name] = p.cur().line
		return target{name: name, attr: a}, err
	}
	p.stores[name] = p.cur().line
	return target{name: name}, nil
}

var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")

	jumps = map[string]error{"break": errBreak, "continue": errContinue}
)
