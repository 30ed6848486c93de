package observe

import (
	"context"
	"sync"

	"github.com/kvscope/kvscope/wire"
)

// Live follows a fleet while others look at it. Run belongs to one goroutine;
// Snapshot and Ask may be called from any.
type Live struct {
	clock func() wire.Time

	mu   sync.Mutex
	obs  *Observer
	last *Snapshot
}

// NewLive makes a Live that has seen nothing. clock is the clock that the
// records' times of reception come from; without one, time stands still between
// records.
func NewLive(opt Options, clock func() wire.Time) *Live {
	return &Live{clock: clock, obs: New(opt)}
}

// Run takes all records of a source. The error is the source's, nil at a clean
// end.
func (l *Live) Run(ctx context.Context, src wire.Source) error {
	return each(ctx, src, func(rec wire.Record) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.obs.Push(rec)
	})
}

// Describe takes what is known of a replica from elsewhere than its metrics
// page.
func (l *Live) Describe(name wire.Replica, facts wire.Facts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.obs.Describe(name, l.obs.now, facts)
}

// Say adds a note about the source as a whole.
func (l *Live) Say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.obs.Push(wire.Record{At: l.obs.now, Kind: wire.Note, Text: text})
}

// restless is how far time must have gone on for a fleet of which nothing new
// is heard to look different: ages are shown in seconds.
const restless = wire.Time(1e9)

// Snapshot describes the fleet as of now. It is the same one as before if
// nothing has changed.
func (l *Live) Snapshot() *Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.obs
	if l.clock != nil && o.from != 0 {
		if now := l.clock(); now >= o.now+restless {
			o.now = now
		}
	}
	if s := l.last; s == nil || s.Records != o.records || s.Until != o.now {
		l.last = o.Snapshot()
	}
	return l.last
}

// Ask answers a question as of now.
func (l *Live) Ask(_ context.Context, q Question) (*Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.obs.Ask(q)
}
