package lab

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

// naive is an engine's cache written down as its rules are told, without any
// structure that makes it quick.
type naive interface {
	match(path []block) int
	begin(s *sequence) (hits int, ok bool)
	prefilled(s *sequence)
	finish(s *sequence)
	used() int
	resident() []block
}

// naiveLRU is vLLM's pool as a list.
type naiveLRU struct {
	capacity int
	clock    int
	all      []*physical
	queue    []*physical // free ones, used from the front
	of       map[*sequence][]*physical
}

type physical struct {
	holds block
	since int // when it was cached
	users int
}

func newNaiveLRU(n int) naive {
	c := &naiveLRU{capacity: n, of: map[*sequence][]*physical{}}
	for range n {
		c.all = append(c.all, &physical{})
	}
	c.queue = slices.Clone(c.all)
	return c
}

func (c *naiveLRU) find(b block) *physical {
	var best *physical
	for _, p := range c.all {
		if p.holds == b && (best == nil || p.since < best.since) {
			best = p
		}
	}
	return best
}

func (c *naiveLRU) match(path []block) int {
	for i, b := range path {
		if c.find(b) == nil {
			return i
		}
	}
	return len(path)
}

func (c *naiveLRU) begin(s *sequence) (int, bool) {
	hits := c.match(s.path[:s.usable])
	var mine []*physical
	free := len(c.queue)
	for _, b := range s.path[:hits] {
		p := c.find(b)
		if p.users == 0 {
			free--
		}
		mine = append(mine, p)
	}
	if s.total-hits > free {
		return 0, false
	}
	for _, p := range mine {
		p.users++
	}
	c.queue = slices.DeleteFunc(c.queue, func(p *physical) bool { return p.users > 0 })
	for len(mine) < s.total {
		p := c.queue[0]
		c.queue = c.queue[1:]
		p.users, p.holds = 1, 0
		mine = append(mine, p)
	}
	for i := hits; i < s.prompt; i++ {
		c.clock++
		mine[i].holds, mine[i].since = s.path[i], c.clock
	}
	c.of[s] = mine
	return hits, true
}

func (c *naiveLRU) prefilled(*sequence) {}

func (c *naiveLRU) finish(s *sequence) {
	mine := c.of[s]
	for i := s.prompt; i < len(s.path); i++ {
		c.clock++
		mine[i].holds, mine[i].since = s.path[i], c.clock
	}
	var last, first []*physical
	for _, p := range slices.Backward(mine) {
		if p.users--; p.users > 0 {
			continue
		}
		if p.holds == 0 {
			first = append(first, p)
		} else {
			last = append(last, p)
		}
	}
	c.queue = slices.Concat(first, c.queue, last)
	delete(c.of, s)
}

func (c *naiveLRU) used() int { return c.capacity - len(c.queue) }

