package observe

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/wire"
)

// fixture opens a bundled recording.
func fixture(t *testing.T, name string) wire.Source {
	t.Helper()
	var sources []wire.Source
	for _, part := range []string{"events", "metrics"} {
		f, err := fixtures.Open(name + "/" + part + ".jsonl.gz")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		sources = append(sources, wire.NewJSONL(f, name))
	}
	return wire.Merge(sources...)
}

// summary is what must be equal between two ways to the same moment.
func summary(s *Snapshot) string {
	out := fmt.Sprintf("%d records, until %d, %+v, %+v, tape %d\n", s.Records, s.Until, s.Ledger, s.Blocks, len(s.Tape))
	for i := range s.Replicas {
		r := &s.Replicas[i]
		out += fmt.Sprintf("%s %s epoch %d seq %d-%d %+v %+v gaps %v marks %v doubt %d\n",
			r.Replica, r.Trust, r.Epoch, r.First, r.Last, r.Events, r.Index, r.Gaps, r.Marks, r.Doubt)
	}
	for i := range s.Findings {
		out += fmt.Sprintf("%s %s %d\n", s.Findings[i].Code, s.Findings[i].Title, s.Findings[i].Since)
	}
	return out
}

// TestSeek: a moment looks the same however one got there. The other way is a
// plain Observer that has seen the records up to it and nothing else.
func TestSeek(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a_fleet", "d_restart", "c_reset"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			opt := Options{Scrape: fleet.ParseMetrics}
			p, err := Load(ctx, fixture(t, name), opt, nil)
			if err != nil {
				t.Fatal(err)
			}
			p.keys = keyframes{distance: 64} // many, so that they are used
			if _, err := p.SeekRecord(ctx, 0); err != nil {
				t.Fatal(err)
			}
			for i := range p.records {
				if _, err := p.SeekRecord(ctx, i+1); err != nil {
					t.Fatal(err)
				}
				p.keys.pass(i+1, p.obs)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for range 25 {
				n := rng.IntN(len(p.records) + 1)
				got, err := p.SeekRecord(ctx, n)
				if err != nil {
					t.Fatal(err)
				}
				plain := New(opt)
				for _, rec := range p.records[:n] {
					plain.Push(rec)
				}
				if diff := cmp.Diff(summary(plain.Snapshot()), summary(got)); diff != "" {
					t.Fatalf("after record %d (-plain +seek):\n%s", n, diff)
				}
			}
		})
	}
}

