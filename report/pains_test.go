package report

import (
	"strings"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/stream"
)

// TestPainsInWords: the lines that the pain log asks for of P47, P51 and P60.
func TestPainsInWords(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	a := explain.Audit{Requests: 50, Agree: 49, Over: 1, AtStart: 40, Funnel: explain.Funnel{Asked: 1000, Somewhere: 610, Chosen: 300, Cached: 270}}
	if err := AuditText(&b, &a, ""); err != nil {
		t.Fatal(err)
	}
	r := diagnose.Replica{State: stream.State{Replica: "r4", Heard: true, Trust: stream.Trust{Word: stream.Exact}}, Index: index.Stats{BlockSize: 3, Bigram: true}}
	if err := Text(&b, &observe.Snapshot{Replicas: []diagnose.Replica{r}}, ""); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"P47": "block size 3 of overlapping pairs (speculative decoding)",
		"P51": "Of their 1 000 prompt tokens, 61.0 % were cached on some replica as the request came, 30.0 % on the one that was chosen, and 27.0 % were reused.",
		"P60": "49 of 50 requests agree (98.0 %) with what the index promised",
	} {
		if !strings.Contains(strings.ReplaceAll(b.String(), "\u00a0", " "), want) {
			t.Errorf("%s: no %q in\n%s", id, want, b.String())
		}
	}
	b.Reset()
	if err := AuditText(&b, &explain.Audit{}, ""); err != nil || strings.Contains(b.String(), "%") {
		t.Errorf("of no request: %s, %v", b.String(), err)
	}
}
