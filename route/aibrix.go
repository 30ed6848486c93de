package route

import (
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/kvscope/kvscope/wire"
)

// This file is AIBrix's routing algorithm prefix-cache.

const (
	aibrixImbalance = iota
	aibrixDeviations
	aibrixBlockSize
	aibrixBlocks
	aibrixTTL
	aibrixTokenizer
	aibrixSync
)

var aibrixSettings = []setting{
	aibrixImbalance:  {name: "pod_running_request_imbalance_abs_count", vars: []string{"AIBRIX_PREFIX_CACHE_POD_RUNNING_REQUEST_IMBALANCE_ABS_COUNT"}, def: "8", kind: whole, weight: true},
	aibrixDeviations: {name: "standard_deviation_factor", vars: []string{"AIBRIX_PREFIX_CACHE_STANDARD_DEVIATION_FACTOR"}, def: "1", kind: whole, weight: true},
	aibrixBlockSize:  {name: "block_size", vars: []string{"AIBRIX_PREFIX_CACHE_BLOCK_SIZE"}, def: "4", kind: whole},
	aibrixBlocks:     {name: "block_number", vars: []string{"AIBRIX_PREFIX_CACHE_BLOCK_NUMBER"}, def: "200000", kind: whole},
	aibrixTTL:        {name: "eviction_duration_mins", vars: []string{"AIBRIX_PREFIX_CACHE_EVICTION_DURATION_MINS"}, def: "20", kind: whole},
	aibrixTokenizer:  {name: "tokenizer_type", vars: []string{"AIBRIX_PREFIX_CACHE_TOKENIZER_TYPE"}, def: "character", kind: word, words: []string{"character", "tiktoken"}},
	aibrixSync:       {name: "kv_event_sync_enabled", vars: []string{"AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED"}, def: "false", kind: onOff},
}

// finishAIBrix refuses a block of no characters, with which AIBrix hangs.
func finishAIBrix(c *Config) {
	if v := c.values[aibrixBlockSize]; v.num < 1 {
		c.imply(aibrixBlockSize, aibrixSettings[aibrixBlockSize].def, fmt.Sprintf("%s (%s) is no block size", v.text, v.origin))
	}
}

// aibrixTable is the local index: hashes of blocks of characters and the pods that
// they were sent to. The time a block is kept begins anew each time it is sent. A
// pod that is gone stays in it until then.
type aibrixTable struct {
	*holders
	keys []uint64
}

// newAIBrixTable makes no table where events tell what the engines hold.
func newAIBrixTable(c *Config) memory {
	if c.on(aibrixSync) {
		return nil
	}
	most := int(c.num(aibrixBlocks))
	return &aibrixTable{holders: newHolders(most, wire.Time(min(c.num(aibrixTTL), 1e7)*60e9))}
}

// cut gives the prompt's blocks. Those of each model are apart.
func (t *aibrixTable) cut(in *input) (keys []uint64, weight int) {
	cut := cutter{sep: " ", size: int(in.cfg.num(aibrixBlockSize)), bytes: true}
	t.keys, weight = cut.cut(t.keys[:0], in.req, xxh3.HashString(in.req.Model))
	return t.keys, weight
}

func (t *aibrixTable) took(in *input, at int) {
	keys, weight := t.cut(in)
	t.put(keys, weight, in.cands[in.eligible[at]].Replica, in.req.At)
}

// aibrix is what the rule looked at.
type aibrix struct {
	fewest, most int // running requests
	gated        bool
	percent      []int // by eligible candidate, -1 without a match
	matched      int
	limit        float64 // of running requests for those with a match
	// fits is how many of those with a match are within the limit.
	fits int
}

