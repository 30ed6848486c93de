package observe

import (
	"strings"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

const r1 = wire.Replica("r1")

// titled wants a severity and words of the title.
func titled(severity diagnose.Severity, parts ...string) func(*testing.T, *diagnose.Finding) {
	return func(t *testing.T, f *diagnose.Finding) {
		t.Helper()
		if f.Severity != severity {
			t.Errorf("%s, want %s: %s", f.Severity, severity, f.Title)
		}
		for _, part := range parts {
			if !strings.Contains(f.Title, part) {
				t.Errorf("%q is not in %q", part, f.Title)
			}
		}
	}
}

var streamScenarios = []scenario{
	{
		code: "seq-gap", name: "three batches",
		fault: func(t *testing.T) []wire.Record { return []wire.Record{frame(t, 1, r1, 0), frame(t, 2, r1, 4)} },
		twin:  func(t *testing.T) []wire.Record { return []wire.Record{frame(t, 1, r1, 0), frame(t, 2, r1, 1)} },
		want:  titled(diagnose.Error, "3 batches lost (1–3)"),
	},
	{
		code: "late-join", name: "at batch nine",
		fault: func(t *testing.T) []wire.Record { return []wire.Record{frame(t, 1, r1, 9)} },
		twin:  func(t *testing.T) []wire.Record { return []wire.Record{frame(t, 1, r1, 0)} },
		want:  titled(diagnose.Info, "joined at batch 9"),
	},
	{
		code: "replica-restart", name: "the sequence falls",
		fault: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1)), frame(t, 2, r1, 1), frame(t, 3, r1, 0)}
		},
		twin: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1)), frame(t, 2, r1, 1), frame(t, 3, r1, 2)}
		},
		want: titled(diagnose.Warning, "began again at 0 after 1"),
	},
	{
		code: "cache-cleared", name: "in batch one",
		fault: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1)), frame(t, 2, r1, 1, cleared())}
		},
		twin: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1)), frame(t, 2, r1, 1, removed(1))}
		},
		want: titled(diagnose.Info, "batch 1"),
	},
	{
		code: "undecodable-events", name: "an event of two words",
		fault: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1), []any{"BlockStored", "what"}, removed(1))}
		},
		twin: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1), []any{"BlockAdmired", "what"}, removed(1))}
		},
		want: titled(diagnose.Error, "1 event could not be read"),
	},
	{
		code: "over-capacity", name: "announced twice", facts: wire.Facts{Capacity: 4},
		fault: func(t *testing.T) []wire.Record {
			rec, _ := page(9, r1, wire.Facts{})
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 3), stored(nil, 1, 3)), rec}
		},
		twin: func(t *testing.T) []wire.Record {
			rec, _ := page(9, r1, wire.Facts{})
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 3)), rec}
		},
		want: titled(diagnose.Warning, "2 more than the engine has (4)"),
	},
}
