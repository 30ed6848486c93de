package lab

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// Workload is requests, as names of blocks. Make one with Make, ReadTrace or
// FromLog. It is safe to share.
type Workload struct {
	Name string
	// BlockSize is in tokens.
	BlockSize int
	// Inferred says that nobody told the sessions: the first request that begins with
	// all complete blocks of an earlier one, of which there are at least two, is taken
	// for its next turn.
	Inferred bool
	// Of a log, Known requests say what the engines that served them took from their
	// caches, Measured of their prompt tokens as a share; Unknown ones do not.
	Known, Unknown int
	Measured       float64
	requests       []request
	// roots are the requests that follow no other, in the order in which they come.
	roots    []int32
	paths    [][]block
	sessions int
	last     block
	// answers says that paths name the blocks of answers too.
	answers bool
	// At a time, each requests of the roots and what follows them are on their way
	// for each replica, or all in the whole fleet. With neither, roots come at the
	// time that is theirs, whatever the fleet does.
	each, all int
}

// request is one request.
type request struct {
	// at is when it comes, or how long after the end of the one that it follows.
	at wire.Time
	// prompt and output are in tokens.
	prompt, output int32
	// path names the blocks of the prompt, and perhaps of what follows.
	path    int32
	session int32
	// next follows it, -1 for nothing.
	next int32
}

// Requests counts them.
func (w *Workload) Requests() int { return len(w.requests) }

// Sessions counts the sessions.
func (w *Workload) Sessions() int { return w.sessions }

// Open reports whether requests come at their own times, whatever the fleet does.
func (w *Workload) Open() bool { return w.each+w.all == 0 }

// The bounds of a request and of a workload. Prompt and output are in tokens.
const (
	maxTokens   = 1 << 24
	maxRequests = 1 << 23
	// maxAt bounds times.
	maxAt = 400 * 24 * 3600 * second
	// second is in wire.Time's unit.
	second wire.Time = 1e9
)

// maker makes a workload.
type maker struct {
	w     *Workload
	names *names
	rng   *rand.Rand
	want  int // requests
}

// shapes is the table of workloads. Lengths are in tokens.
var shapes = []struct {
	name, says string
	each, all  int
	make       func(m *maker)
}{
	{"agents", "conversations of 6 to 14 turns with one of 8 system prompts of 2,048; a turn adds 100 to 800 and generates 50 to 300, 0.5 to 3 s after the last", 8, 0, agents},
	{"rollouts", "groups of 8 rollouts of one prompt of 2,048, 10 turns of 1,024 generated; two of each group generate 8,192 in one turn; 16 at a time", 0, 16, rollouts},
	{"system", "a system prompt of 4,096 that all share, and 100 to 400 that nobody does", 16, 0, systemOnly},
	{"uniform", "prompts of 512 to 4,096 that share nothing", 16, 0, uniform},
	{"rag", "a system prompt of 256, 4 of 300 documents of 512 to 1,024 in varying order, few of them often, and a question of 50 to 150", 16, 0, rag},
}

// Shape is a workload that can be made.
type Shape struct{ Name, Says string }

// Shapes lists them.
func Shapes() []Shape {
	out := make([]Shape, len(shapes))
	for i, s := range shapes {
		out[i] = Shape{s.name, s.says}
	}
	return out
}

// Make makes a workload of the table with about so many requests: the last
// session is whole. The same seed gives the same requests.
func Make(name string, requests, blockSize int, seed uint64) (*Workload, error) {
	at := slices.IndexFunc(Shapes(), func(s Shape) bool { return s.Name == name })
	if at < 0 {
		var known []string
		for _, s := range shapes {
			known = append(known, s.name)
		}
		return nil, fmt.Errorf("no workload is called %q: there are %s", wire.Printable(name), strings.Join(known, ", "))
	}
	if requests < 1 || requests > maxRequests {
		return nil, fmt.Errorf("%d requests: give 1 to %d", requests, maxRequests)
	}
	if err := checkBlockSize(blockSize); err != nil {
		return nil, err
	}
	s := &shapes[at]
	m := maker{
		w:     &Workload{Name: s.name, BlockSize: blockSize, each: s.each, all: s.all, answers: true},
		names: newNames(), rng: rand.New(rand.NewPCG(seed, uint64(at))), want: requests,
	}
	s.make(&m)
	if m.w.last = m.names.last; m.w.last >= maxBlocks {
		return nil, fmt.Errorf("%s of %d requests has more than %d blocks: give fewer requests or a larger block size", name, requests, maxBlocks)
	}
	return m.w, nil
}

