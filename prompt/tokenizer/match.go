package tokenizer

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// matcher is a compiled pattern. Every set of the pattern is a bit, and a
// character is the bits of the sets that hold it, so that a step of a match is one
// look-up, whatever the sets are. Its tables are filled as text needs them.
//
// It is safe for concurrent use.
type matcher struct {
	program []inst
	sets    []set
	ascii   [utf8.RuneSelf]uint64
	pages   [(unicode.MaxRune + 1) / pageSize]atomic.Pointer[[pageSize]uint64]
}

const (
	pageSize = 256

	// anything is in every character's bits, and what a branch may begin with when
	// it may begin with nothing.
	anything = 1 << 63
	maxSets  = 63

	maxProgram = 20_000

	// A match may take so many steps for each byte of a text. Patterns in use take
	// below 30; one that tries all ways through a text would never end.
	stepsPerByte = 500
	maxDepth     = 10_000
)

// inst is an instruction. Those with x are followed by their inner program.
type inst struct {
	op       code
	bit      uint64 // of inSet, inSpan
	min, max int    // of inSpan; max is -1 for no bound
	mode     mode   // of inSpan
	last     bool   // of inSpan: nothing follows
	first    uint64 // of inSplit: what the inner program may begin with
	x        int    // where to go on: else (inSplit), after it (inAhead, inAtomic), inJump
	negative bool   // of inAhead
}

type code uint8

const (
	inSet code = iota
	inSpan
	inSplit
	inJump
	inAhead
	inAtomic
	inEnd
	inMatch
)

func compilePattern(text string) (*matcher, error) {
	n, err := parsePattern(text)
	if err != nil {
		return nil, err
	}
	m := &matcher{}
	nullable, _, err := m.first(n)
	if err != nil {
		return nil, err
	}
	if nullable {
		return nil, errors.New("it can match nothing, which is not implemented")
	}
	if err := m.emit(n); err != nil {
		return nil, err
	}
	m.add(inst{op: inMatch})
	for i := range m.program {
		if in := &m.program[i]; in.op == inSpan {
			in.last = m.program[i+1].op == inMatch
		}
	}
	for c := range m.ascii {
		m.ascii[c] = m.mask(rune(c))
	}
	return m, nil
}

// bit gives the bit of a set, 0 if there are too many.
func (m *matcher) bit(s set) uint64 {
	for i, have := range m.sets {
		if equalSets(have, s) {
			return 1 << i
		}
	}
	if len(m.sets) == maxSets {
		return 0
	}
	m.sets = append(m.sets, s)
	return 1 << (len(m.sets) - 1)
}

func equalSets(a, b set) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// first tells whether a node can match nothing, and the bits of what it can begin
// with.
func (m *matcher) first(n *node) (nullable bool, bits uint64, err error) {
	switch n.op {
	case opSet:
		if bits = m.bit(n.set); bits == 0 {
			err = fmt.Errorf("it has more than %d different classes", maxSets)
		}
		return false, bits, err
	case opAhead, opEnd:
		for _, sub := range n.subs {
			if _, _, err := m.first(sub); err != nil {
				return false, 0, err
			}
		}
		return true, 0, nil
	case opAlt:
		for _, sub := range n.subs {
			empty, b, err := m.first(sub)
			if err != nil {
				return false, 0, err
			}
			nullable, bits = nullable || empty, bits|b
		}
		return nullable, bits, nil
	case opRepeat:
		nullable, bits, err = m.first(n.subs[0])
		if nullable && err == nil {
			err = errors.New("a repeated part that can match nothing is not implemented")
		}
		return n.min == 0, bits, err
	}
	nullable = true // opCat, opAtomic
	for _, sub := range n.subs {
		empty, b, err := m.first(sub)
		if err != nil {
			return false, 0, err
		}
		if nullable {
			bits |= b
		}
		nullable = nullable && empty
	}
	return nullable, bits, nil
}

func (m *matcher) add(in inst) int {
	m.program = append(m.program, in)
	return len(m.program) - 1
}

func (m *matcher) emit(n *node) error {
	if len(m.program) > maxProgram {
		return errors.New("it is too long once its counts are written out")
	}
	switch n.op {
	case opSet:
		m.add(inst{op: inSet, bit: m.bit(n.set)})
	case opEnd:
		m.add(inst{op: inEnd})
	case opCat:
		for _, sub := range n.subs {
			if err := m.emit(sub); err != nil {
				return err
			}
		}
	case opAlt:
		return m.emitAlt(n)
	case opRepeat:
		return m.emitRepeat(n)
	case opAhead, opAtomic:
		op := inAhead
		if n.op == opAtomic {
			op = inAtomic
		}
		return m.inner(op, n.subs[0], n.negative)
	}
	return nil
}

// inner emits a program of its own, which ends with a match.
func (m *matcher) inner(op code, n *node, negative bool) error {
	at := m.add(inst{op: op, negative: negative})
	if err := m.emit(n); err != nil {
		return err
	}
	m.add(inst{op: inMatch})
	m.program[at].x = len(m.program)
	return nil
}

// branch emits a split before n, whose else is to be set.
func (m *matcher) branch(n *node) (int, error) {
	nullable, bits, err := m.first(n)
	if err != nil {
		return 0, err
	}
	if nullable {
		bits = anything
	}
	at := m.add(inst{op: inSplit, first: bits})
	return at, m.emit(n)
}

