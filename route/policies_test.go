package route

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	all := []Candidate{cand("w/0", 0, 0, 0, 0), cand("w/1", 0, 0, 0, 0), cand("v", 0, 0, 0, 0)}
	all[0].Taints = []string{"zone-a", "big"}
	all[1].Taints = []string{"zone-a"}
	busy := slices.Clone(all)
	busy[0].Overloaded = true
	for name, tt := range map[string]struct {
		req   Request
		cands []Candidate
		want  []wire.Replica
	}{
		"none":                  {Request{}, all, []wire.Replica{"w/0", "w/1", "v"}},
		"a worker":              {Request{Allowed: []wire.Replica{"w"}}, all, []wire.Replica{"w/0", "w/1"}},
		"a rank":                {Request{Allowed: []wire.Replica{"w/1"}}, all, []wire.Replica{"w/1"}},
		"nobody":                {Request{Allowed: []wire.Replica{}}, all, nil},
		"a taint":               {Request{RequiredTaints: []string{"zone-a"}}, all, []wire.Replica{"w/0", "w/1"}},
		"two taints":            {Request{RequiredTaints: []string{"big", "zone-a"}}, all, []wire.Replica{"w/0"}},
		"overload":              {Request{}, busy, []wire.Replica{"w/1", "v"}},
		"pinned":                {Request{Pinned: "v"}, all, []wire.Replica{"v"}},
		"pinned and overloaded": {Request{Pinned: "w/0"}, busy, nil},
		"affinity":              {Request{Affinity: "w/1"}, all, []wire.Replica{"w/1"}},
		"affinity to a busy":    {Request{Affinity: "w/0"}, busy, []wire.Replica{"w/1", "v"}},
		"affinity to a stranger": {
			Request{Affinity: "x"}, all, []wire.Replica{"w/0", "w/1", "v"},
		},
	} {
		tt.req.Tokens, tt.req.BlockSize = 32, 16
		d := decide(t, configured(t, "dynamo"), &tt.req, tt.cands)
		if got := d.Names(d.Choice); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v\n%s", name, got, tt.want, strings.Join(d.Trace, "\n"))
		}
	}
	req := Request{Tokens: 32, BlockSize: 16, Affinity: "v"}
	if d := decide(t, configured(t, "dynamo-two-tier-cost-fn"), &req, all); len(d.Choice) != 3 {
		t.Errorf("affinity in another policy: %v", d.Choice)
	}
}

// TestTwoTier has cases of 10 blocks, of which the thresholds are 5 and 32.
func TestTwoTier(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16}
	for name, tt := range map[string]struct {
		set    []string
		a, b   Candidate
		want   wire.Replica
		decide string
	}{
		"cache before load":          {nil, cand("a", 0, 0, 0, 0), cand("b", 6, 0, 0, 4), "b", "device_overlap_blocks"},
		"the threshold is strict":    {nil, cand("a", 0, 0, 0, 0), cand("b", 5, 0, 0, 4), "a", "active_requests"},
		"a lower threshold":          {[]string{"cache_threshold=0.2"}, cand("a", 0, 0, 0, 0), cand("b", 3, 0, 0, 4), "b", "device_overlap_blocks"},
		"both gates of load":         {nil, cand("a", 0, 0, 0, 0), cand("b", 10, 0, 0, 40), "a", "active_requests"},
		"a spread of 32":             {nil, cand("a", 0, 0, 0, 0), cand("b", 10, 0, 0, 32), "b", "device_overlap_blocks"},
		"the ratio too":              {nil, cand("a", 0, 0, 0, 640), cand("b", 10, 0, 0, 704), "b", "device_overlap_blocks"},
		"just above the ratio":       {nil, cand("a", 0, 0, 0, 640), cand("b", 10, 0, 0, 705), "a", "active_requests"},
		"equal overlap":              {nil, cand("a", 8, 0, 0, 5), cand("b", 8, 0, 0, 4), "b", "active_requests"},
		"host blocks do not count":   {nil, cand("a", 0, 0, 0, 0), hosted(cand("b", 3, 0, 0, 4), 7), "a", "active_requests"},
		"other thresholds of load":   {[]string{"balance_abs_threshold=2", "balance_rel_threshold=1"}, cand("a", 0, 0, 0, 1), cand("b", 10, 0, 0, 4), "a", "active_requests"},
		"a longer one that is short": {nil, cand("a", 4, 0, 0, 2), cand("b", 2, 0, 0, 1), "b", "active_requests"},
	} {
		d := decide(t, configured(t, "dynamo-two-tier-cost-fn", tt.set...), &req, []Candidate{tt.a, tt.b})
		if got := d.Names(d.Choice); !slices.Equal(got, []wire.Replica{tt.want}) {
			t.Errorf("%s: %v, want %s\n%s", name, got, tt.want, strings.Join(d.Trace, "\n"))
		}
		if term, _, _, _ := d.Deciding(); term != tt.decide {
			t.Errorf("%s: decided by %s, want %s", name, term, tt.decide)
		}
	}
	d := decide(t, configured(t, "dynamo-two-tier-cost-fn"), &Request{BlockSize: 16}, []Candidate{cand("a", 0, 0, 0, 0), cand("b", 0, 0, 0, 0)})
	if len(d.Choice) != 2 {
		t.Errorf("an empty prompt: %v", d.Choice)
	}
}

