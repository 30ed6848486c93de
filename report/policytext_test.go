package report

import (
	"io"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/prompt"
)

// TestPolicyTable has a draw among more replicas than are named, a guess, and nobody.
func TestPolicyTable(t *testing.T) {
	t.Parallel()
	a := decided(t, 5)

	all := a.Best[:0:0]
	for i := range 5 {
		all = append(all, a.Given.Candidates[i].Replica)
	}
	if !strings.Contains(string(a.Given.Candidates[0].Replica), "\x1b") {
		t.Fatal("the names are not hostile")
	}
	a.ByPolicy = []explain.ByPolicy{
		{Policy: "even", System: "x", Choice: all, Chances: []float64{.2, .2, .2, .2, .2}, Anew: 24, Why: "all are equal"},
		{Policy: "tree", System: "x", Guessed: true, Choice: all[:2], Chances: []float64{.75, .25}, Anew: 24},
		{Policy: "ring", System: "x", ByNames: true, Choice: all[:1], Chances: []float64{1}, Anew: 24},
		{Policy: "none", System: "x", Why: "no candidate is eligible"},
	}
	got := written(t, func(w io.Writer) error { return ExplainText(w, a, &prompt.Prompt{}, "") })
	for _, want := range []string{
		"any of r00?[31m, r01?[31m, r02?[31m, 2 more  ~24 tokens (60.0 %)", "tree *", "r00?[31m 75.0 %, r01?[31m 25.0 %",
		"* it goes by what it remembers", "ring †", "† it hashes what replicas are called", "nobody", "none (x): no candidate is eligible",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.ContainsRune(got, 0x1b) || strings.Contains(got, "cached tok") {
		t.Errorf("an escape, or one policy's candidates:\n%s", got)
	}
}
