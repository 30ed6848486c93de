package diff

import "unicode/utf8"

// change is one difference, as recognisers see it.
type change struct {
	c    *comparison
	h    hunk
	rest []hunk // those behind it
	prev hunk   // where the span before ended: its a1 and b1
	// text is set where the text of both sides is known; else only tokens are.
	text bool
	a, b zone
}

// zone is one side of a change: the bytes that differ, and low, from where on the
// text before them is alike on both sides. Without text all are 0.
type zone struct {
	s             *side
	low, from, to int
}

// before gives at most n bytes of what both sides have before the zone.
func (z *zone) before(n int) string { return z.s.text[max(z.low, z.from-n):z.from] }

// here gives what differs.
func (z *zone) here() string { return z.s.text[z.from:z.to] }

// found is what a recogniser made of a change: a range of bytes on both sides, each
// beginning as far before the change as the other, and holding all that it means.
type found struct {
	class  Class
	detail string
	a, b   [2]int
	// tokens holds the units where there is no text, or where it does not tell.
	tokens *hunk
}

// recognisers are asked in this order: those who know a whole structure before
// those who know a value in it.
var recognisers = [...]struct {
	text bool // it needs the text of both sides
	find func(*change) (found, bool)
}{
	{false, (*change).bos},
	{true, (*change).think},
	{true, (*change).retokenized},
	{true, (*change).contentJSON},
	{true, (*change).userText},
	{true, (*change).header},
	{true, (*change).json},
	{true, (*change).lines},
	{true, (*change).items},
	{true, (*change).gitStatus},
	{true, (*change).fileList},
	{true, (*change).value},
	{true, (*change).whiteSpace},
	{false, (*change).tokenOrder},
}

func (c *comparison) change(prev, h hunk) *change {
	ch := &change{c: c, h: h, prev: prev, a: zone{s: c.a}, b: zone{s: c.b}}
	ch.text = c.a.hasText() && c.b.hasText()
	if c.a.hasText() {
		ch.a.from, ch.a.to = c.a.starts[h.a0], c.a.starts[h.a1]
	}
	if c.b.hasText() {
		ch.b.from, ch.b.to = c.b.starts[h.b0], c.b.starts[h.b1]
	}
	if !ch.text {
		return ch
	}
	ta, tb := ch.a.here(), ch.b.here()
	n := textPrefix(ta, tb)
	if n == len(ta) && n == len(tb) {
		n = 0 // the same text in other tokens
	}
	ch.a.from, ch.b.from = ch.a.from+n, ch.b.from+n
	if n < len(ta) || n < len(tb) {
		n = textSuffix(ta[n:], tb[n:])
		if ta != tb {
			ch.a.to, ch.b.to = ch.a.to-n, ch.b.to-n
		}
	}
	// A token may end within a character.
	lowA, lowB := c.a.starts[prev.a1], c.b.starts[prev.b1]
	ch.a.from, ch.a.to = max(floorRune(c.a.text, ch.a.from), lowA), ceilRune(c.a.text, ch.a.to)
	ch.b.from, ch.b.to = max(floorRune(c.b.text, ch.b.from), lowB), ceilRune(c.b.text, ch.b.to)
	// Where the same tokens stand for other text, as normalizers make it, what is
	// before is alike only so far.
	back := min(ch.a.from-lowA, ch.b.from-lowB, maxBack)
	n = textSuffix(c.a.text[ch.a.from-back:ch.a.from], c.b.text[ch.b.from-back:ch.b.from])
	ch.a.low, ch.b.low = ch.a.from-n, ch.b.from-n
	return ch
}

// maxBack is how far a span may begin before what differs, in bytes.
const maxBack = 256 << 10

// extents gives the units of what was found: all that hold a byte of it, and those
// of the change that it covers.
func (ch *change) extents(f found) hunk {
	if f.tokens != nil {
		return *f.tokens
	}
	h := ch.h
	a0, a1 := ch.c.a.covering(f.a[0], f.a[1])
	b0, b1 := ch.c.b.covering(f.b[0], f.b[1])
	n := max(h.a0-a0, h.b0-b0, 0)
	n = max(min(n, h.a0-ch.prev.a1, h.b0-ch.prev.b1), 0)
	if f.a[1] >= ch.a.to && f.b[1] >= ch.b.to {
		a1, b1 = max(a1, h.a1), max(b1, h.b1)
	}
	h = hunk{h.a0 - n, a1, h.b0 - n, b1}
	h.a1, h.b1 = max(h.a0, h.a1), max(h.b0, h.b1)
	return ch.even(f, h)
}

