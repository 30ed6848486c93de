package observe

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// Options of an Observer.
type Options struct {
	// Name says where the records come from, for people.
	Name   string
	Stream stream.Options
	Index  index.Options
	// Scrape reads a metrics page for a data-parallel rank (-1 for the only
	// one). Without it metrics pages are ignored.
	Scrape func(text string, rank int) (wire.Facts, wire.Load, error)
	// RouterPage reads a metrics page of a router's. Without it those are ignored.
	RouterPage func(text string) (diagnose.RouterPage, error)
	// Requests, if any, are held against what the index promises, with the
	// log's names mapped by Rename; see explain.NewAuditor.
	Requests []explain.Request
	Rename   map[string]wire.Replica
	// Decisions, if any, are held against the index at their time; see Decided.
	Decisions []Decision
	// Facts are known of replicas before the first record, such as from
	// discovery.
	Facts map[wire.Replica]wire.Facts
	// Router is the router in front, for the checks; nil if it is not known.
	Router *diagnose.Router
	// Speech turns tokens into text for the checks, nil without a tokenizer.
	Speech explain.Speech
	// Want is told of each replay that would fill what is missing; see
	// stream.Want. It is nil where nobody can be asked, and must not block.
	Want func(replica wire.Replica, from uint64)
	// Replay says what was asked of a replica's replay socket, and reports false
	// where it has none. It is nil where nobody can be asked.
	Replay func(wire.Replica) (Replay, bool)
}

// Note is a word of the source itself, such as messages that it had to drop.
type Note struct {
	At wire.Time
	// Replica is empty where the note is about the whole source.
	Replica wire.Replica
	Text    string
	// Times counts how often it was said, the last time At.
	Times int
}

// Replay is what was asked of a replica's replay socket, and what still may be;
// see tap.Budget.
type Replay struct {
	Address, Policy string
	// Requests were sent; Batches and Bytes came in answer.
	Requests, Batches, Bytes uint64
	// Left is how many requests may be sent within the current minute.
	Left int
	// Running says that an answer is on its way; Last is how the newest ended.
	Running bool
	Last    string
}

// Observer follows a fleet.
type Observer struct {
	opt     Options
	tracker *stream.Tracker
	idx     *index.Index
	auditor *explain.Auditor
	audited *explain.Audit // once it has ended
	decided *decisions     // nil without any
	belief  *diagnose.Belief
	// differed is what the last look at a router's index found.
	differed map[wire.Replica]*difference
	loads    *explain.Loads
	models   map[wire.Replica]string
	from     wire.Time
	now      wire.Time
	records  uint64
	tape     tape
	notes    []Note
	watch    *diagnose.Watch
	// ticked is when conditions were looked at last.
	ticked wire.Time
	// gone are the replicas that left the fleet, with when.
	gone map[wire.Replica]wire.Time
	// routers are what the newest pages of routers say, sorted by name; the slice
	// is replaced and never changed.
	routers []diagnose.RouterPage
	// drops are the messages that the tap itself had to drop.
	drops map[wire.Replica]diagnose.Drops
}

// New makes an Observer that has seen nothing.
func New(opt Options) *Observer {
	o := &Observer{
		opt: opt, tracker: stream.New(opt.Stream), idx: index.New(opt.Index),
		loads: explain.NewLoads(), models: map[wire.Replica]string{}, gone: map[wire.Replica]wire.Time{},
		drops: map[wire.Replica]diagnose.Drops{},
		watch: diagnose.NewWatch(),
	}
	if opt.Speech != nil {
		o.watch.Speak(opt.Speech)
	}
	for _, name := range slices.Sorted(maps.Keys(opt.Facts)) {
		o.Describe(name, 0, opt.Facts[name])
	}
	if len(opt.Requests) > 0 {
		o.auditor = explain.NewAuditor(o.idx, opt.Requests, opt.Rename, o.auditTrust)
	}
	if len(opt.Decisions) > 0 {
		o.decided = newDecisions(opt.Decisions)
	}
	return o
}

