package stream

import (
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// Bounds on the live batches that are held back while a replay runs.
const (
	// unaskedHold is how many a replica may hold where Options.Hold is 0 and a
	// replay runs all the same, as in a recording.
	unaskedHold = 4096
	// maxHeldBytes bounds what all replicas together hold.
	maxHeldBytes = 256 << 20
	// heldCost is what a held batch takes besides its payload.
	heldCost = 256
)

// replay is how far the replay of a replica is.
type replay struct {
	// wanted says that a Want was not carried out yet.
	wanted bool
	// last is the first batch that the newest Want was about; asked says that
	// there was one in this epoch.
	last  uint64
	asked bool
	// running says that an answer is on its way, and answered counts its
	// batches so far.
	running  bool
	answered int
	// from is the batch that was asked for.
	from uint64
	// whole says that the answer is to all that the publisher still has.
	whole bool
	// abandoned says that the process which answers is gone.
	abandoned bool
}

// want asks for a replay from a batch on; from can lie before it.
func (t *Tracker) want(r *replica, at wire.Time, missing, from uint64) {
	r.replay.wanted, r.replay.asked, r.replay.last = true, true, missing
	t.emit(r, Step{Kind: Want, At: at, From: from})
}

// hold keeps a live batch, newer than all seen, back until the replay is over.
func (t *Tracker) hold(r *replica, a arrival) {
	seq := a.batch.Seq
	if from := max(r.next, r.expect); seq > from {
		if r.lived {
			r.openGap(from, seq-1, a.at, NotReplayed)
		} else {
			r.blank = seq // nothing live came before, so nothing was missed yet
		}
	}
	r.saw(seq)
	// Events take many times the memory of the payload: they are decoded again.
	a.batch.Events, a.undecoded = nil, true
	r.held = append(r.held, a)
	r.heldBytes += a.cost()
	t.heldBytes += a.cost()
	limit := t.opt.Hold
	if limit <= 0 {
		limit = unaskedHold
	}
	if len(r.held) > limit {
		t.release(r, a.at, fmt.Sprintf("the replay took longer than %d live batches", limit))
	}
	for t.heldBytes > t.heldLimit {
		t.release(t.fattest(), a.at, fmt.Sprintf("live batches of more than %d MB waited for replays", t.heldLimit>>20))
	}
}

// fattest finds the replica that holds the most.
func (t *Tracker) fattest() *replica {
	most := t.order[0]
	for _, r := range t.order {
		if r.heldBytes > most.heldBytes {
			most = r
		}
	}
	return most
}

func (a *arrival) cost() int { return heldCost + len(a.payload) + len(a.batch.Topic) }

// unhold takes the first n batches from those held.
func (t *Tracker) unhold(r *replica, n int) {
	for i := range r.held[:n] {
		r.heldBytes -= r.held[i].cost()
		t.heldBytes -= r.held[i].cost()
	}
	clear(r.held[:n])
	r.held = r.held[n:]
	if len(r.held) == 0 {
		r.held = nil
	}
}

func (r *replica) findHeld(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(r.held, seq, func(a arrival, seq uint64) int {
		switch {
		case a.batch.Seq < seq:
			return -1
		case a.batch.Seq > seq:
			return 1
		}
		return 0
	})
}

func (r *replica) isHeld(seq uint64) bool {
	_, ok := r.findHeld(seq)
	return ok
}

func (t *Tracker) replayBegin(r *replica, rec wire.Record) {
	r.ReplayRequests++
	r.holding = true
	r.replay = replay{asked: r.replay.asked, last: r.replay.last, running: true, from: rec.From, whole: rec.From == 0}
	r.mark(Mark{At: rec.At, Kind: MarkReplayBegin, Seq: rec.From})
}

func (t *Tracker) replayFrames(r *replica, rec wire.Record) {
	reply, err := wire.SplitReply(rec.Frames)
	if err != nil {
		r.FrameErrors++
		r.LastError = err.Error()
		return
	}
	if reply.End {
		t.replayEnd(r, rec.At, "", true)
		return
	}
	a := t.decode(rec, reply.Topic, reply.Seq, reply.Payload)
	a.replayed = true
	if r = t.ofRank(r, a.batch.Rank); r == nil {
		t.Dropped++
		return
	}
	r.touch(rec.At)
	if r.replay.abandoned {
		return
	}
	if a.batch.Topic == "" {
		a.batch.Topic = r.Topic // older replies carry none
	}
	t.replayed(r, a)
}

// replayEnd takes the end of an answer: its own marker, or the word of who
// asked, which comes behind the marker or in its place.
func (t *Tracker) replayEnd(r *replica, at wire.Time, failed string, marker bool) {
	ran, abandoned := r.replay.running, r.replay.abandoned
	brokeOff := r.replay.answered > 0 && failed != ""
	virgin := ran && failed == "" && r.replay.whole && r.replay.answered == 0 && r.Epoch == 0 && r.Undecodable == 0
	r.replay.running, r.replay.abandoned, r.replay.answered = false, false, 0
	switch {
	case abandoned, !ran && !marker && failed == "":
		return // not the end of what is waited for
	case ran && r.replay.wanted:
		return // what is waited for is asked for next
	case ran && failed == "" && r.holding && t.opt.Hold > 0 && r.expect < r.next &&
		!r.isHeld(r.expect) && (!r.replay.asked || r.expect > r.replay.last):
		// Missed while the replay ran. A Want never repeats an earlier one, so
		// what was never sent is asked for once.
		r.mark(Mark{At: at, Kind: MarkReplayEnd, Seq: r.expect})
		t.want(r, at, r.expect, r.expect)
		return
	case virgin:
		// A publisher that has nothing to repeat has published nothing: its cache
		// is empty, and its first batch will be the one numbered 0.
		r.Epoch = 1
	}
	if brokeOff {
		t.releaseAs(r, at, failed, BrokenOff)
		return
	}
	t.release(r, at, failed)
}

// replayed places a batch of a replay answer, which comes in ascending order.
func (t *Tracker) replayed(r *replica, a arrival) {
	seq := a.batch.Seq
	first := r.replay.answered == 0
	r.replay.answered++
	r.Kept = max(r.Kept, uint64(r.replay.answered))
	if first && r.next > seq {
		r.Kept = max(r.Kept, r.next-seq)
	}
	k, known := r.known(seq)
	switch {
	case known && k.sum != a.sum:
		t.otherProcess(r, a, k.engine)
		return
	case known && r.reconnected:
		r.reconnected = false // the same process, and what follows is seen
	}
	switch {
	case !r.Heard && r.Epoch == 0,
		// What was joined late is rebuilt from where the answer begins, and so
		// is what has a gap if the answer holds all since the first batch.
		first && r.Heard && seq < r.First && len(r.reasons) > 0,
		first && r.Heard && seq == r.First && r.has(GapOpen):
		t.rebuild(r, a)
		return
	case !r.Heard && r.isLastWord(&a):
		r.Reordered++
		return
	case !r.Heard:
		r.begin(0, &a)
	}
	// Live batches that the answer lacks come first.
	for len(r.held) > 0 && r.held[0].batch.Seq < seq {
		t.clip(r, a.at, r.held[0].batch.Seq)
		t.flush(r)
	}
	if seq < r.expect {
		return // had already
	}
	t.clip(r, a.at, seq)
	r.heal(seq, a.at)
	r.reconnected = false
	t.apply(r, a)
	t.flush(r)
}

// clip goes on at seq without what the answer lacks before it.
func (t *Tracker) clip(r *replica, at wire.Time, seq uint64) {
	if seq > r.expect {
		why := loss{NotKept, Clipped, max(r.next, seq+1) - seq}
		if r.replay.answered > 1 {
			why = loss{reason: NeverSent, cause: Unfillable}
		}
		t.skip(r, at, seq, why)
		r.degrade(ReplayClipped)
	}
}

// rebuild starts the replica over at an earlier batch.
func (t *Tracker) rebuild(r *replica, a arrival) {
	seq := a.batch.Seq
	r.Epoch = max(r.Epoch, 1)
	r.begin(seq, &a)
	r.blank = r.next // what was had of it is forgotten
	r.Batches, r.Bytes, r.Events = r.before.batches, r.before.bytes, r.before.events
	r.reasons = nil
	if seq > 0 {
		r.degrade(LateJoin)
		r.degrade(ReplayClipped)
	}
	m := r.markJoin(a.at, seq)
	m.Clipped, m.Asked = r.replay.running && r.replay.from < seq, r.replay.from
	t.emit(r, Step{Kind: Forget, At: a.at})
	r.heal(seq, a.at)
	t.apply(r, a)
	t.flush(r)
	r.holding = r.holding || r.expect < r.next // held no more, or nobody said that a replay began
}

// release ends a replay: what is still missing stays missing, and the held
// batches apply.
func (t *Tracker) release(r *replica, at wire.Time, why string) {
	t.releaseAs(r, at, why, Unexplained)
}

func (t *Tracker) releaseAs(r *replica, at wire.Time, why string, cause Cause) {
	if !r.holding {
		return
	}
	r.mark(Mark{At: at, Kind: MarkReplayEnd, Seq: r.expect, Text: why})
	if why == "" {
		why = "the replay answer did not hold them"
	}
	t.flush(r)
	for len(r.held) > 0 {
		t.skip(r, at, r.held[0].batch.Seq, loss{reason: why, cause: cause})
		t.flush(r)
	}
	if r.expect < r.next { // a rebuild broke off before what was had already
		t.skip(r, at, r.next, loss{reason: why, cause: cause})
	}
	r.holding, r.replay.wanted = false, false
}

// flush applies the held batches that are next in order.
func (t *Tracker) flush(r *replica) {
	for len(r.held) > 0 && r.held[0].batch.Seq <= r.expect {
		a := r.held[0]
		t.unhold(r, 1)
		if a.batch.Seq == r.expect {
			t.apply(r, a)
		}
	}
}