func readAIBrix(in *input) (v aibrix) {
	v.percent = make([]int, len(in.eligible))
	sum := 0.0
	for n, i := range in.eligible {
		r := in.cands[i].load().Requests
		if n == 0 || r < v.fewest {
			v.fewest = r
		}
		v.most = max(v.most, r)
		sum += float64(r)
	}
	mean, squares := sum/float64(len(in.eligible)), 0.0
	for _, i := range in.eligible {
		off := float64(in.cands[i].load().Requests) - mean
		squares += off * off
	}
	// Of one pod alone there is no deviation, and it is never within the limit.
	v.limit = mean + float64(in.cfg.num(aibrixDeviations)*math.Sqrt(squares/float64(len(in.eligible)-1)))
	v.gated = float64(v.most-v.fewest) > in.cfg.num(aibrixImbalance)

	depth, blocks := aibrixDepths(in)
	for n, i := range in.eligible {
		r := in.cands[i].load().Requests
		if v.percent[n] = -1; depth[n] == 0 || v.gated && r > v.fewest {
			continue
		}
		v.percent[n] = 100 * depth[n] / blocks
		v.matched++
		if float64(r) <= v.limit {
			v.fits++
		}
	}
	return v
}

// aibrixDepths gives how many of the prompt's blocks each eligible candidate is
// taken to hold. The event index's matcher lets a pod in at a later block than the
// first, which the match of a prefix does not show.
func aibrixDepths(in *input) (depth []int, blocks int) {
	if t, ok := in.mem.(*aibrixTable); ok {
		keys, _ := t.cut(in)
		return t.depths(in, keys), len(keys)
	}
	depth = make([]int, len(in.eligible))
	for n, i := range in.eligible {
		depth[n] = min(in.cands[i].matched(), in.req.Blocks())
	}
	return depth, in.req.Blocks()
}

// takes says that a candidate is one of those that the match decides between.
func (v *aibrix) takes(in *input, at int) bool {
	return v.percent[at] >= 0 && float64(in.cands[in.eligible[at]].load().Requests) <= v.limit
}

// out is what puts those that are not taken behind all that are.
const aibrixOut = 101

func rankAIBrix(in *input) {
	v := readAIBrix(in)
	for n, i := range in.eligible {
		requests := float64(in.cands[i].load().Requests)
		switch {
		case v.fits == 0:
			in.keys[n] = key{cost: requests}
		case v.takes(in, n):
			in.keys[n] = key{cost: float64(100 - v.percent[n]), then: requests}
		default:
			in.keys[n] = key{cost: float64(100-max(0, v.percent[n])) + aibrixOut, then: requests}
		}
	}
}

func tellAIBrix(in *input, at int, s *Scored) {
	v := readAIBrix(in)
	requests := float64(in.cands[in.eligible[at]].load().Requests)
	match, count, out := Term{Name: "match_percent", Value: float64(max(0, v.percent[at]))}, Term{Name: "running_requests", Value: requests}, Term{Name: "passed_over"}
	word := ""
	switch {
	case v.fits == 0:
		count.Cost = requests
	case v.takes(in, at):
		match.Cost = s.Cost
	default:
		match.Cost, out.Value, out.Cost = s.Cost-aibrixOut, 1, aibrixOut
		switch {
		case requests > v.limit:
			word = ", above the mean and its deviation"
		case v.gated && requests > float64(v.fewest):
			word = ", not among the least loaded"
		default:
			word = ", no match"
		}
	}
	s.Terms = []Term{match, count, out}
	s.Rule = fmt.Sprintf("%s: match %s %%, %s running requests%s", wire.Printable(string(s.Replica)), number(match.Value), number(requests), word)
}

func aibrixSteps(in *input) []string {
	v := readAIBrix(in)
	var steps []string
	switch {
	case in.cfg.on(aibrixSync):
		steps = append(steps, "KV events tell what the engines hold")
	case in.mem == nil:
		steps = append(steps, "the gateway's index cannot be read from outside: what the engines hold stands in for it")
	}
	gate := "balanced: every pod is asked for a match"
	if v.gated {
		gate = "imbalanced: only the least loaded are asked for a match"
	}
	steps = append(steps, fmt.Sprintf("%d to %d running requests, and the difference allowed is %s: %s", v.fewest, v.most, number(in.cfg.num(aibrixImbalance)), gate))
	switch {
	case v.matched == 0:
		return append(steps, "no match (least_request_fallback): the fewest running requests, ties at random")
	case v.fits == 0:
		return append(steps, fmt.Sprintf("%d match, and none of them is within the limit of running requests (prefix_match_skipped): the fewest running requests, ties at random", v.matched))
	}
	return append(steps, fmt.Sprintf("%d match, and %d of them have at most %s running requests (prefix_match): the longest match, then the fewest requests, ties at random", v.matched, v.fits, number(v.limit)))
}
