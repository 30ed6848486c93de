package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// busy makes idle candidates of those names, and gives them requests in flight.
func workers(names string, requests ...int) []Candidate {
	var out []Candidate
	for i, name := range names {
		c := Candidate{Replica: wire.Replica(name), Load: Load{State: LoadKnown}}
		if i < len(requests) {
			c.Load.Requests = requests[i]
		}
		out = append(out, c)
	}
	return out
}

// sglangStep is a request, and where it must go.
type sglangStep struct {
	req   Request
	cands []Candidate
	want  wire.Replica
	trace string // a part of it
}

func prompted(s string) Request { return Request{BlockSize: 16, Contents: []string{s}} }

func at(seconds float64, r Request) Request {
	r.At = wire.Time(seconds * 1e9)
	return r
}

func session(key string, seconds float64) Request {
	return at(seconds, Request{BlockSize: 16, Session: key})
}

func follow(t *testing.T, name string, cfg *Config, steps []sglangStep) *Router {
	t.Helper()
	r := NewRouter(*cfg, rand.New(rand.NewPCG(1, 2)))
	for i := range steps {
		s := &steps[i]
		d, err := r.Decide(&s.req, s.cands)
		if err != nil {
			t.Fatal(err)
		}
		got := s.cands[r.Route(&s.req, s.cands)].Replica
		if got != s.want || !slices.Contains(d.Names(d.Choice), got) {
			t.Errorf("%s, request %d: went to %s, decided %v, want %s: %q", name, i, got, d.Names(d.Choice), s.want, d.Trace)
		}
		if all := strings.Join(d.Trace, "\n"); !strings.Contains(all, s.trace) {
			t.Errorf("%s, request %d: %q has no %q", name, i, all, s.trace)
		}
	}
	return r
}

