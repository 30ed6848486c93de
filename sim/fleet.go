package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvscope/kvscope/clock"
	"github.com/kvscope/kvscope/wire"
)

// Options of a Fleet. Zero values mean the defaults given.
type Options struct {
	// Replicas is the number of engines: 4.
	Replicas int
	// Blocks is the size of each engine's cache, BlockSize in tokens: 1,000 of 16.
	Blocks, BlockSize int
	// Rate is how many requests all engines together are sent in a second: 6.
	Rate float64
	// Step is how long an engine takes to compute a batch, which for a request
	// that generates is a token: 25 ms.
	Step time.Duration
	// Seed decides all that is left to chance.
	Seed uint64
	// Faults are names from the table Faults.
	Faults []string
	// HWM and Buffer are the engines' hwm and buffer_steps, in batches: 100,000
	// and 10,000.
	HWM, Buffer int
	// Encode turns text into tokens, so that conversations say something: chats as
	// ChatML writes them. Without it their tokens are any numbers.
	Encode func(text string) []wire.Token
	// Audience is how long the first step waits, at the most, for each engine to
	// have a subscriber, who then misses nothing: not at all.
	Audience time.Duration
	Clock    clock.Clock
	// Listen is net.Listen, with ports of its own choice where any will do.
	Listen Listen
}

// minCache bounds the tokens of a cache from below: a conversation has to fit
// into a quarter.
const minCache = 2048

const (
	maxReplicas = 1024
	maxRate     = 1000
)

func (o Options) withDefaults() (Options, error) {
	o.Replicas = cmp.Or(o.Replicas, 4)
	o.Blocks = cmp.Or(o.Blocks, 1000)
	o.BlockSize = cmp.Or(o.BlockSize, 16)
	o.Rate = cmp.Or(o.Rate, 6)
	o.Step = cmp.Or(o.Step, 25*time.Millisecond)
	o.HWM = cmp.Or(o.HWM, defaultHWM)
	o.Buffer = cmp.Or(o.Buffer, defaultBuffer)
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	switch {
	case o.Replicas < 1 || o.Replicas > maxReplicas:
		return o, fmt.Errorf("%d replicas: 1 to %d are possible", o.Replicas, maxReplicas)
	case o.BlockSize < 1 || o.Blocks < minCache/o.BlockSize:
		return o, fmt.Errorf("a cache of %d blocks of %d tokens: it has to hold at least %d tokens", o.Blocks, o.BlockSize, minCache)
	case !(o.Rate > 0 && o.Rate <= maxRate):
		return o, fmt.Errorf("%g requests a second: it has to be above 0, and at most %d", o.Rate, maxRate)
	case o.Step < time.Millisecond || o.Step > time.Second:
		return o, fmt.Errorf("a step of %s: it has to be from 1 ms to 1 s", o.Step)
	case o.HWM < 1 || o.Buffer < 1:
		return o, fmt.Errorf("an hwm of %d and a buffer of %d batches: each has to be at least 1", o.HWM, o.Buffer)
	}
	return o, nil
}

// Fleet is a number of engines that serve conversations behind a router, with
// the sockets of real ones on the loopback. Close it after use. It is safe for
// concurrent use.
type Fleet struct {
	opt   Options
	sites []*site
	// stop ends the loop, and done waits for it.
	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	world  *world
	frozen bool
	err    error
}

// StartFleet starts a fleet, which runs until ctx ends or it is closed.
func StartFleet(ctx context.Context, opt Options) (*Fleet, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Fleet{opt: opt}
	if f.world, err = newWorld(opt, f); err != nil {
		return nil, err
	}
	for _, n := range f.world.nodes {
		f.sites = append(f.sites, &site{listen: opt.Listen, hwm: opt.HWM, replay: n.replayer})
	}
	now := f.now()
	for i := range f.world.nodes {
		if err := f.world.boot(i, now); err != nil {
			f.shut()
			return nil, err
		}
	}
	ctx, f.stop = context.WithCancel(ctx)
	f.done.Go(func() {
		defer f.shut()
		f.run(ctx)
	})
	return f, nil
}

func (f *Fleet) now() wire.Time { return wire.Time(f.opt.Clock.Now().UnixNano()) }

// run makes a tick for each step of time. One that comes too late is made up
// for, but not if it is more than a second late.
func (f *Fleet) run(ctx context.Context) {
	f.wait(ctx)
	next := f.opt.Clock.Now()
	for {
		next = next.Add(f.opt.Step)
		now := f.opt.Clock.Now()
		if now.Sub(next) > time.Second {
			next = now
		}
		fired, stop := f.opt.Clock.After(max(0, next.Sub(now)))
		select {
		case <-fired:
		case <-ctx.Done():
			stop()
			return
		}
		if !f.tick() {
			return
		}
	}
}

