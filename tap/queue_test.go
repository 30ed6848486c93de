package tap

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvscope/kvscope/wire"
)

func live(name wire.Replica, seq uint64, size int) wire.Record {
	return wire.Record{At: wire.Time(seq), Replica: name, Frames: [][]byte{nil, be(seq), make([]byte, size)}}
}

func testQueue(opt Options) (*queue, *lane, *lane) {
	opt = opt.withDefaults()
	q := newQueue(&opt)
	return q, &lane{q: q}, &lane{q: q}
}

func TestQueueKeepsOrder(t *testing.T) {
	q, a, b := testQueue(Options{})
	next := uint64(0)
	for seq := range uint64(5000) {
		l := a
		if seq%3 == 0 {
			l = b
		}
		l.push(t.Context(), live("a", seq, 1))
		for q.count > 700 { // the ring grows and wraps
			rec, err := q.next(t.Context())
			if err != nil || rec.At != wire.Time(next) {
				t.Fatalf("record %d, %v, want %d", rec.At, err, next)
			}
			next++
		}
	}
	q.close()
	for ; next < 5000; next++ {
		if rec, err := q.next(t.Context()); err != nil || rec.At != wire.Time(next) {
			t.Fatalf("record %d, %v, want %d", rec.At, err, next)
		}
	}
	if q.bytes != 0 || a.bytes != 0 || b.records != 0 || len(q.ring) > 1024 {
		t.Errorf("left: %d bytes, %d, %d, ring of %d", q.bytes, a.bytes, b.records, len(q.ring))
	}
}

// TestQueueDropsAfterPatience is a program that stands still: the loss is
// bounded in time and memory, counted and told of.
func TestQueueDropsAfterPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, a, b := testQueue(Options{LaneRecords: 10})
		began := time.Now()
		for seq := range uint64(100) {
			rec := live("a", seq, 1)
			rec.At = wire.Time(time.Since(began))
			a.push(t.Context(), rec)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("100 messages took %s", took)
		}
		if records, _, dropped := a.depth(); records != 10 || dropped != 90 {
			t.Errorf("%d wait, %d dropped", records, dropped)
		}
		b.push(t.Context(), live("b", 0, 1)) // not held up by the other
		for range 4 {
			_, _ = q.next(t.Context())
		}
		a.push(t.Context(), live("a", 100, 1)) // not yet half free
		_, _ = q.next(t.Context())
		time.Sleep(time.Second)
		rec := live("a", 101, 1)
		rec.At = wire.Time(time.Since(began))
		a.push(t.Context(), rec)
		q.close()
		got := collect(t, &Tap{queue: q}, time.Second, func(rec wire.Record) bool {
			return len(rec.Frames) > 0 && seqOf(rec) == 101
		})
		if s := said(got); s != "a #5; a #6; a #7; a #8; a #9; b #0; kvscope fell behind and dropped 91 messages of this link in 2s; a #101; " {
			t.Errorf("got %s", s)
		}
	})
}

func TestQueueWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, a, _ := testQueue(Options{LaneRecords: 10})
		var slow sync.WaitGroup
		slow.Go(func() { // within patience
			for {
				time.Sleep(500 * time.Millisecond)
				if _, err := q.next(t.Context()); err != nil {
					return
				}
			}
		})
		for seq := range uint64(100) {
			a.push(t.Context(), live("a", seq, 1))
		}
		if _, _, dropped := a.depth(); dropped != 0 {
			t.Errorf("%d dropped", dropped)
		}
		q.close()
		slow.Wait()
	})
}

func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := testQueue(Options{LaneBytes: 10_000, QueueBytes: 15_000, LaneRecords: 50})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, tt := range []struct {
			lane *lane
			size int
			fits bool
		}{
			{a, 20_000, true}, // alone, anything
			{a, 1, false},
			{b, 1, true}, // a lane is never shut out by others
			{b, 1, false},
		} {
			_, ok := tt.lane.try(live("a", 0, tt.size), cost(&wire.Record{})+tt.size)
			if ok != tt.fits {
				t.Errorf("%d bytes: %v", tt.size, ok)
			}
		}
		if err := a.wait(ctx, live("a", 1, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waits without room: %v", err)
		}
		for range 500 {
			a.force(wire.Record{Kind: wire.Link})
		}
		if records, _, dropped := a.depth(); records != 100 || dropped != 401 {
			t.Errorf("%d forced in, %d dropped", records, dropped)
		}
	})
}

// TestQueueBoundsPages: metrics pages are large, so they have to fit; what must
// not be lost passes all the same.
func TestQueueBoundsPages(t *testing.T) {
	_, a, b := testQueue(Options{LaneBytes: 10_000, QueueBytes: 15_000})
	page := wire.Record{Kind: wire.Scrape, Text: string(make([]byte, 4000))}
	for range 10 {
		a.force(page)
	}
	if records, bytes, dropped := a.depth(); records != 2 || bytes > 10_000 || dropped != 8 {
		t.Errorf("%d pages of %d bytes wait, %d dropped", records, bytes, dropped)
	}
	b.force(page)
	b.force(page) // within the share, and not within what there is for all
	if records, _, dropped := b.depth(); records != 1 || dropped != 1 {
		t.Errorf("another lane: %d wait, %d dropped", records, dropped)
	}
	a.force(wire.Record{Kind: wire.Link, Link: wire.LinkDown})
	a.force(wire.Record{Kind: wire.ReplayEnd, Text: string(make([]byte, 20_000))})
	if records, _, dropped := a.depth(); records != 4 || dropped != 8 {
		t.Errorf("what must not be lost: %d wait, %d dropped", records, dropped)
	}
	tp := &Tap{queue: a.q}
	collect(t, tp, time.Second, until(wire.ReplayEnd, 1))
	a.force(wire.Record{Kind: wire.Note, Text: "next"})
	got := said(collect(t, tp, time.Second, func(rec wire.Record) bool { return rec.Text == "next" }))
	if want := "kvscope fell behind and left out 8 metrics pages or notes; next; "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
