package sim

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// recorder keeps what a tap would receive.
type recorder struct {
	w       *world
	records []wire.Record
	now     *wire.Time
}

func (r *recorder) batch(i int, seq uint64, payload []byte, live, _ bool) {
	if !live {
		return
	}
	n := r.w.nodes[i]
	r.records = append(r.records, wire.Record{
		At: *r.now + 1e6, Replica: wire.Replica(n.name),
		Frames: [][]byte{[]byte(n.topic), binary.BigEndian.AppendUint64(nil, seq), payload},
	})
}

func (r *recorder) link(i int, state wire.LinkState) {
	r.records = append(r.records, wire.Record{
		At: *r.now, Replica: wire.Replica(r.w.nodes[i].name), Kind: wire.Link, Link: state,
	})
}

func (r *recorder) down(i int) { r.link(i, wire.LinkDown) }

func (r *recorder) boot(i int) error {
	r.link(i, wire.LinkUp)
	return nil
}

// TestAudit runs the whole of kvscope over simulated fleets: every request found
// in its engine's cache what the index promised, and where no batch is missing
// the index holds exactly what the engines do.
func TestAudit(t *testing.T) {
	t.Parallel()
	for _, faults := range []string{"", "clear duplicates", "restart timestamp", "drop lost", "seed block-size scatter"} {
		t.Run(faults, func(t *testing.T) {
			t.Parallel()
			opt, err := small.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			opt.Faults = strings.Fields(faults)
			now := wire.Time(1_800_000_000e9)
			r := &recorder{now: &now}
			if r.w, err = newWorld(opt, r); err != nil {
				t.Fatal(err)
			}
			for i := range r.w.nodes {
				if err := r.w.boot(i, now); err != nil {
					t.Fatal(err)
				}
			}
			for range r.w.seconds(25) {
				now += wire.Time(opt.Step)
				if err := r.w.tick(now); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			if err := WriteRequests(&log, r.w.log); err != nil {
				t.Fatal(err)
			}
			requests, err := explain.ReadRequests(&log, "log")
			if err != nil {
				t.Fatal(err)
			}
			o := observe.New(observe.Options{Requests: requests})
			for _, rec := range r.records {
				o.Push(rec)
			}
			a := o.Audit()
			if a.Agree != a.Requests || a.Requests < 200 {
				t.Errorf("%d of %d requests agree: %+v", a.Agree, a.Requests, a.Disagreements)
			}
			lossy := strings.Contains(faults, "lost")
			if lossy == (a.Bounds == 0) {
				t.Errorf("%d requests were judged by a bound", a.Bounds)
			}
			for i, v := range o.Snapshot().Replicas {
				copies := 0
				for _, res := range r.w.nodes[i].engine.Residents() {
					copies += res.Copies
				}
				if string(v.Replica) != r.w.nodes[i].name {
					t.Fatalf("replica %d is %s", i, v.Replica)
				}
				if !lossy && (!v.Trust.Exact() || v.Index.Copies != copies) {
					t.Errorf("%s is %s with %d blocks, and has %d", v.Replica, v.Trust, v.Index.Copies, copies)
				}
			}
		})
	}
}
