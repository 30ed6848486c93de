package stream

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// What a tap or a recording shows that cannot replay.

func TestExactFromZero(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.live(0).then("apply 0", "EXACT")
	s.all(1, 3).then("apply 1, apply 2, apply 3", "EXACT").gaps().marks("join 0")
	st := s.state()
	is(s, "epoch", st.Epoch, 1)
	is(s, "first", st.First, 0)
	is(s, "last", st.Last, 3)
	is(s, "batches", st.Batches, 4)
	is(s, "stores", st.Events.Stored, 4)
	is(s, "topic", st.Topic, "kv@r@m")
	is(s, "rank", st.Rank, 0)
	is(s, "lag > 0", st.Lag > 0 && st.Lag < 1e9, true)
	is(s, "joined", st.Joined < st.Until && st.Until == st.LastBatch, true)
}

func TestLateJoin(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.live(812).then("apply 812", "DEGRADED(late-join)").gaps().marks("join 812")
	is(s, "first", s.state().First, 812)
	s.live(813).then("apply 813", "DEGRADED(late-join)")
	// What was cached before is gone with the cache.
	s.publish(cleared(), stored(1))
	s.live(814).then("apply 814", "EXACT").marks("join 812", "cleared 814")
	s.live(815).then("apply 815", "EXACT")

	s = play(t, 0)
	s.live(812).live(814).then("doubt, apply 814", "DEGRADED(gap, late-join)") // the most telling first
	s.publish(bad())
	s.live(815).then("apply 815", "DEGRADED(gap, undecodable, late-join)")
}

func TestGap(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.all(0, 2)
	s.live(5).then("doubt, apply 5", "DEGRADED(gap)").gaps("3–4 not replayed")
	st := s.state()
	is(s, "missing", st.MissingNow, 2)
	is(s, "open", st.GapsOpen, 1)
	is(s, "seen", st.Gaps[0].Seen, st.LastBatch)
	is(s, "last", st.Last, 5)
	s.live(6).then("apply 6", "DEGRADED(gap)")
	s.live(8).then("doubt, apply 8", "DEGRADED(gap)").gaps("3–4 not replayed", "7–7 not replayed")
	s.marks("join 0", "gap 3–4", "gap 7–7")
	s.publish(cleared())
	s.live(9).then("apply 9", "EXACT") // the gaps are history
	is(s, "missing", s.state().MissingNow, 3)
}

func TestDuplicateAndLate(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.all(0, 9)
	s.live(9).then("", "EXACT")
	s.live(4).then("", "EXACT")
	is(s, "duplicates", s.state().Duplicates, 2)
	s.live(12).then("doubt, apply 12", "DEGRADED(gap)")
	s.live(11).then("", "DEGRADED(gap)").gaps("10–11 not replayed")
	is(s, "reordered", s.state().Reordered, 1)
	// Too far back to be known by its bytes, and by its time no restart.
	s.all(13, 100)
	s.live(20).then("", "DEGRADED(gap)")
	s.live(0).then("", "DEGRADED(gap)")
	st := s.state()
	is(s, "duplicates", st.Duplicates, 3) // the first batch stays known
	is(s, "reordered", st.Reordered, 2)
	is(s, "restarts", st.Restarts, 0)
}

// A second subscription that lags far behind brings everything once more.
func TestLaggingCopies(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.all(0, 99)
	for seq := uint64(100); seq < 200; seq++ {
		s.live(seq).live(seq-90).then("", "EXACT")
	}
	st := s.state()
	is(s, "restarts", st.Restarts, 0)
	is(s, "reordered", st.Reordered, 100)
}

func TestRestart(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.all(0, 156)
	s.reborn()
	s.live(0).then("drop, apply 0", "EXACT")
	s.live(1).then("apply 1", "EXACT").gaps().marks("join 0", "restart 156–0", "join 0")
	st := s.state()
	is(s, "epoch", st.Epoch, 2)
	is(s, "restarts", st.Restarts, 1)
	is(s, "last", st.Last, 1)
	is(s, "batches", st.Batches, 159)
	is(s, "old mark's epoch", st.Marks[0].Epoch, 1)
	is(s, "new mark's epoch", st.Marks[2].Epoch, 2)
}

