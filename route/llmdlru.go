package route

// recent is a map that forgets the key used longest ago when it holds more than
// size keys.
type recent[K comparable, V any] struct {
	size  int
	at    map[K]int32
	items []recentItem[K, V] // the first one is the ring's anchor
	free  []int32
}

// recentItem is in a ring: from the anchor, next goes to later uses.
type recentItem[K comparable, V any] struct {
	key        K
	value      V
	prev, next int32
}

func newRecent[K comparable, V any](size int) *recent[K, V] {
	return &recent[K, V]{size: max(1, size), at: map[K]int32{}, items: make([]recentItem[K, V], 1)}
}

// get looks a key up, which is a use of it.
func (r *recent[K, V]) get(k K) (V, bool) {
	i, ok := r.at[k]
	if ok {
		r.unlink(i)
		r.link(i)
	}
	return r.items[i].value, ok // the anchor has no value
}

// put stores a key, which is a use of it.
func (r *recent[K, V]) put(k K, v V) {
	i, ok := r.at[k]
	switch {
	case ok:
		r.unlink(i)
	case len(r.at) >= r.size:
		i = r.items[0].next
		r.unlink(i)
		delete(r.at, r.items[i].key)
	case len(r.free) > 0:
		i = r.free[len(r.free)-1]
		r.free = r.free[:len(r.free)-1]
	default:
		i = int32(len(r.items))
		r.items = append(r.items, recentItem[K, V]{})
	}
	r.at[k] = i
	r.items[i].key, r.items[i].value = k, v
	r.link(i)
}

func (r *recent[K, V]) remove(k K) {
	i, ok := r.at[k]
	if !ok {
		return
	}
	r.unlink(i)
	delete(r.at, k)
	r.items[i] = recentItem[K, V]{}
	r.free = append(r.free, i)
}

// keys lists them, the one used longest ago first.
func (r *recent[K, V]) keys() []K {
	out := make([]K, 0, len(r.at))
	for i := r.items[0].next; i != 0; i = r.items[i].next {
		out = append(out, r.items[i].key)
	}
	return out
}

// link puts an item at the end of the ring.
func (r *recent[K, V]) link(i int32) {
	last := r.items[0].prev
	r.items[i].prev, r.items[i].next = last, 0
	r.items[last].next, r.items[0].prev = i, i
}

func (r *recent[K, V]) unlink(i int32) {
	prev, next := r.items[i].prev, r.items[i].next
	r.items[prev].next, r.items[next].prev = next, prev
}
