package observe

import (
	"bytes"
	"context"
	"encoding/hex"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// identityAndBelief are the checks of hashes, names and what an index promises.
var identityAndBelief = []string{
	"hash-mismatch", "block-size-mismatch", "dialect-mixed", "foreign-replica", "namespace-collision", "cross-tenant",
	"tier-granularity", "hybrid-overprediction", "phantom-hit", "ghost-miss", "deprecated-knob", "unsupported-shape", "index-growth",
}

// TestOracleNoIdentityFindings: real engines, of which nothing of the kind is wrong.
func TestOracleNoIdentityFindings(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	recordings, records := 0, 0
	judge := func(path string, o *Observer, want ...string) {
		recordings++
		records += int(o.Records())
		var found []diagnose.Finding
		var got []string
		for _, f := range o.Snapshot().Findings {
			if slices.Contains(identityAndBelief, f.Code) {
				found = append(found, f)
				got = append(got, f.Code+" "+f.Severity.String())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %s; want %q", path, inWords(found), want)
		}
	}
	for _, path := range refdata.Files(t, root, "vllm/*/events.jsonl.gz") {
		opt := Options{Scrape: fleet.ParseMetrics}
		name := filepath.Base(filepath.Dir(path))
		var want []string
		switch name {
		case "a_fleet":
			log, err := explain.ReadRequests(bytes.NewReader(read(t, filepath.Join(filepath.Dir(path), "truth.jsonl.gz"))), "truth")
			if err != nil {
				t.Fatal(err)
			}
			opt.Requests = log
		case "g1_lora_cbor_bytes": // byte hashes: Dynamo reads none of them
			want = []string{"unsupported-shape info"}
		}
		o := New(opt)
		if err := o.Run(context.Background(), source(t, path), nil); err != nil {
			t.Fatal(err)
		}
		o.Audit()
		judge(name, o, want...)
	}
	for _, path := range refdata.Files(t, root, "sglang/*.jsonl.gz") {
		o := New(Options{})
		at := wire.Time(1e9)
		refdata.Each(t, path, func(_ int, l struct {
			Kind   string
			Frames [][]byte `json:"frames_b64"`
		},
		) {
			if l.Kind == "frame" && len(l.Frames) == 3 {
				o.Push(wire.Record{At: at, Replica: "s", Frames: l.Frames})
				at += 2e9
			}
		})
		o.Push(wire.Record{At: at, Replica: "s", Kind: wire.Note, Text: "the end"})
		judge(path, o)
	}
	for _, path := range refdata.Files(t, root, "dynamo/live/vllm_wire.jsonl.gz") {
		o := New(Options{})
		refdata.Each(t, path, func(_ int, l struct {
			T        float64
			Endpoint wire.Replica
			Frames   []string
		},
		) {
			at, _ := wire.TimeOf(l.T)
			rec := wire.Record{At: at, Replica: l.Endpoint}
			for _, f := range l.Frames {
				b, err := hex.DecodeString(f)
				if err != nil {
					t.Fatal(err)
				}
				rec.Frames = append(rec.Frames, b)
			}
			o.Push(rec)
		})
		judge(path, o)
	}
	t.Logf("%d recordings, %d records", recordings, records)
}