func TestRestartOfALateJoin(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.live(40).then("apply 40", "DEGRADED(late-join)")
	s.reborn()
	s.live(0).then("drop, apply 0", "EXACT") // what was unknown is gone
}

func TestRestartFirstBatchesLost(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.all(0, 100)
	s.live(103).then("doubt, apply 103", "DEGRADED(gap)")
	s.reborn()
	s.live(40).then("drop, doubt, apply 40", "DEGRADED(gap)")
	s.gaps("101–102 not replayed", "2/0–39 not replayed")
	st := s.state()
	is(s, "first", st.First, 0)
	is(s, "last", st.Last, 40)
	is(s, "missing", st.MissingNow, 40)
	is(s, "open", st.GapsOpen, 1)
}

func TestRestartWithTheClockBehind(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]uint64{"seen from 0": 0, "seen from 3": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := play(t, 0)
			s.all(0, 100)
			s.clock = -600e9 // the pod moved to another node
			s.reborn()
			if s.live(first); first == 0 {
				s.then("drop, apply 0", "EXACT") // batch 0 was another one
			} else {
				s.then("", "EXACT") // one batch can be late
			}
			s.all(first+1, first+5)
			is(s, "exact", s.tr.Trust("r").Exact(), first == 0)
			is(s, "epoch", s.state().Epoch, 2)
			is(s, "last", s.state().Last, first+5)
		})
	}
	t.Run("and the link came back", func(t *testing.T) {
		t.Parallel()
		s := play(t, 0)
		s.link(wire.LinkUp).all(0, 100).link(wire.LinkDown)
		s.clock = -600e9
		s.reborn()
		s.link(wire.LinkUp)
		s.live(3).then("drop, doubt, apply 3", "DEGRADED(gap)")
	})
}

func TestRestartByStartTime(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	started := s.now - 60e9
	s.scrape(started).then("", "BLIND(no-events)")
	s.all(0, 156)
	s.scrape(started).then("", "EXACT")
	last := s.payload(157)
	started = s.reborn()
	// The cache is known to be empty, but not what the process did since.
	s.scrape(started).then("drop", "STALE(reconnected)").marks("join 0", "restart 156–0")
	is(s, "heard", s.state().Heard, false)
	s.scrape(started).then("", "STALE(reconnected)")
	s.raw([]byte("kv@r@m"), seqFrame(157), last).then("", "STALE(reconnected)")
	is(s, "reordered", s.state().Reordered, 1)
	s.live(0).then("apply 0", "EXACT")
	s.raw([]byte("kv@r@m"), seqFrame(157), last).then("", "EXACT") // from the other connection
	s.live(1).then("apply 1", "EXACT")
	s.scrape(started).then("", "EXACT")
	st := s.state()
	is(s, "restarts", st.Restarts, 1)
	is(s, "reordered", st.Reordered, 2)
}

func TestRestartByStartTimeWithBatchesLost(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.scrape(s.now-60e9).all(0, 20)
	started := s.reborn()
	s.scrape(started).then("drop", "STALE(reconnected)")
	s.live(7).then("doubt, apply 7", "DEGRADED(gap)").gaps("2/0–6 not replayed")
	is(s, "marks", s.state().Restarts, 1)
}

// A process that had sent more than the old one before it was looked at.
func TestRestartShownOnlyByStartTime(t *testing.T) {
	t.Parallel()
	for name, seq := range map[string]uint64{"as a gap": 30, "not even as a gap": 21} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := play(t, 0)
			s.scrape(s.now-60e9).all(0, 20)
			started := s.reborn()
			s.live(seq)
			s.scrape(started).then("drop", "STALE(reconnected)")
			s.live(seq+1).then("doubt, apply "+itoa(seq+1), "DEGRADED(gap)")
		})
	}
}

