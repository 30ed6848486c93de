package stream

import (
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// What a tap that can replay shows.

func TestGapHealedByReplay(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 2)
	// The lost batches store A, and the next one removes it (P42).
	s.publish(stored(0xa))
	s.publish(stored(0xb))
	s.publish(removed(0xa))
	s.live(5).then("want 3", "REPLAYING").gaps("3–4 not replayed")
	is(s, "held", s.state().Held, 1)
	is(s, "missing", s.state().MissingNow, 2)
	s.begin(3).then("", "REPLAYING")
	s.live(6).then("", "REPLAYING")
	s.replay(3, 3).then("apply 3 replayed", "REPLAYING").gaps("3–3 healed", "4–4 not replayed")
	s.replay(4, 4).then("apply 4 replayed, apply 5, apply 6", "REPLAYING").gaps("3–4 healed")
	s.replay(5, 6).then("", "REPLAYING") // the answer goes on with what was held
	s.marker().then("", "EXACT")
	s.end("").then("", "EXACT") // who asked says so too
	s.live(7).then("apply 7", "EXACT")
	s.marks("join 0", "gap 3–4", "replay-begin 3", "healed 3–4", "replay-end 7")
	st := s.state()
	is(s, "healed", st.GapsHealed, 1)
	is(s, "missing", st.MissingNow, 0)
	is(s, "duplicates", st.Duplicates, 0)
	is(s, "held", st.Held, 0)
	is(s, "requests", st.ReplayRequests, 1)
	is(s, "batches", st.Batches, 8)
}

func TestReplayWithoutTopic(t *testing.T) {
	t.Parallel()
	for name, frames := range map[string]func(seq, payload []byte) [][]byte{
		"as a DEALER sees it": func(seq, payload []byte) [][]byte { return [][]byte{{}, seq, payload} },
		"as a REQ sees it":    func(seq, payload []byte) [][]byte { return [][]byte{seq, payload} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := play(t, 100)
			s.live(0).live(2).then("want 1", "REPLAYING").begin(1)
			s.push(wire.Record{Kind: wire.ReplayFrames, Frames: frames(seqFrame(1), s.payload(1))})
			s.then("apply 1 replayed, apply 2", "REPLAYING")
			s.push(wire.Record{Kind: wire.ReplayFrames, Frames: frames(seqFrame(1<<64-1), nil)})
			s.then("", "EXACT").gaps("1–1 healed")
			is(s, "topic", s.state().Topic, "kv@r@m")
		})
	}
}

func TestReplayClipped(t *testing.T) {
	t.Parallel()
	const gone = "no longer in the publisher's replay buffer, or never sent"
	s := play(t, 100)
	s.all(0, 2).live(8).then("want 3", "REPLAYING")
	s.begin(3)
	s.replay(6, 6).then("doubt, apply 6 replayed", "REPLAYING(gap, replay-clipped)")
	s.gaps("3–5 "+gone, "6–6 healed", "7–7 not replayed")
	s.replay(7, 9).then("apply 7 replayed, apply 8, apply 9 replayed", "REPLAYING(gap, replay-clipped)")
	s.marker().then("", "DEGRADED(gap, replay-clipped)").gaps("3–5 "+gone, "6–7 healed")
	s.marks("join 0", "gap 3–7", "replay-begin 3", "healed 6–7", "replay-end 10")
	is(s, "missing", s.state().MissingNow, 3)
	s.live(9).then("", "DEGRADED(gap, replay-clipped)") // the replay was faster
	is(s, "duplicates", s.state().Duplicates, 0)
	s.live(9)
	is(s, "duplicates", s.state().Duplicates, 1)
	s.publish(cleared())
	s.live(10).then("apply 10", "EXACT")
}

