package index

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

// kvbwEvent is a workload's event in the form that the index takes.
type kvbwEvent struct {
	worker wire.Replica
	store  *Store
	remove []wire.Handle
}

// kvbwEvents converts a workload, so that no conversion is measured.
func kvbwEvents(k *sim.KVBW) []kvbwEvent {
	names := make([]wire.Replica, k.Workers)
	for i := range names {
		names[i] = worker(uint32(i))
	}
	out := make([]kvbwEvent, len(k.Events))
	for i := range k.Events {
		e := &k.Events[i]
		out[i].worker = names[e.Worker]
		if e.Op == sim.KVBWRemove {
			for _, h := range e.Hashes {
				out[i].remove = append(out[i].remove, wire.IntHandle(h))
			}
			continue
		}
		st := &Store{Blocks: make([]Block, len(e.Blocks))}
		if e.HasParent {
			st.Parent = wire.IntHandle(e.Parent)
		}
		for b, blk := range e.Blocks {
			st.Blocks[b] = Block{Handle: wire.IntHandle(blk.Seq), Local: blk.Local}
		}
		out[i].store = st
	}
	return out
}

func worker(i uint32) wire.Replica { return wire.Replica(fmt.Sprintf("w%02d", i)) }

func applyKVBW(x *Index, events []kvbwEvent) {
	for i := range events {
		if e := &events[i]; e.store != nil {
			x.Store(e.worker, *e.store)
		} else {
			x.Remove(e.worker, Place{}, e.remove)
		}
	}
}

// kvbwScores are the index's answers in the workload's form.
func kvbwScores(t testing.TB, x *Index, workers int, query []uint64) sim.KVBWScores {
	t.Helper()
	ids := map[wire.Replica]uint32{}
	for i := range uint32(workers) {
		ids[worker(i)] = i
	}
	out := sim.KVBWScores{}
	for _, m := range x.MatchLocals(query) {
		id, known := ids[m.Replica]
		_, twice := out[id]
		if !known || twice || m.Depth() != m.Tiers[wire.Device] || m.Upper != m.Depth() || m.Certain != m.Depth() {
			t.Fatalf("odd match %+v", m)
		}
		out[id] = uint32(m.Depth())
	}
	return out
}

func TestOracleKVBWSmall(t *testing.T) {
	t.Parallel()
	k := sim.GenerateKVBW(sim.KVBWSmall)
	f, err := os.Open(filepath.Join("..", "sim", "testdata", "small.scores.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // read only
	expected, err := sim.ReadKVBWScores(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(expected) != 500 || len(k.Queries) != 500 {
		t.Fatalf("%d expected scores for %d queries, want 500", len(expected), len(k.Queries))
	}
	x := New(Options{})
	applyKVBW(x, kvbwEvents(k))
	check(t, x)
	for i, e := range expected {
		if d := cmp.Diff(e.Scores, kvbwScores(t, x, k.Workers, k.Queries[i])); d != "" {
			t.Fatalf("query %d: scores (-Dynamo +ours):\n%s", i, d)
		}
	}
}

// kvbw64 is the big workload, made once for all who want it.
var kvbw64 = sync.OnceValues(func() (*sim.KVBW, []kvbwEvent) {
	k := sim.GenerateKVBW(sim.KVBW64)
	return k, kvbwEvents(k)
})

func TestOracleKVBW64(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a few hundred MB and some seconds")
	}
	k, events := kvbw64()
	x := New(Options{})
	applyKVBW(x, events)
	check(t, x)
	scores := make([]sim.KVBWScores, len(k.Queries))
	for i, q := range k.Queries {
		scores[i] = kvbwScores(t, x, k.Workers, q)
	}
	if c := sim.KVBWChecksum(scores); c != 0xbbfcdf36fec6ab4c {
		t.Errorf("checksum %016x, want the bbfcdf36fec6ab4c of Dynamo's indexes", c)
	}
	var resident, stored, unknown int
	var ledger Ledger
	for i := range uint32(k.Workers) {
		s := x.Stats(worker(i))
		resident += s.Resident[wire.Device]
		stored += int(s.Stored)
		unknown += int(s.UnknownRemovals)
		ledger = ledger.Add(s.Ledger)
	}
	if resident != 1_270_350 || stored != 2_069_356 || unknown != 0 {
		t.Errorf("%d resident pairs of %d stored, %d unknown removals; want 1270350, 2069356, 0", resident, stored, unknown)
	}
	if n := ledger.First + ledger.Elsewhere + ledger.EvictedHere + ledger.EvictedElsewhere; n != uint64(stored) || ledger.Duplicate+ledger.Unattached != 0 {
		t.Errorf("the ledger %+v does not add up to %d blocks", ledger, stored)
	}
	t.Logf("ledger %+v", ledger)
}
