package route

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/wire"
)

// question draws a policy with settings, a request and candidates.
func question(t *rapid.T, policies ...string) (*Config, *Request, []Candidate) {
	p, err := Named(rapid.SampledFrom(policies).Draw(t, "policy"))
	if err != nil {
		t.Fatal(err)
	}
	var set []Setting
	for i := range p.settings {
		s := &p.settings[i]
		if !s.weight || !rapid.Bool().Draw(t, s.name) {
			continue
		}
		b := bounds[s.kind]
		n := rapid.Float64Range(b.low, min(b.high, b.low+4)).Draw(t, s.name)
		if b.whole {
			n = float64(int(n))
		}
		set = append(set, Setting{s.name, text(n), "test"})
	}
	cfg, err := p.Configure(Sources{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	req := &Request{Tokens: rapid.IntRange(0, 60).Draw(t, "tokens"), BlockSize: 4}
	var cands []Candidate
	for i := range rapid.IntRange(1, 6).Draw(t, "candidates") {
		c := Candidate{Replica: wire.Replica(fmt.Sprintf("r:%d", i))}
		left := req.Blocks()
		for tier := range c.Match {
			c.Match[tier] = rapid.IntRange(0, left).Draw(t, "match")
			left -= c.Match[tier]
		}
		c.Load = Load{
			State:         LoadState(rapid.IntRange(0, 2).Draw(t, "state")),
			PrefillTokens: rapid.IntRange(0, 60).Draw(t, "prefill"),
			Blocks:        rapid.IntRange(0, 20).Draw(t, "blocks"),
			Requests:      rapid.IntRange(0, 40).Draw(t, "requests"),
			Usage:         rapid.Float64Range(0, 1).Draw(t, "usage"),
		}
		c.Load.Waiting = rapid.IntRange(0, c.Load.Requests).Draw(t, "waiting")
		c.Load.Prefix = rapid.IntRange(0, min(c.Load.Blocks, req.Blocks())).Draw(t, "prefix")
		cands = append(cands, c)
	}
	return &cfg, req, cands
}

// best decides and gives the names of the best.
func best(t *rapid.T, cfg *Config, req *Request, cands []Candidate) []wire.Replica {
	d, err := Decide(cfg, req, cands)
	if err != nil {
		t.Fatal(err)
	}
	return d.Names(d.Best)
}

// lost reports whether one that was among the best is so no more.
func lost(was, now []wire.Replica) bool {
	return slices.ContainsFunc(was, func(r wire.Replica) bool { return !slices.Contains(now, r) })
}

// TestFlips: a flip that is named does flip the choice when it is applied.
func TestFlips(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg, req, cands := question(t, Policies()...)
		before := slices.Clone(cands)
		was := best(t, cfg, req, cands)
		for _, f := range Flips(cfg, req, cands) {
			then, edited, err := Edit(cfg, cands, f.What, f.To)
			if err != nil {
				t.Fatalf("%+v: %v", f, err)
			}
			now := best(t, then, req, edited)
			if !lost(was, now) || !slices.Equal(now, f.Then) || f.From == f.To {
				t.Fatalf("%+v: %v before, %v after", f, was, now)
			}
		}
		if fmt.Sprint(before) != fmt.Sprint(cands) {
			t.Fatal("the candidates were changed")
		}
	})
}

// TestFlipsAreSmallest tries all smaller changes of one load, where costs rise
// with each load alone.
func TestFlipsAreSmallest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg, req, cands := question(t, "dynamo", "least-loaded")
		if cfg.policy.Name == "dynamo" {
			cfg.values[dynDecay].num = 0
		}
		was := best(t, cfg, req, cands)
		flips := Flips(cfg, req, cands)
		if len(flips) == 0 || flips[0].Kind != FlipLoad {
			return
		}
		for i := range cands {
			for at, unit := range []int{fieldPrefill: req.BlockSize, fieldBlocks: 1, fieldRequests: 1} { // these rules read no other loads
				from := int(fields[at].get(&cands[i]))
				for to := max(0, from-80); to <= from+80; to++ {
					if to == from || abs(to-from) >= flips[0].size*float64(unit) {
						continue
					}
					key := string(cands[i].Replica) + ":" + fields[at].name
					_, edited, err := Edit(cfg, cands, key, strconv.Itoa(to))
					if err != nil {
						t.Fatal(err)
					}
					if now := best(t, cfg, req, edited); lost(was, now) {
						t.Fatalf("%s from %d to %d flips, and %+v was named", key, from, to, flips[0])
					}
				}
			}
		}
	})
}

func abs(n int) float64 { return float64(max(n, -n)) }

