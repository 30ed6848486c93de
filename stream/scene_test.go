package stream

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvscope/kvscope/wire"
)

// startOfTime is when scenes begin: some day in 2027.
const startOfTime = wire.Time(1_800_000_000e9)

// scene plays records of one publisher to a Tracker and says what came of them.
type scene struct {
	t     testing.TB
	tr    *Tracker
	name  wire.Replica
	now   wire.Time
	clock wire.Time // how far the engine's clock is ahead of ours
	rank  any
	made  [][]byte // the payloads of this process, by sequence
	steps []Step
	twin  *Tracker // a clone that gets the same records, if not nil
}

func play(t testing.TB, hold int) *scene {
	return &scene{t: t, tr: New(Options{Hold: hold}), name: "r", now: startOfTime, rank: 0}
}

func stored(hash uint64) any {
	return []any{"BlockStored", []uint64{hash}, nil, []int{1, 2, 3, 4}, 4, nil, "GPU"}
}
func removed(hash uint64) any { return []any{"BlockRemoved", []uint64{hash}, "GPU"} }
func cleared() any            { return []any{"AllBlocksCleared"} }
func unknown() any            { return []any{"BlockTeleported", 7} }

// bad is a store whose hashes cannot be read.
func bad() any { return []any{"BlockStored", "no list", nil, []int{1}, 1, nil, "GPU"} }

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func seqFrame(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// publish makes the process's next batch, which then can be sent live, be
// replayed, or be lost.
func (s *scene) publish(events ...any) uint64 {
	s.now += 1e6
	ts := (s.now + s.clock).Seconds()
	s.made = append(s.made, encode(s.t, []any{ts, events, s.rank}))
	return uint64(len(s.made) - 1)
}

// payload gives a batch of this process; what was not published until then is
// published, with one store each.
func (s *scene) payload(seq uint64) []byte {
	for uint64(len(s.made)) <= seq {
		s.publish(stored(uint64(len(s.made))))
	}
	return s.made[seq]
}

func (s *scene) push(rec wire.Record) *scene {
	s.now += 100e6
	rec.At, rec.Replica = s.now, s.name
	s.steps = slices.Clone(s.tr.Push(rec))
	if s.twin != nil {
		s.same(s.twin.Push(rec))
	}
	return s
}

// same holds what a clone says against what its original said.
func (s *scene) same(steps []Step) {
	if got, want := said(steps), said(s.steps); got != want {
		s.t.Errorf("steps of a clone: %s, want %s", got, want)
	}
	got, _ := s.twin.State(s.name)
	want, _ := s.tr.State(s.name)
	if !reflect.DeepEqual(got, want) {
		s.t.Errorf("state of a clone: %+v\nwant %+v", got, want)
	}
}

func (s *scene) live(seq uint64) *scene {
	return s.push(wire.Record{Frames: [][]byte{[]byte("kv@r@m"), seqFrame(seq), s.payload(seq)}})
}

// raw sends frames as they are.
func (s *scene) raw(frames ...[]byte) *scene { return s.push(wire.Record{Frames: frames}) }

// all sends a range live.
func (s *scene) all(from, to uint64) *scene {
	var steps []Step
	for seq := from; seq <= to; seq++ {
		steps = append(steps, s.live(seq).steps...)
	}
	s.steps = steps
	return s
}

func (s *scene) begin(from uint64) *scene {
	return s.push(wire.Record{Kind: wire.ReplayBegin, From: from})
}

// replay answers with a range, in the form of vLLM from 0.26.
func (s *scene) replay(from, to uint64) *scene {
	var steps []Step
	for seq := from; seq <= to; seq++ {
		rec := wire.Record{Kind: wire.ReplayFrames, Frames: [][]byte{{}, []byte("kv@r@m"), seqFrame(seq), s.payload(seq)}}
		steps = append(steps, s.push(rec).steps...)
	}
	s.steps = steps
	return s
}

// marker is the message that ends an answer.
func (s *scene) marker() *scene {
	return s.push(wire.Record{Kind: wire.ReplayFrames, Frames: [][]byte{{}, {}, seqFrame(1<<64 - 1), {}}})
}

func (s *scene) end(failed string) *scene {
	return s.push(wire.Record{Kind: wire.ReplayEnd, Err: failed})
}

func (s *scene) link(state wire.LinkState) *scene {
	return s.push(wire.Record{Kind: wire.Link, Link: state, Text: state.String()})
}

func (s *scene) scrape(started wire.Time) *scene {
	s.now += 100e6
	s.steps = slices.Clone(s.tr.Describe(s.name, s.now, wire.Facts{Model: "m", Started: started}, wire.Load{}, ""))
	return s
}

// reborn puts a new process in the place of the old one. It gives its start
// time.
func (s *scene) reborn() wire.Time {
	s.now += 5e9
	s.made = nil
	return s.now + s.clock
}

func (s *scene) state() State {
	s.t.Helper()
	st, ok := s.tr.State(s.name)
	if !ok {
		s.t.Fatalf("no state of %s", s.name)
	}
	return st
}

// said puts steps in words: "apply 3 replayed", "want 4".
func said(steps []Step) string {
	var words []string
	for _, step := range steps {
		w := [...]string{"apply", "drop", "forget", "doubt", "want"}[step.Kind]
		switch step.Kind {
		case Apply:
			w += fmt.Sprintf(" %d", step.Batch.Seq)
			if step.Replayed {
				w += " replayed"
			}
		case Want:
			w += fmt.Sprintf(" %d", step.From)
		}
		words = append(words, w)
	}
	return strings.Join(words, ", ")
}

// then expects the steps of what was last played, and the trust behind it.
func (s *scene) then(steps, trust string) *scene {
	s.t.Helper()
	if got := said(s.steps); got != steps {
		s.t.Errorf("steps: %s\n want: %s", got, steps)
	}
	for _, step := range s.steps {
		if step.Kind == Apply && (step.Batch == nil || step.Payload == nil) {
			s.t.Errorf("apply without its batch or payload")
		}
	}
	if got := s.tr.Trust(s.name).String(); got != trust {
		s.t.Errorf("trust: %s, want %s", got, trust)
	}
	if st, ok := s.tr.State(s.name); ok {
		if st.Trust.String() != trust {
			s.t.Errorf("trust in state: %s, want %s", st.Trust, trust)
		}
		checkGaps(s.t, st)
		checkOrder(s.t, s.tr.replicas[s.name])
	}
	return s
}

// gaps expects the gaps of all epochs: "3–4 healed", "2/5–6 reason".
func (s *scene) gaps(want ...string) *scene {
	s.t.Helper()
	var got []string
	for _, g := range s.state().Gaps {
		w := fmt.Sprintf("%d–%d ", g.From, g.To)
		if g.Epoch > 1 {
			w = fmt.Sprintf("%d/%s", g.Epoch, w)
		}
		if g.Healed {
			w += "healed"
		}
		got = append(got, w+g.Reason)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("gaps: %q\n want: %q", got, want)
	}
	return s
}

// marks expects the kinds and batches of all marks: "gap 3–4".
func (s *scene) marks(want ...string) *scene {
	s.t.Helper()
	var got []string
	for _, m := range s.state().Marks {
		w := fmt.Sprintf("%s %d", m.Kind, m.Seq)
		if m.Kind == MarkGap || m.Kind == MarkHealed || m.Kind == MarkRestart {
			w += fmt.Sprintf("–%d", m.To)
		}
		got = append(got, w)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("marks: %q\n want: %q", got, want)
	}
	return s
}

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

// is expects one number or word of the state.
func is[T comparable](s *scene, what string, got, want T) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// checkOrder holds what is kept of a replica against itself.
func checkOrder(t testing.TB, r *replica) {
	bytes := 0
	for i := range r.held {
		seq := r.held[i].batch.Seq
		if seq < r.expect || seq >= r.next || i > 0 && seq <= r.held[i-1].batch.Seq {
			t.Errorf("batch %d is held where %d to %d may be", seq, r.expect, r.next)
		}
		bytes += r.held[i].cost()
	}
	switch {
	case bytes != r.heldBytes:
		t.Errorf("%d bytes are held and %d counted", bytes, r.heldBytes)
	case r.expect > r.next && r.next > 0, r.Heard && !r.holding && r.expect != r.next, len(r.held) > 0 && !r.holding:
		t.Errorf("next to apply is %d of %d, %d are held, holding is %v", r.expect, r.next, len(r.held), r.holding)
	case r.Heard && r.next > 0 && r.Last != r.next-1:
		t.Errorf("last is %d, and next %d", r.Last, r.next)
	}
}

// checkGaps holds gaps against what is always true of them.
func checkGaps(t testing.TB, st State) {
	open, missing := 0, uint64(0)
	for i, g := range st.Gaps {
		switch {
		case g.From > g.To:
			t.Errorf("gap %+v ends before it begins", g)
		case g.Healed != (g.Reason == "") || g.Healed != (g.HealedAt != 0):
			t.Errorf("gap %+v is healed or has a reason, not both and not neither", g)
		case g.Epoch > st.Epoch:
			t.Errorf("gap %+v is of an epoch to come (now %d)", g, st.Epoch)
		case i > 0 && (g.Epoch < st.Gaps[i-1].Epoch || g.Epoch == st.Gaps[i-1].Epoch && g.From <= st.Gaps[i-1].To):
			t.Errorf("gap %+v does not follow %+v", g, st.Gaps[i-1])
		}
		if g.Epoch == st.Epoch && !g.Healed {
			open++
			missing += g.To - g.From + 1
		}
	}
	if st.GapsLost == 0 && (st.GapsOpen != open || st.MissingNow != missing) {
		t.Errorf("%d gaps of %d batches, and the list holds %d of %d", st.GapsOpen, st.MissingNow, open, missing)
	}
	if len(st.Gaps) > history || len(st.Marks) > history {
		t.Errorf("%d gaps and %d marks, more than %d", len(st.Gaps), len(st.Marks), history)
	}
}
