package lab

// table maps keys other than 0 to numbers other than 0, by open addressing. It is
// what most of a run's time goes into, and a few times as fast as a map.
type table struct {
	cells []cell // a power of two of them, at most half of them used
	used  int
}

type cell struct {
	key   uint64
	value int32
}

// slot is where a key is, or would be.
func (t *table) slot(key uint64) int {
	mask := len(t.cells) - 1
	at := int(key*0x9E3779B97F4A7C15>>32) & mask
	for t.cells[at].key != 0 && t.cells[at].key != key {
		at = (at + 1) & mask
	}
	return at
}

// get gives 0 for what is not there.
func (t *table) get(key uint64) int32 {
	if len(t.cells) == 0 {
		return 0
	}
	return t.cells[t.slot(key)].value
}

// set keeps a value; 0 removes the key.
func (t *table) set(key uint64, value int32) {
	if 2*(t.used+1) > len(t.cells) {
		t.grow()
	}
	at := t.slot(key)
	c := &t.cells[at]
	switch {
	case value == 0 && c.key != 0:
		t.remove(at)
	case value != 0:
		if c.key == 0 {
			t.used++
		}
		*c = cell{key, value}
	}
}

// remove closes the gap: what would be found no more moves into it.
func (t *table) remove(at int) {
	mask := len(t.cells) - 1
	t.used--
	for next := (at + 1) & mask; t.cells[next].key != 0; next = (next + 1) & mask {
		home := int(t.cells[next].key*0x9E3779B97F4A7C15>>32) & mask
		if (next-home)&mask >= (next-at)&mask {
			t.cells[at] = t.cells[next]
			at = next
		}
	}
	t.cells[at] = cell{}
}

func (t *table) grow() {
	old := t.cells
	t.cells = make([]cell, max(64, 2*len(old)))
	for _, c := range old {
		if c.key != 0 {
			t.cells[t.slot(c.key)] = c
		}
	}
}
