package stream

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// labLine is a line of the publisher lab: live frames, or a replay answer with
// its figures, of which long ones keep the first and the last message only.
type labLine struct {
	Kind, Name         string
	Start              uint64
	Batches, Got       int
	First, Last        []uint64
	Holes              [][2]uint64 // the batches around what is missing
	EndMarker          bool        `json:"end_marker"`
	Frames             []base64s
	Replica, Note      string
	RequestFrames      base64s `json:"request_frames"`
	Replies            []struct{ Frames base64s }
	FramesB64          base64s   `json:"frames_b64"`
	ReplyFramesB64     []base64s `json:"reply_frames_b64"`
	RequestFramesB64   base64s   `json:"request_frames_b64"`
	SentEngineSeq      *uint64   `json:"sent_engine_seq"`
	Events             []map[string]any
	Engine, What, Desc string
}

// seqs are the batches of a line by its figures.
func (l *labLine) seqs() []uint64 {
	var out []uint64
	if len(l.First) == 0 {
		return nil
	}
	holes := l.Holes
	for seq := l.First[0]; seq <= l.Last[0]; seq++ {
		out = append(out, seq)
		if len(holes) > 0 && holes[0][0] == seq {
			seq, holes = holes[0][1]-1, holes[1:]
		}
	}
	return out
}

// answer puts a recorded replay together again.
func (l *labLine) answer(t *testing.T) *answer {
	a := &answer{from: l.Start}
	kept := map[uint64][][]byte{}
	var like [][]byte
	for _, f := range l.Frames {
		frames := f.frames(t)
		kept[binary.BigEndian.Uint64(frames[len(frames)-2])] = frames
		if like == nil {
			like = frames
		}
	}
	for _, seq := range l.seqs() {
		frames := kept[seq]
		if frames == nil {
			frames = slices.Clone(like)
			frames[len(frames)-2] = seqFrame(seq)
		}
		a.add(t, frames)
	}
	if end := kept[1<<64-1]; end != nil {
		a.add(t, end)
	}
	if len(a.seqs) != l.Batches || a.complete != l.EndMarker {
		t.Fatalf("%s: %d batches put together of %d, end %v of %v", l.Name, len(a.seqs), l.Batches, a.complete, l.EndMarker)
	}
	return a
}

func TestOracleRecordedReplays(t *testing.T) {
	t.Parallel()
	for _, file := range refdata.Files(t, refdata.Root(t), "vllm/h_publisher_lab/*.jsonl.gz") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			labReplays(t, file)
		})
	}
}

func labReplays(t *testing.T, file string) {
	all := refdata.All[labLine](t, file)
	live := map[uint64][]byte{} // payloads
	end := uint64(0)            // the last batch known of
	answers, batches, clipped, truncated := 0, 0, 0, 0
	for i := range all {
		if l := &all[i]; len(l.Last) > 0 && l.Kind == "replay" {
			end = max(end, l.Last[0])
		}
	}
	for i := range all {
		l := &all[i]
		switch l.Kind {
		case "sub":
			for _, f := range l.Frames {
				frames := f.frames(t)
				live[binary.BigEndian.Uint64(frames[1])] = frames[2]
			}
		case "hwm":
			hwm(t, l)
		case "dp":
			s := play(t, 0)
			s.push(wire.Record{Frames: l.Frames[0].frames(t)}).then("apply 0", "EXACT")
		case "replay":
			a := l.answer(t)
			answers++
			batches += len(a.seqs)
			at := uint64(slices.Max(append(slices.Collect(maps.Keys(live)), 0)))
			if len(a.seqs) > 0 && a.seqs[len(a.seqs)-1] > at || len(live) == 0 {
				at = end
			}
			payload := live[at]
			if payload == nil {
				payload = a.payload(at)
			}
			if payload == nil { // a truncated answer, and none of the last batch is kept
				truncated++
				payload = a.messages[0][len(a.messages[0])-1]
			}
			a.check(t, l.Name, at, payload)
			if n := len(a.seqs); n > 0 && at == a.seqs[n-1] && a.seqs[0] > 3 && a.seqs[0] < 100 {
				clipped++
				clippedGap(t, l, a, live)
			}
		}
	}
	t.Logf("%d answers with %d batches placed, %d truncated, %d of them also as the answer to a gap", answers, batches, truncated, clipped)
}

