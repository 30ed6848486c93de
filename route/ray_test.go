package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/wire"
)

// routed makes a router of a policy.
func routed(t testing.TB, policy string, set ...string) *Router {
	t.Helper()
	return NewRouter(*configured(t, policy, set...), rand.New(rand.NewPCG(1, 2)))
}

// busy are candidates called a, b, … with so many requests each.
func busy(requests ...int) (out []Candidate) {
	for i, n := range requests {
		out = append(out, cand(wire.Replica(rune('a'+i)), 0, 0, 0, n))
	}
	return out
}

// asks tells what a router would do with a text.
func asks(t testing.TB, r *Router, req *Request, cands []Candidate) Decision {
	t.Helper()
	d, err := r.Decide(req, cands)
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.Candidates {
		s, sum := &d.Candidates[i], 0.0
		for _, term := range s.Terms {
			sum += term.Cost
		}
		if s.Out == "" && math.Abs(sum-s.Cost) > 1e-9 {
			t.Errorf("%s: terms sum up to %v, and the cost is %v", s.Replica, sum, s.Cost)
		}
	}
	return d
}

func says(d *Decision, words string) bool {
	return slices.ContainsFunc(d.Trace, func(step string) bool { return strings.Contains(step, words) })
}

func TestRayPrefixBranches(t *testing.T) {
	t.Parallel()
	ask := func(text string) *Request { return &Request{Tokens: 100, BlockSize: 16, Contents: []string{text}} }
	cands := busy(9, 2, 2)
	r := routed(t, "ray-prefix-affinity", "imbalanced_threshold=10")
	// Nobody has anything, so all are smallest: b and c have the shorter queue, and b
	// comes first.
	d := asks(t, r, ask("hello world"), cands)
	if got := d.Names(d.Choice); !slices.Equal(got, []wire.Replica{"b"}) || !says(&d, "of the 3 with the fewest characters") {
		t.Fatalf("smallest: %v %q", got, d.Trace)
	}
	if at := r.Route(ask("hello world"), cands); at != 1 {
		t.Fatalf("went to %d", at)
	}
	// Of another text a and c have the fewest characters; c's queue is shorter.
	d = asks(t, r, ask("other"), cands)
	if got := d.Names(d.Choice); !slices.Equal(got, []wire.Replica{"c"}) {
		t.Errorf("smallest: %v %q", got, d.Trace)
	}
	// A match of 9 in 10 holds it to b, however busy.
	loaded := busy(0, 10, 0)
	d = asks(t, r, ask("hello worl!"), loaded)
	if got := d.Names(d.Choice); !slices.Equal(got, []wire.Replica{"b"}) || !says(&d, "match rate 0.9091") || d.Candidates[0].Terms[1].Value != 1 {
		t.Errorf("matched: %v %q %+v", got, d.Trace, d.Candidates)
	}
	// One more request, and the queues differ too much: two of three are drawn, and a
	// and c win against b.
	d = asks(t, r, ask("hello world"), busy(0, 11, 0))
	if got := d.Candidates[1].Probability; got != 0 || d.Candidates[0].Probability != 0.5 || !says(&d, "imbalanced: two are drawn") {
		t.Errorf("imbalanced: %+v %q", d.Candidates, d.Trace)
	}
	// Without a threshold it is never imbalanced.
	d = asks(t, routed(t, "ray-prefix-affinity"), ask("x"), busy(0, 1000, 0))
	if !says(&d, "infinity") || says(&d, "two are drawn") {
		t.Errorf("infinity: %q", d.Trace)
	}
	// No text: two are drawn, and nothing is remembered.
	d = asks(t, r, &Request{Tokens: 100, BlockSize: 16}, busy(0, 1, 1))
	if math.Abs(d.Candidates[0].Probability-2./3) > 1e-12 || !says(&d, "no text") {
		t.Errorf("no text: %+v %q", d.Candidates, d.Trace)
	}
	// The smallest of all tenants is not a candidate: two are drawn.
	r.Joined("z")
	d = asks(t, r, ask("something else"), busy(0, 1)[1:])
	if !says(&d, "the group has no candidate") || len(d.Choice) != 1 {
		t.Errorf("nobody: %+v %q", d.Candidates, d.Trace)
	}
	r.Left("z")
	if d = asks(t, r, ask("something else"), busy(0, 1)); says(&d, "no candidate") {
		t.Errorf("z is gone: %q", d.Trace)
	}
}

