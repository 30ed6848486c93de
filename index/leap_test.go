package index

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// TestLeaps holds the answers that come by leaps against those that come block by
// block, on long chains with holes, lower tiers and doubt.
func TestLeaps(t *testing.T) {
	t.Parallel()
	const blocks = 300
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 11))
		x := New(Options{})
		chain := make([]Block, blocks)
		prompt := make([]uint64, blocks)
		for i := range chain {
			prompt[i] = rng.Uint64()
			chain[i] = Block{wire.IntHandle(rng.Uint64()), prompt[i]}
		}
		var log []string
		for step := range 300 {
			name := wire.Replica(fmt.Sprintf("r%d", rng.IntN(6)))
			at := Place{}
			if rng.IntN(6) == 0 {
				at.Tier = wire.Host
			}
			from := rng.IntN(blocks)
			n := 1 + rng.IntN(blocks-from)
			switch k := rng.IntN(10); {
			case k < 3:
				x.Store(name, Store{Place: at, Blocks: chain[:n]})
			case k < 6 && from > 0:
				x.Store(name, Store{Place: at, Parent: chain[from-1].Handle, Blocks: chain[from : from+n]})
			case k < 8: // from the tail on, as engines evict
				for i := min(blocks, from+4) - 1; i >= from; i-- {
					x.Remove(name, at, []wire.Handle{chain[i].Handle})
				}
			case k == 8:
				x.Doubt(name)
			default:
				x.Remove(name, at, []wire.Handle{chain[rng.IntN(blocks)].Handle})
			}
			log = append(log, fmt.Sprint(name, at, from, n))
			slow := x.Clone()
			for _, r := range slow.byID {
				r.stamp++
			}
			sorted := func(m []Match) []Match {
				slices.SortFunc(m, func(a, b Match) int { return cmp.Compare(a.Replica, b.Replica) })
				return m
			}
			want, got := sorted(slow.MatchLocals(prompt)), sorted(x.MatchLocals(prompt))
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: %+v, want %+v\n%v", seed, step, got, want, log)
			}
		}
	}
}