// A start time is held against the engine's own times, and both can be wrong.
func TestStartTimeOfAnotherClock(t *testing.T) {
	t.Parallel()
	t.Run("before the first batch", func(t *testing.T) {
		t.Parallel()
		s := play(t, 0)
		s.clock = -300e9
		s.all(0, 20).scrape(s.now - 400e9)
		s.then("", "EXACT")
	})
	t.Run("set back while the sequence went on", func(t *testing.T) {
		t.Parallel()
		s := play(t, 0)
		s.all(0, 20)
		s.scrape(s.now-1500e6).then("", "EXACT") // between two batches, with none missing
		s.live(21).then("apply 21", "EXACT")
	})
	t.Run("ahead for good", func(t *testing.T) {
		t.Parallel()
		s := play(t, 0)
		s.all(0, 20)
		started := s.now + 50e9
		s.scrape(started).then("drop", "STALE(reconnected)") // as a restart would look
		seq := uint64(21)
		for ; seq < 140; seq++ { // 14 seconds: no old batch waits that long
			s.live(seq).scrape(started)
		}
		s.live(seq).then("apply "+itoa(seq), "DEGRADED(gap)")
		is(s, "restarts", s.state().Restarts, 1) // and not one with every scrape
	})
	t.Run("engine times that are no times of day", func(t *testing.T) {
		t.Parallel()
		s := play(t, 0)
		s.clock = -s.now + 1000e9
		started := s.now - 60e9
		s.scrape(started).all(0, 20).scrape(started).then("", "EXACT")
		s.reborn()
		s.clock += 5e9
		started = s.now
		s.scrape(started).then("drop", "STALE(reconnected)")
		s.live(0).then("apply 0", "EXACT").scrape(started).then("", "EXACT")
		s.reborn()
		s.live(0).then("drop, apply 0", "EXACT")
		s.scrape(s.now-1e9).then("", "EXACT") // seen already
		// A rebuild is not a beginning.
		s = play(t, 0)
		s.clock = -s.now + 1000e9
		s.scrape(s.now - 60e9).live(20).scrape(s.now - 60e9)
		s.begin(0).replay(0, 20).marker().then("", "EXACT")
		s.scrape(s.reborn()-s.clock).then("drop", "STALE(reconnected)")
	})
	t.Run("failed and empty pages", func(t *testing.T) {
		t.Parallel()
		s := play(t, 0)
		s.all(0, 3).scrape(s.now-60e9).scrape(0).then("", "EXACT")
		if steps := s.tr.Describe("r", s.now, wire.Facts{Started: s.now + 1e12}, wire.Load{}, "refused"); len(steps) > 0 {
			t.Errorf("steps of a failed page: %s", said(steps))
		}
		is(s, "scrape error", s.state().ScrapeError, "refused")
		is(s, "model", s.state().Facts.Model, "m")
		s.scrape(s.now - 60e9)
		is(s, "scrape error", s.state().ScrapeError, "")
	})
}

func TestClear(t *testing.T) {
	t.Parallel()
	t.Run("held back while idle", func(t *testing.T) {
		t.Parallel()
		s := play(t, 0)
		s.all(5, 6).then("apply 5, apply 6", "DEGRADED(late-join)")
		// The reset happened now; vLLM says so with the next step's stores.
		s.now += 60e9
		s.publish(cleared(), stored(9))
		s.live(7).then("apply 7", "EXACT").marks("join 5", "cleared 7")
		is(s, "clears", s.state().Events.Cleared, 1)
	})
	t.Run("SGLang's at start-up", func(t *testing.T) {
		t.Parallel()
		s := play(t, 0)
		s.publish(cleared())
		s.live(0).live(1).reborn()
		s.publish(cleared())
		s.live(0).then("drop, apply 0", "EXACT").marks("join 0", "restart 1–0", "join 0")
		s.publish(cleared())
		s.live(1).marks("join 0", "restart 1–0", "join 0", "cleared 1")
	})
	t.Run("heals what could not be read", func(t *testing.T) {
		t.Parallel()
		s := play(t, 0)
		s.publish(stored(1), bad(), stored(2))
		s.publish(bad(), cleared(), stored(1))
		s.publish(cleared(), bad())
		s.live(0).then("apply 0", "DEGRADED(undecodable)")
		s.live(1).then("apply 1", "EXACT")
		s.live(2).then("apply 2", "DEGRADED(undecodable)")
		is(s, "undecodable", s.state().Undecodable, 3)
	})
}