func (m *matcher) emitAlt(n *node) error {
	var jumps []int
	for i, sub := range n.subs {
		if i == len(n.subs)-1 {
			if err := m.emit(sub); err != nil {
				return err
			}
			continue
		}
		at, err := m.branch(sub)
		if err != nil {
			return err
		}
		jumps = append(jumps, m.add(inst{op: inJump}))
		m.program[at].x = len(m.program)
	}
	for _, j := range jumps {
		m.program[j].x = len(m.program)
	}
	return nil
}

func (m *matcher) emitRepeat(n *node) error {
	sub := n.subs[0]
	if sub.op == opSet {
		m.add(inst{op: inSpan, bit: m.bit(sub.set), min: n.min, max: n.max, mode: n.mode})
		return nil
	}
	switch n.mode {
	case lazy:
		return errors.New("a lazy repetition of a group is not implemented")
	case possessive:
		plain := *n
		plain.mode = greedy
		return m.inner(inAtomic, &plain, false)
	}
	for range n.min {
		if err := m.emit(sub); err != nil {
			return err
		}
	}
	if n.max < 0 {
		at, err := m.branch(sub)
		if err != nil {
			return err
		}
		m.add(inst{op: inJump, x: at})
		m.program[at].x = len(m.program)
		return nil
	}
	var splits []int
	for range n.max - n.min {
		at, err := m.branch(sub)
		if err != nil {
			return err
		}
		splits = append(splits, at)
	}
	for _, at := range splits {
		m.program[at].x = len(m.program)
	}
	return nil
}

func (m *matcher) mask(r rune) uint64 {
	bits := uint64(anything)
	for i, s := range m.sets {
		if s.has(r) {
			bits |= 1 << i
		}
	}
	return bits
}

// at gives the bits of the character at pos, and its length.
func (m *matcher) at(text string, pos int) (uint64, int) {
	if c := text[pos]; c < utf8.RuneSelf {
		return m.ascii[c], 1
	}
	r, n := utf8.DecodeRuneInString(text[pos:])
	page := m.pages[r/pageSize].Load()
	if page == nil {
		page = new([pageSize]uint64)
		for i := range page {
			page[i] = m.mask(r - r%pageSize + rune(i))
		}
		m.pages[r/pageSize].Store(page)
	}
	return page[r%pageSize], n
}

// match is one text's way through a matcher.
type match struct {
	*matcher
	text  string
	left  *int // steps
	depth int
}

var errSteps = errors.New("a pattern of the tokenizer takes too long on this text: ask the engine's own tokenizer instead")

// find gives the first match at or after from.
func (m *matcher) find(text string, from int, left *int) (start, end int, ok bool, err error) {
	run := match{matcher: m, text: text, left: left}
	for start = from; start < len(text); {
		if end, ok = run.from(0, start); ok {
			return start, end, true, nil
		}
		if *left < 0 {
			return 0, 0, false, errSteps
		}
		start++
		for start < len(text) && !utf8.RuneStart(text[start]) {
			start++
		}
	}
	return 0, 0, false, nil
}

// from runs the program from pc on and gives where its match ends.
func (m *match) from(pc, pos int) (int, bool) {
	m.depth++
	defer func() { m.depth-- }()
	if m.depth > maxDepth {
		*m.left = -1
	}
	for {
		if *m.left--; *m.left < 0 {
			return 0, false
		}
		in := &m.program[pc]
		switch in.op {
		case inMatch:
			return pos, true
		case inEnd:
			if pos < len(m.text) && m.text[pos] != '\n' {
				return 0, false
			}
			pc++
		case inJump:
			pc = in.x
		case inSet:
			if pos == len(m.text) {
				return 0, false
			}
			bits, n := m.at(m.text, pos)
			if bits&in.bit == 0 {
				return 0, false
			}
			pos += n
			pc++
		case inSpan:
			end, ok := m.span(in, pc, pos)
			if !ok || in.last || in.mode != possessive {
				return end, ok
			}
			pos = end
			pc++
		case inSplit:
			bits := uint64(anything)
			if pos < len(m.text) {
				bits, _ = m.at(m.text, pos)
			}
			if bits&in.first != 0 {
				if end, ok := m.from(pc+1, pos); ok {
					return end, true
				}
			}
			pc = in.x
		case inAhead:
			if _, ok := m.from(pc+1, pos); ok == in.negative {
				return 0, false
			}
			pc = in.x
		case inAtomic:
			end, ok := m.from(pc+1, pos)
			if !ok {
				return 0, false
			}
			pos = end
			pc = in.x
		}
	}
}

// span matches a repeated set, and what follows it unless nothing follows or it
// is possessive.
func (m *match) span(in *inst, pc, pos int) (int, bool) {
	count, start := 0, pos
	more := func(limit int) {
		for pos < len(m.text) && count != limit {
			bits, n := m.at(m.text, pos)
			if bits&in.bit == 0 {
				return
			}
			pos += n
			count++
		}
	}
	if in.mode == lazy {
		for more(in.min); count >= in.min; {
			if end, ok := m.from(pc+1, pos); ok {
				return end, true
			}
			before := count
			if more(count + 1); count == before || in.max >= 0 && count > in.max {
				break
			}
		}
		return 0, false
	}
	more(in.max)
	*m.left -= pos - start
	if count < in.min {
		return 0, false
	}
	if in.last || in.mode == possessive {
		return pos, true
	}
	for {
		if end, ok := m.from(pc+1, pos); ok {
			return end, true
		}
		if count == in.min {
			return 0, false
		}
		count--
		pos--
		for !utf8.RuneStart(m.text[pos]) {
			pos--
		}
	}
}
