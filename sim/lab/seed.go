package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// SeedTokens are the token streams of a published reference experiment on routing
// by KV cache. What is done with them is said at the fields of Seed.
type SeedTokens struct {
	BlockSize    int            `json:"block_size"`
	SharedSystem []wire.Token   `json:"shared_system"`
	Corpus       [][]wire.Token `json:"corpus"`
	Probe        []wire.Token   `json:"probe"`
	Base         []wire.Token   `json:"base"`
	Herding      struct {
		Sessions [][]wire.Token   `json:"sessions"`
		Suffixes [][][]wire.Token `json:"turn_suffixes"`
	} `json:"herding"`
	Stale struct {
		Requests [][]wire.Token `json:"requests"`
		Capacity int            `json:"capacity_blocks"`
		Passes   int            `json:"passes"`
	} `json:"stale"`
}

// The bounds of what is read.
const (
	maxSeedFile  = 16 << 20 // bytes
	maxSeedBlock = 1 << 16  // tokens
	maxSeedRuns  = 1 << 10
	seedVocab    = 50000
)

// ReadSeed reads the token streams, one JSON object.
func ReadSeed(r io.Reader) (*SeedTokens, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSeedFile+1))
	if err != nil {
		return nil, fmt.Errorf("tokens of the seed experiment: %w", err)
	}
	var t SeedTokens
	if len(text) > maxSeedFile {
		return nil, fmt.Errorf("tokens of the seed experiment: more than %d bytes; give its tokens.json", maxSeedFile)
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("tokens of the seed experiment: %w; give its tokens.json", err)
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("tokens of the seed experiment: %w; give its tokens.json", err)
	}
	return &t, nil
}

func (t *SeedTokens) check() error {
	switch {
	case t.BlockSize < 2 || t.BlockSize > maxSeedBlock || t.BlockSize%2 != 0:
		return fmt.Errorf("a block size of %d, which cannot be halved", t.BlockSize)
	case len(t.Corpus) < seedStored:
		return fmt.Errorf("%d prompts to index, and %d are needed", len(t.Corpus), seedStored)
	case len(t.Base) < len(boundaries)*t.BlockSize:
		return fmt.Errorf("a base prompt of %d tokens", len(t.Base))
	case t.Stale.Capacity < 1 || t.Stale.Capacity > 1<<20 || t.Stale.Passes < 0 || t.Stale.Passes > maxSeedRuns:
		return fmt.Errorf("a cache of %d blocks and %d passes", t.Stale.Capacity, t.Stale.Passes)
	}
	for _, turn := range t.Herding.Suffixes {
		if len(turn) != len(t.Herding.Sessions) {
			return fmt.Errorf("a turn of %d sessions, and there are %d", len(turn), len(t.Herding.Sessions))
		}
	}
	return nil
}

// Seed is what the experiment gives.
type Seed struct {
	// Queries prompts were asked about on all replicas, and Equal of those answers
	// are those of a scan of all that each replica holds. Probe is the match of the
	// probe, and Removed that of a prompt whose sixth block was removed.
	Queries, Equal int
	Probe          []int
	Removed        int
	// Boundaries are what is left of a match when one token changes.
	Boundaries []SeedBoundary
	// Least and Loaded are the credits of equal matches, with decay, on the least
	// loaded replica and on one with 8 blocks more to prefill.
	Least, Loaded float64
	Herding       []SeedHerding
	Stale         []SeedStale
	// Cold is the replica chosen where nobody holds anything.
	Cold int
}

// SeedBoundary is a change of a prompt and the match that it leaves, in blocks.
type SeedBoundary struct {
	Change string
	Match  int
}

// SeedHerding is a policy at work on conversations. Backlogs are the blocks to
// prefill and to decode that it gave each replica; CV is their standard deviation
// (of the population) over their mean, and Makespan the longest.
type SeedHerding struct {
	Rule         string
	Placements   []int
	Backlogs     []float64
	CV, Makespan float64
	// Sticky is the share of later turns on their session's first replica, and
	// Ratio how many times as long as that of the cost with credit 1 the makespan is.
	Sticky, Ratio float64
}

// SeedStale is what an index believed of one engine, in blocks, and what the
// engine served of Asked.
type SeedStale struct {
	Removals                bool
	Believed, Served, Asked int
}

// The experiment's shape.
const (
	seedReplicas = 4
	seedStored   = 16 // prompts
	seedRemoved  = 2  // the prompt whose block is removed
	seedHole     = 5  // and that block
)

// RunSeed runs the experiment, by the routers' rules and on the lab's own cache and
// index.
func RunSeed(t *SeedTokens) (*Seed, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	s := Seed{}
	s.index(t)
	s.boundary(t)
	for _, part := range []func(*SeedTokens) error{s.decay, s.herding, s.stale, s.cold} {
		if err := part(t); err != nil {
			return nil, fmt.Errorf("seed experiment: %w", err)
		}
	}
	return &s, nil
}

