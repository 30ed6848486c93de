package sim

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// outside keeps what the engines of a world did.
type outside struct {
	nodes []outsideNode
	text  bytes.Buffer // the whole history
}

type outsideNode struct {
	lives          int
	seqs           []uint64 // published live in this life
	kept           []uint64
	all            []uint64
	payloads       [][]byte // of this life, all of them
	notLive, never int      // batches, over all lives
}

func (o *outside) batch(i int, seq uint64, payload []byte, live, kept bool) {
	n := &o.nodes[i]
	n.all, n.payloads = append(n.all, seq), append(n.payloads, payload)
	if live {
		n.seqs = append(n.seqs, seq)
	} else {
		n.notLive++
	}
	if kept {
		n.kept = append(n.kept, seq)
	} else {
		n.never++
	}
	fmt.Fprintf(&o.text, "%d #%d %x %t %t\n", i, seq, payload, live, kept)
}

func (o *outside) down(i int) { fmt.Fprintf(&o.text, "%d down\n", i) }

func (o *outside) boot(i int) error {
	n := &o.nodes[i]
	n.lives++
	n.seqs, n.kept, n.all, n.payloads = nil, nil, nil, nil
	return nil
}

// run makes a world and has it live for so many seconds.
func run(t *testing.T, opt Options, seconds int) (*world, *outside) {
	t.Helper()
	opt, err := opt.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{nodes: make([]outsideNode, opt.Replicas)}
	w, err := newWorld(opt, o)
	if err != nil {
		t.Fatal(err)
	}
	now := wire.Time(1_800_000_000e9)
	for i := range w.nodes {
		if err := w.boot(i, now); err != nil {
			t.Fatal(err)
		}
	}
	for range w.seconds(seconds) {
		now += wire.Time(opt.Step)
		if err := w.tick(now); err != nil {
			t.Fatal(err)
		}
	}
	return w, o
}

// exact replays what an engine published in its life, and holds it against what
// the engine has.
func exact(t *testing.T, w *world, o *outside, i int) *shadow {
	t.Helper()
	s := newShadow()
	for k, p := range o.nodes[i].payloads {
		s.take(t, p)
		if o.nodes[i].all[k] != uint64(k) {
			t.Errorf("%s: batch %d has the number %d", w.nodes[i].name, k, o.nodes[i].all[k])
		}
	}
	e := w.nodes[i].engine
	if got, want := e.Residents(), s.residents(); !e.Pending() && !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: %d blocks resident, and %d by its batches", w.nodes[i].name, len(got), len(want))
	}
	return s
}

// small is a fleet whose caches are soon full.
var small = Options{Replicas: 3, Blocks: 400, BlockSize: 16, Rate: 12, Seed: 5}

func TestWorld(t *testing.T) {
	t.Parallel()
	w, o := run(t, small, 60)
	served, hit, asked := 0, 0, 0
	for _, r := range w.log {
		if r.Status != 200 || len(r.Tokens) == 0 || r.End <= r.Start {
			t.Fatalf("request %+v", r)
		}
		served++
		hit += r.Cached
		asked += len(r.Tokens)
	}
	for i, n := range w.nodes {
		s := exact(t, w, o, i)
		if s.removals == 0 || s.total() < small.Blocks/2 {
			t.Errorf("%s: %d blocks and %d evictions: the cache never was full", n.name, s.total(), s.removals)
		}
		if len(o.nodes[i].all) < 100 || n.engine.Load().Finished < served/6 {
			t.Errorf("%s: %d batches, load %+v", n.name, len(o.nodes[i].all), n.engine.Load())
		}
	}
	// 720 are sent, of which the last are still on their way.
	if served < 500 || float64(hit)/float64(asked) < 0.6 {
		t.Errorf("%d requests served, %d of %d tokens from the cache", served, hit, asked)
	}
	t.Logf("%d requests, %.0f %% of tokens from the cache", served, 100*float64(hit)/float64(asked))
}

