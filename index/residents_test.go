package index

import (
	"fmt"
	"maps"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// sequences names a content's blocks, from its root on.
func sequences(content string) (out []uint64) {
	parent := uint64(0)
	for i, local := range locals(content) {
		parent = blockhash.Next(parent, local, i == 0)
		out = append(out, parent)
	}
	return out
}

// residents compares what is where, and one chain's depth; TestPropertyModel asks.
func (h *history) residents() string {
	type at struct {
		name wire.Replica
		tier wire.Tier
		seq  uint64
	}
	want, got := map[at]int{}, map[at]int{}
	for _, r := range h.m.replicas {
		for p, n := range r.count {
			if n > 0 && h.m.dense(p.group) {
				seqs := sequences(p.content)
				want[at{r.name, p.tier, seqs[len(seqs)-1]}] = 1
			}
		}
	}
	h.x.Residents(func(name wire.Replica, tier wire.Tier, seq uint64, _ blockhash.Namespace) { got[at{name, tier, seq}]++ })
	if !maps.Equal(want, got) {
		return fmt.Sprintf("residents (-model +index):\n%s", cmp.Diff(want, got))
	}
	c := h.content()
	seqs := sequences(c)
	for _, r := range h.m.replicas {
		device, all := 0, 0
		for i := range seqs {
			there := want[at{r.name, wire.Device, seqs[i]}] > 0
			if there && device == i {
				device++
			}
			for tier := range wire.Tier(wire.NumTiers) {
				there = there || want[at{r.name, tier, seqs[i]}] > 0
				now, once := h.x.Had(r.name, tier, seqs[i])
				if now != (want[at{r.name, tier, seqs[i]}] > 0) || now && !once {
					return fmt.Sprintf("%s, block %d of %s on %s: %t, once %t", r.name, i, c, tier, now, once)
				}
				p := place{content: strings.Join(strings.Split(c, "/")[:i+1], "/"), tier: tier}
				if r.held[p] && !once {
					return fmt.Sprintf("%s had block %d of %s on %s once", r.name, i, c, tier)
				}
			}
			if there && all == i {
				all++
			}
		}
		if d, a := h.x.Depth(r.name, seqs); d != device || a != all {
			return fmt.Sprintf("%s has %d and %d blocks of %s, model %d and %d", r.name, d, a, c, device, all)
		}
	}
	return ""
}
