package lab

import (
	"context"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestOptionsRefused each with one sentence.
func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	w := made(t, "uniform", 1)
	for i, change := range []func(*Options){
		func(o *Options) { o.Replicas = 0 },
		func(o *Options) { o.Replicas = MaxReplicas + 1 },
		func(o *Options) { o.ScaleBy = MaxReplicas },
		func(o *Options) { o.ScaleBy, o.Workload = math.MaxInt, &Workload{} },
		func(o *Options) {
			o.Replicas, o.Workload = MaxReplicas, &Workload{last: maxHeld / 8 / (MaxReplicas / 64)}
		},
		func(o *Options) { o.Capacity = 0 },
		func(o *Options) { o.Capacity = MaxCapacity + 1 },
		func(o *Options) { o.Prefill = math.NaN() },
		func(o *Options) { o.Decode = 0 },
		func(o *Options) { o.Slots = 0 },
		func(o *Options) { o.EventDelay = -1 },
		func(o *Options) { o.EventLoss = 1.5 },
		func(o *Options) { o.EventLoss = math.NaN() },
		func(o *Options) { o.Routers = 1000 },
		func(o *Options) { o.SyncDelay = -2 },
		func(o *Options) { o.ScaleAt = -1 },
		func(o *Options) { o.Truncate = -1 },
		func(o *Options) { o.Concurrency = -1 },
	} {
		o := options(t, w, "dynamo")
		if change(&o); failure(Run(context.Background(), o)) == nil {
			t.Errorf("options %d are taken: %+v", i, o)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := RunAll(ctx, []Options{options(t, w, "dynamo")}, 2, func(int, int) {}); err != context.Canceled {
		t.Errorf("%v of an interrupted lab", err)
	}
	bad := options(t, w, "dynamo")
	bad.Slots = 0
	if _, err := RunAll(context.Background(), []Options{options(t, w, "dynamo"), bad}, 2, func(int, int) {}); err == nil || strings.Contains(err.Error(), "cancel") {
		t.Errorf("%v of bad options", err)
	}
}

func failure(_ *Result, err error) error { return err }

// TestRunAllKeepsOrder whatever runs first.
func TestRunAllKeepsOrder(t *testing.T) {
	t.Parallel()
	var runs []Options
	w := made(t, "system", 200)
	for _, name := range []string{"dynamo", "affinity", "round-robin", "least-loaded", "power-of-two"} {
		runs = append(runs, options(t, w, name))
	}
	told := 0
	got, err := RunAll(context.Background(), runs, 3, func(n, of int) {
		if n < told || of != 5*w.Requests() {
			t.Errorf("told %d of %d after %d", n, of, told)
		}
		told = n
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got {
		if want := ran(t, runs[i]); !reflect.DeepEqual(r, want) {
			t.Errorf("result %d is of %s, want %s", i, r.Policy, want.Policy)
		}
	}
	if told != 5*w.Requests() {
		t.Errorf("told %d at the end", told)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	result := func(hits, makespan, ttft float64) *Result {
		return &Result{HitRate: hits, Makespan: makespan, TTFT: Times{Mean: ttft}}
	}
	for _, tt := range []struct {
		of   []*Result
		want string
	}{
		{[]*Result{result(0.5, 100, 1), result(0.505, 101, 1.05), result(0.5, 100, 1)}, "cannot tell these policies apart"},
		{[]*Result{result(0.5, 100, 1), result(0.505, 101, 1.05), result(0.5, 150, 1)}, "by load alone"},
		{[]*Result{result(0.5, 100, 1), result(0.6, 101, 1.05), result(0.5, 100, 1)}, "by hit rates alone"},
		{[]*Result{result(0.5, 100, 1), result(0.6, 101, 2), result(0.5, 100, 1)}, ""},
		{[]*Result{result(0.5, 100, 1)}, ""},
	} {
		got := Verdict(tt.of)
		if !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestAlike(t *testing.T) {
	t.Parallel()
	result := func(name string, hits, makespan, ttft float64) *Result {
		return &Result{Policy: name, HitRate: hits, Makespan: makespan, TTFT: Times{Mean: ttft}}
	}
	sets := Alike([]*Result{
		result("a", 0.5, 100, 1),
		result("other hits", 0.6, 100, 1),
		result("b", 0.509, 101, 1.05),
		// Like b, and not like a.
		result("c", 0.515, 101, 1.05),
		result("slow", 0.5, 110, 1),
		result("late", 0.5, 100, 1.2),
		result("d", 0.505, 101.9, 1.09),
		result("e", 0.516, 100, 1.1),
	})
	var got []string
	for _, set := range sets {
		names := ""
		for _, r := range set {
			names += r.Policy
		}
		got = append(got, names)
	}
	if want := []string{"abd", "ce"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