func TestFlipExamples(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16}
	for name, tt := range map[string]struct {
		cfg   *Config
		cands []Candidate
		want  []Flip
	}{
		// a costs 4 + 10, b 10 + 10: 6 blocks lie between them, and at equal cost a
		// is still among the best.
		"a match": {
			configured(t, "dynamo"),
			[]Candidate{cand("a", 6, 0, 0, 0), cand("b", 0, 0, 0, 0)},
			[]Flip{
				{Kind: FlipLoad, What: "a:active_prefill_tokens", From: "0", To: "97"},
			},
		},
		"evicted or stored": {
			configured(t, "dynamo"),
			[]Candidate{cand("a", 6, 0, 0, 0), cand("b", 5, 0, 0, 0)},
			[]Flip{
				{Kind: FlipLoad, What: "a:active_prefill_tokens", From: "0", To: "17"},
				{Kind: FlipBlock, What: "a:matched_blocks", From: "6", To: "4"},
			},
		},
		"a queue": {
			configured(t, "least-loaded"),
			[]Candidate{cand("a", 6, 0, 0, 3), cand("b", 0, 0, 0, 1)},
			[]Flip{{Kind: FlipLoad, What: "b:active_requests", From: "1", To: "4"}},
		},
		"all equal": {
			configured(t, "dynamo"),
			[]Candidate{cand("a", 0, 0, 0, 0), cand("b", 0, 0, 0, 0)},
			[]Flip{
				{Kind: FlipLoad, What: "a:active_prefill_tokens", From: "0", To: "1"},
				{Kind: FlipBlock, What: "a:matched_blocks", From: "0", To: "1"},
			},
		},
		"a threshold": {
			configured(t, "dynamo-two-tier-cost-fn"),
			[]Candidate{cand("a", 0, 0, 0, 0), cand("b", 5, 0, 0, 4)},
			[]Flip{
				{Kind: FlipLoad, What: "a:active_requests", From: "0", To: "5"},
				{Kind: FlipWeight, What: "cache_threshold", From: "0.5", To: "0.49"},
				{Kind: FlipBlock, What: "b:matched_blocks", From: "5", To: "6"},
			},
		},
		"one alone": {configured(t, "dynamo"), []Candidate{cand("a", 6, 0, 0, 0)}, nil},
	} {
		got := Flips(tt.cfg, &req, tt.cands)
		for i := range got {
			if len(got[i].Then) == 0 {
				t.Errorf("%s: nobody is next: %+v", name, got[i])
			}
			got[i].Then, got[i].size = nil, 0
		}
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tt.want)
		}
	}
	if got := FlipBlock.String(); got != "block" {
		t.Error(got)
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "dynamo")
	tiers := cand("tcp://h:1", 3, 1, 2, 3)
	tiers.Match = [wire.NumTiers]int{3, 2, 0, 1}
	tiers.Load.Waiting, tiers.Load.Usage = 2, 0.25
	unknown := cand("b", 0, 7, 7, 7)
	unknown.Load.State = LoadUnknown
	cands := []Candidate{tiers, unknown}
	for name, tt := range map[string]struct {
		key, val string
		at       int
		load     Load
		match    [wire.NumTiers]int
	}{
		"an address":       {"tcp://h:1:active_requests", "9", 0, Load{State: LoadKnown, PrefillTokens: 1, Blocks: 2, Prefix: 0, Requests: 9, Waiting: 2, Usage: 0.25}, tiers.Match},
		"blocks":           {"tcp://h:1:active_decode_blocks", "0", 0, Load{State: LoadKnown, PrefillTokens: 1, Blocks: 0, Prefix: 0, Requests: 3, Waiting: 2, Usage: 0.25}, tiers.Match},
		"an unknown load":  {"b:active_prefill_tokens", "5", 1, Load{State: LoadKnown, PrefillTokens: 5, Blocks: 0, Prefix: 0, Requests: 0}, unknown.Match},
		"fewer than wait":  {"tcp://h:1:active_requests", "1", 0, Load{State: LoadKnown, PrefillTokens: 1, Blocks: 2, Requests: 1, Waiting: 1, Usage: 0.25}, tiers.Match},
		"more that wait":   {"tcp://h:1:waiting_requests", "4", 0, Load{State: LoadKnown, PrefillTokens: 1, Blocks: 2, Requests: 4, Waiting: 4, Usage: 0.25}, tiers.Match},
		"a usage":          {"tcp://h:1:kv_cache_usage", "0.5", 0, Load{State: LoadKnown, PrefillTokens: 1, Blocks: 2, Requests: 3, Waiting: 2, Usage: 0.5}, tiers.Match},
		"evicted in front": {"tcp://h:1:matched_blocks", "2", 0, tiers.Load, [wire.NumTiers]int{2}},
		"evicted below":    {"tcp://h:1:matched_blocks", "4", 0, tiers.Load, [wire.NumTiers]int{3, 1}},
		"stored":           {"tcp://h:1:matched_blocks", "8", 0, tiers.Load, [wire.NumTiers]int{3, 2, 0, 3}},
		"stored first":     {"b:matched_blocks", "1", 1, unknown.Load, [wire.NumTiers]int{1}},
	} {
		_, got, err := Edit(cfg, cands, tt.key, tt.val)
		if err != nil || got[tt.at].Load != tt.load || got[tt.at].Match != tt.match {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if cands[0].Load != tiers.Load || cands[0].Match != tiers.Match {
		t.Error("what was given was changed")
	}
	set, _, err := Edit(cfg, cands, "overlap_score_weight", "0")
	if err != nil || set.num(dynScale) != 0 || set.num(dynCredit) != 0 || cfg.num(dynScale) != 1 {
		t.Errorf("%v %v", set, err)
	}
	for key, want := range map[string]string{
		"x:active_requests":   "x is no candidate: the key is a setting's name or REPLICA:FIELD",
		"b:queue":             "a candidate has no queue: it has active_prefill_tokens, active_decode_blocks, active_requests, waiting_requests, kv_cache_usage, matched_blocks",
		"b:active_requests":   `b:active_requests: "-1" is not a whole number from 0`,
		"b:kv_cache_usage":    `b:kv_cache_usage: "-1" is not a number from 0 to 1`,
		"nonsense":            "nonsense (set) is no setting of the policy dynamo: it has ",
		"router_temperature":  `router_temperature (set): "-1" is not a number from 0`,
		"router_replica_sync": `router_replica_sync (set): "-1" is not true or false`,
	} {
		if _, _, err := Edit(cfg, cands, key, "-1"); err == nil || err.Error()[:min(len(want), len(err.Error()))] != want {
			t.Errorf("%s: %v", key, err)
		}
	}
}