func checkBlockSize(n int) error {
	if n < 1 || n > 1<<16 {
		return fmt.Errorf("a block size of %d tokens: give 1 to 65536", n)
	}
	return nil
}

// more reports whether requests are missing.
func (m *maker) more() bool { return len(m.w.requests) < m.want && m.names.last < maxBlocks }

func (m *maker) between(low, high int) int { return low + m.rng.IntN(high-low+1) }

// blocks is how many blocks tokens begin.
func (m *maker) blocks(tokens int) int { return (tokens + m.w.BlockSize - 1) / m.w.BlockSize }

// whole is how many blocks tokens fill.
func (m *maker) whole(tokens int) int { return tokens / m.w.BlockSize }

// fresh extends a path by blocks that nothing else has, up to a length in tokens.
func (m *maker) fresh(path []block, tokens int) []block {
	for n := m.blocks(tokens); len(path) < n; {
		path = append(path, m.names.fresh())
	}
	return path
}

// shared gives the complete blocks of a text that many prompts begin with.
func (m *maker) shared(tokens int) []block {
	return m.fresh(nil, m.whole(tokens)*m.w.BlockSize)
}

// turn is a request of a session: its prompt, and what it generates.
type turn struct {
	prompt, output int
	think          wire.Time
}

// session adds one, whose turns extend one path.
func (m *maker) session(path []block, turns ...turn) {
	w := m.w
	w.paths = append(w.paths, path)
	for i, t := range turns {
		at := int32(len(w.requests))
		r := request{
			at: t.think, prompt: int32(t.prompt), output: int32(t.output),
			path: int32(len(w.paths) - 1), session: int32(w.sessions), next: -1,
		}
		if i == 0 {
			w.roots = append(w.roots, at)
		} else {
			w.requests[at-1].next = at
		}
		w.requests = append(w.requests, r)
	}
	w.sessions++
}

func agents(m *maker) {
	const system = 2048
	var systems [8][]block
	for i := range systems {
		systems[i] = m.shared(system)
	}
	for m.more() {
		turns, length := make([]turn, m.between(6, 14)), system
		for i := range turns {
			length += m.between(100, 800)
			turns[i] = turn{prompt: length, output: m.between(50, 300)}
			if length += turns[i].output; i > 0 {
				turns[i].think = wire.Time(m.between(500, 3000)) * second / 1000
			}
		}
		m.session(m.fresh(slices.Clone(systems[m.rng.IntN(len(systems))]), length), turns...)
	}
}

func rollouts(m *maker) {
	const (
		group, stragglers = 8, 2
		input, each, long = 2048, 1024, 8192
	)
	for m.more() {
		prompt := m.shared(input)
		late := m.rng.Perm(group)[:stragglers]
		for i := range group {
			turns, length, lateAt := make([]turn, 10), input, -1
			if slices.Contains(late, i) {
				lateAt = m.rng.IntN(len(turns))
			}
			for k := range turns {
				turns[k] = turn{prompt: length, output: each}
				if k == lateAt {
					turns[k].output = long
				}
				length += turns[k].output
			}
			m.session(m.fresh(slices.Clone(prompt), length), turns...)
		}
	}
}

func systemOnly(m *maker) {
	const system = 4096
	prompt := m.shared(system)
	for m.more() {
		t := turn{prompt: system + m.between(100, 400), output: m.between(100, 300)}
		m.session(m.fresh(slices.Clone(prompt), t.prompt+t.output), t)
	}
}

func uniform(m *maker) {
	for m.more() {
		t := turn{prompt: m.between(512, 4096), output: m.between(100, 300)}
		m.session(m.fresh(nil, t.prompt+t.output), t)
	}
}

func rag(m *maker) {
	const documents, each, system = 300, 4, 256
	size := m.w.BlockSize
	before := m.shared(system)
	var lengths [documents]int // in blocks: a document ends where a block does
	for i := range lengths {
		lengths[i] = m.blocks(m.between(512, 1024))
	}
	for m.more() {
		path := slices.Clone(before)
		for range each {
			// The lower the number, the more often.
			doc := m.rng.IntN(1 + m.rng.IntN(documents))
			for i := range lengths[doc] {
				parent := block(0)
				if len(path) > 0 {
					parent = path[len(path)-1]
				}
				path = append(path, m.names.next(parent, int64(doc*maxTokens+i)))
			}
		}
		t := turn{prompt: len(path)*size + m.between(50, 150), output: m.between(100, 300)}
		m.session(m.fresh(path, t.prompt+t.output), t)
	}
}