func (c *naiveLRU) resident() []block {
	var out []block
	for _, p := range c.all {
		if p.holds != 0 {
			out = append(out, p.holds)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// naiveRadix is SGLang's tree as a list of nodes, each with its whole path.
type naiveRadix struct {
	capacity int
	clock    int
	nodes    []*naiveNode
	own      map[*sequence]int     // pages
	locks    map[*sequence][]block // the path in the tree that it locks
}

type naiveNode struct {
	path []block
	from int // pages before it are its ancestors'
	used int
}

func newNaiveRadix(n int) naive {
	return &naiveRadix{capacity: n, own: map[*sequence]int{}, locks: map[*sequence][]block{}}
}

func begins(long, short []block) bool {
	return len(long) >= len(short) && slices.Equal(long[:len(short)], short)
}

func (c *naiveRadix) match(path []block) int {
	best := 0
	for _, n := range c.nodes {
		for k := n.from + 1; k <= len(n.path); k++ {
			if begins(path, n.path[:k]) {
				best = max(best, k)
			}
		}
	}
	return best
}

// reach splits where a path ends within a node, and marks its nodes as used.
func (c *naiveRadix) reach(path []block) int {
	depth := c.match(path)
	c.clock++
	for _, n := range c.nodes {
		if begins(n.path, path[:depth]) && n.from < depth && depth < len(n.path) {
			c.nodes = append(c.nodes, &naiveNode{path: n.path[:depth], from: n.from})
			n.from = depth
			break
		}
	}
	for _, n := range c.nodes {
		if begins(path, n.path) {
			n.used = c.clock
		}
	}
	return depth
}

func (c *naiveRadix) locked(n *naiveNode) bool {
	for _, path := range c.locks {
		if begins(path, n.path) {
			return true
		}
	}
	return false
}

func (c *naiveRadix) free() int {
	free := c.capacity
	for _, n := range c.nodes {
		free -= len(n.path) - n.from
	}
	for _, pages := range c.own {
		free -= pages
	}
	return free
}

func (c *naiveRadix) begin(s *sequence) (int, bool) {
	hits := c.reach(s.path[:s.usable])
	c.locks[s] = s.path[:hits]
	evictable := 0
	for _, n := range c.nodes {
		if !c.locked(n) {
			evictable += len(n.path) - n.from
		}
	}
	if s.total-hits > c.free()+evictable {
		delete(c.locks, s)
		return 0, false
	}
	for c.free() < s.total-hits {
		var oldest *naiveNode
		for _, n := range c.nodes {
			leaf := !slices.ContainsFunc(c.nodes, func(o *naiveNode) bool { return o != n && begins(o.path, n.path) })
			if leaf && !c.locked(n) && (oldest == nil || n.used < oldest.used) {
				oldest = n
			}
		}
		c.nodes = slices.DeleteFunc(c.nodes, func(n *naiveNode) bool { return n == oldest })
	}
	c.own[s] = s.total - hits
	return hits, true
}

func (c *naiveRadix) put(s *sequence, blocks int) {
	path := s.path[:blocks]
	if depth := c.reach(path); depth < blocks {
		c.nodes = append(c.nodes, &naiveNode{path: path, from: depth, used: c.clock})
	}
	c.locks[s] = path
	c.own[s] = s.total - blocks
}

func (c *naiveRadix) prefilled(s *sequence) { c.put(s, s.prompt) }

func (c *naiveRadix) finish(s *sequence) {
	c.put(s, len(s.path))
	delete(c.locks, s)
	delete(c.own, s)
}

func (c *naiveRadix) used() int {
	used := 0
	for _, n := range c.nodes {
		if c.locked(n) {
			used += len(n.path) - n.from
		}
	}
	for _, pages := range c.own {
		used += pages
	}
	return used
}

func (c *naiveRadix) resident() []block {
	var out []block
	for _, n := range c.nodes {
		out = append(out, n.path[n.from:]...)
	}
	slices.Sort(out)
	return out
}

// TestEnginesAgainstNaive runs sequences that overlap in time and in content
// through each engine and through its rules written down plainly.
func TestEnginesAgainstNaive(t *testing.T) {
	t.Parallel()
	models := [...]func(int) naive{VLLM: newNaiveLRU, SGLang: newNaiveRadix}
	for engine, plain := range models {
		t.Run(Engine(engine).String(), func(t *testing.T) {
			t.Parallel()
			refused, hits := 0, 0
			for seed := range uint64(30) {
				r, h := againstNaive(t, Engine(engine), plain, rand.New(rand.NewPCG(seed, 9)))
				refused, hits = refused+r, hits+h
			}
			if refused < 50 || hits < 500 {
				t.Errorf("%d refused and %d blocks reused: the sequences try too little", refused, hits)
			}
		})
	}
}

func againstNaive(t *testing.T, engine Engine, plain func(int) naive, rng *rand.Rand) (refused, hits int) {
	t.Helper()
	const capacity, steps = 24, 300
	fast, slow, all := engines[engine].make(capacity), plain(capacity), newNames()
	type pair struct {
		fast, slow *sequence
		prefilled  bool
	}
	var running []*pair
	heard := map[block]bool{}
	// Two pieces at each place make prefixes of all lengths.
	path := func(n int) []block {
		var out []block
		for at := block(0); len(out) < n; {
			at = all.next(at, int64(rng.IntN(2)*(1+rng.IntN(2))))
			out = append(out, at)
		}
		return out
	}
	for step := range steps {
		switch at := rng.IntN(len(running) + 2); {
		case at >= len(running):
			n := rng.IntN(8)
			s := sequence{path: path(n), prompt: rng.IntN(n + 1), total: n + rng.IntN(2)}
			s.usable = max(0, s.prompt-rng.IntN(2))
			p := &pair{fast: &s, slow: &sequence{path: s.path, prompt: s.prompt, usable: s.usable, total: s.total}}
			wantHits, want := slow.begin(p.slow)
			if ok := fast.begin(p.fast); ok != want || ok && p.fast.hits != wantHits {
				t.Fatalf("step %d: begins %v with %d hits, want %v with %d", step, ok, p.fast.hits, want, wantHits)
			}
			if !want {
				refused++
				continue
			}
			hits += wantHits
			running = append(running, p)
		case !running[at].prefilled:
			fast.prefilled(running[at].fast)
			slow.prefilled(running[at].slow)
			running[at].prefilled = true
		default:
			fast.finish(running[at].fast)
			slow.finish(running[at].slow)
			running = slices.Delete(running, at, at+1)
		}
		for _, c := range fast.changes() {
			if heard[c.block] != c.removed {
				t.Fatalf("step %d: block %d changes twice", step, c.block)
			}
			heard[c.block] = !c.removed
		}
		var got []block
		for b, here := range heard {
			if here {
				got = append(got, b)
			}
		}
		slices.Sort(got)
		if want := slow.resident(); !slices.Equal(got, want) {
			t.Fatalf("step %d: %v are cached, want %v", step, got, want)
		}
		if got, want := fast.used(), slow.used(); got != want {
			t.Fatalf("step %d: %d blocks in use, want %d", step, got, want)
		}
		asked := path(6)
		if got, want := fast.match(asked), slow.match(asked); got != want {
			t.Fatalf("step %d: matches %d, want %d", step, got, want)
		}
	}
	return refused, hits
}

// TestVLLMAgainstSim serves jobs one by one on the model with tokens, which is
// held against recordings of vLLM, and on this one.
func TestVLLMAgainstSim(t *testing.T) {
	t.Parallel()
	const capacity, size = 40, 4
	rng := rand.New(rand.NewPCG(3, 4))
	e, err := sim.NewEngine(sim.EngineOptions{Blocks: capacity, BlockSize: size})
	if err != nil {
		t.Fatal(err)
	}
	c, all, hits := newBlockLRU(capacity), newNames(), 0
	heard := map[block]bool{}
	for n := range 2000 {
		// Few different tokens, changed seldom, so that prompts share much.
		prompt := make([]wire.Token, 1+rng.IntN(60))
		for i := range prompt {
			prompt[i] = wire.Token(i / size * 3)
			if rng.IntN(30) == 0 {
				prompt[i]++
			}
		}
		output := make([]wire.Token, 1+rng.IntN(20))
		if err := e.Submit(sim.Job{Prompt: prompt, Output: output, ID: n}); err != nil {
			t.Fatal(err)
		}
		var served []sim.Served
		for len(served) == 0 {
			_, served = e.Step()
		}
		// The last token is sampled and never computed.
		tokens := slices.Concat(prompt, output[1:])
		s := sequence{
			path: all.tokens(tokens, size, 0), prompt: len(prompt) / size,
			usable: (len(prompt) - 1) / size, total: (len(tokens) + size - 1) / size,
		}
		if !c.begin(&s) {
			t.Fatal("the cache is too small")
		}
		c.finish(&s)
		for _, ch := range c.changes() {
			heard[ch.block] = !ch.removed
		}
		if want := served[0].Cached / size; s.hits != want {
			t.Fatalf("job %d: %d blocks reused, want %d", n, s.hits, want)
		}
		hits += s.hits
	}
	got := 0
	for _, here := range heard {
		if here {
			got++
		}
	}
	if want := len(e.Residents()); got != want || hits < 1000 {
		t.Errorf("%d blocks cached, want %d; %d reused in all", got, want, hits)
	}
}

// TestHolders holds the depths against a look at every block of every replica.
func TestHolders(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 4, 64, 65, 130} {
		rng := rand.New(rand.NewPCG(uint64(replicas), 1))
		const last = 40
		h, plain := newHolders(replicas, last), map[[2]int]bool{}
		for range 40 * replicas * 3 {
			r, b, in := rng.IntN(replicas), 1+rng.IntN(last), rng.IntN(4) > 0
			if plain[[2]int{r, b}] = in; in {
				h.add(r, block(b))
			} else {
				h.remove(r, block(b))
			}
		}
		for range 50 {
			out := make([]int, 1+rng.IntN(replicas)) // the others have yet to come
			path := make([]block, rng.IntN(12))
			for i := range path {
				path[i] = block(1 + rng.IntN(last))
			}
			h.depths(path, out)
			for r := range out {
				want := 0
				for want < len(path) && plain[[2]int{r, int(path[want])}] {
					want++
				}
				if out[r] != want {
					t.Fatalf("%d replicas: depth %d on replica %d, want %d", replicas, out[r], r, want)
				}
			}
		}
	}
}