// even moves the ends of units on to where both sides have as much behind what was
// found: a token may hold its end and the beginning of what is alike.
func (ch *change) even(f found, h hunk) hunk {
	const tries = 8
	a, b := ch.c.a, ch.c.b
	for range tries {
		overA, overB := a.starts[h.a1]-f.a[1], b.starts[h.b1]-f.b[1]
		n := max(overA, overB)
		if overA == overB || f.a[1]+n > len(a.text) || f.b[1]+n > len(b.text) ||
			a.text[f.a[1]:f.a[1]+n] != b.text[f.b[1]:f.b[1]+n] {
			break
		}
		if overA < n {
			_, h.a1 = a.covering(f.a[0], f.a[1]+n)
		} else {
			_, h.b1 = b.covering(f.b[0], f.b[1]+n)
		}
	}
	return h
}

// span puts together what is known.
func (ch *change) span(f found, h hunk) Span {
	s := Span{Class: f.class, Detail: f.detail, Grows: (h.b1 - h.b0) - (h.a1 - h.a0)}
	if s.Grows != 0 {
		s.Kind = Resized
	}
	s.A = ch.a.s.extent(h.a0, h.a1, f.a, f.tokens != nil)
	s.B = ch.b.s.extent(h.b0, h.b1, f.b, f.tokens != nil)
	return s
}

// extent describes units, and bytes where they are known or asked of the units.
func (s *side) extent(start, end int, bytes [2]int, ask bool) Extent {
	e := Extent{Start: start, End: end, From: -1, To: -1, Where: s.where(-1)}
	if !s.hasText() {
		return e
	}
	e.From, e.To = bytes[0], bytes[1]
	if ask {
		e.From = ceilRune(s.text, s.starts[start])
		e.To = max(e.From, floorRune(s.text, s.starts[end]))
	}
	e.Where = s.where(e.From)
	e.Text = s.clip(e.From, e.To)
	return e
}

// plain is what a change is to those who know no better.
func (ch *change) plain() found {
	f := found{class: Edit, a: [2]int{ch.a.from, ch.a.to}, b: [2]int{ch.b.from, ch.b.to}}
	noA, noB := ch.a.from == ch.a.to, ch.b.from == ch.b.to
	if !ch.text {
		f.tokens = &ch.h
		noA, noB = ch.h.a0 == ch.h.a1, ch.h.b0 == ch.h.b1
	}
	switch {
	case noA:
		f.class = Insertion
	case noB:
		f.class = Deletion
	}
	if ch.text && f.class == Edit {
		f.words(ch)
	}
	if ch.text && noA != noB {
		if noA {
			f.slide(ch, &ch.b)
		} else {
			f.slide(ch, &ch.a)
		}
		f.emptied(ch)
	}
	return f
}

// words widens an edit to whole words.
func (f *found) words(ch *change) {
	const far = 32
	a, b := ch.a.s.text, ch.b.s.text
	inner := func(c byte) bool {
		return c >= utf8.RuneSelf || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
	}
	for range far {
		if f.a[0] == ch.a.low || !inner(a[f.a[0]-1]) {
			break
		}
		f.a[0], f.b[0] = f.a[0]-1, f.b[0]-1
	}
	for range far {
		if f.a[1] == len(a) || f.b[1] == len(b) || a[f.a[1]] != b[f.b[1]] || !inner(a[f.a[1]]) {
			break
		}
		f.a[1], f.b[1] = f.a[1]+1, f.b[1]+1
	}
	f.a[0], f.b[0] = ceilRune(a, f.a[0]), ceilRune(b, f.b[0])
	f.a[1], f.b[1] = floorRune(a, f.a[1]), floorRune(b, f.b[1])
}

// slide moves a text that only one side has to where it begins best: what begins
// like the text behind it could as well have begun earlier.
func (f *found) slide(ch *change, z *zone) {
	const far = 64
	text := z.s.text
	best, score := 0, 0
	for n := 0; n <= far && z.from-n >= z.low; n++ {
		if n > 0 && text[z.from-n] != text[z.to-n] {
			break
		}
		if s := beginning(text, z.from-n); s > score {
			best, score = n, s
		}
	}
	f.a[0], f.a[1] = ch.a.from-best, ch.a.to-best
	f.b[0], f.b[1] = ch.b.from-best, ch.b.to-best
}

// beginning says how much a place looks like the beginning of something.
func beginning(text string, at int) int {
	switch {
	case at == 0 || text[at-1] == '\n':
		return 3
	case at < len(text) && (text[at] == '<' || text[at] == '{' || text[at] == '['):
		return 2
	case text[at-1] == ' ':
		return 1
	}
	return 0
}

// emptied says where the content of a whole message is missing.
func (f *found) emptied(ch *change) {
	z, r := &ch.a, f.a
	if f.class == Insertion {
		z, r = &ch.b, f.b
	}
	for _, p := range z.s.p.Parts {
		if p.Message >= 0 && p.Start < p.End && p.Start >= r[0] && p.Start <= r[0] && p.End <= r[1] {
			f.detail = "a whole content"
			return
		}
	}
}
