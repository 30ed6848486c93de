package index

import "math/bits"

// table maps 64-bit keys to nodes: open addressing with linear probing, at
// most three quarters full. A map of the language takes twice the memory and
// cannot be copied in one go.
type table struct {
	keys  []uint64
	vals  []nodeID // none marks a free place
	n     int
	shift uint8
}

const smallTable = 8

// home is where a key belongs. Keys are hashes, but not all bits of all
// engines' are random, so they are spread (Fibonacci hashing).
func (t *table) home(k uint64) int { return int(k * 0x9E3779B97F4A7C15 >> t.shift) }

// find gives the place of a key, or the free place where it would go.
func (t *table) find(k uint64) int {
	mask := len(t.vals) - 1
	for i := t.home(k); ; i = (i + 1) & mask {
		if t.vals[i] == none || t.keys[i] == k {
			return i
		}
	}
}

func (t *table) get(k uint64) nodeID {
	if t.n == 0 {
		return none
	}
	return t.vals[t.find(k)]
}

// set maps a key to a node, which must not be none.
func (t *table) set(k uint64, v nodeID) {
	if 4*(t.n+1) > 3*len(t.vals) {
		t.resize(max(smallTable, 2*len(t.vals)))
	}
	i := t.find(k)
	if t.vals[i] == none {
		t.n++
	}
	t.keys[i], t.vals[i] = k, v
}

func (t *table) resize(size int) {
	old := *t
	t.keys, t.vals = make([]uint64, size), make([]nodeID, size)
	t.shift = uint8(64 - bits.TrailingZeros(uint(size)))
	for i, v := range old.vals {
		if v != none {
			j := t.find(old.keys[i])
			t.keys[j], t.vals[j] = old.keys[i], v
		}
	}
}

// remove takes a key out and closes the gap behind it.
func (t *table) remove(k uint64) {
	if t.n == 0 {
		return
	}
	i := t.find(k)
	if t.vals[i] == none {
		return
	}
	t.n--
	mask := len(t.vals) - 1
	for j := i; ; {
		j = (j + 1) & mask
		if t.vals[j] == none {
			break
		}
		// What belongs at or before i moves into the gap.
		if home := t.home(t.keys[j]); (j-home)&mask >= (j-i)&mask {
			t.keys[i], t.vals[i] = t.keys[j], t.vals[j]
			i = j
		}
	}
	t.vals[i] = none
}

func (t *table) clone() table {
	c := *t
	c.keys = append([]uint64(nil), t.keys...)
	c.vals = append([]nodeID(nil), t.vals...)
	return c
}
