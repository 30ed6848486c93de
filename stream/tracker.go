package stream

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// StepKind says what a consumer has to do.
type StepKind uint8

// The kinds of step.
const (
	// Apply: apply Batch to the index.
	Apply StepKind = iota
	// Drop: the process is a new one; nothing is resident any more.
	Drop
	// Forget: a replay is about to rebuild the replica from an earlier batch,
	// as if nothing had been seen of it yet.
	Forget
	// Doubt: what was resident so far may have changed unseen.
	Doubt
	// Want: a replay from From would fill what is missing. Live batches are held
	// until the replay is over, so whoever gets a Want answers it: with
	// ReplayBegin and ReplayEnd, or with a ReplayEnd alone whose Err says why
	// nothing is asked. Asking again for what an answer broke off before belongs
	// between the two.
	Want
)

// Step is one thing to do, in the order given.
type Step struct {
	Kind    StepKind
	Replica wire.Replica
	At      wire.Time
	Batch   *wire.Batch
	// Payload is the batch's own bytes, for showing.
	Payload  []byte
	Replayed bool
	From     uint64
}

// Options of a Tracker.
type Options struct {
	// Hold is how many live batches a replica holds back behind a gap while a
	// replay may still fill it. 0 says that nothing can be replayed, as for a
	// plain recording: live batches then apply at once, save while a recorded
	// replay runs.
	Hold int
}

// maxReplicas bounds what a hostile recording can make us keep.
const maxReplicas = 1 << 16

// Tracker follows the streams of a fleet.
type Tracker struct {
	opt      Options
	replicas map[wire.Replica]*replica
	order    []*replica
	// ranks lists the further replicas of a name whose stream turned out to
	// carry several data-parallel ranks.
	ranks map[wire.Replica][]*replica
	seed  maphash.Seed
	// heldBytes is what all held batches take, and heldLimit what they may.
	heldBytes, heldLimit int
	// Dropped counts records of replicas beyond what is kept.
	Dropped uint64
	steps   []Step
}

// New makes an empty Tracker.
func New(opt Options) *Tracker {
	return &Tracker{
		opt: opt, replicas: map[wire.Replica]*replica{},
		ranks: map[wire.Replica][]*replica{}, seed: maphash.MakeSeed(), heldLimit: maxHeldBytes,
	}
}

// replica is a State and what is needed to move it on.
type replica struct {
	State
	// expect is the batch to apply next. next is the one after the newest seen,
	// 0 before any of this epoch. They are equal unless live batches are held.
	expect, next uint64
	// blank ends a range in which only what is listed as a gap is known to be
	// missing: the rest was had and forgotten, or is from before the first live
	// batch.
	blank uint64
	// missing counts the batches of this epoch's gaps that are not healed.
	missing uint64
	reasons []Reason
	// firstEngine is the engine time of the epoch's first batch, lastEngine
	// that of the newest.
	firstEngine, lastEngine wire.Time
	// lived says that a live batch of this epoch was placed, reconnected that
	// none was since the link came back, and lost that it was up and is not.
	lived, reconnected, lost bool
	// holding says that live batches wait in held for a replay.
	holding   bool
	held      []arrival
	heldBytes int
	replay    replay
	// recent holds what was applied last, by sequence; first is the epoch's
	// first batch.
	recent  *[64]seen
	first   seen
	dialect wire.DialectSet
	process process
	before  totals
}

// totals are the counts of earlier epochs.
type totals struct {
	batches, bytes uint64
	events         Counts
}

// seen is what is kept of an applied batch to know it again.
type seen struct {
	sum, seq uint64
	engine   wire.Time
	ok       bool
	replayed bool // and not yet come live
}

type arrival struct {
	batch     wire.Batch
	payload   []byte
	at        wire.Time
	sum       uint64
	replayed  bool
	undecoded bool // the events were left out to save memory
	err       error
}

// Push takes the next record and gives the steps that follow from it. The
// slice is valid until the next call.
func (t *Tracker) Push(rec wire.Record) []Step {
	t.clear()
	r := t.get(rec.Replica)
	if r == nil {
		t.Dropped++
		return nil
	}
	r.touch(rec.At)
	switch rec.Kind {
	case wire.Frames:
		t.frames(r, rec)
	case wire.ReplayFrames:
		t.replayFrames(r, rec)
	case wire.ReplayBegin:
		t.replayBegin(r, rec)
	case wire.ReplayEnd:
		t.replayEnd(r, rec.At, rec.Err, false)
	case wire.Link:
		t.link(r, rec)
		for _, sub := range t.ranks[rec.Replica] {
			t.link(sub, rec)
		}
	}
	return t.steps
}

