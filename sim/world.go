package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/kvscope/kvscope/wire"
)

// world is a fleet without sockets: engines, the traffic to them, the router
// between and what goes wrong. Nothing in it waits, or knows the time other than
// by what it is told, so one seed gives one history.
type world struct {
	opt     Options
	rng     *rand.Rand
	nodes   []*node
	traffic *traffic
	out     outlet
	faults  []struck
	strikes []Strike
	// ticks counts the steps so far, of which the newest was at last. due counts
	// the requests that are to be sent, and grows by fractions.
	ticks int
	last  wire.Time
	due   float64
	// flights are the requests that are not answered, by job.
	flights map[int]*flight
	jobs    int
	log     []Request
	blind   bool
}

// outlet is told what the engines do to the outside.
type outlet interface {
	// batch publishes a batch: live, into the replay buffer, or both.
	batch(node int, seq uint64, payload []byte, live, kept bool)
	// down ends an engine's process, and boot begins another, if it can.
	down(node int)
	boot(node int) error
}

// node is an engine as an operator knows it: a process with a name.
type node struct {
	name, topic string
	opt         EngineOptions
	engine      *Engine
	up          bool
	// back is the tick at which the process comes back.
	back    int
	started wire.Time
	seq     uint64

	// What is wrong with it. drop and lose count batches.
	silent     bool
	skew       wire.Time
	drop, lose int
	spoil      bool
	replayer   ReplayerOptions
}

// maxFlights bounds the requests on their way; what would be more is not sent.
const maxFlights = 2000

// flight is a request on its way.
type flight struct {
	start wire.Time
	of    *conversation
}

// Request is a row of the requests log, in the form that kvscope audit reads:
// JSON Lines of what was asked and what the engine's cache had of it.
type Request struct {
	Replica string `json:"replica"`
	// Status is 200, or 502 where the engine ended before it answered.
	Status int `json:"status"`
	// Start and End are in Unix seconds.
	Start  float64      `json:"t_start"`
	End    float64      `json:"t_end"`
	Tokens []wire.Token `json:"token_ids"`
	Cached int          `json:"cached_tokens"`
	// Family numbers the system prompt from 0, -1 for a request that has none,
	// and Turn the requests of a conversation from 1.
	Family int `json:"family"`
	Turn   int `json:"turn"`
}

// maxLog is how many rows of the requests log are kept, the newest.
const maxLog = 10_000

func newWorld(opt Options, out outlet) (*world, error) {
	rng := rand.New(rand.NewPCG(opt.Seed, 0x6b7673636f7065))
	w := &world{opt: opt, rng: rng, out: out, flights: map[int]*flight{}}
	// A conversation has a turn every few seconds.
	w.traffic = newTraffic(rng, 8+int(4*opt.Rate), min(2048, opt.Blocks*opt.BlockSize/6), opt.Encode)
	for i := range opt.Replicas {
		name := "sim-" + strconv.Itoa(i)
		w.nodes = append(w.nodes, &node{
			name: name, topic: "kv@" + name + "@" + Model,
			opt:      EngineOptions{Blocks: opt.Blocks, BlockSize: opt.BlockSize},
			replayer: ReplayerOptions{Buffer: opt.Buffer},
		})
	}
	if err := w.afflict(opt.Faults); err != nil {
		return nil, err
	}
	return w, nil
}

// boot begins an engine's process.
func (w *world) boot(i int, now wire.Time) error {
	n := w.nodes[i]
	e, err := NewEngine(n.opt)
	if err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	n.engine, n.up, n.started, n.seq = e, true, now, 0
	if err := w.out.boot(i); err != nil {
		n.up = false
		return fmt.Errorf("%s: %w", n.name, err)
	}
	return nil
}

// end ends an engine's process for so many ticks, for ever if negative. What it
// was doing is lost.
func (w *world) end(i, ticks int, now wire.Time) {
	n := w.nodes[i]
	if !n.up {
		return
	}
	for _, id := range n.engine.Jobs() {
		f := w.flights[id]
		delete(w.flights, id)
		if f.of != nil {
			w.traffic.failed(f.of)
		}
		w.logged(Request{Replica: n.name, Status: 502, Start: f.start.Seconds(), End: now.Seconds(), Family: -1})
	}
	n.up, n.back = false, w.ticks+ticks
	if ticks < 0 {
		n.back = -1
	}
	w.out.down(i)
}

// tick makes one step of everything.
func (w *world) tick(now wire.Time) error {
	for i, n := range w.nodes {
		if !n.up && n.back == w.ticks {
			if w.boot(i, now) != nil {
				n.back = w.ticks + w.seconds(1) // somebody else has its port
			}
		}
	}
	w.strike(now)
	for w.due += w.opt.Rate * w.opt.Step.Seconds(); w.due >= 1; w.due-- {
		if len(w.flights) >= maxFlights {
			continue
		}
		if err := w.send(now); err != nil {
			return err
		}
	}
	for i, n := range w.nodes {
		if n.up {
			w.step(i, n, now)
		}
	}
	w.ticks++
	w.last = now
	return nil
}

// send makes a request and routes it.
func (w *world) send(now wire.Time) error {
	c, job := w.traffic.next(now)
	if job.Prompt == nil {
		return nil // all conversations wait for answers
	}
	from := candidates(w.nodes, job.Prompt)
	if len(from) == 0 {
		if c != nil {
			w.traffic.failed(c)
		}
		return nil
	}
	at := choose(w.rng, from, w.blind)
	w.jobs++
	job.ID = w.jobs
	if err := w.nodes[at].engine.Submit(job); err != nil {
		return fmt.Errorf("%s: %w", w.nodes[at].name, err)
	}
	// It came while the engine computed the step before; batches are of the time
	// at which a step ends, so all that it causes is later.
	start := now - wire.Time(float64(w.opt.Step)*(0.1+0.8*w.rng.Float64()))
	w.flights[job.ID] = &flight{start: max(start, w.last+1), of: c}
	return nil
}

// step makes one step of an engine, and publishes what came of it.
func (w *world) step(i int, n *node, now wire.Time) {
	events, served := n.engine.Step()
	for _, s := range served {
		f := w.flights[s.ID]
		delete(w.flights, s.ID)
		row := Request{
			Replica: n.name, Status: 200, Start: f.start.Seconds(), End: now.Seconds(),
			Tokens: s.Prompt, Cached: s.Cached, Family: -1,
		}
		if f.of != nil {
			row.Family, row.Turn = f.of.family, f.of.turn
			w.traffic.answered(f.of, s.Job)
		}
		w.logged(row)
	}
	if len(events) == 0 || n.silent {
		return
	}
	if n.spoil {
		n.spoil = false
		events = append(events, wire.Event{Kind: wire.Bad, Raw: spoilt})
	}
	live, kept := true, true
	switch {
	case n.drop > 0:
		n.drop--
		live = false
	case n.lose > 0:
		n.lose--
		live, kept = false, false
	}
	w.out.batch(i, n.seq, AppendBatch(nil, now+n.skew, events, 0), live, kept)
	n.seq++
}

func (w *world) logged(row Request) {
	if len(w.log) >= 2*maxLog {
		w.log = append(w.log[:0], w.log[maxLog:]...)
	}
	w.log = append(w.log, row)
}
