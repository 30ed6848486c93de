package diagnose

import (
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// races remembers how many bookings came close together over a window.
type races struct {
	at    []wire.Time
	pairs []explain.Pairs
}

func newRaces() Memory { return &races{} }

// Step needs nothing: all is in the View.
func (*races) Step(*stream.Step, *index.Index) {}

// Clone copies it.
func (m *races) Clone() Memory {
	return &races{at: slices.Clone(m.at), pairs: slices.Clone(m.pairs)}
}

// A race: of so many pairs of bookings that came close together, those of different
// routers went to one replica so much more often than those of one router, which
// knows what it just did. By chance the parts differ by 0.05 (one sigma, two
// replicas), and prefixes draw both kinds of pair alike.
const (
	racePairs = 200
	raceMore  = 0.3
)

func routerRace(v View, m Memory) []Finding {
	mem := m.(*races)
	n := len(mem.at)
	if n > 0 && (v.Now < mem.at[n-1] || v.Pairs.Across < mem.pairs[n-1].Across) {
		*mem, n = races{}, 0
	}
	if n == 0 || v.Now >= mem.at[n-1]+lookEvery {
		mem.at, mem.pairs = append(mem.at, v.Now), append(mem.pairs, v.Pairs)
		drop := 0
		for drop+1 < len(mem.at) && mem.at[drop+1] <= v.Now-window {
			drop++
		}
		mem.at, mem.pairs = slices.Delete(mem.at, 0, drop), slices.Delete(mem.pairs, 0, drop)
	}
	old := mem.pairs[0]
	across, acrossSame := float64(v.Pairs.Across-old.Across), float64(v.Pairs.AcrossSame-old.AcrossSame)
	within, withinSame := float64(v.Pairs.Within-old.Within), float64(v.Pairs.WithinSame-old.WithinSame)
	if across < racePairs || within < racePairs || acrossSame/across < withinSame/within+raceMore {
		return nil
	}
	f := Finding{Severity: Warning, Subject: "fleet"}
	f.Title = fmt.Sprintf("two routers that choose within %d ms of each other pick the same replica in %s of %s cases, and one router that chooses twice in %s",
		explain.PairWithin/1e6, share(acrossSame, across), rounded(across), share(withinSame, within))
	f.Counterfactual = fmt.Sprintf("if each knew what the other had just done, some %s requests in %s would have gone elsewhere", rounded(acrossSame-across*withinSame/within), seconds(v.Now-mem.at[0]))
	f.Next = "let the routers tell each other sooner, give each a share of the replicas, or draw among the best by chance (a router temperature above 0)"
	return []Finding{f}
}