// TestWorldRepeats: one seed gives one history, to the byte.
func TestWorldRepeats(t *testing.T) {
	t.Parallel()
	opt := small
	opt.Faults = []string{"restart", "drop", "clear"}
	_, first := run(t, opt, 12)
	_, again := run(t, opt, 12)
	if !bytes.Equal(first.text.Bytes(), again.text.Bytes()) {
		t.Error("the same seed gave two histories")
	}
	opt.Seed++
	if _, other := run(t, opt, 12); bytes.Equal(first.text.Bytes(), other.text.Bytes()) {
		t.Error("two seeds gave one history")
	}
}

// faultTests say what each fault of the table does in 30 seconds, to the first
// engine unless it is one of the fleet's.
var faultTests = map[string]func(t *testing.T, w *world, o *outside, plain *world){
	"restart": func(t *testing.T, w *world, o *outside, _ *world) {
		// The life that began at 8 s.
		if n := o.nodes[0]; n.lives != 2 || len(n.all) == 0 || n.all[0] != 0 || w.nodes[0].started != 1_800_000_008e9+25e6 {
			t.Errorf("%d lives, the last from %d on, %d batches", n.lives, w.nodes[0].started, len(n.all))
		}
		lost := slices.IndexFunc(w.log, func(r Request) bool { return r.Status == 502 && r.Replica == "sim-0" })
		if lost < 0 {
			t.Error("no request was lost")
		}
	},
	"dead": func(t *testing.T, w *world, o *outside, _ *world) {
		if w.nodes[0].up || o.nodes[0].lives != 1 || !strings.Contains(o.text.String(), "0 down\n") {
			t.Errorf("%d lives", o.nodes[0].lives)
		}
		last := w.log[len(w.log)-1]
		if last.Replica == "sim-0" || last.Status != 200 {
			t.Errorf("the last request: %+v", last)
		}
	},
	"drop": func(t *testing.T, _ *world, o *outside, _ *world) {
		if n := o.nodes[0]; n.notLive != 9 || n.never != 0 || len(n.kept) != len(n.all) {
			t.Errorf("%d not live, %d not kept", n.notLive, n.never)
		}
	},
	"lost": func(t *testing.T, _ *world, o *outside, _ *world) {
		if n := o.nodes[0]; n.notLive != 6 || n.never != 6 {
			t.Errorf("%d not live, %d not kept", n.notLive, n.never)
		}
	},
	"silent": func(t *testing.T, w *world, o *outside, _ *world) {
		if o.nodes[0].all != nil || w.nodes[0].engine.Load().Finished == 0 {
			t.Errorf("%d batches", len(o.nodes[0].all))
		}
	},
	"no-caching": func(t *testing.T, w *world, o *outside, _ *world) {
		if l := w.nodes[0].engine.Load(); o.nodes[0].all != nil || l.Finished == 0 || l.Hit != 0 {
			t.Errorf("%d batches, load %+v", len(o.nodes[0].all), l)
		}
	},
	"undecodable": func(t *testing.T, _ *world, o *outside, _ *world) {
		bad := 0
		for _, p := range o.nodes[0].payloads {
			b, err := wire.Decode("", 0, p)
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Events {
				if b.Events[i].Kind == wire.Bad {
					if bad++; len(b.Events) < 2 {
						t.Error("the event is alone in its batch")
					}
				}
			}
		}
		if bad != 2 {
			t.Errorf("%d events that cannot be read, want 2", bad)
		}
	},
	"clear": func(t *testing.T, w *world, o *outside, _ *world) {
		if s := exact(t, w, o, 0); s.clears != 2 {
			t.Errorf("%d resets, want 2", s.clears)
		}
	},
	"mute-replay": func(t *testing.T, w *world, _ *outside, _ *world) {
		if !w.nodes[0].replayer.Mute || w.nodes[1].replayer.Mute {
			t.Error("another engine's replay socket is mute")
		}
	},
	"cut-replay": func(t *testing.T, w *world, _ *outside, _ *world) {
		if w.nodes[0].replayer.Limit != 50 || w.nodes[1].replayer.Limit != 0 {
			t.Error("another engine's replay answers are cut")
		}
	},
	"short-buffer": func(t *testing.T, w *world, _ *outside, _ *world) {
		if w.nodes[0].replayer.Buffer != 8 || w.nodes[1].replayer.Buffer != defaultBuffer {
			t.Error("another engine's buffer is short")
		}
	},
	"seed": func(t *testing.T, w *world, o *outside, _ *world) {
		a, b, c := exact(t, w, o, 0), exact(t, w, o, 1), exact(t, w, o, 2)
		if shared(a, b)+shared(a, c) != 0 || shared(b, c) == 0 {
			t.Errorf("%d, %d and %d hashes in common", shared(a, b), shared(a, c), shared(b, c))
		}
	},
	"block-size": func(t *testing.T, w *world, o *outside, _ *world) {
		exact(t, w, o, 0)
		for i, want := range []int{32, 16, 16} {
			if r := w.nodes[i].engine.Residents(); len(r[0].Tokens) != want {
				t.Errorf("%s: blocks of %d tokens", w.nodes[i].name, len(r[0].Tokens))
			}
		}
	},
	"squeeze": func(t *testing.T, w *world, o *outside, plain *world) {
		got, was := w.nodes[0].engine.Load(), plain.nodes[0].engine.Load()
		share := func(l Load) float64 { return float64(l.Hit) / float64(l.Queried) }
		if n := exact(t, w, o, 0).total(); n > 100 || share(got) > share(was)-0.05 {
			t.Errorf("%d blocks, %.2f of the tokens come from them, and %.2f without", n, share(got), share(was))
		}
	},
	"skew": func(t *testing.T, w *world, o *outside, _ *world) {
		var at [2]wire.Time
		for i := range at {
			b, err := wire.Decode("", 0, o.nodes[i].payloads[0])
			if err != nil {
				t.Fatal(err)
			}
			at[i] = b.Engine
		}
		if ahead := (at[0] - at[1]).Seconds(); ahead < 28 || ahead > 32 {
			t.Errorf("%g s ahead", ahead)
		}
	},
	"timestamp": func(t *testing.T, w *world, o *outside, plain *world) {
		if got, was := hitShare(w, 0), hitShare(plain, 0); got > 0.25 || was < 0.5 {
			t.Errorf("%.2f of the family's tokens come from the cache, and %.2f without", got, was)
		}
	},
	"duplicates": func(t *testing.T, w *world, o *outside, plain *world) {
		copies := func(w *world) (n int) {
			for _, node := range w.nodes {
				for _, r := range node.engine.Residents() {
					n += r.Copies - 1
				}
			}
			return n
		}
		for i := range w.nodes {
			exact(t, w, o, i)
		}
		if copies(w) < 5 || copies(w) <= copies(plain) {
			t.Errorf("%d duplicates, and %d without", copies(w), copies(plain))
		}
	},
	"scatter": func(t *testing.T, w *world, _ *outside, plain *world) {
		if got, was := hitShare(w, -1), hitShare(plain, -1); got > was-0.05 {
			t.Errorf("%.2f of the tokens come from the cache, and %.2f without", got, was)
		}
	},
}