// TestRayPrefixWithoutTree lets the engines' caches stand in for the tree.
func TestRayPrefixWithoutTree(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16}
	cfg := configured(t, "ray-prefix-affinity")
	cands := []Candidate{cand("a", 4, 0, 0, 5), cand("b", 4, 0, 0, 3), cand("c", 3, 0, 0, 0)}
	d := decide(t, cfg, &req, cands)
	if got := d.Names(d.Choice); !slices.Equal(got, []wire.Replica{"b"}) || !says(&d, "match rate 0.4") || !says(&d, "cannot be read from outside") {
		t.Errorf("%v %q", got, d.Trace)
	}
	// Below a tenth the fewest characters decide, which can be anybody's.
	for i := range cands {
		cands[i].Match[wire.Device] = 0
	}
	d = decide(t, cfg, &req, cands)
	if got := d.Names(d.Choice); !slices.Equal(got, []wire.Replica{"c"}) || !says(&d, "which can be any") {
		t.Errorf("%v %q", got, d.Trace)
	}
}

// TestRayEviction: the loop wakes every 10 s, and takes a tenant above its
// threshold down to the target.
func TestRayEviction(t *testing.T) {
	t.Parallel()
	r := routed(t, "ray-prefix-affinity", "do_eviction=true", "eviction_threshold_chars=20", "eviction_target_chars=10")
	cands := busy(0)
	go1 := func(text string, second wire.Time) int {
		r.Route(&Request{Tokens: 1, BlockSize: 16, Contents: []string{text}, At: second * 1e9}, cands)
		return r.mem.(*rayPrefixes).tree.byName["a"].chars
	}
	for _, tt := range []struct {
		text   string
		second wire.Time
		want   int
	}{
		{"aaaaaaaaaa", 100, 10},
		{"bbbbbbbbbb", 101, 20},
		{"c", 109, 21},
		// At 110 s 21 are above 20: the oldest 10 and, as 11 must go, the next 10.
		{"d", 110, 2},
		{"eeeeeeeeeeeeeeeeeee", 111, 21},
		// Many wakes with nothing between them are one. 11 must go again, so after c and
		// d, which are 2, the 19 of e too.
		{"f", 160, 1},
	} {
		if got := go1(tt.text, tt.second); got != tt.want {
			t.Errorf("at %d s: %d characters, want %d", tt.second, got, tt.want)
		}
	}
	// Without do_eviction it grows.
	r = routed(t, "ray-prefix-affinity", "eviction_threshold_chars=20", "eviction_target_chars=10")
	for i := range 100 {
		go1(fmt.Sprintf("%03d", i), wire.Time(i))
	}
	if got := r.mem.(*rayPrefixes).tree.byName["a"].chars; got != 1+10+100 {
		t.Errorf("%d characters", got) // 000 to 099: a digit that all share, ten behind it, a hundred behind these
	}
}

// TestRaySymbols: a symbol of 512 tokens counts 2048 characters.
func TestRaySymbols(t *testing.T) {
	t.Parallel()
	r := routed(t, "ray-prefix-affinity")
	req := Request{Tokens: 1500, BlockSize: 16, Symbols: []rune{1, 2, 3}, Width: 512}
	at := r.Route(&req, busy(0, 0))
	if got := r.mem.(*rayPrefixes).tree.byName["a"].chars; at != 0 || got != 3*2048 {
		t.Errorf("%d characters at %d", got, at)
	}
	req = Request{Tokens: 1500, BlockSize: 16, Symbols: []rune{1, 2, 4}, Width: 512}
	if d := asks(t, r, &req, busy(7, 0)); !says(&d, "match rate 0.6667") || d.Choice[0] != 0 {
		t.Errorf("%v %q", d.Choice, d.Trace)
	}
}