// index stores prompts on replicas in turn and asks about all.
func (s *Seed) index(t *SeedTokens) {
	all := newNames()
	paths := make([][]block, len(t.Corpus))
	for i, p := range t.Corpus {
		paths[i] = all.tokens(p, t.BlockSize, 0)
	}
	probe := all.tokens(t.Probe, t.BlockSize, 0)
	h := newHolders(seedReplicas, all.last)
	for i, path := range paths[:seedStored] {
		for _, b := range path {
			h.add(i%seedReplicas, b)
		}
	}
	match := make([]int, seedReplicas)
	for i, path := range paths {
		h.depths(path, match)
		for r := range match {
			s.Queries++
			if match[r] == t.scan(t.Corpus[i], r) {
				s.Equal++
			}
		}
	}
	h.depths(probe, match)
	s.Probe = slices.Clone(match)
	if path := paths[seedRemoved]; len(path) > seedHole {
		h.remove(seedRemoved%seedReplicas, path[seedHole])
	}
	h.depths(paths[seedRemoved], match)
	s.Removed = match[seedRemoved%seedReplicas]
}

// scan compares a prompt, token by token, with all that a replica stored.
func (t *SeedTokens) scan(prompt []wire.Token, replica int) int {
	best := 0
	for i := replica; i < seedStored; i += seedReplicas {
		best = max(best, wire.CommonPrefix(prompt, t.Corpus[i])/t.BlockSize)
	}
	return best
}

// boundaries are the changes that are tried, on a block of so many tokens.
var boundaries = []struct {
	name   string
	change func(base []wire.Token, size int) []wire.Token
}{
	{"one token within block 3", func(b []wire.Token, size int) []wire.Token { return changed(b, 4*size-1) }},
	{"one token that begins block 4", func(b []wire.Token, size int) []wire.Token { return changed(b, 4*size) }},
	{"one token of the incomplete tail", func(b []wire.Token, size int) []wire.Token { return changed(b, len(b)/size*size+3) }},
	{"one token put in front", func(b []wire.Token, _ int) []wire.Token { return append([]wire.Token{7}, b...) }},
	{"cut to less than a block", func(b []wire.Token, size int) []wire.Token { return b[:size-1] }},
}

// changed gives a copy with another token at a place, if there is such a place.
func changed(tokens []wire.Token, at int) []wire.Token {
	out := slices.Clone(tokens)
	if at < len(out) {
		out[at] = (out[at] + 1) % seedVocab
	}
	return out
}

func (s *Seed) boundary(t *SeedTokens) {
	for _, b := range boundaries {
		all := newNames()
		base := all.tokens(t.Base, t.BlockSize, 0)
		path := all.tokens(b.change(t.Base, t.BlockSize), t.BlockSize, 0)
		h := newHolders(1, all.last)
		for _, held := range base {
			h.add(0, held)
		}
		match := make([]int, 1)
		h.depths(path, match)
		s.Boundaries = append(s.Boundaries, SeedBoundary{b.name, match[0]})
	}
}

// configured gives a policy with settings.
func configured(name string, set ...route.Setting) (*route.Config, error) {
	p, err := route.Named(name)
	if err != nil {
		return nil, err
	}
	cfg, err := p.Configure(route.Sources{Set: set})
	return &cfg, err
}

func numbered(n int) []route.Candidate {
	out := make([]route.Candidate, n)
	for i := range out {
		out[i] = route.Candidate{Replica: replicaName(i), Load: route.Load{State: route.LoadKnown}}
	}
	return out
}

func (s *Seed) decay(t *SeedTokens) error {
	const matched, asked, loaded = 6, 8, 8 // blocks
	cfg, err := configured("dynamo", route.Setting{Name: "overlap_score_credit_decay", Value: "1"})
	if err != nil {
		return err
	}
	cands := numbered(2)
	for i := range cands {
		cands[i].Match[wire.Device] = matched
	}
	cands[1].Load.PrefillTokens = loaded * t.BlockSize
	d, err := route.Decide(cfg, &route.Request{Tokens: asked * t.BlockSize, BlockSize: t.BlockSize}, cands)
	if err != nil {
		return err
	}
	credit := func(i int) float64 {
		for _, term := range d.Candidates[i].Terms {
			if term.Name == "device_overlap_credit" {
				return -term.Cost
			}
		}
		return math.NaN()
	}
	s.Least, s.Loaded = credit(0), credit(1)
	return nil
}

func (s *Seed) cold(t *SeedTokens) error {
	cfg, err := configured("dynamo")
	if err != nil {
		return err
	}
	cands := numbered(seedReplicas)
	for i, blocks := range []int{4, 1, 9, 3} {
		cands[i].Load.PrefillTokens = blocks * t.BlockSize
	}
	d, err := route.Decide(cfg, &route.Request{Tokens: 9 * t.BlockSize, BlockSize: t.BlockSize}, cands)
	if err != nil {
		return err
	}
	s.Cold = d.Best[0]
	return nil
}

