package observe

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/refdata"
)

// TestOracleRoutingFindings: what real fleets give in findings about routing. Those of
// the recordings were driven by a script, which sent some chats elsewhere on purpose.
func TestOracleRoutingFindings(t *testing.T) {
	t.Parallel()
	may := map[string]bool{"a_fleet evicted-before-return": true, "a_fleet ping-pong": true}
	n := 0
	for _, path := range refdata.Files(t, refdata.Root(t), "vllm/*/events.jsonl.gz") {
		n++
		name := filepath.Base(filepath.Dir(path))
		o := New(Options{Scrape: fleet.ParseMetrics})
		if err := o.Run(context.Background(), source(t, path), nil); err != nil {
			t.Fatal(err)
		}
		for _, f := range o.Snapshot().Findings {
			switch {
			case !routingCodes[f.Code]:
			case f.Severity >= diagnose.Warning && !may[name+" "+f.Code]:
				t.Errorf("%s: %s %s %s: %s", name, f.Severity, f.Code, f.Subject, f.Title)
			default:
				t.Logf("%s: %s %s %s: %s", name, f.Severity, f.Code, f.Subject, f.Title)
			}
		}
	}
	t.Logf("%d recordings", n)
}
