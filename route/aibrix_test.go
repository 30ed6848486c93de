package route

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/wire"
)

// TestAIBrix has prompts of 10 blocks and no local index.
func TestAIBrix(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16}
	for name, tt := range map[string]struct {
		set      []string
		match    []int
		requests []int
		want     []int
		says     string
	}{
		"the longest match":           {nil, []int{3, 7, 0, 0}, []int{0, 1, 0, 1}, []int{1}, "(prefix_match)"},
		"then the fewest requests":    {nil, []int{7, 7, 0, 0}, []int{2, 1, 2, 1}, []int{1}, "(prefix_match)"},
		"then by chance":              {nil, []int{7, 0, 7, 0}, []int{1, 1, 1, 1}, []int{0, 2}, "2 match, and 2 of them"},
		"no match":                    {nil, []int{0, 0, 0, 0}, []int{2, 1, 1, 3}, []int{1, 2}, "(least_request_fallback)"},
		"a difference of 8":           {nil, []int{0, 5, 0, 0}, []int{8, 0, 8, 8}, []int{1}, "balanced"},
		"a difference of 9":           {nil, []int{9, 0, 2, 0}, []int{9, 0, 0, 0}, []int{2}, "imbalanced"},
		"its match is not asked":      {nil, []int{9, 0, 0, 0}, []int{9, 0, 0, 0}, []int{1, 2, 3}, "(least_request_fallback)"},
		"a larger difference allowed": {[]string{"pod_running_request_imbalance_abs_count=16", "standard_deviation_factor=2"}, []int{9, 0, 0, 0}, []int{9, 0, 0, 0}, []int{0}, "(prefix_match)"},
		// 4, 0, 0, 0: mean 1, deviation 2 of a sample, limit 3.
		"above the deviation":          {nil, []int{9, 2, 0, 0}, []int{4, 0, 0, 0}, []int{1}, "2 match, and 1 of them have at most 3"},
		"none within it":               {nil, []int{9, 0, 0, 0}, []int{4, 0, 0, 0}, []int{1, 2, 3}, "(prefix_match_skipped)"},
		"two deviations":               {[]string{"standard_deviation_factor=2"}, []int{9, 2, 0, 0}, []int{4, 0, 0, 0}, []int{0}, "2 match, and 2 of them have at most 5"},
		"one alone has no deviation":   {nil, []int{9}, []int{4}, []int{0}, "(prefix_match_skipped)"},
		"percents are whole":           {nil, []int{7, 7, 0, 0}, []int{1, 1, 1, 1}, []int{0, 1}, "(prefix_match)"},
		"events instead of the index":  {[]string{"kv_event_sync_enabled=true"}, []int{3, 7, 0, 0}, []int{0, 1, 0, 1}, []int{1}, "KV events tell"},
		"what is not known stands in ": {nil, []int{3, 7, 0, 0}, []int{0, 1, 0, 1}, []int{1}, "cannot be read from outside"},
	} {
		cands := busy(tt.requests...)
		for i, n := range tt.match {
			cands[i].Match[wire.Device] = n
		}
		d := decide(t, configured(t, "aibrix-prefix-cache", tt.set...), &req, cands)
		got := slices.Sorted(slices.Values(d.Choice))
		if !slices.Equal(got, tt.want) || !says(&d, tt.says) {
			t.Errorf("%s: %v, want %v\n%q", name, got, tt.want, d.Trace)
		}
		for _, i := range d.Choice {
			if math.Abs(d.Candidates[i].Probability-1/float64(len(d.Choice))) > 1e-12 {
				t.Errorf("%s: %+v", name, d.Candidates)
			}
		}
	}
	if cfg := configured(t, "aibrix-prefix-cache", "block_size=0"); cfg.num(aibrixBlockSize) != 4 {
		t.Errorf("%v", cfg.values[aibrixBlockSize])
	}
}

