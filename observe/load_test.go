package observe

import (
	"encoding/binary"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

func seq(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// loadStat is SGLang's message of 1 running and 2 waiting requests, and half of
// the tokens used.
func loadStat(rank int) [][]byte {
	b := msgp.AppendString(msgp.AppendArrayHeader(nil, 6), "LoadStat")
	for _, n := range []int{1, 2, 50, 100, rank} {
		b = msgp.AppendInt(b, n)
	}
	return [][]byte{[]byte("load"), seq(9), b}
}

// batch is an engine's batch without events, of a rank.
func batch(n uint64, rank int) [][]byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendArrayHeader(msgp.AppendFloat64(b, 1000), 0)
	return [][]byte{[]byte("kv"), seq(n), msgp.AppendInt(b, rank)}
}

func TestLoadMessages(t *testing.T) {
	t.Parallel()
	o := New(Options{})
	at := wire.Time(1e9)
	push := func(name wire.Replica, frames [][]byte) {
		at++
		o.Push(wire.Record{At: at, Replica: name, Kind: wire.Frames, Frames: frames})
	}
	state := func(name wire.Replica) stream.State {
		s, _ := o.tracker.State(name)
		return s
	}
	o.Push(wire.Record{At: at, Replica: wire.LoadName("a"), Kind: wire.Link, Link: wire.LinkUp})
	push(wire.LoadName("a"), loadStat(0)) // before any event
	if s := state("a"); !s.Load.Known || s.Load.Running != 1 || s.Load.Waiting != 2 || s.Load.KVUsage != 0.5 || s.Load.At != at {
		t.Errorf("load %+v", s.Load)
	}
	o.Describe("a", at, wire.Facts{Model: "m", BlockSize: 16})
	push("a", batch(0, 0))
	push("a", batch(0, 1))
	push(wire.LoadName("a"), loadStat(1))
	push(wire.LoadName("a"), loadStat(7)) // a rank that nobody has
	push(wire.LoadName("a"), batch(1, 0)) // the event port in place of the load port
	push("a", batch(1, 0))
	if names := o.Replicas(); len(names) != 2 || names[0] != "a" || names[1] != "a/1" {
		t.Errorf("replicas %v", names)
	}
	for _, name := range o.Replicas() {
		if s := state(name); s.Undecodable+s.FrameErrors > 0 || len(s.Gaps) > 0 || !s.Trust.Exact() || !s.Load.Known {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s := state("a"); s.ScrapeError != errNoLoad.Error() || s.Facts.Model != "m" || s.Last != 1 {
		t.Errorf("%q, %+v", s.ScrapeError, s.Facts)
	}
	if st := o.idx.Stats("a"); st.BlockSize != 16 {
		t.Errorf("block size %d", st.BlockSize)
	}
	broken := loadStat(0)
	broken[2] = broken[2][:len(broken[2])-1]
	broken[2][0]-- // a list of five
	push(wire.LoadName("a"), broken)
	push(wire.LoadName("b"), broken)
	if s := state("a"); s.ScrapeError != "a load message that cannot be read: 5 elements, and there should be 6" || !s.Load.Known {
		t.Errorf("%q", s.ScrapeError)
	}
	if _, seen := o.tracker.State("b"); seen {
		t.Error("a broken message makes a replica")
	}
}

// TestOraclePlaneFleet reads the recording of an event plane as it is.
func TestOraclePlaneFleet(t *testing.T) {
	t.Parallel()
	file := refdata.Files(t, refdata.Root(t), "dynamo/live/event_plane.jsonl.gz")[0]
	o := New(Options{})
	const capacity = 200
	for _, name := range []wire.Replica{"1555977845772451487/0", "7277214081447531914/0", "11177927908543625776/0", "16185360218674927381/0"} {
		o.Describe(name, 1, wire.Facts{Model: "qwen3-mock", BlockSize: 16, Capacity: capacity})
	}
	if err := o.Run(t.Context(), source(t, file), nil); err != nil {
		t.Fatal(err)
	}
	s := o.Snapshot()
	resident := 0
	for _, r := range s.Replicas {
		if !r.Trust.Exact() || r.Dialect != "dynamo-plane" || !r.Load.Known || r.Model != "qwen3-mock" || r.Index.BlockSize != 16 || r.Rank != 0 {
			t.Errorf("%s: %s, %s, load %+v, %+v", r.Replica, r.Trust, r.Dialect, r.Load, r.Index)
		}
		resident += r.Index.Resident[wire.Device]
	}
	if len(s.Replicas) != 4 || resident != 304 { // as many as the router's dump holds
		t.Errorf("%d replicas with %d blocks", len(s.Replicas), resident)
	}
}
