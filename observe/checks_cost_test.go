package observe

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

// bigFleet is a large fleet at work: 64 engines, of which each step stores the blocks of
// new prompts and of what 32 requests at a time generate. Conversations of up to six
// turns stay on their engine behind one of six system prompts, one request in twelve
// shares nothing, and one in twenty has other tokens in its head each time.
type bigFleet struct {
	rng     *rand.Rand
	engines []*sim.Engine
	seq     []uint64
	chats   []map[int][]wire.Token // by engine and conversation, what was said
	systems [][]wire.Token
	next    int // engine
	at      wire.Time
	paged   wire.Time
}

const (
	busyReplicas  = 64
	busyBatches   = 5000 // a second
	busyRunning   = 32
	busyChats     = 64 // open on an engine
	busyCapacity  = 4000
	busyBlockSize = 16
)

func newBigFleet(tb testing.TB) *bigFleet {
	tb.Helper()
	w := &bigFleet{rng: rand.New(rand.NewPCG(8, 8)), seq: make([]uint64, busyReplicas), at: 1_800_000_000e9}
	for range 6 {
		w.systems = append(w.systems, w.words(300+w.rng.IntN(600)))
	}
	for i := range busyReplicas {
		e, err := sim.NewEngine(sim.EngineOptions{Blocks: busyCapacity, BlockSize: busyBlockSize})
		if err != nil {
			tb.Fatal(err)
		}
		w.engines, w.chats = append(w.engines, e), append(w.chats, map[int][]wire.Token{})
		for range busyRunning {
			w.submit(tb, i)
		}
	}
	return w
}

func (w *bigFleet) words(n int) []wire.Token {
	out := make([]wire.Token, n)
	for i := range out {
		out[i] = wire.Token(w.rng.IntN(150_000))
	}
	return out
}

// submit gives an engine a request: a turn of a conversation, or a first one.
func (w *bigFleet) submit(tb testing.TB, engine int) {
	tb.Helper()
	chat := w.rng.IntN(busyChats)
	said := w.chats[engine][chat]
	switch {
	case w.rng.IntN(12) == 0:
		said = w.words(500)
	case w.rng.IntN(20) == 0:
		said = slices.Concat(w.words(8), w.systems[0])
	case said == nil || len(said) > 3000:
		said = w.systems[w.rng.IntN(1+w.rng.IntN(len(w.systems)))]
	}
	j := sim.Job{ID: chat, Prompt: slices.Concat(said, w.words(20+w.rng.IntN(200))), Output: w.words(50 + w.rng.IntN(300))}
	w.chats[engine][chat] = slices.Concat(j.Prompt, j.Output)
	if err := w.engines[engine].Submit(j); err != nil {
		tb.Fatal(err)
	}
}

// batch gives the next batch, after every time.
func (w *bigFleet) batch(tb testing.TB, every wire.Time) wire.Record {
	tb.Helper()
	for {
		i := w.next % busyReplicas
		w.next++
		events, served := w.engines[i].Step()
		for range served {
			w.submit(tb, i)
		}
		if len(events) == 0 {
			continue
		}
		w.at += every
		w.seq[i]++
		return wire.Record{
			At: w.at, Replica: wire.Replica(fmt.Sprintf("r%02d", i)),
			Frames: [][]byte{nil, binary.BigEndian.AppendUint64(nil, w.seq[i]-1), sim.AppendBatch(nil, w.at-2e6, events, 0)},
		}
	}
}

// pages are all engines' metrics pages, if they are due, in the words that readBusy
// reads.
func (w *bigFleet) pages() (out []wire.Record) {
	if w.at < w.paged+wire.Time(sim.ScrapeEvery) {
		return nil
	}
	w.paged = w.at
	for i, e := range w.engines {
		l := e.Load()
		out = append(out, wire.Record{
			At: w.at, Replica: wire.Replica(fmt.Sprintf("r%02d", i)), Kind: wire.Scrape,
			Text: fmt.Sprintln(l.Running, l.Waiting, l.Finished, l.Queried, l.Hit),
		})
	}
	return out
}

func readBusy(text string, rank int) (wire.Facts, wire.Load, error) {
	f, l, err := readServed(text, rank)
	f.Capacity, f.BlockSize, f.Model = busyCapacity, busyBlockSize, sim.Model
	return f, l, err
}

// spentOn is what the checks of an Observer took, and nothing else did.
type spentOn struct{ steps, ticks, runs time.Duration }

func (s *spentOn) all() time.Duration { return s.steps + s.ticks + s.runs }

// follow pushes a record as Push does, and adds what the checks took of it.
func (s *spentOn) follow(o *Observer, rec wire.Record) {
	o.now = rec.At
	if rec.Kind == wire.Scrape {
		o.scrape(rec)
		return
	}
	steps := o.tracker.Push(rec)
	for i := range steps {
		start := time.Now()
		o.watch.Step(&steps[i], o.idx)
		s.steps += time.Since(start)
		o.change(&steps[i])
	}
}

// look looks at what holds, and asks for the findings.
func (s *spentOn) look(o *Observer) []diagnose.Finding {
	v := o.view(o.now)
	start := time.Now()
	o.watch.Pass(o.now, o.idx)
	o.watch.Tick(v)
	s.ticks += time.Since(start)
	start = time.Now()
	f := diagnose.Run(v, o.watch)
	s.runs += time.Since(start)
	return f
}

