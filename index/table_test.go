package index

import (
	"math/rand/v2"
	"testing"
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
		var got table
		want := map[uint64]nodeID{}
		for step := range 5000 {
			k := keys[rng.IntN(len(keys))]
			switch rng.IntN(3) {
			case 0:
				got.remove(k)
				delete(want, k)
			default:
				v := nodeID(1 + rng.IntN(1000))
				got.set(k, v)
				want[k] = v
			}
			if step%500 != 0 {
				continue
			}
			c := got.clone()
			got.set(1, 1)
			got.remove(1)
			for _, k := range keys {
				if c.get(k) != want[k] {
					t.Fatalf("seed %d, step %d: key %x is %d, want %d", seed, step, k, c.get(k), want[k])
				}
			}
			if c.n != len(want) {
				t.Fatalf("seed %d, step %d: %d entries, want %d", seed, step, c.n, len(want))
			}
			delete(want, 1)
		}
	}
}
