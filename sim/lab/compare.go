package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// RunAll runs all, workers at a time, and gives the results in their order. done is
// told, by one goroutine at a time, how many of all requests have come so far. The
// first error in that order ends it.
func RunAll(ctx context.Context, runs []Options, workers int, done func(n, of int)) ([]*Result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out, errs := make([]*Result, len(runs)), make([]error, len(runs))
	total, came := 0, 0
	for i := range runs {
		total += runs[i].Workload.Requests()
	}
	var next atomic.Int64
	var mu sync.Mutex
	tell := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		came += n
		done(came, total)
	}
	var all sync.WaitGroup
	for range max(1, min(workers, len(runs))) {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(runs) || ctx.Err() != nil {
					return
				}
				if out[i], errs[i] = simulate(ctx, runs[i], tell); errs[i] != nil {
					stop()
					return
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		// What stopped the others is not why they were stopped.
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
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

// within reports whether values differ by a margin at most, which is relative to
// the least if it is of times.
func within(of []*Result, margin float64, relative bool, value func(*Result) float64) bool {
	least, most := value(of[0]), value(of[0])
	for _, r := range of[1:] {
		least, most = min(least, value(r)), max(most, value(r))
	}
	if relative {
		margin *= least
	}
	return most-least <= margin
}

func alikeHits(of []*Result) bool {
	return within(of, AlikeHits, false, func(r *Result) float64 { return r.HitRate })
}

func alikeTimes(of []*Result) bool {
	return within(of, AlikeMakespan, true, func(r *Result) float64 { return r.Makespan }) &&
		within(of, AlikeTTFT, true, func(r *Result) float64 { return r.TTFT.Mean })
}

// Alike gives the sets of results that a workload does not tell apart, all else
// being equal: of each two of a set, hit rates, makespans and mean times to first
// token lie within the margins. Each result is in the first set that it fits, and
// those alike to no other are in none.
func Alike(of []*Result) [][]*Result {
	var sets [][]*Result
	for _, r := range of {
		at := slices.IndexFunc(sets, func(set []*Result) bool {
			with := append(slices.Clip(set), r)
			return alikeHits(with) && alikeTimes(with)
		})
		if at < 0 {
			sets = append(sets, []*Result{r})
			continue
		}
		sets[at] = append(sets[at], r)
	}
	return slices.DeleteFunc(sets, func(set []*Result) bool { return len(set) < 2 })
}

// Verdict says what a workload cannot tell about the policies that it was run
// through, all else being equal; "" where it tells them apart by both hit rates and
// times, and of one policy alone.
func Verdict(of []*Result) string {
	if len(of) < 2 {
		return ""
	}
	hits := fmt.Sprintf("hit rates differ by at most %.0f point", 100*AlikeHits)
	times := fmt.Sprintf("makespans by at most %.0f %% and mean times to first token by at most %.0f %%", 100*AlikeMakespan, 100*AlikeTTFT)
	switch h, t := alikeHits(of), alikeTimes(of); {
	case h && t:
		return "this workload cannot tell these policies apart: " + hits + ", " + times
	case h:
		return "this workload tells these policies apart by load alone: " + hits
	case t:
		return "this workload tells these policies apart by hit rates alone: " + times
	}
	return ""
}
