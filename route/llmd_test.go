package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// scores gives what llm-d would log: the highest wins.
func scores(d *Decision) []float64 {
	var out []float64
	for _, c := range d.Candidates {
		out = append(out, -c.Cost)
	}
	return out
}

func near(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) < 1e-12 })
}

// busyThree are idle, half full and full.
func busyThree() []Candidate {
	c := []Candidate{cand("a", 6, 0, 0, 2), cand("b", 3, 1048576, 0, 7), cand("c", 0, 8388608, 0, 6)}
	for i, l := range []Load{{Usage: 0.25}, {Waiting: 3, Usage: 0.5}, {Waiting: 6, Usage: 1}} {
		c[i].Load.Waiting, c[i].Load.Usage = l.Waiting, l.Usage
	}
	return c
}

// only sets the weight of one scorer to 1, and of all others to 0.
func only(scorer string, more ...string) []string {
	out := more
	for _, s := range llmdScorers {
		w := "0"
		if s.name == scorer {
			w = "1"
		}
		out = append(out, s.name+"="+w)
	}
	return out
}

// TestLLMDScorers has a prompt of 8 blocks of 64 tokens. Running are 2, 4 and 0.
func TestLLMDScorers(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 512, BlockSize: 64}
	equal := []Candidate{cand("a", 0, 0, 0, 4), cand("b", 0, 0, 0, 4)}
	one := []Candidate{cand("a", 0, 0, 0, 0)}
	for name, tt := range map[string]struct {
		set   []string
		cands []Candidate
		want  []float64
	}{
		"queue":               {only("queue-scorer"), busyThree(), []float64{1, 0.5, 0}},
		"equal queues":        {only("queue-scorer"), equal, []float64{1, 1}},
		"usage":               {only("kv-cache-utilization-scorer"), busyThree(), []float64{0.75, 0.5, 0}},
		"prefix":              {only("prefix-cache-scorer"), busyThree(), []float64{0.75, 0.375, 0}},
		"prefix by length":    {only("prefix-cache-scorer", "prefix-cache-scorer.prefixLengthWeight=1", "prefix-cache-scorer.maxModelLen=256"), busyThree(), []float64{1, 0.5625, 0}},
		"both of them":        {only("prefix-cache-scorer", "prefix-cache-scorer.prefixLengthWeight=0.5", "prefix-cache-scorer.maxModelLen=768"), busyThree(), []float64{0.5, 0.21875, 0}},
		"running":             {only("running-requests-size-scorer"), busyThree(), []float64{0.5, 0, 1}},
		"load-aware":          {only("load-aware-scorer"), busyThree(), []float64{0.5, 0.5 * 125 / 128, 0.5 * 122 / 128}},
		"a lower threshold":   {only("load-aware-scorer", "load-aware-scorer.threshold=4"), busyThree(), []float64{0.5, 0.125, 0}},
		"active requests":     {only("active-request-scorer"), busyThree(), []float64{5. / 7, 0, 1. / 7}},
		"idle up to two":      {only("active-request-scorer", "active-request-scorer.idleThreshold=2"), busyThree(), []float64{1, 0, 1. / 7}},
		"a gap to the idle":   {only("active-request-scorer", "active-request-scorer.idleThreshold=2", "active-request-scorer.maxBusyScore=0.5"), busyThree(), []float64{1, 0, 0.5 / 7}},
		"nobody is active":    {only("active-request-scorer"), one, []float64{1}},
		"token load":          {only("token-load-scorer"), busyThree(), []float64{1, 0.75, 0}},
		"a smaller threshold": {only("token-load-scorer", "token-load-scorer.queueThresholdTokens=2097152"), busyThree(), []float64{1, 0.5, 0}},
		"unknown turns":       {only("no-hit-lru-scorer"), one, []float64{0.5}},
		"no scorer":           {only(""), busyThree(), []float64{0, 0, 0}},
	} {
		for _, policy := range []string{"llm-d-precise", "llm-d-approximate"} {
			d := decide(t, configured(t, policy, tt.set...), &req, tt.cands)
			if got := scores(&d); !near(got, tt.want) {
				t.Errorf("%s, %s: %v, want %v", policy, name, got, tt.want)
			}
			for _, c := range d.Candidates {
				sum := 0.0
				for _, term := range c.Terms {
					sum += term.Cost
				}
				if math.Abs(sum-c.Cost) > 1e-12 || !strings.Contains(c.Rule, "score "+number(-c.Cost)+" = ") {
					t.Errorf("%s, %s: terms sum up to %v, cost %v, rule %q", policy, name, sum, c.Cost, c.Rule)
				}
			}
		}
	}
}

