package hashtable

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestTable holds the table against a map of the language, with keys that
// collide on purpose.
func TestTable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		keys := make([]uint64, 1+rng.IntN(300))
		for i := range keys {
			keys[i] = rng.Uint64()
			if seed%2 == 0 {
				keys[i] = uint64(i) << 56 // few bits that differ
			}
		}
		var got Table[uint32]
		want := map[uint64]uint32{}
		for step := range 5000 {
			k := keys[rng.IntN(len(keys))]
			switch rng.IntN(3) {
			case 0:
				got.Remove(k)
				delete(want, k)
			default:
				v := uint32(1 + rng.IntN(1000))
				got.Set(k, v)
				want[k] = v
			}
			if step%500 != 0 {
				continue
			}
			c := got.Clone()
			got.Set(1, 1)
			got.Remove(1)
			for _, k := range keys {
				if c.Get(k) != want[k] {
					t.Fatalf("seed %d, step %d: key %x is %d, want %d", seed, step, k, c.Get(k), want[k])
				}
			}
			if c.Len() != len(want) {
				t.Fatalf("seed %d, step %d: %d entries, want %d", seed, step, c.Len(), len(want))
			}
			delete(want, 1)
		}
	}
}

// TestTableAnyHistory holds the table against a map, with keys that collide.
func TestTableAnyHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var table Table[int32]
		m := map[uint64]int32{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			h := rapid.Uint64Range(0, 7).Draw(t, "home") + 1<<20*rapid.Uint64Range(0, 5).Draw(t, "other")
			switch v := rapid.Int32Range(0, 9).Draw(t, "value"); v {
			case 0:
				delete(m, h)
				table.Remove(h)
			default:
				m[h] = v
				table.Set(h, v)
			}
			if table.Len() != len(m) {
				t.Fatalf("%d hashes, want %d", table.Len(), len(m))
			}
			for home := range uint64(8) {
				for other := range uint64(6) {
					if h := home + 1<<20*other; table.Get(h) != m[h] {
						t.Fatalf("%d: %d, want %d", h, table.Get(h), m[h])
					}
				}
			}
		}
	})
}
