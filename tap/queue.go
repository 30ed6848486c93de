package tap

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// recordCost is what a waiting record takes besides its frames, in bytes.
const recordCost = 256

// queue holds the records of all links in the order in which they were
// received, until Next takes them. Each lane has its share, so that a flood on
// one does not starve the others.
type queue struct {
	opt *Options

	mu sync.Mutex
	// ring holds count items from head on; its size is a power of two.
	ring        []item
	head, count int
	bytes       int
	closed      bool
	// ready is sent to when something came, room is closed when something
	// went and somebody waits for that.
	ready   chan struct{}
	room    chan struct{}
	waiting bool
}

type item struct {
	rec   wire.Record
	lane  *lane
	bytes int
}

// lane is one way into the queue.
type lane struct {
	q *queue
	// What follows is under q.mu. records and bytes wait; full says that
	// messages are being dropped until half of the share is free.
	records, bytes int
	full           bool
	since          wire.Time
	dropped        uint64 // in all
	run            uint64 // since full
	left           uint64 // pages and notes, since the last Note of that
}

func newQueue(opt *Options) *queue {
	return &queue{opt: opt, ready: make(chan struct{}, 1), room: make(chan struct{})}
}

func cost(rec *wire.Record) int {
	n := recordCost + len(rec.Text) + len(rec.Err)
	for _, f := range rec.Frames {
		n += len(f)
	}
	return n
}

// add puts a record in. It is called with q.mu held.
func (l *lane) add(rec wire.Record, bytes int) {
	q := l.q
	if q.count == len(q.ring) {
		ring := make([]item, max(64, 2*len(q.ring)))
		n := copy(ring, q.ring[q.head:])
		copy(ring[n:], q.ring[:q.head])
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.count)&(len(q.ring)-1)] = item{rec, l, bytes}
	q.count++
	q.bytes += bytes
	l.records++
	l.bytes += bytes
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// fits is called with q.mu held. A record always fits into an empty lane, so
// that one larger than the share can pass at all.
func (l *lane) fits(bytes int) bool {
	o := l.q.opt
	return l.records == 0 ||
		l.records < o.LaneRecords && l.bytes+bytes <= o.LaneBytes && l.q.bytes+bytes <= o.QueueBytes
}

// force puts in a record of which there are few, without waiting. One that must
// not be lost, such as a change of the link, passes over the bounds up to twice
// the share of records, as a program that takes nothing has ended in all but
// name. Pages and notes have to fit, as they can be large; how many were left
// out, a Note says before the next that does.
func (l *lane) force(rec wire.Record) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	bytes := cost(&rec)
	dispensable := rec.Kind == wire.Scrape || rec.Kind == wire.Note
	switch {
	case l.q.closed || l.records >= 2*l.q.opt.LaneRecords:
		l.dropped++
		return
	case dispensable && !l.fits(bytes):
		l.dropped++
		l.left++
		return
	case dispensable && l.left > 0:
		note := wire.Record{At: rec.At, Kind: wire.Note, Text: fmt.Sprintf("kvscope fell behind and left out %d metrics pages or notes", l.left)}
		l.left = 0
		l.add(note, cost(&note))
	}
	l.add(rec, bytes)
}

// wait puts a record in and waits for room for as long as ctx lasts.
func (l *lane) wait(ctx context.Context, rec wire.Record) error {
	bytes := cost(&rec)
	for {
		room, ok := l.try(rec, bytes)
		if ok {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// try puts a record in, or gives the channel that tells of room.
func (l *lane) try(rec wire.Record, bytes int) (room <-chan struct{}, ok bool) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	if l.fits(bytes) {
		l.add(rec, bytes)
		return nil, true
	}
	l.q.waiting = true
	return l.q.room, false
}

// push puts a live message in. Where there is no room in Options.Patience, it
// drops this and what follows until half of the share is free, and then says
// so in a Note before it goes on.
func (l *lane) push(ctx context.Context, rec wire.Record) {
	bytes := cost(&rec)
	if l.drops(&rec, bytes) {
		return
	}
	// The common case costs no timer.
	if _, ok := l.try(rec, bytes); ok {
		return
	}
	o := l.q.opt
	fired, stop := o.Clock.After(o.Patience)
	defer stop()
	for {
		room, ok := l.try(rec, bytes)
		if ok {
			return
		}
		select {
		case <-room:
		case <-ctx.Done():
			return
		case <-fired:
			l.q.mu.Lock()
			l.full, l.since, l.run = true, rec.At, 1
			l.dropped++
			l.q.mu.Unlock()
			return
		}
	}
}

// drops drops the message if the lane is dropping, and ends that if half of its
// share is free.
func (l *lane) drops(rec *wire.Record, bytes int) bool {
	q, o := l.q, l.q.opt
	q.mu.Lock()
	defer q.mu.Unlock()
	if !l.full {
		return false
	}
	if l.records > o.LaneRecords/2 || l.bytes > o.LaneBytes/2 || !l.fits(bytes) {
		l.run++
		l.dropped++
		return true
	}
	l.full = false
	note := wire.Record{At: rec.At, Replica: rec.Replica, Kind: wire.Note, Text: wire.Dropped(
		l.run, time.Duration(rec.At-l.since).Round(time.Millisecond),
	)}
	l.add(note, cost(&note))
	return false
}

// depth gives what waits, and how many messages were dropped so far.
func (l *lane) depth() (records, bytes int, dropped uint64) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	return l.records, l.bytes, l.dropped
}

// next takes the oldest record. After close it gives what is left, then io.EOF.
func (q *queue) next(ctx context.Context) (wire.Record, error) {
	for {
		// Under constant traffic nobody would see the end of the context otherwise.
		if err := ctx.Err(); err != nil {
			return wire.Record{}, err
		}
		rec, ok, ended := q.take()
		switch {
		case ok:
			return rec, nil
		case ended:
			return wire.Record{}, io.EOF
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return wire.Record{}, ctx.Err()
		}
	}
}

func (q *queue) take() (rec wire.Record, ok, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.count == 0 {
		if q.closed {
			// Wakes whoever else asks again.
			select {
			case q.ready <- struct{}{}:
			default:
			}
		}
		return wire.Record{}, false, q.closed
	}
	it := q.ring[q.head]
	q.ring[q.head] = item{}
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.count--
	q.bytes -= it.bytes
	it.lane.records--
	it.lane.bytes -= it.bytes
	if q.waiting {
		close(q.room)
		q.room, q.waiting = make(chan struct{}), false
	}
	if q.count == 0 && len(q.ring) > 1024 {
		q.ring, q.head = nil, 0
	}
	return it.rec, true, false
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	select {
	case q.ready <- struct{}{}:
	default:
	}
}