// TestLLMDProfiles adds up what TestLLMDScorers has.
func TestLLMDProfiles(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 512, BlockSize: 64}
	for policy, want := range map[string][]float64{
		"llm-d-precise":     {2*0.75 + 0.75 + 1, 2*0.375 + 0.5 + 0.5, 0},
		"llm-d-approximate": {3*0.75 + 2*0.75 + 2, 3*0.375 + 2*0.5 + 2*0.5, 0},
	} {
		d := decide(t, configured(t, policy), &req, busyThree())
		if got := scores(&d); !near(got, want) || !slices.Equal(d.Best, []int{0}) {
			t.Errorf("%s: %v, want %v", policy, got, want)
		}
		var names []string
		for _, term := range d.Candidates[0].Terms {
			names = append(names, term.Name)
		}
		if got := strings.Join(names, " "); got != "queue-scorer kv-cache-utilization-scorer prefix-cache-scorer" {
			t.Errorf("%s: terms %s", policy, got)
		}
	}
	// A load that is not known counts as none.
	unknown := busyThree()
	unknown[2].Load.State = LoadUnknown
	d := decide(t, configured(t, "llm-d-precise"), &req, unknown)
	if got := scores(&d); !near(got, []float64{1.5 + 0.75 + 1, 0.75 + 0.5, 2}) {
		t.Errorf("unknown: %v", got)
	}
}

// TestLLMDTiers: one block on the host is no whole one, five are four, and ten,
// added one by one, are a little less than eight.
func TestLLMDTiers(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 320, BlockSize: 16} // 20 blocks
	for name, tt := range map[string]struct {
		match [wire.NumTiers]int
		set   []string
		want  float64 // blocks
	}{
		"device":             {[wire.NumTiers]int{7}, nil, 7},
		"one on the host":    {[wire.NumTiers]int{0, 1}, nil, 0},
		"five on the host":   {[wire.NumTiers]int{0, 5}, nil, 4},
		"ten on the host":    {[wire.NumTiers]int{0, 10}, nil, 7},
		"behind the device":  {[wire.NumTiers]int{2, 3}, nil, 4},
		"disk is unknown":    {[wire.NumTiers]int{1, 0, 3, 2}, nil, 6},
		"all four":           {[wire.NumTiers]int{1, 2, 3, 4}, nil, 9}, // 9.6
		"parts of a block":   {[wire.NumTiers]int{0, 3}, []string{"whole_blocks=false"}, 2.4},
		"an unknown medium":  {[wire.NumTiers]int{0, 3}, []string{"backendConfigs.cpu.weight=1"}, 3},
		"capped":             {[wire.NumTiers]int{15}, []string{"backendConfigs.gpu.weight=2"}, 20},
		"lighter than whole": {[wire.NumTiers]int{4}, []string{"backendConfigs.gpu.weight=0.5"}, 2},
	} {
		d := decide(t, configured(t, "llm-d-precise", only("prefix-cache-scorer", tt.set...)...), &req, []Candidate{{Replica: "a", Match: tt.match}})
		if got := scores(&d); !near(got, []float64{tt.want / 20}) {
			t.Errorf("%s: %v, want %v", name, got, tt.want/20)
		}
	}
	for _, n := range []int{0, 3, maxAdded + 1} {
		if got, want := addBlocks(1, n, 0.75), 1+0.75*float64(n); got != want {
			t.Errorf("%d blocks: %v, want %v", n, got, want)
		}
	}
	d := decide(t, configured(t, "llm-d-precise"), &Request{BlockSize: 16}, []Candidate{{Replica: "a"}})
	if got := scores(&d); !near(got, []float64{2}) {
		t.Errorf("an empty prompt: %v", got)
	}
}

// TestLLMDPickers has scores of 1.5 and 0.5 and 0.
func TestLLMDPickers(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 128, BlockSize: 64}
	cands := []Candidate{cand("a", 2, 0, 0, 0), cand("b", 1, 0, 0, 0), cand("c", 0, 0, 0, 0)}
	chances := func(cands []Candidate, set ...string) []float64 {
		d := decide(t, configured(t, "llm-d-precise", only("prefix-cache-scorer", set...)...), &req, cands)
		var out []float64
		for _, c := range d.Candidates {
			out = append(out, c.Probability)
		}
		return out
	}
	for name, tt := range map[string]struct{ got, want []float64 }{
		"the highest":     {chances(cands), []float64{1, 0, 0}},
		"a tie":           {chances([]Candidate{cands[0], {Replica: "x", Match: cands[0].Match}, cands[1]}), []float64{0.5, 0.5, 0}},
		"weighted":        {chances(cands, "picker=weighted-random-picker"), []float64{2. / 3, 1. / 3, 0}},
		"weighted, all 0": {chances(cands[2:], "picker=weighted-random-picker"), []float64{1}},
		"weighted, no scorer": {
			chances([]Candidate{cands[2], {Replica: "x"}}, "picker=weighted-random-picker"), []float64{0.5, 0.5},
		},
	} {
		if !near(tt.got, tt.want) {
			t.Errorf("%s: %v, want %v", name, tt.got, tt.want)
		}
	}
}

