package route

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// This file is llm-d's scheduler (llm-d-router 0.10): scorers that give each
// endpoint 0 to 1, their weighted sum, and the pickers. What prompts match comes
// from a producer, of which there are two.

// The settings of all of llm-d's policies: a weight for each scorer, in the order
// in which they are added, and their parameters. Names are those of the
// configuration: a plugin's type, then its parameter.
const (
	llmdQueue = iota
	llmdUsage
	llmdPrefix
	llmdRunning
	llmdLoadAware
	llmdActive
	llmdTokenLoad
	llmdNoHit
	llmdScorerCount
)

const (
	llmdPicker = iota + llmdScorerCount
	llmdLengthWeight
	llmdModelLen
	llmdThreshold
	llmdIdle
	llmdBusyScore
	llmdQueueTokens
	llmdOwn // the first of the producer's own
)

const (
	llmdMaxScore = "max-score-picker"
	llmdWeighted = "weighted-random-picker"
)

func llmdSettings(queue, usage, prefix string, own ...setting) []setting {
	out := []setting{
		llmdPicker:       {name: "picker", def: llmdMaxScore, kind: word, words: []string{llmdMaxScore, llmdWeighted}},
		llmdLengthWeight: {name: "prefix-cache-scorer.prefixLengthWeight", def: "0", kind: fraction, weight: true},
		llmdModelLen:     {name: "prefix-cache-scorer.maxModelLen", def: "8192", kind: ratio},
		llmdThreshold:    {name: "load-aware-scorer.threshold", def: "128", kind: ratio, weight: true},
		llmdIdle:         {name: "active-request-scorer.idleThreshold", def: "0", kind: whole, weight: true},
		llmdBusyScore:    {name: "active-request-scorer.maxBusyScore", def: "1", kind: fraction, weight: true},
		llmdQueueTokens:  {name: "token-load-scorer.queueThresholdTokens", def: "4194304", kind: ratio, weight: true},
	}
	weights := map[int]string{llmdQueue: queue, llmdUsage: usage, llmdPrefix: prefix}
	for at := range llmdScorers {
		def, ok := weights[at]
		if !ok {
			def = "0"
		}
		out[at] = setting{name: llmdScorers[at].name, def: def, kind: number0, weight: true}
	}
	return append(out, own...)
}

// llmdScorers score an eligible candidate.
var llmdScorers = [llmdScorerCount]struct {
	name  string
	score func(in *input, v *llmdView, at int) float64
}{
	llmdQueue: {"queue-scorer", func(_ *input, v *llmdView, at int) float64 {
		return v.waiting.score(v.loads[at].Waiting)
	}},
	llmdUsage: {"kv-cache-utilization-scorer", func(_ *input, v *llmdView, at int) float64 {
		return 1 - v.loads[at].Usage
	}},
	llmdPrefix: {"prefix-cache-scorer", llmdPrefixScore},
	llmdRunning: {"running-requests-size-scorer", func(_ *input, v *llmdView, at int) float64 {
		return v.running.score(running(&v.loads[at]))
	}},
	llmdLoadAware: {"load-aware-scorer", func(in *input, v *llmdView, at int) float64 {
		most := in.cfg.num(llmdThreshold)
		return 0.5 * (1 - min(float64(v.loads[at].Waiting), most)/most)
	}},
	llmdActive: {"active-request-scorer", func(in *input, v *llmdView, at int) float64 {
		n := v.loads[at].Requests
		if float64(n) <= in.cfg.num(llmdIdle) {
			return 1
		}
		return float64(v.busiest-n) / float64(v.busiest) * in.cfg.num(llmdBusyScore)
	}},
	llmdTokenLoad: {"token-load-scorer", func(in *input, v *llmdView, at int) float64 {
		return 1 - float64(v.loads[at].PrefillTokens)/in.cfg.num(llmdQueueTokens)
	}},
	llmdNoHit: {"no-hit-lru-scorer", func(_ *input, v *llmdView, at int) float64 { return v.turns[at] }},
}

