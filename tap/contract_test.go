package tap

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// payload is an engine's batch without events: [ts, []].
func payload(seq uint64) string {
	b := []byte{0x92, 0xcb}
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(float64(1000+seq)))
	return string(append(b, 0x90))
}

// TestTrackerIsServed runs a stream.Tracker on the tap: what it wants is
// answered in a way that it takes, over a lost connection, a truncated answer
// and a hole that cannot be filled.
func TestTrackerIsServed(t *testing.T) {
	send := func(seqs ...uint64) reply {
		return func(p *peer, _ int) {
			for _, seq := range seqs {
				p.write(message("", "kv", string(be(seq)), payload(seq)))
			}
		}
	}
	tests := []struct {
		name   string
		script [][]reply
		want   []uint64
		word   stream.Word
	}{
		{"complete", [][]reply{{send(2, 3, 4, 5, 6), marker}}, []uint64{0, 1, 2, 3, 4, 5, 6}, stream.Exact},
		{"truncated", [][]reply{{send(2, 3)}, {send(4, 5, 6), marker}}, []uint64{0, 1, 2, 3, 4, 5, 6}, stream.Exact},
		{"hole", [][]reply{{send(2, 3, 5, 6), marker}, {send(5, 6), marker}}, []uint64{0, 1, 2, 3, 5, 6}, stream.Degraded},
		{"silent", nil, []uint64{0, 1, 2, 6}, stream.Degraded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				up := w.publisher("a:5557", manners{minor: 1})
				w.serveReplay("a:5558", 4, tt.script...)
				tp := New(w.options())
				add(t, tp, withReplay)
				p := <-up
				live := func(seq uint64) { p.publish("kv", seq, payload(seq)) }
				live(0)
				live(1)
				live(2)
				synctest.Wait()
				p.conn.Close()
				p = <-up
				live(6) // 3, 4 and 5 went by meanwhile
				tr := stream.New(stream.Options{Hold: 100})
				var applied []uint64
				collect(t, tp, time.Minute, func(rec wire.Record) bool {
					for _, s := range tr.Push(rec) {
						switch s.Kind {
						case stream.Want:
							tp.Want(Want{Replica: s.Replica, From: s.From})
						case stream.Apply:
							applied = append(applied, s.Batch.Seq)
						}
					}
					return rec.Kind == wire.ReplayEnd
				})
				if st, _ := tr.State("a"); !slices.Equal(applied, tt.want) || st.Trust.Word != tt.word || st.Held > 0 {
					t.Errorf("applied %v, %+v, %d held", applied, st.Trust, st.Held)
				}
				tp.Close()
				time.Sleep(time.Hour)
			})
		})
	}
}
