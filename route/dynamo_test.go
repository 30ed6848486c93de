package route

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// configured gives a policy with settings of the form name=value.
func configured(t testing.TB, policy string, set ...string) *Config {
	t.Helper()
	p, err := Named(policy)
	if err != nil {
		t.Fatal(err)
	}
	var settings []Setting
	for _, s := range set {
		name, val, _ := strings.Cut(s, "=")
		settings = append(settings, Setting{name, val, "test"})
	}
	cfg, err := p.Configure(Sources{Flags: settings})
	if err != nil {
		t.Fatal(err)
	}
	return &cfg
}

func decide(t testing.TB, cfg *Config, req *Request, cands []Candidate) Decision {
	t.Helper()
	d, err := Decide(cfg, req, cands)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// cand is a candidate with a match and a known load.
func cand(name wire.Replica, device, prefill, blocks, requests int) Candidate {
	return Candidate{
		Replica: name, Match: [wire.NumTiers]int{device},
		Load: Load{State: LoadKnown, PrefillTokens: prefill, Blocks: blocks, Requests: requests},
	}
}

func costs(d *Decision) []float64 {
	var out []float64
	for _, c := range d.Candidates {
		out = append(out, c.Cost)
	}
	return out
}

// TestDynamoCost holds costs against ones that were reckoned by hand.
func TestDynamoCost(t *testing.T) {
	t.Parallel()
	// 160 tokens are 10 blocks of 16; a holds 6 of them and is idle, b holds none
	// and is to prefill 160 tokens for a request that has 20 blocks.
	req := Request{Tokens: 160, BlockSize: 16}
	two := []Candidate{cand("a", 6, 0, 0, 0), cand("b", 0, 160, 20, 1)}
	tiers := cand("a", 2, 0, 0, 0)
	tiers.Match = [wire.NumTiers]int{2, 4, 1, 1}
	shared := cand("a", 2, 0, 0, 0)
	shared.Shared = 6
	host := cand("a", 0, 0, 0, 0)
	host.Match[wire.Host] = 1
	unknown := cand("a", 0, 999, 999, 9)
	unknown.Load.State = LoadUnknown
	overlapping := cand("a", 0, 0, 7, 1)
	overlapping.Load.Prefix = 7
	for name, tt := range map[string]struct {
		set   []string
		pool  Pool
		req   Request
		cands []Candidate
		want  []float64
	}{
		"defaults":             {cands: two, want: []float64{4 + 10, 20 + 30}},
		"a scale":              {set: []string{"prefill_load_scale=2"}, cands: two, want: []float64{8 + 10, 40 + 30}},
		"a weight of requests": {set: []string{"decode_active_request_weight=3"}, cands: two, want: []float64{14, 53}},
		"a credit below 1":     {set: []string{"overlap_score_credit=0.5"}, cands: two, want: []float64{7 + 10, 50}},
		"a credit above":       {set: []string{"overlap_score_credit=2"}, cands: two, want: []float64{0 + 10, 50}},
		"no credit":            {set: []string{"overlap_score_credit=0"}, cands: two, want: []float64{20, 50}},
		"no credit, any tier":  {set: []string{"overlap_score_credit=0", "shared_cache_multiplier=1"}, cands: []Candidate{tiers, shared.named("b")}, want: []float64{20, 20}},
		"no blocks tracked":    {set: []string{"router_track_active_blocks=false"}, cands: two, want: []float64{4, 20}},
		"no prefill tracked":   {set: []string{"router_track_prefill_tokens=false"}, cands: two, want: []float64{10 - 6, 30}},
		"the same, clamped":    {set: []string{"router_track_prefill_tokens=false", "overlap_score_credit=2"}, cands: two, want: []float64{0, 30}},
		"the same in prefill":  {set: []string{"router_track_prefill_tokens=false"}, pool: Prefill, cands: two, want: []float64{10, 30}},
		"the same, encode":     {set: []string{"router_track_prefill_tokens=false"}, pool: Encode, cands: two, want: []float64{4, 30}},
		"the same without":     {set: []string{"router_track_prefill_tokens=false", "overlap_score_credit=0"}, cands: two, want: []float64{10, 30}},
		"decode workers":       {pool: Decode, cands: two, want: []float64{20, 50}},
		"tiers":                {cands: []Candidate{tiers}, want: []float64{10 - (2 + 0.75*4 + 0.25*2) + 10}},
		"weights of tiers":     {set: []string{"host_cache_hit_weight=1", "disk_cache_hit_weight=0"}, cands: []Candidate{tiers}, want: []float64{10 - 6 + 10}},
		"a shared cache":       {set: []string{"shared_cache_multiplier=0.25"}, cands: []Candidate{shared}, want: []float64{10 - 2 - 1.5 + 10}},
		"hicache":              {set: []string{"shared_cache_type=hicache"}, cands: []Candidate{shared}, want: []float64{10 - 2 - 3 + 10}},
		"a part of a block":    {req: Request{Tokens: 250, BlockSize: 16}, cands: []Candidate{cand("a", 0, 0, 0, 0)}, want: []float64{30.625}},
		"pairs of tokens":      {req: Request{Tokens: 160, BlockSize: 16, Bigram: true}, cands: []Candidate{cand("a", 0, 0, 0, 0)}, want: []float64{10 + 9}},
		"unknown is idle":      {cands: []Candidate{unknown}, want: []float64{20}},
		"shared with active":   {cands: []Candidate{overlapping}, want: []float64{10 + 7 + 3}},
		"no reuse assumed":     {set: []string{"router_assume_kv_reuse=false"}, cands: []Candidate{overlapping}, want: []float64{10 + 7 + 10}},
		"nothing to do":        {req: Request{Tokens: 0, BlockSize: 16}, cands: two, want: []float64{0, 10 + 20}},
		// 3 blocks count as cached, more than the prompt has: 48 tokens of raw prefill.
		"more than all cached": {set: []string{"host_cache_hit_weight=3"}, req: Request{Tokens: 17, BlockSize: 16}, cands: []Candidate{host}, want: []float64{0 + 1}},
		// 2.5 tokens count as 3 cached ones: 1.5 blocks of raw prefill, 1.25 of credit.
		"half away from zero":    {set: []string{"host_cache_hit_weight=1.25"}, req: Request{Tokens: 1, BlockSize: 2}, cands: []Candidate{host}, want: []float64{0.25}},
		"decay without a credit": {set: []string{"overlap_score_credit_decay=1"}, cands: []Candidate{cand("b", 0, 160, 0, 1), two[0]}, want: []float64{20 + 10, 4 + 10}},
	} {
		if tt.req.BlockSize == 0 {
			tt.req = req
		}
		if name == "nothing to do" {
			tt.cands = []Candidate{cand("a", 0, 0, 0, 0), cand("b", 0, 160, 20, 1)}
		}
		tt.req.Pool = tt.pool
		d := decide(t, configured(t, "dynamo", tt.set...), &tt.req, tt.cands)
		if got := costs(&d); !slices.EqualFunc(got, tt.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
			t.Errorf("%s: %v, want %v\n%s", name, got, tt.want, d.Candidates[0].Rule)
		}
	}
}

// TestDynamoDecay is the published example: under a decay of 1 a credit of 6
// becomes 3 for a worker whose prefill backlog is above the least by the size of
// the request.
func TestDynamoDecay(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16}
	d := decide(t, configured(t, "dynamo", "overlap_score_credit_decay=1"), &req,
		[]Candidate{cand("a", 6, 160, 0, 1), cand("b", 0, 0, 0, 0)})
	credit := d.Candidates[0].Terms[2]
	if credit.Name != "device_overlap_credit" || credit.Value != 6 || credit.Cost != -3 {
		t.Errorf("%+v", credit)
	}
	if d.Candidates[0].Cost != 20-3+10 {
		t.Errorf("cost %v", d.Candidates[0].Cost)
	}
	if !strings.Contains(d.Candidates[0].Rule, "overlap_credit_blocks: 3.000, overlap_credit_decay: 0.500") {
		t.Error(d.Candidates[0].Rule)
	}
}