func TestSGLangCacheAware(t *testing.T) {
	t.Parallel()
	small := []string{"balance_abs_threshold=2", "balance_rel_threshold=1.5", "cache_threshold=0.5"}
	for name, tt := range map[string]struct {
		set   []string
		steps []sglangStep
	}{
		"cold prompts go to the first of the list": {nil, []sglangStep{
			{prompted("abc"), workers("ba"), "b", "match rate 0 (0 of 3 characters)"},
			{prompted("xyz"), workers("ba"), "b", "too little"},
		}},
		"or to the least loaded": {nil, []sglangStep{{prompted("abc"), workers("abc", 2, 1, 1), "b", "too little"}}},
		"the threshold is strict": {small, []sglangStep{
			{prompted("abcd"), workers("ab", 1, 0), "b", ""},
			{prompted("abxy"), workers("ab", 0, 1), "a", "match rate 0.5 (2 of 4"},
			{prompted("abcx"), workers("ab", 1, 2), "b", "match rate 0.75 (3 of 4"},
		}},
		"a spread needs both": {small, []sglangStep{
			{prompted("abcd"), workers("ab", 1, 0), "b", ""},
			{prompted("abcd"), workers("ab", 0, 2), "b", "enough: the worker that came first"}, // not more than 2
			{prompted("abcd"), workers("ab", 6, 9), "b", "enough: the worker that came first"}, // not more than 1.5 times
			{prompted("abcd"), workers("ab", 0, 3), "a", "imbalanced: the first"},
			{prompted("abcd"), workers("ab", 0, 1), "b", "enough"}, // a came second
		}},
		"an owner that is gone": {small, []sglangStep{
			{prompted("abcd"), workers("abc", 1, 0, 1), "b", ""},
			{prompted("abcd"), workers("ac", 1, 0), "a", "b is not available"},
			{prompted("abcd"), workers("abc", 1, 1, 0), "c", "match rate 0 (0"}, // neither b's share nor a's request is there
		}},
		"no text": {nil, []sglangStep{
			{Request{BlockSize: 16}, workers("ab"), "a", "0 of 0 characters"},
			{Request{BlockSize: 16}, workers("ab", 1, 0), "b", "0 of 0 characters"},
		}},
		"contents are joined by spaces": {nil, []sglangStep{
			{Request{BlockSize: 16, Contents: []string{"ab", "c"}}, workers("ab", 1, 0), "b", ""},
			{prompted("ab c"), workers("ab", 0, 1), "b", "4 of 4 characters"},
		}},
		"ids are numbers": {nil, []sglangStep{
			{Request{BlockSize: 16, IDs: []wire.Token{12, 3}}, workers("ab", 1, 0), "b", ""},
			{prompted("12 3"), workers("ab", 0, 1), "b", "4 of 4 characters"},
		}},
		"characters are not bytes": {nil, []sglangStep{
			{prompted("日本語x"), workers("ab", 1, 0), "b", ""},
			{prompted("日本yz"), workers("ab", 0, 1), "b", "2 of 4 characters"},
		}},
		"an eviction": {[]string{"max_tree_size=3", "eviction_interval_secs=10"}, []sglangStep{
			{at(100, prompted("abcd")), workers("ab", 1, 0), "b", ""},
			{at(109, prompted("abcd")), workers("ab", 0, 1), "b", "4 of 4"},
			{at(110, prompted("abcd")), workers("ab", 0, 1), "a", "0 of 4"},
		}},
		"no eviction": {[]string{"max_tree_size=3", "eviction_interval_secs=0"}, []sglangStep{
			{at(100, prompted("abcd")), workers("ab", 1, 0), "b", ""},
			{at(1e6, prompted("abcd")), workers("ab", 0, 1), "b", "4 of 4"},
		}},
		// Each symbol is 2 tokens of 4 characters.
		"symbols fit": {[]string{"max_tree_size=24"}, []sglangStep{
			{Request{BlockSize: 16, Symbols: []rune{7, 8, 9}, Width: 2}, workers("ab", 1, 0), "b", ""},
			{at(60, Request{BlockSize: 16, Symbols: []rune{7, 8, 9}, Width: 2}), workers("ab", 0, 1), "b", "3 of 3"},
		}},
		"symbols do not fit": {[]string{"max_tree_size=23"}, []sglangStep{
			{Request{BlockSize: 16, Symbols: []rune{7, 8, 9}, Width: 2}, workers("ab", 1, 0), "b", ""},
			{at(60, Request{BlockSize: 16, Symbols: []rune{7, 8, 9}, Width: 2}), workers("ab", 0, 1), "a", "0 of 3"},
		}},
	} {
		follow(t, name, configured(t, "sglang-cache-aware", tt.set...), tt.steps)
	}
	r := follow(t, "left", configured(t, "sglang-cache-aware"), []sglangStep{{prompted("abcd"), workers("ab", 1, 0), "b", ""}})
	r.Left("b")
	req := prompted("abcd")
	if d, err := r.Decide(&req, workers("ab")); err != nil || !slices.Equal(d.Choice, []int{0}) {
		t.Errorf("after b has left: %v, %v", d.Trace, err)
	}
}

// TestSGLangCacheAwareStandIn asks of no Router: the engines' blocks count.
func TestSGLangCacheAwareStandIn(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 160, BlockSize: 16}
	for name, tt := range map[string]struct {
		cands []Candidate
		want  []wire.Replica
		term  string
	}{
		"the longest holder": {[]Candidate{cand("a", 8, 0, 0, 9), cand("b", 4, 0, 0, 0)}, []wire.Replica{"a"}, "not_matched_worker"},
		"some of them":       {[]Candidate{cand("a", 8, 0, 0, 9), cand("b", 8, 0, 0, 0)}, []wire.Replica{"a", "b"}, ""},
		"too short":          {[]Candidate{cand("a", 3, 0, 0, 9), cand("b", 0, 0, 0, 0)}, []wire.Replica{"b"}, "load"},
		"imbalanced":         {[]Candidate{cand("a", 8, 0, 0, 65), cand("b", 0, 0, 0, 0)}, []wire.Replica{"b"}, "load"},
	} {
		d := decide(t, configured(t, "sglang-cache-aware"), &req, tt.cands)
		term, _, _, _ := d.Deciding()
		if !slices.Equal(d.Names(d.Choice), tt.want) || term != tt.term || !strings.Contains(d.Trace[0], "stands in") {
			t.Errorf("%s: %v by %q, want %v by %q: %q", name, d.Names(d.Choice), term, tt.want, tt.term, d.Trace)
		}
	}
}

