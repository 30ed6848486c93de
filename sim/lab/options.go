package lab

import (
	"fmt"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// Options of a run. There are no defaults but DefaultRates.
type Options struct {
	Workload *Workload
	Policy   *route.Config
	Engine   Engine
	// Replicas at the start, each with so many blocks of cache.
	Replicas, Capacity int
	Rates
	Faults
	// Concurrency, if not 0, is how many sessions are on their way at a time in a
	// workload that is not open.
	Concurrency int
	Seed        uint64
}

// Rates are an engine's.
type Rates struct {
	// Prefill is how many prompt tokens an engine computes a second, one prompt
	// after the other. Decode is how many tokens each sequence generates a second,
	// however many there are.
	Prefill, Decode float64
	// Slots is how many sequences an engine serves at a time.
	Slots int
}

// DefaultRates are about those of an 8B model on one H100.
func DefaultRates() Rates { return Rates{Prefill: 10000, Decode: 50, Slots: 64} }

// Never is a SyncDelay of routers that tell each other nothing.
const Never wire.Time = -1

// Faults are what keeps a router from knowing the truth. The zero Faults are none.
type Faults struct {
	// EventDelay is how long cache events take, and EventLoss the share of their
	// messages that nobody gets.
	EventDelay wire.Time
	EventLoss  float64
	// Routers, if more than 1, take requests in turn. Each has a memory of its own,
	// and hears of the others' bookings SyncDelay later.
	Routers   int
	SyncDelay wire.Time
	// At ScaleAt, ScaleBy replicas come.
	ScaleAt wire.Time
	ScaleBy int
	// Truncate, if not 0, is how many tokens of a prompt a router sees.
	Truncate int
}

// The bounds of a run.
const (
	MaxReplicas = 1024
	MaxCapacity = 1 << 24
	maxRouters  = 64
	maxSlots    = 1 << 16
	maxRate     = 1e9
	// maxHeld bounds what the routers' index and their books of blocks take, in bytes.
	maxHeld = 1 << 31
)

func (o *Options) check() error {
	f := &o.Faults
	for _, c := range []struct {
		ok   bool
		says string
	}{
		{o.Replicas >= 1 && o.Replicas <= MaxReplicas && f.ScaleBy >= 0 && f.ScaleBy <= MaxReplicas-o.Replicas, fmt.Sprintf("%d replicas and %d later: give 1 to %d in all", o.Replicas, f.ScaleBy, MaxReplicas)},
		{holdersSize(o.Replicas+f.ScaleBy, o.Workload.last)*(1+max(1, f.Routers)) <= maxHeld, fmt.Sprintf("%d different blocks on %d replicas take too much memory: give fewer requests or routers, or a larger block size", o.Workload.last, o.Replicas+f.ScaleBy)},
		{o.Capacity >= 1 && o.Capacity <= MaxCapacity, fmt.Sprintf("a cache of %d blocks: give 1 to %d", o.Capacity, MaxCapacity)},
		{o.Prefill >= 1 && o.Prefill <= maxRate && o.Decode >= 1 && o.Decode <= maxRate, fmt.Sprintf("rates of %g and %g tokens a second: give 1 to 1e9", o.Prefill, o.Decode)},
		{o.Slots >= 1 && o.Slots <= maxSlots, fmt.Sprintf("%d sequences at a time: give 1 to %d", o.Slots, maxSlots)},
		{f.EventDelay >= 0 && f.EventDelay <= maxAt, "an event delay that is no time: give one from 0"},
		{f.EventLoss >= 0 && f.EventLoss <= 1, fmt.Sprintf("an event loss of %g: give a share from 0 to 1", f.EventLoss)},
		{f.Routers >= 0 && f.Routers <= maxRouters, fmt.Sprintf("%d routers: give 1 to %d", f.Routers, maxRouters)},
		{f.SyncDelay >= Never && f.SyncDelay <= maxAt, "a sync delay that is no time: give one from 0, or never"},
		{f.ScaleAt >= 0 && f.ScaleAt <= maxAt, "a time of scale-out that is none: give one from 0"},
		{f.Truncate >= 0 && f.Truncate <= maxTokens, fmt.Sprintf("prompts cut to %d tokens: give 1 to %d, or 0 for whole ones", f.Truncate, maxTokens)},
		{o.Concurrency >= 0 && o.Concurrency <= maxRequests, fmt.Sprintf("%d sessions at a time: give 1 to %d", o.Concurrency, maxRequests)},
	} {
		if !c.ok {
			return fmt.Errorf("%s", c.says)
		}
	}
	return nil
}