// clippedGap loses all between batch 2 and the last, and gets the answer.
func clippedGap(t *testing.T, l *labLine, a *answer, live map[uint64][]byte) {
	s := play(t, 1<<20)
	for seq := range uint64(3) {
		s.raw([]byte("topic"), seqFrame(seq), live[seq])
	}
	last := a.seqs[len(a.seqs)-1]
	s.raw([]byte("topic"), seqFrame(last), live[last]).then("want 3", "REPLAYING").begin(3)
	for _, frames := range a.messages {
		s.push(wire.Record{Kind: wire.ReplayFrames, Frames: frames})
	}
	st := s.state()
	checkGaps(t, st)
	// What the buffer no longer held, and what was never sent.
	missing := a.seqs[0] - 3 + a.holes()
	if st.MissingNow != missing || st.Batches != 3+uint64(len(a.seqs)) || st.Gaps[0].From != 3 || st.Gaps[0].To != a.seqs[0]-1 {
		t.Errorf("%s: %d missing of %d, %d batches, gaps %+v", l.Name, st.MissingNow, missing, st.Batches, st.Gaps)
	}
	if !st.Trust.Exact() && slices.Equal(st.Trust.Reasons, []Reason{GapOpen, ReplayClipped}) {
		return
	}
	// The lab's last batch is a clear, after which nothing is in doubt.
	if b, err := wire.Decode("", last, live[last]); err != nil || b.Events[0].Kind != wire.Cleared {
		t.Errorf("%s: trust %v", l.Name, st.Trust)
	}
}

// hwm loses what a slow subscriber lost.
func hwm(t *testing.T, l *labLine) {
	s := play(t, 0)
	seqs := l.seqs()
	for _, seq := range seqs {
		s.raw(nil, seqFrame(seq), encode(t, []any{s.now.Seconds(), []any{stored(seq)}, 0}))
	}
	st := s.state()
	checkGaps(t, st)
	var holes [][2]uint64
	for _, g := range st.Gaps {
		holes = append(holes, [2]uint64{g.From - 1, g.To + 1})
	}
	if len(seqs) != l.Got || !slices.Equal(holes, l.Holes) || st.Batches != uint64(l.Got) || st.Trust.String() != "DEGRADED(gap)" {
		t.Errorf("%d of %d batches, gaps %v, want %v, %v", st.Batches, l.Got, holes, l.Holes, st.Trust)
	}
}

func TestOracleRecordedReplaysOfServers(t *testing.T) {
	t.Parallel()
	files := append(refdata.Files(t, refdata.Root(t), "vllm/e_replay/*.jsonl.gz"), refdata.Files(t, refdata.Root(t), "vllm/k*/replay.jsonl.gz")...)
	answers, batches, byForm := 0, 0, map[int]int{}
	for _, file := range files {
		full := map[string]*answer{} // by replica, the longest
		var all []*answer
		recorded := refdata.All[labLine](t, file)
		for i := range recorded {
			l := &recorded[i]
			a := &answer{}
			request := l.RequestFrames.frames(t)
			for _, b := range request[len(request)-1] {
				a.from = a.from<<8 | uint64(b)
			}
			for _, r := range l.Replies {
				frames := r.Frames.frames(t)
				byForm[len(frames)]++
				a.add(t, frames)
			}
			if f := full[l.Replica]; f == nil || len(a.seqs) > len(f.seqs) {
				full[l.Replica] = a
			}
			all = append(all, a)
		}
		for i, a := range all {
			f := full[recorded[i].Replica]
			at := f.seqs[len(f.seqs)-1]
			name := recorded[i].Replica + " " + recorded[i].Name
			a.check(t, name, at, f.payload(at))
			answers++
			batches += len(a.seqs)
		}
	}
	t.Logf("%d answers with %d batches placed; messages by number of frames: %v", answers, batches, byForm)
}

// A live recording loses a run of batches, and the same server's recorded
// replay brings them back: what is applied is what was sent, in order.
func TestOracleGapsHealedByRecordedReplays(t *testing.T) {
	t.Parallel()
	healed := 0
	for live, replay := range map[string]string{
		"vllm/a_fleet/events.jsonl.gz": "vllm/e_replay/*.jsonl.gz",
		"vllm/k*/events.jsonl.gz":      "vllm/k*/replay.jsonl.gz",
	} {
		for _, l := range refdata.All[labLine](t, refdata.Files(t, refdata.Root(t), replay)[0]) {
			a := &answer{}
			for _, r := range l.Replies {
				a.add(t, r.Frames.frames(t))
			}
			if n := len(a.seqs); n < 20 || a.holes() > 0 {
				continue
			}
			from := a.seqs[len(a.seqs)/4]
			to := a.seqs[len(a.seqs)*3/4]
			s := play(t, 1<<20)
			var applied, want [][]byte
			for _, m := range refdata.All[recordedLine](t, refdata.Files(t, refdata.Root(t), live)[0]) {
				if m.Replica != l.Replica || m.Frames == nil {
					continue
				}
				frames := m.Frames.frames(t)
				want = append(want, frames[2])
				if seq := binary.BigEndian.Uint64(frames[1]); seq < from || seq > to {
					s.push(wire.Record{Frames: frames})
				}
				applied = appendPayloads(applied, s.steps)
				s.steps = nil
			}
			s.begin(from)
			for i, m := range a.messages {
				if a.complete && i == len(a.messages)-1 || a.seqs[i] >= from {
					s.push(wire.Record{Kind: wire.ReplayFrames, Frames: m})
					applied = appendPayloads(applied, s.steps)
				}
			}
			s.then(said(s.steps), "EXACT").gaps(itoa(from) + "–" + itoa(to) + " healed")
			if !slices.EqualFunc(applied, want, slices.Equal) {
				t.Errorf("%s %s: %d batches applied, %d sent, or not the same", l.Replica, l.Name, len(applied), len(want))
			}
			healed++
		}
	}
	t.Logf("%d gaps healed", healed)
}