func TestUndecodable(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.live(0)
	s.publish(stored(1), bad(), removed(1), unknown())
	s.live(1).then("apply 1", "DEGRADED(undecodable)").marks("join 0", "undecodable 1")
	st := s.state()
	is(s, "counts", st.Events, Counts{Stored: 2, Removed: 1, Unknown: 1, Bad: 1})
	is(s, "neighbours", len(s.steps[0].Batch.Events), 4)
	is(s, "says why", strings.Contains(st.LastError, "block_hashes"), true)

	s = play(t, 0)
	s.live(0)
	s.publish(stored(1))
	s.made[1] = []byte("not msgpack")
	s.live(1).then("doubt, apply 1", "DEGRADED(undecodable)") // its place is known
	s.live(2).then("apply 2", "DEGRADED(undecodable)").gaps()
	s.live(1).then("", "DEGRADED(undecodable)")
	is(s, "duplicates", s.state().Duplicates, 1)
	// A new release that cannot be read at all takes over.
	s.reborn()
	s.publish()
	s.made[0] = []byte{0xc1}
	s.live(0).then("drop, doubt, apply 0", "DEGRADED(undecodable)")
}

func TestWrongFrames(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.raw(seqFrame(0), s.payload(0)).then("doubt", "BLIND(undecodable)")
	is(s, "frame errors", s.state().FrameErrors, 1)
	is(s, "says why", strings.Contains(s.state().LastError, "topic"), true)
	s = play(t, 0)
	s.all(0, 3)
	s.raw([]byte("t"), []byte("short"), s.payload(4)).then("doubt", "DEGRADED(undecodable)")
	s.raw([]byte("t"), seqFrame(1<<64-1), s.payload(4)).then("doubt", "DEGRADED(undecodable)")
	s.raw().then("doubt", "DEGRADED(undecodable)")
	s.live(4).then("apply 4", "DEGRADED(undecodable)").gaps()
	is(s, "frame errors", s.state().FrameErrors, 3)
}

func TestUnknownKindsAreNoDoubt(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.publish(unknown(), unknown())
	s.live(0).then("apply 0", "EXACT")
	is(s, "counts", s.state().Events, Counts{Unknown: 2})
}

func TestLink(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.link(wire.LinkConnecting).then("", "BLIND(never-reached)")
	s.link(wire.LinkRefused).then("", "BLIND(never-reached)")
	s.link(wire.LinkConnecting).link(wire.LinkUp).then("", "BLIND(no-events)")
	s.link(wire.LinkDown).then("", "BLIND(link-lost, no-events)")
	s.link(wire.LinkUp).all(0, 3).then("apply 0, apply 1, apply 2, apply 3", "EXACT")
	s.link(wire.LinkDown).then("", "STALE(link-lost)")
	is(s, "text", s.state().LinkText, "down")
	s.link(wire.LinkConnecting).link(wire.LinkUnknown).then("", "STALE(link-lost)")
	s.link(wire.LinkUp).then("", "STALE(reconnected)")
	s.live(2).then("", "STALE(reconnected)") // an old one proves nothing
	s.live(4).then("apply 4", "EXACT")       // nothing was missed after all
	s.link(wire.LinkDown).link(wire.LinkUp).live(7).then("doubt, apply 7", "DEGRADED(gap)")
	s.marks("link-up 0", "link-down 0", "link-up 0", "join 0", "link-down 3", "link-up 3", "link-down 4", "link-up 4", "gap 5–6")
	s.link(wire.LinkDown).then("", "STALE(link-lost, gap)")
	s.reborn()
	s.link(wire.LinkUp).live(0).then("drop, apply 0", "EXACT")
}

