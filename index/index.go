package index

import (
	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/hashtable"
	"github.com/kvscope/kvscope/wire"
)

// Options bound an Index. Zero values take the defaults.
type Options struct {
	// MaxBlocks is how many distinct blocks are kept, those that are resident
	// nowhere any more included (default 8 Mi, about 1 GB).
	MaxBlocks int
	// History is how many evictions are remembered at least, for the ledger and
	// for parents named after their eviction (default 64 Ki); as many as there
	// are resident blocks always are.
	History int
	// MaxOrphans is how many blocks whose chain is unknown are kept for each
	// replica (default 256 Ki).
	MaxOrphans int
	// MaxText bounds the tokens kept to show where prompts part, in bytes; the
	// oldest go first (default 128 MiB).
	MaxText int
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		v  *int
		is int
	}{{&o.MaxBlocks, 8 << 20}, {&o.History, 64 << 10}, {&o.MaxOrphans, 256 << 10}, {&o.MaxText, 128 << 20}} {
		if *d.v <= 0 {
			*d.v = d.is
		}
	}
	return o
}

// nodeID is a place in Index.nodes, and slotID one in Index.slots. Place 0 is
// no node and no slot; as a node it is the parent of all roots.
type (
	nodeID int32
	slotID int32
)

const (
	none   nodeID = 0
	noSlot slotID = 0
)

// Index is the shadow index of a fleet. Nodes and slots live in two arrays and
// name each other by place: no pointers, so that a million of them cost the
// collector nothing and a Clone is a few copies.
type Index struct {
	opt       Options
	nodes     []node
	freeNodes nodeID // first of a list through node.next
	slots     []slot
	freeSlots slotID                  // first of a list through slot.next
	bySeq     hashtable.Table[nodeID] // sequence hash → node
	known     int
	replicas  map[wire.Replica]*replica
	byID      []*replica
	// waiting lists, for the handle of a missing parent, the replicas where a
	// chain waits for it.
	waiting map[uint64][]int32
	roots   rootTable
	// joined says that replicas turned out to share a root in this operation.
	joined bool
	full   int  // blocks to be left out before handles are looked through again
	dead   ring // evictions remembered, oldest first
	pairs  int  // slots with a count above 0
	clock  uint64
	text   *textLog
	// resident counts blocks that are somewhere, shared those on more than one
	// replica.
	resident, shared int
	// Collisions counts blocks whose content hash was already taken by other
	// content; they are not indexed.
	Collisions uint64
	scratch    *matcher
}

// New makes an empty Index.
func New(opt Options) *Index {
	opt = opt.withDefaults()
	return &Index{
		opt: opt, nodes: make([]node, 1), slots: make([]slot, 1),
		replicas: map[wire.Replica]*replica{}, waiting: map[uint64][]int32{},
		roots: newRootTable(), text: newTextLog(opt.MaxText), scratch: new(matcher),
	}
}

// node is one block of content.
type node struct {
	local uint64
	seq   uint64
	// ns is the seed of the local hashes along the chain: LoRA and salt.
	ns blockhash.Namespace
	// handle is one engine's hash for this block and root the hash root under
	// which it is valid, 0 for none.
	handle uint64
	root   rootID
	parent nodeID
	// child is the first child; next and prev are siblings.
	child, next, prev nodeID
	first             slotID
	depth             int32 // blocks from the root, this one included
	// refs counts the table entries that lead here, and holders the replicas
	// where it is resident.
	refs, holders int32
}

// slot is the residency of a node on one replica, group and tier. A slot whose
// count fell to 0 stays for a while: the block was there once.
type slot struct {
	next    slotID
	rep     int32
	n       int32
	gen     uint32 // the replica's doubt generation of the last evidence
	kids    int32  // children resident in the same slot (replica, group, tier)
	stamp   uint32 // see replica.stamp
	group   int16
	tier    wire.Tier
	implied bool // resident by proof, not by its own announcement
	held    bool // was resident at some time
}

// replica is what the index knows of one replica.
type replica struct {
	id    int32
	name  wire.Replica
	model string
	table hashtable.Table[nodeID] // handle → block, also for remembered evictions
	// orphans are blocks whose content hash is not known, by handle.
	orphans map[uint64]*orphan
	// gone remembers removals of handles that were not known, with the clock
	// of the removal.
	gone     map[uint64]uint64
	goneKeys []uint64
	// gen counts doubts: evidence of an older generation is not certain.
	gen uint32
	// stamp changes when a block is removed from the middle of a chain or
	// doubt arises; a slot with the current stamp has all its ancestors.
	stamp uint32
	// epoch is the doubt generation at which this life of the process began.
	epoch uint32
	ident identity
	stats Stats
	// blockSize and bigram are those of the newest device store; sized says
	// that there was one which told.
	blockSize int
	bigram    bool
	sized     bool
	bytes     bool // handles come as byte strings
	// single says that copies of a block are not told apart: Dynamo's relay
	// counts them itself, and passes on only the removal of the last one.
	single bool
	groups []group
}
