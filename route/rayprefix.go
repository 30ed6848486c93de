package route

import (
	"fmt"
	"math"

	"github.com/kvscope/kvscope/wire"
)

// This file is Ray Serve LLM 2.60.0's PrefixCacheAffinityRouter. In a workload
// without text, symbols and tokens count symbolChars characters for each token.

const (
	rayImbalance = iota
	rayMatchRate
	rayEviction
	rayThreshold
	rayTarget
	rayInterval
)

// rayPrefixSettings are the request_router_kwargs of a deployment, which has
// neither flags nor variables for them.
var rayPrefixSettings = []setting{
	rayImbalance: {name: "imbalanced_threshold", kind: anyReal}, // nothing is infinity
	rayMatchRate: {name: "match_rate_threshold", def: "0.1", kind: fraction, weight: true},
	rayEviction:  {name: "do_eviction", def: "false", kind: onOff},
	rayThreshold: {name: "eviction_threshold_chars", def: "400000", kind: whole},
	rayTarget:    {name: "eviction_target_chars", def: "360000", kind: whole},
	rayInterval:  {name: "eviction_interval_secs", def: "10"},
}

// rayPrefixes is what a router remembers: its tree, and when the eviction loop,
// which begins with the first request, last woke up.
type rayPrefixes struct {
	tree         rayTree
	begun        bool
	start, swept wire.Time
}

func newRayPrefixes(*Config) memory { return &rayPrefixes{} }

func (m *rayPrefixes) joined(r wire.Replica) { m.tree.add(r, m.swept) }
func (m *rayPrefixes) left(r wire.Replica)   { m.tree.remove(r) }

// sweep does what the eviction loop did since the last request: passes without an
// insertion between them come to one.
func (m *rayPrefixes) sweep(c *Config, now wire.Time) {
	if !m.begun {
		m.begun, m.start, m.swept = true, now, now
	}
	every := wire.Time(min(c.num(rayInterval), 1e9) * 1e9)
	if !c.on(rayEviction) || every <= 0 {
		return
	}
	if last := m.start + (now-m.start)/every*every; last > m.swept {
		m.swept = last
		m.tree.sweep(int(c.num(rayThreshold)), int(c.num(rayTarget)))
	}
}

func (m *rayPrefixes) took(in *input, at int) {
	for i := range in.cands {
		m.tree.add(in.cands[i].Replica, in.req.At)
	}
	text, weight := rayText(in.req)
	m.tree.insert(text, weight, m.tree.byName[in.cands[in.eligible[at]].Replica], in.req.At)
}

// rayText reads a body, of which there is nothing to read where it was cut.
func rayText(r *Request) (text []rune, weight int) {
	if r.Cut {
		return nil, 1
	}
	return runesOf(r, "")
}

// rayBranch is the way that the rule goes.
type rayBranch uint8

const (
	rayNoText rayBranch = iota
	rayImbalanced
	rayMatched
	raySmallest
	rayNobody // the group has no candidate
)

// rayPrefix is what the rule looked at.
type rayPrefix struct {
	branch       rayBranch
	fewest, most int // queue lengths
	rate         float64
	// place is the position in the group by eligible candidate, -1 outside it.
	place []float64
	size  int
}

// drawn says that two candidates are drawn.
func (v *rayPrefix) drawn() bool { return v.branch != rayMatched && v.branch != raySmallest }

func readRayPrefix(in *input) (v rayPrefix) {
	for n, i := range in.eligible {
		q := in.cands[i].load().Requests
		if n == 0 || q < v.fewest {
			v.fewest = q
		}
		v.most = max(v.most, q)
	}
	threshold := math.Inf(1)
	if in.cfg.given(rayImbalance) {
		threshold = in.cfg.num(rayImbalance)
	}
	m, _ := in.mem.(*rayPrefixes)
	var text []rune
	if m != nil {
		text, _ = rayText(in.req)
	}
	switch {
	case m != nil && len(text) == 0, m == nil && (in.req.Tokens == 0 || in.req.Cut):
		v.branch = rayNoText
	case float64(v.most-v.fewest) > threshold:
		v.branch = rayImbalanced
	case m != nil:
		m.read(in, text, &v)
	default:
		v.guess(in)
	}
	if !v.drawn() && v.size == 0 {
		v.branch = rayNobody
	}
	return v
}

// put gives an eligible candidate its place.
func (v *rayPrefix) put(at int, place float64) {
	if v.place[at] < 0 {
		v.size++
	}
	v.place[at] = place
}

func (v *rayPrefix) none(size int) {
	v.place = make([]float64, size)
	for n := range v.place {
		v.place[n] = -1
	}
}

