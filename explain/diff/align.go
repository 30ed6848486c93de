package diff

import (
	"math/bits"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// hunk is where two sequences are not aligned: a stretch of each, half-open.
type hunk struct{ a0, a1, b0, b1 int }

// grams are the lengths of the runs by which sequences are aligned, the surest
// first: runs that occur once in both (patience).
var grams = [...]int{24, 8, 3, 1}

// maxAnchors bounds the runs of a stretch that are looked at, and so memory. In a
// longer one they are sampled by their hashes; what lies between two anchors is
// looked at again, as a shorter stretch.
const maxAnchors = 1 << 15

// align gives the hunks of a and b from a0 and b0 on, in order. Time is linear in
// the lengths, but for the order of anchors.
func align(a, b []wire.Token, a0, b0 int) []hunk {
	al := aligner{a: a, b: b}
	al.between(hunk{a0, len(a), b0, len(b)}, 0)
	return join(al.out)
}

type aligner struct {
	a, b []wire.Token
	out  []hunk
	tab  []slot
}

// between aligns a stretch by the runs of a level of grams and finer ones.
func (al *aligner) between(h hunk, level int) {
	n := wire.CommonPrefix(al.a[h.a0:h.a1], al.b[h.b0:h.b1])
	h.a0, h.b0 = h.a0+n, h.b0+n
	n = commonSuffix(al.a[h.a0:h.a1], al.b[h.b0:h.b1])
	h.a1, h.b1 = h.a1-n, h.b1-n
	switch {
	case h.a0 == h.a1 && h.b0 == h.b1:
		return
	case h.a0 == h.a1 || h.b0 == h.b1 || level == len(grams):
		al.out = append(al.out, h)
		return
	}
	at := h
	for _, p := range al.anchors(h, grams[level]) {
		if p.a < at.a0 || p.b < at.b0 {
			continue // within a run that was already walked
		}
		back := commonSuffix(al.a[at.a0:p.a], al.b[at.b0:p.b])
		al.between(hunk{at.a0, p.a - back, at.b0, p.b - back}, level+1)
		run := wire.CommonPrefix(al.a[p.a:h.a1], al.b[p.b:h.b1])
		at.a0, at.b0 = p.a+run, p.b+run
	}
	al.between(at, level+1)
}

// pair is a place in either sequence.
type pair struct{ a, b int }

// slot counts a run: where it is in a and in b, -1 where nowhere, -2 where it is
// more than once.
type slot struct {
	sum  uint64
	a, b int
	used bool
}

const (
	nowhere = -1
	twice   = -2
)

// anchors gives the places of runs of k that occur once in both stretches, the
// longest chain that rises in both.
func (al *aligner) anchors(h hunk, k int) []pair {
	n := h.a1 - h.a0 + h.b1 - h.b0
	if h.a1-h.a0 < k || h.b1-h.b0 < k {
		return nil
	}
	var sample uint64 // the bits of a hash that must be 0
	if n > maxAnchors {
		sample = 1<<bits.Len(uint(n/maxAnchors)) - 1
		n = maxAnchors
	}
	size := 1 << bits.Len(uint(2*n))
	if cap(al.tab) < size {
		al.tab = make([]slot, size)
	}
	tab := al.tab[:size]
	clear(tab)
	var places []*slot // in the order of b
	left := 2 * maxAnchors
	each(al.a[h.a0:h.a1], k, func(i int, sum uint64) {
		if sum&sample != 0 || left == 0 {
			return
		}
		switch s := find(tab, sum); {
		case s == nil:
		case !s.used:
			*s = slot{sum: sum, a: h.a0 + i, b: nowhere, used: true}
			left--
		default:
			s.a = twice
		}
	})
	each(al.b[h.b0:h.b1], k, func(i int, sum uint64) {
		if sum&sample != 0 {
			return
		}
		switch s := find(tab, sum); {
		case s == nil || !s.used || s.a == twice:
		case s.b == nowhere:
			s.b = h.b0 + i
			places = append(places, s)
		default:
			s.b = twice
		}
	})
	var all []pair
	for _, s := range places {
		if s.b >= 0 && slices.Equal(al.a[s.a:s.a+k], al.b[s.b:s.b+k]) {
			all = append(all, pair{s.a, s.b})
		}
	}
	return rising(all)
}

// find gives the slot of a hash, or the free one where it belongs; nil where too
// many are in the way, as in tokens made for that.
func find(tab []slot, sum uint64) *slot {
	const most = 64
	mask := len(tab) - 1
	for i := range most {
		if s := &tab[(int(sum>>32)+i)&mask]; !s.used || s.sum == sum {
			return s
		}
	}
	return nil
}

// each calls do with the hash of every run of k.
func each(s []wire.Token, k int, do func(i int, sum uint64)) {
	const base = 0x9E3779B97F4A7C15
	drop := uint64(1)
	for range k {
		drop *= base
	}
	var sum uint64
	for i, t := range s {
		sum = sum*base + mix(uint64(t))
		if i >= k {
			sum -= drop * mix(uint64(s[i-k]))
		}
		if i >= k-1 {
			do(i-k+1, mix(sum))
		}
	}
}

// mix spreads a number over all bits.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// rising gives the longest chain of pairs, which rise in b, that rises in a too.
func rising(all []pair) []pair {
	var ends []int // by length − 1: the pair that ends the chain with the lowest a
	prev := make([]int, len(all))
	for i, p := range all {
		n, _ := slices.BinarySearchFunc(ends, p.a, func(j, a int) int { return all[j].a - a })
		prev[i] = -1
		if n > 0 {
			prev[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	if len(ends) == 0 {
		return nil
	}
	out := make([]pair, len(ends))
	for i, at := len(ends)-1, ends[len(ends)-1]; i >= 0; i, at = i-1, prev[at] {
		out[i] = all[at]
	}
	return out
}

// join makes one hunk of two where what they share between them is short beside
// them: such runs are chance.
func join(all []hunk) []hunk {
	var out []hunk
	for _, h := range all {
		out = append(out, h)
		for n := len(out); n > 1 && chance(out[n-2], out[n-1]); n = len(out) {
			out[n-2].a1, out[n-2].b1 = out[n-1].a1, out[n-1].b1
			out = out[:n-1]
		}
	}
	return out
}

func chance(x, y hunk) bool {
	run := y.a0 - x.a1
	least := min(x.size(), y.size())
	return run <= 3 && run <= least || run <= 32 && 4*run <= least
}

// size is the length of the longer side.
func (h hunk) size() int { return max(h.a1-h.a0, h.b1-h.b0) }
