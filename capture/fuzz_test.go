package capture

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/wire"
)

func FuzzReader(f *testing.F) {
	whole := write(f, Header{Tool: "t"}, small(), true)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		both(t, b, func(recs []timed, err error) {})
		if r, err := openBytes(b); err == nil {
			_ = r.SeekTime(context.Background(), 1e18)
			_, _ = r.Next(context.Background())
			_, _ = r.Info(context.Background())
		}
	})
}

// FuzzRecord reads what unpacked chunks can hold, which no checksum guards
// against whoever writes them.
func FuzzRecord(f *testing.F) {
	for _, r := range small() {
		b, err := appendRecord(nil, 3, &r.Record, r.elapsed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	head, err := (&Header{Tool: "t", Facts: []ReplicaFacts{{Replica: "a"}}}).append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(head)
	f.Fuzz(func(t *testing.T, b []byte) {
		name := func(b []byte) wire.Replica { return wire.Replica(b) }
		_, _, _ = parseHeader(b)
		_, _, _ = parseIndex(b)
		e, rest, err := parseRecord(b, name)
		if err != nil || !e.known {
			return
		}
		if len(rest) >= len(b) {
			t.Fatal("nothing was read")
		}
		out, err := appendRecord(nil, e.seq, &e.Record, e.elapsed)
		if err != nil {
			t.Fatal(err)
		}
		again, rest, err := parseRecord(out, name)
		if err != nil || len(rest) > 0 || differ(e, again, cmp.AllowUnexported(entry{})) != "" {
			t.Fatalf("%+v became %+v: %v", e, again, err)
		}
	})
}