// Audit judges the requests by what was promised up to now, nil without any.
// It ends the collecting.
func (o *Observer) Audit() *explain.Audit {
	if o.auditor == nil {
		return nil
	}
	a := o.auditor.Finish(o.Replicas(), o.from, o.now)
	o.auditor, o.audited = nil, &a
	return &a
}

func (o *Observer) auditTrust(name wire.Replica) explain.Trust {
	s, ok := o.tracker.State(name)
	t := o.trust(&s, o.idx.Stats(name))
	return explain.Trust{
		Exact: t.Exact(), Known: ok && s.Epoch > 0, Stale: t.Word == stream.Stale,
		Words: t.String(), Model: o.models[name],
	}
}

// Run pushes all records of a source. progress, if not nil, is told after every
// record. The error is the source's, nil at a clean end.
func (o *Observer) Run(ctx context.Context, src wire.Source, progress func(records uint64, at wire.Time)) error {
	return each(ctx, src, func(rec wire.Record) {
		o.Push(rec)
		if progress != nil {
			progress(o.records, rec.At)
		}
	})
}

// each gives all records of a source to take. The error is the source's, nil at
// a clean end.
func each(ctx context.Context, src wire.Source, take func(wire.Record)) error {
	for {
		rec, err := src.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		take(rec)
	}
}

// Push takes one record.
func (o *Observer) Push(rec wire.Record) {
	o.records++
	if o.from == 0 {
		o.from = rec.At
	}
	if o.tick(rec.At); rec.At > o.now {
		o.now = rec.At
	}
	o.depart(rec)
	if rec.Kind == wire.Scrape {
		if wire.IsRouter(rec.Replica) {
			o.scrapeRouter(rec)
		} else {
			o.scrape(rec)
		}
		return
	}
	if rec.Kind == wire.Note {
		o.note(rec)
		return
	}
	if o.loads.Push(rec) || o.load(rec) {
		return
	}
	o.apply(o.tracker.Push(rec))
}

// tick has the checks look at what holds, once a second of the records' time, before
// a record of a later second changes anything.
func (o *Observer) tick(at wire.Time) {
	if o.ticked == 0 {
		o.ticked = at
	}
	if at-o.ticked < diagnose.TickEvery {
		return
	}
	o.ticked = at
	o.watch.Pass(at, o.idx)
	o.watch.Tick(o.view(at))
}

// keepGone is how long a replica that left the fleet stays to be seen.
const keepGone = wire.Time(120e9)

// depart notes who leaves the fleet, and forgets whoever did so a while ago:
// pods come with new names for ever.
func (o *Observer) depart(rec wire.Record) {
	if rec.Kind == wire.Link {
		if delete(o.gone, rec.Replica); rec.Link == wire.LinkGone {
			o.gone[rec.Replica] = rec.At
		}
	}
	if rec.Kind == wire.Frames {
		return // of which there are many
	}
	for name, at := range o.gone {
		if rec.At-at < keepGone {
			continue
		}
		for _, one := range o.tracker.Ranks(name) {
			o.idx.Forget(one)
			delete(o.models, one)
			delete(o.drops, one)
		}
		o.tracker.Remove(name)
		delete(o.gone, name)
	}
}

// maxNotes is how many notes are kept, newest last.
const maxNotes = 16

// note keeps what a source said; the same word again only counts. A note with
// an error is a line of a recording that was not understood: it can hold a
// prompt.
func (o *Observer) note(rec wire.Record) {
	if rec.Err != "" {
		return
	}
	if n, ok := wire.DroppedIn(rec.Text); ok {
		o.drop(rec, n)
	}
	for i := range o.notes {
		if n := &o.notes[i]; n.Replica == rec.Replica && n.Text == rec.Text {
			again := *n
			again.At = rec.At
			again.Times++
			o.notes = append(append(o.notes[:i:i], o.notes[i+1:]...), again)
			return
		}
	}
	drop := max(0, len(o.notes)+1-maxNotes)
	o.notes = append(o.notes[drop:len(o.notes):len(o.notes)], Note{At: rec.At, Replica: rec.Replica, Text: rec.Text, Times: 1})
}

