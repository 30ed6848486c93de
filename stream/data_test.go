package stream

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// base64s are frames of a message.
type base64s []string

func (b base64s) frames(t testing.TB) [][]byte {
	t.Helper()
	out := make([][]byte, len(b))
	for i, s := range b {
		frame, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = frame
	}
	return out
}

// answer is a recorded replay answer and what it was an answer to.
type answer struct {
	from     uint64
	messages [][][]byte
	seqs     []uint64 // of its batches
	complete bool     // it ends with the marker
}

// add reads a message's sequence without the decoder: it is the last frame but
// one.
func (a *answer) add(t testing.TB, frames [][]byte) {
	t.Helper()
	a.messages = append(a.messages, frames)
	seq := binary.BigEndian.Uint64(frames[len(frames)-2])
	if a.complete = seq == math.MaxUint64; !a.complete {
		a.seqs = append(a.seqs, seq)
	}
}

// holes counts the batches between the first and the last that are not there.
func (a *answer) holes() uint64 {
	if len(a.seqs) == 0 {
		return 0
	}
	return a.seqs[len(a.seqs)-1] - a.seqs[0] + 1 - uint64(len(a.seqs))
}

func (a *answer) payload(seq uint64) []byte {
	for _, m := range a.messages {
		if binary.BigEndian.Uint64(m[len(m)-2]) == seq {
			return m[len(m)-1]
		}
	}
	return nil
}

// after takes an answer to a tracker that has joined live at a batch while it
// was asked for.
func (a *answer) after(t testing.TB, at uint64, payload []byte) *scene {
	t.Helper()
	s := play(t, 1<<20)
	s.begin(a.from)
	s.raw([]byte("topic"), seqFrame(at), payload)
	var w watcher
	for _, frames := range a.messages {
		s.push(wire.Record{Kind: wire.ReplayFrames, Frames: frames})
		w.follow(t, s.steps)
	}
	s.end(map[bool]string{false: "no answer for 2 s"}[a.complete])
	w.follow(t, s.steps)
	st := s.state()
	checkGaps(t, st)
	checkOrder(t, s.tr.replicas["r"])
	w.accounts(t, st, false)
	return s
}

// exact reports whether nothing is missing since batch 0 or the last clear.
func (a *answer) exact(t testing.TB, at uint64, payload []byte) bool {
	t.Helper()
	next, whole := uint64(0), true
	take := func(seq uint64, payload []byte) {
		whole = whole && seq == next
		next = seq + 1
		batch, err := wire.Decode("", seq, payload)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batch.Events {
			whole = whole || batch.Events[i].Kind == wire.Cleared
		}
	}
	for i, seq := range a.seqs {
		m := a.messages[i]
		take(seq, m[len(m)-1])
	}
	if n := len(a.seqs); n == 0 || a.seqs[n-1] < at {
		take(at, payload)
	}
	return whole
}

// check expects what the answer must make of a replica that was joined late.
func (a *answer) check(t testing.TB, name string, at uint64, payload []byte) {
	t.Helper()
	st := a.after(t, at, payload).state()
	batches, first, missing := uint64(1), at, uint64(0)
	if n := len(a.seqs); n > 0 && a.seqs[0] < at {
		first, batches, missing = a.seqs[0], uint64(n), a.holes()
		if last := a.seqs[n-1]; last < at {
			missing += at - last - 1
			batches++
		}
	}
	exact := a.exact(t, at, payload)
	if st.First != first || st.Batches != batches || st.MissingNow != missing || st.Trust.Exact() != exact {
		t.Errorf("%s: first %d, %d batches, %d missing, %v; want %d, %d, %d, exact %v", name,
			st.First, st.Batches, st.MissingNow, st.Trust, first, batches, missing, exact)
	}
	if st.Held != 0 || st.Duplicates != 0 || st.Reordered != 0 || st.Restarts != 0 || st.Undecodable != 0 {
		t.Errorf("%s: %+v", name, st)
	}
}
