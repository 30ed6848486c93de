package doctor

import (
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvscope/kvscope/clock"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// Options are what Run reaches the world by, and how long it looks.
type Options struct {
	// Tap says how to connect; its Clock is Run's too. Of its Replay only the
	// Policy counts: never asks nothing.
	Tap tap.Options
	// Get reads a metrics page, as a fleet.Prober does; without it none is read.
	Get func(ctx context.Context, url string) (fleet.Page, error)
	// LookupHost is net.DefaultResolver's.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	// Wait is how long to listen for a first batch of everybody: 10 s. Settle is
	// how long to listen even when all have spoken, so that there is a rate to
	// judge by: 3 s.
	Wait, Settle time.Duration
}

// parallel is the most GETs and look-ups at one time.
const parallel = 32

func (o Options) withDefaults() Options {
	if o.Tap.Clock == nil {
		o.Tap.Clock = clock.System{}
	}
	if o.Tap.Dial == nil {
		o.Tap.Dial = (&net.Dialer{}).DialContext
	}
	if o.LookupHost == nil {
		o.LookupHost = net.DefaultResolver.LookupHost
	}
	if o.Wait <= 0 {
		o.Wait = 10 * time.Second
	}
	if o.Settle <= 0 {
		o.Settle = 3 * time.Second
	}
	o.Settle = min(o.Settle, o.Wait)
	if !o.Tap.Replay.Policy.Never() {
		o.Tap.Replay.Policy, _ = tap.ParsePolicy("gaps") // what is asked for, and nothing by itself
	}
	o.Tap.Replay.MaxRequests, o.Tap.Replay.PerMinute = 1, 1
	o.Tap.Replay.Idle = min(5*time.Second, o.Wait/2)
	return o
}

// run is one look at a fleet.
type run struct {
	opt     Options
	tap     *tap.Tap
	tracker *stream.Tracker
	seen    []*sight
	// byName finds a member by the name that its link has, and those who publish
	// over a NATS server by theirs.
	byName map[wire.Replica]*sight

	mu sync.Mutex
	// dials says for each address how the newest attempt to connect ended.
	dials map[string]error
}

// Run looks at the members, for as long as Options say, and reports. It ends
// early, with what was seen by then, when ctx does.
func Run(ctx context.Context, members []fleet.Member, opt Options) Report {
	r := &run{
		opt: opt.withDefaults(), tracker: stream.New(stream.Options{}),
		byName: map[wire.Replica]*sight{}, dials: map[string]error{},
	}
	dial := r.opt.Tap.Dial
	r.opt.Tap.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.dials[address] = err
		return conn, err
	}
	r.tap = tap.New(r.opt.Tap)
	began := r.now()
	for _, m := range members {
		r.add(m)
	}
	var side sync.WaitGroup
	side.Go(func() { r.lookUp(ctx) })
	side.Go(func() { r.read(ctx, 0) })
	if len(members) > 0 {
		r.listen(ctx, r.opt.Settle, nil)
		r.listen(ctx, r.opt.Wait-r.opt.Settle, r.complete)
	}
	side.Wait()
	r.read(ctx, 1)
	r.finish()
	_ = r.tap.Close() // its error is nil
	return report(r.seen, began, r.now())
}

func (r *run) now() wire.Time { return wire.Time(r.opt.Tap.Clock.Now().UnixNano()) }

// add begins to look at a member.
func (r *run) add(m fleet.Member) {
	s := &sight{Member: m, began: r.now(), policy: r.opt.Tap.Replay.Policy}
	r.seen = append(r.seen, s)
	if m.Events == "" {
		return
	}
	ep := s.endpoint()
	if s.addErr = r.tap.Add(ep); s.addErr != nil {
		return
	}
	r.byName[ep.Name] = s
	if m.Replay != "" && !m.Bind && !s.policy.Never() {
		s.asked = true
		r.tap.Want(tap.Want{Replica: ep.Name, From: math.MaxUint64})
	}
}