func TestDynamoTaints(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16, PreferredTaints: map[string]float64{"fast": 1, "near": -0.5}}
	a, b, c := cand("a", 0, 0, 0, 0), cand("b", 0, 0, 0, 0), cand("c", 0, 0, 0, 0)
	a.Taints, b.Taints = []string{"fast", "fast"}, []string{"near", "other"}
	cfg := configured(t, "dynamo")
	d := decide(t, cfg, &req, []Candidate{a, b, c})
	want := []float64{20 * math.Exp(-math.Tanh(1)), 20 * math.Exp(-math.Tanh(-0.5)), 20}
	if !slices.Equal(costs(&d), want) {
		t.Errorf("%v, want %v", costs(&d), want)
	}
	if term, _, _, _ := d.Deciding(); term != "preferred_taint_multiplier" {
		t.Errorf("decided by %s", term)
	}
	req.Pinned = "b"
	if d = decide(t, cfg, &req, []Candidate{a, b, c}); d.Candidates[1].Cost != 20 || !strings.HasPrefix(d.Candidates[1].Rule, "Pinned formula for b") {
		t.Errorf("pinned: %+v", d.Candidates[1])
	}
}

func TestDynamoTemperature(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16}
	cands := []Candidate{cand("a", 10, 0, 0, 0), cand("b", 5, 0, 0, 0), cand("c", 0, 0, 0, 0)} // 10, 15, 20
	d := decide(t, configured(t, "dynamo", "router_temperature=0.5"), &req, cands)
	sum := 1 + math.Exp(-1) + math.Exp(-2)
	for i, want := range []float64{1 / sum, math.Exp(-1) / sum, math.Exp(-2) / sum} {
		if got := d.Candidates[i].Probability; math.Abs(got-want) > 1e-12 {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	if !slices.Equal(d.Choice, []int{0, 1, 2}) || !slices.Equal(d.Best, []int{0}) {
		t.Errorf("choice %v, best %v", d.Choice, d.Best)
	}
	d = decide(t, configured(t, "dynamo", "router_temperature=0.5"), &req, []Candidate{cands[0], cands[0].named("x")})
	if d.Candidates[0].Probability != 0.5 || d.Candidates[1].Probability != 0.5 {
		t.Errorf("equal: %+v", d.Candidates)
	}
	// So cold that the range vanishes: what is not the best has no chance.
	d = decide(t, configured(t, "dynamo", "router_temperature=1e-6"), &req, cands)
	if !slices.Equal(d.Choice, []int{0}) || d.Candidates[0].Probability != 1 {
		t.Errorf("cold: %v", d.Choice)
	}
}

func (c Candidate) named(name wire.Replica) Candidate {
	c.Replica = name
	return c
}

// TestCold holds that a cold fleet goes to the least loaded, and never always to
// the first.
func TestCold(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16}
	cfg := configured(t, "dynamo")
	busy := []Candidate{cand("a", 0, 320, 40, 2), cand("b", 0, 0, 0, 0), cand("c", 0, 160, 20, 1)}
	d := decide(t, cfg, &req, busy)
	if got := d.Names(d.Choice); !slices.Equal(got, []wire.Replica{"b"}) {
		t.Errorf("chosen %v", got)
	}
	if d.Candidates[1].Rank != 1 || d.Candidates[2].Rank != 2 || d.Candidates[0].Rank != 3 {
		t.Errorf("ranks %+v", d.Candidates)
	}
	idle := []Candidate{cand("a", 0, 0, 0, 0), cand("b", 0, 0, 0, 0), {Replica: "c"}}
	d = decide(t, cfg, &req, idle)
	if len(d.Choice) != 3 || d.Candidates[0].Probability != 1.0/3 || d.Why() != "all eligible candidates are equal: any of a, b, c" {
		t.Errorf("idle: %v, %s", d.Choice, d.Why())
	}
	if d.Candidates[2].Load != LoadUnknown || d.Candidates[2].Load.String() != "unknown" {
		t.Errorf("load %v", d.Candidates[2].Load)
	}
}