// TestSGLangMemoryIsBounded fills the tree faster than it is ever cut.
func TestSGLangMemoryIsBounded(t *testing.T) {
	t.Parallel()
	m := newSGLangMemory(configured(t, "sglang-cache-aware")).(*sglangMemory)
	in := newInput(configured(t, "sglang-cache-aware"), &Request{BlockSize: 16}, workers("ab"))
	m.meet(in)
	m.tree.size = sglangMostChars + 1 // as if there were so many
	m.text = []rune("abcd")
	m.tree.chars[0] = sglangMostChars
	m.took(in, 0)
	if got := m.tree.chars[0]; got != sglangMostChars {
		t.Errorf("%d characters remain, and nothing but the last text could go", got)
	}
	if len(m.tree.below) != 0 {
		t.Error("the last text was kept")
	}
}

func TestSGLangManual(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set   []string
		steps []sglangStep
	}{
		"a key stays": {[]string{"assignment_mode=min_load"}, []sglangStep{
			{session("k", 0), workers("ab", 1, 0), "b", "vacant"},
			{session("k", 1), workers("ab", 0, 9), "b", "occupied_hit"},
		}},
		"two candidates, the older first": {[]string{"assignment_mode=min_load"}, []sglangStep{
			{session("k", 0), workers("abc", 0, 1, 1), "a", "vacant"},
			{session("k", 0), workers("bc", 0, 1), "b", "occupied_miss"},
			{session("k", 0), workers("abc"), "a", "occupied_hit"},
			{session("k", 0), workers("c"), "c", "occupied_miss"}, // and a is forgotten
			{session("k", 0), workers("abc"), "b", "occupied_hit"},
		}},
		"idle keys expire at a sweep": {[]string{"assignment_mode=min_load", "max_idle_secs=100", "eviction_interval_secs=60"}, []sglangStep{
			{session("k", 0), workers("ab", 1, 0), "b", "vacant"},
			{session("k", 110), workers("ab", 0, 1), "b", "occupied_hit"}, // swept at 60
			{session("k", 239), workers("ab", 0, 1), "b", "occupied_hit"}, // swept at 180
			{session("k", 420), workers("ab", 0, 1), "a", "vacant"},       // swept at 420
		}},
		"groups": {[]string{"assignment_mode=min_group"}, []sglangStep{
			{session("k", 0), workers("a"), "a", "vacant"},
			{session("l", 0), workers("ab", 0, 9), "b", "vacant"},
			{session("m", 0), workers("a"), "a", "vacant"},
			{session("n", 0), workers("ab", 0, 9), "b", "vacant"},
		}},
	} {
		follow(t, name, configured(t, "sglang-manual", tt.set...), tt.steps)
	}
	// Without a key, and with a new one in mode random, any can be.
	for _, key := range []string{"", "k"} {
		req := session(key, 0)
		r := NewRouter(*configured(t, "sglang-manual"), rand.New(rand.NewPCG(1, 2)))
		if d, err := r.Decide(&req, workers("abc", 5, 0, 0)); err != nil || len(d.Choice) != 3 {
			t.Errorf("key %q: %v, %v", key, d.Trace, err)
		}
	}
	req := session("k", 0)
	req.Affinity = "c"
	if d := decide(t, configured(t, "sglang-manual"), &req, workers("abc")); !slices.Equal(d.Choice, []int{2}) {
		t.Errorf("where the session went: %q", d.Trace)
	}
}

