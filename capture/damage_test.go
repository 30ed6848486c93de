package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/wire"
)

// small is a capture of several chunks with a record of every kind.
func small() []timed {
	var recs []timed
	for i := range 14 {
		at := wire.Time(1e18 + i*4e8)
		r := wire.Record{At: at, Replica: "pod-1/0", Kind: kinds[i%len(kinds)]}
		switch r.Kind {
		case wire.Frames, wire.ReplayFrames:
			r.Frames = [][]byte{[]byte("kv"), {0, 0, 0, 0, 0, 0, 0, byte(i)}, bytes.Repeat([]byte{byte(i)}, 9)}
		case wire.ReplayBegin:
			r.From = uint64(i)
		case wire.ReplayEnd:
			r.Err = "timeout"
		case wire.Link:
			r.Link, r.Text = wire.LinkUp, "EVENT_CONNECTED"
		default:
			r.Text = fmt.Sprint("text ", i)
		}
		recs = append(recs, timed{r, int64(i * 4e8)})
	}
	return recs
}

func TestTruncatedEverywhere(t *testing.T) {
	t.Parallel()
	want := small()
	whole := write(t, Header{Tool: "t"}, want, true)
	read := -1
	for n := range whole {
		both(t, whole[:n], func(got []timed, err error) {
			if len(got) > len(want) || len(got) > 0 && differ(want[:len(got)], got, compare) != "" {
				t.Fatalf("cut at %d: %d records, not a prefix", n, len(got))
			}
			var damaged *DamagedError
			var plain *wire.DamagedError
			if !errors.As(err, &damaged) || !errors.As(err, &plain) || plain.Cut != damaged.Cut {
				t.Fatalf("cut at %d: error %v", n, err)
			}
			if n > 0 && !damaged.Cut || damaged.Lost != 0 || damaged.Chunks != 0 {
				t.Fatalf("cut at %d: %+v", n, damaged)
			}
			if n == 0 && !errors.Is(err, wire.ErrEmpty) {
				t.Fatalf("empty: %v", err)
			}
			if len(got) < read {
				t.Fatalf("cut at %d gives %d records, fewer than a byte before", n, len(got))
			}
			read = len(got)
		})
	}
	if read != len(want) {
		t.Errorf("without the last byte %d records of %d", read, len(want))
	}
	both(t, whole, func(got []timed, err error) {
		if err != nil || len(got) != len(want) {
			t.Fatalf("whole: %d records, %v", len(got), err)
		}
	})
}

func TestCorruption(t *testing.T) {
	t.Parallel()
	want := small()
	for _, closed := range []bool{true, false} {
		whole := write(t, Header{Tool: "t"}, want, closed)
		rapid.Check(t, func(rt *rapid.T) {
			b := bytes.Clone(whole)
			for range rapid.IntRange(1, 4).Draw(rt, "hits") {
				b[rapid.IntRange(0, len(b)-1).Draw(rt, "at")] ^= byte(rapid.IntRange(1, 255).Draw(rt, "bits"))
			}
			both(t, b, func(got []timed, err error) {
				at := 0
				for _, g := range got { // each is one that was written, in order
					for at < len(want) && differ(want[at], g, compare) != "" {
						at++
					}
					if at++; at > len(want) {
						rt.Fatalf("a record that was never written: %+v", g)
					}
				}
				if len(got) < len(want) && err == nil {
					rt.Fatalf("%d records of %d, and no error", len(got), len(want))
				}
			})
			if r, err := openBytes(b); err == nil {
				_ = r.SeekTime(context.Background(), 1e18+2e9) // any answer, no panic
				_, _ = readAll(r)
			}
		})
	}
}

