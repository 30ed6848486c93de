// Package hashtable maps 64-bit keys to small numbers, where a map of the language
// is what most of the time or memory would go into.
package hashtable

import (
	"iter"
	"math/bits"
)

// Table maps keys to numbers other than 0: open addressing with linear probing, at
// most three quarters full. A map of the language takes twice the memory and
// cannot be copied in one go. The zero Table is empty. It is not safe for concurrent
// use.
type Table[V ~int32 | ~uint32] struct {
	keys  []uint64
	vals  []V // 0 marks a free place
	n     int
	shift uint8
}

const smallTable = 8

// Len counts the keys.
func (t *Table[V]) Len() int { return t.n }

// Places counts the places for keys, each of which takes 8 bytes and a V.
func (t *Table[V]) Places() int { return len(t.vals) }

// All gives the keys and what they are mapped to, in no order.
func (t *Table[V]) All() iter.Seq2[uint64, V] {
	return func(yield func(uint64, V) bool) {
		for i, v := range t.vals {
			if v != 0 && !yield(t.keys[i], v) {
				return
			}
		}
	}
}

// home is where a key belongs. Keys are hashes, but not all bits of all
// engines' are random, so they are spread (Fibonacci hashing).
func (t *Table[V]) home(k uint64) int { return int(k * 0x9E3779B97F4A7C15 >> t.shift) }

// find gives the place of a key, or the free place where it would go.
func (t *Table[V]) find(k uint64) int {
	mask := len(t.vals) - 1
	for i := t.home(k); ; i = (i + 1) & mask {
		if t.vals[i] == 0 || t.keys[i] == k {
			return i
		}
	}
}

// Get gives what a key is mapped to, 0 for nothing.
func (t *Table[V]) Get(k uint64) V {
	if t.n == 0 {
		return 0
	}
	return t.vals[t.find(k)]
}

// Set maps a key to a number, which must not be 0.
func (t *Table[V]) Set(k uint64, v V) {
	if 4*(t.n+1) > 3*len(t.vals) {
		t.resize(max(smallTable, 2*len(t.vals)))
	}
	i := t.find(k)
	if t.vals[i] == 0 {
		t.n++
	}
	t.keys[i], t.vals[i] = k, v
}

func (t *Table[V]) resize(size int) {
	old := *t
	t.keys, t.vals = make([]uint64, size), make([]V, size)
	t.shift = uint8(64 - bits.TrailingZeros(uint(size)))
	for i, v := range old.vals {
		if v != 0 {
			j := t.find(old.keys[i])
			t.keys[j], t.vals[j] = old.keys[i], v
		}
	}
}

// Remove takes a key out, if it is there, and closes the gap behind it.
func (t *Table[V]) Remove(k uint64) {
	if t.n == 0 {
		return
	}
	i := t.find(k)
	if t.vals[i] == 0 {
		return
	}
	t.n--
	mask := len(t.vals) - 1
	for j := i; ; {
		j = (j + 1) & mask
		if t.vals[j] == 0 {
			break
		}
		// What belongs at or before i moves into the gap.
		if home := t.home(t.keys[j]); (j-home)&mask >= (j-i)&mask {
			t.keys[i], t.vals[i] = t.keys[j], t.vals[j]
			i = j
		}
	}
	t.vals[i] = 0
}

// Clone copies a table.
func (t *Table[V]) Clone() Table[V] {
	c := *t
	c.keys = append([]uint64(nil), t.keys...)
	c.vals = append([]V(nil), t.vals...)
	return c
}
