package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

// cycleBatches is how many batches of a replica are made in advance; then they
// come again.
const cycleBatches = 400

// cycle is a replica's batches, encoded in advance: real work of a simulated
// engine, and at the end the removal of all that is left, so that it can be
// repeated for ever with the same truth.
type cycle struct {
	payloads [][]byte
	// resident is how many blocks the cache holds behind each batch, by the
	// events themselves and nothing of kvscope's index.
	resident []int
}

// newCycle makes the same cycle for the same replica each time.
func newCycle(replica int) (*cycle, error) {
	engine, err := sim.NewEngine(sim.EngineOptions{Blocks: 1000, BlockSize: 16})
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(1, uint64(replica)))
	tokens := func(n int) []wire.Token {
		out := make([]wire.Token, n)
		for i := range out {
			out[i] = wire.Token(rng.IntN(150_000))
		}
		return out
	}
	var histories [8][]wire.Token
	var c cycle
	held := map[wire.Handle]int{}
	add := func(events []wire.Event) {
		total := 0
		for _, e := range events {
			for _, h := range e.Hashes {
				if e.Kind == wire.Stored {
					held[h]++
				} else if held[h]--; held[h] == 0 {
					delete(held, h)
				}
			}
		}
		for range held {
			total++
		}
		c.payloads = append(c.payloads, sim.AppendBatch(nil, 0, events, 0))
		c.resident = append(c.resident, total)
	}
	for id := 0; len(c.payloads) < cycleBatches-1; id++ {
		i := rng.IntN(len(histories))
		if len(histories[i]) > 2000 {
			histories[i] = nil
		}
		histories[i] = append(histories[i], tokens(64+rng.IntN(256))...)
		if err := engine.Submit(sim.Job{Prompt: histories[i], Output: tokens(24), ID: id}); err != nil {
			return nil, err
		}
		for len(engine.Jobs()) > 0 {
			if events, _ := engine.Step(); len(events) > 0 && len(c.payloads) < cycleBatches-1 {
				add(events)
			} else if len(events) > 0 { // of no batch any more
				return c.end(held), nil
			}
		}
	}
	return c.end(held), nil
}

// end adds the batch that empties the cache.
func (c *cycle) end(held map[wire.Handle]int) *cycle {
	e := wire.Event{Kind: wire.Removed, Medium: "GPU"}
	for h, n := range held {
		for range n {
			e.Hashes = append(e.Hashes, h)
		}
	}
	c.payloads = append(c.payloads, sim.AppendBatch(nil, 0, []wire.Event{e}, 0))
	c.resident = append(c.resident, 0)
	return c
}

// batch gives the payload of a sequence number, as of now.
func (c *cycle) batch(seq uint64, now wire.Time) []byte {
	p := c.payloads[seq%uint64(len(c.payloads))]
	// [time, events, rank]: the time is the 8 bytes behind two of headers.
	binary.BigEndian.PutUint64(p[2:], math.Float64bits(now.Seconds()))
	return p
}

// holds is how many blocks a replica holds once it has published n batches.
func (c *cycle) holds(n uint64) int {
	if n == 0 {
		return 0
	}
	return c.resident[(n-1)%uint64(len(c.resident))]
}
