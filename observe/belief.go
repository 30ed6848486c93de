package observe

import (
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// Belief is what a router's index says that replicas hold.
type Belief struct {
	// Source is the file or address that it came from.
	Source string
	Held   []Held
	// First says that another look follows, and nothing is told of this one.
	First bool
}

// Held is what it says of one replica.
type Held struct {
	// Replica is our name of it, or the router's where no other is known.
	Replica wire.Replica
	// Model is empty and BlockSize, in tokens, 0 where it does not say.
	Model     string
	BlockSize int
	// Blocks are the sequence hashes on each tier, in order, each once; Unplaced
	// counts those that have none.
	Blocks   [wire.NumTiers][]uint64
	Unplaced int
}

// spot is a block on a tier.
type spot struct {
	seq  uint64
	tier wire.Tier
}

// difference is what differs of one replica: blocks of the router's alone, and whether
// they are known to have been removed; and ours alone, and whether they have an adapter
// or a salt.
type difference struct {
	diagnose.Divergence
	held           [][wire.NumTiers][]uint64
	stale, missing map[spot]bool
}

// Believe compares a router's index with ours as it is now, for the check
// router-divergence. At a second look only what differed in the first one too counts:
// the rest was on its way. The error says that the router's replicas are none of ours.
func (o *Observer) Believe(b Belief) error {
	rows, out := o.beliefRows(&b)
	if len(rows) == 0 && len(out.Strangers) > 0 {
		return fmt.Errorf("%s: none of its replicas is observed here, %s for one: say with --map %[2]s=REPLICA what it is called here",
			b.Source, wire.Printable(string(out.Strangers[0])))
	}
	o.addUnnamed(rows, &b)
	o.idx.Residents(func(name wire.Replica, tier wire.Tier, seq uint64, ns blockhash.Namespace) {
		d := rows[name]
		if d == nil {
			return
		}
		d.Ours++
		if d.has(spot{seq, tier}) {
			d.Both++
			return
		}
		d.missing[spot{seq, tier}] = ns != 0
	})
	for name, d := range rows {
		for _, held := range d.held {
			for tier, seqs := range held {
				for _, seq := range seqs {
					if now, once := o.idx.Had(name, wire.Tier(tier), seq); !now {
						d.stale[spot{seq, wire.Tier(tier)}] = once
					}
				}
			}
		}
		d.count(o.differed != nil, o.differed[name])
		out.Rows = append(out.Rows, d.Divergence)
	}
	slices.SortFunc(out.Rows, func(a, b diagnose.Divergence) int { return compareNames(a.Replica, b.Replica) })
	if o.differed = rows; b.First {
		return nil
	}
	if o.belief != nil {
		out.Decided = o.belief.Decided
	}
	o.belief = &out
	return nil
}

// beliefRows sorts the router's replicas by whether they are ours.
func (o *Observer) beliefRows(b *Belief) (map[wire.Replica]*difference, diagnose.Belief) {
	out := diagnose.Belief{Source: b.Source, At: o.now, RelayLoss: o.watch.Open("relay-loss")}
	rows := map[wire.Replica]*difference{}
	for i := range b.Held {
		h := &b.Held[i]
		n := h.Unplaced
		for _, seqs := range h.Blocks {
			n += len(seqs)
		}
		if _, ours := o.tracker.State(h.Replica); !ours {
			out.Strangers = append(out.Strangers, h.Replica)
			out.StrangeBlocks += n
			continue
		}
		d := rows[h.Replica]
		if d == nil {
			d = newDifference(h.Replica)
			rows[h.Replica] = d
		}
		d.held = append(d.held, h.Blocks)
		d.BlockSize, d.Unplaced, d.Router = h.BlockSize, d.Unplaced+h.Unplaced, d.Router+n
	}
	slices.Sort(out.Strangers)
	out.Strangers = slices.Compact(out.Strangers) // one can be in several groups
	return rows, out
}

func newDifference(name wire.Replica) *difference {
	return &difference{
		Divergence: diagnose.Divergence{Replica: name}, stale: map[spot]bool{}, missing: map[spot]bool{},
	}
}

// addUnnamed adds the replicas of which the router holds nothing: those of the same
// models, and on the same side of Dynamo's relay as those that it names, or all where it
// names none.
func (o *Observer) addUnnamed(rows map[wire.Replica]*difference, b *Belief) {
	const plane = "dynamo-plane"
	sides, models := map[bool]bool{}, map[string]bool{"": true}
	for name := range rows {
		sides[o.tracker.Dialect(name) == plane] = true
	}
	anyModel := len(b.Held) == 0
	for i := range b.Held {
		models[b.Held[i].Model] = true
		anyModel = anyModel || b.Held[i].Model == ""
	}
	for _, name := range o.tracker.Names() {
		s, _ := o.tracker.State(name)
		if rows[name] == nil && s.Heard && s.Link != wire.LinkGone && (len(sides) == 0 || sides[s.Dialect == plane]) && (anyModel || models[o.models[name]]) {
			rows[name] = newDifference(name)
		}
	}
}

// has reports whether the router holds a block.
func (d *difference) has(at spot) bool {
	for _, held := range d.held {
		if _, found := slices.BinarySearch(held[min(at.tier, wire.NumTiers-1)], at.seq); found {
			return true
		}
	}
	return false
}

// count counts what differs, and of a second look what differed in the first one too.
func (d *difference) count(second bool, first *difference) {
	if first == nil {
		first = newDifference(d.Replica)
	}
	add := func(n, of *int, side, before map[spot]bool) {
		for at, marked := range side {
			if _, was := before[at]; second && !was {
				d.Passing++
				continue
			}
			*n++
			*of += b2i(marked)
		}
	}
	add(&d.Stale, &d.Gone, d.stale, first.stale)
	add(&d.Missing, &d.Keyed, d.missing, first.missing)
	d.held = nil // not needed any more
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Believe compares a router's index with ours as of now.
func (l *Live) Believe(b Belief) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = nil
	return l.obs.Believe(b)
}
