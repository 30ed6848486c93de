package stream

import "github.com/kvscope/kvscope/wire"

// Gap is a run of batches that did not arrive in order, bounds inclusive.
type Gap struct {
	From, To uint64
	Epoch    int
	// Seen is when the batch behind the gap arrived: a gap is visible only
	// then.
	Seen wire.Time
	// Healed says that its batches arrived after all; otherwise Reason says
	// why not, or that it is still open.
	Healed   bool
	HealedAt wire.Time
	Reason   string
	// Cause says what a replay has shown about it. For a Clipped one, Kept is how
	// many batches the publisher's buffer then held.
	Cause Cause
	Kept  uint64
}

// Cause says what a replay has shown about batches that are missing.
type Cause uint8

// The causes.
const (
	// Unexplained: nobody was asked, or there was no answer.
	Unexplained Cause = iota
	// Clipped: the answer begins behind them.
	Clipped
	// Unfillable: the answer has the batches around them.
	Unfillable
	// BrokenOff: the answer ended before them, without its end marker.
	BrokenOff
)

// MarkKind says what a Mark marks.
type MarkKind string

// The kinds of mark.
const (
	MarkJoin        MarkKind = "join"
	MarkGap         MarkKind = "gap"
	MarkHealed      MarkKind = "healed"
	MarkRestart     MarkKind = "restart"
	MarkCleared     MarkKind = "cleared"
	MarkUndecodable MarkKind = "undecodable"
	MarkReplayBegin MarkKind = "replay-begin"
	MarkReplayEnd   MarkKind = "replay-end"
	MarkLinkDown    MarkKind = "link-down"
	MarkLinkUp      MarkKind = "link-up"
)

// Mark is a moment of a replica's stream that stands out.
type Mark struct {
	At    wire.Time
	Kind  MarkKind
	Epoch int
	// Seq is the batch at which it happened; To ends a range, and for a
	// restart Seq is the last batch of the old process and To the first of the
	// new one.
	Seq, To uint64
	Text    string
	// Clipped says of a join that a replay from Asked on was to move it further
	// back, and the answer begins only there.
	Clipped bool
	Asked   uint64
	// Since is for a clear that was announced with the blocks of a later step: the
	// time of the batch before, which is when it can have happened at the earliest.
	Since wire.Time
}

// Counts of events, not of blocks.
type Counts struct{ Stored, Removed, Cleared, Unknown, Bad uint64 }

// State is what is known of one replica's stream.
type State struct {
	Replica wire.Replica
	// Topic is that of the last batch.
	Topic string
	// Rank is the data-parallel rank, -1 where batches do not say.
	Rank int
	// Epoch counts lives of the publisher process from 1; 0 before any batch.
	Epoch int
	// First and Last are the sequence numbers of this epoch that were seen, held
	// ones included; Heard says that there are any. After a restart First is 0,
	// seen or not.
	First, Last uint64
	Heard       bool
	// Joined and Until are the receive times of the first and last record.
	Joined, Until wire.Time
	// LastBatch is the receive time of the last batch, Lag how long after the
	// engine's own time that was.
	LastBatch wire.Time
	Lag       wire.Time
	// Batches, Bytes and Events count what was applied, over all epochs.
	Batches, Bytes uint64
	Events         Counts
	// Undecodable counts events and whole batches that could not be read.
	Undecodable uint64
	// LastError is the newest decoding error in words.
	LastError string
	// Duplicates and Reordered count batches that came again or too late.
	Duplicates, Reordered uint64
	Restarts              int
	// Gaps and Marks are the newest of each; what fell off is counted.
	Gaps                 []Gap
	Marks                []Mark
	GapsLost, MarksLost  int
	GapsOpen, GapsHealed int
	// Kept is the most batches that the publisher's replay buffer has shown to hold.
	Kept           uint64
	MissingNow     uint64 // batches of this epoch known to be missing
	Link           wire.LinkState
	LinkText       string
	Facts          wire.Facts
	Load           wire.Load
	ScrapeError    string
	Held           int // live batches held while a replay runs
	Trust          Trust
	Dialect        string
	MixedDialect   bool
	FrameErrors    uint64
	ReplayRequests int
	rateFrom       wire.Time
	rate           [rateLen]uint32
}

const (
	rateLen  = 120
	rateStep = wire.Time(1e9)
	history  = 1024 // gaps and marks kept per replica
)

// Rate gives events per second in the n one-second bins that end at until,
// oldest first.
func (s *State) Rate(until wire.Time, n int) []uint32 {
	out := make([]uint32, n)
	end := until / rateStep
	for i := range out {
		bin := end - wire.Time(n-1-i)
		if bin > s.rateFrom/rateStep-rateLen && bin <= s.rateFrom/rateStep && bin >= 0 {
			out[i] = s.rate[bin%rateLen]
		}
	}
	return out
}

// count adds n events at a receive time. Bins older than the newest by more
// than the ring are gone.
func (s *State) count(at wire.Time, n int) {
	if at < 0 {
		return
	}
	bin, newest := at/rateStep, s.rateFrom/rateStep
	switch {
	case bin > newest:
		for b := max(newest+1, bin-rateLen+1); b <= bin; b++ {
			s.rate[b%rateLen] = 0
		}
		s.rateFrom = at
	case bin <= newest-rateLen:
		return
	}
	s.rate[bin%rateLen] += uint32(n)
}

func (s *State) mark(m Mark) {
	m.Epoch = s.Epoch
	if len(s.Marks) == history {
		s.Marks = s.Marks[1:] // append copies them once in a while
		s.MarksLost++
	}
	s.Marks = append(s.Marks, m)
}

// clone copies what the tracker goes on changing.
func (s *State) clone() State {
	c := *s
	c.Gaps = append([]Gap(nil), s.Gaps...)
	c.Marks = append([]Mark(nil), s.Marks...)
	return c
}