func appendPayloads(to [][]byte, steps []Step) [][]byte {
	for _, step := range steps {
		if step.Kind == Apply {
			to = append(to, step.Payload)
		}
	}
	return to
}

func TestOracleRecordedSGLang(t *testing.T) {
	t.Parallel()
	batches, answers := 0, 0
	for _, file := range refdata.Files(t, refdata.Root(t), "sglang/*.jsonl.gz") {
		s := play(t, 0)
		last, unreadable := [][]byte{}, false
		for _, l := range refdata.All[labLine](t, file) {
			switch l.Kind {
			case "meta":
				unreadable = strings.HasPrefix(l.What, "load topic") // no cache events
			case "frame":
				last = l.FramesB64.frames(t)
				batches++
				s.push(wire.Record{Frames: last})
				if trust := map[bool]string{false: "EXACT", true: "DEGRADED(undecodable)"}[unreadable]; s.state().Trust.String() != trust {
					t.Errorf("%s: %v, want %s", file, s.state().Trust, trust)
				}
			case "replay":
				a := &answer{}
				for _, r := range l.ReplyFramesB64 {
					a.add(t, r.frames(t))
				}
				at := binary.BigEndian.Uint64(last[1])
				a.check(t, l.Desc, at, last[2])
				answers++
			}
		}
		if st := s.state(); len(st.Gaps) > 0 || st.Restarts > 0 {
			t.Errorf("%s: %+v", file, st)
		}
	}
	t.Logf("%d batches in order, %d replay answers placed", batches, answers)
}

// What Dynamo's relay was fed, and passed on without a trace of the loss.
func TestOracleRelayGap(t *testing.T) {
	t.Parallel()
	for _, file := range refdata.Files(t, refdata.Root(t), "dynamo/relay_gap.jsonl.gz") {
		s := play(t, 0)
		var gaps []string
		next, epoch, sent := uint64(0), "", 0
		for _, l := range refdata.All[labLine](t, file) {
			if l.SentEngineSeq == nil {
				continue
			}
			switch seq := *l.SentEngineSeq; {
			case seq > next:
				gaps = append(gaps, epoch+itoa(next)+"–"+itoa(seq-1)+" "+NotReplayed)
			case seq < next:
				epoch = "2/"
			}
			next = *l.SentEngineSeq + 1
			sent++
			s.now += 1e9
			s.raw(nil, seqFrame(next-1), encode(t, []any{s.now.Seconds(), asSent(l.Events), 0}))
			if len(gaps) > 0 == s.tr.Trust("r").Exact() && epoch == "" {
				t.Errorf("%v after engine batch %d", s.tr.Trust("r"), next-1)
			}
		}
		s.gaps(gaps...)
		is(s, "restarts", s.state().Restarts, 1)
		is(s, "trust", s.tr.Trust("r").String(), "EXACT")
		t.Logf("%d engine batches, gaps %q, 1 restart", sent, gaps)
	}
}

// asSent gives events as the engine encodes them: JSON has hashes as text and
// numbers as such.
func asSent(v any) any {
	switch v := v.(type) {
	case []map[string]any:
		out := []any{}
		for _, e := range v {
			out = append(out, asSent(e))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = asSent(e)
			if hashes, ok := e.([]any); ok && k == "block_hashes" {
				for i, h := range hashes {
					if n, err := strconv.ParseUint(h.(string), 10, 64); err == nil {
						hashes[i] = n
					} else {
						hashes[i] = []byte(strings.Trim(h.(string), "b'"))
					}
				}
				out[k] = hashes
			}
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, asSent(e))
		}
		return out
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			panic(err) // the recordings have no other numbers
		}
		return n
	}
	return v
}