func TestReplayTruncated(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 2).live(9).begin(3).replay(3, 5)
	s.end("no answer for 2 s").then("doubt, apply 9", "DEGRADED(gap)")
	s.gaps("3–5 healed", "6–8 no answer for 2 s")
	s.live(10).then("apply 10", "DEGRADED(gap)")
	s.marks("join 0", "gap 3–8", "replay-begin 3", "replay-end 6")
	is(s, "why", s.state().Marks[3].Text, "no answer for 2 s")
	// What comes late is not applied behind what follows.
	s.replay(6, 8).then("", "DEGRADED(gap)")
	is(s, "missing", s.state().MissingNow, 3)
}

func TestReplayRefused(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.live(0).live(2).then("want 1", "REPLAYING")
	s.end("no replay endpoint").then("doubt, apply 2", "DEGRADED(gap)").gaps("1–1 no replay endpoint")
	s.live(4).then("want 3", "REPLAYING(gap)") // once per gap
}

// A batch that could not be encoded takes a number and is never sent.
func TestHoleThatNeverFills(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 13).live(15).then("want 14", "REPLAYING")
	s.begin(14).replay(15, 15).then("doubt, apply 15 replayed", "REPLAYING(gap, replay-clipped)")
	s.marker().then("", "DEGRADED(gap, replay-clipped)")
	s.live(16).then("apply 16", "DEGRADED(gap, replay-clipped)")
	is(s, "requests", s.state().ReplayRequests, 1)

	// An answer with nothing in it.
	s = play(t, 100)
	s.all(0, 13).live(15).begin(14).marker().then("doubt, apply 15", "DEGRADED(gap)")
	s.gaps("14–14 the replay answer did not hold them")
}

func TestHoleInsideAReplay(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 2).live(9).begin(3)
	s.replay(3, 4).replay(6, 8).then("doubt, apply 6 replayed, apply 7 replayed, apply 8 replayed, apply 9", "REPLAYING(gap, replay-clipped)")
	s.marker().then("", "DEGRADED(gap, replay-clipped)")
	s.gaps("3–4 healed", "5–5 never sent, as the publisher's replay has the batches around them", "6–8 healed")
}

// The answer can hold less than what came live in the meantime.
func TestReplayBehindHeldBatches(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 2).live(5).live(6).live(9).begin(3).live(12)
	s.replay(8, 8).then("doubt, apply 5, apply 6, doubt, apply 8 replayed, apply 9", "REPLAYING(gap, replay-clipped)")
	const gone = "no longer in the publisher's replay buffer, or never sent"
	s.gaps("3–4 "+gone, "7–7 "+gone, "8–8 healed", "10–11 not replayed")
	is(s, "batches", s.state().Batches, 7)
}

// What is lost while an answer is made is not in it, and is asked for once.
func TestGapDuringReplay(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 2).live(5).begin(3).replay(3, 5)
	s.live(8).then("", "REPLAYING").gaps("3–4 healed", "6–7 not replayed")
	s.marker().then("want 6", "REPLAYING")
	s.end("").then("", "REPLAYING")
	s.begin(6).replay(6, 8).then("apply 6 replayed, apply 7 replayed, apply 8", "REPLAYING")
	s.marker().then("", "EXACT").gaps("3–4 healed", "6–7 healed")
	// Not again when it does not come.
	s.live(10).then("want 9", "REPLAYING").begin(9).replay(9, 10).live(12).marker().then("want 11", "REPLAYING")
	s.begin(0).replay(0, 10).marker().then("doubt, apply 12", "DEGRADED(gap)")
	s.gaps("3–4 healed", "6–7 healed", "9–9 healed", "11–11 the replay answer did not hold them")
}

// A replay that was asked for by hand while nothing is missing.
func TestReplayOfWhatIsThere(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 9).begin(0).then("", "REPLAYING")
	s.live(10).then("", "REPLAYING")
	s.replay(0, 10).then("apply 10 replayed", "REPLAYING")
	s.marker().then("", "EXACT")
	is(s, "batches", s.state().Batches, 11)
	is(s, "duplicates", s.state().Duplicates, 0)
	// And one is lost meanwhile.
	s.begin(0).live(12).then("", "REPLAYING").gaps("11–11 not replayed")
	s.replay(0, 10).marker().then("want 11", "REPLAYING")
}

