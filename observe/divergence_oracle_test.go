package observe

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/route/remote"
	"github.com/kvscope/kvscope/wire"
)

// dumped is the router's own dump of its index, by its own names.
func dumped(t *testing.T, path string) Belief {
	t.Helper()
	all, err := remote.ReadDump(bytes.NewReader(refdata.Unpack(t, path)), path)
	if err != nil {
		t.Fatal(err)
	}
	b := Belief{Source: "dump"}
	for i := range all {
		h := &all[i]
		b.Held = append(b.Held, Held{Replica: h.Replica, Model: h.Model, BlockSize: h.BlockSize, Blocks: h.Blocks, Unplaced: h.Unplaced})
	}
	return b
}

// divergence gives the findings of the check.
func divergence(o *Observer) (out []diagnose.Finding) {
	for _, f := range o.Snapshot().Findings {
		if f.Code == "router-divergence" {
			out = append(out, f)
		}
	}
	return out
}

// TestOracleDivergence: what a real router of Dynamo held in the end is what the
// events of its plane say, block by block; and of a dump that was changed exactly the
// change is found.
func TestOracleDivergence(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	file := func(name string) string { return refdata.Files(t, root, "dynamo/live/"+name)[0] }
	o := New(Options{})
	if err := o.Run(t.Context(), source(t, file("event_plane.jsonl.gz")), nil); err != nil {
		t.Fatal(err)
	}
	dump := dumped(t, file("router_dump_final.json.gz"))
	if err := o.Believe(dump); err != nil {
		t.Fatal(err)
	}
	if found := divergence(o); found != nil {
		t.Errorf("found %s", inWords(found))
	}
	both := 0
	for _, d := range o.belief.Rows {
		both += d.Both
	}
	if len(o.belief.Rows) != 4 || both != 304 {
		t.Errorf("%d replicas, %d blocks", len(o.belief.Rows), both)
	}
	t.Logf("%d replicas, %d blocks equal", len(o.belief.Rows), both)

	// The router forgets seven blocks of one, and is told of three that never were.
	h := &dump.Held[1]
	h.Blocks[wire.Device] = slices.Concat([]uint64{1, 2, 3}, h.Blocks[wire.Device][:4], h.Blocks[wire.Device][11:])
	dump.Held = append(dump.Held, Held{Replica: "7/0", Blocks: [wire.NumTiers][]uint64{{1, 2}}})
	o.differed = nil
	if err := o.Believe(dump); err != nil {
		t.Fatal(err)
	}
	d := o.belief.Rows[slices.IndexFunc(o.belief.Rows, func(d diagnose.Divergence) bool { return d.Replica == h.Replica })]
	if d.Stale != 3 || d.Missing != 7 || d.Ours-d.Both != 7 || d.Router-d.Both != 3 || d.Gone != 0 {
		t.Errorf("%+v", d)
	}
	found := divergence(o)
	if len(found) != 2 || found[0].Subject != string(h.Replica) && found[1].Subject != string(h.Replica) {
		t.Fatalf("found %s", inWords(found))
	}
	stranger := "the router counts 2 blocks for 1 replica that is not observed here: 7/0"
	if !slices.ContainsFunc(found, func(f diagnose.Finding) bool { return f.Title == stranger }) {
		t.Errorf("none is %q", stranger)
	}
	for _, f := range found {
		t.Log(f.Severity, f.Subject, f.Title)
	}
}

// TestOracleDecisions: the overlap by which a real router chose a worker is what our
// index had at that moment, and where a trace says otherwise it is found.
func TestOracleDecisions(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	file := func(name string) string { return refdata.Files(t, root, "dynamo/live/"+name)[0] }
	fleet := New(Options{})
	if err := fleet.Run(t.Context(), source(t, file("event_plane.jsonl.gz")), nil); err != nil {
		t.Fatal(err)
	}
	var rows []Decision
	overlap, before := 0, 0
	refdata.Each(t, file("truth_joined.jsonl.gz"), func(_ int, r struct {
		At     float64      `json:"t"`
		Tokens []wire.Token `json:"token_ids"`
		Before struct {
			Workers []struct {
				Worker uint64 `json:"worker_id"`
				Rank   int    `json:"dp_rank"`
				Blocks int    `json:"device_blocks"`
			}
		} `json:"overlap_before"`
	},
	) {
		if r.At == 0 {
			return
		}
		at, _ := wire.TimeOf(r.At)
		_, seqs := blockhash.Rolling(r.Tokens, 16, false, 0, nil)
		for _, w := range r.Before.Workers { // what it knew of all, not only of the one it chose
			name := wire.Replica(fmt.Sprintf("%d/%d", w.Worker, w.Rank))
			if s, _ := fleet.tracker.State(name); at < s.Joined {
				before++ // nothing was heard of it yet
				continue
			}
			overlap += w.Blocks
			rows = append(rows, Decision{At: at, Replica: name, Blocks: seqs, BlockSize: 16, Overlap: w.Blocks})
		}
	})
	judged := func(rows []Decision) (out diagnose.Decided) {
		o := New(Options{Decisions: rows})
		if err := o.Run(t.Context(), source(t, file("event_plane.jsonl.gz")), nil); err != nil {
			t.Fatal(err)
		}
		if n, err := o.Decided(); n != len(rows) || err != nil {
			t.Fatalf("%d of %d compared: %v", n, len(rows), err)
		}
		differ := 0
		for _, d := range o.belief.Decided {
			out.Rows, out.More, out.MoreBlocks = out.Rows+d.Rows, out.More+d.More, out.MoreBlocks+d.MoreBlocks
			out.Fewer, out.FewerBlocks = out.Fewer+d.Fewer, out.FewerBlocks+d.FewerBlocks
			if d.More+d.Fewer > 0 {
				differ++
			}
		}
		if found := divergence(o); len(found) != differ {
			t.Errorf("%d replicas differ: %s", differ, inWords(found))
		}
		return out
	}
	if got := judged(rows); got != (diagnose.Decided{Rows: len(rows)}) {
		t.Errorf("%+v", got)
	}
	if len(rows)+before != 4*46 || overlap == 0 {
		t.Errorf("%d rows and %d before the first event", len(rows), before)
	}
	t.Logf("%d overlaps of 46 requests equal, %d blocks in all; %d were of replicas not heard of yet", len(rows), overlap, before)

	// A router that believes in nothing, and one that believes in all.
	none, all := slices.Clone(rows), slices.Clone(rows)
	with, lost, more := 0, 0, 0
	for i := range rows {
		if rows[i].Overlap > 0 {
			with++
		}
		lost += rows[i].Overlap
		more += len(rows[i].Blocks) - rows[i].Overlap
		none[i].Overlap, all[i].Overlap = 0, len(rows[i].Blocks)
	}
	// But for what a replica had stored so shortly before that its event may have been
	// on the way.
	if got := judged(none); got.Fewer < with-2 || got.FewerBlocks > lost || got.FewerBlocks*20 < lost*19 {
		t.Errorf("%+v, want %d fewer with %d blocks", got, with, lost)
	}
	if got := judged(all); got.More == 0 || got.MoreBlocks != more {
		t.Errorf("%+v, want %d blocks more", got, more)
	}
}
