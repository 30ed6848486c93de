package sim

import (
	"encoding/binary"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// ScrapeEvery is how often a History has metrics pages, as a live fleet is asked.
const ScrapeEvery = 2 * time.Second

// History is what a tap would have recorded of a fleet from its start on, made
// without sockets or waiting: one seed gives one history, to the byte.
func History(opt Options, start wire.Time, length time.Duration) ([]wire.Record, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &history{}
	if h.world, err = newWorld(opt, h); err != nil {
		return nil, err
	}
	h.now = start
	for i := range h.world.nodes {
		if err := h.world.boot(i, start); err != nil {
			return nil, err
		}
	}
	for scraped := wire.Time(0); h.now < start+wire.Time(length); {
		h.now += wire.Time(opt.Step)
		if err := h.world.tick(h.now); err != nil {
			return nil, err
		}
		if h.now-scraped >= wire.Time(ScrapeEvery) {
			scraped = h.now
			h.scrape()
		}
	}
	return h.records, nil
}

// history is the outlet of a world that is written down.
type history struct {
	world   *world
	now     wire.Time
	records []wire.Record
}

func (h *history) batch(i int, seq uint64, payload []byte, live, _ bool) {
	if n := h.world.nodes[i]; live {
		h.records = append(h.records, wire.Record{
			At: h.now, Replica: wire.Replica(n.name),
			Frames: [][]byte{[]byte(n.topic), binary.BigEndian.AppendUint64(nil, seq), payload},
		})
	}
}

func (h *history) scrape() {
	for _, n := range h.world.nodes {
		rec := wire.Record{At: h.now, Replica: wire.Replica(n.name), Kind: wire.Scrape}
		if n.up {
			rec.Text = (&page{opt: n.engine.opt, load: n.engine.Load(), started: n.started}).metrics()
		} else {
			rec.Err = "connection refused"
		}
		h.records = append(h.records, rec)
	}
}

func (h *history) down(i int) { h.link(i, wire.LinkDown) }

func (h *history) boot(i int) error {
	h.link(i, wire.LinkUp)
	return nil
}

func (h *history) link(i int, to wire.LinkState) {
	h.records = append(h.records, wire.Record{At: h.now, Replica: wire.Replica(h.world.nodes[i].name), Kind: wire.Link, Link: to})
}
