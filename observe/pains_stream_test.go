package observe

import (
	"strings"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// TestPainP59: one replica is exact, one has a gap that no replay fills, one is blind.
func TestPainP59(t *testing.T) {
	t.Parallel()
	o := New(Options{})
	rest := answered(t, 3, "r1", 901, "the socket takes requests and answers none")
	records := []wire.Record{
		frame(t, 1, "r0", 0, stored(nil, 1, 2)),
		frame(t, 1, "r1", 900), rest[0], frame(t, 3, "r1", 905), rest[1],
		link(1, "r2", wire.LinkUp, ""),
	}
	for _, rec := range records {
		o.Push(rec)
	}
	s := o.Snapshot()
	for i, want := range []string{"EXACT", "DEGRADED(gap, late-join)", "BLIND(no-events)"} {
		if got := s.Replicas[i].Trust.String(); got != want {
			t.Errorf("%s: %s, want %s", s.Replicas[i].Replica, got, want)
		}
	}
	for _, f := range s.Findings {
		if f.Code == "seq-gap" && (f.Severity != diagnose.Error || !strings.Contains(f.Title, "4 batches lost (901–904), the socket takes requests")) {
			t.Errorf("%s %s", f.Severity, f.Title)
		}
	}
	if len(s.Findings) != 2 {
		t.Errorf("findings: %s", inWords(s.Findings))
	}
}

// TestPainP38: of four ranks of one engine, one is refused, and it serves.
func TestPainP38(t *testing.T) {
	t.Parallel()
	s := scenario{facts: wire.Facts{BlockSize: 4}}
	records := []wire.Record{link(1, "e/1", wire.LinkDown, "connect to port 5558: connection refused")}
	for at := range 30 {
		for rank, name := range []wire.Replica{"e/0", "e/1"} {
			records = append(records, loadPage(float64(1+at), name, float64(at), 40*float64(at), 0, 0))
			if rank == 0 {
				records = append(records, frame(t, float64(1+at), name, uint64(at), stored(nil, uint64(10*at+1), 1)))
			}
		}
	}
	found := s.watched(records, nil).Findings
	if len(found) != 1 || found[0].Code != "events-off" || found[0].Subject != "e/1" || !strings.Contains(found[0].Title, "connect to port 5558: connection refused") {
		t.Errorf("findings: %s", inWords(found))
	}
}
