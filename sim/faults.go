package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/wire"
)

// Fault is something that goes wrong in a simulated fleet.
type Fault struct {
	Name string
	// Text says in one line what happens.
	Text string
	// first and every are when it strikes, in seconds after the start; 0 is
	// never, and never again.
	first, every int
	// arrange is called before the start, hit whenever it strikes.
	arrange func(w *world, n *node)
	hit     func(w *world, i int, now wire.Time)
	// fleet says that it is no fault of one engine.
	fleet bool
}

// Faults is the table of faults. The first one asked for befalls the first
// engine, the second one the second, and so on in turn; those of the traffic
// befall all.
var Faults = []Fault{
	{
		Name: "restart", Text: "an engine's process restarts: 2 s away, then an empty cache and batches from 0 on",
		first: 6, every: 30,
		hit: func(w *world, i int, now wire.Time) { w.end(i, w.seconds(2), now) },
	},
	{
		Name: "dead", Text: "an engine's process ends and does not come back",
		first: 8,
		hit:   func(w *world, i int, now wire.Time) { w.end(i, -1, now) },
	},
	{
		Name: "drop", Text: "batches are lost on the way, 3 at a time; the engine's replay buffer still has them",
		first: 4, every: 10,
		hit: func(w *world, i int, _ wire.Time) { w.nodes[i].drop = 3 },
	},
	{
		Name: "lost", Text: "batches are lost on the way, 3 at a time, and gone from the replay buffer too",
		first: 5, every: 20,
		hit: func(w *world, i int, _ wire.Time) { w.nodes[i].lose = 3 },
	},
	{
		Name: "silent", Text: "an engine serves requests and publishes nothing",
		arrange: func(_ *world, n *node) { n.silent = true },
	},
	{
		Name: "no-caching", Text: "an engine runs without prefix caching, and so without events",
		arrange: func(_ *world, n *node) { n.opt.NoCaching = true },
	},
	{
		Name: "undecodable", Text: "a batch holds an event that cannot be read, beside good ones",
		first: 5, every: 15,
		hit: func(w *world, i int, _ wire.Time) { w.nodes[i].spoil = true },
	},
	{
		Name: "clear", Text: "an engine's prefix cache is reset while it serves",
		first: 7, every: 20,
		hit: func(w *world, i int, _ wire.Time) {
			if n := w.nodes[i]; n.up {
				n.engine.Reset(true)
			}
		},
	},
	{
		Name: "mute-replay", Text: "an engine's replay socket takes requests and answers none",
		arrange: func(_ *world, n *node) { n.replayer.Mute = true },
	},
	{
		Name: "cut-replay", Text: "an engine's replay answers break off after 50 batches, without an end marker",
		arrange: func(_ *world, n *node) { n.replayer.Limit = 50 },
	},
	{
		Name: "short-buffer", Text: "an engine keeps only its last 8 batches for replay",
		arrange: func(_ *world, n *node) { n.replayer.Buffer = 8 },
	},
	{
		Name: "seed", Text: "an engine's block hashes start from another seed, so no other engine has the same ones",
		arrange: func(_ *world, n *node) { n.opt.Seed = "0" },
	},
	{
		Name: "block-size", Text: "an engine has blocks of twice the size, and half as many",
		arrange: func(_ *world, n *node) {
			n.opt.BlockSize *= 2
			n.opt.Blocks = (n.opt.Blocks + 1) / 2
		},
	},
	{
		Name: "squeeze", Text: "an engine has a quarter of the cache, and evicts what is still wanted",
		arrange: func(_ *world, n *node) { n.opt.Blocks = (n.opt.Blocks + 3) / 4 },
	},
	{
		Name: "skew", Text: "an engine's clock is 30 s ahead",
		arrange: func(_ *world, n *node) { n.skew = 30e9 },
	},
	{
		Name: "timestamp", Text: "one family of conversations begins its system prompt with the time of day",
		first: 4, fleet: true,
		hit: func(w *world, _ int, _ wire.Time) { w.traffic.clock = 0 },
	},
	{
		Name: "duplicates", Text: "one family's prompts are whole blocks and come twice, so their last block is stored twice",
		first: 1, fleet: true,
		hit: func(w *world, _ int, _ wire.Time) { w.traffic.whole, w.traffic.wholeSize = 1, w.opt.BlockSize },
	},
	{
		Name: "scatter", Text: "the router knows no caches and sends requests anywhere",
		fleet:   true,
		arrange: func(w *world, _ *node) { w.blind = true },
	},
}

// spoilt is an event whose hashes are no list.
var spoilt = msgp.AppendString(msgp.AppendString(appendTag(msgp.AppendMapHeader(nil, 2), "BlockStored"), "block_hashes"), "lost")

// Strike is a fault that struck.
type Strike struct {
	Fault string
	// Engine is the one it befell, empty where that is all.
	Engine string
	At     wire.Time
}

// struck is a fault in a world.
type struck struct {
	*Fault
	node int
	// next is the tick at which it strikes, -1 for never.
	next int
}

// seconds gives a number of ticks.
func (w *world) seconds(n int) int { return int(float64(n) / w.opt.Step.Seconds()) }

// afflict arranges for faults.
func (w *world) afflict(names []string) error {
	engines := 0
	for _, name := range names {
		at := slices.IndexFunc(Faults, func(f Fault) bool { return f.Name == name })
		if at < 0 {
			return fmt.Errorf("there is no fault %q, only %s", name, strings.Join(faultNames(), ", "))
		}
		f := struck{Fault: &Faults[at], node: engines % len(w.nodes), next: -1}
		if !f.fleet {
			engines++
		}
		if f.first > 0 {
			f.next = w.seconds(f.first)
		}
		if f.arrange != nil {
			f.arrange(w, w.nodes[f.node])
		}
		w.faults = append(w.faults, f)
	}
	return nil
}

func faultNames() []string {
	var out []string
	for _, f := range Faults {
		out = append(out, f.Name)
	}
	return out
}

// strike has faults strike whose time it is. Those that are arranged count from
// the first tick on.
func (w *world) strike(now wire.Time) {
	for i := range w.faults {
		f := &w.faults[i]
		due := f.next == w.ticks
		if !due && (w.ticks > 0 || f.arrange == nil) {
			continue
		}
		if due {
			f.hit(w, f.node, now)
			f.next = -1
			if f.every > 0 {
				f.next = w.ticks + w.seconds(f.every)
			}
		}
		s := Strike{Fault: f.Name, At: now}
		if !f.fleet {
			s.Engine = w.nodes[f.node].name
		}
		if len(w.strikes) < maxLog {
			w.strikes = append(w.strikes, s)
		}
	}
}