// maxDrops bounds the replicas of which drops are kept.
const maxDrops = 1 << 12

// drop counts what the tap had to drop of a replica's messages.
func (o *Observer) drop(rec wire.Record, messages uint64) {
	d, known := o.drops[rec.Replica]
	switch {
	case !known && len(o.drops) >= maxDrops:
		return
	case !known:
		d.First = rec.At
	}
	d.Last = rec.At
	d.Messages += messages
	d.Times++
	o.drops[rec.Replica] = d
}

// learn tells the index what it needs of a replica's facts.
func (o *Observer) learn(name wire.Replica, facts wire.Facts) {
	o.setModel(name, facts.Model)
	o.idx.SetBlockSize(name, facts.BlockSize)
}

func (o *Observer) scrape(rec wire.Record) {
	if o.opt.Scrape == nil {
		return
	}
	for _, name := range o.tracker.Ranks(rec.Replica) {
		s, _ := o.tracker.State(name)
		facts, load, failed := s.Facts, s.Load, rec.Err
		if failed == "" {
			f, l, err := o.opt.Scrape(rec.Text, s.Rank)
			if err != nil {
				failed = err.Error()
			} else {
				facts, load = merge(facts, f), l
				load.At = rec.At
			}
		}
		o.apply(o.tracker.Describe(name, rec.At, facts, load, failed))
		o.learn(name, facts)
	}
}

// merge keeps what a page that lacks a fact leaves open.
func merge(old, f wire.Facts) wire.Facts {
	if f.Model == "" {
		f.Model = old.Model
	}
	if f.BlockSize == 0 {
		f.BlockSize = old.BlockSize
	}
	if f.Capacity == 0 {
		f.Capacity = old.Capacity
	}
	if f.HashAlgo == "" {
		f.HashAlgo = old.HashAlgo
	}
	if f.PrefixCaching == nil {
		f.PrefixCaching = old.PrefixCaching
	}
	if f.Started == 0 {
		f.Started = old.Started
	}
	if f.Buffer == 0 {
		f.Buffer = old.Buffer
	}
	if f.HWM == 0 {
		f.HWM = old.HWM
	}
	return f
}

func (o *Observer) setModel(name wire.Replica, model string) {
	if model != "" && o.models[name] != model {
		o.models[name] = model
		o.idx.SetModel(name, model)
	}
}

// apply carries out the tracker's steps on the index.
func (o *Observer) apply(steps []stream.Step) {
	for i := range steps {
		s := &steps[i]
		at := s.At
		if s.Kind == stream.Apply {
			if o.models[s.Replica] == "" {
				o.setModel(s.Replica, modelOfTopic(s.Batch.Topic))
			}
			if s.Batch.Engine > 0 {
				at = s.Batch.Engine
			}
			o.tape.add(s)
		}
		if o.auditor != nil {
			o.auditor.Before(s.Replica, at)
		}
		if o.decided != nil {
			o.decided.before(o, at)
		}
		o.watch.Step(s, o.idx)
		o.change(s)
	}
}

func (o *Observer) change(s *stream.Step) {
	switch s.Kind {
	case stream.Apply:
		for i := range s.Batch.Events {
			e := &s.Batch.Events[i]
			// SGLang resets its host cache with the device's; vLLM does not. A
			// router of Dynamo drops all that it has of the replica.
			all := e.Kind == wire.Cleared && (e.Plane || strings.HasPrefix(o.tracker.Dialect(s.Replica), "sglang"))
			o.idx.Apply(s.Replica, e, all)
			o.changed(s.Replica)
		}
	case stream.Drop:
		o.idx.Drop(s.Replica)
	case stream.Forget:
		o.idx.Forget(s.Replica)
	case stream.Doubt:
		o.idx.Doubt(s.Replica)
	case stream.Want:
		if o.opt.Want != nil {
			o.opt.Want(s.Replica, s.From)
		}
	}
	o.changed(s.Replica)
}

// changed tells who judges requests about each single change: a batch can clear the
// cache and fill it again, and a request sees the moment between.
func (o *Observer) changed(name wire.Replica) {
	if o.auditor != nil {
		o.auditor.After(name)
	}
	if o.decided != nil {
		o.decided.after(o, name)
	}
}

