package index

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// residents gives the sequence hashes of what a replica has on the device.
func (x *Index) residents(name wire.Replica) map[uint64]bool {
	out := map[uint64]bool{}
	r := x.replicas[name]
	if r == nil {
		return out
	}
	for id := range x.nodes {
		if s := x.find(nodeID(id), r.id, 0, wire.Device); s != nil && s.n > 0 {
			out[x.nodes[id].seq] = true
		}
	}
	return out
}

// feed applies all messages of a recording, each replica under the name that
// rename gives; it counts what was applied.
func feed(t *testing.T, x *Index, file string, rename func(wire.Replica) wire.Replica) (events int) {
	t.Helper()
	src := wire.NewJSONL(bytes.NewReader(refdata.Unpack(t, file)), filepath.Base(file))
	for {
		rec, err := src.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.Kind != wire.Frames {
			continue
		}
		if _, ok, _ := wire.DecodeLoad(rec.Frames); ok {
			continue
		}
		if _, ok, _ := wire.DecodeActivity(rec.Frames); ok {
			continue
		}
		topic, seq, payload, err := wire.SplitFrames(rec.Frames)
		if err != nil {
			t.Fatal(err)
		}
		b, err := wire.Decode(topic, seq, payload)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Events {
			if e := &b.Events[i]; e.Kind == wire.Bad || e.Kind == wire.Unknown {
				t.Fatalf("%s %d: %s %v", rec.Replica, seq, e.Name, e.Err)
			}
			x.Apply(rename(rec.Replica), &b.Events[i], false)
			events++
		}
	}
}

func same(r wire.Replica) wire.Replica { return r }

// dumped is an event of the router's own dump of its index.
type dumped struct {
	Worker uint64 `json:"worker_id"`
	Tier   string `json:"storage_tier"`
	Event  struct {
		Rank int `json:"dp_rank"`
		Data struct {
			Stored *struct {
				Parent *uint64 `json:"parent_hash"`
				Blocks []struct {
					Handle uint64 `json:"block_hash"`
					Local  uint64 `json:"tokens_hash"`
				}
			}
		}
	}
}

// dump gives, for each replica, the sequence hashes that the router held.
func dump(t *testing.T, file string) map[wire.Replica]map[uint64]bool {
	t.Helper()
	var events []dumped
	if err := json.Unmarshal(refdata.Unpack(t, file), &events); err != nil {
		t.Fatal(err)
	}
	out := map[wire.Replica]map[uint64]bool{}
	seqs := map[wire.Replica]map[uint64]uint64{} // by handle
	for _, e := range events {
		name := wire.Replica(strconv.FormatUint(e.Worker, 10) + "/" + strconv.Itoa(e.Event.Rank))
		st := e.Event.Data.Stored
		if st == nil || e.Tier != "device" {
			t.Fatalf("the dump holds another event than a store on the device: %+v", e)
		}
		if out[name] == nil {
			out[name], seqs[name] = map[uint64]bool{}, map[uint64]uint64{}
		}
		root, parent := st.Parent == nil, uint64(0)
		if !root {
			var ok bool
			if parent, ok = seqs[name][*st.Parent]; !ok {
				t.Fatalf("%s: a parent that the dump does not hold before", name)
			}
		}
		for _, b := range st.Blocks {
			parent = blockhash.Next(parent, b.Local, root)
			root = false
			seqs[name][b.Handle], out[name][parent] = parent, true
		}
	}
	return out
}

// TestOraclePlaneResidents holds what the event plane left resident against the
// router's own dump of its index, and against what the engines' sockets left.
func TestOraclePlaneResidents(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	file := func(name string) string { return refdata.Files(t, root, "dynamo/live/"+name)[0] }
	plane, sockets := New(Options{}), New(Options{})
	events := feed(t, plane, file("event_plane.jsonl.gz"), same)
	feed(t, sockets, file("vllm_wire.jsonl.gz"), same)

	want := dump(t, file("router_dump_final.json.gz"))
	if len(want) == 0 {
		t.Fatal("an empty dump")
	}
	total := 0
	for name, blocks := range want {
		got := plane.residents(name)
		total += len(got)
		if diff := cmp.Diff(blocks, got); diff != "" {
			t.Errorf("%s: (-router +ours)\n%s", name, diff)
		}
		st := plane.Stats(name)
		if st.Orphans+int(st.UnknownRemovals+st.Unindexed+st.Misaligned) > 0 || st.Copies != len(blocks) {
			t.Errorf("%s: %+v", name, st)
		}
	}
	// The sockets say nothing of worker ids, so their sets are to be those of
	// the plane, in any order.
	sets := func(x *Index) []string {
		var out []string
		for _, r := range x.byID {
			out = append(out, fmt.Sprint(slices.Sorted(maps.Keys(x.residents(r.name)))))
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(sets(plane), sets(sockets)); diff != "" {
		t.Errorf("(-plane +sockets)\n%s", diff)
	}
	t.Logf("%d events, %d replicas, %d resident blocks equal to the router's dump and to the engines' sockets", events, len(want), total)
}

// TestOraclePlaneHashes holds content hashes of the plane against tokens: those
// that the relay was given, and the prompts that made the fleet's blocks. The
// mocker's own hash of a block is its sequence hash, which checks the rest.
func TestOraclePlaneHashes(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	prompts := map[uint64]bool{} // sequence hashes of full blocks
	refdata.Each(t, refdata.Files(t, root, "dynamo/live/truth_joined.jsonl.gz")[0], func(_ int, line struct {
		Tokens []wire.Token `json:"token_ids"`
	},
	) {
		_, seqs := blockhash.Rolling(line.Tokens, 16, false, 0, nil)
		for _, seq := range seqs {
			prompts[seq] = true
		}
	})
	known, handles := 0, 0
	for _, file := range refdata.Files(t, root, "dynamo/live/event_plane.jsonl.gz", "dynamo/nats/*.jsonl.gz") {
		x := New(Options{History: 1 << 20}) // forgets nothing
		feed(t, x, file, same)
		for id, n := range x.nodes {
			if id == 0 {
				continue
			}
			handles++
			if n.handle != n.seq {
				t.Errorf("%s: the sequence hash %d of a block whose own hash is %d", filepath.Base(file), n.seq, n.handle)
			}
			if prompts[n.seq] {
				known++
			}
		}
	}
	if known == 0 || handles == 0 {
		t.Error("nothing was compared")
	}
	t.Logf("%d blocks have the engine's sequence hash, %d of them that of a known prompt", handles, known)

	sent := map[uint64]uint64{} // by handle: what its tokens hash to
	equal := 0
	refdata.Each(t, refdata.Files(t, root, "dynamo/relay_gap.jsonl.gz")[0], func(_ int, line struct {
		Events []struct {
			Hashes []string     `json:"block_hashes"`
			Tokens []wire.Token `json:"token_ids"`
		}
		Data struct {
			Stored struct {
				Blocks []struct {
					Handle uint64 `json:"block_hash"`
					Local  uint64 `json:"tokens_hash"`
				}
			}
		}
	},
	) {
		for _, e := range line.Events {
			if h, err := strconv.ParseUint(e.Hashes[0], 10, 64); err == nil {
				sent[h] = blockhash.Local(e.Tokens, 0, nil)
			}
		}
		for _, b := range line.Data.Stored.Blocks {
			if equal++; sent[b.Handle] != b.Local {
				t.Errorf("block %d: the relay's content hash is %d, ours %d", b.Handle, b.Local, sent[b.Handle])
			}
		}
	})
	t.Logf("%d content hashes of the relay equal ours", equal)
}
