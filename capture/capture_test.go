package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/wire"
)

// timed is a record with its monotonic time.
type timed struct {
	wire.Record
	elapsed int64
}

// write makes a capture, closed or not.
func write(t rapid.TB, h Header, recs []timed, closed bool) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if err := w.WriteAt(r.Record, r.elapsed); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if closed {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if w.Bytes() != int64(out.Len()) {
		t.Fatalf("counted %d bytes of %d", w.Bytes(), out.Len())
	}
	return out.Bytes()
}

func openBytes(b []byte) (*Reader, error) {
	return NewReader(bytes.NewReader(b), int64(len(b)), "test")
}

// readAll reads to the end; the error is nil at a clean one.
func readAll(r *Reader) (recs []timed, err error) {
	for {
		rec, err := r.Next(context.Background())
		if err == io.EOF {
			return recs, nil
		}
		if err != nil {
			return recs, err
		}
		recs = append(recs, timed{rec, r.Elapsed()})
	}
}

// both reads by table or walk, and as a stream.
func both(t testing.TB, b []byte, check func(recs []timed, err error)) {
	t.Helper()
	r, err := openBytes(b)
	if err != nil {
		check(nil, err)
	} else {
		check(readAll(r))
	}
	if r, err = NewStream(iotestOneByte{bytes.NewReader(b)}, "test"); err != nil {
		check(nil, err)
	} else {
		check(readAll(r))
	}
}

// iotestOneByte gives few bytes at a time.
type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 7)]) }

var compare = cmp.AllowUnexported(timed{})

// differ compares; telling how two values differ takes cmp far longer than
// seeing that they do.
func differ(want, got any, opts ...cmp.Option) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got, opts...)
}

func genRecord(t *rapid.T) timed {
	text := rapid.StringN(0, 40, 200)
	rec := wire.Record{
		At:      wire.Time(rapid.Int64Range(-1<<61, 1<<61).Draw(t, "at")),
		Replica: wire.Replica(text.Draw(t, "replica")),
		Kind:    rapid.SampledFrom(kinds[:]).Draw(t, "kind"),
	}
	switch rec.Kind {
	case wire.Frames, wire.ReplayFrames:
		rec.Frames = rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 0, 5).Draw(t, "frames")
	case wire.ReplayBegin:
		rec.From = rapid.Uint64().Draw(t, "from")
	case wire.Link:
		rec.Link, rec.Text = rapid.SampledFrom(links[:]).Draw(t, "link"), text.Draw(t, "text")
	case wire.Scrape, wire.Note:
		rec.Text = text.Draw(t, "text")
	}
	if rec.Kind == wire.ReplayEnd || rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
		rec.Err = text.Draw(t, "err")
	}
	return timed{rec, rapid.Int64().Draw(t, "elapsed")}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		recs := rapid.SliceOfN(rapid.Custom(genRecord), 0, 30).Draw(t, "records")
		yes := true
		h := Header{Version: 1, Tool: "kvscope test", Created: 5, Facts: []ReplicaFacts{
			{"a/0", wire.Facts{Model: "m", BlockSize: 16, Capacity: 199, HashAlgo: "sha256", PrefixCaching: &yes, Started: 7}},
			{"b", wire.Facts{}},
		}, Hold: rapid.IntRange(0, MaxHold).Draw(t, "hold")}
		var out bytes.Buffer
		w, err := NewWriter(&out, h)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			if err := w.WriteAt(r.Record, r.elapsed); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
		for _, open := range []func([]byte) (*Reader, error){openBytes, func(b []byte) (*Reader, error) {
			return NewStream(bytes.NewReader(b), "test")
		}} {
			r, err := open(out.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if diff := differ(h, r.Header()); diff != "" {
				t.Fatalf("header (-want +got)\n%s", diff)
			}
			got, err := readAll(r)
			if err != nil || len(got) != len(recs) {
				t.Fatalf("%d records of %d: %v", len(got), len(recs), err)
			}
			for i := range recs {
				if diff := differ(recs[i], got[i], compare); diff != "" {
					t.Fatalf("record %d (-want +got)\n%s", i, diff)
				}
			}
		}
	})
}

func TestSeekTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Clocks step back, too.
		steps := rapid.SliceOfN(rapid.IntRange(-5, 20), 1, 60).Draw(t, "steps")
		var recs []timed
		at := wire.Time(1e18)
		for i, s := range steps {
			at += wire.Time(s) * 1e8
			recs = append(recs, timed{wire.Record{At: at, Kind: wire.Note, Text: fmt.Sprint(i)}, int64(i)})
		}
		file := write(t, Header{}, recs, rapid.Bool().Draw(t, "closed"))
		r, err := openBytes(file)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			to := wire.Time(1e18) + wire.Time(rapid.IntRange(-10, 800).Draw(t, "to"))*1e8
			first := 0
			for first < len(recs) && recs[first].At < to {
				first++
			}
			if err := r.SeekTime(context.Background(), to); err != nil {
				t.Fatal(err)
			}
			got, _ := readAll(r)
			if diff := differ(recs[first:], got, compare); len(got) != len(recs)-first || len(got) > 0 && diff != "" {
				t.Fatalf("%d records from %v, want %d\n%s", len(got), to, len(recs)-first, diff)
			}
		}
		if err := r.Rewind(); err != nil {
			t.Fatal(err)
		}
		if got, _ := readAll(r); len(got) != len(recs) {
			t.Fatalf("%d records after rewinding", len(got))
		}
	})
}

// fixture reads a recording with its metrics pages.
func fixture(t testing.TB, name string) wire.Source {
	t.Helper()
	var sources []wire.Source
	for _, file := range []string{"/events.jsonl.gz", "/metrics.jsonl.gz"} {
		f, err := fixtures.Open(name + file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		sources = append(sources, wire.NewJSONL(f, name))
	}
	return wire.Merge(sources...)
}

func drain(t testing.TB, src wire.Source) []wire.Record {
	t.Helper()
	var recs []wire.Record
	for {
		rec, err := src.Next(context.Background())
		if err == io.EOF {
			return recs
		}
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, rec)
	}
}

var names = []string{"a_fleet", "c_reset", "d_restart", "k_v0.22.1_array"}

func TestImportExport(t *testing.T) {
	t.Parallel()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := drain(t, fixture(t, name))
			var out bytes.Buffer
			w, err := NewWriter(&out, Header{})
			if err != nil {
				t.Fatal(err)
			}
			n, err := Import(context.Background(), w, fixture(t, name))
			if err := errors.Join(err, w.Close()); err != nil || n != uint64(len(want)) {
				t.Fatalf("%d records of %d: %v", n, len(want), err)
			}
			r, err := openBytes(out.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if diff := differ(want, drain(t, r)); diff != "" {
				t.Errorf("capture (-want +got)\n%s", diff)
			}
			if err := r.Rewind(); err != nil {
				t.Fatal(err)
			}
			var lines bytes.Buffer
			if n, err = Export(context.Background(), &lines, r); err != nil || n != uint64(len(want)) {
				t.Fatalf("%d lines of %d: %v", n, len(want), err)
			}
			if diff := differ(want, drain(t, wire.NewJSONL(&lines, name))); diff != "" {
				t.Errorf("JSON Lines (-want +got)\n%s", diff)
			}
			info, err := r.Info(context.Background())
			if err != nil || !info.Complete || info.Damage != nil || info.Records != n || info.Compressed != int64(out.Len()) ||
				info.From != want[0].At || info.Until != want[len(want)-1].At || info.Uncompressed < info.Compressed {
				t.Errorf("info %+v, %v", info, err)
			}
			checkCut(t, r, want)
		})
	}
}

func checkCut(t *testing.T, r *Reader, all []wire.Record) {
	from, to := all[len(all)/3].At, all[len(all)/2].At
	var want []wire.Record
	for _, rec := range all {
		if rec.At >= from && rec.At < to {
			want = append(want, rec)
		}
	}
	for _, src := range []wire.Source{r, wire.Merge(r)} {
		if err := r.Rewind(); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w, err := NewWriter(&out, r.Header())
		if err != nil {
			t.Fatal(err)
		}
		n, err := Cut(context.Background(), w, src, from, to)
		if err := errors.Join(err, w.Close()); err != nil || n != uint64(len(want)) {
			t.Fatalf("%d records of %d: %v", n, len(want), err)
		}
		part, err := openBytes(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if diff := differ(want, drain(t, part)); diff != "" {
			t.Errorf("cut (-want +got)\n%s", diff)
		}
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.kvcap")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(f, Header{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(wire.Record{Kind: wire.Note, Text: "hello"}), w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Create(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
	tool, err := exec.LookPath("zstd")
	if err != nil {
		t.Skip("no zstd to compare with")
	}
	plain, err := exec.Command(tool, "-dc", path).Output()
	if err != nil || !bytes.Contains(plain, []byte(magic)) || !bytes.Contains(plain, []byte("hello")) {
		t.Errorf("zstd -d gives %q, %v", plain, err)
	}
}
