package route

import (
	"errors"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// This file is the index of llm-d's precise producer, the one in memory
// (llm-d-kv-cache 0.8.1), and how it scores.

// The defaults of llm-d's index: how many keys it holds, and how many entries of
// each.
const (
	LLMDKeys       = 100_000_000
	LLMDPodEntries = 10
)

// LLMDEntry is one place where a block is believed to be.
type LLMDEntry struct {
	Pod wire.Replica
	// Tier is the medium as the engine spells it, in lower case, gpu where it
	// names none, and empty for a speculative entry.
	Tier  string
	Group int
	// Speculative entries are the router's own guess from where it sent a prompt.
	Speculative bool
}

// LLMDIndex is what llm-d's router believes of its engines' caches. Of each block
// it keeps the few entries that were stored last; every tier of a pod, and every
// speculative entry, counts as one. It belongs to one goroutine.
type LLMDIndex struct {
	data    *recent[uint64, []LLMDEntry] // entries: the one stored longest ago first
	engines *recent[uint64, []uint64]
	entries int
}

// NewLLMDIndex makes an empty one for that many keys, and entries of each. What
// is below 1 takes the default. Memory grows with use.
func NewLLMDIndex(keys, entries int) *LLMDIndex {
	if keys < 1 {
		keys = LLMDKeys
	}
	if entries < 1 {
		entries = LLMDPodEntries
	}
	return &LLMDIndex{
		data: newRecent[uint64, []LLMDEntry](keys), engines: newRecent[uint64, []uint64](keys), entries: entries,
	}
}

var errLLMDRatio = errors.New("engine keys and request keys of which neither count divides the other: give blocks of whole sizes")

// Add stores an entry under request keys, which blockhash.LLMDKeys makes. Engine
// keys are the engine's own hashes of the same tokens: as many, or so many that one
// stands for several of the other; none for a speculative entry.
func (x *LLMDIndex) Add(engine, request []uint64, e LLMDEntry) error {
	if len(request) == 0 {
		return nil
	}
	if n, m := len(engine), len(request); n > 0 && n%m != 0 && m%n != 0 {
		return errLLMDRatio
	}
	for i, key := range engine {
		from := i * len(request) / len(engine)
		to := max(from+1, (i+1)*len(request)/len(engine))
		x.engines.put(key, slices.Clone(request[from:to]))
	}
	for _, key := range request {
		held, _ := x.data.get(key)
		if at := slices.Index(held, e); at >= 0 {
			held = slices.Delete(held, at, at+1)
		} else if len(held) >= x.entries {
			held = slices.Delete(held, 0, 1)
		}
		x.data.put(key, append(held, e))
	}
	return nil
}

// EvictEngine takes an entry off the blocks of an engine's hash, as an event does;
// other tiers of the pod stay.
func (x *LLMDIndex) EvictEngine(engine uint64, e LLMDEntry) {
	request, ok := x.engines.get(engine)
	if !ok {
		return
	}
	empty := true
	for _, key := range request {
		empty = x.Evict(key, e) && empty
	}
	if empty {
		x.engines.remove(engine)
	}
}

// Evict takes an entry off a request key, and reports whether none is left.
func (x *LLMDIndex) Evict(request uint64, e LLMDEntry) bool {
	held, ok := x.data.get(request)
	if !ok {
		return true
	}
	if at := slices.Index(held, e); at >= 0 {
		held = slices.Delete(held, at, at+1)
	}
	if len(held) == 0 {
		x.data.remove(request)
		return true
	}
	x.data.put(request, held)
	return false
}

// Clear takes a pod off all blocks, on all tiers.
func (x *LLMDIndex) Clear(pod wire.Replica) {
	for _, key := range x.data.keys() {
		held := x.data.items[x.data.at[key]].value
		held = slices.DeleteFunc(held, func(e LLMDEntry) bool { return e.Pod == pod })
		if len(held) == 0 {
			x.data.remove(key)
			continue
		}
		x.data.items[x.data.at[key]].value = held
	}
}

// Parent gives the last request key of an engine's hash, which is what the next
// block of its chain goes on from. Where there is none, llm-d drops the event.
func (x *LLMDIndex) Parent(engine uint64) (uint64, bool) {
	request, ok := x.engines.get(engine)
	if !ok {
		return 0, false
	}
	return request[len(request)-1], true
}

// Lookup gives the entries of each key, the one stored longest ago first, which
// are the index's own until it changes. It does not stop at a key that has none.
func (x *LLMDIndex) Lookup(request []uint64) [][]LLMDEntry {
	out := make([][]LLMDEntry, len(request))
	for i, key := range request {
		out[i], _ = x.data.get(key)
	}
	return out
}

// LLMDTierWeight is how much a block counts that a pod has on a tier, spelled as
// in LLMDEntry. Tiers that llm-d does not know count like the device.
func LLMDTierWeight(tier string) float64 {
	if tier == "cpu" {
		return 0.8
	}
	return 1
}

// LLMDScores sums up, for each pod that has the first block, the weights of the
// blocks that it has from there on without a gap. Of several tiers the heaviest
// counts. Unit: blocks; the precise scorer up to 0.8 divides by all blocks.
func LLMDScores(found [][]LLMDEntry) map[wire.Replica]float64 {
	type run struct {
		pod         wire.Replica
		sum, weight float64 // weight: of the block at hand
	}
	scores := map[wire.Replica]float64{}
	var runs []run
	for i, entries := range found {
		for _, e := range entries {
			at := slices.IndexFunc(runs, func(r run) bool { return r.pod == e.Pod })
			if at < 0 && i > 0 {
				continue
			}
			if at < 0 {
				at, runs = len(runs), append(runs, run{pod: e.Pod})
			}
			runs[at].weight = max(runs[at].weight, LLMDTierWeight(e.Tier))
		}
		goOn := runs[:0]
		for _, r := range runs {
			if r.weight == 0 {
				continue
			}
			r.sum, r.weight = r.sum+r.weight, 0
			scores[r.pod] = r.sum
			goOn = append(goOn, r)
		}
		if runs = goOn; len(runs) == 0 {
			break
		}
	}
	return scores
}