func TestFullReplayOfALateJoin(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(20, 22).begin(0).live(23).then("", "REPLAYING(late-join)")
	s.replay(0, 1).then("forget, apply 0 replayed, apply 1 replayed", "REPLAYING")
	s.replay(2, 22)
	is(s, "last step", s.steps[len(s.steps)-1].Batch.Seq, 23)
	s.replay(23, 23).then("", "REPLAYING")
	s.marker().then("", "EXACT").gaps().marks("join 0", "replay-begin 0", "replay-end 24")
	st := s.state()
	is(s, "first", st.First, 0)
	is(s, "last", st.Last, 23)
	is(s, "batches", st.Batches, 24)
	is(s, "stores", st.Events.Stored, 24)
	s.live(24).then("apply 24", "EXACT")
}

func TestClippedReplayOfALateJoin(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(20, 22).begin(0)
	s.replay(15, 22)
	s.marker().then("", "DEGRADED(late-join, replay-clipped)").gaps().marks("join 15", "replay-begin 0", "replay-end 23")
	is(s, "first", s.state().First, 15)
	s.publish(cleared())
	s.live(23).then("apply 23", "EXACT")
	// Older than that is of no use any more.
	s.begin(0).replay(3, 23).then("", "REPLAYING").marker().then("", "EXACT")
	is(s, "first", s.state().First, 15)
}

func TestReplayThatAddsNothing(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(20, 22).begin(0).replay(20, 22).then("", "REPLAYING(late-join)").marker().then("", "DEGRADED(late-join)")
	s.begin(0).marker().then("", "DEGRADED(late-join)")
	is(s, "batches", s.state().Batches, 3)
}

// A replay began before the first live batch.
func TestReplayFirst(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.begin(0)
	s.replay(0, 4).then("forget, apply 0 replayed, apply 1 replayed, apply 2 replayed, apply 3 replayed, apply 4 replayed", "REPLAYING")
	s.live(8).then("", "REPLAYING").gaps() // before it nothing was to come live
	s.replay(5, 8).then("apply 5 replayed, apply 6 replayed, apply 7 replayed, apply 8", "REPLAYING")
	s.live(6).then("", "REPLAYING")
	s.marker().then("", "EXACT").gaps()
	is(s, "duplicates", s.state().Duplicates, 0)
	is(s, "reordered", s.state().Reordered, 0)

	s = play(t, 100)
	s.begin(0).replay(0, 4).live(8)
	s.end("broke off").then("doubt, apply 8", "DEGRADED(gap)").gaps("5–7 broke off")

	s = play(t, 100)
	s.begin(0).live(8).then("", "REPLAYING(late-join)")
	s.replay(0, 7).marker().then("", "EXACT").gaps()
}

// A publisher that repeats nothing when asked for everything has published
// nothing, so its cache is empty.
func TestReplayOfNothing(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.link(wire.LinkUp).then("", "BLIND(no-events)")
	s.begin(0).then("", "BLIND(no-events)")
	s.marker().then("", "EXACT").end("")
	s.live(0).then("apply 0", "EXACT").gaps().marks("replay-begin 0", "replay-end 0", "join 0")

	// Its first batch was sent between the answer and the subscription.
	s = play(t, 100)
	s.link(wire.LinkUp).begin(0).marker()
	s.live(1).then("want 0", "REPLAYING").begin(0).replay(0, 1).then("apply 0 replayed, apply 1", "REPLAYING").marker().then("", "EXACT")

	for name, ask := range map[string]func(*scene){
		"part of it":    func(s *scene) { s.begin(7).marker() },
		"broke off":     func(s *scene) { s.begin(0).end("timeout") },
		"refused":       func(s *scene) { s.end("no replay socket") },
		"never asked":   func(s *scene) { s.marker() },
		"it is unread":  func(s *scene) { s.raw([]byte("x")).begin(0).marker() },
		"another began": func(s *scene) { s.begin(0).begin(3).marker() },
	} {
		s := play(t, 100)
		s.link(wire.LinkUp)
		ask(s)
		if s.state().Trust.Word != Blind {
			t.Errorf("%s: %s", name, s.state().Trust)
		}
	}
}

