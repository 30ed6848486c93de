package remote

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// Holding is what an index holds of one replica.
type Holding struct {
	// Model and Group are empty where the dump does not say, and BlockSize, in
	// tokens, is 0.
	Model, Group string
	BlockSize    int
	Replica      wire.Replica
	// Blocks are the sequence hashes on each tier (see blockhash.Rolling), in order,
	// each once.
	Blocks [wire.NumTiers][]uint64
	// Unplaced are blocks behind a parent that the dump does not hold before them:
	// they have no sequence hash.
	Unplaced int
}

// Bounds of a dump and of one event in it, in bytes, of which a block has about
// 120, and of its blocks: as many as our own index keeps by default.
const (
	maxDump       = 1 << 30
	maxDumpEvent  = 64 << 20
	maxDumpBlocks = 8 << 20
)

// Dump asks the standalone indexer for all that it holds. A replica that it holds
// nothing of is left out.
func (c *Client) Dump(ctx context.Context, indexer string) ([]Holding, error) {
	var out []Holding
	err := c.call(ctx, http.MethodGet, indexer, "dump", nil, func(r io.Reader) (err error) {
		out, err = readDump(r)
		return err
	})
	return out, err
}

// ReadDump reads a dump from a file, plain or gzip: the answer of the standalone
// indexer, or the list of events that KvRouter.dump_events gives (ai-dynamo 1.6.1).
// name is what errors call it.
func ReadDump(r io.Reader, name string) ([]Holding, error) {
	head := bufio.NewReader(r)
	if magic, _ := head.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(head)
		if err != nil {
			return nil, fmt.Errorf("router dump %s: %w", name, err)
		}
		r = z
	} else {
		r = head
	}
	out, err := readDump(r)
	if err != nil {
		return nil, fmt.Errorf("router dump %s: %w", name, err)
	}
	return out, nil
}

func readDump(r io.Reader) ([]Holding, error) {
	d := dump{src: meter{Reader: r, all: maxDump}}
	dec := json.NewDecoder(&d.src)
	if err := d.read(dec); err != nil {
		return nil, cmp.Or(d.src.err, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, cmp.Or(d.src.err, errDump)
	}
	for i := range d.all {
		for t, blocks := range d.all[i].Blocks {
			slices.Sort(blocks)
			d.all[i].Blocks[t] = slices.Compact(blocks)
		}
	}
	slices.SortFunc(d.all, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Replica, b.Replica))
	})
	return d.all, nil
}

// dump reads {"model:group": {"block_size": N, "events": [...]}, ...}, or the
// events of one group alone.
type dump struct {
	src    meter
	all    []Holding
	blocks int
	// at is where the replicas of the group that is read are in all, and seqs the
	// sequence hashes by the engines' own.
	at   map[wire.Replica]int
	seqs map[wire.Replica]map[uint64]uint64
}

// planeTiers are the words that Dynamo's events have for tiers.
var planeTiers = map[string]wire.Tier{"device": wire.Device, "host_pinned": wire.Host, "disk": wire.Disk, "external": wire.External}

type dumped struct {
	Worker uint64 `json:"worker_id"`
	Tier   string `json:"storage_tier"`
	Event  struct {
		Rank uint32 `json:"dp_rank"`
		Data struct {
			Stored struct {
				Parent *uint64 `json:"parent_hash"`
				Blocks []struct {
					Handle uint64 `json:"block_hash"`
					Local  uint64 `json:"tokens_hash"`
				} `json:"blocks"`
			} `json:"stored"`
		} `json:"data"`
	} `json:"event"`
}

var errDump = errors.New("the dump is cut off or not of the form known: is it what Dynamo's standalone indexer gives at /dump?")

