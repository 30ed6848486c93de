package remote_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/route/remote"
	"github.com/kvscope/kvscope/wire"
)

func configured(t testing.TB, set ...route.Setting) *route.Config {
	t.Helper()
	p, err := route.Named("dynamo")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := p.Configure(route.Sources{Flags: set})
	if err != nil {
		t.Fatal(err)
	}
	return &cfg
}

// cand is a replica that holds blocks on the device and has active ones.
func cand(name wire.Replica, match, active int) route.Candidate {
	return route.Candidate{
		Replica: name, Match: [wire.NumTiers]int{match},
		Load: route.Load{State: route.LoadKnown, Blocks: active},
	}
}

// held is what an index says of replicas, in tokens on the device.
func held(partial bool, rows ...remote.Held) *remote.Matches {
	return &remote.Matches{Partial: partial, Rows: rows}
}

func on(name wire.Replica, tokens ...int) remote.Held {
	h := remote.Held{Replica: name}
	copy(h.Tokens[:], tokens)
	return h
}

// The prompt has 150 tokens in blocks of 16, so it fills 9 and begins a tenth.
func TestCompare(t *testing.T) {
	t.Parallel()
	chose := func(name wire.Replica) *remote.Choice { return &remote.Choice{Prefill: name, Decode: name} }
	known := func(name wire.Replica, blocks int) remote.Load {
		return remote.Load{Replica: name, Load: route.Load{State: route.LoadKnown, Blocks: blocks}}
	}
	unknown := cand("7/0", 3, 0)
	unknown.Load = route.Load{}
	lower := cand("7/0", 3, 0)
	lower.Match = [wire.NumTiers]int{3, 1, 1, 1}
	over := cand("8/0", 9, 0)
	over.Overloaded = true
	for _, tt := range []struct {
		name  string
		cands []route.Candidate
		edit  func(q *remote.Question)
		a     remote.Answer
		// want is all of Why; differences are parts of the texts, in order.
		agrees      bool
		want        string
		differences []string
	}{
		{
			"both the same",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("7/0")},
			true, "both choose 7/0", nil,
		},
		{
			"a tie",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 3, 0), cand("9/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("8/0")},
			true, "they chose 8/0, one of 2 that tie here: ties are broken at random", nil,
		},
		{
			"a draw",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 0, 0)},
			func(q *remote.Question) {
				q.Config = configured(t, route.Setting{Name: "router_temperature", Value: "1"})
			},
			// exp(-1) / (1 + exp(-1)): the costs are apart by their whole range.
			remote.Answer{Choice: chose("8/0")},
			true, "they chose 8/0, one of 2 that can be drawn here, with a probability of 0.269", nil,
		},
		{
			"a name of our own",
			[]route.Candidate{cand("a", 3, 0), cand("b", 0, 0)},
			func(q *remote.Question) { q.Names = map[wire.Replica]wire.Replica{"7/0": "a", "8/0": "b"} },
			remote.Answer{Choice: chose("7/0"), Matches: held(false, on("7/0", 48))},
			true, "both choose a", nil,
		},
		{
			"nobody known",
			[]route.Candidate{cand("7/0", 3, 0)},
			nil,
			remote.Answer{Choice: chose("8/0")},
			false,
			"they chose 8/0, which is none of the candidates here: is its event stream among those observed?",
			[]string{"a replica that is none"},
		},
		{
			"one that is out",
			[]route.Candidate{cand("7/0", 3, 0), over},
			nil,
			remote.Answer{Choice: chose("8/0")},
			false, "they chose 8/0, which is taken out here: overloaded by the router's busy thresholds", nil,
		},
		{
			"another reading",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: &remote.Choice{Decode: "8/0", Tokens: numbers(7000, 149)}},
			false,
			"they chose 8/0, here it would be 7/0: they read the prompt as 149 tokens, here it has 150, and they differ from token 149 on: template or tokenizer differ",
			[]string{"from token 149 on"},
		},
		{
			"another block size",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("8/0"), Matches: &remote.Matches{BlockSize: 32}},
			false,
			"they chose 8/0, here it would be 7/0: their index has blocks of 32 tokens, the request here 16, so what they match differs: are both told the engine's own?",
			[]string{"blocks of 32 tokens"},
		},
		{
			"another index",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 4, 0)},
			nil,
			remote.Answer{Choice: chose("7/0"), Matches: held(false, on("7/0", 96), on("8/0", 64))},
			false,
			"they chose 7/0, here it would be 8/0: with the matches of their index the choice is theirs (their index has 3 blocks more on 7/0, device: 6, here 3)",
			[]string{"3 blocks more on 7/0"},
		},
		{
			"nothing in their index",
			[]route.Candidate{cand("7/0", 1, 0), cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("8/0"), Matches: held(false)},
			false,
			"they chose 8/0, here it would be 7/0: with the matches of their index the choice is theirs (their index has 1 block fewer on 7/0, device: 0, here 1)",
			[]string{"1 block fewer"},
		},
		{
			"another load",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("8/0"), Loads: []remote.Load{known("7/0", 20), known("8/0", 0)}},
			false,
			"they chose 8/0, here it would be 7/0: with their loads the choice is theirs (they hold 0 tokens to compute, 20 blocks and 0 requests against 7/0, here 0 tokens to compute, 0 blocks and 0 requests)",
			[]string{"20 blocks"},
		},
		{
			"an unknown load that they know",
			[]route.Candidate{unknown, cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("8/0"), Loads: []remote.Load{known("7/0", 20)}},
			false,
			"they chose 8/0, here it would be 7/0: with their loads the choice is theirs (they hold 0 tokens to compute, 20 blocks and 0 requests against 7/0, here it is unknown and counts as none)",
			[]string{"here it is unknown"},
		},
		{
			// 8/0 saves 5 blocks there, one less than 7/0, which has 2 to decode.
			"index and load together",
			[]route.Candidate{cand("7/0", 6, 0), cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("8/0"), Matches: held(false, on("7/0", 96), on("8/0", 80)), Loads: []remote.Load{known("7/0", 2), known("8/0", 0)}},
			false,
			"they chose 8/0, here it would be 7/0: with the matches of their index and their loads together the choice is theirs (" +
				"their index has 5 blocks more on 8/0, device: 5, here 0; they hold 0 tokens to compute, 2 blocks and 0 requests against 7/0, " +
				"here 0 tokens to compute, 0 blocks and 0 requests)",
			[]string{"5 blocks more on 8/0", "2 blocks and 0 requests against 7/0"},
		},
		{
			"an event in between",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 4, 0)},
			func(q *remote.Question) { q.After = []route.Candidate{cand("7/0", 5, 0), cand("8/0", 4, 0)} },
			remote.Answer{Choice: chose("7/0")},
			false,
			"they chose 7/0, here it would be 8/0: an event arrived in between, and with what is known now the choice is theirs (5 blocks on 7/0, device, now, 3 before)",
			[]string{"5 blocks on 7/0"},
		},
		{
			"a restless fleet",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 6, 0)},
			func(q *remote.Question) {
				q.After = []route.Candidate{cand("7/0", 3, 0), cand("8/0", 5, 1), cand("9/0", 0, 9)}
			},
			remote.Answer{Choice: chose("7/0")},
			false,
			"they chose 7/0, here it would be 8/0: neither what was known before they were asked nor what is known now explains it: ask again (" +
				"5 blocks on 8/0, device, now, 6 before; 0 tokens to compute, 1 block and 0 requests against 8/0 now, " +
				"0 tokens to compute, 0 blocks and 0 requests before; 9/0 has come)",
			[]string{"5 blocks on 8/0", "1 block and 0 requests against 8/0 now", "9/0 has come"},
		},
		{
			"an unsure load",
			[]route.Candidate{unknown, cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("8/0")},
			false,
			"they chose 8/0, here it would be 7/0: the loads of these are not sure here, and theirs were not asked for: 7/0 (unknown)", nil,
		},
		{
			"a busy fleet",
			[]route.Candidate{cand("7/0", 3, 1), cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("8/0")},
			false,
			"they chose 8/0, here it would be 7/0: theirs were not asked for, but loads may differ: those of metrics come late, and do not tell which of the prompt's blocks are active", nil,
		},
		{
			"an idle fleet, as is known here",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("8/0")},
			false,
			"they chose 8/0, here it would be 7/0: nothing that was compared explains it; its loads were not asked for, and one may have come and gone: ask again, and if it stays so give its flags, variables or policy file", nil,
		},
		{
			"no reason left",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 0, 0)},
			nil,
			remote.Answer{Choice: chose("8/0"), Loads: []remote.Load{known("7/0", 0), known("8/0", 0)}},
			false,
			"they chose 8/0, here it would be 7/0: nothing that was compared explains it, so the settings may differ: give its flags, variables or policy file", nil,
		},
		{
			"an index alone, the same",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 0, 0)},
			nil,
			remote.Answer{Matches: held(false, on("7/0", 48))},
			true, "what they say is what is known here", nil,
		},
		{
			// External counts as disk there.
			"tiers, the same",
			[]route.Candidate{lower},
			nil,
			remote.Answer{Matches: held(false, on("7/0", 48, 16, 32))},
			true, "what they say is what is known here", nil,
		},
		{
			"other tiers",
			[]route.Candidate{lower},
			nil,
			remote.Answer{Matches: held(false, on("7/0", 48, 32))},
			false,
			"their index has 1 block more on 7/0, host: 2, here 1; their index has 2 blocks fewer on 7/0, disk: 0, here 2",
			[]string{"host: 2", "disk: 0"},
		},
		{
			"lower tiers not told",
			[]route.Candidate{lower},
			nil,
			remote.Answer{Matches: held(false, remote.Held{Replica: "7/0", Tokens: [wire.NumTiers]int{48}, DeviceOnly: true})},
			true, "what they say is what is known here", nil,
		},
		{
			"a trace, whose count weighs the tiers",
			[]route.Candidate{lower, cand("8/0", 1, 0)},
			nil,
			remote.Answer{Choice: chose("7/0"), Matches: held(true, remote.Held{Replica: "7/0", Tokens: [wire.NumTiers]int{64}, Weighted: true})},
			true, "both choose 7/0", nil,
		},
		{
			"a trace with another match",
			[]route.Candidate{cand("7/0", 3, 0), cand("8/0", 4, 0)},
			nil,
			remote.Answer{Choice: chose("7/0"), Matches: held(true, remote.Held{Replica: "7/0", Tokens: [wire.NumTiers]int{80}, Weighted: true})},
			false, "they chose 7/0, here it would be 8/0: with the matches of their index the choice is theirs (their index has 2 blocks more on 7/0, device: 5, here 3)",
			[]string{"2 blocks more on 7/0"},
		},
		{
			"more than the prompt has",
			[]route.Candidate{cand("7/0", 9, 0)},
			nil,
			remote.Answer{Choice: chose("7/0"), Matches: held(false, on("7/0", 1<<40, 1<<40))},
			true, "both choose 7/0",
			[]string{"1 block more on 7/0, device: 10, here 9"},
		},
		{
			"the loads alone",
			[]route.Candidate{cand("7/0", 0, 2)},
			nil,
			remote.Answer{Loads: []remote.Load{known("7/0", 2), known("8/0", 9)}},
			true, "what they say is what is known here", nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := remote.Question{
				Config: configured(t), Request: route.Request{Tokens: 150, BlockSize: 16},
				Candidates: tt.cands, Tokens: numbers(7000, 150),
			}
			if tt.edit != nil {
				tt.edit(&q)
			}
			before := slices.Clone(q.Candidates)
			c, err := remote.Compare(&q, &tt.a)
			if err != nil {
				t.Fatal(err)
			}
			if c.Agrees != tt.agrees || c.Why != tt.want {
				t.Errorf("agrees %t, why %q\nwant %t, %q", c.Agrees, c.Why, tt.agrees, tt.want)
			}
			if len(c.Differences) != len(tt.differences) {
				t.Fatalf("differences %+v, want %d", c.Differences, len(tt.differences))
			}
			for i, want := range tt.differences {
				if !strings.Contains(c.Differences[i].Text, want) {
					t.Errorf("difference %q, want %q in it", c.Differences[i].Text, want)
				}
			}
			for i := range before {
				if before[i].Match != q.Candidates[i].Match || before[i].Load != q.Candidates[i].Load {
					t.Error("the candidates were changed")
				}
			}
		})
	}
}

