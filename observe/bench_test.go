package observe

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// BenchmarkSecond is one second of a large fleet: 1,000 replicas, 5,000
// batches, ten snapshots. It prints the share of one core that the second
// takes, and what one snapshot costs.
func BenchmarkSecond(b *testing.B) {
	const replicas, batches, snapshots = 1000, 5000, 10
	o := New(Options{})
	seq := make([]uint64, replicas)
	push := func(i int) {
		r := i % replicas
		h := uint64(r)<<40 | seq[r]<<1
		var parent any
		if seq[r]%16 != 0 {
			parent = h - 2
		}
		e := stored(parent, h, 1)
		if seq[r] >= 64 {
			o.Push(frame(b, float64(i)/batches, wire.Replica(fmt.Sprintf("replica-%04d", r)), seq[r], removed(h-128), e))
		} else {
			o.Push(frame(b, float64(i)/batches, wire.Replica(fmt.Sprintf("replica-%04d", r)), seq[r], e))
		}
		seq[r]++
	}
	for i := range 100 * replicas {
		push(i)
	}
	var drawn time.Duration
	for b.Loop() {
		for range snapshots {
			for i := range batches / snapshots {
				push(i)
			}
			start := time.Now()
			if s := o.Snapshot(); len(s.Replicas) != replicas {
				b.Fatal(len(s.Replicas))
			}
			drawn += time.Since(start)
		}
	}
	b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N), "%core/s")
	b.ReportMetric(float64(drawn.Microseconds())/1e3/float64(b.N*snapshots), "ms/snapshot")
}
