package lab

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// RunAll runs all, workers at a time, and gives the results in their order. done is
// told, by one goroutine at a time, how many have ended. The first error in that
// order ends it.
func RunAll(ctx context.Context, runs []Options, workers int, done func(n int)) ([]*Result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out, errs := make([]*Result, len(runs)), make([]error, len(runs))
	var next atomic.Int64
	var mu sync.Mutex
	ended := 0
	var all sync.WaitGroup
	for range max(1, min(workers, len(runs))) {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(runs) || ctx.Err() != nil {
					return
				}
				if out[i], errs[i] = Run(ctx, runs[i]); errs[i] != nil {
					stop()
					return
				}
				mu.Lock()
				ended++
				done(ended)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	// What stopped the others is not why they were stopped.
	var stopped error
	for _, err := range errs {
		if err != nil && ctx.Err() != nil && err == ctx.Err() {
			stopped = err
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	if stopped != nil || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return out, nil
}

// The margins within which results are alike: hit rates in shares, times relative
// to the least.
const (
	AlikeHits     = 0.01
	AlikeMakespan = 0.02
	AlikeTTFT     = 0.10
)

// Verdict says what a workload cannot tell about the policies that it was run
// through, all else being equal; "" where it tells them apart. Below three
// results it says nothing.
func Verdict(of []*Result) string {
	const few = 3
	if len(of) < few {
		return ""
	}
	spread := func(v func(*Result) float64) (least, most float64) {
		least, most = v(of[0]), v(of[0])
		for _, r := range of[1:] {
			least, most = min(least, v(r)), max(most, v(r))
		}
		return least, most
	}
	low, high := spread(func(r *Result) float64 { return r.HitRate })
	hits := high-low <= AlikeHits
	low, high = spread(func(r *Result) float64 { return r.Makespan })
	makespan := high <= low*(1+AlikeMakespan)
	low, high = spread(func(r *Result) float64 { return r.TTFT.Mean })
	ttft := high <= low*(1+AlikeTTFT)
	switch {
	case hits && makespan && ttft:
		return fmt.Sprintf("this workload cannot tell these policies apart: hit rates differ by at most %.0f point, makespans by %.0f %% and mean times to first token by %.0f %%",
			100*AlikeHits, 100*AlikeMakespan, 100*AlikeTTFT)
	case hits:
		return fmt.Sprintf("this workload tells these policies apart by load alone: hit rates differ by at most %.0f point", 100*AlikeHits)
	case makespan && ttft:
		return fmt.Sprintf("this workload tells these policies apart by hit rates alone: makespans differ by at most %.0f %% and mean times to first token by %.0f %%",
			100*AlikeMakespan, 100*AlikeTTFT)
	}
	return ""
}