// llmdPrefixScore is the share of the prompt's blocks that match, and with
// prefixLengthWeight the square of the match's length beside it.
func llmdPrefixScore(in *input, v *llmdView, at int) float64 {
	if v.total == 0 {
		return 0
	}
	share := v.match[at] / float64(v.total)
	w := in.cfg.num(llmdLengthWeight)
	if w == 0 {
		return share
	}
	length := min(1, v.match[at]*float64(v.size)/in.cfg.num(llmdModelLen))
	return float64((1-w)*share) + float64(w*length*length)
}

func running(l *Load) int { return max(0, l.Requests-l.Waiting) }

// span is the range of a number over the eligible candidates.
type span struct{ least, most int }

func (s *span) add(n int, first bool) {
	if first {
		*s = span{n, n}
		return
	}
	s.least, s.most = min(s.least, n), max(s.most, n)
}

// score is 1 for the least and 0 for the most, and 1 where all are equal.
func (s *span) score(n int) float64 {
	if s.least == s.most {
		return 1
	}
	return float64(s.most-n) / float64(s.most-s.least)
}

// llmdView is what the scorers look at, by position among the eligible.
type llmdView struct {
	// match are the blocks that a producer says are there, of total blocks of size
	// tokens. A block on a slow tier may count as a part of one.
	match            []float64
	total, size      int
	loads            []Load
	waiting, running span
	busiest          int
	// cold says that nobody matches anything, and turns are the scores by who was
	// sent such a prompt last.
	cold  bool
	turns []float64
	// hashes and counts are the approximate producer's.
	hashes []uint64
	counts []int
}

// llmd is what its router remembers.
type llmd struct {
	view llmdView
	// cold are those that were sent prompts which nobody matched, the one that was
	// so longest ago first.
	cold []wire.Replica
	sent *llmdSent // nil but for the approximate producer
}

// maxCold is how many endpoints the no-hit-lru-scorer remembers.
const maxCold = 1024

func (m *llmd) took(in *input, at int) {
	name := in.cands[in.eligible[at]].Replica
	if m.view.cold && in.cfg.num(llmdNoHit) > 0 {
		m.cold = append(slices.DeleteFunc(m.cold, func(r wire.Replica) bool { return r == name }), name)
		m.cold = m.cold[max(0, len(m.cold)-maxCold):]
	}
	if m.sent != nil {
		m.sent.add(name, m.view.hashes)
	}
}

func (m *llmd) joined(wire.Replica) {}

func (m *llmd) left(r wire.Replica) {
	if m.sent != nil {
		m.sent.left(r)
	}
}

// llmdProducer fills the view's match, total and size. It is nil in place of what
// a router remembers where that is not known.
type llmdProducer func(in *input, m *llmd, v *llmdView)

func (p llmdProducer) view(in *input) *llmdView {
	m, _ := in.mem.(*llmd)
	v := &llmdView{}
	if m != nil {
		v = &m.view
	}
	v.match, v.loads, v.turns = v.match[:0], v.loads[:0], v.turns[:0]
	p(in, m, v)
	v.cold, v.busiest = true, 0
	for n, i := range in.eligible {
		l := in.cands[i].load()
		v.loads = append(v.loads, l)
		v.waiting.add(l.Waiting, n == 0)
		v.running.add(running(&l), n == 0)
		v.busiest = max(v.busiest, l.Requests)
		v.cold = v.cold && v.match[n] == 0
	}
	if in.cfg.num(llmdNoHit) > 0 {
		v.takeTurns(in, m)
	}
	return v
}