// The replay can be far faster than the live socket.
func TestReplayAheadOfLive(t *testing.T) {
	t.Parallel()
	s := play(t, 1000)
	s.all(0, 2).begin(0).replay(0, 500).marker().then("", "EXACT")
	s.all(3, 500).then("", "EXACT")
	s.live(501).then("apply 501", "EXACT")
	st := s.state()
	is(s, "restarts", st.Restarts, 0)
	is(s, "duplicates", st.Duplicates, 0)
	is(s, "reordered", st.Reordered, 0)
}

// A full replay that breaks off leaves less than there was, and says so.
func TestRebuildBrokenOff(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(20, 40)
	s.live(43).then("want 41", "REPLAYING(late-join)").begin(41).marker()
	s.gaps("41–42 the replay answer did not hold them")
	s.begin(0).replay(0, 10).then(said(s.steps), "REPLAYING")
	s.end("no answer").then("doubt", "DEGRADED(gap)").gaps("11–40 no answer", "41–42 no answer", "43–43 no answer")
	is(s, "missing", s.state().MissingNow, 33)
	s.live(44).then("apply 44", "DEGRADED(gap)")
	s.begin(0).replay(0, 44).marker().then("", "EXACT").gaps("11–40 healed", "41–42 healed", "43–43 healed")
}

// A gap that was given up is filled by a replay from the beginning.
func TestFullReplayFillsOldGaps(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 2).live(5).begin(3).end("no answer").then("doubt, apply 5", "DEGRADED(gap)")
	s.begin(0).replay(0, 0).then("forget, apply 0 replayed", "REPLAYING")
	s.replay(1, 5).marker().then("", "EXACT").gaps("3–4 healed")
	is(s, "missing", s.state().MissingNow, 0)
	is(s, "batches", s.state().Batches, 6)

	s.reborn() // counts are over all epochs
	s.live(1).end("refused").then("doubt, apply 1", "DEGRADED(gap)")
	s.begin(0).replay(0, 1).then("forget, apply 0 replayed, apply 1 replayed", "REPLAYING").marker().then("", "EXACT")
	is(s, "batches", s.state().Batches, 8)
	is(s, "stores", s.state().Events.Stored, 8)
}

func TestRestartDuringReplay(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 2).live(5).begin(3).live(6)
	old := s.payload(4)
	s.reborn()
	s.live(0).then("drop, apply 0", "EXACT")
	s.gaps("3–4 the process restarted before they could be fetched")
	s.marks("join 0", "gap 3–4", "replay-begin 3", "replay-end 3", "restart 6–0", "join 0")
	s.live(3).then("want 1", "REPLAYING")
	// What the old process still answers is not of this epoch.
	s.push(wire.Record{Kind: wire.ReplayFrames, Frames: [][]byte{{}, {}, seqFrame(4), old}}).then("", "REPLAYING")
	s.end("connection reset").then("", "REPLAYING")
	s.begin(1).replay(1, 3).then("apply 1 replayed, apply 2 replayed, apply 3", "REPLAYING")
	s.marker().then("", "EXACT")
	is(s, "held", s.state().Held, 0)
}

