package stream

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

const (
	// startSlack is how exactly a start time is known.
	startSlack = wire.Time(1e9)
	// sameClock is how far an engine's clock may be from ours while its times
	// still count as times of day.
	sameClock = wire.Time(3600e9)
	// lastWordsTime is how long after a restart batches of the old process can
	// still come out of buffers.
	lastWordsTime = wire.Time(10e9)
	// olderRun is how many consecutive batches from the past are a process with
	// a clock that is behind, and not batches that are late.
	olderRun = 4
)

// process is what tells one publisher process from the next.
type process struct {
	// started is the newest start time known, scraped when it was read, and
	// judged the one that this epoch was last held against.
	started, scraped, judged wire.Time
	// heardAt is when the epoch's first batch was received, restarted when the
	// epoch began.
	heardAt, restarted wire.Time
	// older counts consecutive batches from the past, of which olderSeq is the
	// newest.
	older    int
	olderSeq uint64
	// replayedTo is the batch after the newest one that a replay brought.
	replayedTo uint64
}

// remember keeps what tells an applied batch from another of its number.
func (r *replica) remember(a *arrival) {
	if r.recent == nil {
		r.recent = new([len(r.recent)]seen)
	}
	seq := a.batch.Seq
	s := seen{sum: a.sum, seq: seq, engine: a.batch.Engine, ok: true, replayed: a.replayed}
	r.recent[seq%uint64(len(r.recent))] = s
	if seq == r.First {
		r.first = s
	}
	if a.replayed {
		r.process.replayedTo = max(r.process.replayedTo, seq+1)
	}
}

// known finds a batch that was applied or is held, if it is not too far back.
func (r *replica) known(seq uint64) (seen, bool) {
	if i, ok := r.findHeld(seq); ok {
		h := &r.held[i]
		return seen{sum: h.sum, seq: seq, engine: h.batch.Engine, ok: true}, true
	}
	if r.recent != nil {
		if s := r.recent[seq%uint64(len(r.recent))]; s.ok && s.seq == seq {
			return s, true
		}
	}
	return r.first, r.first.ok && r.first.seq == seq
}

// behind takes a live batch whose number was passed already: the same again,
// one that is too late, or one of a new process.
func (t *Tracker) behind(r *replica, a arrival) {
	seq := a.batch.Seq
	k, known := r.known(seq)
	switch older := a.batch.Engine > 0 && a.batch.Engine < r.newestEngine(); {
	case known && k.sum == a.sum:
		if k.replayed { // the replay was faster
			r.recent[seq%uint64(len(r.recent))].replayed = false
		} else {
			r.Duplicates++
		}
		return
	case known, r.reconnected, !older:
		// Another batch under a number that was had, or an earlier number from a
		// publisher that repeats nothing.
	case seq < r.process.replayedTo: // the replay was faster, and by more than is kept
		return
	case !r.isOlderRun(seq):
		r.Reordered++
		return
	}
	t.restart(r, a.at, seq, "sequence fell")
	t.join(r, a)
	r.lived, r.reconnected = true, false
}

// isOlderRun counts consecutive batches from the past.
func (r *replica) isOlderRun(seq uint64) bool {
	p := &r.process
	if p.older > 0 && seq == p.olderSeq+1 {
		p.older++
	} else {
		p.older = 1
	}
	p.olderSeq = seq
	return p.older >= olderRun
}

func (r *replica) newestEngine() wire.Time {
	newest := r.lastEngine
	if n := len(r.held); n > 0 {
		newest = max(newest, r.held[n-1].batch.Engine)
	}
	return newest
}

// isLastWord reports whether a batch that is not in order is of the old
// process: sent before the new one began, and read late.
func (r *replica) isLastWord(a *arrival) bool {
	engine := a.batch.Engine
	switch {
	case r.Epoch < 2, engine <= 0, a.at-r.process.restarted > lastWordsTime:
		return false
	case !r.Heard:
		return engine < r.process.started && fits(a.at-engine)
	}
	return engine < r.firstEngine
}

func fits(lag wire.Time) bool { return -sameClock < lag && lag < sameClock }

// startedAnew reports whether a start time, read at a moment, is that of
// another process than the one which sent this epoch's first batch.
func (r *replica) startedAnew(at, started wire.Time) bool {
	p := &r.process
	if started <= 0 {
		return false
	}
	later := p.started > 0 && started > p.started+startSlack
	scraped, judged := p.scraped, p.judged
	p.started, p.scraped = started, at
	if !r.Heard || started == judged {
		return false
	}
	p.judged = started
	switch {
	case r.firstEngine <= 0, r.lived && !fits(r.Lag):
		// The engine's times are no times of day; ours must do.
		return later && r.process.heardAt <= scraped
	case started <= r.firstEngine+startSlack:
		return false
	}
	// One unbroken sequence from before the start to behind it is of one
	// process, whose clock was set back in between.
	n := len(r.Gaps)
	broken := n > 0 && r.Gaps[n-1].Epoch == r.Epoch
	return later || broken || r.newestEngine() <= started
}

// restart begins a new epoch with an empty cache.
func (t *Tracker) restart(r *replica, at wire.Time, first uint64, how string) {
	if r.Heard && r.expect < r.next {
		r.settle(r.expect, r.next-1, at, loss{reason: "the process restarted before they could be fetched"})
	}
	if r.holding {
		r.mark(Mark{At: at, Kind: MarkReplayEnd, Seq: r.expect, Text: "abandoned: the process restarted"})
	}
	t.unhold(r, len(r.held))
	r.Restarts++
	r.Epoch++
	r.mark(Mark{At: at, Kind: MarkRestart, Seq: r.Last, To: first, Text: how})
	r.Heard, r.First, r.Last, r.expect, r.next = false, 0, 0, 0, 0
	r.blank, r.missing, r.firstEngine, r.lastEngine = 0, 0, 0, 0
	r.lived, r.reconnected, r.holding = false, true, false
	r.reasons, r.recent, r.first = nil, nil, seen{}
	r.replay = replay{running: r.replay.running, abandoned: r.replay.running}
	r.before = totals{r.Batches, r.Bytes, r.Events}
	p := &r.process
	p.restarted, p.older, p.replayedTo = at, 0, 0
	t.emit(r, Step{Kind: Drop, At: at})
}

// otherProcess takes a batch of a replay answer that is not the one which was
// had under its number: who answers is another process than who sent that. The
// later one of the two is there now.
func (t *Tracker) otherProcess(r *replica, a arrival, engine wire.Time) {
	if a.batch.Engine <= engine {
		r.Reordered++
		return
	}
	var of []arrival // live batches of the new process
	for _, h := range r.held {
		if h.batch.Engine >= a.batch.Engine {
			of = append(of, h)
		}
	}
	t.restart(r, a.at, 0, fmt.Sprintf("another batch %d in a replay answer", a.batch.Seq))
	for _, h := range of {
		t.live(r, h)
	}
}