func TestStepAndJump(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p, err := Load(ctx, fixture(t, "d_restart"), Options{Scrape: fleet.ParseMetrics}, nil)
	if err != nil {
		t.Fatal(err)
	}
	batches := func(s *Snapshot) (n uint64) {
		for i := range s.Replicas {
			n += s.Replicas[i].Batches
		}
		return n
	}
	want := batches(p.End())
	for want > 200 { // backwards, one batch at a time
		s, err := p.Step(ctx, -1)
		if err != nil {
			t.Fatal(err)
		}
		if want--; want > 207 {
			continue // behind the last batch
		}
		if got := batches(s); got != want && got != want+1 {
			t.Fatalf("stepping back: %d batches, want %d", got, want)
		}
	}
	before := batches(p.Snapshot())
	if s, _ := p.Step(ctx, 3); batches(s) != before+3 {
		t.Errorf("three steps forward from %d: %d batches", before, batches(s))
	}

	// Every mark of the recording is a place to jump to, in order.
	if _, err := p.SeekRecord(ctx, 0); err != nil {
		t.Fatal(err)
	}
	var last wire.Time
	for n := 0; ; n++ {
		s, err := p.Jump(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		if s.Until == last {
			if n != len(p.marks) {
				t.Errorf("%d jumps, want %d", n, len(p.marks))
			}
			break
		}
		if s.Until != p.marks[n] {
			t.Fatalf("jump %d to %d, want %d", n, s.Until, p.marks[n])
		}
		last = s.Until
	}
	if s, _ := p.Jump(ctx, true); len(p.marks) > 1 && s.Until != p.marks[len(p.marks)-2] {
		t.Errorf("back to %d, want %d", s.Until, p.marks[len(p.marks)-2])
	}
	if s, _ := p.SeekTime(ctx, p.marks[0]); s.Until != p.marks[0] {
		t.Errorf("seek to %d: %d", p.marks[0], s.Until)
	}
	if s, _ := p.SeekTime(ctx, 1); s.Records != 0 {
		t.Errorf("before the recording: %d records", s.Records)
	}
}

// TestSeekCancelled: a seek that is given up leaves a true picture.
func TestSeekCancelled(t *testing.T) {
	t.Parallel()
	p, err := Load(context.Background(), fixture(t, "a_fleet"), Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	before := summary(p.Snapshot())
	s, err := p.SeekRecord(ctx, 10)
	if err == nil || summary(s) != before {
		t.Errorf("%v; the picture changed", err)
	}
}

// big generates a recording of n events from many replicas: conversations that
// share prefixes, evictions, one gap and one restart in every 64th replica.
type big struct {
	t       *testing.B
	left    int
	rng     *rand.Rand
	seqs    []uint64
	last    []uint64
	held    [][]uint64
	records int
}

const bigReplicas = 64

func (b *big) Next(context.Context) (wire.Record, error) {
	if b.left <= 0 {
		return wire.Record{}, io.EOF
	}
	r := b.rng.IntN(bigReplicas)
	name := wire.Replica(fmt.Sprintf("r%02d", r))
	at := 1000 + float64(b.records)*0.001
	var events []any
	for range 4 {
		if len(b.held[r]) > 1000 {
			old := b.held[r][0]
			b.held[r] = b.held[r][1:]
			events = append(events, []any{"BlockRemoved", []uint64{old}, "GPU"})
		}
		h := b.rng.Uint64()
		var parent any
		if b.last[r] != 0 && b.rng.IntN(8) != 0 {
			parent = b.last[r]
		}
		tokens := make([]uint32, 16)
		for i := range tokens {
			tokens[i] = b.rng.Uint32N(150000)
		}
		events = append(events, []any{"BlockStored", []uint64{h}, parent, tokens, 16, nil, "GPU"})
		b.last[r] = h
		b.held[r] = append(b.held[r], h)
	}
	b.left -= len(events)
	seq := b.seqs[r]
	b.seqs[r]++
	b.records++
	return frame(b.t, at, name, seq, events...), nil
}

// BenchmarkMillion opens a recording of one million events and seeks in it.
func BenchmarkMillion(b *testing.B) {
	src := &big{
		t: b, left: 1_000_000, rng: rand.New(rand.NewPCG(3, 4)), seqs: make([]uint64, bigReplicas),
		last: make([]uint64, bigReplicas), held: make([][]uint64, bigReplicas),
	}
	ctx := context.Background()
	var records []wire.Record
	for {
		rec, err := src.Next(ctx)
		if err != nil {
			break
		}
		records = append(records, rec)
	}
	for b.Loop() {
		start := time.Now()
		p, err := Load(ctx, &slice{records: records}, Options{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		open := time.Since(start)
		seek := func(n int) time.Duration {
			start := time.Now()
			if _, err := p.SeekRecord(ctx, n); err != nil {
				b.Fatal(err)
			}
			return time.Since(start)
		}
		first := seek(len(records) / 3)
		rng := rand.New(rand.NewPCG(5, 6))
		var worst, sum time.Duration
		const seeks = 20
		for range seeks {
			d := seek(rng.IntN(len(records)))
			sum += d
			worst = max(worst, d)
		}
		start = time.Now()
		if _, err := p.Step(ctx, -1); err != nil {
			b.Fatal(err)
		}
		step := time.Since(start)
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
		b.ReportMetric(ms(open), "open-ms")
		b.ReportMetric(ms(first), "first-seek-ms")
		b.ReportMetric(ms(sum/seeks), "seek-ms")
		b.ReportMetric(ms(worst), "worst-seek-ms")
		b.ReportMetric(ms(step), "step-back-ms")
		b.ReportMetric(float64(len(p.keys.frames)), "keyframes")
		b.ReportMetric(float64(p.keys.bytes)/(1<<20), "keyframe-MB")
	}
}

type slice struct {
	records []wire.Record
}

func (s *slice) Next(context.Context) (wire.Record, error) {
	if len(s.records) == 0 {
		return wire.Record{}, io.EOF
	}
	rec := s.records[0]
	s.records = s.records[1:]
	return rec, nil
}