// TestRayTreeBound: beyond what the tree may take, all tenants lose.
func TestRayTreeBound(t *testing.T) {
	t.Parallel()
	var tree rayTree
	a, b := tree.add("a", 0), tree.add("b", 0)
	text := make([]rune, 1<<20)
	for i := range 100 {
		text[0] = rune(i)
		tree.insert(text, 1, []*rayTenant{a, b}[i%2], wire.Time(i))
		if tree.bytes > rayTreeMost {
			t.Fatalf("%d bytes", tree.bytes)
		}
	}
	if a.chars == 0 || b.chars == 0 || tree.bytes != tree.measure() {
		t.Errorf("%d and %d characters, %d bytes of %d", a.chars, b.chars, tree.bytes, tree.measure())
	}
	if n, _ := tree.match(text, []*rayTenant{a, b}); n != len(text) {
		t.Errorf("the newest is gone: %d", n)
	}
}

// TestRayTreeModel holds the tree against texts that were sent, without eviction:
// a match is the longest prefix in common with any of them, it belongs to all who
// were sent so much, and characters are the different prefixes.
func TestRayTreeModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var tree rayTree
		sent := map[wire.Replica][][]rune{}
		names := []wire.Replica{"a", "b", "c"}
		for _, n := range names {
			tree.add(n, 0)
		}
		text := rapid.Custom(func(t *rapid.T) []rune {
			return rapid.SliceOfN(rapid.SampledFrom([]rune("xyé")), 0, 12).Draw(t, "text")
		})
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				tree.remove(name)
				tree.add(name, wire.Time(i))
				delete(sent, name)
			default:
				s := text.Draw(t, "sent")
				tree.insert(s, 1, tree.byName[name], wire.Time(i))
				sent[name] = append(sent[name], s)
			}
			asked := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID[wire.Replica]).Draw(t, "asked")
			query := text.Draw(t, "query")
			longest, best := map[wire.Replica]int{}, 0
			for _, n := range names {
				prefixes := map[string]bool{}
				for _, s := range sent[n] {
					for k := range s {
						prefixes[string(s[:k+1])] = true
					}
					longest[n] = max(longest[n], wire.CommonPrefix(s, query))
				}
				if got := tree.byName[n].chars; got != len(prefixes) {
					t.Fatalf("%s has %d characters, want %d", n, got, len(prefixes))
				}
				if slices.Contains(asked, n) {
					best = max(best, longest[n])
				}
			}
			var tenants []*rayTenant
			for _, n := range asked {
				tenants = append(tenants, tree.byName[n])
			}
			n, end := tree.match(query, tenants)
			if n != best {
				t.Fatalf("%q of %v: %d, want %d", string(query), asked, n, best)
			}
			for _, x := range asked {
				if got, want := end.owner(tree.byName[x]) != nil, longest[x] >= best; got != want {
					t.Fatalf("%q: %s owns the end is %v, want %v", string(query), x, got, want)
				}
			}
			if tree.bytes != tree.measure() {
				t.Fatalf("%d bytes, want %d", tree.bytes, tree.measure())
			}
		}
	})
}

