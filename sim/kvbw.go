package sim

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// KVBWParams shape a kvbench workload. The same parameters always give the
// same workload, byte for byte the one of the Rust generator that was run
// against the crates of Dynamo 1.6.1.
type KVBWParams struct {
	Workers  int // replicas, at least 1
	Sessions int // conversations to ingest, at least 1
	Cap      int // blocks that a worker holds before it evicts
	Queries  int
	Seed     uint64
}

// The workloads with published numbers.
var (
	// KVBWSmall has the expected scores in testdata/small.scores.jsonl.
	KVBWSmall = KVBWParams{Workers: 8, Sessions: 300, Cap: 3000, Queries: 500, Seed: 7}
	// KVBW64 is the one that indexes are measured on: 66 MB as a file.
	KVBW64 = KVBWParams{Workers: 64, Sessions: 9000, Cap: 20000, Queries: 10000, Seed: 42}
)

// KVBWBlockSize is the block size that the file states, in tokens. Workloads
// hold hashes only.
const KVBWBlockSize = 16

// KVBWOp is what an event does.
type KVBWOp uint8

// The operations, numbered as in the file. Generated workloads never clear.
const (
	KVBWStore KVBWOp = iota
	KVBWRemove
	KVBWClear
)

// KVBWBlock is a stored block: the rolling hash of the sequence up to and with
// it, and the hash of its own tokens.
type KVBWBlock struct{ Seq, Local uint64 }

// KVBWEvent is one cache event of one worker.
type KVBWEvent struct {
	Op     KVBWOp
	Worker uint32 // from 0
	ID     uint64 // counts the events of a worker from 1
	// HasParent and Parent, the sequence hash before the first block, are for
	// a store; a store without a parent starts a sequence.
	HasParent bool
	Parent    uint64
	Blocks    []KVBWBlock // for a store
	Hashes    []uint64    // sequence hashes, for a remove
}

// KVBW is a kvbench workload: events to ingest in order, then queries, each a
// prompt as the local hashes of its blocks.
type KVBW struct {
	Workers int
	Events  []KVBWEvent
	Queries [][]uint64
}

// splitmix64 is Vigna's generator, which the workload is defined by.
type splitmix64 uint64

