package capture

import (
	"encoding/base64"
	"encoding/hex"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

var (
	hexPayload = regexp.MustCompile(`"(?:hex|payload_hex)": ?"([0-9a-f]+)"`)
	lastFrame  = regexp.MustCompile(`"([A-Za-z0-9+/=]+)"\], "decoded"`)
)

// goldens gives the payloads of package wire's samples of real engines.
func goldens(t *testing.T, pattern string) [][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "wire", "testdata", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples %s: %v", pattern, err)
	}
	var all [][]byte
	for _, file := range files {
		text := refdata.Unpack(t, file)
		for _, m := range hexPayload.FindAllSubmatch(text, -1) {
			b, err := hex.DecodeString(string(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		for _, m := range lastFrame.FindAllSubmatch(text, -1) {
			if b, err := base64.StdEncoding.DecodeString(string(m[1])); err == nil {
				all = append(all, b)
			}
		}
	}
	return all
}

// TestRedactGoldens re-encodes samples of every release, and asks Dynamo's
// relay too, which minds more of the form than we do.
func TestRedactGoldens(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern string
		least   int
		// relay says that the samples are of real engines.
		relay bool
	}{
		{"vllm/*.json.gz", 50, true},
		{"sglang/*.jsonl.gz", 20, true},
		{"dynamo/wire*.jsonl.gz", 100, false},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			t.Parallel()
			done := 0
			for _, payload := range goldens(t, tt.pattern) {
				before, err := wire.Decode("", 0, payload)
				if err != nil {
					continue
				}
				done++
				r := newRedactor(t, RedactOptions{})
				out := r.payload(payload)
				after, err := wire.Decode("", 0, out)
				if err != nil {
					t.Fatalf("%x became %x: %v", payload, out, err)
				}
				before.Len = min(before.Len, after.Len)
				opts := sameShape
				if !tt.relay {
					// Tuples of old relays leave unused slots out, and a bin can stand
					// for a list of small hashes; the copy has nil there, and a list.
					opts = append(opts, cmpopts.IgnoreFields(wire.Event{}, "Fields", "Form"))
					for i := range before.Events {
						// Nor do clears of engines have groups.
						if e := &before.Events[i]; e.Kind == wire.Cleared && e.Array {
							e.Group, e.Spec, e.Window = -1, "", 0
						}
					}
				}
				if diff := cmp.Diff(reshaped(r, before), after, opts); diff != "" {
					t.Errorf("%x became %x (-want +got)\n%s", payload, out, diff)
				}
				if tt.relay {
					sameVerdict(t, payload, out)
				}
				if t.Failed() {
					return
				}
			}
			if done < tt.least {
				t.Errorf("%d payloads", done)
			}
		})
	}
}

func sameVerdict(t *testing.T, before, after []byte) {
	t.Helper()
	var x, y wire.DynamoRelay
	want, got := x.Judge(before), y.Judge(after)
	if (want.Lost == "") != (got.Lost == "") || len(want.Events) != len(got.Events) {
		t.Fatalf("%x became %x: relay %q, then %q", before, after, want.Lost, got.Lost)
	}
	for i, w := range want.Events {
		g := got.Events[i]
		if w.Kind != g.Kind || w.Filtered != g.Filtered || w.Tier != g.Tier || w.HasParent != g.HasParent ||
			len(w.Hashes) != len(g.Hashes) || w.Dropped != g.Dropped || w.Why != g.Why || len(w.Media) != len(g.Media) {
			t.Errorf("%x became %x: relay makes %+v, then %+v", before, after, w, g)
		}
	}
}
