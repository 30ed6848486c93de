package index

import "github.com/kvscope/kvscope/wire"

// Stats of a replica. Blocks are distinct unless said otherwise.
type Stats struct {
	// Resident counts distinct blocks with attached chains for each tier.
	Resident [wire.NumTiers]int
	// Implied counts those of Resident that no event announced.
	Implied int
	// Orphans counts resident blocks of chains whose beginning is unknown.
	Orphans int
	// OrphanParents counts stores that named a parent never announced.
	OrphanParents uint64
	// Copies is the sum of all counts on the device tier, groups and orphans
	// included; held against the capacity.
	Copies int
	// MaxCopies is the largest value that Copies had since the last clear.
	MaxCopies int
	// LastClear and LastDrop are how many of Copies the newest clear and the newest
	// restart took away.
	LastClear, LastDrop int
	// Stored, Removed and Cleared count blocks over all tiers and groups.
	Stored, Removed, Cleared uint64
	// Duplicates counts blocks stored while already resident in that tier.
	Duplicates uint64
	// UnknownRemovals counts removals of blocks that were not resident.
	UnknownRemovals uint64
	// Misaligned counts stores whose hashes and tokens do not align.
	Misaligned uint64
	// Unindexed counts blocks dropped because a bound was reached.
	Unindexed uint64
	// Ledger classifies every block stored on the device tier.
	Ledger Ledger
	// Turns tell where requests went, as far as stores show it.
	Turns Turns
	// BlockSize in tokens and Bigram are those of the newest store, or of
	// SetBlockSize.
	BlockSize int
	Bigram    bool
	// Recipe is the hash recipe with its root, "" while unidentified.
	Recipe string
	// Groups lists the KV-cache groups seen.
	Groups []Group
}

// Group describes a KV-cache group of a hybrid model.
type Group struct {
	ID     int
	Spec   string
	Window int // tokens, 0 if none
}

// Ledger says why blocks had to be stored.
type Ledger struct {
	First            uint64 // new work
	Elsewhere        uint64 // resident on another replica at that moment: routing
	EvictedHere      uint64 // was here before: capacity
	EvictedElsewhere uint64 // was on another replica before
	Duplicate        uint64 // was resident here
	Unattached       uint64 // its chain's beginning is unknown
}

// Add sums two ledgers.
func (l Ledger) Add(m Ledger) Ledger {
	l.First += m.First
	l.Elsewhere += m.Elsewhere
	l.EvictedHere += m.EvictedHere
	l.EvictedElsewhere += m.EvictedElsewhere
	l.Duplicate += m.Duplicate
	l.Unattached += m.Unattached
	return l
}

// Stats gives a replica's numbers; zero for one never seen.
func (x *Index) Stats(name wire.Replica) Stats {
	r := x.replicas[name]
	if r == nil {
		return Stats{}
	}
	s := r.stats
	s.BlockSize, s.Bigram, s.Recipe = r.blockSize, r.bigram, x.recipe(r).Name()
	s.Groups = make([]Group, len(r.groups))
	for i, g := range r.groups {
		s.Groups[i] = Group{ID: int(g.id), Spec: g.spec, Window: g.window}
	}
	return s
}

// Blocks gives the number of distinct blocks known, how many of them are
// resident somewhere, and how many on more than one replica.
func (x *Index) Blocks() (known, resident, shared int) { return x.known, x.resident, x.shared }

// Root tells hash roots apart: replicas with the same number are known to give equal
// blocks equal handles. Of different ones that is not known. It is 0 for a replica
// never seen.
func (x *Index) Root(name wire.Replica) int {
	if r := x.replicas[name]; r != nil {
		return int(x.roots.find(r.ident.root))
	}
	return 0
}

// MaxBlocks is how many distinct blocks are kept.
func (x *Index) MaxBlocks() int { return x.opt.MaxBlocks }

// Holds reports whether a replica has a block in a place, by its handle.
func (x *Index) Holds(name wire.Replica, at Place, h wire.Handle) bool {
	r := x.replicas[name]
	if r == nil {
		return false
	}
	at = at.inBounds()
	id := r.table.Get(key(h))
	if id == none {
		return false
	}
	s := x.find(id, r.id, int16(at.Group), at.Tier)
	return s != nil && s.n > 0
}

// SetModel says which model a replica serves. Replicas of different models
// never count as "elsewhere" and answer only queries for their model.
func (x *Index) SetModel(name wire.Replica, model string) { x.replica(name).model = model }

// SetBlockSize says how many tokens a block of a replica has, where its events
// do not tell: those of Dynamo's event plane. Prompts are matched only then.
func (x *Index) SetBlockSize(name wire.Replica, tokens int) {
	if r := x.replica(name); tokens > 0 && !r.sized {
		r.blockSize = tokens
	}
}
