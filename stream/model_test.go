package stream

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// watcher follows the steps of one replica and holds the state against them,
// as naively as can be.
type watcher struct {
	applied []wire.Batch // of this epoch, and since a Forget
	epochs  int
}

func (w *watcher) follow(t testing.TB, steps []Step) {
	for _, s := range steps {
		switch s.Kind {
		case Drop:
			w.applied = nil
			w.epochs++
		case Forget:
			w.applied = nil
		case Apply:
			if n := len(w.applied); n > 0 && w.applied[n-1].Seq >= s.Batch.Seq {
				t.Errorf("batch %d is applied behind %d", s.Batch.Seq, w.applied[n-1].Seq)
			}
			w.applied = append(w.applied, *s.Batch)
		}
	}
}

// accounts checks that every batch from first to last was applied or is in a
// gap, and none is both.
func (w *watcher) accounts(t testing.TB, st State, holding bool) {
	if st.Restarts != w.epochs || st.Epoch > 0 && st.Epoch != w.epochs+1 {
		t.Errorf("epoch %d, %d restarts, %d seen", st.Epoch, st.Restarts, w.epochs)
	}
	if !st.Heard || st.GapsLost > 0 {
		return
	}
	type piece struct {
		from, to uint64
		open     bool
	}
	var all []piece
	for _, b := range w.applied {
		all = append(all, piece{b.Seq, b.Seq, false})
	}
	for _, g := range st.Gaps {
		if g.Epoch == st.Epoch && !g.Healed {
			all = append(all, piece{g.From, g.To, true})
		}
	}
	slices.SortFunc(all, func(a, b piece) int {
		switch {
		case a.from < b.from:
			return -1
		case a.from > b.from:
			return 1
		}
		return 0
	})
	next := st.First
	for _, p := range all {
		if p.from < next || p.from > next && !holding {
			t.Errorf("%+v does not follow %d (applied %d, gaps %+v, %+v)", p, next, len(w.applied), st.Gaps, st.Trust)
		}
		next = p.to + 1
	}
	if !holding && next != st.Last+1 {
		t.Errorf("accounted up to %d, and the last is %d", next, st.Last)
	}
}

// publisher is a random engine behind a random channel, and what is true of it.
type publisher struct {
	*testing.T
	*rand.Rand
	s       *scene
	w       watcher
	log     []string
	process int
	never   map[uint64]bool // batches that are in no answer
	buffer  int             // batches kept for replays
	want    *uint64
	started bool // something of this process came live
	linked  bool
}

func (p *publisher) chance(percent int) bool { return p.IntN(100) < percent }

// follow takes the steps of the record just pushed.
func (p *publisher) follow(what string, seq ...uint64) {
	p.log = append(p.log, strings.Trim(fmt.Sprintln(what, seq, "→", said(p.s.steps)), "\n"))
	for _, step := range p.s.steps {
		if step.Kind == Want {
			from := step.From
			p.want = &from
		}
	}
	p.w.follow(p, p.s.steps)
	st, _ := p.s.tr.State(p.s.name)
	checkGaps(p, st)
	checkOrder(p, p.s.tr.replicas[p.s.name])
	p.w.accounts(p, st, p.s.tr.replicas[p.s.name].holding)
	p.judge(st)
}

// judge holds the trust word against the truth.
func (p *publisher) judge(st State) {
	if st.Trust.Word == Replaying || st.Trust.Word == Stale || st.Trust.Word == Blind {
		return
	}
	from, whole := uint64(0), true
	for _, b := range p.w.applied {
		hash := b.Events[0].Hashes[0].N
		if hash != p.id(b.Seq, p.process) && (p.started || hash != p.id(b.Seq, p.process-1)) {
			p.Errorf("batch %d of another process is applied", b.Seq)
		}
		whole = whole && b.Seq == from
		from++
		if n := len(b.Events); b.Events[n-1].Kind == wire.Cleared {
			from, whole = b.Seq+1, true
		}
	}
	whole = whole && (from == st.Last+1 || from == 0 && !st.Heard)
	if st.Trust.Exact() != whole {
		p.Errorf("trust is %v, and whole is %v (first %d, last %d, gaps %+v)", st.Trust, whole, st.First, st.Last, st.Gaps)
	}
}

func (p *publisher) id(seq uint64, process int) uint64 { return uint64(process)<<32 | seq }

// publish makes the next batch.
func (p *publisher) publish() uint64 {
	seq := uint64(len(p.s.made))
	events := []any{stored(p.id(seq, p.process))}
	if p.chance(10) {
		events = append(events, cleared())
	}
	p.never[seq] = p.chance(4) // could not be encoded
	return p.s.publish(events...)
}

