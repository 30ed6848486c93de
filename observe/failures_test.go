package observe

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
)

// TestFailureTable: each row of the published table of how cache-aware routing fails has
// a scenario of its own, in which the finding says what the row's symptom hides. That the
// healthy twins lack it is for TestScenarios.
func TestFailureTable(t *testing.T) {
	t.Parallel()
	taken := map[string]string{}
	for _, row := range []struct {
		symptom, code, scenario string
		severity                diagnose.Severity
		says                    string
	}{
		{"herding with excellent hit rate", "herding", "P48: herding with an excellent hit rate", diagnose.Warning, "hit rate of 96 % hides it"},
		{
			"hit rate collapses under load while the router's metric looks fine", "evicted-before-return",
			"hit rate collapses under load while the router's metric looks fine", diagnose.Warning, "the hit rate is 5 %",
		},
		{"near-zero hits despite shared prompts", "ping-pong", "near-zero hits despite shared prompts", diagnose.Warning, "the hit rate is 2 %"},
		// Routers read a body up to a limit, which only long prompts pass.
		{"only the longest requests degrade", "body-truncated", "one in ten", diagnose.Warning, "only the start of 64 request bodies"},
		{"the router's index grows without bound", "index-growth", "P55 the router's index grows without bound", diagnose.Info, "an index without bound would hold the rest too, 92 % of it"},
		{"quality degrades after an incident and never recovers", "phantom-hit", "an incident that lost a batch of removals", diagnose.Warning, "phantoms"},
		{"two routers pick the same replica in a burst", "router-race", "two routers pick the same replica in a burst", diagnose.Warning, "within 100 ms"},
		{"cross-tenant hits", "cross-tenant", "an engine that hashes no salt", diagnose.Error, "salt"},
		{"worse tail latency on uniform traffic", "no-reuse-to-find", "worse tail latency on uniform traffic", diagnose.Info, "nothing to reuse"},
	} {
		t.Run(row.symptom, func(t *testing.T) {
			at := slices.IndexFunc(scenarios, func(s scenario) bool { return s.code == row.code && s.name == row.scenario })
			if at < 0 {
				t.Fatalf("there is no scenario %s of %s", row.scenario, row.code)
			}
			if other := taken[row.code]; other != "" {
				t.Errorf("%s has the same code", other)
			}
			taken[row.code] = row.symptom
			s := &scenarios[at]
			found := s.watched(s.fault(t), s.router).Findings
			at = slices.IndexFunc(found, func(f diagnose.Finding) bool { return f.Code == row.code })
			if at < 0 {
				t.Fatalf("found %s", inWords(found))
			}
			if f := &found[at]; f.Severity != row.severity || !strings.Contains(f.Title, row.says) || f.Next == "" {
				t.Errorf("%s %s", f.Severity, f.Title)
			}
		})
	}
}