func hosted(c Candidate, blocks int) Candidate {
	c.Match[wire.Host] = blocks
	return c
}

func TestReferencePolicies(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16}
	cands := []Candidate{cand("a", 2, 0, 0, 3), hosted(cand("b", 1, 0, 0, 1), 4), cand("c", 0, 0, 0, 1), cand("d", 5, 0, 0, 9)}
	for name, tt := range map[string]struct {
		set    []string
		policy string
		best   []int
		chance []float64
	}{
		"affinity":     {nil, "affinity", []int{1, 3}, []float64{0, 0.5, 0, 0.5}},
		"least loaded": {nil, "least-loaded", []int{1, 2}, []float64{0, 0.5, 0.5, 0}},
		"some turn":    {nil, "round-robin", []int{0, 1, 2, 3}, []float64{0.25, 0.25, 0.25, 0.25}},
		"a turn":       {[]string{"turn=6"}, "round-robin", []int{2}, []float64{0, 0, 1, 0}},
		// Of six pairs a wins one, d none, and b and c four and the one of both.
		"power of two": {nil, "power-of-two", []int{1, 2}, []float64{1. / 6, 2.5 / 6, 2.5 / 6, 0}},
	} {
		d := decide(t, configured(t, tt.policy, tt.set...), &req, cands)
		if !slices.Equal(d.Best, tt.best) {
			t.Errorf("%s: best %v, want %v", name, d.Best, tt.best)
		}
		for i, want := range tt.chance {
			if got := d.Candidates[i].Probability; math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: chance of %d is %v, want %v", name, i, got, want)
			}
		}
		if d.Candidates[0].Rule == "" || len(d.Trace) == 0 {
			t.Errorf("%s: %q, %q", name, d.Candidates[0].Rule, d.Trace)
		}
	}
	d := decide(t, configured(t, "power-of-two"), &req, cands[:1])
	if d.Candidates[0].Probability != 1 {
		t.Errorf("of one: %+v", d.Candidates[0])
	}
	// Nobody is a case for every policy.
	for _, name := range Policies() {
		if d := decide(t, configured(t, name), &req, nil); d.Choice != nil || d.Best != nil {
			t.Errorf("%s of nobody: %+v", name, d)
		}
	}
}

func TestDecideRefuses(t *testing.T) {
	t.Parallel()
	ok := Request{Tokens: 32, BlockSize: 16}
	for want, tt := range map[string]struct {
		req   Request
		cands []Candidate
	}{
		"a block size of 0 tokens":                            {Request{Tokens: 1}, nil},
		"a prompt of -1 tokens":                               {Request{Tokens: -1, BlockSize: 16}, nil},
		"the weight of the taint ":                            {Request{Tokens: 1, BlockSize: 16, PreferredTaints: map[string]float64{"x": math.NaN()}}, nil},
		"two candidates are called a: name each replica once": {ok, []Candidate{{Replica: "a"}, {Replica: "a"}}},
		"a: a count of -1":                                    {ok, []Candidate{cand("a", 0, -1, 0, 0)}},
		"a: a match of 3 blocks, and the prompt has 2":        {ok, []Candidate{cand("a", 3, 0, 0, 0)}},
		"a: a count of 9223372036854775807: counts go ":       {ok, []Candidate{cand("a", 0, 0, math.MaxInt, 0)}},
	} {
		_, err := Decide(configured(t, "dynamo"), &tt.req, tt.cands)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "a request that dynamo cannot be asked about: ") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Named("best"); err == nil || !strings.HasPrefix(err.Error(), `no policy is called "best": there are dynamo, `) {
		t.Error(err)
	}
}