// clear begins a new list of steps, and keeps nothing of the old one alive.
func (t *Tracker) clear() {
	clear(t.steps)
	t.steps = t.steps[:0]
}

// Describe takes what a replica says of itself on a metrics page, or why there
// is none.
func (t *Tracker) Describe(name wire.Replica, at wire.Time, facts wire.Facts, load wire.Load, err string) []Step {
	t.clear()
	r := t.get(name)
	if r == nil {
		t.Dropped++
		return nil
	}
	r.touch(at)
	if r.ScrapeError = err; err == "" {
		t.tell(r, at, facts, load)
	}
	return t.steps
}

// Tell takes the same from elsewhere, such as discovery or a load socket.
func (t *Tracker) Tell(name wire.Replica, at wire.Time, facts wire.Facts, load wire.Load) []Step {
	t.clear()
	r := t.get(name)
	if r == nil {
		t.Dropped++
		return nil
	}
	r.touch(at)
	t.tell(r, at, facts, load)
	return t.steps
}

// tell keeps facts and load. A process that started after the epoch's first
// batch is a new one: its cache is empty.
func (t *Tracker) tell(r *replica, at wire.Time, facts wire.Facts, load wire.Load) {
	r.Load = load
	r.Facts = facts
	if r.startedAnew(at, facts.Started) {
		t.restart(r, at, 0, "process start time")
	}
}

// Remove forgets a replica, with all ranks of its stream.
func (t *Tracker) Remove(name wire.Replica) {
	t.clear()
	gone := append([]*replica{t.replicas[name]}, t.ranks[name]...)
	for _, r := range gone {
		if r != nil {
			t.unhold(r, len(r.held))
			delete(t.replicas, r.Replica)
		}
	}
	delete(t.ranks, name)
	t.order = slices.DeleteFunc(t.order, func(r *replica) bool { return slices.Contains(gone, r) })
}

// Names lists the replicas in order of first appearance.
func (t *Tracker) Names() []wire.Replica {
	names := make([]wire.Replica, len(t.order))
	for i, r := range t.order {
		names[i] = r.Replica
	}
	return names
}

// State gives a copy of a replica's state.
func (t *Tracker) State(name wire.Replica) (State, bool) {
	r := t.replicas[name]
	if r == nil {
		return State{}, false
	}
	s := r.clone()
	s.Trust = r.trust()
	s.Held, s.MissingNow = len(r.held), r.missing
	s.Dialect, s.MixedDialect = r.dialect.String(), r.dialect.Mixed()
	for _, g := range s.Gaps {
		switch {
		case g.Healed:
			s.GapsHealed++
		case g.Epoch == s.Epoch:
			s.GapsOpen++
		}
	}
	return s, true
}

// Trust gives a replica's trust as far as the stream can tell.
func (t *Tracker) Trust(name wire.Replica) Trust {
	if r := t.replicas[name]; r != nil {
		return r.trust()
	}
	return Trust{Word: Blind, Reasons: []Reason{NeverReached}}
}

// Dialect names what a replica's events look like; see wire.Dialect.
func (t *Tracker) Dialect(name wire.Replica) string {
	if r := t.replicas[name]; r != nil {
		return r.dialect.String()
	}
	return ""
}

func (t *Tracker) get(name wire.Replica) *replica {
	r := t.replicas[name]
	if r == nil && len(t.replicas) < maxReplicas {
		r = &replica{State: State{Replica: name, Rank: -1}}
		t.replicas[name] = r
		t.order = append(t.order, r)
	}
	return r
}

func (t *Tracker) emit(r *replica, s Step) {
	s.Replica = r.Replica
	t.steps = append(t.steps, s)
}

