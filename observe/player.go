package observe

import (
	"context"
	"errors"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/wire"
)

// Player shows a recording at any of its moments. It holds the recording's
// records in memory. It is safe for concurrent use; a call waits for the one
// before it.
type Player struct {
	opt     Options
	records []wire.Record
	// end describes the whole recording; marks are its moments of interest.
	end   *Snapshot
	marks []wire.Time
	audit *explain.Audit

	mu   sync.Mutex
	keys keyframes
	obs  *Observer
	pos  int // records pushed
	last *Snapshot
}

// Load reads a recording to its end, where the Player then stands. An error
// says what could not be read; the Player holds the rest. Only when ctx ends
// there is no Player.
func Load(ctx context.Context, src wire.Source, opt Options, progress func(records uint64, at wire.Time)) (*Player, error) {
	p := &Player{opt: opt, obs: New(opt)}
	var damage error
	for {
		rec, err := src.Next(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				damage = err
			}
			break
		}
		p.records = append(p.records, rec)
		p.obs.Push(rec)
		p.pos++
		p.keys.pass(p.pos, p.obs)
		if progress != nil {
			progress(uint64(p.pos), rec.At)
		}
	}
	p.audit = p.obs.Audit()
	p.opt.Requests = nil // seeking does not judge them again
	p.end = p.obs.Snapshot()
	p.last = p.end
	p.marks = moments(p.end)
	return p, damage
}

// moments lists when findings began and ended and when marks were set.
func moments(s *Snapshot) []wire.Time {
	var out []wire.Time
	for i := range s.Findings {
		out = append(out, s.Findings[i].Since)
		if u := s.Findings[i].Until; u != nil {
			out = append(out, *u)
		}
	}
	for i := range s.Replicas {
		for _, m := range s.Replicas[i].Marks {
			out = append(out, m.At)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Snapshot describes the fleet at the current position.
func (p *Player) Snapshot() *Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Audit is how the requests of Options turned out over the whole recording,
// nil without any.
func (p *Player) Audit() *explain.Audit { return p.audit }

// End describes the fleet at the end of the recording.
func (p *Player) End() *Snapshot { return p.end }

// Position gives how many records of how many lie before the current moment.
func (p *Player) Position() (at, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pos, len(p.records)
}

// SeekRecord goes to the moment after the first n records.
func (p *Player) SeekRecord(ctx context.Context, n int) (*Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seek(ctx, n)
}

// SeekTime goes to the moment after the last record received at or before t.
func (p *Player) SeekTime(ctx context.Context, t wire.Time) (*Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seek(ctx, p.after(t))
}

// after counts the records at or before t, which come in order of time. Times
// are shown in microseconds, so the whole microsecond of t counts.
func (p *Player) after(t wire.Time) int {
	const micro = 1000
	return sort.Search(len(p.records), func(i int) bool { return p.records[i].At/micro > (t+micro/2)/micro })
}

// Step moves by n messages of an event socket, forwards or backwards, and
// stands right behind the last of them.
func (p *Player) Step(ctx context.Context, n int) (*Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pos := p.pos
	for ; n > 0 && pos < len(p.records); n-- {
		for pos++; pos < len(p.records) && p.records[pos-1].Kind != wire.Frames; pos++ {
		}
	}
	for ; n < 0 && pos > 0; n++ {
		for pos--; pos > 0 && p.records[pos-1].Kind != wire.Frames; pos-- {
		}
	}
	return p.seek(ctx, pos)
}

// Jump goes to the next moment at which a finding or mark begins or ends, or
// with back to the one before; it stays where there is none.
func (p *Player) Jump(ctx context.Context, back bool) (*Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.obs.Now()
	i := sort.Search(len(p.marks), func(i int) bool { return p.marks[i] > now })
	if back {
		i = sort.Search(len(p.marks), func(i int) bool { return p.marks[i] >= now }) - 1
	}
	if i < 0 || i >= len(p.marks) {
		return p.last, nil
	}
	return p.seek(ctx, p.after(p.marks[i]))
}

// seek moves to a position. If ctx ends it stays where it is.
func (p *Player) seek(ctx context.Context, pos int) (*Snapshot, error) {
	pos = min(max(pos, 0), len(p.records))
	if pos == p.pos {
		return p.last, nil
	}
	obs, at := p.obs, p.pos
	if pos < at {
		obs, at = New(p.opt), 0
	}
	if k, ok := p.keys.before(pos); ok && k.pos > at {
		obs, at = k.obs.clone(), k.pos
	}
	for ; at < pos; at++ {
		if at%1024 == 0 && ctx.Err() != nil {
			if obs == p.obs { // it has moved
				p.pos, p.last = at, obs.Snapshot()
			}
			return p.last, ctx.Err()
		}
		obs.Push(p.records[at])
	}
	obs.audited = p.audit
	p.obs, p.pos, p.last = obs, pos, obs.Snapshot()
	return p.last, nil
}

// Ask answers a question as of the current position.
func (p *Player) Ask(_ context.Context, q Question) (*Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.obs.Ask(q)
}