// TestDamagedChunk loses one chunk and nothing else.
func TestDamagedChunk(t *testing.T) {
	t.Parallel()
	want := small()
	whole := write(t, Header{}, want, true)
	r, err := openBytes(whole)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.chunks) < 4 {
		t.Fatalf("%d chunks", len(r.chunks))
	}
	for i, c := range r.chunks {
		b := bytes.Clone(whole)
		b[c.off+c.size-1] ^= 1 // its checksum
		both(t, b, func(got []timed, err error) {
			var damaged *DamagedError
			if !errors.As(err, &damaged) || damaged.Chunks != 1 || damaged.Cut || damaged.Records != uint64(len(got)) {
				t.Fatalf("chunk %d: %v", i, err)
			}
			if last := i == len(r.chunks)-1; len(got)+int(damaged.Lost) != len(want) && !last || len(got) < len(want)-3 {
				t.Errorf("chunk %d: %d records read and %d lost of %d: %v", i, len(got), damaged.Lost, len(want), err)
			}
		})
	}
	b := bytes.Clone(whole)
	b[r.chunks[0].off-1] ^= 1 // the header's checksum
	broken, err := openBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(broken)
	if want := "capture test is damaged: 14 records were read, but its header is lost: a chunk that does not unpack"; len(got) != 14 || err == nil || err.Error() != want {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func TestSentences(t *testing.T) {
	t.Parallel()
	whole := write(t, Header{}, small(), true)
	tests := []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "capture test is empty: nothing was written into it"},
		{"text", []byte(`{"t":1,"replica":"a"}`), "test is not a capture that kvscope can read"},
		{"header", whole[:20], "capture test is cut off at byte 20, before its first whole record"},
	}
	for _, tt := range tests {
		if _, err := openBytes(tt.b); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
		if _, err := NewStream(bytes.NewReader(tt.b), "test"); err == nil || err.Error() != tt.want {
			t.Errorf("%s as a stream: %v", tt.name, err)
		}
	}
	cut := write(t, Header{}, small(), false)
	both(t, cut, func(_ []timed, err error) {
		want := fmt.Sprintf("capture test is cut off at byte %d: the 14 records before that were read", len(cut))
		if err == nil || err.Error() != want {
			t.Errorf("killed: %v", err)
		}
	})
}

