package sim_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/sim"
)

// tally is what kvbench's README states about a workload.
type tally struct {
	Stores, StoredBlocks   int
	Removes, RemovedBlocks int
	Resident               int // (worker, block) pairs at the end
	Queries, QueryBlocks   int
}

// truth is the naivest index: which of at most 64 workers hold a sequence.
type truth map[uint64]uint64

func (h truth) apply(t *testing.T, e *sim.KVBWEvent) {
	t.Helper()
	bit := uint64(1) << e.Worker
	if e.HasParent && h[e.Parent]&bit == 0 {
		t.Fatalf("event %d of worker %d: its parent is not resident", e.ID, e.Worker)
	}
	for _, b := range e.Blocks {
		if h[b.Seq]&bit != 0 {
			t.Fatalf("event %d of worker %d stores a resident block", e.ID, e.Worker)
		}
		h[b.Seq] |= bit
	}
	for _, seq := range e.Hashes {
		if h[seq]&bit == 0 {
			t.Fatalf("event %d of worker %d removes a block that is not there", e.ID, e.Worker)
		}
		h[seq] &^= bit
	}
}

// score walks a query's own chain of sequence hashes.
func (h truth) score(seqs []uint64) sim.KVBWScores {
	out := sim.KVBWScores{}
	live := ^uint64(0)
	for _, seq := range seqs {
		if live &= h[seq]; live == 0 {
			break
		}
		for w := range uint32(64) {
			if live>>w&1 != 0 {
				out[w]++
			}
		}
	}
	return out
}

// replay applies every event and answers every query.
func replay(t *testing.T, k *sim.KVBW) (tally, []sim.KVBWScores) {
	t.Helper()
	var n tally
	h := truth{}
	next := map[uint32]uint64{}
	for i := range k.Events {
		e := &k.Events[i]
		next[e.Worker]++
		if e.ID != next[e.Worker] {
			t.Fatalf("worker %d: event id %d, want %d", e.Worker, e.ID, next[e.Worker])
		}
		switch e.Op {
		case sim.KVBWStore:
			n.Stores++
		case sim.KVBWRemove:
			n.Removes++
		case sim.KVBWClear:
			t.Fatal("a clear")
		}
		n.StoredBlocks += len(e.Blocks)
		n.RemovedBlocks += len(e.Hashes)
		h.apply(t, e)
	}
	n.Resident = n.StoredBlocks - n.RemovedBlocks
	var scores []sim.KVBWScores
	for _, q := range k.Queries {
		n.Queries++
		n.QueryBlocks += len(q)
		scores = append(scores, h.score(sim.SequenceHashes(q)))
	}
	return n, scores
}

func sum(t *testing.T, k *sim.KVBW) string {
	t.Helper()
	h := sha256.New()
	if _, err := k.WriteTo(h); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Digests of the files that the Rust generator of kvbench writes.
const (
	sumSmall = "6700f3399ecfcff278f55ca7c1ef7fede5e8539bbce11a9983c70cd63c5a70c7"
	sum64    = "5d7bafa3813d505a1fbfd44971834e0cc118f99b0e7f85d5b87239248fcadee8"
)

func TestKVBWSmall(t *testing.T) {
	t.Parallel()
	k := sim.GenerateKVBW(sim.KVBWSmall)
	if got := sum(t, k); got != sumSmall {
		t.Errorf("sha256 %s, want %s", got, sumSmall)
	}

	f, err := os.Open("testdata/small.scores.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	expected, err := sim.ReadKVBWScores(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(expected) != len(k.Queries) {
		t.Fatalf("%d expected scores for %d queries", len(expected), len(k.Queries))
	}
	_, scores := replay(t, k)
	for i, e := range expected {
		if e.Blocks != len(k.Queries[i]) {
			t.Fatalf("query %d has %d blocks, want %d", i, len(k.Queries[i]), e.Blocks)
		}
		if d := cmp.Diff(e.Scores, scores[i]); d != "" {
			t.Fatalf("query %d: scores (-Dynamo +naive):\n%s", i, d)
		}
	}
}

func TestKVBW64(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a few hundred MB and some seconds")
	}
	k := sim.GenerateKVBW(sim.KVBW64)
	if got := sum(t, k); got != sum64 {
		t.Errorf("sha256 %s, want %s", got, sum64)
	}
	got, scores := replay(t, k)
	want := tally{
		Stores: 88_465, StoredBlocks: 2_069_356,
		Removes: 51_568, RemovedBlocks: 799_006,
		Resident: 1_270_350,
		Queries:  10_000, QueryBlocks: 2_933_966,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("workload (-want +got):\n%s", d)
	}
	if c := sim.KVBWChecksum(scores); c != 0xbbfcdf36fec6ab4c {
		t.Errorf("checksum %016x, want the bbfcdf36fec6ab4c of Dynamo's indexes", c)
	}
}

func TestKVBWFile(t *testing.T) {
	t.Parallel()
	k := sim.GenerateKVBW(sim.KVBWParams{Workers: 2, Sessions: 20, Cap: 900, Queries: 10, Seed: 1})
	// Generated workloads never clear, but the layout has it.
	k.Events = append(k.Events, sim.KVBWEvent{Op: sim.KVBWClear, Worker: 1, ID: 99})
	var b bytes.Buffer
	n, err := k.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("wrote %d of %d bytes: %v", n, b.Len(), err)
	}
	whole := b.Bytes()
	back, err := sim.ReadKVBW(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(k, back); d != "" {
		t.Fatalf("read back (-wrote +read):\n%s", d)
	}

	for _, cut := range []int{0, 7, 30, len(whole) / 2, len(whole) - 1} {
		if _, err := sim.ReadKVBW(bytes.NewReader(whole[:cut])); err == nil {
			t.Errorf("a file cut after %d of %d bytes was read", cut, len(whole))
		}
	}
	bad := []struct {
		name string
		at   int
		with string
		want string
	}{
		{"magic", 0, "KVBW0002", "KVBW0002"},
		{"block size", 12, "\x20", "block size 32"},
		{"worker", 33, "\xff", "worker 255 of 2"},
		{"operation", 32, "\x09", "operation 9"},
		{"run", 54, "\xff\xff\xff\xff", "a run of"},
	}
	for _, tt := range bad {
		file := bytes.Clone(whole)
		copy(file[tt.at:], tt.with)
		if _, err := sim.ReadKVBW(bytes.NewReader(file)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.want)
		}
	}
	if _, err := sim.ReadKVBW(bytes.NewReader(append(whole, 0))); err == nil {
		t.Error("a file with a byte too many was read")
	}
}