// A batch can be read before the monitor says that the link is up.
func TestFirstBatchBeforeItsLink(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	s.link(wire.LinkConnecting).live(0).link(wire.LinkUp).then("", "EXACT")
	s = play(t, 0)
	s.live(0).link(wire.LinkUp).then("", "EXACT")
	// But a recording can begin in the middle.
	s = play(t, 0)
	s.live(0).link(wire.LinkDown).then("", "STALE(link-lost)").link(wire.LinkUp).then("", "STALE(reconnected)")
}

func TestNothingHeard(t *testing.T) {
	t.Parallel()
	s := play(t, 0)
	is(s, "trust", s.tr.Trust("nobody").String(), "BLIND(never-reached)")
	if _, ok := s.tr.State("nobody"); ok {
		t.Error("a state of nobody")
	}
	s.push(wire.Record{Kind: wire.Note, Text: "hello"}).then("", "BLIND(never-reached)")
	s.scrape(s.now-1e9).then("", "BLIND(no-events)")
	is(s, "replicas", len(s.tr.Names()), 1)
}

func TestRanksOfOneName(t *testing.T) {
	t.Parallel()
	a := play(t, 0)
	b := &scene{t: t, tr: a.tr, name: "r", now: a.now, rank: 1}
	a.link(wire.LinkUp)
	for seq := range uint64(50) {
		a.live(seq)
		if seq < 20 || seq > 22 { // as one socket shows them
			b.live(seq)
		}
	}
	if got, want := a.tr.Ranks("r"), []wire.Replica{"r", "r/1"}; !slices.Equal(got, want) {
		t.Fatalf("ranks %v, want %v", got, want)
	}
	st := a.state()
	is(a, "trust", st.Trust.String(), "EXACT")
	is(a, "batches", st.Batches, 50)
	is(a, "restarts", st.Restarts, 0)
	sub, _ := a.tr.State("r/1")
	checkGaps(t, sub)
	is(a, "rank", sub.Rank, 1)
	is(a, "trust", sub.Trust.String(), "DEGRADED(gap)")
	is(a, "missing", sub.MissingNow, 3)
	is(a, "link of a rank", sub.Link, wire.LinkUp)
	a.link(wire.LinkDown)
	is(a, "link of a rank", a.tr.Trust("r/1").Word, Stale)
}

// A batch that cannot be read does not say its rank either.
func TestUndecodableOfSomeRank(t *testing.T) {
	t.Parallel()
	a := play(t, 0)
	b := &scene{t: t, tr: a.tr, name: "r", now: a.now, rank: 1}
	a.all(0, 9)
	b.all(0, 4)
	b.publish(stored(0))
	b.made[5] = []byte{0xc1}
	b.live(5) // only rank 1 is due to send it
	is(a, "trust", a.tr.Trust("r").String(), "EXACT")
	is(a, "trust", a.tr.Trust("r/1").String(), "DEGRADED(undecodable)")
	b.live(6)
	sub, _ := a.tr.State("r/1")
	is(a, "gaps", len(sub.Gaps), 0)
	a.raw([]byte{}, seqFrame(400), []byte{0xc1}) // nobody is
	is(a, "steps", said(a.steps), "doubt, doubt")
	is(a, "trust", a.tr.Trust("r").String(), "DEGRADED(undecodable)")
	is(a, "last", a.state().Last, 9)

	a = play(t, 0)
	b = &scene{t: t, tr: a.tr, name: "r", now: a.now, rank: 1}
	a.all(0, 4)
	b.all(0, 4)
	a.raw([]byte{}, seqFrame(5), []byte{0xc1}) // both are
	is(a, "steps", said(a.steps), "doubt, doubt")
}