// TestLLMDWeightedDraw draws as the picker does, u^(1/score), and compares.
func TestLLMDWeightedDraw(t *testing.T) {
	t.Parallel()
	const draws = 20000
	rng := rand.New(rand.NewPCG(3, 4))
	weights := []float64{2.5, 1, 0.5}
	var won [3]float64
	for range draws {
		best, at := -1.0, 0
		for i, w := range weights {
			if k := math.Pow(rng.Float64(), 1/w); k > best {
				best, at = k, i
			}
		}
		won[at]++
	}
	in := &input{cfg: configured(t, "llm-d-precise", "picker=weighted-random-picker")}
	for _, w := range weights {
		in.keys = append(in.keys, key{cost: -w})
	}
	p := make([]float64, len(weights))
	llmdChances(in, p)
	for i := range p {
		// Five standard deviations.
		if math.Abs(won[i]/draws-p[i]) > 5*math.Sqrt(0.25/draws) {
			t.Errorf("%d won %v of the draws, and its chance is %v", i, won[i]/draws, p[i])
		}
	}
}

// TestLLMDTurns: cold prompts go round, those that someone holds do not count. The
// ranks of three are 1, 1 - 1/2 and 1 - 2/2: those that were never used, then the
// others from the one used longest ago on.
func TestLLMDTurns(t *testing.T) {
	t.Parallel()
	r := NewRouter(*configured(t, "llm-d-precise", only("no-hit-lru-scorer")...), rand.New(rand.NewPCG(1, 2)))
	req := Request{Tokens: 128, BlockSize: 64}
	cold := []Candidate{cand("a", 0, 0, 0, 0), cand("b", 0, 0, 0, 0), cand("c", 0, 0, 0, 0)}
	asked := func(cands []Candidate) []float64 {
		d, err := r.Decide(&req, cands)
		if err != nil {
			t.Fatal(err)
		}
		return scores(&d)
	}
	for i, want := range [][]float64{
		{1, 0.5, 0}, // none was used
		{0, 1, 0.5},
		{0.5, 0, 1},
		{1, 0.5, 0}, // a was used longest ago
	} {
		if got := asked(cold); !near(got, want) {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
		warm := []Candidate{cold[0], cand("b", 1, 0, 0, 0), cold[2]}
		if got := asked(warm); !near(got, []float64{0.5, 0.5, 0.5}) {
			t.Errorf("%d, warm: %v", i, got)
		}
		r.Route(&req, warm)
		if got := asked(cold[:1]); !near(got, []float64{1}) {
			t.Errorf("%d, one alone: %v", i, got)
		}
		if at := r.Route(&req, cold); at != slices.Index(want, 1) {
			t.Errorf("%d: went to %d", i, at)
		}
	}
	// Those that are away count in the order too: 1 - 2/1 is no score.
	if got := asked(cold[:2]); !near(got, []float64{0, 1}) {
		t.Errorf("two of three: %v", got)
	}
}

// TestLLMDApproximateRouter: prompts go where their beginning went, until the pod
// is gone.
func TestLLMDApproximateRouter(t *testing.T) {
	t.Parallel()
	r := NewRouter(*configured(t, "llm-d-approximate"), rand.New(rand.NewPCG(1, 2)))
	var cands []Candidate
	for i := range 8 {
		cands = append(cands, Candidate{Replica: wire.Replica(fmt.Sprint(i)), Load: Load{State: LoadKnown}})
	}
	prompt := func(session, turns int) *Request {
		req := &Request{BlockSize: 16, Tokens: 64 * turns, Width: 64, Model: "m"}
		for i := range turns {
			req.Symbols = append(req.Symbols, rune(1000*session+i))
		}
		return req
	}
	home := map[int]int{}
	for turns := range 6 {
		for session := range 20 {
			at := r.Route(prompt(session, turns+1), cands)
			if was, ok := home[session]; ok && at != was {
				t.Fatalf("session %d went from %d to %d", session, was, at)
			}
			home[session] = at
		}
	}
	d, err := r.Decide(prompt(3, 8), cands)
	if err != nil || !near([]float64{-d.Candidates[home[3]].Cost}, []float64{2 + 2 + 3*6./8}) {
		t.Errorf("%+v, %v", d.Candidates[home[3]], err)
	}
	gone := cands[home[3]].Replica
	r.Left(gone)
	r.Joined(gone)
	if d, err = r.Decide(prompt(3, 8), cands); err != nil || len(d.Best) != 8 {
		t.Errorf("after it left: %v, %v", d.Best, err)
	}
	// A load that differs enough wins: two more of the queue's weight, and a full
	// cache's.
	cands[home[4]].Load = Load{State: LoadKnown, Requests: 9, Waiting: 9, Usage: 1}
	if d, err = r.Decide(prompt(4, 6), cands); err != nil || slices.Contains(d.Best, home[4]) || len(d.Best) != 7 {
		t.Errorf("a busy home: %v, %v", d.Best, err)
	}
}

// TestLLMDApproximateSizes are what stands in for the router's memory: blocks of
// 64 tokens or of the engines' own if larger, up to a limit.
func TestLLMDApproximateSizes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tokens, size, match int
		set                 []string
		want                float64
	}{
		"small blocks":      {200, 16, 8, nil, 2. / 4}, // 128 of 200 tokens
		"a part of a block": {256, 16, 7, nil, 1. / 4},
		"large blocks":      {512, 128, 3, nil, 3. / 4},
		"a size set":        {512, 16, 16, []string{"approx-prefix-cache-producer.blockSizeTokens=256"}, 1. / 2},
		"a size too small":  {512, 16, 16, []string{"approx-prefix-cache-producer.blockSizeTokens=16"}, 4. / 8},
		"a limit":           {640, 64, 8, []string{"approx-prefix-cache-producer.maxPrefixTokensToMatch=512"}, 1},
		"the other limit":   {64 * 4096, 64, 1024, []string{"approx-prefix-cache-producer.maxPrefixTokensToMatch=0"}, 0.5},
		"nothing":           {0, 16, 0, nil, 0},
	} {
		cfg := configured(t, "llm-d-approximate", only("prefix-cache-scorer", tt.set...)...)
		d := decide(t, cfg, &Request{Tokens: tt.tokens, BlockSize: tt.size}, []Candidate{cand("a", tt.match, 0, 0, 0)})
		if got := scores(&d); !near(got, []float64{tt.want}) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestLLMDSteps: what cannot be known is said.
func TestLLMDSteps(t *testing.T) {
	t.Parallel()
	var many []Candidate
	for i := range 12 {
		many = append(many, cand(wire.Replica(fmt.Sprint(i)), 1, 0, 0, 0))
	}
	req := Request{Tokens: 128, BlockSize: 64}
	for name, tt := range map[string]struct {
		policy string
		set    []string
		cands  []Candidate
		want   string
	}{
		"many holders": {"llm-d-precise", nil, many, "12 candidates hold the prompt's first block, and llm-d keeps 10 entries of a block"},
		"the memory":   {"llm-d-approximate", nil, many[:1], "what the engines hold stands in for it"},
		"the turns":    {"llm-d-precise", only("no-hit-lru-scorer"), many[:1], "the no-hit-lru-scorer gives all 0.5"},
		"the picker":   {"llm-d-precise", []string{"picker=weighted-random-picker"}, many[:1], "drawn in proportion to the scores"},
	} {
		d := decide(t, configured(t, tt.policy, tt.set...), &req, tt.cands)
		if got := strings.Join(d.Trace, "\n"); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s", name, got)
		}
		r := NewRouter(*configured(t, tt.policy, tt.set...), rand.New(rand.NewPCG(1, 2)))
		d, err := r.Decide(&req, tt.cands)
		if got := strings.Join(d.Trace, "\n"); err != nil || name != "the picker" && strings.Contains(got, tt.want) {
			t.Errorf("%s: a router that remembers: %s, %v", name, got, err)
		}
	}
}

// TestLLMDPages holds the pages' tables of settings against the program's.
func TestLLMDPages(t *testing.T) {
	t.Parallel()
	for file, settings := range map[string][]setting{
		"llm-d.md":        slices.Concat(llmdPreciseSettings[llmdPicker:], llmdApproximateSettings[llmdOwn:]),
		"tensorrt-llm.md": trtCacheSettings,
	} {
		page, err := os.ReadFile("../docs/routers/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range settings {
			row := strings.ReplaceAll(fmt.Sprintf("| `%s` | %s |", s.name, s.def), "|  |", "| |")
			if !strings.Contains(string(page), row) {
				t.Errorf("%s has not\n%s", file, row)
			}
		}
		if file != "llm-d.md" {
			continue
		}
		for at, s := range llmdScorers {
			row := fmt.Sprintf(" | %s, %s |", llmdApproximateSettings[at].def, llmdPreciseSettings[at].def)
			if !slices.ContainsFunc(strings.Split(string(page), "\n"), func(line string) bool {
				return strings.HasPrefix(line, "| `"+s.name+"` | ") && strings.HasSuffix(line, row)
			}) {
				t.Errorf("%s has no row of %s with%s", file, s.name, row)
			}
		}
	}
}