// The first number of the new process lies within what is held.
func TestRestartWithinTheGap(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]uint64{"in the gap": 4, "held": 6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := play(t, 100)
			s.all(0, 2).live(5).live(6).live(7)
			s.live(6).then("", "REPLAYING") // a mere duplicate
			s.live(4).then("", "REPLAYING") // late
			is(s, "duplicates", s.state().Duplicates, 1)
			is(s, "reordered", s.state().Reordered, 1)
			s.reborn()
			s.live(first).then("drop, want 0", "REPLAYING")
			s.begin(0).replay(0, first).marker().then("", "EXACT")
		})
	}
}

// After an outage, numbers alone do not tell a new process that has already
// sent more than the old one from batches that were missed.
func TestReconnectWithGap(t *testing.T) {
	t.Parallel()
	reconnect := func(t *testing.T) *scene {
		s := play(t, 100)
		return s.link(wire.LinkUp).all(0, 20).link(wire.LinkDown)
	}
	t.Run("same process", func(t *testing.T) {
		t.Parallel()
		s := reconnect(t).link(wire.LinkUp)
		s.live(30).then("want 20", "REPLAYING") // one more than is missing
		s.begin(20).replay(20, 30).marker().then("", "EXACT").gaps("21–29 healed")
		is(s, "duplicates", s.state().Duplicates, 0)
	})
	t.Run("new process", func(t *testing.T) {
		t.Parallel()
		s := reconnect(t)
		s.reborn()
		s.link(wire.LinkUp).live(30).then("want 20", "REPLAYING")
		s.begin(20).replay(20, 20).then("drop, want 0", "REPLAYING")
		s.replay(21, 30).then("", "REPLAYING") // an answer to the old question
		s.marker().then("", "REPLAYING")
		s.begin(0).replay(0, 30).marker().then("", "EXACT").gaps("21–29 the process restarted before they could be fetched", "2/0–29 healed")
		is(s, "restarts", s.state().Restarts, 1)
		is(s, "batches", s.state().Batches, 21+31)
	})
	t.Run("new process that cannot replay", func(t *testing.T) {
		t.Parallel()
		s := reconnect(t)
		s.reborn()
		s.link(wire.LinkUp).live(30).end("no replay endpoint").then("doubt, apply 30", "DEGRADED(gap)")
	})
	t.Run("replay asked before anything came", func(t *testing.T) {
		t.Parallel()
		s := reconnect(t).link(wire.LinkUp)
		s.begin(20).then("", "STALE(reconnected)")
		s.replay(20, 25).marker().then("", "EXACT") // up to now
		s.live(26).then("apply 26", "EXACT").gaps()
	})
	t.Run("nothing to replay", func(t *testing.T) {
		t.Parallel()
		s := reconnect(t).link(wire.LinkUp)
		s.begin(21).marker().then("", "STALE(reconnected)") // as a new process would answer too
		s.begin(20).replay(20, 20).marker().then("", "EXACT")
	})
	t.Run("old answer behind a new process", func(t *testing.T) {
		t.Parallel()
		s := reconnect(t)
		old := s.payload(19)
		s.reborn()
		s.link(wire.LinkUp).all(0, 19).then(said(s.steps), "EXACT")
		s.push(wire.Record{Kind: wire.ReplayFrames, Frames: [][]byte{{}, {}, seqFrame(19), old}}).then("", "EXACT")
		is(s, "reordered", s.state().Reordered, 1)
	})
}

// A start time shows the restart, and a replay the new process from its start.
func TestReplayAfterRestartByStartTime(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.scrape(s.now-60e9).all(0, 20)
	old := s.payload(21)
	s.scrape(s.reborn()).then("drop", "STALE(reconnected)")
	s.begin(0)
	s.push(wire.Record{Kind: wire.ReplayFrames, Frames: [][]byte{{}, {}, seqFrame(21), old}}).then("", "STALE(reconnected)")
	s.replay(0, 3).then("apply 0 replayed, apply 1 replayed, apply 2 replayed, apply 3 replayed", "REPLAYING")
	s.marker().then("", "EXACT")
	s.live(4).then("apply 4", "EXACT").gaps()

	s = play(t, 100)
	s.scrape(s.now-60e9).all(0, 20).scrape(s.reborn())
	s.begin(0).replay(2, 3).then("doubt, apply 2 replayed, apply 3 replayed", "REPLAYING(gap, replay-clipped)")
	s.gaps("2/0–1 no longer in the publisher's replay buffer, or never sent")

	for _, hold := range []int{0, 100} { // a live batch comes before the answer
		s = play(t, hold)
		s.scrape(s.now-60e9).all(0, 20).scrape(s.reborn())
		s.begin(0).live(3).then("", "REPLAYING")
		s.replay(0, 2).marker().then("", "EXACT").gaps()
		is(s, "batches", s.state().Batches, 25)
	}
}

