package sim

import (
	"math/rand/v2"

	"github.com/kvscope/kvscope/wire"
)

const (
	// slack is how many more requests than the idlest replica the one with the
	// longest prefix may have.
	slack = 4
	// wander requests go anywhere, one in so many, as behind a second router.
	wander = 20
)

// candidate is a replica that can take a request.
type candidate struct {
	index, match, load int
}

// candidates asks the replicas that are up.
func candidates(nodes []*node, prompt []wire.Token) []candidate {
	var out []candidate
	for i, n := range nodes {
		if n.up {
			l := n.engine.Load()
			out = append(out, candidate{i, n.engine.Match(prompt), l.Running + l.Waiting})
		}
	}
	return out
}

// choose gives the replica with the longest cached prefix, unless it has too
// much to do; then, and where nobody has any of the prompt, the idlest. With
// blind, caches count for nothing.
func choose(rng *rand.Rand, from []candidate, blind bool) int {
	if blind || rng.IntN(wander) == 0 {
		return from[rng.IntN(len(from))].index
	}
	// Equals are told apart by chance, or the first replica would get it all.
	rng.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	idlest, best := from[0], from[0]
	for _, c := range from[1:] {
		if c.load < idlest.load {
			idlest = c
		}
		if c.match > best.match || c.match == best.match && c.load < best.load {
			best = c
		}
	}
	if best.match == 0 || best.load > idlest.load+slack {
		return idlest.index
	}
	return best.index
}
