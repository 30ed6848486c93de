package observe

import (
	"fmt"
	"testing"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/wire"
)

// TestPainP40: live messages have three frames, those of the replay two. The lost batch
// comes back all the same, and counts as any other.
func TestPainP40(t *testing.T) {
	t.Parallel()
	o := New(Options{})
	missing := frame(t, 2, r1, 1, stored(uint64(2), 3, 2))
	missing.Kind, missing.Frames = wire.ReplayFrames, missing.Frames[1:]
	end := wire.Record{At: 3e9, Replica: r1, Kind: wire.ReplayFrames, Frames: [][]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, nil}}
	for _, rec := range []wire.Record{
		frame(t, 1, r1, 0, stored(nil, 1, 2)),
		{At: 3e9, Replica: r1, Kind: wire.ReplayBegin, From: 1},
		frame(t, 3, r1, 2, stored(uint64(4), 5, 1)), missing, end,
	} {
		o.Push(rec)
	}
	s := o.Snapshot()
	r := &s.Replicas[0]
	if !r.Trust.Exact() || r.GapsHealed != 1 || r.GapsOpen != 0 || r.FrameErrors != 0 || r.Batches != 3 {
		t.Errorf("%s, %d gaps healed and %d open, %d frame errors, %d batches", r.Trust, r.GapsHealed, r.GapsOpen, r.FrameErrors, r.Batches)
	}
	if got := r.Index.Resident[wire.Device]; got != 5 || r.Index.Orphans != 0 {
		t.Errorf("%d blocks, %d orphans, want 5 in one chain", got, r.Index.Orphans)
	}
}

// TestPainP47: token ids that are nested pairs are stored as such, and none is dropped.
func TestPainP47(t *testing.T) {
	t.Parallel()
	o := New(Options{})
	o.Push(frame(t, 1, "r4", 0, []any{"BlockStored", []uint64{7}, nil, [][]uint64{{1, 2}, {2, 3}, {3, 4}}, 3, nil, "GPU"}))
	s := o.Snapshot()
	r := &s.Replicas[0]
	if r.Undecodable != 0 || r.Events.Bad != 0 || r.Events.Stored != 1 || len(s.Findings) != 0 {
		t.Errorf("%d undecodable, events %+v, findings %s", r.Undecodable, r.Events, inWords(s.Findings))
	}
	if !r.Index.Bigram || r.Index.BlockSize != 3 || r.Index.Resident[wire.Device] != 1 {
		t.Errorf("index %+v", r.Index)
	}
}

// asking is a request of so many blocks of four tokens, of which the engine reused cached.
func asking(name string, at float64, blocks, cached int) explain.Request {
	q := explain.Request{Replica: name, Start: wire.Time(at * 1e9), End: wire.Time(at*1e9) + 1e8, Known: true, Cached: 4 * cached}
	for i := range blocks {
		for k := range 4 {
			q.Tokens = append(q.Tokens, wire.Token(100*(1+i)+k))
		}
	}
	q.Tokens = append(q.Tokens, 1)
	return q
}

// TestPainP51: of 100 blocks asked for 61 are resident somewhere, 30 on the replica that
// was chosen, and 27 were reused. So 39 are new work, and 31 bad routing.
func TestPainP51(t *testing.T) {
	t.Parallel()
	o := New(Options{Requests: []explain.Request{asking("r1", 5, 100, 27)}})
	for _, rec := range []wire.Record{
		frame(t, 1, "r2", 0, stored(nil, 1, 61)), frame(t, 2, "r1", 0, stored(nil, 1, 30)),
		// Having computed the rest, the replica stores it: 31 blocks the other still has.
		frame(t, 5.05, "r1", 1, removed(28, 29, 30), stored(uint64(27), 28, 73)), frame(t, 6, "r2", 1), frame(t, 7, "r1", 2),
	} {
		o.Push(rec)
	}
	l := o.Snapshot().Ledger
	if l.First != 61+39 || l.Elsewhere != 30+34 || l.EvictedHere != 0 {
		t.Errorf("ledger %+v", l)
	}
	if f := o.Audit().Funnel; f != (explain.Funnel{Asked: 401, Somewhere: 244, Chosen: 120, Cached: 108}) {
		t.Errorf("funnel %+v", f)
	}
}

// TestPainP60: what was predicted and what was real agree in 49 of 50 requests.
func TestPainP60(t *testing.T) {
	t.Parallel()
	var log []explain.Request
	for i := range 50 {
		q := asking("r1", float64(5+i), 32, 31)
		if i == 17 {
			q.Cached = 0
		}
		log = append(log, q)
	}
	o := New(Options{Requests: log})
	for _, rec := range []wire.Record{frame(t, 1, "r1", 0, stored(nil, 1, 31)), frame(t, 60, "r1", 1)} {
		o.Push(rec)
	}
	a := o.Audit()
	if a.Agree != 49 || a.Over != 1 || a.Requests != 50 || a.Disagreements[0].Predicted != 124 {
		t.Errorf("%s", fmt.Sprintf("%+v", a))
	}
}
