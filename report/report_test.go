package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// recorded gives the end of a bundled recording.
func recorded(t *testing.T, name string) *observe.Snapshot {
	t.Helper()
	var sources []wire.Source
	for _, part := range []string{"events", "metrics"} {
		f, err := fixtures.Open(name + "/" + part + ".jsonl.gz")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sources = append(sources, wire.NewJSONL(f, name))
	}
	o := observe.New(observe.Options{Name: name, Scrape: fleet.ParseMetrics})
	if err := o.Run(context.Background(), wire.Merge(sources...), nil); err != nil {
		t.Fatal(err)
	}
	return o.Snapshot()
}

// contract is the promised part of kvscope.report/1, with every field.
type contract struct {
	Schema, Source *string
	From, Until    *float64
	Replicas       []struct {
		Replica, Model, Dialect *string
		BlockSize               *int `json:"block_size"`
		Epoch                   *int
		FirstSeq                *uint64 `json:"first_seq"`
		LastSeq                 *uint64 `json:"last_seq"`
		Batches                 *int
		Gaps                    []struct {
			From, To *uint64
			Healed   *bool
			Reason   *string
		}
		Restarts        *int
		Events          *struct{ Stored, Removed, Cleared, Unknown *int }
		Undecodable     *int
		DuplicateStores *int `json:"duplicate_stores"`
		UnknownRemovals *int `json:"unknown_removals"`
		OrphanBlocks    *int `json:"orphan_blocks"`
		DoubtBlocks     *int `json:"doubt_blocks"`
		Blocks          *struct{ Device, Host, Disk, External *int }
		Stores          *struct {
			First, Elsewhere, Duplicate *int
			EvictedHere                 *int `json:"evicted_here"`
			EvictedElsewhere            *int `json:"evicted_elsewhere"`
		}
		Recipe, Trust *string
		Reasons       []string
	}
	Findings []finding
}

type finding struct {
	Code, Kind, Severity, Subject, Title, Counterfactual, Next *string
	Since                                                      *float64
	Until                                                      any
	Evidence, Effect                                           map[string]any
}

// missing lists the nil pointers of a decoded value.
func missing(t *testing.T, raw []byte) []string {
	t.Helper()
	var v contract
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(back, &tree); err != nil {
		t.Fatal(err)
	}
	var out []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case nil:
			out = append(out, path)
		case map[string]any:
			for k, e := range v {
				walk(path+"."+k, e)
			}
		case []any:
			for _, e := range v {
				walk(path+"[]", e)
			}
		}
	}
	walk("", tree)
	return out
}

func TestReportContract(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a_fleet", "d_restart", "c_reset"} {
		var out bytes.Buffer
		if err := JSON(&out, recorded(t, name), ""); err != nil {
			t.Fatal(err)
		}
		for _, path := range missing(t, out.Bytes()) {
			// What does not apply is null: an open end, a seq without one.
			if !strings.Contains(path, ".Findings[].") || !strings.Contains(path, "Until") && !strings.Contains(path, "Evidence.") && !strings.Contains(path, "Effect.") {
				t.Errorf("%s: %s is missing", name, path)
			}
		}
	}
}

// TestBlindReplica: what is not known is null, and lists are never null.
func TestBlindReplica(t *testing.T) {
	t.Parallel()
	o := observe.New(observe.Options{})
	o.Push(wire.Record{At: 1e9, Replica: "r", Kind: wire.Link, Link: wire.LinkUp})
	var out bytes.Buffer
	if err := JSON(&out, o.Snapshot(), "cut"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"trust": "BLIND"`, `"first_seq": null`, `"doubt_blocks": null`, `"gaps": []`, `"findings": []`, `"damage": "cut"`, `"from": 1,`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in %s", want, out.String())
		}
	}
	out.Reset()
	if err := Text(&out, o.Snapshot(), ""); err != nil || !strings.Contains(out.String(), "r has sent no cache event") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Text(&out, recorded(t, "d_restart"), ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"b has lost its link", "DEGRADED(late-join)", "STALE(link-lost, late-join)", "WARNING replica-restart", "~67 / 199",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	for i, line := range strings.Split(out.String(), "\n") {
		if i > 2 && len([]rune(line)) > 170 {
			t.Errorf("line %d is %d wide: %s", i, len([]rune(line)), line)
		}
	}
}

func TestGroup(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1 000", 1234567: "1 234 567"} {
		if got := wire.Grouped(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriteErrors(t *testing.T) {
	t.Parallel()
	s := &observe.Snapshot{Findings: []diagnose.Finding{{}}}
	for name, err := range map[string]error{
		"json": JSON(brokenPipe{}, s, ""), "text": Text(brokenPipe{}, s, ""),
		"findings": FindingsText(brokenPipe{}, s, ""),
	} {
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestForeignNames: nothing from outside reaches a terminal as it is.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	evil := "\x1b[31mred\x07\n\u202e" + strings.Repeat("x", 5000)
	o := observe.New(observe.Options{Name: evil})
	o.Push(wire.Record{At: 1e9, Replica: wire.Replica(evil), Kind: wire.Link, Link: wire.LinkUp})
	o.Push(wire.Record{At: 2e9, Replica: wire.Replica(evil), Frames: [][]byte{{1}}})
	var out bytes.Buffer
	if err := Text(&out, o.Snapshot(), evil); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\x07\u202e") || out.Len() > 6000 {
		t.Errorf("%d bytes: %.500q", out.Len(), out.String())
	}
}

// TestOddHitRate: what cannot be a rate is none, and JSON stays valid.
func TestOddHitRate(t *testing.T) {
	t.Parallel()
	for _, load := range []wire.Load{
		{Known: true, QueriedTokens: 1e-320, HitTokens: 1e308},
		{Known: true, QueriedTokens: 1, HitTokens: 2},
		{Known: true, QueriedTokens: 1, HitTokens: -1},
		{Known: true},
	} {
		o := observe.New(observe.Options{Scrape: func(string, int) (wire.Facts, wire.Load, error) { return wire.Facts{}, load, nil }})
		o.Push(wire.Record{At: 1e9, Replica: "r", Kind: wire.Scrape})
		var out bytes.Buffer
		if err := JSON(&out, o.Snapshot(), ""); err != nil || !strings.Contains(out.String(), `"hit_rate": null`) {
			t.Errorf("%+v: %v", load, err)
		}
	}
}