func TestDeciding(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16}
	cfg := configured(t, "dynamo")
	for name, tt := range map[string]struct {
		cands  []Candidate
		term   string
		margin float64
		why    string
	}{
		"overlap": {[]Candidate{cand("a", 2, 0, 0, 0), cand("b", 9, 0, 5, 1)}, "device_overlap_credit", 7, "b before a by device_overlap_credit (7)"},
		"prefill": {[]Candidate{cand("a", 2, 320, 0, 0), cand("b", 0, 0, 5, 1)}, "active_prefill_blocks", 20, "b before a by active_prefill_blocks (20)"},
		"decode":  {[]Candidate{cand("a", 0, 0, 9, 0), cand("b", 0, 0, 5, 1)}, "active_decode_blocks", 4, "b before a by active_decode_blocks (4)"},
		"alone":   {[]Candidate{cand("a", 0, 0, 9, 0)}, "", 0, "a alone is eligible"},
		"nobody":  {nil, "", 0, "no candidate is eligible"},
	} {
		d := decide(t, cfg, &req, tt.cands)
		term, margin, _, ok := d.Deciding()
		if term != tt.term || margin != tt.margin || ok != (tt.term != "") || d.Why() != tt.why {
			t.Errorf("%s: %s %v %v, %s", name, term, margin, ok, d.Why())
		}
	}
	// A match that all have cancels, and says that weights of it change nothing.
	d := decide(t, cfg, &req, []Candidate{cand("a", 4, 0, 9, 0), cand("b", 4, 0, 5, 0)})
	if got := d.Cancels(); slices.Contains(got, "active_decode_blocks") || !slices.Contains(got, "device_overlap_credit") || len(got) != 10 {
		t.Errorf("cancel: %v", got)
	}
	one := decide(t, cfg, &req, []Candidate{cand("a", 4, 0, 9, 0)})
	if got := one.Cancels(); got != nil {
		t.Errorf("of one candidate %v cancel", got)
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 170, BlockSize: 16, Allowed: []wire.Replica{"a", "b"}}
	d := decide(t, configured(t, "dynamo"), &req, []Candidate{cand("a", 6, 0, 0, 0), cand("b", 0, 0, 0, 0), cand("c", 9, 0, 0, 0)})
	want := []string{
		"allowed workers: 1 taken out",
		"isl 170 tokens, block size 16: 11 request blocks, 10 of them complete",
		"cost = prefill_load_scale * max(0, raw_prefill_blocks - overlap_credit_blocks) + decode_blocks + active_request_cost_blocks",
		"router_temperature 0: the lowest cost",
		"a is chosen",
	}
	if !slices.Equal(d.Trace, want) {
		t.Errorf("trace\n%s", strings.Join(d.Trace, "\n"))
	}
	if want := "Formula for a with 6.00 effective cached blocks: 14.625 = prefill_load_scale * adjusted_prefill_blocks + decode_blocks + active_request_cost_blocks" +
		" = 1.000 * 4.625 + 10.000 + 0.000 (raw_prefill_blocks: 10.625, overlap_credit_blocks: 6.000, overlap_credit_decay: 1.000)"; d.Candidates[0].Rule != want {
		t.Error(d.Candidates[0].Rule)
	}
	if c := d.Candidates[2]; c.Out != "not among the allowed workers" || c.Rank != 0 || c.Terms != nil {
		t.Errorf("%+v", c)
	}
	more := decide(t, configured(t, "dynamo", "router_track_prefill_tokens=false", "router_assume_kv_reuse=false", "router_temperature=1", "overlap_score_credit=1"),
		&req, []Candidate{cand("a", 6, 0, 0, 0), cand("b", 0, 0, 0, 0)})
	for _, want := range []string{
		"prefill tokens are not tracked", "KV reuse is not assumed", "cost = max(0, decode_blocks - overlap_credit_blocks)",
		"a draw with probabilities", "any of 2 candidates is drawn, the likeliest is a",
	} {
		if !strings.Contains(strings.Join(more.Trace, "\n"), want) {
			t.Errorf("no %q in\n%s", want, strings.Join(more.Trace, "\n"))
		}
	}
}

// TestPageExample is the example of docs/routers/dynamo.md.
func TestPageExample(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 186, BlockSize: 16}
	cfg := configured(t, "dynamo")
	cands := []Candidate{cand("a", 6, 64, 20, 1), cand("b", 0, 0, 0, 0)}
	d := decide(t, cfg, &req, cands)
	if !slices.Equal(costs(&d), []float64{40.625, 22.625}) || d.Why() != "b before a by active_decode_blocks (20)" {
		t.Errorf("%v, %s", costs(&d), d.Why())
	}
	if got := d.Cancels(); !slices.Contains(got, "prompt_blocks") || !slices.Contains(got, "new_decode_blocks") {
		t.Errorf("cancel: %v", got)
	}
	for to, want := range map[string]int{"2": 2, "1": 1} {
		_, edited, err := Edit(cfg, cands, "a:active_decode_blocks", to)
		if err != nil {
			t.Fatal(err)
		}
		if d := decide(t, cfg, &req, edited); len(d.Best) != want || d.Best[0] != 0 {
			t.Errorf("with %s: %v", to, d.Best)
		}
	}
}