// read asks the tree.
func (m *rayPrefixes) read(in *input, text []rune, v *rayPrefix) {
	v.none(len(in.eligible))
	asked := make([]*rayTenant, len(in.eligible))
	for n, i := range in.eligible {
		asked[n] = m.tree.byName[in.cands[i].Replica]
	}
	n, end := m.tree.match(text, asked)
	v.rate = float64(n) / float64(len(text))
	if v.rate >= in.cfg.num(rayMatchRate) {
		v.branch = rayMatched
		for n, x := range asked {
			if x == nil && end == &m.tree.root || x != nil && end.owner(x) != nil {
				v.put(n, in.listed(n))
			}
		}
		return
	}
	// The fewest characters of all tenants, whoever is a candidate. One that the
	// tree has not heard of comes in with none, behind the others.
	v.branch = raySmallest
	least := math.MaxInt
	for place, x := range m.tree.tenants {
		least, x.place = min(least, x.chars), place
	}
	for n, x := range asked {
		if x == nil {
			least = 0
			v.put(n, float64(len(m.tree.tenants)+n))
		}
	}
	for n, x := range asked {
		if x != nil && x.chars == least {
			v.put(n, float64(x.place))
		}
	}
}

// guess takes what the engines hold for what the tree does. Whose text is the
// smallest cannot be known, so it can be any.
func (v *rayPrefix) guess(in *input) {
	v.none(len(in.eligible))
	longest := 0
	for _, i := range in.eligible {
		longest = max(longest, in.cands[i].matched())
	}
	v.rate = min(1, float64(longest)*float64(in.req.BlockSize)/float64(max(1, in.req.Tokens)))
	v.branch = raySmallest
	if v.rate >= in.cfg.num(rayMatchRate) {
		v.branch = rayMatched
	}
	for n, i := range in.eligible {
		if v.branch == raySmallest || in.cands[i].matched() == longest {
			v.put(n, in.listed(n))
		}
	}
}

// penalty is what puts those outside the group behind all in it.
func (v *rayPrefix) penalty(at int) float64 {
	if v.drawn() || v.place[at] >= 0 {
		return 0
	}
	return float64(v.most + 1)
}

func rankRayPrefix(in *input) {
	if m, ok := in.mem.(*rayPrefixes); ok {
		m.sweep(in.cfg, in.req.At)
	}
	v := readRayPrefix(in)
	for n, i := range in.eligible {
		in.keys[n] = key{cost: float64(in.cands[i].load().Requests) + v.penalty(n)}
		if !v.drawn() {
			in.keys[n].then = v.place[n]
		}
	}
}

func rayPrefixDrawn(in *input) bool {
	v := readRayPrefix(in)
	return v.drawn()
}

func tellRayPrefix(in *input, at int, s *Scored) {
	v := readRayPrefix(in)
	queue, penalty := float64(in.cands[in.eligible[at]].load().Requests), v.penalty(at)
	word := ""
	switch {
	case penalty > 0:
		word = ", outside the group"
	case !v.drawn():
		word = ", in the group"
	}
	s.Terms = []Term{{"queue_len", queue, queue}, {"outside_group", min(1, penalty), penalty}}
	s.Rule = fmt.Sprintf("%s: queue_len %s%s", wire.Printable(string(s.Replica)), number(queue), word)
}

func rayPrefixSteps(in *input) []string {
	v := readRayPrefix(in)
	limit := "infinity, so it is never imbalanced"
	if in.cfg.given(rayImbalance) {
		limit = number(in.cfg.num(rayImbalance))
	}
	drawn := "two are drawn, and the one with the shorter queue is taken"
	if v.branch == rayNoText {
		return []string{"no text: " + drawn + " (an empty text fails in Ray, with a division by zero)"}
	}
	steps := []string{fmt.Sprintf("queue lengths %d to %d, and imbalanced_threshold is %s", v.fewest, v.most, limit)}
	if v.branch == rayImbalanced {
		return append(steps, "imbalanced: "+drawn)
	}
	if in.mem == nil {
		steps = append(steps, "the router's tree cannot be read from outside: what the engines hold stands in for it")
	}
	steps = append(steps, fmt.Sprintf("match rate %s, and match_rate_threshold is %s", number(v.rate), number(in.cfg.num(rayMatchRate))))
	switch {
	case v.branch == rayNobody:
		return append(steps, "the group has no candidate: "+drawn)
	case v.branch == rayMatched:
		return append(steps, fmt.Sprintf("matched: the shortest queue of the %d that were sent the longest match", v.size))
	case in.mem == nil:
		return append(steps, "below it: the shortest queue of those with the fewest characters in the tree, which can be any")
	}
	return append(steps, fmt.Sprintf("below it: the shortest queue of the %d with the fewest characters in the tree", v.size))
}
