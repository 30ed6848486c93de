package lab

import (
	"testing"

	"github.com/kvscope/kvscope/route"
)

// BenchmarkRun gives the time of a request: conversations on 8 replicas.
func BenchmarkRun(b *testing.B) {
	w := made(b, "agents", 20000)
	for _, name := range route.Policies() {
		b.Run(name, func(b *testing.B) {
			o := options(b, w, name)
			o.Replicas, o.Capacity = 8, 4096
			for b.Loop() {
				ran(b, o)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*w.Requests()), "ns/request")
		})
	}
}
