package diagnose

import (
	"slices"
	"strings"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// shift says how two chains part that share content behind it.
type shift struct {
	code string
	// token is the first that differs, of the new chain.
	token    int
	kind     diff.Kind
	class    diff.Class
	detail   string
	also     string // what else moves with it, in words
	was, is  int    // tokens of the span
	spelled  bool
	now, can int // blocks reused, and reused if it were moved last or in one form
	total    int // blocks of the shorter chain
	// head names the blocks before it, 0 where there is none.
	head uint64
}

func (s *shift) lost() int { return s.can - s.now }

// ownText reports whether what parts the chains is of one chat, whose next turn is
// rendered otherwise than it was generated: each chat then parts at a place of its own.
func (s *shift) ownText() bool { return s.code == "template-drift" || s.class == diff.JSONSpacing }

// family are chains that part alike. The shift that lost most stands for all.
type family struct {
	id uint32
	shift
	// low and high are where its members parted, and resized says that some differ in
	// length.
	low, high int
	// end is where the newest member went on with what is shared.
	end int
	// from and to are how many tokens its members had in common with another.
	from, to    int
	resized     bool
	members     int
	blocks      int // lost
	size        int
	first, last wire.Time
	hour        hours
}

// Bounds of families.
const (
	maxFamilies = 64
	// above and below are how far apart members may part: the digits of a time are not
	// all new each time. A tokenizer tells where the whole text begins.
	above, below = 32, 8
	precise      = 2
	// short windows know what moved also where it is short.
	short = 8
	// fraction of a chain's blocks must be lost, but to drift: an answer is short beside
	// its chat.
	fraction = 4
	// grown is how many chains make a family that new ones join rather than split.
	grown = 3
	// sure is how many make one that is known well enough: then one new chain in so many is
	// compared in full.
	sure = 8
)

// judge looks at the chains that are whole.
func (m *shifts) judge(at wire.Time, idx *index.Index) {
	for len(m.suspects) > 0 {
		c := m.of(m.suspects[0])
		if c != nil && at-c.last < whole && at-c.first < patience && at >= c.last {
			return
		}
		m.suspects = m.suspects[1:]
		if c != nil {
			c.suspect = false
			m.compare(c, at, idx)
			c.rivals = [rivals]rival{}
		}
	}
}

// compare holds a chain against the one among its rivals that is most alike.
func (m *shifts) compare(c *chain, at wire.Time, idx *index.Index) {
	if c.family != 0 || m.again(c, idx) || !m.budget.spend(at, 0) {
		return
	}
	size := int(c.size)
	most := max(1, min(maxBlocks, maxCompared/size))
	var mine, theirs []wire.Token
	var seqs, others []uint64
	var best *chain
	common := -1
	for _, r := range c.rivals {
		o := m.of(r.chain)
		if o == nil || r.hits < 2 {
			continue
		}
		if mine == nil {
			var ok bool
			if mine, seqs, ok = idx.Lineage(c.tail, size, most); !ok {
				return
			}
		}
		tokens, names, ok := idx.Lineage(o.tail, size, most)
		if !ok {
			continue
		}
		n := prefix(mine, tokens)
		if n > common || n == common && m.membersOf(o) > m.membersOf(best) {
			best, theirs, others, common = o, tokens, names, n
		}
	}
	if best == nil {
		return
	}
	m.budget.spend(at, len(mine)+len(theirs))
	s, ok := m.parted(theirs, mine, size)
	if common == min(len(mine), len(theirs)) {
		s, ok = pictured(best, c, prefix(others, seqs), common/size)
	}
	if s.now > 0 && s.now <= len(seqs) {
		s.head = seqs[s.now-1]
	}
	s.now = max(s.now, min(int(c.there), s.can))
	if ok && s.lost() > 0 && (s.ownText() || fraction*s.lost() >= s.total) {
		m.join(s, best, c, common)
	}
}

// again takes a chain for one more of a well known family where it parts as others did.
func (m *shifts) again(c *chain, idx *index.Index) bool {
	size := int(c.size)
	for _, r := range c.rivals {
		o := m.of(r.chain)
		if o == nil || r.hits < 2 {
			continue
		}
		f := m.family(o.family)
		if f == nil || f.code != "boundary-shift" || f.members < sure || f.members%sure == 0 {
			continue
		}
		most := f.to/size + 1
		mine, _, ok := idx.Lineage(c.tail, size, most)
		theirs, _, okTheirs := idx.Lineage(o.tail, size, most)
		if n := prefix(mine, theirs); ok && okTheirs && n >= f.from && n <= f.to && n < most*size {
			s := f.shift
			s.now = max(s.now, min(int(c.there), s.can))
			f.add(s, c, n)
			return true
		}
	}
	return false
}

func (m *shifts) membersOf(c *chain) int {
	if c != nil {
		if f := m.family(c.family); f != nil {
			return f.members
		}
	}
	return 0
}

func prefix[T comparable](a, b []T) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// codes are the classes that are not of a text that moves.
var codes = map[diff.Class]string{
	diff.KeyOrder: "order-shift", diff.JSONSpacing: "order-shift", diff.ToolOrder: "order-shift", diff.ListOrder: "order-shift",
	diff.ThinkBlock: "template-drift", diff.BOS: "template-drift", diff.Retokenized: "template-drift", diff.ContentJSON: "template-drift",
}

// sides names the chains that a comparison calls A and B.
var sides = strings.NewReplacer(" in A", " in the older", " in B", " in the newer")

// parted says how b parts from a.
func (m *shifts) parted(a, b []wire.Token, size int) (shift, bool) {
	pa, pb := explain.Spelled(&prompt.Prompt{Tokens: a}, m.speech), explain.Spelled(&prompt.Prompt{Tokens: b}, m.speech)
	d, err := diff.Compare(pa, pb, diff.Options{BlockSize: size})
	if err != nil {
		return shift{}, false
	}
	s, ok := displaced(a, b, size)
	if o, moved := permuted(a, b, size); moved && o.lost() > s.lost() {
		s, ok = o, true
	}
	if s.spelled = !d.NeedsText; d.Relation != diff.Parts {
		return s, ok
	}
	// What is written there tells more, where it explains as much.
	p := &d.Spans[0]
	known := codes[p.Class]
	if p.Class == diff.BOS && p.Detail != "doubled" && !s.spelled {
		return s, ok // any token may look like one that is missing
	}
	switch {
	case known == "" && s.code == "order-shift" && s.lost() > d.Reuse.Lost:
		return s, true
	case known == "":
		known = "boundary-shift"
	}
	s.code, s.token, s.class, s.detail = known, p.B.Start, p.Class, sides.Replace(p.Detail)
	if s.spelled || d.Reuse.Lost >= s.lost() {
		s.kind, s.was, s.is = p.Kind, p.A.End-p.A.Start, p.B.End-p.B.Start
	}
	s.also = alongside(d.Spans)
	s.now, s.can = d.Reuse.Now, max(d.Reuse.Moved, s.can)
	s.total = max(min(len(a), len(b))/size, s.can)
	return s, true
}

// alongside names the spans behind the first that are remedied with it, each class once.
func alongside(spans []diff.Span) string {
	var out []string
	for i := range spans[1:] {
		s := &spans[1+i]
		name := s.Class.String()
		if s.Remedied && s.Class != spans[0].Class && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

// permuted knows chains that go on with the same content in another order, though
// a stored chain ends with a full block, amid the content.
func permuted(a, b []wire.Token, size int) (shift, bool) {
	n := prefix(a, b)
	total := min(len(a), len(b)) / size
	places, _ := shared(a[n:], b[n:], short)
	// Windows across the seams of what moved are in one of them only.
	least := min(len(a), len(b)) - n
	if 2*len(places) < least || least < 2*gram || 8*rising(places) > 7*len(places) {
		return shift{}, false
	}
	return shift{
		code: "order-shift", token: n, class: diff.ListOrder, was: len(a) - n, is: len(b) - n,
		now: n / size, can: total, total: total,
	}, true
}

// shared gives the windows of k tokens of b that a has too, each once: where they are in a, and
// in b.
func shared(a, b []wire.Token, k int) (inA, inB []int) {
	at := make(map[uint64]int, len(a))
	windows(a, k, 0, func(i int, sum uint64) {
		if _, before := at[sum]; !before {
			at[sum] = i
		}
	})
	windows(b, k, 0, func(j int, sum uint64) {
		if i, ok := at[sum]; ok {
			inA, inB = append(inA, i), append(inB, j)
			delete(at, sum)
		}
	})
	return inA, inB
}

// displaced knows chains that share a long run behind what differs, in which there
// may be chance likenesses: digits of a time, say.
func displaced(a, b []wire.Token, size int) (shift, bool) {
	n := prefix(a, b)
	inA, inB := shared(a[n:], b[n:], gram)
	if len(inA) == 0 {
		return shift{}, false
	}
	was, is := inA[0], inB[0]
	for was > 0 && is > 0 && a[n+was-1] == b[n+is-1] {
		was, is = was-1, is-1
	}
	total := min(len(a), len(b)) / size
	restA, restB := a[n+was:], b[n+is:]
	run := prefix(restA, restB)
	if run == min(len(restA), len(restB)) {
		// The last tokens of a prompt are in no full block, the more the longer its span
		// is. They are taken to be those of the other chain.
		run += min(size-1, max(was, is)-min(was, is), max(len(restA), len(restB))-run)
	}
	s := shift{
		code: "boundary-shift", token: n, kind: diff.Resized, was: was, is: is,
		now: n / size, can: min((n+run)/size, total), total: total,
	}
	if was == is {
		s.kind = diff.Replaced
	}
	return s, true
}

// rising is the length of the longest chain that rises.
func rising(places []int) int {
	var ends []int
	for _, p := range places {
		if n, _ := slices.BinarySearch(ends, p); n == len(ends) {
			ends = append(ends, p)
		} else {
			ends[n] = p
		}
	}
	return len(ends)
}

// pictured says how two chains part that have the same tokens in other blocks: by
// pictures and what else is no text.
func pictured(a, b *chain, now, total int) (shift, bool) {
	behind := int(max(a.pictures, b.pictures))
	return shift{
		code: "multimodal-first", token: now * int(b.size), now: now, can: now + max(total-max(behind, now), 0), total: total,
	}, a.pictures > 0 && b.pictures > 0
}

func (m *shifts) family(id uint32) *family {
	for _, f := range m.families {
		if f.id == id && id != 0 {
			return f
		}
	}
	return nil
}

// join makes two chains members of a family.
func (m *shifts) join(s shift, old, c *chain, common int) {
	f := m.family(old.family)
	n := s.token
	if s.ownText() {
		f = nil
		for _, other := range m.families {
			if other.code == s.code && other.class == s.class && other.spelled == s.spelled {
				f = other
			}
		}
	}
	if f == nil && !s.ownText() { // what is shared may be of one chat alone, where they part the same for all
		for _, other := range m.families {
			if s.head != 0 && other.head == s.head && (s.spelled || s.code == "order-shift") && other.like(&s) {
				f = other
			}
		}
	}
	switch {
	case f != nil && s.ownText():
	case f == nil || !f.like(&s):
		f = m.found(s, old, c)
	case f.members < grown && n > f.low+2 && s.code != "order-shift":
		// What they have in common is more than what made the family.
		f = m.found(s, old, c)
	}
	f.add(s, c, common)
}

// like reports whether a shift may be one of the family's.
func (f *family) like(s *shift) bool {
	if f.code != s.code || f.spelled != s.spelled {
		return false
	}
	if s.code == "order-shift" {
		return true // any item may be the first that moved
	}
	if s.spelled && s.code == "boundary-shift" {
		return s.class == f.class && s.token >= f.low-precise && s.token <= f.high+precise
	}
	if end := s.token + s.is; s.token < f.low && (end < f.end-below || end > f.end+below) {
		return false // it parts where no member did, and goes on elsewhere
	}
	return s.token >= f.low-below && s.token <= f.high+above
}

// found makes a family of which an older chain is the first member. One that has not
// grown is only a pair.
func (m *shifts) found(s shift, old, c *chain) *family {
	if len(m.families) >= maxFamilies {
		least := slices.MinFunc(m.families, func(a, b *family) int {
			if small := min(a.members, grown) - min(b.members, grown); small != 0 {
				return small
			}
			return int(max(min(a.last-b.last, 1), -1))
		})
		m.families = slices.DeleteFunc(m.families, func(f *family) bool { return f == least })
	}
	m.named++
	f := &family{id: m.named, shift: s, low: s.token, high: s.token, end: s.token + s.is, members: 1, size: int(c.size), first: old.first, last: old.last}
	m.families = append(m.families, f)
	if was := m.family(old.family); was == nil || was.members < grown {
		old.family = f.id
	}
	return f
}

func (f *family) add(s shift, c *chain, common int) {
	if s.lost() >= f.lost() || s.spelled != f.spelled {
		f.shift = s // a chain's last tokens are in no full block, so all are lower bounds
	}
	f.low, f.high, f.end = min(f.low, s.token), max(f.high, s.token), s.token+s.is
	if f.members == 1 {
		f.from, f.to = common, common
	}
	f.from, f.to = min(f.from, common), max(f.to, common)
	f.resized = f.resized || s.kind == diff.Resized
	f.members++
	f.blocks += s.lost()
	f.first, f.last = min(f.first, c.first), max(f.last, c.first)
	f.hour.add(c.first, 1, s.lost())
	c.family = f.id
}
