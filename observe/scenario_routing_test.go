package observe

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

// serving is what a replica does in every second of a scenario.
type serving struct {
	// running and waiting are requests at a time, done those that it finishes in a
	// second, of tokens prompt tokens each, of which hit are cached.
	running, waiting, done, tokens, hit float64
	// from is the second in which it appears.
	from int
	// stores are its events of a second.
	stores func(second int) []any
}

// routingCapacity is the size of a cache in scenarios, in blocks.
const routingCapacity = 1000

// served writes what a fleet does in so many seconds. Pages are in the words that
// readServed reads.
func served(t *testing.T, seconds int, all ...serving) []wire.Record {
	t.Helper()
	var out []wire.Record
	seq := map[wire.Replica]uint64{}
	for s := range seconds {
		for i, r := range all {
			name := wire.Replica(fmt.Sprintf("r%d", i+1))
			age := float64(s - r.from)
			if age < 0 {
				continue
			}
			var events []any
			if r.stores != nil {
				events = r.stores(s)
			}
			if events != nil || age == 0 {
				out = append(out, frame(t, float64(1+s), name, seq[name], events...))
				seq[name]++
			}
			if s%2 == 0 {
				out = append(out, wire.Record{
					At: wire.Time(1+s) * 1e9, Replica: name, Kind: wire.Scrape,
					Text: fmt.Sprint(r.running, r.waiting, age*r.done, age*r.done*r.tokens, age*r.done*r.hit),
				})
			}
		}
	}
	return out
}

func readServed(text string, _ int) (wire.Facts, wire.Load, error) {
	l := wire.Load{Known: true}
	_, err := fmt.Sscan(text, &l.Running, &l.Waiting, &l.Requests, &l.QueriedTokens, &l.HitTokens)
	return wire.Facts{Capacity: routingCapacity, BlockSize: 4}, l, err
}

// fresh gives a store of a new chain each second, of so many blocks, from a number
// that nobody else uses.
func fresh(base uint64, blocks int) func(int) []any {
	return func(s int) []any { return []any{stored(nil, base+uint64(s*blocks), blocks)} }
}

// churn stores blocks and evicts them a second later.
func churn(base uint64, blocks int) func(int) []any {
	return func(s int) []any {
		out := []any{stored(nil, base+uint64(s*blocks), blocks)}
		if s > 0 {
			var gone []uint64
			for i := range blocks {
				gone = append(gone, base+uint64((s-1)*blocks+i))
			}
			out = append(out, removed(gone...))
		}
		return out
	}
}

// chats are ten conversations that begin anew every ten seconds and have a turn of
// two blocks each second, on the replica that at says. It gives what replica me
// stores, who then has all turns before.
func chats(me int, at func(turn int) int) func(int) []any {
	return func(s int) []any {
		turn := s % 10
		if at(turn) != me {
			return nil
		}
		var out []any
		for c := range uint64(10) {
			base := 1_000_000 + 1000*(uint64(s/10)*10+c)
			had := 0 // turns that it has of this one
			for i := range turn {
				if at(i) == me {
					had = i + 1
				}
			}
			var parent any
			if had > 0 {
				parent = base + uint64(2*had) - 1
			}
			out = append(out, stored(parent, base+uint64(2*had), 2*(turn+1-had)))
		}
		return out
	}
}

// behind adds a router to what a fleet does in 80 seconds, whose counts are those of
// one second.
func pagesOf(t *testing.T, r diagnose.RouterPage, all ...serving) []wire.Record {
	t.Helper()
	records := served(t, 80, all...)
	var out []wire.Record
	for _, rec := range records {
		if rec.Kind == wire.Scrape && rec.Replica == r1 {
			at := float64(rec.At / 1e9)
			page := r
			page.Requests, page.Truncated, page.Overhead = at*r.Requests, at*r.Truncated, map[string]diagnose.Spent{}
			for phase, s := range r.Overhead {
				page.Overhead[phase] = diagnose.Spent{Times: at * s.Times, Millis: at * s.Millis}
			}
			text, err := json.Marshal(page)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, wire.Record{At: rec.At, Replica: wire.RouterName("front"), Kind: wire.Scrape, Text: string(text)})
		}
		out = append(out, rec)
	}
	return out
}

func readRouter(text string) (r diagnose.RouterPage, err error) {
	err = json.Unmarshal([]byte(text), &r)
	return r, err
}

