package index

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// published are the figures of Dynamo 1.6.1's indexes on the same workload.
const published = `
Other indexes on this workload (64 workers, 140 033 events, 2.87 M block operations, 10 000 queries of ~293 blocks).
Source: measurements of Dynamo 1.6.1's crates (facts/dynamo.md section 9), medians of 10 runs on 2 shared cores.
They were measured ON ANOTHER RUN, under other load, and their events/s are for each CPU second: compare orders of magnitude.
  index                                     events/s   block ops/s   query p50   query p99   bytes/pair
  Dynamo RadixTree, 1 thread                   239 k         4.9 M      7.9 us       28 us           73
  Dynamo ConcurrentRadixTreeCompressed         199 k         4.1 M      4.2 us       15 us          113
  Dynamo PositionalIndexer (Flash), jump 32     79 k         1.6 M     10.7 us       40 us          282`

var logPublished sync.Once

// heap gives the live bytes after a collection.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkKVBW64 measures ingest, queries and memory on the workload that
// Dynamo's indexes were measured on. One iteration is all of it.
func BenchmarkKVBW64(b *testing.B) {
	k, events := kvbw64()
	ops, pairs := 0, 0
	for i := range k.Events {
		ops += len(k.Events[i].Blocks) + len(k.Events[i].Hashes)
		pairs += len(k.Events[i].Blocks) - len(k.Events[i].Hashes)
	}
	logPublished.Do(func() { b.Log(published) })

	var ingest time.Duration
	var bytes float64
	p50, p99 := math.Inf(1), math.Inf(1)
	for b.Loop() {
		b.StopTimer()
		base := heap()
		x := New(Options{})
		b.StartTimer()
		start := time.Now()
		applyKVBW(x, events)
		ingest += time.Since(start)
		b.StopTimer()
		bytes = (heap() - base) / float64(pairs)

		took := make([]time.Duration, len(k.Queries))
		for i, q := range k.Queries {
			start := time.Now()
			x.MatchLocals(q)
			took[i] = time.Since(start)
		}
		slices.Sort(took)
		at := func(p float64) float64 { return float64(took[int(p*float64(len(took)-1))].Nanoseconds()) / 1e3 }
		p50, p99 = min(p50, at(0.5)), min(p99, at(0.99))
		runtime.KeepAlive(x)
		b.StartTimer()
	}
	seconds := ingest.Seconds() / float64(b.N)
	b.ReportMetric(float64(len(events))/seconds, "events/s")
	b.ReportMetric(float64(ops)/seconds, "blockops/s")
	b.ReportMetric(p50, "p50-us")
	b.ReportMetric(p99, "p99-us")
	b.ReportMetric(bytes, "B/pair")
}
