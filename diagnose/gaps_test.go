package diagnose

import (
	"strings"
	"testing"

	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

const second = wire.Time(1e9)

// gapFindings runs all checks on one replica and gives those of its gaps.
func gapFindings(gaps []stream.Gap, marks ...stream.Mark) []Finding {
	var out []Finding
	for _, f := range Run(View{Replicas: []Replica{{
		State: stream.State{Replica: "r1", Gaps: gaps, Marks: marks, Facts: wire.Facts{Capacity: 160}},
		Doubt: 40,
	}}}, nil) {
		if f.Code == "seq-gap" {
			out = append(out, f)
		}
	}
	return out
}

func TestGapFindings(t *testing.T) {
	t.Parallel()
	lost := stream.Gap{From: 5, To: 6, Epoch: 1, Seen: 10 * second, Reason: "not replayed"}
	healed := stream.Gap{From: 5, To: 5, Epoch: 1, Seen: 10 * second, Healed: true, HealedAt: 12 * second}
	clearAt := func(at wire.Time) stream.Mark { return stream.Mark{At: at, Kind: stream.MarkCleared, Epoch: 1} }
	for _, tt := range []struct {
		name     string
		gap      stream.Gap
		marks    []stream.Mark
		severity Severity
		until    wire.Time // 0 where it is open
		effect   bool
		title    string
	}{
		{"lost", lost, nil, Error, 0, true, "2 batches lost (5–6), not replayed"},
		{"a clear ends it", lost, []stream.Mark{clearAt(15 * second)}, Warning, 15 * second, false, "2 batches lost (5–6)"},
		{"a restart ends it", lost, []stream.Mark{{At: 16 * second, Kind: stream.MarkRestart}}, Warning, 16 * second, false, "2 batches lost (5–6)"},
		{"a clear before it does not", lost, []stream.Mark{clearAt(9 * second)}, Error, 0, true, "2 batches lost (5–6)"},
		{"healed", healed, nil, Info, 12 * second, false, "1 batch missed live (5–5) and recovered by replay"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := gapFindings([]stream.Gap{tt.gap}, tt.marks...)
			if len(got) != 1 {
				t.Fatalf("%d findings, want 1: %+v", len(got), got)
			}
			f := got[0]
			if f.Severity != tt.severity || !strings.Contains(f.Title, tt.title) || f.Subject != "r1" || f.Since != 10*second {
				t.Errorf("%v %q about %q since %d", f.Severity, f.Title, f.Subject, f.Since)
			}
			if f.Open() != (tt.until == 0) || f.Until != nil && *f.Until != tt.until {
				t.Errorf("until %v, want %d", f.Until, tt.until)
			}
			if (f.Effect.Blocks != nil) != tt.effect || tt.effect && (*f.Effect.Blocks != 40 || *f.Effect.Share != 0.25) {
				t.Errorf("effect %+v", f.Effect)
			}
			if *f.Evidence.SeqFrom != tt.gap.From || *f.Evidence.SeqTo != tt.gap.To || f.Next == "" {
				t.Errorf("evidence %+v, next %q", f.Evidence, f.Next)
			}
		})
	}
}

// A link that drops something every second must not bury all else.
func TestOldGapsAreOneFinding(t *testing.T) {
	t.Parallel()
	var gaps []stream.Gap
	for i := range uint64(11) { // one batch of every ten
		gaps = append(gaps, stream.Gap{From: 10 * i, To: 10 * i, Seen: wire.Time(i) * second, Reason: "not replayed"})
	}
	got := gapFindings(gaps)
	if len(got) != 9 {
		t.Fatalf("%d findings, want 8 and one for the 3 older ones", len(got))
	}
	for i, f := range got[:8] { // newest first
		if want := uint64(10 * (10 - i)); *f.Evidence.SeqFrom != want {
			t.Errorf("finding %d is of batch %d, want %d", i, *f.Evidence.SeqFrom, want)
		}
	}
	old := got[8]
	if *old.Evidence.SeqFrom != 0 || *old.Evidence.SeqTo != 20 || old.Since != 0 || !strings.HasPrefix(old.Title, "3 runs of batches were lost before that") {
		t.Errorf("%q: %d–%d since %d", old.Title, *old.Evidence.SeqFrom, *old.Evidence.SeqTo, old.Since)
	}
}