func (t *Tracker) frames(r *replica, rec wire.Record) {
	topic, seq, payload, err := wire.SplitFrames(rec.Frames)
	if err == nil && seq == math.MaxUint64 {
		err = fmt.Errorf("%w: sequence -1, which ends replay answers, on a live message", wire.ErrFrames)
	}
	if err != nil {
		r.FrameErrors++
		t.unplaced(r, rec.At, err)
		return
	}
	a := t.decode(rec, topic, seq, payload)
	owner := t.ofRank(r, a.batch.Rank)
	if a.err != nil {
		owner = t.nextIs(r, seq)
	}
	switch {
	case owner != nil:
		owner.touch(rec.At)
		owner.LastBatch = rec.At
		t.live(owner, a)
	case a.err != nil:
		t.unplaced(r, rec.At, a.err)
	default:
		t.Dropped++
	}
}

func (t *Tracker) decode(rec wire.Record, topic string, seq uint64, payload []byte) arrival {
	a := arrival{payload: payload, at: rec.At, sum: maphash.Bytes(t.seed, payload)}
	a.batch, a.err = wire.Decode(topic, seq, payload)
	return a
}

// live places a batch received from the event socket.
func (t *Tracker) live(r *replica, a arrival) {
	seq := a.batch.Seq
	switch {
	case (!r.Heard || seq != r.next) && r.isLastWord(&a):
		r.Reordered++
		return
	case !r.Heard:
		t.join(r, a)
	case seq < r.next:
		t.behind(r, a)
		return
	case r.holding:
		t.hold(r, a)
	case seq > r.expect:
		t.gap(r, a)
	default:
		t.apply(r, a)
	}
	r.lived, r.reconnected, r.process.older = true, false, 0
}

// begin starts an epoch, or starts it over, at a batch.
func (r *replica) begin(seq uint64, a *arrival) {
	if !r.Heard {
		r.process.heardAt = a.at
	}
	r.Heard, r.First, r.expect = true, seq, seq
	r.firstEngine = a.batch.Engine
}

// saw notes a batch that may be the newest.
func (r *replica) saw(seq uint64) {
	if seq >= r.next {
		r.Last, r.next = seq, seq+1
	}
}

// join takes the first live batch of an epoch.
func (t *Tracker) join(r *replica, a arrival) {
	seq := a.batch.Seq
	if r.Epoch > 0 { // we were there before the process began, at 0
		r.begin(0, &a)
		if seq > 0 && !r.holding {
			t.gap(r, a)
			return
		}
	} else {
		r.Epoch = 1
		r.begin(seq, &a)
		if seq > 0 {
			r.degrade(LateJoin)
		}
	}
	r.markJoin(a.at, seq)
	if r.holding {
		t.hold(r, a)
		return
	}
	t.apply(r, a)
}

// markJoin marks where the epoch's story begins. A rebuild moves it.
func (r *replica) markJoin(at wire.Time, seq uint64) *Mark {
	for i := len(r.Marks) - 1; i >= 0 && r.Marks[i].Epoch == r.Epoch; i-- {
		if r.Marks[i].Kind == MarkJoin {
			r.Marks[i].Seq = seq
			return &r.Marks[i]
		}
	}
	r.mark(Mark{At: at, Kind: MarkJoin, Seq: seq})
	return &r.Marks[len(r.Marks)-1]
}

// gap takes a batch before which others are missing, and either holds it for a
// replay or goes on without them.
func (t *Tracker) gap(r *replica, a arrival) {
	r.lived = true
	if t.opt.Hold <= 0 {
		t.skip(r, a.at, a.batch.Seq, loss{reason: NotReplayed})
		t.apply(r, a)
		return
	}
	r.holding = true
	from := r.expect
	if r.reconnected && from > r.First {
		from-- // one that is known, to see that the same process answers
	}
	t.want(r, a.at, r.expect, from)
	t.hold(r, a)
}

// skip goes on at seq without the batches before it.
func (t *Tracker) skip(r *replica, at wire.Time, seq uint64, why loss) {
	r.settle(r.expect, seq-1, at, why)
	r.degrade(GapOpen)
	r.expect = seq
	t.emit(r, Step{Kind: Doubt, At: at})
}

