package observe

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// sequenceOf names the blocks that stored makes of these numbers, from the root on.
func sequenceOf(first uint64, blocks int) []uint64 {
	var tokens []wire.Token
	for _, t := range stored(nil, first, blocks)[3].([]uint64) {
		tokens = append(tokens, wire.Token(t))
	}
	_, seqs := blockhash.Rolling(tokens, 4, false, 0, nil)
	return seqs
}

// believed is a router that counts blocks 1 to 40 for a replica.
func believed(name wire.Replica) *Belief {
	return &Belief{Source: "dump", Held: []Held{
		{Replica: name, BlockSize: 4, Blocks: [wire.NumTiers][]uint64{slices.Sorted(slices.Values(sequenceOf(1, 40)))}},
	}}
}

// chosen are decisions by which r1 has 40 blocks from the first on, a second apart from a
// time on.
func chosen(from, n int, first uint64) (out []Decision) {
	for i := range n {
		out = append(out, Decision{At: wire.Time(from+i) * 1e9, Replica: r1, Blocks: sequenceOf(first, 50), BlockSize: 4, Overlap: 40})
	}
	return out
}

// fortyThen are records of blocks 1 to 40, and then of what may be done to them.
func fortyThen(then ...any) func(*testing.T) []wire.Record {
	return func(t *testing.T) []wire.Record {
		return alone(t, []any{stored(nil, 1, 40)}, then, nil, nil, nil, nil, nil, nil)
	}
}

// of16 is the block of 16 tokens that mapped makes first.
var _, of16 = blockhash.Rolling(numbered(1000, 16), 16, false, 0, nil)

var divergenceScenarios = []scenario{
	{
		code: "router-divergence", name: "a clear that the router did not hear of", belief: believed(r1),
		fault: fortyThen(cleared(), stored(nil, 1, 10)), twin: fortyThen(cleared(), stored(nil, 1, 40)),
		want: titled(diagnose.Warning, "the router counts 30 blocks that the replica has not, 75 % of its 40; 30 of the former were removed here, and its cache was cleared"),
	},
	{
		code: "router-divergence", name: "a restart that the router did not hear of", belief: believed(r1),
		fault: func(t *testing.T) []wire.Record {
			return append(fortyThen()(t), frame(t, 20, r1, 0, stored(nil, 100, 5)))
		},
		twin: func(t *testing.T) []wire.Record {
			return append(fortyThen()(t), frame(t, 20, r1, 0, stored(nil, 1, 40)))
		},
		want: titled(diagnose.Warning, "counts 40 blocks", "100 % of its 40", "lacks 5 blocks that the replica has, 100 % of 5", "the replica restarted (1 time)"),
	},
	{
		code: "router-divergence", name: "stores that the router did not hear of", belief: believed(r1),
		fault: fortyThen(stored(uint64(40), 41, 20)), twin: fortyThen(stored(uint64(40), 41, 20), removed(records60()...)),
		want: titled(diagnose.Warning, "the router lacks 20 blocks that the replica has, 33 % of 60"),
	},
	{
		code: "router-divergence", name: "an index that holds nothing", belief: &Belief{Source: "dump"},
		fault: fortyThen(), twin: fortyThen(cleared()),
		want: titled(diagnose.Warning, "the router lacks 40 blocks that the replica has, 100 % of 40"),
	},
	{
		code: "router-divergence", name: "an index of something else",
		belief: &Belief{Source: "dump", Held: []Held{{Replica: r1, BlockSize: 4, Blocks: [wire.NumTiers][]uint64{slices.Sorted(slices.Values(sequenceOf(1000, 40)))}}}},
		fault:  fortyThen(), twin: fortyThen(cleared(), stored(nil, 1000, 40)),
		want: func(t *testing.T, f *diagnose.Finding) {
			titled(diagnose.Warning, "counts 40 blocks", "lacks 40 blocks", "; no block is the same on both sides")(t, f)
			if !strings.HasPrefix(f.Next, "first see that both are of one fleet, time and model, and the recording not redacted: ") {
				t.Errorf("next: %s", f.Next)
			}
		},
	},
	{
		code: "router-divergence", name: "another block size",
		belief: &Belief{Held: []Held{{Replica: r1, BlockSize: 16, Blocks: [wire.NumTiers][]uint64{of16}}}},
		fault:  fortyThen(),
		twin:   func(t *testing.T) []wire.Record { return alone(t, []any{mapped(16, 1, records(1, 1), nil)}) },
		want:   titled(diagnose.Warning, "the router's index has blocks of 16 tokens, the replica of 4"),
	},
	{
		code: "router-divergence", name: "decisions by what was cleared", decisions: chosen(5, 4, 1),
		fault: fortyThen(cleared(), stored(nil, 1, 10)), twin: fortyThen(),
		want: titled(diagnose.Warning, "of the router's 4 decisions to send a prompt there, 4 took 120 blocks more for cached than it had"),
	},
	{
		code: "router-divergence", name: "decisions about something else", decisions: chosen(5, 4, 1000),
		fault: fortyThen(), twin: fortyThen(cleared(), stored(nil, 1000, 40)),
		want: func(t *testing.T, f *diagnose.Finding) {
			titled(diagnose.Warning, "4 took 160 blocks more for cached than it had; it had no block of any of these prompts")(t, f)
			if !strings.HasPrefix(f.Next, "first see that both are of one fleet, time and model") {
				t.Errorf("next: %s", f.Next)
			}
		},
	},
}

