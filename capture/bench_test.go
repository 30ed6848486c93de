package capture

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// benchRecords are the messages of a recorded fleet, alone or with its metrics
// pages, and their size in bytes.
func benchRecords(b *testing.B, pages bool) (recs []wire.Record, size int64) {
	for _, rec := range drain(b, fixture(b, "a_fleet")) {
		if !pages && rec.Kind != wire.Frames {
			continue
		}
		recs = append(recs, rec)
		size += int64(len(rec.Text))
		for _, f := range rec.Frames {
			size += int64(len(f))
		}
	}
	return recs, size
}

var benchmarks = []struct {
	name  string
	pages bool
}{{"messages", false}, {"pages", true}}

func perSecond(b *testing.B, recs []wire.Record) {
	b.ReportMetric(float64(len(recs)*b.N)/b.Elapsed().Seconds(), "records/s")
}

func writeAll(b *testing.B, w *Writer, recs []wire.Record) {
	for i := range recs {
		if err := w.Write(recs[i]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, bb := range benchmarks {
		b.Run(bb.name, func(b *testing.B) {
			recs, size := benchRecords(b, bb.pages)
			w, err := NewWriter(io.Discard, Header{})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				writeAll(b, w, recs)
			}
			perSecond(b, recs)
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, bb := range benchmarks {
		b.Run(bb.name, func(b *testing.B) {
			recs, size := benchRecords(b, bb.pages)
			var out bytes.Buffer
			w, err := NewWriter(&out, Header{})
			if err != nil {
				b.Fatal(err)
			}
			writeAll(b, w, recs)
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
			r, err := openBytes(out.Bytes())
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Rewind(); err != nil {
					b.Fatal(err)
				}
				for range recs {
					if _, err := r.Next(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
			}
			perSecond(b, recs)
			b.ReportMetric(float64(size)/float64(out.Len()), "ratio")
		})
	}
}

// BenchmarkSeek seeks in a recording of an hour.
func BenchmarkSeek(b *testing.B) {
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{})
	if err != nil {
		b.Fatal(err)
	}
	const seconds = 3600
	payload := bytes.Repeat([]byte("payload "), 4000)
	for i := range seconds {
		if err := w.Write(wire.Record{At: wire.Time(i) * 1e9, Frames: [][]byte{payload}}); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	r, err := openBytes(out.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n = (n + 1237) % seconds
		if err := r.SeekTime(context.Background(), wire.Time(n)*1e9); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRedact(b *testing.B) {
	for _, bb := range benchmarks {
		b.Run(bb.name, func(b *testing.B) {
			recs, size := benchRecords(b, bb.pages)
			r := newRedactor(b, RedactOptions{})
			b.SetBytes(size)
			for b.Loop() {
				for i := range recs {
					r.Record(recs[i])
				}
			}
			perSecond(b, recs)
		})
	}
}
