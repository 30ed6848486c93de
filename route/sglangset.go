package route

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// This file is cache_aware of SGLang's experimental router (sgl-router), as of
// autumn 2026: a set of workers that hold enough of the prompt, of which one near
// the least work is taken by its pressure. It asks an index of the engines' own
// events, so what candidates hold is what it knows. Its hard limits, running
// requests and KV capacity, are not among what is known of a load.

const (
	setTokens = iota
	setRatio
	setMin
	setShare
	setMax
	setMargin
	setPressure
	setTimes
	setQueue
	setFloor
)

var sglangSetSettings = []setting{
	setTokens:   {name: "cache_affinity_min_matched_tokens", flag: "--cache-affinity-min-matched-tokens", def: "1024", kind: whole, weight: true},
	setRatio:    {name: "cache_affinity_min_match_ratio", flag: "--cache-affinity-min-match-ratio", def: "", kind: anyReal},
	setMin:      {name: "cache_candidate_min_workers", flag: "--cache-candidate-min-workers", def: "8", kind: whole},
	setShare:    {name: "cache_candidate_ratio", flag: "--cache-candidate-ratio", def: "0.05", kind: fraction},
	setMax:      {name: "cache_candidate_max_workers", flag: "--cache-candidate-max-workers", def: "32", kind: whole},
	setMargin:   {name: "cache_switch_margin_tokens", flag: "--cache-switch-margin-tokens", def: "1024", kind: whole, weight: true},
	setPressure: {name: "pressure_abs_threshold_tokens", flag: "--pressure-abs-threshold-tokens", def: "1024", kind: whole, weight: true},
	setTimes:    {name: "pressure_rel_threshold", flag: "--pressure-rel-threshold", def: "1.5", kind: ratio, weight: true},
	setQueue:    {name: "worker_queue_limit", flag: "--worker-queue-limit", def: "", kind: optional},
	setFloor:    {name: "saturation_queue_floor", flag: "--saturation-queue-floor", def: "", kind: optional},
}

// sglangSet is what the rule looked at. Positions are among the eligible.
type sglangSet struct {
	matched []int // tokens, by position
	set     []int // who holds enough, the best first; then without those whose queue is full
	held    []int // of the set, those whose queue is full
	floor   int   // the least uncached tokens of the set
	chosen  int   // -1: two are drawn
	reason  string
}

func readSGLangSet(in *input) (v sglangSet) {
	v.chosen = -1
	v.match(in)
	v.limit(in)
	v.gate(in)
	v.choose(in)
	return v
}

// match finds who holds enough. Tokens are reckoned from blocks.
func (v *sglangSet) match(in *input) {
	c, r := in.cfg, in.req
	v.matched = make([]int, len(in.eligible))
	blocks := r.Blocks()
	for n, i := range in.eligible {
		held := min(in.cands[i].matched(), blocks)
		if held == 0 {
			continue
		}
		tokens := int(float64(r.Tokens) * float64(held) / float64(blocks))
		v.matched[n] = tokens
		if float64(tokens) >= c.num(setTokens) && float64(tokens) >= c.num(setRatio)*float64(r.Tokens) {
			v.set = append(v.set, n)
		}
	}
}

// limit keeps the best of them: a share of all workers, within bounds.
func (v *sglangSet) limit(in *input) {
	c := in.cfg
	all := float64(len(in.eligible))
	keep := min(all, c.num(setMax), max(c.num(setMin), math.Ceil(c.num(setShare)*all)))
	known := sglangLoadsKnown(in, v.set)
	slices.SortFunc(v.set, func(a, b int) int {
		return cmp.Or(cmp.Compare(v.matched[b], v.matched[a]), sglangPressure(in, known, a, b), sglangByName(in, a, b))
	})
	v.set = v.set[:min(len(v.set), int(keep))]
}

// sglangQueued reports whether a worker makes requests wait. Without a limit, or
// without a load, none does.
func sglangQueued(in *input, n int) bool {
	l := &in.cands[in.eligible[n]].Load
	return in.cfg.given(setQueue) && l.State != LoadUnknown && l.Waiting >= int(in.cfg.num(setQueue))
}

// gate takes those out whose queue is full, unless all workers' are.
func (v *sglangSet) gate(in *input) {
	var open []int
	for _, n := range v.set {
		if sglangQueued(in, n) {
			v.held = append(v.held, n)
		} else {
			open = append(open, n)
		}
	}
	full := true
	for n := range in.eligible {
		full = full && sglangQueued(in, n)
	}
	if len(open) > 0 || !full || in.cfg.given(setFloor) {
		v.set = open
	}
}

func (v *sglangSet) uncached(in *input, n int) int { return in.req.Tokens - v.matched[n] }

// choose takes the winner of the set. One after the other is set against the
// winner so far, since the comparison is not one that sorts.
func (v *sglangSet) choose(in *input) {
	if len(v.set) == 0 {
		v.pin(in)
		return
	}
	known := sglangLoadsKnown(in, v.set)
	v.reason = "cache_candidate"
	v.chosen = slices.MinFunc(v.set, func(a, b int) int { return cmp.Compare(v.uncached(in, a), v.uncached(in, b)) })
	v.floor = v.uncached(in, v.chosen)
	for _, n := range v.set {
		if v.uncached(in, n)-v.floor > int(in.cfg.num(setMargin)) {
			continue
		}
		if v.compare(in, known, v.chosen, n) > 0 {
			v.chosen = n
		}
	}
}

// compare sets two of a set against each other.
func (v *sglangSet) compare(in *input, known bool, a, b int) int {
	apart := v.uncached(in, a) - v.uncached(in, b)
	if known && max(apart, -apart) <= int(in.cfg.num(setMargin)) {
		switch {
		case sglangPressed(in, a, b):
			return 1
		case sglangPressed(in, b, a):
			return -1
		}
	}
	return cmp.Or(apart, sglangPressure(in, known, a, b), sglangByName(in, a, b))
}