func TestStrangeAnswers(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 2).live(5).begin(3)
	s.push(wire.Record{Kind: wire.ReplayFrames, Frames: [][]byte{{1}}}).then("", "REPLAYING")
	is(s, "frame errors", s.state().FrameErrors, 1)
	s.made[4] = []byte{0xc1}
	s.replay(3, 4).then("apply 3 replayed, doubt, apply 4 replayed, apply 5", "REPLAYING(undecodable)")
	s.replay(3, 4).then("", "REPLAYING(undecodable)") // in no order
	s.begin(0).marker().then("", "DEGRADED(undecodable)")
	s.marker().end("").end("late").then("", "DEGRADED(undecodable)")

	s = play(t, 100)
	s.all(20, 22).begin(0).replay(15, 15).then("forget, apply 15 replayed", "REPLAYING(late-join, replay-clipped)")
	s.replay(10, 10).then("", "REPLAYING(late-join, replay-clipped)") // descending
	s.replay(16, 22).marker().then("", "DEGRADED(late-join, replay-clipped)").gaps()
}

// The answer comes from a process that took the place of the one which sent
// what is held.
func TestAnswerOfANewProcess(t *testing.T) {
	t.Parallel()
	s := play(t, 100)
	s.all(0, 2).live(5).live(8).reborn()
	s.payload(9)
	s.begin(3).replay(3, 4)
	s.replay(5, 9).then("drop", "STALE(reconnected)")
	st := s.state()
	is(s, "restarts", st.Restarts, 1)
	is(s, "held", st.Held, 0)
	s.marker().live(10).then("want 0", "REPLAYING")
	s.begin(0).replay(0, 10).marker().then("", "EXACT")
	s.gaps("3–4 healed", "6–7 the process restarted before they could be fetched", "2/0–9 healed")
}

// Too many live batches came during a replay, and then one more is lost.
func TestGapBehindAReplayThatTookTooLong(t *testing.T) {
	t.Parallel()
	s := play(t, 3)
	s.all(0, 2).live(5).begin(3).all(6, 8).then("doubt, apply 5, apply 6, apply 7, apply 8", "DEGRADED(gap)")
	s.live(10).then("want 9", "REPLAYING(gap)")
	s.replay(3, 8).then("", "REPLAYING(gap)")
	s.marker().then("", "REPLAYING(gap)") // the new one is not begun
	s.begin(9).replay(9, 9).then("apply 9 replayed, apply 10", "REPLAYING(gap)")
	s.marker().then("", "DEGRADED(gap)").gaps("3–4 the replay took longer than 3 live batches", "9–9 healed")
}

// A recording has its replays in it, and its tracker asks for none.
func TestRecordedReplay(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.all(10, 12).begin(0).live(13).live(14).then("", "REPLAYING(late-join)")
	s.replay(0, 11).replay(12, 12).then("apply 12 replayed, apply 13, apply 14", "REPLAYING")
	s.marker().then("", "EXACT")
	is(s, "batches", s.state().Batches, 15)
	s.live(17).then("doubt, apply 17", "DEGRADED(gap)")
	s.begin(15).replay(15, 17).marker().then("", "DEGRADED(gap)") // it is too late
}
