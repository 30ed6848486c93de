package route

import (
	"fmt"
	"math"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// This file is the default policy of Dynamo 1.6.1: its scorer and its picker.
// Operations come in the router's own order, and products are rounded before
// they are added (some processors would fuse the two), so that its ties are ties
// here.

// dynamo is what its settings say, as far as they enter the cost.
type dynamo struct {
	credit, decay, scale, requests, host, disk, shared float64
	temperature                                        float64
	trackBlocks, reuse, trackPrefill                   bool
	// byDecode is the branch that sets the overlap against decode blocks.
	byDecode bool
}

func readDynamo(c *Config, pool Pool) dynamo {
	d := dynamo{
		credit: c.num(dynCredit), decay: c.num(dynDecay), scale: c.num(dynScale),
		requests: c.num(dynRequests), host: c.num(dynHost), disk: c.num(dynDisk),
		shared: c.num(dynShared), temperature: c.num(dynTemperature),
		trackBlocks: c.on(dynTrackBlocks), reuse: c.on(dynReuse), trackPrefill: c.on(dynTrackPrefill),
	}
	if pool == Decode {
		d.credit = 0
	}
	// Dynamo labels aggregated and encode pools "decode" too, but the pool of
	// decode workers proper never has a credit.
	d.byDecode = pool != Prefill && !d.trackPrefill && d.credit > 0
	return d
}

// dynamoCost is a candidate's cost and how it came about, in blocks.
type dynamoCost struct {
	device, host, disk, shared   float64 // as matched
	effective                    float64
	active, prompt, raw          float64 // of prefill
	decay, credit, adjusted      float64
	booked, fresh, decode        float64
	requests, requestCost        float64
	multiplier, unweighted, cost float64
}

// leastActive is the fewest active prefill tokens of the eligible candidates.
func leastActive(in *input) float64 {
	least := math.Inf(1)
	for _, i := range in.eligible {
		least = min(least, float64(in.cands[i].load().PrefillTokens))
	}
	return least
}

func (d *dynamo) costOf(in *input, c *Candidate, least float64) (v dynamoCost) {
	r, l := in.req, c.load()
	size, length := float64(r.BlockSize), float64(r.Tokens)
	if d.credit > 0 {
		v.device = float64(c.Match[wire.Device])
		v.host = float64(c.Match[wire.Host])
		v.disk = float64(c.Match[wire.Disk] + c.Match[wire.External])
		v.shared = float64(c.Shared)
	}
	v.effective = v.device + float64(d.host*v.host) + float64(d.disk*v.disk)
	if d.trackPrefill {
		cached := math.Round(v.effective * size)
		active, prompt := float64(l.PrefillTokens), max(0, length-cached)+cached
		if c.Load.State == LoadUnknown {
			prompt = length
		}
		v.active, v.prompt = active/size, prompt/size
		v.raw = (active + prompt) / size
	}
	v.decay = 1
	if d.trackPrefill && d.decay > 0 {
		excess := max(0, float64(l.PrefillTokens)-least) / size
		v.decay = 1 / (1 + float64(d.decay*(excess/float64(max(1, r.begun())))))
	}
	v.credit = float64(d.credit*v.decay*v.device) + float64(d.host*v.host) + float64(d.disk*v.disk) + float64(d.shared*v.shared)
	if d.trackBlocks {
		prefix := l.Prefix
		if !d.reuse {
			prefix = 0
		}
		v.booked, v.fresh = float64(l.Blocks), float64(max(0, r.Blocks()-prefix))
		v.decode = v.booked + v.fresh
	}
	v.requests = float64(l.Requests)
	v.requestCost = d.requests * v.requests
	if d.byDecode {
		v.adjusted = max(0, v.decode-v.credit)
		v.unweighted = v.adjusted + v.requestCost
	} else {
		v.adjusted = max(0, v.raw-v.credit)
		v.unweighted = float64(d.scale*v.adjusted) + v.decode + v.requestCost
	}
	v.multiplier, v.cost = 1, v.unweighted
	if prefers, weight := preferred(r, c); prefers && r.Pinned == "" {
		v.multiplier = math.Exp(-math.Tanh(weight))
		v.cost = v.unweighted * v.multiplier
	}
	return v
}

// preferred sums the weights of the preferred taints that a candidate has.
func preferred(r *Request, c *Candidate) (any bool, sum float64) {
	for i, taint := range c.Taints {
		if weight, ok := r.PreferredTaints[taint]; ok && !containsBefore(c.Taints, i) {
			any, sum = true, sum+weight
		}
	}
	return any, sum
}

// containsBefore reports whether a list has its element i earlier too.
func containsBefore(list []string, i int) bool {
	for _, v := range list[:i] {
		if v == list[i] {
			return true
		}
	}
	return false
}

func rankDynamo(in *input) {
	d, least := readDynamo(in.cfg, in.req.Pool), leastActive(in)
	for n, i := range in.eligible {
		v := d.costOf(in, &in.cands[i], least)
		in.keys[n] = key{cost: v.cost}
	}
}

// tellDynamo splits the cost. The names are those of the router's log, with its
// raw_prefill_blocks, overlap_credit_blocks and decode_blocks taken apart.
func tellDynamo(in *input, at int, s *Scored) {
	d := readDynamo(in.cfg, in.req.Pool)
	v := d.costOf(in, &in.cands[in.eligible[at]], leastActive(in))
	scale := d.scale // of the credits
	base := v.raw
	if d.byDecode {
		scale, base = 1, v.decode
	}
	device := d.credit * v.decay * v.device
	s.Terms = []Term{
		{"active_prefill_blocks", v.active, d.scale * v.active},
		{"prompt_blocks", v.prompt, d.scale * v.prompt},
		{"device_overlap_credit", v.device, -scale * device},
		{"host_overlap_credit", v.host, -scale * d.host * v.host},
		{"disk_overlap_credit", v.disk, -scale * d.disk * v.disk},
		{"shared_cache_credit", v.shared, -scale * d.shared * v.shared},
		{"clamp_at_zero", v.adjusted - (base - v.credit), scale * (v.adjusted - (base - v.credit))},
		{"active_decode_blocks", v.booked, v.booked},
		{"new_decode_blocks", v.fresh, v.fresh},
		{"active_request_cost_blocks", v.requests, v.requestCost},
		{"preferred_taint_multiplier", v.multiplier, v.cost - v.unweighted},
	}
	s.Rule = d.formula(in, s.Replica, &v)
}

// formula is the row that the router's reference scorer logs.
func (d *dynamo) formula(in *input, name wire.Replica, v *dynamoCost) string {
	var b strings.Builder
	word := "Formula"
	if in.req.Pinned != "" {
		word = "Pinned formula"
	}
	fmt.Fprintf(&b, "%s for %s with %.2f effective cached blocks: %.3f = ", word, wire.Printable(string(name)), v.effective, v.unweighted)
	if d.byDecode {
		fmt.Fprintf(&b, "max(0, decode_blocks - overlap_credit_blocks) + active_request_cost_blocks = max(0, %.3f - %.3f) + %.3f",
			v.decode, v.credit, v.requestCost)
	} else {
		fmt.Fprintf(&b, "prefill_load_scale * adjusted_prefill_blocks + decode_blocks + active_request_cost_blocks = %.3f * %.3f + %.3f + %.3f"+
			" (raw_prefill_blocks: %.3f, overlap_credit_blocks: %.3f, overlap_credit_decay: %.3f)",
			d.scale, v.adjusted, v.decode, v.requestCost, v.raw, v.credit, v.decay)
	}
	if v.multiplier != 1 {
		fmt.Fprintf(&b, ", times preferred_taint_multiplier %.3f = %.3f", v.multiplier, v.cost)
	}
	return b.String()
}

// dynamoChances is the picker: the minimum, or a draw over costs normalised by
// their range.
func dynamoChances(in *input, p []float64) {
	temperature := in.cfg.num(dynTemperature)
	best, _ := in.best()
	most := best.cost
	for _, k := range in.keys {
		most = max(most, k.cost)
	}
	span := (most - best.cost) * temperature
	switch {
	case temperature == 0 || len(in.keys) == 0:
		in.uniform(p)
		return
	case most == best.cost || span == 0:
		for i := range p {
			p[i] = 1 / float64(len(p))
		}
		return
	}
	sum := 0.0
	for i, k := range in.keys {
		p[i] = math.Exp(-(k.cost - best.cost) / span)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
}

func dynamoSteps(in *input) []string {
	d := readDynamo(in.cfg, in.req.Pool)
	steps := []string{fmt.Sprintf("isl %d tokens, block size %d: %d request blocks, %d of them complete",
		in.req.Tokens, in.req.BlockSize, in.req.begun(), in.req.Blocks())}
	add := func(when bool, text string) {
		if when {
			steps = append(steps, text)
		}
	}
	add(d.credit == 0, "overlap_score_credit is 0: no cache data is asked for, whatever the tier")
	add(!d.trackPrefill, "prefill tokens are not tracked: raw_prefill_blocks is 0")
	add(!d.trackBlocks, "active blocks are not tracked: decode_blocks is 0")
	add(!d.reuse && d.trackBlocks, "KV reuse is not assumed: no block is shared between active requests")
	add(d.decay > 0 && d.trackPrefill, "overlap_credit_decay = 1 / (1 + overlap_score_credit_decay * (excess active prefill blocks / request blocks))")
	if d.byDecode {
		steps = append(steps, "cost = max(0, decode_blocks - overlap_credit_blocks) + active_request_cost_blocks")
	} else {
		steps = append(steps, "cost = prefill_load_scale * max(0, raw_prefill_blocks - overlap_credit_blocks) + decode_blocks + active_request_cost_blocks")
	}
	if d.temperature > 0 {
		return append(steps, fmt.Sprintf("router_temperature %s: a draw with probabilities ~ exp(-(cost - min) / ((max - min) * temperature))", number(d.temperature)))
	}
	return append(steps, "router_temperature 0: the lowest cost")
}