// pin keeps a request with the least pressed holder whose queue is full, where no
// queue is known to be below the floor.
func (v *sglangSet) pin(in *input) {
	if !in.cfg.given(setFloor) || len(v.held) == 0 {
		return
	}
	for _, i := range in.eligible {
		if l := &in.cands[i].Load; l.State != LoadUnknown && l.Waiting < int(in.cfg.num(setFloor)) {
			return
		}
	}
	known := sglangLoadsKnown(in, v.held)
	v.reason = "saturation_pin"
	v.chosen = slices.MinFunc(v.held, func(a, b int) int {
		return cmp.Or(sglangPressure(in, known, a, b), sglangByName(in, a, b))
	})
}

// sglangLoadsKnown reports whether the loads of all of a set are known. If not,
// the router goes by its own count of requests.
func sglangLoadsKnown(in *input, set []int) bool {
	return !slices.ContainsFunc(set, func(n int) bool { return in.cands[in.eligible[n]].Load.State == LoadUnknown })
}

// sglangPressure compares the prefill that waits: tokens, then requests that wait,
// then those that run.
func sglangPressure(in *input, known bool, a, b int) int {
	x, y := in.cands[in.eligible[a]].load(), in.cands[in.eligible[b]].load()
	if !known {
		return cmp.Compare(x.Requests, y.Requests)
	}
	return cmp.Or(
		cmp.Compare(x.PrefillTokens, y.PrefillTokens),
		cmp.Compare(x.Waiting, y.Waiting),
		cmp.Compare(x.Requests, y.Requests),
	)
}

// sglangPressed reports whether a is materially more pressed than b.
func sglangPressed(in *input, a, b int) bool {
	x, y := in.cands[in.eligible[a]].Load.PrefillTokens, in.cands[in.eligible[b]].Load.PrefillTokens
	return float64(x-y) > in.cfg.num(setPressure) && float64(x) > float64(y)*in.cfg.num(setTimes)
}

func sglangByName(in *input, a, b int) int {
	return cmp.Compare(in.cands[in.eligible[a]].Replica, in.cands[in.eligible[b]].Replica)
}

// rankSGLangSet ranks the winner first, and all others behind it by pressure.
func rankSGLangSet(in *input) {
	v := readSGLangSet(in)
	order := make([]int, len(in.eligible))
	for n := range order {
		order[n] = n
	}
	known := sglangLoadsKnown(in, order)
	slices.SortFunc(order, func(a, b int) int { return sglangPressure(in, known, a, b) })
	for at, n := range order {
		k := key{cost: float64(at)}
		if at > 0 && sglangPressure(in, known, order[at-1], n) == 0 {
			k = in.keys[order[at-1]]
		}
		in.keys[n] = k
	}
	if v.chosen >= 0 {
		in.keys[v.chosen].cost = -1
	}
}

func tellSGLangSet(in *input, at int, s *Scored) {
	v := readSGLangSet(in)
	c := &in.cands[in.eligible[at]]
	place := Term{"pressure_rank", s.Cost, s.Cost}
	won := Term{Name: "cache_candidate"}
	if at == v.chosen {
		place, won = Term{Name: "pressure_rank"}, Term{"cache_candidate", 1, -1}
	}
	s.Terms = []Term{
		won, place,
		{"uncached_tokens", float64(v.uncached(in, at)), 0},
		{"waiting_prefill_tokens", float64(c.load().PrefillTokens), 0},
	}
	s.Rule = fmt.Sprintf("%s: %d of %d tokens cached, %d prefill tokens wait",
		wire.Printable(string(s.Replica)), v.matched[at], in.req.Tokens, c.load().PrefillTokens)
}

// sglangSetDrawn: two are drawn where no winner is.
func sglangSetDrawn(in *input) bool { return readSGLangSet(in).chosen < 0 }

// sglangSetOfTwo takes the less pressed of two. One whose queue is full gives way to
// the other, and if both are, to the least pressed of those with room.
func sglangSetOfTwo(in *input, first, second int) int {
	full := sglangQueued(in, first)
	switch other := sglangQueued(in, second); {
	case full && other:
		return sglangRoomiest(in)
	case full, !other && sglangPressure(in, sglangLoadsKnown(in, []int{first, second}), first, second) > 0:
		return second
	}
	return first
}

// sglangRoomiest is the least pressed of those whose queue has room, or of all.
func sglangRoomiest(in *input) int {
	var room, all []int
	for n := range in.eligible {
		if all = append(all, n); !sglangQueued(in, n) {
			room = append(room, n)
		}
	}
	if room == nil {
		room = all
	}
	known := sglangLoadsKnown(in, room)
	return slices.MinFunc(room, func(a, b int) int { return sglangPressure(in, known, a, b) })
}

func sglangSetSteps(in *input) []string {
	v := readSGLangSet(in)
	steps := []string{fmt.Sprintf("%d of %d workers are in the set: at least %s tokens held, and room in the queue; %d holders have a full queue",
		len(v.set), len(in.eligible), number(in.cfg.num(setTokens)), len(v.held))}
	switch {
	case v.chosen < 0:
		return append(steps, "no candidate: power of two by prefill pressure")
	case v.reason == "saturation_pin":
		return append(steps, "saturation_pin: no queue is below the floor, so the least pressed holder")
	}
	return append(steps, fmt.Sprintf("cache_candidate: the least uncached tokens are %d, and within %s of them one materially less pressed wins, else the least uncached",
		v.floor, number(in.cfg.num(setMargin))))
}
