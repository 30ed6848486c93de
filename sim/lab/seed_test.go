package lab_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/sim/lab"
)

// TestOracleSeed holds the reference experiment against its published figures,
// which stand in seed/README.md beside the data.
func TestOracleSeed(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	compared := 0
	for _, name := range refdata.Files(t, root, "seed/*.json") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		compared += published(t, text)
		if rel := filepath.Base(name); rel != "tokens.json" {
			t.Errorf("%s is not known", rel)
		}
	}
	t.Logf("%d published figures compared", compared)
}

// TestSeedFixture does the same with the copy that every clone has.
func TestSeedFixture(t *testing.T) {
	t.Parallel()
	published(t, seedFixture(t))
}

func seedFixture(t *testing.T) []byte {
	t.Helper()
	r, err := fixtures.Open("seed/tokens.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func published(t *testing.T, tokens []byte) (compared int) {
	t.Helper()
	in, err := lab.ReadSeed(bytes.NewReader(tokens))
	if err != nil {
		t.Fatal(err)
	}
	s, err := lab.RunSeed(in)
	if err != nil {
		t.Fatal(err)
	}
	equal := func(what string, got, want any) {
		t.Helper()
		compared++
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			t.Errorf("%s: %s, want %s", what, g, w)
		}
	}
	round := func(v float64, decimals int) string { return fmt.Sprintf("%.*f", decimals, v) }
	equal("index: answers", s.Queries, 24*4)
	equal("index: equal to a scan", s.Equal, 24*4)
	equal("index: probe", s.Probe, []int{4, 4, 4, 4})
	equal("index: after a removal", s.Removed, 5)
	var left []int
	for _, b := range s.Boundaries {
		left = append(left, b.Match)
	}
	equal("boundary", left, []int{3, 4, 9, 0, 0})
	equal("decay", []float64{s.Least, s.Loaded}, []float64{6, 3})
	for i, want := range []struct {
		placements                  []int
		cv, makespan, sticky, ratio string
	}{
		{[]int{144, 0, 0, 0}, "1.732", "1346", "", "3.61"},
		{[]int{35, 36, 36, 37}, "0.006", "374", "65.6", "1.00"},
		{nil, "0.012", "450", "32.3", "1.20"},
	} {
		h, name := s.Herding[i], s.Herding[i].Rule
		if want.placements != nil {
			equal(name+": placements", h.Placements, want.placements)
		}
		equal(name+": cv", round(h.CV, 3), want.cv)
		equal(name+": makespan", round(h.Makespan, 0), want.makespan)
		if want.sticky != "" {
			equal(name+": stickiness", round(100*h.Sticky, 1), want.sticky)
		}
		equal(name+": makespan against credit 1", round(h.Ratio, 2), want.ratio)
	}
	equal("stale: without removals", s.Stale[0], lab.SeedStale{Believed: 476, Served: 316, Asked: 640})
	equal("stale: phantom points", round(100*float64(s.Stale[0].Believed-s.Stale[0].Served)/float64(s.Stale[0].Asked), 1), "25.0")
	equal("stale: with removals", s.Stale[1], lab.SeedStale{Removals: true, Believed: 316, Served: 316, Asked: 640})
	equal("cold", s.Cold, 1)
	if slices.ContainsFunc(s.Herding, func(h lab.SeedHerding) bool { return math.IsNaN(h.CV) }) {
		t.Error("a cv that is no number")
	}
	return compared
}

// TestSeedRefuses what is not the experiment's data, in one sentence.
func TestSeedRefuses(t *testing.T) {
	t.Parallel()
	good := string(seedFixture(t))
	for name, text := range map[string]string{
		"nothing":          "",
		"no object":        "[]",
		"cut":              good[:len(good)/2],
		"odd block":        strings.Replace(good, `"block_size":16`, `"block_size":15`, 1),
		"negative block":   strings.Replace(good, `"block_size":16`, `"block_size":-16`, 1),
		"huge cache":       strings.Replace(good, `"capacity_blocks":60`, `"capacity_blocks":60000000000`, 1),
		"many passes":      strings.Replace(good, `"passes":2`, `"passes":2000000000`, 1),
		"empty":            "{}",
		"negative token":   strings.Replace(good, `"base":[`, `"base":[-1,`, 1),
		"one session more": strings.Replace(good, `"sessions":[`, `"sessions":[[1],`, 1),
	} {
		if text == good {
			t.Fatalf("%s: the text is not in the fixture", name)
		}
		_, err := lab.ReadSeed(strings.NewReader(text))
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
