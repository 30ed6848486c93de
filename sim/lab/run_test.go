package lab

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/route"
)

func policy(t testing.TB, name string, set ...route.Setting) *route.Config {
	t.Helper()
	cfg, err := configured(name, set...)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func made(t testing.TB, name string, requests int) *Workload {
	t.Helper()
	w, err := Make(name, requests, 64, 1)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func options(t testing.TB, w *Workload, name string) Options {
	t.Helper()
	return Options{Workload: w, Policy: policy(t, name), Replicas: 4, Capacity: 2000, Rates: DefaultRates(), Seed: 1}
}

func ran(t testing.TB, o Options) *Result {
	t.Helper()
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// trace makes a workload of rows of a trace, with a block for each hash id.
func trace(t *testing.T, rows ...string) *Workload {
	t.Helper()
	w, err := ReadTrace(strings.NewReader(strings.Join(rows, "\n")), "rows", 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestRunByHand is a run that can be reckoned on paper: 1,000 prompt tokens a
// second one prompt after the other, 10 generated ones a second.
func TestRunByHand(t *testing.T) {
	t.Parallel()
	w := trace(t,
		// 10 blocks, and 11 tokens generated: 1 s of prefill, 1 s of decode.
		`{"timestamp": 0, "input_length": 1000, "output_length": 11, "hash_ids": [1,2,3,4,5,6,7,8,9,10]}`,
		// The same prompt, which waits for 0.5 s and computes its last block anew.
		`{"timestamp": 500, "input_length": 1000, "output_length": 1, "hash_ids": [1,2,3,4,5,6,7,8,9,10]}`,
		// It shares 4 blocks and computes 1.
		`{"timestamp": 3000, "input_length": 500, "output_length": 21, "hash_ids": [1,2,3,4,11]}`,
		// Too short for any block.
		`{"timestamp": 9000, "input_length": 50, "output_length": 1, "hash_ids": [12]}`,
		// Longer than the cache.
		`{"timestamp": 9000, "input_length": 3000, "output_length": 1, "hash_ids": [13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42]}`,
	)
	for _, engine := range []Engine{VLLM, SGLang} {
		r := ran(t, Options{
			Workload: w, Policy: policy(t, "round-robin"), Engine: engine, Replicas: 1, Capacity: 25,
			Rates: Rates{Prefill: 1000, Decode: 10, Slots: 2}, Seed: 1,
		})
		name := engine.String() + ": "
		near(t, name+"requests", float64(r.Requests), 4)
		near(t, name+"refused", float64(r.Refused), 1)
		near(t, name+"short", float64(r.Short), 1)
		near(t, name+"hit rate", r.HitRate, (900.0+400)/(1000+1000+500))
		// 1; 0.5 of waiting and 0.1; 0.1; 0.05.
		near(t, name+"TTFT", r.TTFT.Mean, (1+0.6+0.1+0.05)/4)
		near(t, name+"median TTFT", r.TTFT.P50, 0.1)
		near(t, name+"p99 TTFT", r.TTFT.P99, 1)
		near(t, name+"latency", r.Latency.Mean, (2+0.6+2.1+0.05)/4)
		near(t, name+"makespan", r.Makespan, 9.05)
		near(t, name+"share", r.Share[0], 1)
		// One replica differs from nobody.
		near(t, name+"cv", r.BacklogCV+r.BlocksCV, 0)
	}
}

// TestBinsByHand has two replicas, of which one works: its backlog is all there is,
// so the standard deviation is the mean.
func TestBinsByHand(t *testing.T) {
	t.Parallel()
	w := trace(t,
		`{"timestamp": 0, "input_length": 1000, "output_length": 11, "hash_ids": [1,2,3,4,5,6,7,8,9,10]}`,
		// From 5 s on both prefill for 1 s: 1,000 and 500 tokens of backlog in the
		// bins that end at 5.5 s, and 1,000 and 0 in the one at 6 s.
		`{"timestamp": 5000, "input_length": 1000, "output_length": 1, "hash_ids": [21,22,23,24,25,26,27,28,29,30]}`,
		`{"timestamp": 5100, "input_length": 500, "output_length": 1, "hash_ids": [31,32,33,34,35]}`,
	)
	r := ran(t, Options{
		Workload: w, Policy: policy(t, "least-loaded"), Replicas: 2, Capacity: 25,
		Rates: Rates{Prefill: 1000, Decode: 10, Slots: 2}, Seed: 1,
	})
	// Bins at 0.5 and 1 s: cv 1. At 5.5 s: mean 750, deviation 250. At 6 s: 1. What
	// ends with a bin is still there.
	near(t, "backlog", r.BacklogCV, (1+1+1.0/3+1)/4)
	// Blocks: 0.5 to 2 s 11 and 0, so 1 four times; at 5.5 s 10 and 5; at 6 s 10 and 0.
	near(t, "blocks", r.BlocksCV, (4+1.0/3+1)/6)
	near(t, "share", r.Share[0]*r.Share[1], 2.0/9)
}

// TestEveryPolicyRuns each workload, twice with the same result, and measures
// what has to hold whatever the rule.
func TestEveryPolicyRuns(t *testing.T) {
	t.Parallel()
	shapes := Shapes()
	if testing.Short() {
		shapes = shapes[:1]
	}
	for _, shape := range shapes {
		w := made(t, shape.Name, 200)
		for _, name := range route.Policies() {
			t.Run(shape.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				o := options(t, w, name)
				o.Capacity = 600
				o.Faults = Faults{EventDelay: second / 10, EventLoss: 0.1, Routers: 2, SyncDelay: second / 5, ScaleAt: 5 * second, ScaleBy: 2, Truncate: 3000}
				first := ran(t, o)
				if again := ran(t, o); !reflect.DeepEqual(first, again) {
					t.Errorf("%+v, and again %+v", first, again)
				}
				o.Faults, o.Engine = Faults{}, SGLang
				for _, r := range []*Result{first, ran(t, o)} {
					sum := 0.0
					for _, s := range r.Share {
						sum += s
					}
					near(t, "shares", sum, 1)
					if r.Requests+r.Refused != w.Requests() || r.Refused > 0 {
						t.Errorf("%d served and %d refused of %d", r.Requests, r.Refused, w.Requests())
					}
					if r.HitRate < 0 || r.HitRate+r.Phantom > 1 || r.TTFT.P50 > r.TTFT.P99 || r.TTFT.Mean <= 0 || r.Makespan < r.Latency.P99 {
						t.Errorf("impossible: %+v", r)
					}
					if shape.Name == "uniform" && r.HitRate+r.Phantom != 0 {
						t.Errorf("hits where nothing is shared: %+v", r)
					}
				}
			})
		}
	}
}

// TestTruthIsNoPhantom routes at once after each event, one request at a time: what
// the router believes is what is served.
func TestTruthIsNoPhantom(t *testing.T) {
	t.Parallel()
	for _, engine := range []Engine{VLLM, SGLang} {
		o := options(t, made(t, "rag", 500), "affinity")
		o.Engine, o.Capacity, o.Concurrency = engine, 100, 1
		r := ran(t, o)
		if r.Phantom != 0 || r.HitRate == 0 {
			t.Errorf("%v: phantom %v, hits %v", engine, r.Phantom, r.HitRate)
		}
		o.EventDelay = 20 * second
		if r := ran(t, o); r.Phantom == 0 {
			t.Errorf("%v: no phantom hits though events are late", engine)
		}
		o.EventDelay, o.EventLoss = 0, 1
		if r := ran(t, o); r.Phantom != 0 {
			t.Errorf("%v: phantom hits %v though nothing was ever heard", engine, r.Phantom)
		}
		o.EventLoss = 0.5
		if r := ran(t, o); r.Phantom == 0 {
			t.Errorf("%v: no phantom hits though removals are lost", engine)
		}
	}
}

// TestFaultsBite holds each fault against what it has to do.
func TestFaultsBite(t *testing.T) {
	t.Parallel()
	w := made(t, "agents", 1000)
	o := options(t, w, "dynamo")
	whole := ran(t, o)
	affine := options(t, w, "affinity")
	kept := ran(t, affine)
	// A router that sees no more than the system prompt cannot tell sessions apart.
	affine.Truncate = 2048
	if r := ran(t, affine); kept.Sticky < 0.9 || r.Sticky > 0.8 {
		t.Errorf("cut prompts: %v of later turns on their first replica, and %v with whole ones", r.Sticky, kept.Sticky)
	}
	// Ray's finds no tokens in a body that was cut, though they would be enough.
	ray := options(t, w, "ray-kv-aware")
	ray.Truncate = 2048
	if r, drawn := ran(t, ray), ran(t, options(t, w, "sglang-random")); math.Abs(r.HitRate-drawn.HitRate) > 0.03 || math.Abs(r.Sticky-drawn.Sticky) > 0.05 {
		t.Errorf("cut bodies: hit rate %v and stickiness %v, and %v and %v where replicas are drawn", r.HitRate, r.Sticky, drawn.HitRate, drawn.Sticky)
	}
	o.EventLoss = 1
	if r := ran(t, o); r.HitRate > whole.HitRate-0.05 {
		t.Errorf("no events: hit rate %v, and %v with them", r.HitRate, whole.HitRate)
	}
	// Routers that know nothing of each other send two at a time to the idlest.
	o = options(t, made(t, "uniform", 1000), "least-loaded")
	one := ran(t, o)
	o.Routers, o.SyncDelay = 8, Never
	if r := ran(t, o); r.BacklogCV <= one.BacklogCV {
		t.Errorf("backlog cv %v with 8 routers apart, %v with one", r.BacklogCV, one.BacklogCV)
	}
	o.SyncDelay = 0
	if r := ran(t, o); r.BacklogCV > one.BacklogCV*1.2 {
		t.Errorf("backlog cv %v with 8 routers that share a book, %v with one", r.BacklogCV, one.BacklogCV)
	}
	o.Routers, o.ScaleAt, o.ScaleBy = 1, 30*second, 4
	r := ran(t, o)
	for i, s := range r.Share {
		if s == 0 || i >= 4 && s >= slices.Max(r.Share[:4]) {
			t.Errorf("shares %v, of which the last 4 came late", r.Share)
		}
	}
	if r.TTFT.Mean >= one.TTFT.Mean {
		t.Errorf("%v s to the first token with more replicas, %v without", r.TTFT.Mean, one.TTFT.Mean)
	}
}

// TestOneAfterTheOther holds a replica that has room for all, and serves one request
// at a time, against sums: what a request can hit are the blocks of those before it,
// and the fleet is busy, or waits for the next turn, from its first request to its last.
func TestOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for _, shape := range Shapes() {
		for _, engine := range []Engine{VLLM, SGLang} {
			w := made(t, shape.Name, 150)
			o := options(t, w, "dynamo")
			o.Engine, o.Replicas, o.Slots, o.Capacity, o.Concurrency = engine, 1, 1, MaxCapacity/16, 1
			held := map[block]bool{}
			hits, tokens, busy, first := 0.0, 0.0, 0.0, 0.0
			for i, q := range w.requests { // in the order in which they come, session by session
				path, n := w.paths[q.path], 0
				for n < (int(q.prompt)-1)/w.BlockSize && held[path[n]] {
					n++
				}
				for _, b := range path[:(q.prompt+q.output-1)/int32(w.BlockSize)] {
					held[b] = true
				}
				prefill := float64(int(q.prompt)-n*w.BlockSize) / o.Prefill
				hits, tokens, first = hits+float64(n*w.BlockSize), tokens+float64(q.prompt), first+prefill
				busy += prefill + float64(q.output-1)/o.Decode
				if i > 0 {
					busy += q.at.Seconds()
				}
			}
			r := ran(t, o)
			near(t, shape.Name+": hit rate", r.HitRate, hits/tokens)
			near(t, shape.Name+": makespan", r.Makespan, busy)
			near(t, shape.Name+": time to first token", r.TTFT.Mean, first/float64(len(w.requests)))
			if r.Phantom != 0 || r.Requests != len(w.requests) {
				t.Errorf("%s: phantom hits %v, %d of %d requests", shape.Name, r.Phantom, r.Requests, len(w.requests))
			}
		}
	}
}

// TestKeysForSessions: a policy that hashes the prompt's beginning is sent no key of a
// session, and one that goes by sessions is.
func TestKeysForSessions(t *testing.T) {
	t.Parallel()
	w := made(t, "system", 50)
	for name, want := range map[string]bool{"sglang-prefix-hash": true, "sglang-consistent-hashing": false} {
		o := options(t, w, name)
		o.Concurrency = 1
		if r := ran(t, o); (slices.Max(r.Share) == 1) != want {
			t.Errorf("%s: shares %v of prompts that begin alike", name, r.Share)
		}
	}
}

// TestPolledLoad lets requests of which every second is long come nearly at once to
// two replicas. Of two, power of two is the one with the lower load: a router that
// polls it sees where the long ones went, and one that draws does not.
func TestPolledLoad(t *testing.T) {
	t.Parallel()
	var rows []string
	for i := range 40 {
		blocks := 1 + 30*(i%2)
		ids := make([]string, blocks)
		for b := range ids {
			ids[b] = strconv.Itoa(i*100 + b)
		}
		rows = append(rows, fmt.Sprintf(`{"timestamp":%d,"input_length":%d,"output_length":100,"hash_ids":[%s]}`, i, blocks*100, strings.Join(ids, ",")))
	}
	o := options(t, trace(t, rows...), "sglang-power-of-two")
	o.Replicas = 2
	// The loads are never apart by more than one long request of 20.
	if polled, drawn := ran(t, o), ran(t, with(o, policy(t, "sglang-random"))); polled.BlocksCV >= 0.1 || drawn.BlocksCV <= polled.BlocksCV {
		t.Errorf("blocks cv %v by polled loads, and %v drawn", polled.BlocksCV, drawn.BlocksCV)
	}
}

func with(o Options, p *route.Config) Options {
	o.Policy = p
	return o
}

// TestBookAgainstSequences holds the lab's book against route's, which recordings
// of Dynamo's loads bear out.
func TestBookAgainstSequences(t *testing.T) {
	t.Parallel()
	const replicas, size = 3, 16
	rng := rand.New(rand.NewPCG(1, 2))
	cfg := policy(t, "dynamo")
	names := newNames()
	var paths [][]block
	for range 40 {
		var path []block
		at := block(0)
		for range rng.IntN(9) {
			at = names.next(at, int64(rng.IntN(2)))
			path = append(path, at)
		}
		paths = append(paths, path)
	}
	fast, plain := newBook(replicas, names.last, true), route.NewSequences(cfg.Booking(size))
	type active struct {
		id    string
		e     entry
		first bool
	}
	var live []*active
	cands := numbered(replicas)
	hashes := func(path []block) []uint64 {
		out := make([]uint64, len(path))
		for i, b := range path {
			out[i] = uint64(b)
		}
		return out
	}
	for step := range 3000 {
		switch at := rng.IntN(len(live) + 4); {
		case at >= len(live):
			a := &active{id: strconv.Itoa(step), e: entry{int32(rng.IntN(replicas)), int32(rng.IntN(100)), paths[rng.IntN(len(paths))]}}
			fast.change(bookAdd, &a.e)
			plain.Add(1, route.Added{Request: a.id, Replica: replicaName(int(a.e.replica)), Blocks: hashes(a.e.path), Prefill: int(a.e.prefill)})
			live = append(live, a)
		case !live[at].first:
			fast.change(bookPrefilled, &live[at].e)
			plain.PrefillCompleted(live[at].id)
			live[at].first = true
		default:
			fast.change(bookFree, &live[at].e)
			plain.Free(live[at].id)
			live = slices.Delete(live, at, at+1)
		}
		asked := paths[rng.IntN(len(paths))]
		fast.loads(asked, cands)
		for i := range cands {
			if want := plain.Load(replicaName(i), hashes(asked)); cands[i].Load != want {
				t.Fatalf("step %d: %+v, want %+v", step, cands[i].Load, want)
			}
		}
	}
}
