package observe

import (
	"path/filepath"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/refdata"
)

// followed gives the findings at the end of a recording.
func followed(t *testing.T, path string, opt Options) []diagnose.Finding {
	t.Helper()
	opt.Scrape = fleet.ParseMetrics
	o := New(opt)
	if err := o.Run(t.Context(), source(t, path), nil); err != nil {
		t.Fatal(err)
	}
	return o.Snapshot().Findings
}

func TestOracleShiftRecordings(t *testing.T) {
	t.Parallel()
	for _, path := range refdata.Files(t, refdata.Root(t), "vllm/*/events.jsonl.gz") {
		for _, f := range followed(t, path, Options{}) {
			t.Log(filepath.Base(filepath.Dir(path)), f.Severity, f.Code, f.Title, f.Counterfactual)
		}
	}
}