func (s *Seed) herding(t *SeedTokens) error {
	for _, run := range []struct {
		rule, policy string
		set          []route.Setting
	}{
		{"affinity alone", "affinity", nil},
		{"cost with credit 1", "dynamo", []route.Setting{{Name: "overlap_score_credit", Value: "1"}}},
		{"cost with credit 0", "dynamo", []route.Setting{{Name: "overlap_score_credit", Value: "0"}}},
	} {
		cfg, err := configured(run.policy, run.set...)
		if err != nil {
			return err
		}
		h, err := t.herd(cfg)
		if err != nil {
			return err
		}
		h.Rule = run.rule
		s.Herding = append(s.Herding, h)
	}
	for i := range s.Herding {
		s.Herding[i].Ratio = s.Herding[i].Makespan / s.Herding[1].Makespan
	}
	return nil
}

// herd sends conversations turn by turn, and nothing ever ends. A request decodes
// half as many blocks as its prompt has, so the rule counts in half blocks; ties
// go to the lowest replica.
func (t *SeedTokens) herd(cfg *route.Config) (SeedHerding, error) {
	all, sessions := newNames(), len(t.Herding.Sessions)
	system := all.tokens(t.SharedSystem, t.BlockSize, 0)
	var paths [][]block
	prompts := slices.Clone(t.Herding.Sessions)
	for turn := range len(t.Herding.Suffixes) + 1 {
		for i := range prompts {
			if turn > 0 {
				prompts[i] = slices.Concat(prompts[i], t.Herding.Suffixes[turn-1][i])
			}
			paths = append(paths, all.tokens(prompts[i], t.BlockSize, 0))
		}
	}
	held := newHolders(seedReplicas, all.last)
	for _, b := range system {
		held.add(0, b)
	}
	const halves = 2
	h := SeedHerding{Placements: make([]int, seedReplicas), Backlogs: make([]float64, seedReplicas)}
	prefill, decode := make([]int, seedReplicas), make([]int, seedReplicas) // in half blocks
	match, first, cands, sticky := make([]int, seedReplicas), make([]int, sessions), numbered(seedReplicas), 0
	half := t.BlockSize / halves
	for i, path := range paths {
		held.depths(path, match)
		req := route.Request{Tokens: len(path) * t.BlockSize, BlockSize: half}
		for r := range cands {
			cands[r].Match[wire.Device] = halves * match[r]
			// Of the request's own blocks, half are to be decoded: the rest is as if
			// it were there.
			cands[r].Load.PrefillTokens, cands[r].Load.Blocks, cands[r].Load.Prefix = prefill[r]*half, decode[r], len(path)
		}
		d, err := route.Decide(cfg, &req, cands)
		if err != nil {
			return h, err
		}
		to := d.Best[0]
		h.Placements[to]++
		prefill[to] += halves * (len(path) - match[to])
		decode[to] += len(path)
		for _, b := range path {
			held.add(to, b)
		}
		switch {
		case i < sessions:
			first[i] = to
		case first[i%sessions] == to:
			sticky++
		}
	}
	for r := range h.Backlogs {
		h.Backlogs[r] = float64(prefill[r]+decode[r]) / halves
	}
	h.CV, h.Makespan = variation(h.Backlogs), slices.Max(h.Backlogs)
	if later := len(paths) - sessions; later > 0 {
		h.Sticky = float64(sticky) / float64(later)
	}
	return h, nil
}

// variation is the standard deviation of the population over the mean, 0 where
// that is 0.
func variation(of []float64) float64 {
	var sum, squares float64
	for _, v := range of {
		sum += v
	}
	if sum == 0 {
		return 0
	}
	mean := sum / float64(len(of))
	for _, v := range of {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares/float64(len(of))) / mean
}

// stale lets an index follow one engine, with and without what it says of
// evictions.
func (s *Seed) stale(t *SeedTokens) error {
	all := newNames()
	var paths [][]block
	for _, r := range t.Stale.Requests {
		paths = append(paths, all.tokens(r, t.BlockSize, 0))
	}
	for _, removals := range []bool{false, true} {
		engine, index, match := newBlockLRU(t.Stale.Capacity), newHolders(1, all.last), make([]int, 1)
		out := SeedStale{Removals: removals}
		for range t.Stale.Passes {
			for _, path := range paths {
				index.depths(path, match)
				// Prompts of whole blocks, which the engine may reuse to the last one.
				q := sequence{path: path, prompt: len(path), usable: len(path), total: len(path)}
				if !engine.begin(&q) {
					return fmt.Errorf("a request of %d blocks, and the cache has %d", len(path), t.Stale.Capacity)
				}
				engine.finish(&q)
				for _, c := range engine.changes() {
					switch {
					case !c.removed:
						index.add(0, c.block)
					case removals:
						index.remove(0, c.block)
					}
				}
				out.Believed += match[0]
				out.Served += q.hits
				out.Asked += len(path)
			}
		}
		s.Stale = append(s.Stale, out)
	}
	return nil
}
