package diff

import (
	"maps"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// This file holds the recognisers that tokens suffice for.

// Beginning says how two sequences of tokens differ by the first one.
type Beginning uint8

// The ways: one has it more often, or not at all.
const (
	SameBeginning Beginning = iota
	Doubled
	MissingInA
	MissingInB
)

// Begins knows a beginning-of-text token that one of a and b has once more. n is how
// many tokens they have in common, and special reports whether the first one of a, or
// of b, may be such a token. times are how often it stands there, where it is doubled.
func Begins(a, b []wire.Token, n int, special func(ofB bool) bool) (how Beginning, times [2]int) {
	if n > 4 || len(a) == 0 || len(b) == 0 {
		return SameBeginning, times
	}
	ka, kb := leading(a), leading(b)
	switch {
	case n > 0 && min(ka, kb) == n && ka != kb && alike(a[ka:], b[kb:]):
		return Doubled, [2]int{ka, kb}
	case n == 0 && special(false) && alike(a[1:], b):
		return MissingInB, times
	case n == 0 && special(true) && alike(a, b[1:]):
		return MissingInA, times
	}
	return SameBeginning, times
}

// leading counts how often the first token stands at the beginning.
func leading(s []wire.Token) int {
	k := 0
	for k < min(len(s), 8) && s[k] == s[0] {
		k++
	}
	return k
}

// bos knows a beginning-of-text token that one side has once more.
func (ch *change) bos() (found, bool) {
	n := ch.h.a0
	if n != ch.h.b0 || !ch.c.counted {
		return found{}, false
	}
	how, times := Begins(ch.c.a.units, ch.c.b.units, n, func(ofB bool) bool {
		if ofB {
			return ch.special(ch.c.b, 0)
		}
		return ch.special(ch.c.a, 0)
	})
	f := found{class: BOS, detail: "doubled"}
	switch how {
	case Doubled:
		f.tokens = &hunk{n, times[0], n, times[1]}
	case MissingInB:
		f.detail, f.tokens = "missing in B", &hunk{0, 1, 0, 0}
	case MissingInA:
		f.detail, f.tokens = "missing in A", &hunk{0, 0, 0, 1}
	default:
		return found{}, false
	}
	return f, true
}

// special reports whether a unit may be a beginning-of-text token: it stands for no
// text or for one in brackets; unknown text may be anything.
func (ch *change) special(s *side, i int) bool {
	if !s.hasText() {
		return true
	}
	text := s.text[s.starts[i]:s.starts[i+1]]
	return text == "" || strings.HasPrefix(text, "<") && strings.HasSuffix(text, ">")
}

// alike reports whether two sequences begin alike, at least a little.
func alike(a, b []wire.Token) bool {
	const enough = 4
	return wire.CommonPrefix(a, b) >= max(1, min(enough, len(a), len(b)))
}

// What is compared as a reordered whole is bounded, in tokens or bytes and in hunks.
const (
	maxHull  = 512 << 10
	maxHunks = 1024
)

// tokenOrder knows a stretch with the same tokens in another order.
func (ch *change) tokenOrder() (found, bool) {
	// The digits of a time have other orders too, and so have those of many numbers:
	// at least one piece that moved must be longer than a number.
	const least, piece = 16, 8
	longest := 0
	// The sum of all tokens' hashes, whatever their order.
	sum := func(s []wire.Token) (sum uint64) {
		for _, t := range s {
			sum += mix(uint64(t))
		}
		return sum
	}
	var sumA, sumB uint64
	a, b, h := ch.c.a.units, ch.c.b.units, ch.h
	at := hunk{h.a0, h.a0, h.b0, h.b0}
	for i := 0; i <= min(len(ch.rest), maxHunks); i++ {
		if i > 0 {
			h = ch.rest[i-1]
		}
		if h.a1-at.a0 > maxHull || h.b1-at.b0 > maxHull || ch.c.budget <= 0 {
			break
		}
		ch.c.budget -= h.a1 - at.a1 + h.b1 - at.b1
		sumA, sumB = sumA+sum(a[at.a1:h.a1]), sumB+sum(b[at.b1:h.b1])
		at.a1, at.b1 = h.a1, h.b1
		longest = max(longest, h.a1-h.a0, h.b1-h.b0)
		if n := at.a1 - at.a0; longest >= piece && sumA == sumB && n == at.b1-at.b0 && n >= least {
			return found{class: ListOrder, tokens: &at}, true
		}
	}
	return found{}, false
}

// sameItems reports whether two lists have the same items in another order.
func sameItems(a, b []string) bool {
	if len(a) != len(b) || len(a) < 2 || slices.Equal(a, b) {
		return false
	}
	return maps.Equal(tally(a), tally(b))
}

func tally(s []string) map[string]int {
	m := make(map[string]int, len(s))
	for _, v := range s {
		m[v]++
	}
	return m
}
