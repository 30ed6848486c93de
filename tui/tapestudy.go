package tui

import (
	"fmt"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// origin says how a block became known to us.
type origin struct {
	// found says that a store of it is on the tape, in batch seq; removed that
	// a removal lies between; cleared that a clear does, and no store.
	found, removed, cleared bool
	seq, removedSeq         uint64
	// at is its place in the chain, from 0, or -1 where the chain's beginning
	// is not on the tape.
	at int
	// parent and index lead up the chain: it was block index of a store below
	// parent.
	parent wire.Handle
	index  int
}

// study is what is worked out once about a batch that is looked at.
type study struct {
	entry *observe.Entry
	bytes []stretch
	// parents is the origin of each event's parent.
	parents []origin
	// first is each stored event's first block's place in its chain, or -1.
	first []int
	// reach is the oldest batch of the same epoch on the tape; started says that
	// it is the first that was ever seen of it.
	reach   uint64
	started bool
	// lines are the fields of event linesOf at a width, as the tokenizer was in
	// linesState.
	lines               []fieldLine
	linesOf, linesWidth int
	linesState          string
	// tokens says which bytes each token of event tokensOf is; see tokenBytes.
	tokens   []stretch
	tokensOf int
}

// newStudy looks back through the tape for the parents of a batch's blocks, and
// for theirs. Handles are valid within one life of the publisher.
func newStudy(tape []*observe.Entry, e *observe.Entry, r *diagnose.Replica) *study {
	st := &study{entry: e, tokensOf: -1, bytes: eventBytes(e.Payload, e.Batch.Events), reach: e.Batch.Seq}
	born := lifeBegan(births(r), e.At)
	at := len(tape) - 1
	for at >= 0 && tape[at] != e {
		at--
	}
	known := map[wire.Handle]*origin{}
	open := 0 // how many of known are not found yet
	cleared := false
	for i := at; i >= 0 && !cleared; i-- {
		old := tape[i]
		if old.Replica != e.Replica || old.At < born {
			continue
		}
		st.reach = old.Batch.Seq
		if i != at && open == 0 {
			continue // only reach is still of interest
		}
		for k := len(old.Batch.Events) - 1; k >= 0 && !cleared; k-- {
			open += lookBack(known, &old.Batch.Events[k], old.Batch.Seq, i == at)
			cleared = old.Batch.Events[k].Kind == wire.Cleared
		}
	}
	for _, o := range known {
		o.cleared = cleared && !o.found
	}
	st.started = cleared || r != nil && r.Epoch > 0 && (st.reach == 0 || st.reach == r.First)
	for i := range e.Batch.Events {
		ev := &e.Batch.Events[i]
		var o origin
		first := -1
		if k := known[ev.Parent]; k != nil {
			o = *k
			o.at = depth(known, ev.Parent) - 1
			first = o.at + 1
			if o.at < 0 {
				first = -1
			}
		} else if !ev.Parent.Set && ev.Kind == wire.Stored {
			first = 0
		}
		st.parents, st.first = append(st.parents, o), append(st.first, first)
	}
	return st
}

// lookBack takes from an event what it says about the blocks that are looked
// for, then adds its parent to them where that is of interest. It gives the
// change in how many are looked for.
func lookBack(known map[wire.Handle]*origin, e *wire.Event, seq uint64, own bool) (change int) {
	wanted := own
	for i, h := range e.Hashes {
		o := known[h]
		if o == nil || o.found {
			continue
		}
		switch e.Kind {
		case wire.Stored:
			o.found, o.seq, o.parent, o.index = true, seq, e.Parent, i
			wanted = true
			change--
		case wire.Removed:
			if !o.removed {
				o.removed, o.removedSeq = true, seq
			}
		}
	}
	if wanted && e.Kind == wire.Stored && e.Parent.Set && known[e.Parent] == nil {
		known[e.Parent] = &origin{}
		change++
	}
	return change
}

// depth gives the number of blocks of a chain that ends with h, or 0 where its
// beginning is not known.
func depth(known map[wire.Handle]*origin, h wire.Handle) int {
	n := 0
	for steps := 0; h.Set; steps++ {
		o := known[h]
		if o == nil || !o.found || steps > len(known) { // a hostile chain can be a ring
			return 0
		}
		n += o.index + 1
		h = o.parent
	}
	return n
}

// parentWords says what is known of an event's parent.
func (st *study) parentWords(i int, r *diagnose.Replica) string {
	o := st.parents[i]
	seq := st.entry.Batch.Seq
	switch {
	case o.found && o.removed:
		return fmt.Sprintf("known: stored in batch %s, removed in %s", wire.Grouped(o.seq), wire.Grouped(o.removedSeq))
	case o.found && o.seq == seq:
		return "known: stored in this batch"
	case o.found:
		return "known: stored in batch " + wire.Grouped(o.seq)
	case o.cleared:
		return "unknown: not announced since the cache was cleared"
	}
	if r != nil {
		for k := len(r.Gaps) - 1; k >= 0; k-- {
			if g := r.Gaps[k]; !g.Healed && g.Epoch == r.Epoch && g.From <= seq {
				return fmt.Sprintf("unknown: perhaps in the gap %s–%s", wire.Grouped(g.From), wire.Grouped(g.To))
			}
		}
	}
	if st.started && st.reach > 0 {
		return "unknown: from before we joined at batch " + wire.Grouped(st.reach)
	}
	if st.started {
		return "unknown: never announced"
	}
	return "not on the tape, which begins at batch " + wire.Grouped(st.reach)
}