// TestAIBrixIndex holds the local index against a list of what was sent, in blocks
// of 4 bytes.
func TestAIBrixIndex(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := routed(t, "aibrix-prefix-cache")
		cands := busy(1, 0, 2)
		sent := map[int][]string{}
		at := wire.Time(0)
		for range rapid.IntRange(1, 12).Draw(rt, "requests") {
			text := rapid.StringOfN(rapid.RuneFrom([]rune("aé")), 0, 20, -1).Draw(rt, "text")
			// Ten minutes at most, and all are kept for 20: what was sent lately counts.
			at += wire.Time(rapid.IntRange(0, 3).Draw(rt, "minutes")) * 30e9
			n, percent, longest := len(text)/4, []int{-1, -1, -1}, 0
			for pod, texts := range sent {
				for _, other := range texts {
					same := 0
					for same < min(n, len(other)/4) && text[:4*same+4] == other[:4*same+4] {
						same++
					}
					if same > 0 {
						percent[pod] = max(percent[pod], 100*same/n)
					}
				}
				longest = max(longest, percent[pod])
			}
			var want []int
			// The limit is mean 1 and deviation 1: everybody is within.
			for _, pod := range []int{1, 0, 2} { // by requests
				if want == nil && longest > 0 && percent[pod] == longest {
					want = []int{pod}
				}
			}
			if want == nil {
				want = []int{1}
			}
			req := Request{Tokens: 100, BlockSize: 16, Contents: []string{text}, At: at}
			d := asks(t, r, &req, cands)
			if !slices.Equal(d.Choice, want) {
				rt.Fatalf("%q: %v, want %v of %v\n%q", text, d.Choice, want, percent, d.Trace)
			}
			pod := r.Route(&req, cands)
			sent[pod] = append(sent[pod], text)
		}
	})
}

func TestAIBrixForgets(t *testing.T) {
	t.Parallel()
	const minute = wire.Time(60e9)
	cands := busy(1, 0)
	ask := func(r *Router, text string, at wire.Time) *Decision {
		d := asks(t, r, &Request{Tokens: 100, BlockSize: 16, Model: "m", Contents: strings.Split(text, " "), At: at}, cands)
		return &d
	}
	r := routed(t, "aibrix-prefix-cache", "block_number=3")
	r.Route(&Request{Tokens: 1, BlockSize: 16, Model: "m", Contents: []string{"aaaabbbb"}}, cands)
	if d := ask(r, "aaaabbbb", 20*minute); !says(d, "(prefix_match)") {
		t.Errorf("after 20 minutes: %q", d.Trace)
	}
	if d := ask(r, "aaaabbbb", 20*minute+1); !says(d, "(least_request_fallback)") {
		t.Errorf("after more: %q", d.Trace)
	}
	// Another model has none of it.
	d := asks(t, r, &Request{Tokens: 100, BlockSize: 16, Model: "n", Contents: []string{"aaaabbbb"}}, cands)
	if !says(&d, "(least_request_fallback)") {
		t.Errorf("another model: %q", d.Trace)
	}
	// Two more blocks are one too many for three: the first one goes, and with it the
	// way to the second.
	r.Route(&Request{Tokens: 1, BlockSize: 16, Model: "m", Contents: []string{"ccccdddd"}}, cands)
	if d := ask(r, "aaaabbbb", 0); !says(d, "(least_request_fallback)") {
		t.Errorf("more than three blocks: %q", d.Trace)
	}
	// Messages are joined by a space.
	r.Route(&Request{Tokens: 1, BlockSize: 16, Model: "m", Contents: []string{"x yz"}}, cands)
	if d := ask(r, "x yz", 0); !says(d, "(prefix_match)") {
		t.Errorf("joined: %q", d.Trace)
	}
	if r := routed(t, "aibrix-prefix-cache", "kv_event_sync_enabled=true"); r.mem != nil {
		t.Errorf("with events there is no local index, and %T remembers", r.mem)
	}
}