// takeTurns prefers, for a cold prompt, those that were never sent one, in the
// order of the list, and then the one that was so longest ago.
func (v *llmdView) takeTurns(in *input, m *llmd) {
	never := 0
	for range in.eligible {
		v.turns = append(v.turns, 0.5)
	}
	if m == nil || !v.cold {
		return
	}
	last := max(1, len(in.eligible)-1)
	for n, i := range in.eligible {
		if !slices.Contains(m.cold, in.cands[i].Replica) {
			v.turns[n] = 1 - float64(never)/float64(last)
			never++
		}
	}
	for n, i := range in.eligible {
		at := slices.Index(m.cold, in.cands[i].Replica)
		switch {
		case len(in.eligible) == 1:
			v.turns[n] = 1
		case at >= 0:
			v.turns[n] = max(0, 1-float64(never+at)/float64(last))
		}
	}
}

// each gives the scorers that count, with what they make of a candidate.
func (v *llmdView) each(in *input, at int, do func(name string, weight, score float64)) {
	for s := range llmdScorers {
		if w := in.cfg.num(s); w > 0 {
			do(llmdScorers[s].name, w, min(1, max(0, llmdScorers[s].score(in, v, at))))
		}
	}
}

func (p llmdProducer) rank(in *input) {
	v := p.view(in)
	for at := range in.eligible {
		total := 0.0
		v.each(in, at, func(_ string, weight, score float64) { total += float64(weight * score) })
		in.keys[at] = key{cost: -total}
	}
}

func (p llmdProducer) tell(in *input, at int, s *Scored) {
	v := p.view(in)
	var sum []string
	v.each(in, at, func(name string, weight, score float64) {
		s.Terms = append(s.Terms, Term{name, score, -weight * score})
		sum = append(sum, fmt.Sprintf("%s * %s (%s)", number(weight), number(score), name))
	})
	if sum == nil {
		sum = []string{"nothing"}
	}
	l := &v.loads[at]
	s.Rule = fmt.Sprintf("%s: score %s = %s; %s of %d blocks match, %d wait, %d run, usage %s",
		wire.Printable(string(s.Replica)), number(-s.Cost), strings.Join(sum, " + "),
		number(v.match[at]), v.total, l.Waiting, running(l), number(l.Usage))
}

// llmdChances are the picker's: the highest score, or in proportion to the scores.
// The latter draws u^(1/score) for each and takes the highest, which comes to the
// same. Where all scores are 0 it takes anyone.
func llmdChances(in *input, p []float64) {
	if in.cfg.values[llmdPicker].text == llmdMaxScore {
		in.uniform(p)
		return
	}
	sum := 0.0
	for _, k := range in.keys {
		sum -= k.cost
	}
	for at, k := range in.keys {
		p[at] = 1 / float64(len(p))
		if sum > 0 {
			p[at] = -k.cost / sum
		}
	}
}

func llmdSteps(in *input) []string {
	m, _ := in.mem.(*llmd)
	var steps []string
	if m == nil && in.cfg.num(llmdNoHit) > 0 {
		steps = append(steps, "who was last sent a prompt that nobody held is not known: the no-hit-lru-scorer gives all 0.5")
	}
	if in.cfg.values[llmdPicker].text == llmdWeighted {
		steps = append(steps, "weighted-random-picker: drawn in proportion to the scores")
	}
	return steps
}

// The precise producer's own settings.
const (
	llmdDeviceWeight = llmdOwn + iota
	llmdHostWeight
	llmdWhole
)

// llmdPreciseSettings have the weights of the sample configuration. The medium of
// a block on the host is cpu with vLLM; SGLang's CPU_PINNED is no tier that llm-d
// knows, and weighs 1.
var llmdPreciseSettings = llmdSettings("1", "1", "2",
	setting{name: "backendConfigs.gpu.weight", def: "1", kind: number0, weight: true},
	setting{name: "backendConfigs.cpu.weight", def: "0.8", kind: number0, weight: true},
	setting{name: "whole_blocks", def: "true", kind: onOff},
)

func newLLMDPrecise(*Config) memory { return &llmd{} }

