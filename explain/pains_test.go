package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// TestPainP50: 97 % of the prompt are on r1, and r3 is chosen for its load. The answer
// names both, what each costs, and how much load less would turn it.
func TestPainP50(t *testing.T) {
	t.Parallel()
	f := fleetOf(0, 31, 0, 8)
	page := &Page{Workers: []WorkerLoad{{"r0", 128, 4, -1}, {"r1", 120, 4, -1}, {"r2", 128, 4, -1}, {"r3", 0, 4, -1}}}
	q := Query{Tokens: tokens(0, 128), Config: policy(t, "dynamo"), Page: page}
	a, err := Candidates(f, q)
	if err != nil {
		t.Fatal(err)
	}
	// cost = (active prefill tokens + 128)/4 - blocks had + 4 decoding + 32 new blocks
	if !slices.Equal(a.Choice, []wire.Replica{"r3"}) || a.Candidates[0].Cost != 60 || a.Against != "r1" || a.Margin != 30 {
		t.Fatalf("%v at %v, before %s by %v", a.Choice, a.Candidates[0].Cost, a.Against, a.Margin)
	}
	if want := "The longest prefix is on r1, 31 of 32 blocks, at a cost of 67 against 60."; a.Longest() != want {
		t.Errorf("%q, want %q", a.Longest(), want)
	}
	if want := "It goes to r3, before r1 by active_prefill_blocks (30)."; a.Verdict() != want {
		t.Errorf("%q, want %q", a.Verdict(), want)
	}
	// 7 blocks are 28 tokens: with one more on r3, or as many less on r1, r1 is cheaper.
	if f := a.Flips[0]; f.What != "r3:active_prefill_tokens" || f.To != "29" || !slices.Equal(f.Then, []wire.Replica{"r1"}) {
		t.Errorf("flips %+v", a.Flips)
	}
	for _, e := range []Edit{{"r3:active_prefill_tokens", "29"}, {"r1:active_prefill_tokens", "91"}} {
		q.Edits = []Edit{e}
		if a, err := Candidates(f, q); err != nil || a.Choice[0] != "r1" || a.Longest() != "" {
			t.Errorf("with %v: %v, %q, %v", e, a.Choice, a.Longest(), err)
		}
	}
}

// TestPainP52: a prompt of 32 blocks that is cached whole is reused to 31 of 32.
func TestPainP52(t *testing.T) {
	t.Parallel()
	for blocks, says := range map[int]bool{32: true, 31: true, 30: false} {
		a, err := Candidates(fleetOf(blocks), Query{Tokens: tokens(0, 128), Config: policy(t, "dynamo")})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Candidates[0].CachedTokens; got != 4*min(blocks, 31) {
			t.Errorf("%d blocks: %d tokens", blocks, got)
		}
		said := slices.ContainsFunc(a.Notes, func(n string) bool {
			return strings.Contains(n, "of its 32 blocks at most 31 are reused: a hit rate of 96.9 %")
		})
		if said != says {
			t.Errorf("%d blocks: notes %q", blocks, a.Notes)
		}
	}
}