// records60 are the handles of blocks 41 to 60.
func records60() (out []uint64) {
	for h := uint64(41); h <= 60; h++ {
		out = append(out, h)
	}
	return out
}

// TestDivergenceTwoLooks: of two looks at a router only what differs in both counts.
func TestDivergenceTwoLooks(t *testing.T) {
	t.Parallel()
	o := New(Options{})
	for _, rec := range fortyThen()(t) {
		o.Push(rec)
	}
	first := believed(r1)
	first.First = true
	if err := o.Believe(*first); err != nil || o.Snapshot().Belief != nil {
		t.Errorf("error %v: one of two looks is told", err)
	}
	o.differed = nil
	look := func(seqs []uint64, stale, missing, passing int) {
		t.Helper()
		b := believed(r1)
		b.Held[0].Blocks[wire.Device] = slices.Sorted(slices.Values(seqs))
		if err := o.Believe(*b); err != nil {
			t.Fatal(err)
		}
		if d := o.belief.Rows[0]; d.Stale != stale || d.Missing != missing || d.Passing != passing {
			t.Errorf("%+v, want %d stale, %d missing, %d passing", d, stale, missing, passing)
		}
	}
	all := sequenceOf(1, 45)
	look(all[:30], 0, 10, 0)
	look(all[:35], 0, 5, 0) // five have come
	look(all[:43], 0, 0, 3) // three are new to us
	look(all[:41], 1, 0, 0) // one of which stays
	look(all[:39], 0, 0, 1)
	if f := divergence(o); f != nil {
		t.Errorf("found %s", inWords(f))
	}
}

// TestDivergenceDoubt: a replica that we are not sure of is not held against the
// router.
func TestDivergenceDoubt(t *testing.T) {
	t.Parallel()
	o := New(Options{})
	o.Push(frame(t, 1, r1, 7, stored(nil, 1, 20))) // joined late
	o.Push(frame(t, 2, "r2", 0, stored(nil, 1, 20)))
	b := believed(r1)
	b.Held[0].Model = "m" // which may be that of r2
	if err := o.Believe(*b); err != nil {
		t.Fatal(err)
	}
	found := divergence(o)
	if len(found) != 2 {
		t.Fatalf("found %s", inWords(found))
	}
	titled(diagnose.Warning, "lacks 20 blocks that the replica has, 100 % of 20")(t, &found[0])
	titled(diagnose.Info, "counts 20 blocks", "our own side is in doubt (DEGRADED(late-join))")(t, &found[1])
	if err := o.Believe(Belief{Source: "dump", Held: []Held{{Replica: "7/0"}}}); err == nil || len(divergence(o)) != 2 {
		t.Errorf("error %v: none of its replicas is ours", err)
	}
}

// TestDivergenceBlind: where nothing was heard of a replica, nothing is said of who is
// right.
func TestDivergenceBlind(t *testing.T) {
	t.Parallel()
	o := New(Options{})
	o.Push(link(1, r1, wire.LinkUp, ""))
	if err := o.Believe(*believed(r1)); err != nil {
		t.Fatal(err)
	}
	found := divergence(o)
	if len(found) != 1 {
		t.Fatalf("found %s", inWords(found))
	}
	titled(diagnose.Info, "the router counts 40 blocks here, and nothing is known that they could be held against: BLIND(no-events)")(t, &found[0])
	if !strings.Contains(found[0].Next, "--replay=full") {
		t.Error(found[0].Next)
	}
}