// of finds the member that a record belongs to: publishers that dial in, and
// ranks, have the member's name before a slash. Over NATS they have names of
// their own, which the tap knows the link of.
func (r *run) of(name wire.Replica) *sight {
	for at := name; ; {
		if s := r.byName[at]; s != nil {
			return s
		}
		cut := strings.LastIndexByte(string(at), '/')
		if cut < 0 {
			break
		}
		at = at[:cut]
	}
	if !slices.ContainsFunc(r.seen, (*sight).isNATS) {
		return nil
	}
	for _, st := range r.tap.Stats() {
		for _, p := range st.Publishers {
			if s := r.byName[st.Name]; s != nil && slices.Contains(p.Replicas, name) {
				r.byName[name] = s
				return s
			}
		}
	}
	return nil
}

// listen takes records for d, or until enough reports true.
func (r *run) listen(ctx context.Context, d time.Duration, enough func() bool) {
	if d <= 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	fired, stop := r.opt.Tap.Clock.After(d)
	var timer sync.WaitGroup
	timer.Go(func() {
		select {
		case <-fired:
			cancel()
		case <-ctx.Done():
		}
	})
	defer timer.Wait()
	defer cancel()
	defer stop()
	// A tap that always has a record ready does not look at the context.
	for ctx.Err() == nil && (enough == nil || !enough()) {
		rec, err := r.tap.Next(ctx)
		if err != nil {
			return
		}
		r.take(rec)
	}
}

// take looks at one record.
func (r *run) take(rec wire.Record) {
	s := r.of(rec.Replica)
	if s == nil {
		return
	}
	switch rec.Kind {
	case wire.Frames:
		s.message(rec)
		if _, load, _ := wire.DecodeLoad(rec.Frames); load || s.Kind == fleet.LoadOnly {
			return
		}
		steps := r.tracker.Push(rec)
		for i := range steps {
			s.step(&steps[i])
		}
	case wire.ReplayEnd:
		s.answered, s.answerErr = true, rec.Err
	}
}

// complete reports whether longer listening would show no more.
func (r *run) complete() bool {
	for _, s := range r.seen {
		if s.tapped() && (s.messages == 0 || s.asked && !s.answered) {
			return false
		}
	}
	return true
}

// each calls f for every member, some at a time.
func (r *run) each(f func(*sight)) {
	slots := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for _, s := range r.seen {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(s)
		})
	}
	all.Wait()
}

func (r *run) lookUp(ctx context.Context) {
	r.each(func(s *sight) {
		host := s.host()
		if host == "" || s.addErr != nil {
			return
		}
		s.addresses, s.lookUpErr = r.opt.LookupHost(ctx, host)
	})
}

// read gets the pages, each once for all members that share it: the first time
// all of them, the second time those of members that were not heard.
func (r *run) read(ctx context.Context, turn int) {
	if r.opt.Get == nil {
		return
	}
	byURL := map[string]*sync.Once{}
	pages := map[string]*fleet.Page{}
	errs := map[string]*error{}
	for _, s := range r.seen {
		byURL[s.Metrics], pages[s.Metrics], errs[s.Metrics] = &sync.Once{}, &fleet.Page{}, new(error)
	}
	r.each(func(s *sight) {
		if s.Metrics == "" || turn > 0 && (s.pages[0].err != nil || s.messages > 0) {
			return
		}
		page, err := pages[s.Metrics], errs[s.Metrics]
		byURL[s.Metrics].Do(func() { *page, *err = r.opt.Get(ctx, s.Metrics) })
		s.pages[turn] = parse(page, *err, s.Rank)
	})
}

// parse reads a member's share of a page.
func parse(page *fleet.Page, err error, rank int) reading {
	out := reading{read: true, page: *page, err: err}
	if err == nil {
		out.facts, out.load, out.err = fleet.ParseMetrics(string(page.Body), rank)
		out.foreign = errors.Is(out.err, fleet.ErrNoEngine)
	}
	out.page.Body = nil
	return out
}

// finish takes the state of every link.
func (r *run) finish() {
	for _, st := range r.tap.Stats() {
		if s := r.byName[st.Name]; s != nil {
			s.link = st
		}
	}
	for _, name := range r.tracker.Names() {
		if st, ok := r.tracker.State(name); ok {
			r.of(name).state(&st) // whose messages were taken
		}
	}
	until := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		s.waited = time.Duration(until - s.began)
		s.dialErr, s.dialled = r.dials[s.dial()]
	}
}