func (d *dump) read(dec *json.Decoder) error {
	first, err := dec.Token()
	switch {
	case err != nil:
		return errDump
	case first == json.Delim('['):
		d.begin()
		return d.events(dec, "", "")
	case first != json.Delim('{'):
		return errDump
	}
	return fields(dec, func(key string) error {
		model, group := group(key)
		from, size := len(d.all), count(0)
		d.begin()
		d.src.one = 0
		err := object(dec, func(field string) error {
			switch field {
			case "block_size":
				return decode(dec, &size)
			case "events":
				if t, err := dec.Token(); err != nil || t != json.Delim('[') {
					return errDump
				}
				return d.events(dec, model, group)
			}
			return decode(dec, &json.RawMessage{})
		})
		for i := from; i < len(d.all); i++ {
			d.all[i].BlockSize = int(size)
		}
		return err
	})
}

// meter ends a dump that is too long, before its decoder has all of it in memory.
type meter struct {
	io.Reader
	// all is how much may still be read, and one what was read of this event.
	all, one int
	err      error
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	switch {
	case m.all <= 0:
		m.err = fmt.Errorf("the dump has more than %d bytes", maxDump)
	case m.one >= maxDumpEvent:
		m.err = fmt.Errorf("the dump has an event of more than %d bytes", maxDumpEvent)
	}
	if m.err != nil {
		return 0, m.err
	}
	n, err := m.Reader.Read(p[:min(len(p), m.all, maxDumpEvent-m.one)])
	m.all, m.one = m.all-n, m.one+n
	return n, err
}

// begin begins a group.
func (d *dump) begin() {
	d.at, d.seqs = map[wire.Replica]int{}, map[wire.Replica]map[uint64]uint64{}
}

// events reads the rest of a list of events.
func (d *dump) events(dec *json.Decoder, model, group string) error {
	for dec.More() {
		var e dumped
		d.src.one = 0
		if err := decode(dec, &e); err != nil {
			return err
		}
		tier, ok := planeTiers[e.Tier]
		if !ok {
			return fmt.Errorf("the dump has blocks on %q, which is no tier known", wire.Printable(e.Tier))
		}
		if d.blocks += len(e.Event.Data.Stored.Blocks); d.blocks > maxDumpBlocks {
			return fmt.Errorf("the dump has more than %d blocks", maxDumpBlocks)
		}
		replica := name(e.Worker, e.Event.Rank)
		at, ok := d.at[replica]
		if !ok {
			at = len(d.all)
			d.at[replica], d.seqs[replica] = at, map[uint64]uint64{}
			d.all = append(d.all, Holding{Model: model, Group: group, Replica: replica})
		}
		d.all[at].take(&e, tier, d.seqs[replica])
	}
	if _, err := dec.Token(); err != nil {
		return errDump
	}
	return nil
}

// take places the blocks of an event.
func (h *Holding) take(e *dumped, tier wire.Tier, seqs map[uint64]uint64) {
	st := &e.Event.Data.Stored
	root, parent := st.Parent == nil, uint64(0)
	if !root {
		known := false
		if parent, known = seqs[*st.Parent]; !known {
			h.Unplaced += len(st.Blocks)
			return
		}
	}
	for _, b := range st.Blocks {
		parent = blockhash.Next(parent, b.Local, root)
		root = false
		seqs[b.Handle] = parent
		h.Blocks[tier] = append(h.Blocks[tier], parent)
	}
}

// object reads an object, and calls field for the value of each key.
func object(dec *json.Decoder, field func(key string) error) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errDump
	}
	return fields(dec, field)
}

// fields reads the rest of an object.
func fields(dec *json.Decoder, field func(key string) error) error {
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return errDump
		}
		if err := field(key.(string)); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return errDump
	}
	return nil
}

// decode reads a value, and keeps what the network says apart from what is
// wrong with the value.
func decode(dec *json.Decoder, v any) error {
	err := dec.Decode(v)
	var (
		syntax *json.SyntaxError
		wrong  *json.UnmarshalTypeError
	)
	if errors.As(err, &syntax) || errors.As(err, &wrong) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errDump
	}
	return err
}