// spent is what two requests take, each so many milliseconds.
func spent(total, matching float64) map[string]diagnose.Spent {
	return map[string]diagnose.Spent{
		"total": {Times: 2, Millis: 2 * total}, "find_matches": {Times: 2, Millis: 2 * matching}, "scheduling": {Times: 2, Millis: 0.1},
	}
}

// booked are bursts of six choices by two routers in turn, each of which goes through
// four replicas; the second is ahead of the first by so many.
func booked(t *testing.T, ahead uint64) []wire.Record {
	t.Helper()
	var out []wire.Record
	for burst := range uint64(100) {
		for i := range uint64(6) {
			router, turn := 7+i%2, i/2
			worker := burst + turn
			if router == 8 {
				worker += ahead
			}
			out = append(out, booking(t, wire.Time(1e9+burst*500e6+i*10e6), router, 3*burst+turn, 50+worker%4))
		}
	}
	return append(out, frame(t, 52, r1, 0), frame(t, 54, r1, 1))
}

// booking is a router's message that it sent a request to a worker, as NATS carries it.
func booking(t *testing.T, at wire.Time, router, seq, worker uint64) wire.Record {
	t.Helper()
	pack := func(v any) []byte {
		b, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	payload := pack(map[string]any{
		"request_id": fmt.Sprint(router, "-", seq), "worker": map[string]any{"worker_id": worker, "dp_rank": 0}, "router_id": router,
		"data": map[string]any{"AddRequest": map[string]any{"token_sequence": []uint64{seq}, "track_prefill_tokens": false}},
	})
	envelope := pack(map[string]any{"publisher_id": router, "sequence": seq, "published_at": 1, "topic": wire.PlaneActivity, "payload": payload})
	return wire.Record{At: at, Replica: "nats/load", Frames: [][]byte{[]byte("a.b." + wire.PlaneActivity), envelope}}
}

// cycle stores twenty blocks each second that stay for five and come again after
// fifteen.
func cycle(s int) []any {
	base := func(s int) uint64 { return uint64(1 + 20*((s+15)%15)) }
	out := []any{stored(nil, base(s), 20)}
	if s >= 5 {
		var gone []uint64
		for i := range uint64(20) {
			gone = append(gone, base(s-5)+i)
		}
		out = append(out, removed(gone...))
	}
	return out
}

// siblings are equal prompts on four replicas within so many seconds.
func siblings(t *testing.T, within float64) []wire.Record {
	t.Helper()
	var out []wire.Record
	for i, name := range []wire.Replica{"r1", "r2", "r3", "r4"} {
		out = append(out, frame(t, 1+float64(i)/100, name, 0))
	}
	for i, name := range []wire.Replica{"r1", "r2", "r3", "r4"} {
		out = append(out, frame(t, 10+within*float64(i)/3, name, 1, stored(nil, 1, 8)))
	}
	return append(out, frame(t, 15, "r1", 2), frame(t, 16, "r1", 3))
}

func onItsOwn(int) int       { return 0 }
func alternate(turn int) int { return turn % 2 }

var idle = serving{}

// even is a replica of a fleet in which nothing is wrong.
var even = serving{running: 5, done: 2, tokens: 500, hit: 300}

var routingScenarios = []scenario{
	{
		code: "herding", name: "P48: herding with an excellent hit rate", scrape: readServed,
		fault: func(t *testing.T) []wire.Record {
			return served(t, 70, serving{running: 40, done: 8, tokens: 500, hit: 480}, idle, idle, idle)
		},
		// As unequal, but nothing waits for it: a cache that is used.
		twin: func(t *testing.T) []wire.Record {
			return served(t, 70, serving{running: 4, done: 8, tokens: 500, hit: 480}, idle, idle, idle)
		},
		want: titled(diagnose.Warning, "100 % of 4", "(even: 25 %; cv 1.7)", "40 requests at a time", "hit rate of 96 % hides it"),
	},
	{
		code: "herding", name: "evictions beside empty caches", scrape: readServed,
		fault: func(t *testing.T) []wire.Record {
			return served(t, 70, serving{running: 2, done: 8, tokens: 500, stores: churn(1, 10)}, idle)
		},
		twin: func(t *testing.T) []wire.Record {
			return served(t, 70, serving{running: 2, done: 8, tokens: 500, stores: churn(1, 10)}, serving{running: 2, done: 8, stores: churn(1e6, 10)})
		},
		want: titled(diagnose.Warning, "it evicted", "the others have room"),
	},
	{
		code: "saturated-hot-replica", name: "a queue beside an idle replica", scrape: readServed,
		fault: func(t *testing.T) []wire.Record {
			return served(t, 30, serving{running: 8, waiting: 20, done: 4, tokens: 500, hit: 440}, serving{running: 1, done: 1, tokens: 500})
		},
		twin: func(t *testing.T) []wire.Record {
			return served(t, 30, serving{running: 8, waiting: 20, done: 4, tokens: 500, hit: 440}, serving{running: 8, waiting: 3, done: 4, tokens: 500})
		},
		want: titled(diagnose.Warning, "20 requests wait behind 8 that run, while r2 runs 1", "hit rate is 88 %"),
	},
	{
		code: "starved-replica", name: "after a scale-out", scrape: readServed,
		fault: func(t *testing.T) []wire.Record {
			return served(t, 140, even, even, serving{from: 70})
		},
		twin: func(t *testing.T) []wire.Record {
			return served(t, 140, even, even, serving{from: 70, running: 1, done: 0.1})
		},
		want: titled(diagnose.Warning, "got no request for 64 s", "5.0 at a time", "it came"),
	},
	{
		code: "cold-index-pileup", name: "ties go to the first", scrape: readServed,
		fault: func(t *testing.T) []wire.Record {
			return served(t, 70, serving{running: 12, done: 1, stores: fresh(1, 5)}, idle)
		},
		twin: func(t *testing.T) []wire.Record {
			return served(t, 70, serving{running: 12, done: 1, stores: fresh(1, 5)}, serving{running: 12, done: 1, stores: fresh(1e6, 5)})
		},
		want: titled(diagnose.Warning, "63 of the 63 prompts in 63 s that no replica has anything of", "12 requests at a time"),
	},
	{
		code: "ping-pong", name: "near-zero hits despite shared prompts", scrape: readServed,
		fault: func(t *testing.T) []wire.Record {
			r := serving{running: 5, done: 5, tokens: 40, hit: 1}
			a, b := r, r
			a.stores, b.stores = chats(0, alternate), chats(1, alternate)
			return served(t, 70, a, b)
		},
		twin: func(t *testing.T) []wire.Record {
			r := serving{running: 5, done: 5, tokens: 40, hit: 36}
			a, b := r, r
			a.stores, b.stores = chats(0, onItsOwn), fresh(1, 1)
			return served(t, 70, a, b)
		},
		want: titled(diagnose.Warning, "went to another replica than the turn before", "back to one they had left", "hit rate is 2 %"),
	},
	{
		code: "evicted-before-return", name: "hit rate collapses under load while the router's metric looks fine", scrape: readServed,
		fault: func(t *testing.T) []wire.Record {
			r := serving{running: 5, done: 5, tokens: 100, hit: 5, stores: cycle}
			return served(t, 90, r, even)
		},
		twin: func(t *testing.T) []wire.Record {
			return served(t, 90, serving{running: 5, done: 5, tokens: 100, hit: 5, stores: churn(1, 20)}, even)
		},
		want: titled(diagnose.Warning, "had been here and were evicted: they stay for 5s and are wanted again 10s later", "hit rate is 5 %"),
	},
	{
		code: "burst-ahead-of-events", name: "P54: siblings on four replicas",
		fault: func(t *testing.T) []wire.Record { return siblings(t, 0.04) },
		twin:  func(t *testing.T) []wire.Record { return siblings(t, 4) },
		want:  titled(diagnose.Info, "on 4 replicas within 40 ms"),
	},
	{
		code: "load-term-zero", name: "P48: load 0 for every worker", scrape: readServed, page: readRouter,
		fault: func(t *testing.T) []wire.Record {
			return pagesOf(t, diagnose.RouterPage{Requests: 2, Workers: 4, Booked: 0}, even, even)
		},
		twin: func(t *testing.T) []wire.Record {
			return pagesOf(t, diagnose.RouterPage{Requests: 2, Workers: 4, Booked: 7}, even, even)
		},
		want: titled(diagnose.Warning, "0 for all 4 workers while the engines have 10 requests"),
	},
	{
		code: "load-term-zero", name: "nothing runs", scrape: readServed, page: readRouter,
		fault: func(t *testing.T) []wire.Record {
			return pagesOf(t, diagnose.RouterPage{Requests: 2, Workers: 4, Booked: 0}, even, idle)
		},
		twin: func(t *testing.T) []wire.Record {
			return pagesOf(t, diagnose.RouterPage{Requests: 2, Workers: 4, Booked: 0}, idle, idle)
		},
	},
	{
		code: "router-bottleneck", name: "35 ms a request", scrape: readServed, page: readRouter,
		fault: func(t *testing.T) []wire.Record {
			return pagesOf(t, diagnose.RouterPage{Requests: 2, Overhead: spent(35, 30), Booked: -1}, even)
		},
		twin: func(t *testing.T) []wire.Record {
			return pagesOf(t, diagnose.RouterPage{Requests: 2, Overhead: spent(0.4, 0.3), Booked: -1}, even)
		},
		want: titled(diagnose.Warning, "takes 35 ms to choose", "86 % of it in find_matches"),
	},
	{
		code: "body-truncated", name: "one in ten", scrape: readServed, page: readRouter,
		fault: func(t *testing.T) []wire.Record {
			return pagesOf(t, diagnose.RouterPage{Requests: 10, Truncated: 1, Booked: -1}, even)
		},
		twin: func(t *testing.T) []wire.Record {
			return pagesOf(t, diagnose.RouterPage{Requests: 10, Booked: -1}, even)
		},
		want: titled(diagnose.Warning, "only the start of 64 request bodies in 64 s, of 640"),
	},
	{
		code: "weight-cancels", name: "P49: prompts shorter than one block", scrape: readServed,
		fault: func(t *testing.T) []wire.Record {
			r := serving{running: 5, done: 2, tokens: 3}
			return served(t, 140, r, r)
		},
		twin: func(t *testing.T) []wire.Record {
			r := serving{running: 5, done: 2, tokens: 9, hit: 4}
			return served(t, 140, r, r)
		},
		want: titled(diagnose.Info, "0 on all 2 replicas", "3 prompt tokens each, less than a block of 4"),
	},
	{
		code: "router-race", name: "two routers pick the same replica in a burst",
		fault: func(t *testing.T) []wire.Record { return booked(t, 0) },
		twin:  func(t *testing.T) []wire.Record { return booked(t, 2) },
		want:  titled(diagnose.Warning, "within 100 ms", "60 % of", "one router that chooses twice in 0 %"),
	},
	{
		code: "no-reuse-to-find", name: "worse tail latency on uniform traffic", scrape: readServed,
		fault: func(t *testing.T) []wire.Record {
			return served(t, 140, serving{running: 5, done: 2, tokens: 500, stores: fresh(1, 5)}, serving{running: 5, done: 2, tokens: 500, stores: fresh(1e6, 5)})
		},
		twin: func(t *testing.T) []wire.Record {
			return served(t, 140, serving{running: 5, done: 2, tokens: 500, hit: 50, stores: fresh(1, 5)}, serving{running: 5, done: 2, tokens: 500, stores: fresh(1e6, 5)})
		},
		want: titled(diagnose.Info, "nothing to reuse", "0 % came from a cache", "100 % of the blocks stored are new"),
	},
}

// routingCodes are the checks that healthy traffic must not fire.
var routingCodes = map[string]bool{}

func init() {
	for _, s := range routingScenarios {
		routingCodes[s.code] = true
	}
}

// TestHealthyTraffic: a router that prefers caches within a limit of load, from 2 to
// 64 replicas, gives no finding about routing.
func TestHealthyTraffic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		replicas int
		rate     float64
		seeds    []uint64
	}{{2, 4, []uint64{1, 2, 3, 4}}, {4, 6, []uint64{5, 6}}, {16, 6, []uint64{7}}, {64, 6, []uint64{8}}} {
		for _, seed := range c.seeds {
			t.Run(fmt.Sprintf("%d replicas, seed %d", c.replicas, seed), func(t *testing.T) {
				t.Parallel()
				records, err := sim.History(sim.Options{Replicas: c.replicas, Rate: c.rate, Seed: seed}, 1_800_000_000e9, 80*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				s := scenario{scrape: fleet.ParseMetrics}
				for _, f := range s.watched(records, nil).Findings {
					if routingCodes[f.Code] {
						t.Errorf("%s %s %s: %s", f.Severity, f.Code, f.Subject, f.Title)
					}
				}
			})
		}
	}
}