// modelOfTopic reads the deployers' convention kv@<pod>@<model>.
func modelOfTopic(topic string) string {
	if parts := strings.SplitN(topic, "@", 3); len(parts) == 3 && parts[0] == "kv" {
		return parts[2]
	}
	return ""
}

// trust joins what the stream knows with what the index found.
func (o *Observer) trust(s *stream.State, x index.Stats) stream.Trust {
	t := s.Trust
	if x.Unindexed > 0 {
		t = t.Degrade(stream.IndexFull)
	}
	if s.Facts.Capacity > 0 && x.Copies > s.Facts.Capacity {
		t = t.Degrade(stream.OverCapacity)
	}
	if x.Orphans > 0 && t.Exact() { // otherwise the reason given explains them
		t = t.Degrade(stream.OrphanParents)
	}
	return t
}

// Snapshot describes the fleet as of the newest record.
func (o *Observer) Snapshot() *Snapshot {
	s := &Snapshot{
		Source: o.opt.Name, From: o.from, Until: o.now, Records: o.records, Tape: o.tape.clone().entries,
		Notes: o.notes,
	}
	if o.opt.Replay != nil {
		s.Replay = map[wire.Replica]Replay{}
	}
	v := o.view(o.now)
	s.Replicas = v.Replicas
	for i := range s.Replicas {
		r := &s.Replicas[i]
		if o.opt.Replay != nil {
			if asked, ok := o.opt.Replay(r.Replica); ok {
				s.Replay[r.Replica] = asked
			}
		}
		s.Ledger = s.Ledger.Add(r.Index.Ledger)
	}
	s.Blocks, s.Belief = v.Blocks, v.Belief
	s.Findings = diagnose.Run(v, o.watch)
	return s
}

// view is what the checks see.
func (o *Observer) view(now wire.Time) diagnose.View {
	v := diagnose.View{Now: now, Router: o.opt.Router, Routers: o.routers, Audit: o.audited, Pairs: o.loads.Pairs(), Belief: o.belief}
	v.Blocks.Known, v.Blocks.Resident, v.Blocks.Shared = o.idx.Blocks()
	v.Blocks.Max = o.idx.MaxBlocks()
	for _, name := range slices.Sorted(slices.Values(o.tracker.Names())) {
		state, _ := o.tracker.State(name)
		r := diagnose.Replica{State: state, Model: o.models[name], Index: o.idx.Stats(name), Root: o.idx.Root(name), Drops: o.drops[name]}
		r.Trust = o.trust(&r.State, r.Index)
		r.Doubt = doubt(&r)
		v.Replicas = append(v.Replicas, r)
	}
	return v
}

func doubt(r *diagnose.Replica) int {
	switch {
	case r.Trust.Exact():
		return 0
	case r.Facts.Capacity <= 0:
		return -1
	}
	if over := r.Index.Copies - r.Facts.Capacity; over > 0 {
		return over // phantoms, and nobody knows which
	}
	return r.Facts.Capacity - r.Index.Copies
}

// Replicas lists the replicas in order of first appearance.
func (o *Observer) Replicas() []wire.Replica { return o.tracker.Names() }

// Records counts the records pushed.
func (o *Observer) Records() uint64 { return o.records }

// Now is the receive time of the newest record.
func (o *Observer) Now() wire.Time { return o.now }

// Snapshot is what a fleet looks like at one moment.
type Snapshot struct {
	Source      string
	From, Until wire.Time
	Records     uint64
	// Replicas are in order of their names.
	Replicas []diagnose.Replica
	Findings []diagnose.Finding
	Ledger   index.Ledger
	Blocks   diagnose.Blocks
	// Belief is what a router said of the caches, nil where none was asked.
	Belief *diagnose.Belief
	// Notes are what the source said beside its records, newest last.
	Notes []Note
	// Replay has what was asked of each replica that can be asked; nil for a
	// recording.
	Replay map[wire.Replica]Replay
	// Tape holds the newest batches, oldest first.
	Tape []*Entry
}