// TestRefusedRecord sees that a record that cannot be written is missed, also
// in a copy of the file.
func TestRefusedRecord(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{})
	if err != nil {
		t.Fatal(err)
	}
	good := wire.Record{At: 1, Kind: wire.Note, Text: "x"}
	bad := []wire.Record{
		{Kind: 99},
		{Kind: wire.Link, Link: 77},
		{Kind: wire.Frames, Frames: make([][]byte, MaxFrames+1)},
		{Replica: wire.Replica(bytes.Repeat([]byte("r"), MaxName+1))},
		{Kind: wire.Scrape, Text: string(make([]byte, MaxRecord))},
	}
	for _, rec := range bad {
		if err := w.Write(good); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(rec); !errors.Is(err, ErrRecord) {
			t.Fatalf("%v of %+v", err, rec.Kind)
		}
	}
	if err := errors.Join(w.Write(good), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(good); err == nil {
		t.Error("a closed writer takes records")
	}
	for range 2 {
		r, err := openBytes(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		w, err := NewWriter(&again, Header{})
		if err != nil {
			t.Fatal(err)
		}
		n, err := Import(context.Background(), w, r)
		var damaged *DamagedError
		if !errors.As(err, &damaged) || damaged.Lost != 5 || n != 6 || damaged.First != 1 || damaged.Chunks != 0 {
			t.Fatalf("%d records, %v", n, err)
		}
		if want := "capture test is damaged: 6 records were read, but 5 records from number 1 on are missing: sequence numbers are missing"; err.Error() != want {
			t.Errorf("%v", err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		out = again
	}
}

func TestTickAndFailingWriter(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Tick(9e9), w.Write(wire.Record{At: 1e9, Kind: wire.Note}), w.Tick(15e8)); err != nil {
		t.Fatal(err)
	}
	header := w.Bytes()
	if err := w.Tick(2e9); err != nil || w.Bytes() == header {
		t.Errorf("after a second %d bytes, %v", w.Bytes(), err)
	}
	full := errors.New("disk full")
	f := &failing{left: 60, err: full}
	if w, err = NewWriter(f, Header{}); err != nil {
		t.Fatal(err)
	}
	for range 9 {
		_ = w.Write(wire.Record{Kind: wire.Note, Text: "hello"})
		err = w.Flush()
	}
	if !errors.Is(err, full) || !errors.Is(w.Write(wire.Record{}), full) || !errors.Is(w.Close(), full) {
		t.Errorf("error %v", err)
	}
}

type failing struct {
	left int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	n := min(len(p), f.left)
	if f.left -= n; n < len(p) {
		return n, f.err
	}
	return n, nil
}

// TestInfoOfCut counts what is left of a capture that was not closed.
func TestInfoOfCut(t *testing.T) {
	t.Parallel()
	b := write(t, Header{Tool: "t"}, small(), false)
	r, err := openBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	info, err := r.Info(context.Background())
	if err != nil || info.Complete || info.Damage == nil || !info.Damage.Cut || info.Records != 14 || info.Chunks < 4 ||
		info.Header.Tool != "t" || len(info.Replicas) != 1 {
		t.Errorf("info %+v, %v", info, err)
	}
	if want := (ReplicaInfo{Replica: "pod-1/0", Records: 14, Messages: 2, Bytes: 2 * (2 + 8 + 9)}); info.Replicas[0] != want {
		t.Errorf("replica %+v", info.Replicas[0])
	}
	for k, n := range info.Kinds {
		if n != 2 {
			t.Errorf("%d records of kind %d", n, k)
		}
	}
	if rest, err := readAll(r); len(rest) != 13 || err == nil {
		t.Errorf("Info moved the reader: %d records, %v", len(rest), err)
	}
	s, err := NewStream(bytes.NewReader(b), "test")
	if err != nil {
		t.Fatal(err)
	}
	_, infoErr := s.Info(context.Background())
	for _, err := range []error{s.SeekTime(context.Background(), 5), s.Rewind(), infoErr} {
		if !errors.Is(err, ErrNoSeek) {
			t.Errorf("a stream: %v", err)
		}
	}
}

// TestNewer reads what a later kvscope may add, and refuses a later version.
func TestNewer(t *testing.T) {
	t.Parallel()
	frames := func(parts ...[]byte) []byte {
		var out []byte
		for _, p := range parts {
			var file bytes.Buffer
			w, err := seekable.NewWriter(&file, encoder1(t))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(p); err != nil {
				t.Fatal(err)
			}
			out = append(out, file.Bytes()...)
		}
		return out
	}
	good, err := appendRecord(nil, 2, &wire.Record{Kind: wire.Note, Text: "known"}, Unknown)
	if err != nil {
		t.Fatal(err)
	}
	head := pack(t, list{kindHeader, magic, Version, "tool", 5, list{}, 64, "a new field"})
	chunk := slices.Concat(
		pack(t, list{kindIndex, 0, 3, 0, 0, 0, "a new field"}),
		pack(t, list{20, 0, 1, nil, "r", dict{"a": "new kind"}}),
		pack(t, list{kindNote, 1, 1, nil, "r", "text", "err", "a new field"}),
		good,
	)
	r, err := openBytes(frames(head, chunk))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := readAll(r)
	info, err := r.Info(context.Background())
	if len(got) != 2 || got[0].Err != "err" || got[1].Text != "known" || err != nil || info.Unknown != 1 || info.Damage.Lost != 0 {
		t.Errorf("%+v, %+v, %v", got, info, err)
	}
	bad := slices.Concat(pack(t, list{kindIndex, 0, 3, 0, 0, 0}), pack(t, list{kindNote, "no number"}), pack(t, "no list"), good)
	if r, err = openBytes(frames(head, bad)); err != nil {
		t.Fatal(err)
	}
	got, err = readAll(r)
	var damaged *DamagedError
	if len(got) != 1 || got[0].Text != "known" || !errors.As(err, &damaged) || damaged.Lost != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = openBytes(frames(pack(t, list{kindHeader, magic, Version + 1, 7}), chunk))
	if want := "capture test was written in version 2 of the format, and this kvscope reads up to 1: update it"; err == nil || err.Error() != want {
		t.Errorf("a newer version: %v", err)
	}
}

func encoder1(t *testing.T) *zstd.Encoder {
	t.Helper()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	return enc
}