// apply counts a batch that is next in order and passes it on.
func (t *Tracker) apply(r *replica, a arrival) {
	seq := a.batch.Seq
	if a.undecoded {
		topic := a.batch.Topic
		a.batch, _ = wire.Decode(topic, seq, a.payload) // with the same result as before
	}
	r.saw(seq)
	r.expect = seq + 1
	r.remember(&a)
	r.Batches++
	r.Bytes += uint64(len(a.payload))
	before := r.lastEngine
	if a.batch.Topic != "" {
		r.Topic = a.batch.Topic
	}
	if a.batch.Engine > 0 {
		r.lastEngine = max(r.lastEngine, a.batch.Engine)
		if !a.replayed {
			r.Lag = a.at - a.batch.Engine
		}
		if r.firstEngine == 0 {
			r.firstEngine = a.batch.Engine
		}
	}
	if !a.replayed {
		r.count(a.at, len(a.batch.Events)) // what is replayed happened earlier
	}
	if a.err != nil {
		r.undecodable(a.at, seq, a.err)
		t.emit(r, Step{Kind: Doubt, At: a.at})
	}
	for i := range a.batch.Events {
		r.event(&a.batch.Events[i], a.at, seq)
	}
	if idle := a.batch.Engine - before; before > 0 && idle > 0 && clearsThenStores(&a.batch) {
		r.clearedSince(a.at-idle, seq)
	}
	b := a.batch
	t.emit(r, Step{Kind: Apply, At: a.at, Batch: &b, Payload: a.payload, Replayed: a.replayed})
}

func (r *replica) event(e *wire.Event, at wire.Time, seq uint64) {
	r.dialect.Add(e)
	switch e.Kind {
	case wire.Stored:
		r.Events.Stored++
	case wire.Removed:
		r.Events.Removed++
	case wire.Cleared:
		r.Events.Cleared++
		r.reasons = nil // an emptied cache is known exactly
		if !r.fresh(seq) {
			r.mark(Mark{At: at, Kind: MarkCleared, Seq: seq})
		}
	case wire.Bad:
		r.Events.Bad++
		r.undecodable(at, seq, e.Err)
	default:
		r.Events.Unknown++
	}
}

// clearsThenStores tells a batch in which a step's own blocks follow a clear.
func clearsThenStores(b *wire.Batch) bool {
	i := slices.IndexFunc(b.Events, func(e wire.Event) bool { return e.Kind == wire.Cleared })
	return i >= 0 && slices.ContainsFunc(b.Events[i:], func(e wire.Event) bool { return e.Kind == wire.Stored })
}

// clearedSince notes when the clear of a batch can have happened at the earliest.
func (r *replica) clearedSince(at wire.Time, seq uint64) {
	for i := len(r.Marks) - 1; i >= 0 && r.Marks[i].Seq == seq; i-- {
		if r.Marks[i].Kind == MarkCleared {
			r.Marks[i].Since = at
		}
	}
}

// fresh tells SGLang's clear at start-up, which clears nothing.
func (r *replica) fresh(seq uint64) bool {
	return seq == 0 && r.Events.Stored == r.before.events.Stored
}

func (r *replica) undecodable(at wire.Time, seq uint64, err error) {
	r.Undecodable++
	r.LastError = err.Error()
	r.mark(Mark{At: at, Kind: MarkUndecodable, Seq: seq, Text: r.LastError})
	r.degrade(Undecodable)
}

func (t *Tracker) link(r *replica, rec wire.Record) {
	if rec.Link == wire.LinkUnknown {
		return // says nothing
	}
	was := r.Link
	r.Link, r.LinkText = rec.Link, rec.Text
	if rec.Err != "" {
		r.LinkText = rec.Err
	}
	switch {
	case rec.Link == wire.LinkUp && (was == wire.LinkUp || was == wire.LinkUnknown):
	case rec.Link == wire.LinkUp:
		r.mark(Mark{At: rec.At, Kind: MarkLinkUp, Seq: r.Last})
		if r.lost {
			r.reconnected, r.lost = true, false
		}
	case was == wire.LinkUp, was == wire.LinkUnknown && r.Epoch > 0:
		r.mark(Mark{At: rec.At, Kind: MarkLinkDown, Seq: r.Last, Text: r.LinkText})
		r.lost = true
	}
}

func (r *replica) touch(at wire.Time) {
	if r.Joined == 0 {
		r.Joined = at
	}
	r.Until = max(r.Until, at)
}

func (r *replica) has(reason Reason) bool { return slices.Contains(r.reasons, reason) }

// degrade adds a reason in its place: the most telling comes first.
func (r *replica) degrade(reason Reason) {
	i, have := slices.BinarySearchFunc(r.reasons, reason, func(a, b Reason) int {
		return slices.Index(telling[:], a) - slices.Index(telling[:], b)
	})
	if !have {
		r.reasons = slices.Insert(r.reasons, i, reason)
	}
}