func TestFaults(t *testing.T) {
	t.Parallel()
	plain, _ := run(t, small, 30)
	var names []string
	for _, f := range Faults {
		names = append(names, f.Name)
		if f.Text == "" || strings.ToUpper(f.Text[:1]) == f.Text[:1] {
			t.Errorf("%s: its text is %q", f.Name, f.Text)
		}
	}
	if tested := slices.Sorted(maps.Keys(faultTests)); !slices.Equal(tested, slices.Sorted(slices.Values(names))) {
		t.Fatalf("faults %v, tested %v", names, tested)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := small
			opt.Faults = []string{name}
			w, o := run(t, opt, 30)
			faultTests[name](t, w, o, plain)
			if len(w.strikes) == 0 || w.strikes[0].Fault != name {
				t.Fatalf("strikes %+v", w.strikes)
			}
			fleet := w.faults[0].fleet
			for _, s := range w.strikes {
				if (s.Engine == "") != fleet || s.Engine != "" && s.Engine != "sim-0" {
					t.Errorf("%+v", s)
				}
			}
		})
	}
	opt, err := small.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	opt.Faults = []string{"gremlins"}
	if _, err := newWorld(opt, nil); err == nil || !strings.Contains(err.Error(), `no fault "gremlins", only restart, `) {
		t.Errorf("error %v", err)
	}
}

