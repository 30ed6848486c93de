package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// EngineOptions of an Engine. Zero values mean the defaults given.
type EngineOptions struct {
	// Blocks is the size of the cache, without vLLM's null block: 2,000.
	Blocks int
	// BlockSize is in tokens: 16.
	BlockSize int
	// StepTokens is how many tokens one step computes at most: 2,048. Longer
	// prompts take several steps.
	StepTokens int
	// Running is how many requests are served at a time: 64.
	Running int
	// Seed is what block hashes start from: vllm-none-hash, as vLLM from 0.29 on
	// where PYTHONHASHSEED is unset.
	Seed string
	// NoCaching switches prefix caching off, and with it all events.
	NoCaching bool
}

// medium is how vLLM spells the tier of its own cache.
const medium = "GPU"

func (o EngineOptions) withDefaults() (EngineOptions, error) {
	o.Blocks = cmp.Or(o.Blocks, 2000)
	o.BlockSize = cmp.Or(o.BlockSize, 16)
	o.StepTokens = cmp.Or(o.StepTokens, 2048)
	o.Running = cmp.Or(o.Running, 64)
	o.Seed = cmp.Or(o.Seed, "vllm-none-hash")
	if o.Blocks < 1 || o.BlockSize < 1 || o.StepTokens < 1 || o.Running < 1 {
		return o, fmt.Errorf("an engine of %d blocks of %d tokens, %d tokens a step and %d requests at a time: each has to be at least 1",
			o.Blocks, o.BlockSize, o.StepTokens, o.Running)
	}
	if o.Blocks > maxBlocks {
		return o, fmt.Errorf("a cache of %d blocks, and %d are the limit", o.Blocks, maxBlocks)
	}
	return o, nil
}

// maxBlocks bounds a cache, which takes some 150 bytes for each block.
const maxBlocks = 1 << 20

// Job is a request for an Engine.
type Job struct {
	Prompt []wire.Token
	// Output is what the model will generate, at least one token.
	Output []wire.Token
	// SkipRead computes the whole prompt anew, as for prompt_logprobs.
	SkipRead bool
	// LoRA is the adapter, also its path, and Salt the cache salt: jobs that differ in
	// one of them share no block.
	LoRA, Salt string
	// ID is the caller's.
	ID int
}

// Served is a job that is done.
type Served struct {
	Job
	// Cached is how many prompt tokens came from the cache.
	Cached int
}

// Load is what an engine's metrics page says. Counters are since its start.
type Load struct {
	Running, Waiting int
	// Usage is the share of blocks that requests use.
	Usage float64
	// Queried prompt tokens were looked up, and Hit of them found.
	Queried, Hit        int
	Prompt, Output      int
	Finished, Preempted int
}

// Engine is a model of vLLM's scheduler and block cache: it says which blocks
// are cached, evicted and reused, and computes nothing. It knows no time and no
// network, and the same calls give the same events. It is not safe for
// concurrent use.
type Engine struct {
	opt     EngineOptions
	recipe  blockhash.Recipe
	pool    *pool
	running []*sequence
	waiting []*sequence
	load    Load
}

// sequence is a job on its way.
type sequence struct {
	job Job
	// tokens are those of prompt and output; n of them exist already, computed
	// of those have been computed.
	tokens      []wire.Token
	n, computed int
	chain       chain
	// blocks are those in use, the first stored of which are cached.
	blocks []*block
	stored int
	// cached is what the first look-up found, in tokens, -1 before it; ahead is
	// how many tokens the current step computes.
	cached, ahead int
}

// NewEngine makes an engine with an empty cache.
func NewEngine(opt EngineOptions) (*Engine, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	recipe, ok := blockhash.Named("vllm/sha256 seed=" + opt.Seed)
	if !ok {
		return nil, fmt.Errorf("block hashes cannot start from %q", opt.Seed)
	}
	recipe.Form = blockhash.Tagged // of vLLM from 0.31 on
	return &Engine{opt: opt, recipe: recipe, pool: newPool(opt.Blocks)}, nil
}

