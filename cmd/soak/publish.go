package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

// connected bounds how long listeners take to start, connect and subscribe, or
// to be gone, and caughtUp how long they may be behind at the end.
const (
	connected = time.Minute
	caughtUp  = time.Minute
)

// order is a line to a publishing process: once each replica has as many
// subscribers as said, publish at this rate for so long. Each run begins where
// the one before ended.
type order struct {
	Subscribers int     `json:"subscribers"`
	Rate        int     `json:"rate"`
	Seconds     float64 `json:"seconds"`
}

// outcome is its answer.
type outcome struct {
	Addresses []string `json:"addresses,omitempty"`
	// Published are the batches of each replica since the start, Dropped those
	// that a subscriber was too slow for, Behind how late the run ended.
	Published []uint64 `json:"published,omitempty"`
	Dropped   uint64   `json:"dropped"`
	Behind    float64  `json:"behind"`
	Error     string   `json:"error,omitempty"`
}

// publish is the process of the simulated replicas.
func publish(replicas int, in io.Reader, out io.Writer) error {
	enc, dec := json.NewEncoder(out), json.NewDecoder(bufio.NewReader(in))
	pubs, cycles := make([]*sim.Publisher, replicas), make([]*cycle, replicas)
	var hello outcome
	for i := range pubs {
		var err error
		if cycles[i], err = newCycle(i); err != nil {
			return err
		}
		if pubs[i], err = sim.OpenPublisher(sim.PublisherOptions{}); err != nil {
			return err
		}
		defer pubs[i].Close()
		hello.Addresses = append(hello.Addresses, pubs[i].Address())
	}
	if err := enc.Encode(hello); err != nil {
		return err
	}
	seqs := make([]uint64, replicas)
	for {
		var o order
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := waitFor(fmt.Sprint(o.Subscribers, " subscribers of each"), connected, func() bool {
			return !slices.ContainsFunc(pubs, func(p *sim.Publisher) bool { return p.Stats().Subscriptions != o.Subscribers })
		}); err != nil {
			return err
		}
		late := pace(pubs, cycles, seqs, o)
		done := outcome{Published: seqs, Behind: late.Seconds()}
		for _, p := range pubs {
			done.Dropped += p.Stats().Dropped
		}
		if err := enc.Encode(done); err != nil {
			return err
		}
	}
}

// pace publishes in turns of a few milliseconds, and gives how much later than
// ordered it was done.
func pace(pubs []*sim.Publisher, cycles []*cycle, seqs []uint64, o order) time.Duration {
	total := int(float64(o.Rate) * o.Seconds)
	began := time.Now()
	sent := 0
	for sent < total {
		due := min(total, int(time.Since(began).Seconds()*float64(o.Rate))+1)
		now := wire.Time(time.Now().UnixNano())
		for ; sent < due; sent++ {
			i := sent % len(pubs)
			pubs[i].Publish("", seqs[i], cycles[i].batch(seqs[i], now))
			seqs[i]++
		}
		time.Sleep(2 * time.Millisecond)
	}
	return max(0, time.Since(began)-time.Duration(o.Seconds*float64(time.Second)))
}

// waitFor polls until a condition holds.
func waitFor(what string, limit time.Duration, ok func() bool) error {
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		if ok() {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %s in vain for %s", limit, what)
		}
	}
}
