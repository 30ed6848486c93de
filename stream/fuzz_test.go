package stream

import (
	"encoding/binary"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// tape reads records off bytes; at its end all bytes are 0.
type tape struct{ b []byte }

func (p *tape) byte() byte {
	if len(p.b) == 0 {
		return 0
	}
	c := p.b[0]
	p.b = p.b[1:]
	return c
}

// seq reads small numbers, some of all sizes, and some near the last.
func (p *tape) seq() uint64 {
	switch c := p.byte(); {
	case c < 200:
		return uint64(c)
	case c < 220:
		return 1<<64 - 1 - uint64(c-200)
	case c < 240:
		return 1 << (c - 180)
	}
	var b [8]byte
	p.b = p.b[copy(b[:], p.b):]
	return binary.BigEndian.Uint64(b[:])
}

// payload reads a batch whose engine time, events and rank are mostly fine.
func (p *tape) payload(t testing.TB, now wire.Time) []byte {
	kind, events := p.byte(), []any{}
	if kind == 0xff {
		n := min(int(p.byte()), len(p.b))
		raw := p.b[:n:n]
		p.b = p.b[n:]
		return raw
	}
	for i, e := range []any{stored(1), removed(1), cleared(), bad(), unknown()} {
		if kind>>i&1 != 0 {
			events = append(events, e)
		}
	}
	ts := now.Seconds()
	if late := p.byte(); late > 128 {
		ts -= float64(late - 128)
	}
	var rank any
	if kind>>5 > 1 {
		rank = int(kind>>5) - 2 // nil for two of eight
	}
	return encode(t, []any{ts, events, rank})
}

// record reads a record, or a metrics page with start at true.
func (p *tape) record(t testing.TB, now wire.Time) (rec wire.Record, scrape bool) {
	op := p.byte()
	rec.At, rec.Replica = now, wire.Replica([]string{"a", "b", "a/1"}[op>>4%3])
	switch op & 15 {
	default:
		rec.Frames = [][]byte{{}, seqFrame(p.seq()), p.payload(t, now)}
	case 6, 7:
		rec.Kind = wire.ReplayFrames
		rec.Frames = [][]byte{{}, {}, seqFrame(p.seq()), p.payload(t, now)}
	case 8:
		rec.Kind = wire.ReplayFrames
		rec.Frames = [][]byte{{}, seqFrame(p.seq()), p.payload(t, now)}
	case 9:
		rec.Kind, rec.From = wire.ReplayBegin, p.seq()
	case 10:
		rec.Kind = wire.ReplayEnd
		if p.byte()&1 != 0 {
			rec.Err = "broken"
		}
	case 11, 12:
		rec.Kind, rec.Link = wire.Link, wire.LinkState(p.byte()%6)
	case 13:
		scrape = true
	case 14:
		rec.Kind = wire.RecordKind(p.byte())
		for n := int(p.byte() % 6); n > 0; n-- {
			m := min(int(p.byte()), len(p.b))
			rec.Frames = append(rec.Frames, p.b[:m:m])
			p.b = p.b[m:]
		}
	case 15:
		rec.Kind = wire.ReplayFrames
		rec.Frames = [][]byte{{}, {}, seqFrame(1<<64 - 1), {}}
	}
	return rec, scrape
}

func FuzzPush(f *testing.F) {
	f.Add([]byte{0})
	// Join, gap, replay, marker; then a restart, an outage and a metrics page.
	f.Add([]byte{2, 0, 0, 1, 0, 0, 5, 1, 0, 9, 1, 6, 1, 1, 0, 6, 2, 1, 0, 6, 4, 1, 0, 15, 10, 0})
	f.Add([]byte{3, 0, 9, 1, 0, 0, 10, 1, 0, 9, 0, 6, 0, 1, 0, 6, 1, 4, 0, 0, 12, 1, 0, 10, 1, 0, 0, 1, 0, 11, 2, 11, 3, 11, 2, 13, 0})
	f.Add([]byte{0, 0, 205, 1, 0, 0, 200, 1, 0, 0, 3, 1, 0, 0, 230, 1, 0, 0, 4, 255, 3, 1, 2, 3})
	f.Add([]byte{1, 0, 0, 65, 0, 0, 0, 97, 0, 0, 1, 97, 0, 0, 7, 255, 1, 193, 9, 0, 0, 9, 65, 0, 7, 2, 65, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		p := &tape{b}
		hold := []int{0, 1, 3, 64}[p.byte()%4]
		tr := New(Options{Hold: hold})
		tr.heldLimit = 8 << 10
		watchers := map[wire.Replica]*watcher{}
		for now := startOfTime; len(p.b) > 0; now += 50e6 {
			rec, scrape := p.record(t, now)
			var steps []Step
			if scrape {
				started := now - 10e9 + wire.Time(p.byte())*50e6
				steps = tr.Describe(rec.Replica, now, wire.Facts{Started: started}, wire.Load{}, "")
			} else {
				steps = tr.Push(rec)
			}
			for _, s := range steps {
				if watchers[s.Replica] == nil {
					watchers[s.Replica] = &watcher{}
				}
				watchers[s.Replica].follow(t, []Step{s})
				if s.Kind == Want && hold == 0 {
					t.Fatal("a replay is wanted where none can be had")
				}
			}
			// Only these can have changed.
			for _, name := range tr.Ranks(rec.Replica) {
				check(t, tr, name, watchers[name])
			}
			if t.Failed() {
				t.FailNow()
			}
		}
		held := 0
		for _, name := range tr.Names() {
			check(t, tr, name, watchers[name])
			held += tr.replicas[name].heldBytes
		}
		if held != tr.heldBytes || held > tr.heldLimit {
			t.Errorf("%d bytes are held, %d counted, %d allowed", held, tr.heldBytes, tr.heldLimit)
		}
	})
}

func check(t testing.TB, tr *Tracker, name wire.Replica, w *watcher) {
	st, ok := tr.State(name)
	if !ok {
		return
	}
	r := tr.replicas[name]
	checkGaps(t, st)
	checkOrder(t, r)
	if w != nil {
		w.accounts(t, st, r.holding)
	}
	if st.Trust.Exact() && (st.Epoch == 0 || r.holding || st.Link == wire.LinkDown) {
		t.Errorf("exact in epoch %d with holding %v and the link %v", st.Epoch, r.holding, st.Link)
	}
	if st.Trust.Exact() != (len(st.Trust.Reasons) == 0 && st.Trust.Word != Replaying) {
		t.Errorf("trust %v", st.Trust)
	}
	if limit := max(tr.opt.Hold, 1); tr.opt.Hold > 0 && st.Held > limit || st.Held > unaskedHold {
		t.Errorf("%d held", st.Held)
	}
	if len(st.Rate(st.Until, 60)) != 60 {
		t.Error("rate")
	}
}
