package diagnose

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// BenchmarkShifts is a second of 5,000 batches after each other: one in five begins a
// prompt of 512 tokens behind a shared system prompt, one in ten of these with a clock in
// its head; the others store what is generated. It prints the share of one core that a
// second takes, and what is remembered, without the index.
func BenchmarkShifts(b *testing.B) {
	const size, batches = 16, 5000
	r := rand.New(rand.NewPCG(9, 9))
	system := random(r, 256)
	x := index.New(index.Options{MaxBlocks: 1 << 19})
	m := newShifts().(*shifts)
	next := uint64(1)
	tails := make([]wire.Handle, 256)
	at := wire.Time(1e9)
	make1 := func() *stream.Step {
		at += 1e9 / batches
		e := wire.Event{Kind: wire.Stored, Group: -1, BlockSize: size}
		who := r.IntN(len(tails))
		if !tails[who].Set || r.IntN(5) == 0 {
			head := []wire.Token{}
			if r.IntN(10) == 0 {
				head = random(r, 12)
			}
			e.Tokens = slices.Concat(head, system, random(r, 256))
		} else {
			e.Parent, e.Tokens = tails[who], random(r, size)
		}
		for range len(e.Tokens) / size {
			e.Hashes = append(e.Hashes, wire.Handle{N: next, Set: true})
			next++
		}
		e.Tokens = e.Tokens[:len(e.Hashes)*size]
		tails[who] = e.Hashes[len(e.Hashes)-1]
		return &stream.Step{Kind: stream.Apply, Replica: "r1", At: at, Batch: &wire.Batch{Events: []wire.Event{e}}}
	}
	var spent time.Duration // without the index, and stopping the timer costs more
	for b.Loop() {
		for range batches {
			s := make1()
			start := time.Now()
			m.Step(s, x)
			spent += time.Since(start)
			x.Apply("r1", &s.Batch.Events[0], false)
		}
	}
	b.ReportMetric(100*spent.Seconds()/float64(b.N), "%core/s")
	b.ReportMetric(float64(spent.Nanoseconds())/1e3/float64(b.N*batches), "µs/batch")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := m.Clone()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB")
	runtime.KeepAlive(c)
}