func (s *splitmix64) next() uint64 {
	*s += 0x9E3779B97F4A7C15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// below gives a number in [0, n), with the bias that the definition has.
func (s *splitmix64) below(n int) int { return int(s.next() % uint64(n)) }

// extend appends fresh local hashes up to n blocks.
func (s *splitmix64) extend(locals []uint64, n int) []uint64 {
	for len(locals) < n {
		locals = append(locals, s.next())
	}
	return locals
}

// Shape of the workload, in blocks.
const (
	prefixes     = 64  // shared system prompts
	minPrefix    = 16  // their length: 16 to 128
	spanPrefix   = 113 //
	minSession   = 64  // a session's length: 64 to 512
	spanSession  = 449 //
	prefillChunk = 128 // a store of the prefill phase
	decodeTail   = 8   // blocks that arrive one by one
	removeChunk  = 16  // hashes in a remove
)

// kvbwGen holds the workload in the making.
type kvbwGen struct {
	rng      splitmix64
	out      *KVBW
	prefixes [][]uint64
	sessions [][]uint64 // local hashes of each
	workers  []kvbwWorker
}

// kvbwWorker knows what its sessions hold: a block is resident while one of
// the sessions that are not evicted has it.
type kvbwWorker struct {
	holders map[uint64]int
	oldest  [][]uint64 // sequence hashes of the sessions, in order of arrival
	nextID  uint64
}

// GenerateKVBW makes a workload. It needs memory of about the size of the
// file: 3 MB for KVBWSmall, 66 MB for KVBW64.
func GenerateKVBW(p KVBWParams) *KVBW {
	g := kvbwGen{rng: splitmix64(p.Seed), out: &KVBW{Workers: p.Workers}}
	for range prefixes {
		n := minPrefix + g.rng.below(spanPrefix)
		g.prefixes = append(g.prefixes, g.rng.extend(nil, n))
	}
	g.workers = make([]kvbwWorker, p.Workers)
	for i := range g.workers {
		g.workers[i] = kvbwWorker{holders: map[uint64]int{}, nextID: 1}
	}
	for range p.Sessions {
		locals := g.session()
		w := g.rng.below(p.Workers)
		g.store(w, locals)
		g.evict(w, p.Cap)
		g.sessions = append(g.sessions, locals)
	}
	for range p.Queries {
		g.out.Queries = append(g.out.Queries, g.query())
	}
	return g.out
}

// prefix picks a shared prefix; low numbers are more popular.
func (g *kvbwGen) prefix() []uint64 {
	a := g.rng.below(prefixes)
	return g.prefixes[a*g.rng.below(prefixes)/prefixes]
}

// session makes the next session: a shared prefix and new blocks, or, one time
// in three, an earlier session (a further turn) and new blocks.
func (g *kvbwGen) session() []uint64 {
	base := g.prefix()
	n := minSession + g.rng.below(spanSession)
	if len(g.sessions) > 0 && g.rng.below(3) == 0 {
		base = g.sessions[g.rng.below(len(g.sessions))]
	}
	return g.rng.extend(slices.Clone(base[:min(len(base), n)]), n)
}

// store announces the part of a session that the worker does not hold.
func (g *kvbwGen) store(worker int, locals []uint64) {
	w := &g.workers[worker]
	seqs := SequenceHashes(locals)
	first := 0
	for first < len(seqs) && w.holders[seqs[first]] > 0 {
		first++
	}
	for _, h := range seqs {
		w.holders[h]++
	}
	w.oldest = append(w.oldest, seqs)

	prefilled := max(len(seqs)-decodeTail, first)
	for i := first; i < len(seqs); {
		n := 1
		if i < prefilled {
			n = min(prefilled-i, prefillChunk)
		}
		e := KVBWEvent{Op: KVBWStore, Blocks: make([]KVBWBlock, n)}
		if i > 0 {
			e.HasParent, e.Parent = true, seqs[i-1]
		}
		for k := range e.Blocks {
			e.Blocks[k] = KVBWBlock{Seq: seqs[i+k], Local: locals[i+k]}
		}
		g.emit(worker, e)
		i += n
	}
}

// evict drops whole sessions, oldest first and each from its tail, until the
// worker is under its capacity.
func (g *kvbwGen) evict(worker, capacity int) {
	w := &g.workers[worker]
	for len(w.holders) > capacity {
		session := w.oldest[0]
		w.oldest = w.oldest[1:]
		var gone []uint64
		for _, h := range slices.Backward(session) {
			w.holders[h]--
			if w.holders[h] == 0 {
				delete(w.holders, h)
				gone = append(gone, h)
			}
		}
		for hashes := range slices.Chunk(gone, removeChunk) {
			g.emit(worker, KVBWEvent{Op: KVBWRemove, Hashes: hashes})
		}
	}
}

func (g *kvbwGen) emit(worker int, e KVBWEvent) {
	w := &g.workers[worker]
	e.Worker, e.ID = uint32(worker), w.nextID
	w.nextID++
	g.out.Events = append(g.out.Events, e)
}

// query makes a prompt to look up: in ten, five recent sessions in full, three
// with a shared prefix, one that continues a session, one never seen.
func (g *kvbwGen) query() []uint64 {
	switch k := g.rng.below(10); {
	case k < 5:
		recent := g.sessions[len(g.sessions)/2:]
		return recent[g.rng.below(len(recent))]
	case k < 8:
		base := slices.Clone(g.prefix())
		return g.rng.extend(base, minSession+g.rng.below(spanSession))
	case k < 9:
		base := slices.Clone(g.sessions[g.rng.below(len(g.sessions))])
		return g.rng.extend(base, len(base)+1+g.rng.below(64))
	}
	return g.rng.extend(nil, minSession+g.rng.below(spanSession))
}

// SequenceHashes chains local hashes by Dynamo's recipe: the first is its own
// sequence hash, each further one is XXH3-64 with seed 1337 over the hash
// before it and the local hash, both little-endian.
func SequenceHashes(locals []uint64) []uint64 {
	const seed = 1337
	seqs := make([]uint64, len(locals))
	var b [16]byte
	for i, l := range locals {
		if i == 0 {
			seqs[0] = l
			continue
		}
		binary.LittleEndian.PutUint64(b[:8], seqs[i-1])
		binary.LittleEndian.PutUint64(b[8:], l)
		seqs[i] = xxh3.HashSeed(b[:], seed)
	}
	return seqs
}
