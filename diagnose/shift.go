package diagnose

import (
	"maps"
	"slices"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// shifts finds chains that share content though not their blocks: it remembers
// fingerprints of what was stored lately. When a new chain has the same windows of
// tokens as another one, behind another head, the two are compared. Pairs that part
// alike are a family.
type shifts struct {
	speech explain.Speech
	// prints are rows of ways, twice as many whenever half of them are taken.
	prints []print
	taken  int
	// chains are those stored last, the chain named id at id modulo maxChains.
	chains []chain
	next   uint32
	// tails finds a chain by its last block.
	tails map[uint64]uint32
	// heard is a batch that the index has only taken at the next step.
	heard heard
	// suspects are chains to be compared with others once they are whole, oldest
	// first.
	suspects []uint32
	families []*family
	named    uint32
	budget   allowance
	requests hours
	plateaus plateaus
}

// Bounds of what is remembered and looked at.
const (
	gram      = 16 // tokens of a window
	ways      = 4  // prints to a row
	fewPrints = 1 << 10
	maxPrints = 1 << 16
	maxChains = 1 << 13
	rivals    = 4 // chains that a new one is held against
	// maxSuspects bounds the chains that wait, and maxBlocks what is looked at of one.
	maxSuspects = 256
	maxBlocks   = 4096
	maxCompared = 48 << 10 // tokens of one chain
	// whole is how long nothing was added to a chain until it is looked at, and patience
	// how long that may take.
	whole    = wire.Time(1500e6)
	patience = wire.Time(30e9)
	// pause parts two requests of which one goes on where the other ended.
	pause = wire.Time(5e9)
	// rate is how many tokens are compared in a second, and hoard what may be saved up.
	rate, hoard = 32 << 10, 128 << 10
)

// print is a window's fingerprint, and where it is.
type print struct {
	sum, seq uint64 // seq names the block in which it begins
	chain    uint32
}

// chain is what one request stored, with what lay before it.
type chain struct {
	id, family  uint32
	size        int32
	depth       int32  // blocks
	there       int32  // of these, those that were there when it began
	pictures    int32  // blocks up to the last that other things than tokens make
	plateau     uint32 // at which its reuse ended, of its newest turn
	single      bool   // its newest store was one block, as in an answer
	tail        uint64
	ns          blockhash.Namespace
	first, last wire.Time
	rivals      [rivals]rival
	suspect     bool
}

// rival is another chain that has windows of this one.
type rival struct {
	chain, hits uint32
}

type heard struct {
	replica wire.Replica
	at      wire.Time
	batch   *wire.Batch
}

func newShifts() Memory { return &shifts{tails: map[uint64]uint32{}} }

// Clone implements Memory.
func (m *shifts) Clone() Memory {
	c := *m
	c.prints, c.chains = slices.Clone(m.prints), slices.Clone(m.chains)
	c.tails, c.suspects = maps.Clone(m.tails), slices.Clone(m.suspects)
	c.plateaus = m.plateaus.clone()
	c.families = make([]*family, len(m.families))
	for i, f := range m.families {
		one := *f
		c.families[i] = &one
	}
	return &c
}

// Size is about how many bytes it takes.
func (m *shifts) Size() int {
	const printSize, chainSize, tailSize, familySize, plateauSize = 24, 120, 32, 1 << 10, 4 << 10
	return printSize*cap(m.prints) + chainSize*cap(m.chains) + tailSize*len(m.tails) + familySize*len(m.families) + plateauSize*len(m.plateaus.all)
}

// Speak gives what turns tokens into text.
func (m *shifts) Speak(s explain.Speech) { m.speech = s }

// Step implements Memory. A store can only be placed once the index has taken it,
// which is one step later.
func (m *shifts) Step(s *stream.Step, idx *index.Index) {
	m.Pass(s.At, idx)
	if s.Kind == stream.Apply {
		m.heard = heard{s.Replica, s.At, s.Batch}
	}
}

// Pass looks at what the index has taken, and at the chains that are whole by now.
func (m *shifts) Pass(at wire.Time, idx *index.Index) {
	if b := m.heard.batch; b != nil {
		for i := range b.Events {
			if e := &b.Events[i]; e.Kind == wire.Stored && e.Tier == wire.Device && e.Aligned() {
				m.stored(e, idx)
			}
		}
		m.heard.batch = nil
	}
	m.judge(at, idx)
}

// of gives a chain that is still remembered, nil else.
func (m *shifts) of(id uint32) *chain {
	if i := id % maxChains; id != 0 && int(i) < len(m.chains) && m.chains[i].id == id {
		return &m.chains[i]
	}
	return nil
}

// begin makes a chain, for which the oldest is forgotten.
func (m *shifts) begin() *chain {
	if m.next++; m.next == 0 {
		m.next = 1 // old names are long forgotten
	}
	for int(m.next%maxChains) >= len(m.chains) {
		m.chains = append(m.chains, chain{})
	}
	c := &m.chains[m.next%maxChains]
	if m.tails[c.tail] == c.id {
		delete(m.tails, c.tail)
	}
	*c = chain{id: m.next, first: m.heard.at}
	return c
}

// stored takes a store that the index has taken.
func (m *shifts) stored(e *wire.Event, idx *index.Index) {
	at, name := m.heard.at, m.heard.replica
	first, ok := idx.Resolve(name, e.Hashes[0])
	last := first
	if n := len(e.Hashes); n > 1 {
		okLast := false
		last, okLast = idx.Resolve(name, e.Hashes[n-1])
		ok = ok && okLast
	}
	if !ok || last.Depth != first.Depth+len(e.Hashes)-1 {
		return
	}
	c := m.of(m.tails[first.Parent])
	if c == nil || first.Parent == 0 || at-c.last > pause || c.size != int32(e.BlockSize) {
		c = m.begin()
		c.there = int32(first.Depth - 1)
		c.plateau = m.plateaus.begin(at, first, e, idx.Holders(e.Hashes[0]))
		m.requests.add(at, 1, 0)
	} else {
		m.plateaus.goOn(at, c, len(e.Hashes))
	}
	m.requests.add(at, 0, len(e.Hashes))
	m.plateaus.add(c.plateau, at, len(e.Hashes))
	c.single = len(e.Hashes) == 1
	if m.tails[c.tail] == c.id {
		delete(m.tails, c.tail)
	}
	c.size, c.ns, c.tail, c.depth, c.last = int32(e.BlockSize), last.Namespace, last.Seq, int32(last.Depth), at
	m.tails[c.tail] = c.id
	for i, keys := range e.Extra[:min(len(e.Extra), len(e.Hashes))] {
		if slices.ContainsFunc(keys, func(k wire.ExtraKey) bool { return k.List != nil }) {
			c.pictures = int32(first.Depth + i)
		}
	}
	m.take(c, e, first.Seq, idx)
	if c.rivals[0].chain != 0 && !c.suspect {
		if len(m.suspects) >= maxSuspects {
			return
		}
		c.suspect = true
		m.suspects = append(m.suspects, c.id)
	}
}

// take notes the windows of a store, whose first block is called seq, and who else
// has them.
func (m *shifts) take(c *chain, e *wire.Event, seq uint64, idx *index.Index) {
	size := e.BlockSize
	tokens := e.Tokens[:min(len(e.Tokens), maxBlocks*size)]
	mask := uint64(7) // of long stores fewer: what remains is among those of short ones
	for n := len(tokens); n > 1024 && mask < 255; n /= 4 {
		mask = mask<<2 | 3
	}
	block := 0
	windows(tokens, gram, mask, func(at int, sum uint64) {
		if b := at / size; b != block {
			k, ok := idx.Resolve(m.heard.replica, e.Hashes[min(b, len(e.Hashes)-1)])
			if block, seq = b, k.Seq; !ok {
				seq = 0
			}
		}
		if seq != 0 {
			m.note(c, sum, seq)
		}
	})
}

// row is where a window's print may be.
func (m *shifts) row(sum uint64) []print {
	return m.prints[int(sum>>20)%(len(m.prints)/ways)*ways:][:ways]
}

// grow makes room for more prints.
func (m *shifts) grow() {
	old := m.prints
	m.prints, m.taken = make([]print, max(fewPrints, 2*len(old))), 0
	for _, p := range old {
		if p.sum == 0 {
			continue
		}
		row := m.row(p.sum)
		if i := slices.IndexFunc(row, func(q print) bool { return q.sum == 0 }); i >= 0 {
			row[i] = p
			m.taken++
		}
	}
}

// note looks a window up, and enters it.
func (m *shifts) note(c *chain, sum, seq uint64) {
	if 2*m.taken >= len(m.prints) && len(m.prints) < maxPrints {
		m.grow()
	}
	row := m.row(sum)
	oldest := &row[0]
	var others [ways]uint32
	n := 0
	for i := range row {
		p := &row[i]
		switch {
		case p.sum == sum && p.seq == seq:
			p.chain = c.id // the same behind the same
			return
		case p.sum == sum:
			if o := m.of(p.chain); o != nil && o.id != c.id && o.ns == c.ns && o.size == c.size {
				others[n] = o.id
				n++
			}
		}
		if m.next-p.chain > m.next-oldest.chain || p.sum == 0 {
			oldest = p
		}
	}
	if oldest.sum == 0 {
		m.taken++
	}
	*oldest = print{sum: sum, seq: seq, chain: c.id}
	for _, id := range others[:n] {
		c.rival(id)
	}
}

// rival counts a window that another chain has too.
func (c *chain) rival(id uint32) {
	least := 0
	for i := range c.rivals {
		r := &c.rivals[i]
		if r.chain == id {
			r.hits++
			return
		}
		if r.hits < c.rivals[least].hits {
			least = i
		}
	}
	if r := &c.rivals[least]; r.hits <= 1 { // one that has many stays
		*r = rival{id, 1}
	} else {
		r.hits--
	}
}

// windows calls do with the hash of every window of k tokens, at most gram, whose hash
// has no bit of mask, and where it begins.
func windows(tokens []wire.Token, k int, mask uint64, do func(at int, sum uint64)) {
	const base = 0x9E3779B97F4A7C15
	drop := uint64(1)
	for range k {
		drop *= base
	}
	var sum uint64
	var mixed [gram]uint64
	for i, t := range tokens {
		x := uint64(t) + base
		x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
		x ^= x >> 27
		sum = sum*base + x
		if i >= k {
			sum -= drop * mixed[(i-k)%gram]
		}
		if mixed[i%gram] = x; i >= k-1 {
			y := sum * 0x94D049BB133111EB
			if y ^= y >> 31; y&mask == 0 {
				do(i-k+1, y)
			}
		}
	}
}

// allowance is work that may be done, which grows with time.
type allowance struct {
	at   wire.Time
	left int
}

// spend takes from an allowance, and reports whether there was enough.
func (a *allowance) spend(at wire.Time, work int) bool {
	if at > a.at || a.at == 0 {
		grown := float64(at-a.at) / 1e9 * rate
		a.left = int(min(float64(a.left)+grown, hoard))
		a.at = at
	}
	if a.left <= 0 {
		return false // a chain longer than all of it gets its turn too
	}
	a.left -= work
	return true
}

// hours counts things of the last hour, minute by minute.
type hours struct {
	minute [60]int32
	counts [60]struct{ n, blocks uint32 }
}

func (h *hours) add(at wire.Time, n, blocks int) {
	now := int32(at / minute)
	i := int(uint32(now) % 60)
	if h.minute[i] != now {
		h.minute[i], h.counts[i] = now, struct{ n, blocks uint32 }{}
	}
	h.counts[i].n += uint32(n)
	h.counts[i].blocks += uint32(blocks)
}

// last sums up the hour before a moment.
func (h *hours) last(at wire.Time) (n, blocks int) {
	now := int32(at / minute)
	for i, c := range h.counts {
		if now-h.minute[i] < 60 {
			n, blocks = n+int(c.n), blocks+int(c.blocks)
		}
	}
	return n, blocks
}