func TestSGLangPowerOfTwo(t *testing.T) {
	t.Parallel()
	cands := workers("abc", 9, 0, 0)
	cands[0].Load.Blocks, cands[1].Load.Blocks, cands[2].Load.State = 1, 2, LoadUnknown
	req := Request{BlockSize: 16}
	d := decide(t, configured(t, "sglang-power-of-two"), &req, cands)
	for i, want := range []float64{1.5 / 3, 0.5 / 3, 1. / 3} { // a before b; c with either
		if got := d.Candidates[i].Probability; math.Abs(got-want) > 1e-12 {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	if d := decide(t, configured(t, "sglang-power-of-two"), &req, cands[:1]); d.Candidates[0].Probability != 1 {
		t.Errorf("of one: %+v", d.Candidates[0])
	}
}

func TestSGLangHashes(t *testing.T) {
	t.Parallel()
	cands := workers("abcd")
	ring := configured(t, "sglang-consistent-hashing")
	moved, seen := 0, make(map[int]bool)
	for i := range 50 {
		req := session(fmt.Sprint("key-", i), 0)
		d := decide(t, ring, &req, cands)
		first := d.Choice[0]
		seen[first] = true
		// Without it the next one takes over, and nothing else moves.
		for gone := range cands {
			less := slices.Clone(cands)
			less[gone].Overloaded = true
			now := decide(t, ring, &req, less).Choice
			if gone != first && now[0] != first {
				moved++
			}
			if gone == first && d.Candidates[now[0]].Rank != 2 {
				t.Errorf("%s: %d takes over, of rank %d", req.Session, now[0], d.Candidates[now[0]].Rank)
			}
		}
		// In the old way it depends on the order, which must be known.
		old := configured(t, "sglang-consistent-hashing", "hash_ring=false")
		if d := decide(t, old, &req, cands); len(d.Choice) != 4 {
			t.Errorf("%q of an unknown order: %v", req.Session, d.Choice)
		}
	}
	if moved != 0 || len(seen) != 4 {
		t.Errorf("%d keys moved without need, and %d workers are used", moved, len(seen))
	}
	// Host and port stand for a URL.
	for i := range 20 {
		req := session(fmt.Sprint("key-", i), 0)
		long, short := workers("ab"), workers("ab")
		for n := range long {
			short[n].Replica = wire.Replica(fmt.Sprintf("10.0.0.%d:30000", n))
			long[n].Replica = "http://" + short[n].Replica
		}
		if a, b := decide(t, ring, &req, long), decide(t, ring, &req, short); a.Choice[0] != b.Choice[0] {
			t.Errorf("%s: %v by URL, and %v by host and port", req.Session, a.Choice, b.Choice)
		}
	}
	if d := decide(t, ring, &Request{BlockSize: 16}, cands); len(d.Choice) != 4 {
		t.Errorf("no key: %q", d.Trace)
	}
}

func TestSGLangPrefixHash(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sglang-prefix-hash", "prefix_token_count=2", "balance_abs_threshold=2")
	place := func(req Request, cands []Candidate) wire.Replica {
		req.BlockSize = 16
		d := decide(t, cfg, &req, cands)
		return d.Names(d.Choice)[0]
	}
	same := []struct{ a, b Request }{
		{prompted("12345678"), prompted("12345678 and more")}, // eight characters count
		{Request{IDs: []wire.Token{1, 2}}, Request{IDs: []wire.Token{1, 2, 3}}},
		{Request{Symbols: []rune{5, 6}, Width: 2}, Request{Symbols: []rune{5, 7}, Width: 2}},
		{Request{Contents: []string{"12", "345"}}, prompted("12 345")},
		{Request{Session: "k", Contents: []string{"a"}}, Request{Session: "k", Contents: []string{"b"}}},
	}
	for i, s := range same {
		if a, b := place(s.a, workers("abcdefgh")), place(s.b, workers("abcdefgh")); a != b {
			t.Errorf("%d: %s and %s", i, a, b)
		}
	}
	differ := make(map[wire.Replica]bool)
	for i := range 64 {
		differ[place(prompted(fmt.Sprintf("%08d", i)), workers("abcdefgh"))] = true
	}
	if len(differ) < 6 {
		t.Errorf("64 prompts go to %d workers", len(differ))
	}
	home := place(prompted("x"), workers("ab"))
	other := wire.Replica("ab"[(home[0]-'a'+1)%2])
	load := func(there, elsewhere int) []Candidate {
		c := workers("ab", there, elsewhere)
		if home == "b" {
			c[0].Load.Requests, c[1].Load.Requests = elsewhere, there
		}
		return c
	}
	// The mean is half of the load and this request: 5 is 2 above 3, and 6 is 2.5
	// above 3.5. Of 24 and 19, the mean 22 is above 24 / 1.25.
	for _, tt := range []struct {
		there, elsewhere int
		want             wire.Replica
	}{{0, 0, home}, {5, 0, home}, {6, 0, other}, {24, 19, home}} {
		if got := place(prompted("x"), load(tt.there, tt.elsewhere)); got != tt.want {
			t.Errorf("%d and %d: %s, want %s", tt.there, tt.elsewhere, got, tt.want)
		}
	}
	if d := decide(t, cfg, &Request{BlockSize: 16}, workers("ab")); !strings.Contains(d.Trace[0], "fails the request") {
		t.Errorf("of nothing: %q", d.Trace)
	}
}

// TestSGLangCandidateSet has prompts of 10240 tokens, 640 blocks. A held block is
// 16 tokens, so 64 of them are enough.
func TestSGLangCandidateSet(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 10240, BlockSize: 16}
	queue := func(c Candidate, waiting int) Candidate {
		c.Load.State, c.Load.Waiting = LoadKnown, waiting
		return c
	}
	unknown := func(c Candidate) Candidate {
		c.Load.State = LoadUnknown
		return c
	}
	limit := "worker_queue_limit=4"
	for name, tt := range map[string]struct {
		set   []string
		cands []Candidate
		want  []wire.Replica
		trace string
	}{
		"the most held":             {nil, []Candidate{cand("a", 64, 0, 0, 0), cand("b", 200, 0, 0, 9)}, []wire.Replica{"b"}, "cache_candidate"},
		"too little":                {nil, []Candidate{cand("a", 63, 100, 0, 0), cand("b", 0, 0, 0, 9)}, []wire.Replica{"b"}, "power of two"},
		"a ratio too":               {[]string{"cache_affinity_min_match_ratio=0.5"}, []Candidate{cand("a", 319, 100, 0, 0), cand("b", 0, 0, 0, 9)}, []wire.Replica{"b"}, "power of two"},
		"near it and less pressed":  {nil, []Candidate{cand("a", 200, 5000, 0, 0), cand("b", 136, 3000, 0, 0)}, []wire.Replica{"b"}, "cache_candidate"},
		"not materially":            {nil, []Candidate{cand("a", 200, 4500, 0, 0), cand("b", 136, 3000, 0, 0)}, []wire.Replica{"a"}, "cache_candidate"},
		"nor by 1024 tokens":        {nil, []Candidate{cand("a", 200, 1024, 0, 0), cand("b", 136, 0, 0, 0)}, []wire.Replica{"a"}, "cache_candidate"},
		"not near":                  {nil, []Candidate{cand("a", 200, 5000, 0, 0), cand("b", 135, 0, 0, 0)}, []wire.Replica{"a"}, "cache_candidate"},
		"equal, less pressed":       {nil, []Candidate{cand("a", 200, 10, 0, 0), cand("b", 200, 9, 0, 0)}, []wire.Replica{"b"}, "cache_candidate"},
		"equal, fewer requests":     {nil, []Candidate{cand("a", 200, 0, 0, 3), cand("b", 200, 0, 0, 2)}, []wire.Replica{"b"}, "cache_candidate"},
		"equal in all":              {nil, []Candidate{cand("b", 200, 0, 0, 3), cand("a", 200, 0, 0, 3)}, []wire.Replica{"a"}, "cache_candidate"},
		"one load unknown":          {nil, []Candidate{cand("a", 200, 5000, 0, 0), unknown(cand("b", 136, 0, 0, 0))}, []wire.Replica{"a"}, "cache_candidate"},
		"few candidates":            {[]string{"cache_candidate_min_workers=1", "cache_candidate_max_workers=1"}, []Candidate{cand("a", 200, 5000, 0, 0), cand("b", 199, 0, 0, 0)}, []wire.Replica{"a"}, "1 of 2 workers"},
		"a full queue":              {[]string{limit}, []Candidate{queue(cand("a", 200, 0, 0, 9), 4), queue(cand("b", 100, 0, 0, 9), 3)}, []wire.Replica{"b"}, "1 holders have a full queue"},
		"the only holder's queue":   {[]string{limit}, []Candidate{queue(cand("a", 200, 0, 0, 9), 4), queue(cand("b", 0, 0, 0, 9), 3)}, []wire.Replica{"b"}, "power of two"},
		"all queues are full":       {[]string{limit}, []Candidate{queue(cand("a", 200, 0, 0, 9), 9), queue(cand("b", 0, 0, 0, 9), 4)}, []wire.Replica{"a"}, "cache_candidate"},
		"a queue that is unknown":   {[]string{limit}, []Candidate{unknown(queue(cand("a", 200, 0, 0, 9), 9)), queue(cand("b", 0, 0, 0, 9), 0)}, []wire.Replica{"a"}, "cache_candidate"},
		"pinned to a holder":        {[]string{limit, "saturation_queue_floor=2"}, []Candidate{queue(cand("a", 200, 0, 0, 9), 9), queue(cand("b", 0, 0, 0, 9), 2)}, []wire.Replica{"a"}, "saturation_pin"},
		"not with one below":        {[]string{limit, "saturation_queue_floor=2"}, []Candidate{queue(cand("a", 200, 0, 0, 9), 9), queue(cand("b", 0, 0, 0, 9), 1)}, []wire.Replica{"b"}, "power of two"},
		"two full queues, and room": {[]string{limit}, []Candidate{queue(cand("a", 0, 0, 0, 9), 9), queue(cand("b", 0, 0, 0, 9), 4), queue(cand("c", 0, 9, 0, 9), 0)}, []wire.Replica{"c"}, "power of two"},
		"two full queues and no c":  {[]string{limit}, []Candidate{queue(cand("a", 0, 0, 0, 9), 9), queue(cand("b", 0, 0, 0, 9), 4)}, []wire.Replica{"b"}, "power of two"},
		"no holder":                 {nil, []Candidate{cand("a", 0, 0, 0, 0), cand("b", 0, 0, 0, 0)}, []wire.Replica{"a", "b"}, "power of two"},
	} {
		d := decide(t, configured(t, "sglang-candidate-set", tt.set...), &req, tt.cands)
		got := d.Names(d.Choice)
		slices.Sort(got)
		if !slices.Equal(got, tt.want) || !strings.Contains(strings.Join(d.Trace, "\n"), tt.trace) {
			t.Errorf("%s: %v, want %v: %q", name, got, tt.want, d.Trace)
		}
	}
}

// TestSGLangTerms holds the terms against the costs, for every policy.
func TestSGLangTerms(t *testing.T) {
	t.Parallel()
	req := Request{Tokens: 1600, BlockSize: 16, Contents: []string{"abc"}, Session: "s"}
	for _, name := range Policies() {
		if !strings.HasPrefix(name, "sglang-") {
			continue
		}
		for _, cands := range [][]Candidate{workers("abc", 1, 2, 90), {cand("a", 80, 9, 5, 1), cand("b", 70, 0, 9, 2)}} {
			d := decide(t, configured(t, name), &req, cands)
			for _, c := range d.Candidates {
				sum := 0.0
				for _, term := range c.Terms {
					sum += term.Cost
				}
				if sum != c.Cost || c.Rule == "" {
					t.Errorf("%s: %s costs %v, and its terms %v: %q", name, c.Replica, c.Cost, c.Terms, c.Rule)
				}
			}
		}
	}
}

// BenchmarkSGLangCacheAware routes conversations of 8 workers: each request is
// ten symbols of 512 tokens, most of them known. One op is one request.
func BenchmarkSGLangCacheAware(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := NewRouter(*configured(b, "sglang-cache-aware", "balance_abs_threshold=8"), rng)
	cands := workers("abcdefgh")
	req := Request{BlockSize: 512, Width: 512}
	fresh := rune(1 << 20)
	talks := make([][]rune, 1000)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		talk := &talks[rng.IntN(len(talks))]
		if len(*talk) > 20 {
			*talk = (*talk)[:0]
		}
		for range 2 {
			fresh++
			*talk = append(*talk, fresh)
		}
		req.Symbols, req.At = *talk, wire.Time(n)*1e7
		for i := range cands {
			cands[i].Load.Requests = rng.IntN(16)
		}
		r.Route(&req, cands)
	}
}