// Submit hands a job to the engine; a Step begins it. The error is that of a job
// which would never end.
func (e *Engine) Submit(j Job) error {
	total := len(j.Prompt) + len(j.Output)
	switch {
	case len(j.Prompt) == 0 || len(j.Output) == 0:
		return fmt.Errorf("a job of %d prompt and %d output tokens: both have to be at least 1", len(j.Prompt), len(j.Output))
	case e.blocksFor(total) > e.opt.Blocks:
		return fmt.Errorf("a job of %d tokens, and the cache holds %d", total, e.opt.Blocks*e.opt.BlockSize)
	}
	tokens := slices.Concat(j.Prompt, j.Output)
	e.waiting = append(e.waiting, &sequence{
		job: j, tokens: tokens, n: len(j.Prompt), cached: -1,
		chain: chain{recipe: e.recipe, size: e.opt.BlockSize, tokens: tokens, of: blockhash.Context{LoRA: j.LoRA, LoRAPath: j.LoRA, Salt: j.Salt}},
	})
	return nil
}

func (e *Engine) blocksFor(tokens int) int { return (tokens + e.opt.BlockSize - 1) / e.opt.BlockSize }

// Step schedules one batch of work and does it. It gives the events of the step,
// in order, none for most steps, and the jobs that it finished.
func (e *Engine) Step() ([]wire.Event, []Served) {
	if len(e.running)+len(e.waiting) == 0 {
		return nil, nil // an idle engine makes no step, so what it has to say waits
	}
	e.schedule()
	var served []Served
	e.running = slices.DeleteFunc(e.running, func(s *sequence) bool {
		s.computed += s.ahead
		s.ahead = 0
		if s.computed < s.n {
			return false
		}
		e.load.Output++
		if s.n++; s.n < len(s.tokens) {
			return false
		}
		// The last token is sampled and never computed.
		e.pool.release(s.blocks)
		e.load.Finished++
		served = append(served, Served{Job: s.job, Cached: s.cached})
		return true
	})
	events := e.pool.events
	e.pool.events = nil
	return events, served
}

// schedule gives the step's tokens first to the requests that run already, then
// to those that wait.
func (e *Engine) schedule() {
	budget, preempted := e.opt.StepTokens, false
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		n := min(s.n-s.computed, budget)
		for e.missing(s, n) > e.pool.nfree {
			victim := e.running[len(e.running)-1]
			e.preempt()
			preempted = true
			if victim == s {
				return
			}
		}
		e.compute(s, n)
		budget -= n
	}
	for !preempted && len(e.waiting) > 0 && len(e.running) < e.opt.Running && budget > 0 {
		s := e.waiting[0]
		hits := e.lookUp(s)
		found := len(hits) * e.opt.BlockSize
		n := min(s.n-found, budget)
		idle := 0
		for _, b := range hits {
			if b.refs == 0 {
				idle++
			}
		}
		if e.blocksFor(found+n)-len(hits)+idle > e.pool.nfree {
			return
		}
		e.waiting = e.waiting[1:]
		e.running = append(e.running, s)
		for _, b := range hits {
			e.pool.hold(b)
		}
		s.blocks, s.stored, s.computed = hits, len(hits), found
		if s.cached < 0 {
			s.cached = found
			e.load.Queried += s.n
			e.load.Hit += found
			e.load.Prompt += s.n
		}
		e.compute(s, n)
		budget -= n
	}
}

// missing is how many blocks it takes to compute n more tokens.
func (e *Engine) missing(s *sequence, n int) int {
	return e.blocksFor(s.computed+n) - len(s.blocks)
}

// lookUp gives the cached blocks that a request begins with. The last token is
// always computed anew.
func (e *Engine) lookUp(s *sequence) []*block {
	if e.opt.NoCaching || s.job.SkipRead {
		return nil
	}
	var hits []*block
	for i := range (s.n - 1) / e.opt.BlockSize {
		b := e.pool.find(s.chain.link(i))
		if b == nil {
			break
		}
		hits = append(hits, b)
	}
	return hits
}