func TestRayHash(t *testing.T) {
	t.Parallel()
	cands := busy(0, 0, 0)
	cfg := configured(t, "ray-consistent-hashing")
	// Without a session each gets its share of the ring, which many keys show.
	d := decide(t, cfg, &Request{BlockSize: 16}, cands)
	hits, sum := [3]float64{}, 0.0
	ring := newRing(&rayRing, 100, cands)
	const keys = 20000
	for i := range keys {
		hits[slices.Index(ring.steps(fmt.Sprint("key ", i)), 0)] += 1. / keys
	}
	for i := range cands {
		p := d.Candidates[i].Probability
		if sum += p; math.Abs(p-hits[i]) > 0.02 {
			t.Errorf("%s: share %v, and %v of the keys fall to it", cands[i].Replica, p, hits[i])
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares sum up to %v", sum)
	}
	// Nobody of the ranked is eligible.
	cfg = configured(t, "ray-consistent-hashing", "num_fallback_replicas=0")
	steps := ring.steps("s")
	primary := slices.Index(steps, 0)
	cands[primary].Overloaded = true
	d = decide(t, cfg, &Request{BlockSize: 16, Session: "s"}, cands)
	if !says(&d, "Ray waits and asks them again") || len(d.Choice) != 1 || steps[d.Choice[0]] != 1 {
		t.Errorf("%v of %v: %q", d.Choice, steps, d.Trace)
	}
	for set, want := range map[string]string{"0": "1", "100000": "10000", "7": "7"} {
		cfg := configured(t, "ray-consistent-hashing", "num_virtual_nodes="+set)
		if got := cfg.values[rayVnodes].text; got != want {
			t.Errorf("%s points: %s, want %s (%s)", set, got, want, cfg.values[rayVnodes].origin)
		}
	}
}

// TestRayKV: with tokens the choice and the costs are Dynamo's.
func TestRayKV(t *testing.T) {
	t.Parallel()
	cands := []Candidate{cand("a", 2, 64, 20, 3), hosted(cand("b", 1, 0, 4, 1), 4), cand("c", 0, 0, 0, 1)}
	req := Request{Tokens: 186, BlockSize: 16}
	set := []string{"overlap_score_credit=0.5", "decode_active_request_weight=2"}
	own, dyn := decide(t, configured(t, "ray-kv-aware", set...), &req, cands), decide(t, configured(t, "dynamo", set...), &req, cands)
	if !slices.Equal(costs(&own), costs(&dyn)) || !slices.Equal(own.Choice, dyn.Choice) {
		t.Errorf("%v, want %v", costs(&own), costs(&dyn))
	}
	if !strings.Contains(own.Candidates[0].Rule, fmt.Sprint("a is worker ", RayWorkerID("a"))) {
		t.Errorf("%q", own.Candidates[0].Rule)
	}
	req.Tokens = 0
	cands[0].Match, cands[1].Match = [wire.NumTiers]int{}, [wire.NumTiers]int{}
	d := decide(t, configured(t, "ray-kv-aware", set...), &req, cands)
	if len(d.Choice) != 3 || d.Candidates[0].Probability != 1./3 || !says(&d, "no tokens") {
		t.Errorf("%+v %q", d.Candidates, d.Trace)
	}
	// Dynamo's variables count, its command line does not.
	p, err := Named("ray-kv-aware")
	if err != nil {
		t.Fatal(err)
	}
	env := p.FromEnv(func(name string) string {
		return map[string]string{"DYN_ROUTER_PREFILL_LOAD_SCALE": "2", "RAY_SERVE_LLM_ENABLE_DECODE_BLOCK_PROGRESS": "1"}[name]
	})
	flags, err := p.FromFlags([]string{"--router-prefill-load-scale", "3"})
	if err != nil || len(flags) != 0 || len(env) != 2 {
		t.Errorf("%v %v %v", env, flags, err)
	}
}

// TestRayCut: of a body that HAProxy cut, Ray's routers have neither tokens nor text,
// so they take anyone, and the shorter queue of two.
func TestRayCut(t *testing.T) {
	t.Parallel()
	cands := busy(0, 3)
	cands[1].Match[wire.Device] = 6
	req := Request{Tokens: 100, BlockSize: 16, Contents: []string{"hello world"}, Cut: true}
	for _, mem := range []bool{true, false} {
		for policy, want := range map[string]float64{"ray-kv-aware": 0.5, "ray-prefix-affinity": 0} {
			r := routed(t, policy)
			if !mem {
				r.mem = nil
			}
			r.Route(&req, cands[1:]) // b would be known by it
			d := asks(t, r, &req, cands)
			if got := d.Candidates[1].Probability; got != want || !says(&d, "no t") {
				t.Errorf("%s: b with %v, want %v: %q", policy, got, want, d.Trace)
			}
			req.Cut = false
			if d := asks(t, r, &req, cands); policy == "ray-kv-aware" && d.Candidates[1].Probability != 1 || says(&d, "no t") {
				t.Errorf("%s: a whole body: %+v", policy, d)
			}
			req.Cut = true
		}
	}
}
