package observe

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// A small publisher for tests: arrays as vLLM 0.10 sends them.

func frame(t testing.TB, at float64, name wire.Replica, seq uint64, events ...any) wire.Record {
	t.Helper()
	if events == nil {
		events = []any{}
	}
	payload, err := msgpack.Marshal([]any{at, events, 0})
	if err != nil {
		t.Fatal(err)
	}
	return wire.Record{
		At: wire.Time(at * 1e9), Replica: name,
		Frames: [][]byte{nil, binary.BigEndian.AppendUint64(nil, seq), payload},
	}
}

func stored(parent any, first uint64, blocks int) []any {
	hashes, tokens := []uint64{}, []uint64{}
	for i := range blocks {
		hashes = append(hashes, first+uint64(i))
		for k := range 4 {
			tokens = append(tokens, 100*(first+uint64(i))+uint64(k))
		}
	}
	return []any{"BlockStored", hashes, parent, tokens, 4, nil, "GPU"}
}

func removed(hashes ...uint64) []any { return []any{"BlockRemoved", hashes, "GPU"} }
func cleared() []any                 { return []any{"AllBlocksCleared"} }

func page(at float64, name wire.Replica, facts wire.Facts) (wire.Record, wire.Facts) {
	return wire.Record{At: wire.Time(at * 1e9), Replica: name, Kind: wire.Scrape}, facts
}

func TestFindings(t *testing.T) {
	t.Parallel()
	const r = wire.Replica("r1")
	capacity := wire.Facts{Capacity: 4}
	for _, c := range []struct {
		name    string
		records []wire.Record
		facts   wire.Facts
		want    []string // severity code title-part; "(over)" at the end if over
	}{
		{"healthy", []wire.Record{
			frame(t, 1, r, 0, stored(nil, 1, 2)), frame(t, 2, r, 1, removed(2)), frame(t, 3, r, 2, stored(uint64(1), 3, 1)),
		}, capacity, nil},
		{"seq-gap", []wire.Record{frame(t, 1, r, 0), frame(t, 2, r, 4)}, wire.Facts{}, []string{"error seq-gap 3 batches lost (1–3)"}},
		{"seq-gap until a clear", []wire.Record{
			frame(t, 1, r, 0), frame(t, 2, r, 2), frame(t, 3, r, 3, cleared()),
		}, wire.Facts{}, []string{"warning seq-gap 1 batch lost (1–1) (over)", "info cache-cleared batch 3 (over)"}},
		{"late-join", []wire.Record{frame(t, 1, r, 9)}, capacity, []string{"info late-join joined at batch 9"}},
		{"late-join until a clear", []wire.Record{
			frame(t, 1, r, 9), frame(t, 2, r, 10, cleared()),
		}, wire.Facts{}, []string{"info cache-cleared (over)", "info late-join (over)"}},
		{"replica-restart", []wire.Record{
			frame(t, 1, r, 0, stored(nil, 1, 1)), frame(t, 2, r, 1), frame(t, 3, r, 0),
		}, wire.Facts{}, []string{"warning replica-restart began again at 0 after 1 (over)"}},
		{"cache-cleared", []wire.Record{
			frame(t, 1, r, 0, stored(nil, 1, 1)), frame(t, 2, r, 1, cleared()),
		}, wire.Facts{}, []string{"info cache-cleared batch 1 (over)"}},
		{"undecodable-events", []wire.Record{
			frame(t, 1, r, 0, stored(nil, 1, 1), []any{"BlockStored", "what"}, removed(1)),
		}, wire.Facts{}, []string{"error undecodable-events 1 event could not be read"}},
		{"over-capacity", []wire.Record{
			frame(t, 1, r, 0, stored(nil, 1, 3), stored(nil, 1, 3)),
		}, capacity, []string{"warning over-capacity 2 more than the engine has (4)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := New(Options{Scrape: func(string, int) (wire.Facts, wire.Load, error) { return c.facts, wire.Load{}, nil }})
			for _, rec := range c.records {
				o.Push(rec)
			}
			rec, _ := page(9, r, c.facts)
			o.Push(rec)
			s := o.Snapshot()
			var got []string
			for i := range s.Findings {
				f := &s.Findings[i]
				line := f.Severity.String() + " " + f.Code + " " + f.Title
				if !f.Open() {
					line += " (over)"
				}
				got = append(got, line)
				if f.Next == "" || f.Subject != string(r) || f.Evidence.Replica != r {
					t.Errorf("incomplete: %+v", f)
				}
			}
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i, want := range c.want {
				words := strings.SplitN(want, " ", 3)
				head, rest := words[0]+" "+words[1], ""
				if len(words) > 2 {
					rest = words[2]
				}
				part, over := strings.CutSuffix(rest, "(over)")
				if !strings.HasPrefix(got[i], head) || !strings.Contains(got[i], strings.TrimSpace(part)) || strings.HasSuffix(got[i], "(over)") != over {
					t.Errorf("finding %d is %q, want %q", i, got[i], want)
				}
			}
		})
	}
}