// live publishes one batch and sends it, loses it, or sends it twice.
func (p *publisher) live() {
	seq := p.publish()
	if p.never[seq] || p.chance(25) {
		return
	}
	p.deliver(seq)
	if p.chance(10) {
		p.deliver(seq)
	}
	if old := uint64(p.IntN(int(seq) + 1)); p.chance(10) && !p.never[old] {
		p.deliver(old)
	}
}

func (p *publisher) deliver(seq uint64) {
	p.started = true
	p.s.live(seq)
	p.follow("live", seq)
}

// restart replaces the process. What comes first of the new one has a number
// that tells: any other takes a start time, a replay or luck.
func (p *publisher) restart() {
	st, _ := p.s.tr.State(p.s.name)
	if !st.Heard {
		return
	}
	if p.linked && p.chance(50) {
		p.outage()
	}
	p.s.reborn()
	p.process++
	p.started = false
	first := uint64(p.IntN(int(min(st.Last, 10)) + 1))
	for uint64(len(p.s.made)) <= first {
		p.publish()
	}
	p.never[first] = false
	p.deliver(first)
}

// replay answers from a batch on, in one way or another, while live batches go
// on coming.
func (p *publisher) replay() {
	from := uint64(0)
	if p.want != nil && p.chance(70) {
		from = *p.want
	} else if p.chance(50) {
		from = uint64(p.IntN(len(p.s.made) + 1))
	}
	if st, _ := p.s.tr.State(p.s.name); st.Heard && from > st.Last {
		return // nobody asks for what nobody knows of
	}
	p.want = nil
	if p.chance(10) {
		p.s.end("refused")
		p.follow("refused")
		return
	}
	p.s.begin(from)
	p.follow("begin", from)
	process, upTo := p.process, len(p.s.made) // the answer is made at once
	cut := upTo
	if p.chance(25) {
		cut = p.IntN(upTo + 1)
	}
	for seq := max(int(from), upTo-p.buffer); seq < cut; seq++ {
		if p.chance(15) {
			p.live()
		}
		if p.chance(1) {
			p.restart()
		}
		if p.process != process {
			p.s.end("connection reset")
			p.follow("reset")
			return
		}
		if !p.never[uint64(seq)] {
			p.s.replay(uint64(seq), uint64(seq))
			p.follow("replay", uint64(seq))
		}
	}
	if cut < upTo {
		p.s.end("timeout")
		p.follow("timeout")
		return
	}
	p.s.marker()
	p.follow("marker")
	if p.chance(50) {
		p.s.end("")
		p.follow("end")
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	histories := 1500
	if testing.Short() {
		histories = 300
	}
	var ends [5]int // by badness
	restarts, healed := 0, 0
	for seed := range histories {
		p := &publisher{T: t, Rand: rand.New(rand.NewPCG(uint64(seed), 0)), never: map[uint64]bool{}, buffer: 1000}
		p.s = play(p, []int{0, 4, 1000}[p.IntN(3)])
		p.history(1 + p.IntN(60))
		if t.Failed() {
			t.Fatalf("history %d (seed), after: %s", seed, strings.Join(p.log, "; "))
		}
		if st, ok := p.s.tr.State(p.s.name); ok {
			ends[st.Trust.Word.Badness()]++
			restarts += st.Restarts
			healed += st.GapsHealed
		}
	}
	t.Logf("%d histories ended exact, %d replaying, %d degraded, %d stale, %d blind; %d restarts, %d gaps healed",
		ends[0], ends[1], ends[2], ends[3], ends[4], restarts, healed)
}

func (p *publisher) history(steps int) {
	if p.chance(50) {
		p.buffer = 1 + p.IntN(20)
	}
	if p.linked = p.chance(50); p.linked {
		p.s.link(wire.LinkUp)
	}
	if p.chance(30) { // joined late
		for range p.IntN(5) {
			p.publish()
		}
	}
	var frozen *Tracker
	var then State
	for i := range steps {
		if p.Failed() {
			return
		}
		if i == steps/2 { // one clone goes on with its original, another does not
			p.s.twin, frozen = p.s.tr.Clone(), p.s.tr.Clone()
			then, _ = p.s.tr.State(p.s.name)
		}
		switch n := p.IntN(100); {
		case n < 75:
			p.live()
		case n < 80:
			p.restart()
		case n < 97 && p.want != nil, n < 85:
			p.replay()
		case p.linked && n < 99:
			p.outage()
		}
	}
	if now, _ := frozen.State(p.s.name); !reflect.DeepEqual(now, then) {
		p.Errorf("a clone changed with its original: %+v\nwas %+v", now, then)
	}
	checkOrder(p, frozen.get(p.s.name))
}

func (p *publisher) outage() {
	p.s.link(wire.LinkDown)
	p.follow("down")
	p.s.link(wire.LinkUp)
	p.follow("up")
}
