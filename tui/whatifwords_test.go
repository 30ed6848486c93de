package tui

import (
	"testing"

	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// TestVerdict names one replica only where it alone holds most, and the number of one
// that is sure.
func TestVerdict(t *testing.T) {
	t.Parallel()
	row := func(name wire.Replica, word stream.Word, cached int) observe.Row {
		return observe.Row{Replica: name, Trust: stream.Trust{Word: word}, CachedTokens: cached}
	}
	for want, rows := range map[string][]observe.Row{
		"No replica has been seen.": nil,
		"No replica holds its beginning: it is computed from the first token, wherever it goes.": {row("a", stream.Exact, 0)},
		"b holds most: ~64 of 80 tokens (~80.0 %) would come from its cache.": {
			row("a", stream.Exact, 48), row("b", stream.Degraded, 64),
		},
		"2 replicas hold most: 64 of 80 tokens (80.0 %) would come from any of their caches.": {
			row("a", stream.Degraded, 64), row("b", stream.Exact, 64), row("c", stream.Exact, 0),
		},
		"All 2 replicas hold as much: ~64 of 80 tokens (~80.0 %) would come from any of their caches.": {
			row("a", stream.Degraded, 64), row("b", stream.Degraded, 64),
		},
	} {
		v := &whatIf{answer: &observe.Answer{Tokens: 80, Rows: rows}}
		if got := v.verdict(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