// TestManyGaps: a stream full of holes is not a page full of findings.
func TestManyGaps(t *testing.T) {
	t.Parallel()
	o := New(Options{})
	for i := range uint64(40) {
		o.Push(frame(t, float64(i), "r1", 2*i))
	}
	f := o.Snapshot().Findings
	if len(f) != 9 {
		t.Fatalf("%d findings for 39 gaps", len(f))
	}
	last := f[8]
	if *last.Evidence.SeqFrom != 1 || *last.Evidence.SeqTo != 61 || !strings.HasPrefix(last.Title, "31 runs of batches") {
		t.Errorf("%+v: %d–%d", last, *last.Evidence.SeqFrom, *last.Evidence.SeqTo)
	}
}

// TestDoubt holds doubt and trust against each other.
func TestDoubt(t *testing.T) {
	t.Parallel()
	const r = wire.Replica("r1")
	facts := wire.Facts{Capacity: 10}
	o := New(Options{Scrape: func(string, int) (wire.Facts, wire.Load, error) { return facts, wire.Load{}, nil }})
	rec, _ := page(1, r, facts)
	o.Push(rec)
	step := func(rec wire.Record, word string, doubt int) {
		t.Helper()
		o.Push(rec)
		got := o.Snapshot().Replicas[0]
		if string(got.Trust.Word) != word || got.Doubt != doubt {
			t.Errorf("after seq %d: %s, %d blocks in doubt; want %s, %d", got.Last, got.Trust, got.Doubt, word, doubt)
		}
	}
	step(frame(t, 2, r, 5, stored(nil, 1, 3)), "DEGRADED", 7)         // joined late
	step(frame(t, 3, r, 6, cleared(), stored(nil, 1, 2)), "EXACT", 0) // cleared
	step(frame(t, 4, r, 8, stored(uint64(2), 3, 1)), "DEGRADED", 7)   // a gap
	step(wire.Record{At: 5e9, Replica: r, Kind: wire.Link, Link: wire.LinkUp}, "DEGRADED", 7)
	step(wire.Record{At: 6e9, Replica: r, Kind: wire.Link, Link: wire.LinkDown}, "STALE", 7)
	step(wire.Record{At: 7e9, Replica: r, Kind: wire.Link, Link: wire.LinkUp}, "STALE", 7) // silent since
	step(frame(t, 8, r, 9), "DEGRADED", 7)
	step(frame(t, 9, r, 0), "EXACT", 0) // a new process
}

// TestCheckPages requires a page for every check and no others.
func TestCheckPages(t *testing.T) {
	t.Parallel()
	have, err := filepath.Glob("../docs/checks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]bool{}
	for _, p := range have {
		pages[strings.TrimSuffix(filepath.Base(p), ".md")] = true
	}
	for _, c := range diagnose.Checks {
		if !pages[c.Code] {
			t.Errorf("docs/checks/%s.md is missing", c.Code)
		}
		delete(pages, c.Code)
		if text, err := os.ReadFile("../docs/checks/" + c.Code + ".md"); err == nil && !strings.HasPrefix(string(text), "# "+c.Code+": "+c.Title+"\n") {
			t.Errorf("docs/checks/%s.md does not begin with the check's code and title", c.Code)
		}
	}
	for code := range pages {
		t.Errorf("docs/checks/%s.md belongs to no check", code)
	}
}