// TestFaultsTogether: the smallest fleets take all faults at once.
func TestFaultsTogether(t *testing.T) {
	t.Parallel()
	for _, opt := range []Options{
		{Replicas: 1, Blocks: 128, BlockSize: 16},
		{Replicas: 2, Blocks: 1, BlockSize: 2048},
		{Replicas: 3, Blocks: 2048, BlockSize: 1},
	} {
		opt.Faults = faultNames()
		w, _ := run(t, opt, 12)
		if len(w.log) == 0 {
			t.Errorf("%+v: nothing was served", opt)
		}
	}
}

// shared counts the hashes that two engines have in common.
func shared(a, b *shadow) (n int) {
	for h := range a.content {
		if _, ok := b.content[h]; ok {
			n++
		}
	}
	return n
}

// hitShare is the share of a family's prompt tokens, -1 for all, that came from
// caches in later turns.
func hitShare(w *world, family int) float64 {
	var hit, asked float64
	for _, r := range w.log {
		if r.Status == 200 && (family < 0 || r.Family == family) && r.Start > 1_800_000_010 {
			hit += float64(r.Cached)
			asked += float64(len(r.Tokens))
		}
	}
	return hit / asked
}

func TestChoose(t *testing.T) {
	t.Parallel()
	count := func(blind bool, from ...candidate) map[int]int {
		rng := rand.New(rand.NewPCG(1, 2))
		got := map[int]int{}
		for range 1000 {
			got[choose(rng, slices.Clone(from), blind)]++
		}
		return got
	}
	tests := []struct {
		name  string
		blind bool
		from  []candidate
		want  int // chosen by most
		most  int
	}{
		{"the longest prefix", false, []candidate{{0, 64, 0}, {1, 128, 4}, {2, 0, 0}}, 1, 900},
		{"too much to do", false, []candidate{{0, 64, 0}, {1, 128, 5}, {2, 0, 1}}, 0, 900},
		{"equal prefixes, less to do", false, []candidate{{0, 64, 2}, {1, 64, 1}}, 1, 900},
		{"nobody has any, less to do", false, []candidate{{0, 0, 2}, {1, 0, 1}, {2, 0, 3}}, 1, 900},
		{"blind", true, []candidate{{0, 64, 0}, {1, 128, 0}}, 1, 450},
	}
	for _, tt := range tests {
		got := count(tt.blind, tt.from...)
		if got[tt.want] < tt.most || tt.blind && got[tt.want] > 1000-tt.most {
			t.Errorf("%s: chosen %v, want %d", tt.name, got, tt.want)
		}
	}
	if got := count(false, candidate{0, 64, 0}, candidate{1, 128, 0}); got[0] == 0 {
		t.Error("no request wanders")
	}
}

// TestHistory: a seed gives one history, in the order of time, with the pages and the
// link of an engine that was away.
func TestHistory(t *testing.T) {
	t.Parallel()
	opt := small
	opt.Faults = []string{"restart"}
	all, err := History(opt, 1_800_000_000e9, 12*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	again, err := History(opt, 1_800_000_000e9, 12*time.Second)
	if err != nil || !reflect.DeepEqual(all, again) {
		t.Errorf("the same seed gave two histories, %v", err)
	}
	kinds := map[wire.RecordKind]int{}
	downs, refused := 0, 0
	for i, rec := range all {
		kinds[rec.Kind]++
		if i > 0 && rec.At < all[i-1].At {
			t.Fatalf("record %d is earlier than the one before", i)
		}
		if rec.Link == wire.LinkDown {
			downs++
		}
		if rec.Err != "" {
			refused++
		}
	}
	if kinds[wire.Frames] < 100 || kinds[wire.Scrape] != 18 || downs != 1 || refused != 1 {
		t.Errorf("%v, %d links down, %d pages refused", kinds, downs, refused)
	}
	if _, err := History(Options{Replicas: -1}, 1, time.Second); err == nil {
		t.Error("a fleet of -1 replicas")
	}
}