// wait waits for subscribers.
func (f *Fleet) wait(ctx context.Context) {
	deaf := func(s *site) bool { return s.publisher.Stats().Subscriptions == 0 }
	for end := f.opt.Clock.Now().Add(f.opt.Audience); f.opt.Clock.Now().Before(end) && slices.ContainsFunc(f.sites, deaf); {
		fired, stop := f.opt.Clock.After(f.opt.Step)
		select {
		case <-fired:
		case <-ctx.Done():
			stop()
			return
		}
	}
}

// tick makes a step, and reports false when the fleet cannot go on.
func (f *Fleet) tick() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen {
		return true
	}
	f.err = f.world.tick(f.now())
	for i := range f.sites {
		f.show(i)
	}
	return f.err == nil
}

// show renews what an engine's pages say.
func (f *Fleet) show(i int) {
	n, s := f.world.nodes[i], f.sites[i]
	if s.publisher == nil {
		return
	}
	p := &page{opt: n.engine.opt, load: n.engine.Load(), started: n.started}
	p.sources = eventSource{
		Enabled: true, Publisher: "zmq", Endpoint: anyHost(s.events), Replay: anyHost(s.replays),
		Buffer: n.replayer.Buffer, HWM: f.opt.HWM, Queue: defaultHWM, Topic: n.topic,
	}
	s.page.Store(p)
}

// anyHost is an address as the configuration of an engine that binds has it:
// vLLM connects to one that names a host.
func anyHost(address string) string {
	return "tcp://*:" + address[strings.LastIndexByte(address, ':')+1:]
}

// batch, down and boot make the fleet the outlet of its world. They are called
// with f.mu held, or before anyone else has the fleet.
func (f *Fleet) batch(i int, seq uint64, payload []byte, live, kept bool) {
	f.sites[i].batch(f.world.nodes[i].topic, seq, payload, live, kept)
}

func (f *Fleet) down(i int) { f.sites[i].close() }

func (f *Fleet) boot(i int) error {
	err := f.sites[i].open()
	f.show(i)
	return err
}

func (f *Fleet) shut() {
	for _, s := range f.sites {
		s.close()
	}
}

// Freeze stops time: nothing is sent, computed or published from now on, and the
// sockets stay. Requests on their way stay unanswered.
func (f *Fleet) Freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = true
}

// Close ends the fleet and waits until nothing of it runs any more. The error
// says why it could not go on, if so. Its truth and log can still be read.
func (f *Fleet) Close() error {
	f.stop()
	f.done.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Member is an engine of a fleet, and where to reach it. The addresses stay the
// same over restarts.
type Member struct {
	Name, Model, Topic string
	// Events and Replay are tcp://host:port.
	Events, Replay string
	// URL is that of the HTTP server, and Metrics that of its metrics page.
	URL, Metrics string
}

// Members gives all engines, also those that are down.
func (f *Fleet) Members() []Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Member, len(f.sites))
	for i, s := range f.sites {
		n := f.world.nodes[i]
		url := "http://" + strings.TrimPrefix(s.web, "tcp://")
		out[i] = Member{
			Name: n.name, Model: Model, Topic: n.topic, Events: s.events, Replay: s.replays, URL: url, Metrics: url + "/metrics",
		}
	}
	return out
}

// System gives the tokens of the system prompt that most conversations begin with.
func (f *Fleet) System() []wire.Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.world.traffic.systems[0])
}

// Truth is what is in an engine's cache at one moment.
type Truth struct {
	Name string
	// Up is false while the engine's process is away; all else is of its last
	// life then.
	Up bool
	// Next is the sequence of the batch that comes next: what the batches before
	// it make is in the cache, unless Pending tells of events that wait for a
	// step, or the engine publishes nothing.
	Next    uint64
	Pending bool
	Started wire.Time
	// Blocks is the size of the cache, BlockSize in tokens.
	Blocks, BlockSize int
	Residents         []Resident
}

// Truth gives what is in all caches, at the same moment.
func (f *Fleet) Truth() []Truth {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Truth
	for _, n := range f.world.nodes {
		out = append(out, Truth{
			Name: n.name, Up: n.up, Next: n.seq, Pending: n.engine.Pending(), Started: n.started,
			Blocks: n.engine.opt.Blocks, BlockSize: n.engine.opt.BlockSize, Residents: n.engine.Residents(),
		})
	}
	return out
}

// Requests gives the log of the requests that ended, the newest 10,000 at least,
// in the order in which they ended.
func (f *Fleet) Requests() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.world.log)
}

// Strikes gives the faults that struck so far.
func (f *Fleet) Strikes() []Strike {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.world.strikes)
}

// WriteRequests writes a requests log as JSON Lines.
func WriteRequests(w io.Writer, rows []Request) error {
	enc := json.NewEncoder(w)
	for i := range rows {
		if err := enc.Encode(&rows[i]); err != nil {
			return fmt.Errorf("writing the requests log: %w", err)
		}
	}
	return nil
}
