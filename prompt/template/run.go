package template

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of one render. What a template keeps in memory at once is never more
// than what it made in all.
const (
	maxSource = 1 << 20
	// maxText bounds one text, the result included.
	maxText = 64 << 20
	// maxMade bounds the bytes of all texts and lists that are made on the way.
	maxMade = 512 << 20
	// maxSteps bounds the expressions and statements that are evaluated. Templates
	// that look through all messages for each message need tens of millions for
	// thousands of messages.
	maxSteps = 100_000_000
	// maxDepth bounds how deep evaluation nests, macros within macros included.
	maxDepth = 3000
	// maxRange is the sandbox's own bound.
	maxRange = 100_000

	originSize = 24
	valueSize  = 16
	frameSize  = 64
)

// ErrUnsupported is wrapped by errors that refuse a template for something that
// this package does not implement.
var ErrUnsupported = errors.New("not supported by kvscope's templates")

// ErrLimit is wrapped by errors of templates that do too much.
var ErrLimit = errors.New("the template does too much")

var (
	errText   = fmt.Errorf("%w: a text is longer than %d MiB", ErrLimit, maxText>>20)
	errMade   = fmt.Errorf("%w: it makes more than %d MiB", ErrLimit, maxMade>>20)
	errSteps  = fmt.Errorf("%w: it takes too many steps", ErrLimit)
	errDepth  = fmt.Errorf("%w: it nests deeper than %d", ErrLimit, maxDepth)
	errRange  = fmt.Errorf("%w: a range is longer than %d", ErrLimit, maxRange)
	errSafe   = unsupported("this use of a text that is marked safe")
	errBigInt = unsupported("calculating with integers beyond 64 bits")
)

func unsupported(what string) error { return fmt.Errorf("%s is %w", what, ErrUnsupported) }

func typeError(format string, args ...any) error {
	return fmt.Errorf("type error: "+format, args...)
}

// run is one render: its bounds and what it reads.
type run struct {
	ctx context.Context
	now time.Time
	// steps is what is left of them.
	steps, made, depth int
}

// step counts work that takes about as long whatever it works on.
func (r *run) step() error {
	if r.steps--; r.steps < 0 {
		return errSteps
	}
	if r.steps%1024 == 0 && r.ctx.Err() != nil {
		return fmt.Errorf("the template takes too long: %w", context.Cause(r.ctx))
	}
	return nil
}

// charge counts n bytes that are about to be made.
func (r *run) charge(n int) error {
	if r.made += n; r.made > maxMade {
		return errMade
	}
	return r.step()
}

// enter is a step that nests; leave ends it, also after an error.
func (r *run) enter() error {
	if r.depth++; r.depth > maxDepth {
		return errDepth
	}
	return r.step()
}

func (r *run) leave() { r.depth-- }

// list makes a sequence of items that were made for it.
func (r *run) list(kind seqKind, items []value) (value, error) {
	return &seq{kind: kind, items: items}, r.charge(len(items) * valueSize)
}

// fewVars is how many variables of a scope are kept without a map, which is
// quicker for the many scopes that loops open.
const fewVars = 8

// frame holds the variables of a scope.
type frame struct {
	few  []binding
	more map[string]value
	up   *frame
}

type binding struct {
	name string
	v    value
}

func (f *frame) set(name string, v value) {
	for i := range f.few {
		if f.few[i].name == name {
			f.few[i].v = v
			return
		}
	}
	if len(f.few) < fewVars {
		f.few = append(f.few, binding{name, v})
		return
	}
	if f.more == nil {
		f.more = map[string]value{}
	}
	f.more[name] = v
}

// own gives a variable of this scope alone.
func (f *frame) own(name string) (value, bool) {
	for i := range f.few {
		if f.few[i].name == name {
			return f.few[i].v, true
		}
	}
	v, ok := f.more[name]
	return v, ok
}

func (f *frame) get(name string) (value, bool) {
	for ; f != nil; f = f.up {
		if v, ok := f.own(name); ok {
			return v, true
		}
	}
	return nil, false
}

// frame opens a scope within another.
func (s *scope) frame(up *frame) *frame {
	f := &frame{up: up}
	for _, name := range s.hidden {
		f.set(name, undefined{fmt.Sprintf("%q is undefined", name)})
	}
	return f
}