// llmdPrecise is the precise producer: the weights of the blocks from the first
// one on. From 0.10 on it publishes whole blocks, rounded down.
var llmdPrecise llmdProducer = func(in *input, _ *llmd, v *llmdView) {
	v.total, v.size = in.req.Blocks(), in.req.BlockSize
	for _, i := range in.eligible {
		match := &in.cands[i].Match
		sum := addBlocks(0, match[wire.Device], in.cfg.num(llmdDeviceWeight))
		sum = addBlocks(sum, match[wire.Host], in.cfg.num(llmdHostWeight))
		sum += float64(match[wire.Disk] + match[wire.External])
		if in.cfg.on(llmdWhole) {
			sum = math.Trunc(sum)
		}
		v.match = append(v.match, min(sum, float64(v.total)))
	}
}

// maxAdded bounds how many blocks are added one by one.
const maxAdded = 1 << 20

// addBlocks adds a weight n times, as llm-d does: ten blocks of 0.8 are a little
// less than 8 then.
func addBlocks(sum float64, n int, weight float64) float64 {
	if n > maxAdded || weight == math.Trunc(weight) && sum == math.Trunc(sum) {
		return sum + float64(n)*weight
	}
	for range n {
		sum += weight
	}
	return sum
}

func llmdPreciseSteps(in *input) []string {
	steps := llmdSteps(in)
	if in.mem != nil {
		return steps
	}
	holders := 0
	for _, i := range in.eligible {
		if in.cands[i].matched() > 0 {
			holders++
		}
	}
	if holders > LLMDPodEntries {
		steps = append(steps, fmt.Sprintf("%d candidates hold the prompt's first block, and llm-d keeps %d entries of a block: it does not know of all",
			holders, LLMDPodEntries))
	}
	return steps
}

// The approximate producer's own settings.
const (
	llmdBlockSize = llmdOwn + iota
	llmdMaxTokens
	llmdCapacity
)

// llmdDefaultBlocks is how many blocks are hashed where tokens set no limit.
const llmdDefaultBlocks = 2048

// llmdApproximateSettings have the weights of the profile that is built in. An
// empty block size is the engines' own.
var llmdApproximateSettings = llmdSettings("2", "2", "3",
	setting{name: "approx-prefix-cache-producer.blockSizeTokens", def: "", kind: optional},
	setting{name: "approx-prefix-cache-producer.maxPrefixTokensToMatch", def: "131072", kind: whole},
	setting{name: "approx-prefix-cache-producer.lruCapacityPerServer", def: "31250", kind: ratio},
)

func newLLMDApproximate(c *Config) memory {
	return &llmd{sent: newLLMDSent(int(min(c.num(llmdCapacity), math.MaxInt32-1)))}
}

// llmdApproximate is the approximate producer: what it sent where. Prompts of a
// workload without text and tokens are hashed by their symbols.
var llmdApproximate llmdProducer = func(in *input, m *llmd, v *llmdView) {
	v.size = in.req.BlockSize
	if in.cfg.given(llmdBlockSize) {
		v.size = int(in.cfg.num(llmdBlockSize))
	}
	v.size = max(v.size, llmdLeastBlock)
	most := llmdDefaultBlocks
	if tokens := int(in.cfg.num(llmdMaxTokens)); tokens > 0 {
		most = tokens / v.size
	}
	if m == nil {
		v.total = min(most, (in.req.Tokens+v.size-1)/v.size)
		for _, i := range in.eligible {
			v.match = append(v.match, float64(min(v.total, in.cands[i].matched()*in.req.BlockSize/v.size)))
		}
		return
	}
	v.hashes = llmdHashes(v.hashes[:0], in.req, v.size, most)
	v.counts = m.sent.match(v.counts, v.hashes)
	v.total = len(v.hashes)
	for _, i := range in.eligible {
		n := 0
		if pod, known := m.sent.pods[in.cands[i].Replica]; known {
			n = v.counts[pod]
		}
		v.match = append(v.match, float64(n))
	}
}

func llmdApproximateSteps(in *input) []string {
	steps := llmdSteps(in)
	if in.mem == nil {
		steps = append(steps, "what the router sent where cannot be read from outside: what the engines hold stands in for it")
	}
	return steps
}
