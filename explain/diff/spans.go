package diff

import (
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// find fills in how the sides stand to each other, where they part, and the spans.
func (c *comparison) find(d *Diff) {
	a, b := c.a.units, c.b.units
	n := wire.CommonPrefix(a, b)
	d.Common, d.Notes = n, c.notes
	switch {
	case n == len(a) && n == len(b):
		d.Relation = Equal
		c.places(d, hunk{n, n, n, n})
		return
	case n == len(a) || n == len(b):
		d.Relation = Extends
		c.places(d, hunk{n, len(a), n, len(b)})
		return
	}
	hunks := align(a, b, n, n)
	c.places(d, hunks[0])
	d.Relation = Parts
	first := c.recognise(hunk{}, hunks)
	alike := c.remedyOf(first) == SameForm && first.Class != WhiteSpace
	if !alike && c.unrelated(hunks) {
		d.Relation = Unrelated
		return
	}
	c.spans(d, first, hunks)
}

// places says where both part: at the first byte of a hunk that differs.
func (c *comparison) places(d *Diff, h hunk) {
	ch := c.change(hunk{}, h)
	d.A, d.B = Place{Byte: -1, Where: c.a.where(-1)}, Place{Byte: -1, Where: c.b.where(-1)}
	if c.a.hasText() {
		d.A = c.a.place(ch.a.from)
	}
	if c.b.hasText() {
		d.B = c.b.place(ch.b.from)
	}
}

func (c *comparison) remedyOf(s Span) Remedy { return classes[s.Class].remedy }

// spans names the differences, of which the first is known, until nothing is left
// or one side ends.
func (c *comparison) spans(d *Diff, s Span, hunks []hunk) {
	a, b := c.a.units, c.b.units
	for {
		c.judge(&s, d.Spans)
		d.Spans = append(d.Spans, s)
		end := hunk{a1: s.A.End, b1: s.B.End}
		run := wire.CommonPrefix(a[end.a1:], b[end.b1:])
		if end.a1+run == len(a) || end.b1+run == len(b) {
			return
		}
		hunks = c.after(hunks, end)
		if len(d.Spans) == MaxSpans {
			d.More = len(hunks)
			return
		}
		s = c.recognise(end, hunks)
	}
}

// after gives the hunks behind a span. Where its ends are not aligned with each
// other, the rest is aligned anew.
func (c *comparison) after(hunks []hunk, end hunk) []hunk {
	for len(hunks) > 0 && hunks[0].a1 <= end.a1 && hunks[0].b1 <= end.b1 {
		hunks = hunks[1:]
	}
	next := hunk{a0: len(c.a.units), b0: len(c.b.units)}
	if len(hunks) > 0 {
		next = hunks[0]
	}
	run := next.a0 - end.a1
	if len(hunks) > 0 && run >= 0 && run == next.b0-end.b1 {
		return hunks
	}
	return align(c.a.units, c.b.units, end.a1, end.b1)
}

// recognise makes a span of the first hunk, by the first recogniser that knows it.
func (c *comparison) recognise(prev hunk, hunks []hunk) Span {
	ch := c.change(prev, hunks[0])
	ch.rest = hunks[1:]
	for _, r := range recognisers {
		if r.text && !ch.text {
			continue
		}
		if f, ok := r.find(ch); ok {
			if h := ch.extents(f); h.a1-ch.h.a0+h.b1-ch.h.b0 > 0 && h.a1 >= ch.h.a0 && h.b1 >= ch.h.b0 {
				return ch.span(f, h)
			}
		}
	}
	f := ch.plain()
	return ch.span(f, ch.extents(f))
}

// judge says what is done about a span.
func (c *comparison) judge(s *Span, before []Span) {
	s.Remedy = c.remedyOf(*s)
	s.Rejoins = s.A.End < len(c.a.units) && s.B.End < len(c.b.units)
	s.Last = c.a.last(s.A) || c.b.last(s.B)
	first := len(before) == 0
	// Behind a difference that stays, no remedy helps.
	s.Remedied = (s.Remedy == SameForm || !s.Last) && (first || classes[s.Class].volatile && before[len(before)-1].Remedied)
}

// last reports whether no content follows an extent.
func (s *side) last(e Extent) bool {
	if !s.hasText() || len(s.p.Parts) == 0 {
		return e.End == len(s.units)
	}
	for i := len(s.p.Parts) - 1; i >= 0; i-- {
		p := s.p.Parts[i]
		if p.Kind != prompt.Markup && p.Kind != prompt.Opening && p.Start < p.End {
			return e.To >= p.End
		}
	}
	return true
}

// unrelated reports whether the sides share so little that the rest is no span:
// less than an eighth of the shorter one's content.
func (c *comparison) unrelated(hunks []hunk) bool {
	const share = 8
	content := func(s *side, in func(h hunk) (int, int)) (all, shared int) {
		sums := s.content()
		all = sums[len(s.units)]
		shared = all
		for _, h := range hunks {
			from, to := in(h)
			shared -= sums[to] - sums[from]
		}
		return all, shared
	}
	allA, sharedA := content(c.a, func(h hunk) (int, int) { return h.a0, h.a1 })
	allB, sharedB := content(c.b, func(h hunk) (int, int) { return h.b0, h.b1 })
	return share*min(sharedA, sharedB) < min(allA, allB)
}

// content counts, for every unit, those before it that the template did not write.
func (s *side) content() []int {
	sums := make([]int, len(s.units)+1)
	for i := range s.units {
		sums[i+1] = sums[i] + 1
	}
	if !s.hasText() || len(s.p.Parts) == 0 {
		return sums
	}
	part := 0
	for i := range s.units {
		for part < len(s.p.Parts)-1 && s.p.Parts[part].End <= s.starts[i] {
			part++
		}
		k := s.p.Parts[part].Kind
		sums[i+1] = sums[i]
		if k != prompt.Markup && k != prompt.Opening {
			sums[i+1]++
		}
	}
	return sums
}
