package stream

import (
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// NotReplayed is the reason of a gap until it is healed or another is known.
const NotReplayed = "not replayed"

// NotKept is the reason of a gap before the first batch of an answer, NeverSent that
// of one between two of its batches.
const (
	NotKept   = "no longer in the publisher's replay buffer, or never sent"
	NeverSent = "never sent, as the publisher's replay has the batches around them"
)

// loss says why batches are missing; see Gap.
type loss struct {
	reason string
	cause  Cause
	kept   uint64
}

func (g *Gap) lost(why loss) { g.Reason, g.Cause, g.Kept = why.reason, why.cause, why.kept }

// openGap notes that batches behind all that were seen are missing.
func (r *replica) openGap(from, to uint64, at wire.Time, why string) {
	r.mark(Mark{At: at, Kind: MarkGap, Seq: from, To: to})
	r.Gaps = append(r.Gaps, Gap{From: from, To: to, Epoch: r.Epoch, Seen: at, Reason: why})
	r.missing += to - from + 1
	r.trimGaps()
}

func (r *replica) trimGaps() {
	for len(r.Gaps) > history {
		r.Gaps = r.Gaps[1:]
		r.GapsLost++
	}
}

// gapAt finds the first gap of this epoch that ends at seq or behind.
func (r *replica) gapAt(seq uint64) int {
	i, _ := slices.BinarySearchFunc(r.Gaps, seq, func(g Gap, seq uint64) int {
		switch {
		case g.Epoch != r.Epoch, g.To < seq:
			return -1
		}
		return 1
	})
	return i
}

// split makes gap boundaries before from and behind to.
func (r *replica) split(from, to uint64) {
	for _, at := range [2]uint64{from, to + 1} {
		i := r.gapAt(at)
		if i == len(r.Gaps) || r.Gaps[i].From >= at {
			continue
		}
		rest := r.Gaps[i]
		r.Gaps[i].To, rest.From = at-1, at
		r.Gaps = slices.Insert(r.Gaps, i+1, rest)
	}
}

// heal notes that a missing batch came after all.
func (r *replica) heal(seq uint64, at wire.Time) {
	i := r.gapAt(seq)
	if i == len(r.Gaps) || r.Gaps[i].From > seq || r.Gaps[i].Healed {
		if r.blank <= seq && seq < r.next && !r.isHeld(seq) {
			r.missing-- // its gap fell off the list
		}
		return
	}
	r.missing--
	done := r.Gaps[i].To == seq
	r.split(seq, seq)
	i = r.gapAt(seq)
	g := &r.Gaps[i]
	g.Healed, g.HealedAt = true, at
	g.lost(loss{})
	if i > 0 {
		if p := &r.Gaps[i-1]; p.Healed && p.Epoch == g.Epoch && p.To+1 == g.From && p.Seen == g.Seen {
			p.To, p.HealedAt = g.To, g.HealedAt
			r.Gaps = slices.Delete(r.Gaps, i, i+1)
			i--
		}
	}
	if done {
		r.mark(Mark{At: at, Kind: MarkHealed, Seq: r.Gaps[i].From, To: seq})
	}
	r.trimGaps()
}

// settle notes that a run of batches will not come, and why. What of it was not
// known to be missing becomes a gap.
func (r *replica) settle(from, to uint64, at wire.Time, why loss) {
	r.split(from, to)
	first := r.gapAt(from)
	last := first
	var gaps []Gap
	rest := from // what is not yet accounted for
	for ; last < len(r.Gaps) && r.Gaps[last].From <= to; last++ {
		g := r.Gaps[last]
		gaps = r.unnoted(gaps, rest, g.From, at, why)
		if g.Healed { // and then forgotten, when a replay began to rebuild the replica
			g.Healed, g.HealedAt = false, 0
			r.missing += g.To - g.From + 1
		}
		g.lost(why)
		gaps = append(gaps, g)
		rest = g.To + 1
	}
	gaps = r.unnoted(gaps, rest, to+1, at, why)
	r.Gaps = slices.Replace(r.Gaps, first, last, gaps...)
	r.trimGaps()
}

// unnoted adds to gaps what of the batches from seq to before end was neither
// seen nor known to be missing.
func (r *replica) unnoted(gaps []Gap, seq, end uint64, at wire.Time, why loss) []Gap {
	add := func(seq, end uint64) {
		if seq < end {
			g := Gap{From: seq, To: end - 1, Epoch: r.Epoch, Seen: at}
			g.lost(why)
			gaps = append(gaps, g)
			r.missing += end - seq
			r.mark(Mark{At: at, Kind: MarkGap, Seq: seq, To: end - 1})
		}
	}
	if r.blank >= r.next {
		add(seq, end)
		return gaps
	}
	add(seq, min(end, r.blank))
	add(max(seq, r.next), end)
	return gaps
}