// In the pool that computes prompts, it is their choice for that which counts.
func TestComparePool(t *testing.T) {
	t.Parallel()
	q := remote.Question{
		Config: configured(t), Request: route.Request{Tokens: 150, BlockSize: 16, Pool: route.Prefill},
		Candidates: []route.Candidate{cand("7/0", 3, 0), cand("8/0", 0, 0)},
	}
	c, err := remote.Compare(&q, &remote.Answer{Choice: &remote.Choice{Prefill: "7/0", Decode: "9/0"}})
	if err != nil || !c.Agrees || c.Chosen != "7/0" {
		t.Errorf("%+v, error %v", c, err)
	}
	q.Request.BlockSize = 0
	if _, err := remote.Compare(&q, &remote.Answer{}); err == nil {
		t.Error("a request without a block size was compared")
	}
}

// What was recorded of one fleet at one moment agrees with itself: the index and
// the choices of the frontend and the selection service.
func TestCompareRecorded(t *testing.T) {
	t.Parallel()
	q := remote.Question{
		Config: configured(t), Request: route.Request{Tokens: 150, BlockSize: 16}, Tokens: prompt().Tokens,
		Candidates: []route.Candidate{cand(first, 6, 0), cand(second, 3, 0), cand(third, 0, 0), cand(fourth, 0, 0)},
	}
	matches, err := answering("POST /query", golden(t, "query.json")).client().Query(t.Context(), host, prompt())
	if err != nil {
		t.Fatal(err)
	}
	choice, err := frontend(t, "metrics.txt", "probe.json").client().Probe(t.Context(), host, prompt())
	if err != nil {
		t.Fatal(err)
	}
	loads, err := answering("GET /loads", golden(t, "loads.json")).client().Loads(t.Context(), host, "qwen3-mock")
	if err != nil {
		t.Fatal(err)
	}
	c, err := remote.Compare(&q, &remote.Answer{Choice: choice, Matches: matches})
	if err != nil || !c.Agrees || c.Why != "both choose "+string(first) || c.Differences != nil {
		t.Errorf("%+v, error %v", c, err)
	}
	// The loads are those after the choice was made.
	c, err = remote.Compare(&q, &remote.Answer{Loads: loads})
	want := "they hold 54 tokens to compute, 9 blocks and 1 request against " + string(first) + ", here 0 tokens to compute, 0 blocks and 0 requests"
	if err != nil || c.Agrees || c.Why != want {
		t.Errorf("%+v, error %v", c, err)
	}
}
