package observe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

// TestHealthyDemo: ten minutes of the demo as it is by default, but without faults, give
// no finding of any severity at any second.
func TestHealthyDemo(t *testing.T) {
	t.Parallel()
	length := 10 * time.Minute
	if testing.Short() {
		length = time.Minute
	}
	tok, err := tokenizer.Load(mustRead(t, "tokenizer/tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	words := small{tok}
	// found is what is found first, looking once a second.
	found := func(t *testing.T, opt sim.Options, length time.Duration) string {
		t.Helper()
		opt.Encode = func(text string) []wire.Token { return words.tokens(t, text) }
		records, err := sim.History(opt, 1_800_000_000e9, length)
		if err != nil {
			t.Fatal(err)
		}
		o := New(Options{Scrape: fleet.ParseMetrics, Speech: words})
		looks := 0
		for _, rec := range records {
			o.Push(rec)
			if at := time.Duration(rec.At - records[0].At); at/time.Second >= time.Duration(looks) {
				looks++
				if f := o.Snapshot().Findings; len(f) > 0 {
					return fmt.Sprintf("after %s: %s", at, inWords(f))
				}
			}
		}
		if looks < int(length/time.Second) {
			t.Errorf("looked %d times in %s", looks, length)
		}
		return ""
	}
	for seed := uint64(1); seed <= 3; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			if f := found(t, sim.Options{Seed: seed}, length); f != "" {
				t.Error(f)
			}
		})
	}
	t.Run("with a fault", func(t *testing.T) {
		t.Parallel()
		if f := found(t, sim.Options{Seed: 1, Faults: []string{"lost"}}, 10*time.Second); !strings.Contains(f, "error seq-gap") {
			t.Errorf("found %q", f)
		}
	})
}
