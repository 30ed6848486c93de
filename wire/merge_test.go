package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fake yields records, then an error.
type fake struct {
	recs []Record
	err  error
}

func (f *fake) Next(ctx context.Context) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	if len(f.recs) == 0 {
		return Record{}, f.err
	}
	rec := f.recs[0]
	f.recs = f.recs[1:]
	return rec, nil
}

func at(name Replica, times ...Time) []Record {
	var recs []Record
	for i, t := range times {
		recs = append(recs, Record{At: t, Replica: name, From: uint64(i)})
	}
	return recs
}

func TestMerge(t *testing.T) {
	t.Parallel()
	cut := &DamagedError{Name: "A", Cut: true, Lines: 3}
	gone := errors.New("gone")
	tests := []struct {
		name string
		in   []Source
		want string
		errs []error
	}{
		{"none", nil, "", []error{io.EOF}},
		{"one", []Source{&fake{at("a", 1, 2), io.EOF}}, "a1 a2", []error{io.EOF}},
		{"by time", []Source{&fake{at("a", 1, 4), io.EOF}, &fake{at("b", 2, 3, 5), io.EOF}}, "a1 b2 b3 a4 b5", []error{io.EOF}},
		{"same moment", []Source{&fake{at("a", 1, 1), io.EOF}, &fake{at("b", 1, 1), io.EOF}}, "a1 a1 b1 b1", []error{io.EOF}},
		{"own order is kept", []Source{&fake{at("a", 5, 2, 6), io.EOF}, &fake{at("b", 3, 7), io.EOF}}, "b3 a5 a2 a6 b7", []error{io.EOF}},
		{"without a time", []Source{&fake{at("a", 4, 0, 6), io.EOF}, &fake{at("b", 0, 5), io.EOF}}, "b0 a4 a0 b5 a6", []error{io.EOF}},
		{"one is damaged", []Source{&fake{at("a", 1), cut}, &fake{at("b", 2), io.EOF}}, "a1 b2", []error{cut}},
		{"both fail", []Source{&fake{at("a", 1), cut}, &fake{at("b", 2), gone}}, "a1 b2", []error{cut, gone}},
	}
	for _, tt := range tests {
		recs, err := readAll(t, Merge(tt.in...))
		var got []string
		for _, r := range recs {
			got = append(got, fmt.Sprintf("%s%d", r.Replica, r.At))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, got, tt.want)
		}
		for _, want := range tt.errs {
			if !errors.Is(err, want) {
				t.Errorf("%s: error %v, want %v in it", tt.name, err, want)
			}
		}
		if wantDamaged := slices.Contains(tt.errs, error(cut)); errors.As(err, new(*DamagedError)) != wantDamaged {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
}

func TestMergeCancel(t *testing.T) {
	t.Parallel()
	m := Merge(&fake{at("a", 1), io.EOF}, &fake{at("b", 2), io.EOF})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if recs, err := readAll(t, m); len(recs) != 2 || err != io.EOF {
		t.Errorf("afterwards: %d records, error %v", len(recs), err)
	}
}

// TestMergeProperties: sorted sources merge into a stable sort of all records,
// and others still keep their own order and lose nothing.
func TestMergeProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var sources []Source
		var all []Record
		sorted := rapid.Bool().Draw(rt, "sorted")
		for i := range rapid.IntRange(0, 5).Draw(rt, "sources") {
			times := rapid.SliceOfN(rapid.Int64Range(1, 9), 0, 12).Draw(rt, "times")
			if sorted {
				slices.Sort(times)
			}
			var recs []Record
			for j, at := range times {
				recs = append(recs, Record{At: Time(at), Replica: Replica(fmt.Sprint(i)), From: uint64(j)})
			}
			all = append(all, recs...)
			sources = append(sources, &fake{recs, io.EOF})
		}
		got, err := readAll(t, Merge(sources...))
		if err != io.EOF || len(got) != len(all) {
			rt.Fatalf("%d of %d records, error %v", len(got), len(all), err)
		}
		next := map[Replica]uint64{}
		for _, r := range got {
			if r.From != next[r.Replica] {
				rt.Fatalf("record %d of source %s comes out of turn", r.From, r.Replica)
			}
			next[r.Replica]++
		}
		if !sorted {
			return
		}
		slices.SortStableFunc(all, func(a, b Record) int { return int(a.At - b.At) })
		for i := range all {
			if got[i].Replica != all[i].Replica || got[i].From != all[i].From {
				rt.Fatalf("place %d: %v, want %v", i, got[i], all[i])
			}
		}
	})
}