// BenchmarkChecks is a second of 5,000 batches of a busy fleet with all checks: told
// of each step, asked once for what holds and once for the findings. Printed is what
// they take of one core, without stream and index, and what they remember.
func BenchmarkChecks(b *testing.B) {
	w, o := newBigFleet(b), New(Options{Scrape: readBusy})
	var s spentOn
	second := func(every wire.Time) []diagnose.Finding {
		for range busyBatches {
			s.follow(o, w.batch(b, every))
			for _, rec := range w.pages() {
				s.follow(o, rec)
			}
		}
		return s.look(o)
	}
	for range 15 { // more than all windows of a minute, at a fifth of the rate
		second(5 * 1e9 / busyBatches)
	}
	s = spentOn{}
	var found []diagnose.Finding
	least, before := time.Hour, time.Duration(0)
	for b.Loop() {
		found = second(1e9 / busyBatches)
		least, before = min(least, s.all()-before), s.all()
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op") // most of it is the engines' and the index's
	b.ReportMetric(100*s.all().Seconds()/n, "%core")
	b.ReportMetric(100*least.Seconds(), "%core-least") // of a second in which nobody else had the core
	b.ReportMetric(s.steps.Seconds()*1e6/n/busyBatches, "µs/batch")
	b.ReportMetric(s.ticks.Seconds()*1e3/n, "ms/tick")
	b.ReportMetric(s.runs.Seconds()*1e3/n, "ms/run")
	b.ReportMetric(float64(deepSize(o.watch))/(1<<20), "MB")
	codes := map[string]int{}
	for _, f := range found {
		codes[f.Code]++
	}
	b.Log("found: ", codes)
}

// TestChecksAreBounded: what the checks remember of chains that are all new levels off,
// below 16 MB.
func TestChecksAreBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("36,000 batches")
	}
	const batches, replicas, blocks, size, kept = 9000, 16, 16, 4, 20
	rng := rand.New(rand.NewPCG(3, 3))
	o := New(Options{Scrape: readBusy})
	var next uint64
	feed := func(n int) int {
		for range n {
			i := next % replicas
			seq := next / replicas
			at := 1_800_000_000e9 + wire.Time(next)*50e6
			name := wire.Replica(fmt.Sprintf("r%02d", i))
			// Hashes tell replica, batch and block, so that those of a batch are known later.
			hash := func(seq uint64, block int) wire.Handle { return wire.IntHandle(i<<40 | seq<<8 | uint64(block)) }
			add := wire.Event{Kind: wire.Stored, Medium: "GPU", BlockSize: size, Spec: "full_attention"}
			var keys []wire.ExtraKey
			if seq%2 == 1 {
				add.LoRAName = fmt.Sprint("adapter-", rng.IntN(8))
				keys = []wire.ExtraKey{{Text: add.LoRAName}}
			}
			for b := range blocks {
				add.Hashes, add.Extra = append(add.Hashes, hash(seq, b)), append(add.Extra, keys)
			}
			for range blocks * size {
				add.Tokens = append(add.Tokens, wire.Token(rng.IntN(1<<17)))
			}
			events := []wire.Event{add}
			if seq >= kept {
				gone := wire.Event{Kind: wire.Removed, Medium: "GPU"}
				for b := range blocks {
					gone.Hashes = append(gone.Hashes, hash(seq-kept, b))
				}
				events = append(events, gone)
			}
			o.Push(wire.Record{At: at, Replica: name, Frames: [][]byte{
				nil, binary.BigEndian.AppendUint64(nil, seq), sim.AppendBatch(nil, at-2e6, events, 0),
			}})
			if i == 0 {
				o.Push(wire.Record{At: at, Replica: name, Kind: wire.Scrape, Text: fmt.Sprintln(1, 0, seq, 300*seq, 0)})
			}
			next++
		}
		return deepSize(o.watch)
	}
	once := feed(batches)
	again := feed(3 * batches)
	t.Logf("%d KB after %d batches, %d KB after %d", once>>10, batches, again>>10, next)
	if float64(again) > 1.1*float64(once) || again > 16<<20 {
		t.Errorf("%d bytes after %d batches, %d after %d", once, batches, again, next)
	}
}

// deepSize is about how many bytes all that a value leads to takes, batches of the
// stream left out: keys and values of maps, slices with their room, texts.
func deepSize(v any) int {
	seen := map[uintptr]bool{}
	var beside func(reflect.Value) int // what stands elsewhere than in the value
	beside = func(v reflect.Value) (n int) {
		switch v.Kind() {
		case reflect.Pointer:
			if v.IsNil() || seen[v.Pointer()] || v.Type() == reflect.TypeFor[*wire.Batch]() {
				return 0
			}
			seen[v.Pointer()] = true
			return int(v.Type().Elem().Size()) + beside(v.Elem())
		case reflect.Interface:
			if v.IsNil() {
				return 0
			}
			e := v.Elem()
			if e.Kind() != reflect.Pointer && e.Kind() != reflect.Map {
				n = int(e.Type().Size())
			}
			return n + beside(e)
		case reflect.String:
			return v.Len()
		case reflect.Slice:
			if v.IsNil() || v.Cap() > 0 && seen[v.Pointer()] {
				return 0
			}
			seen[v.Pointer()] = true
			n = v.Cap() * int(v.Type().Elem().Size())
			for i := range v.Len() {
				n += beside(v.Index(i))
			}
		case reflect.Array:
			for i := range v.Len() {
				n += beside(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				n += beside(v.Field(i))
			}
		case reflect.Map:
			each := int(v.Type().Key().Size()+v.Type().Elem().Size()) * 8 / 7 // as full as maps get
			for it := v.MapRange(); it.Next(); {
				n += each + beside(it.Key()) + beside(it.Value())
			}
		}
		return n
	}
	return beside(reflect.ValueOf(v))
}