// compute takes blocks for n more tokens, and caches those that will be full:
// vLLM does so when it schedules the work, before it is done.
func (e *Engine) compute(s *sequence, n int) {
	for range e.missing(s, n) {
		s.blocks = append(s.blocks, e.pool.take())
	}
	s.ahead = n
	full := (s.computed + n) / e.opt.BlockSize
	if e.opt.NoCaching || full <= s.stored {
		return
	}
	size := e.opt.BlockSize
	ev := wire.Event{
		Kind: wire.Stored, BlockSize: size, Medium: medium, Spec: "full_attention",
		Tokens: slices.Clone(s.tokens[s.stored*size : full*size]),
		Extra:  make([][]wire.ExtraKey, full-s.stored), LoRAName: s.job.LoRA,
	}
	for i := range ev.Extra {
		ev.Extra[i] = s.job.extra(s.stored + i)
	}
	parent := wire.Handle{}
	if s.stored > 0 {
		parent = wire.IntHandle(s.chain.link(s.stored - 1))
	}
	ev.Parent = parent
	for i := s.stored; i < full; i++ {
		k := key{hash: s.chain.link(i), parent: parent, tokens: slices.Clone(s.tokens[i*size : (i+1)*size])}
		e.pool.store(s.blocks[i], k)
		parent = wire.IntHandle(k.hash)
		ev.Hashes = append(ev.Hashes, parent)
	}
	s.stored = full
	e.pool.events = append(e.pool.events, ev)
}

// extra are the extra keys of block i as vLLM publishes them, none for most.
func (j *Job) extra(i int) []wire.ExtraKey {
	var out []wire.ExtraKey
	if j.LoRA != "" {
		out = append(out, wire.ExtraKey{Text: j.LoRA})
	}
	if j.Salt != "" && i == 0 {
		out = append(out, wire.ExtraKey{Text: j.Salt})
	}
	return out
}

// preempt stops the request that began last. It begins anew before all that
// wait, with what is then still cached.
func (e *Engine) preempt() {
	last := len(e.running) - 1
	s := e.running[last]
	e.running = e.running[:last]
	e.pool.release(s.blocks)
	s.blocks, s.stored, s.computed, s.ahead = nil, 0, 0, 0
	e.waiting = slices.Insert(e.waiting, 0, s)
	e.load.Preempted++
}

// Reset forgets all that is cached. While requests run it is refused, unless
// force preempts them. The event comes with the next step that is made.
func (e *Engine) Reset(force bool) bool {
	if len(e.running) > 0 && !force {
		return false
	}
	for len(e.running) > 0 {
		e.preempt()
	}
	e.pool.clear()
	return true
}

// Match is how many tokens of a prompt, without LoRA or salt, would come from the
// cache now.
func (e *Engine) Match(prompt []wire.Token) int {
	s := sequence{n: len(prompt), chain: chain{recipe: e.recipe, size: e.opt.BlockSize, tokens: prompt}}
	return len(e.lookUp(&s)) * e.opt.BlockSize
}

// Residents is the truth: all blocks that the cache holds now, by hash. What
// the events of the steps so far make is the same, but for a Reset that no step
// has followed yet; Pending tells.
func (e *Engine) Residents() []Resident { return e.pool.residents() }

// Pending reports whether events wait for the next step.
func (e *Engine) Pending() bool { return len(e.pool.events) > 0 }

// Load says what the engine does.
func (e *Engine) Load() Load {
	l := e.load
	l.Running, l.Waiting = len(e.running), len(e.waiting)
	l.Usage = 1 - float64(e.pool.nfree)/float64(e.opt.Blocks)
	return l
}

// Jobs gives the IDs of the jobs that are not done.
func (e *Engine) Jobs() []int {
	var out []int
	for _, s := range slices.Concat(e.running, e.waiting) {
		out = append(out, s.job.ID)
	}
	return out
}

// chain names the blocks of a sequence, as far as it was asked for them.
type chain struct {
	recipe blockhash.Recipe
	size   int
	tokens []wire.Token
	of     blockhash.Context
	links  []blockhash.Link
}

// link gives the hash of block i, which has to be complete.
func (c *chain) link(i int) uint64 {
	for len(c.links) <= i {
		var parent blockhash.Digest
		at := len(c.links)
		if at > 0 {
			parent = c.links[at-1].Digest
		}
		links, err := blockhash.Chain(c.recipe, parent, blockhash.Run[wire.Token]{
			Context: c.of, Tokens: c.tokens[at*c.size : (at+1)*c.size], BlockSize: c.size,
		})
		if err != nil { // vLLM's recipes fail on extra keys alone
			panic(err)
		}
		c.links = append(c.links, links...)
	}
	return c.links[i].Handle
}
