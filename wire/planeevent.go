package wire

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// planeTags are the kinds of the plane's events.
var planeTags = map[string]EventKind{
	"stored":  Stored,
	"removed": Removed,
	"cleared": Cleared,
}

// storageTiers are the plane's own words for tiers, apart from those of engines
// because Dynamo knows none of either in the place of the other.
var storageTiers = map[string]Tier{
	"device":      Device,
	"host_pinned": Host,
	"disk":        Disk,
	"external":    External,
}

// planeState is what the events of one message must have in common.
type planeState struct {
	on, named bool
	worker    uint64
	rank      int
}

// planeBatch reads an envelope of kv-events: a list of
//
//	{worker_id, storage_tier, residency_domain?, state_source?, session_id?,
//	 event: {event_id, dp_rank, data}}
//
// where data is one of
//
//	{"stored": {parent_hash, start_position, blocks: [{block_hash, tokens_hash, mm_extra_info}]}}
//	{"removed": {block_hashes}}
//	"cleared"
func (d *Decoder) planeBatch(batch *Batch, env *envelope) error {
	if string(env.topic) != PlaneEvents {
		return notBatch("a message of the topic %s of Dynamo's event plane, not of %s", Printable(string(env.topic)), PlaneEvents)
	}
	if msgp.NextType(env.payload) != msgp.ArrayType {
		return notBatch("a message of Dynamo's event plane that holds %s in place of a list of events", found(env.payload))
	}
	batch.Engine = env.sent
	d.plane = planeState{on: true}
	d.events(batch, env.payload)
	if d.plane.named {
		batch.Rank = d.plane.rank
	}
	return nil
}

// routerEvent reads an event of the plane, and leaves one whose kind is not
// known Unknown.
func (d *Decoder) routerEvent(e *Event, b []byte) ([]byte, error) {
	e.Plane = true
	worker, rank, err := readOwner(b)
	if err != nil {
		return nil, err
	}
	if p := &d.plane; !p.named {
		p.named, p.worker, p.rank = true, worker, rank
	} else if p.worker != worker || p.rank != rank {
		return nil, fmt.Errorf("an event of %s in a message of %s", planeName(worker, rank), planeName(p.worker, p.rank))
	}
	n, b, err := readMap(b)
	if err != nil {
		return nil, err
	}
	e.Len = n
	known := false
	for ; n > 0; n-- {
		key, value := mapKey(b)
		switch string(key) {
		case "worker_id":
			b, err = skip(value)
		case "storage_tier":
			e.Fields |= 1 << fieldMedium
			if e.Medium, b, err = d.readString(value); err == nil {
				e.Tier, known = storageTiers[e.Medium]
			}
		case "residency_domain":
			e.Fields |= 1 << fieldOwnership
			e.Ownership, b, err = d.optionalString(value)
		case "session_id":
			e.Fields |= 1 << fieldSession
			e.Session, b, err = d.optionalString(value)
		case "event":
			if b, err = d.routerData(e, value); err == nil && e.Kind == Unknown {
				return nil, nil
			}
		default:
			e.UnknownFields++
			b, err = skipValues(b, 2)
		}
		if err != nil {
			return nil, fieldError(key, err)
		}
	}
	if !known {
		e.Tier, e.UnknownMedium = External, true
	}
	return b, wantBlocks(e)
}

func fieldError(key []byte, err error) error {
	if len(key) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", Printable(string(key)), err)
}

func (d *Decoder) optionalString(b []byte) (string, []byte, error) {
	if rest, isNil := readNil(b); isNil {
		return "", rest, nil
	}
	return d.readString(b)
}

// mapKey reads a key, which is nil where it is no text.
func mapKey(b []byte) (key, value []byte) {
	key, value, _ = readText(b)
	return key, value
}

// routerData reads what an event holds.
func (d *Decoder) routerData(e *Event, b []byte) ([]byte, error) {
	n, b, err := readMap(b)
	if err != nil {
		return nil, err
	}
	for ; n > 0; n-- {
		key, value := mapKey(b)
		switch string(key) {
		case "event_id", "dp_rank":
			b, err = skip(value)
		case "data":
			b, err = d.routerKind(e, value)
			if err == nil && e.Kind == Unknown {
				return nil, nil
			}
		default:
			e.UnknownFields++
			b, err = skipValues(b, 2)
		}
		if err != nil {
			return nil, fieldError(key, err)
		}
	}
	if e.Kind == Unknown {
		return nil, errors.New("data: missing")
	}
	return b, nil
}

// routerKind reads the word, or the map of one entry, that says the kind.
func (d *Decoder) routerKind(e *Event, b []byte) ([]byte, error) {
	inner := msgp.NextType(b) == msgp.MapType
	if inner {
		n, rest, err := readMap(b)
		if err == nil && n != 1 {
			err = fmt.Errorf("found a map of %d in place of one kind of event", n)
		}
		if err != nil {
			return nil, err
		}
		b = rest
	}
	e.Hashes, e.Locals, e.Parent = nil, nil, Handle{} // of data that came before
	tag, rest, err := readText(b)
	if err != nil {
		return nil, err
	}
	e.Kind = planeTags[string(tag)]
	if e.Name, err = d.text(tag); err != nil || e.Kind == Unknown {
		return nil, err
	}
	switch {
	case e.Kind == Cleared && inner:
		return skip(rest)
	case e.Kind == Cleared:
		return rest, nil
	case !inner:
		return nil, fmt.Errorf("%s: missing", fieldNames[fieldHashes])
	}
	return d.routerBlocks(e, rest)
}

// routerBlocks reads what was stored or removed.
func (d *Decoder) routerBlocks(e *Event, b []byte) ([]byte, error) {
	n, b, err := readMap(b)
	if err != nil {
		return nil, err
	}
	for ; n > 0; n-- {
		key, value := mapKey(b)
		switch name := string(key); {
		case name == "parent_hash":
			e.Fields |= 1 << fieldParent
			rest, isNil := readNil(value)
			if e.Parent, b = (Handle{}), rest; !isNil {
				e.Parent, b, err = d.hash(e, value)
			}
		case name == "start_position":
			b, err = skip(value)
		case name == "blocks" && e.Kind == Stored:
			e.Fields |= 1 << fieldHashes
			b, err = d.storedBlocks(e, value)
		case name == "block_hashes" && e.Kind == Removed:
			e.Fields |= 1 << fieldHashes
			b, err = d.hashes(e, value)
		default:
			e.UnknownFields++
			b, err = skipValues(b, 2)
		}
		if err != nil {
			return nil, fieldError(key, err)
		}
	}
	return b, nil
}

// storedBlocks reads a list of blocks, each with its own hash and that of its
// content.
func (d *Decoder) storedBlocks(e *Event, b []byte) ([]byte, error) {
	const localBytes = 8
	n, b, err := readList(b)
	if err == nil {
		err = d.spend(n, handleBytes+localBytes)
	}
	if err != nil {
		return nil, err
	}
	e.Hashes, e.Locals = make([]Handle, n), make([]uint64, n)
	for i := range n {
		if b, err = d.storedBlock(e, i, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (d *Decoder) storedBlock(e *Event, i int, b []byte) ([]byte, error) {
	n, b, err := readMap(b)
	if err != nil {
		return nil, err
	}
	haveLocal := false
	for ; n > 0; n-- {
		key, value := mapKey(b)
		switch string(key) {
		case "block_hash":
			e.Hashes[i], b, err = d.hash(e, value)
		case "tokens_hash":
			haveLocal = true
			e.Locals[i], b, err = readUint(value)
		case "mm_extra_info":
			// The content hash covers it.
			if _, isNil := readNil(value); !isNil {
				e.UnknownFields++
			}
			b, err = skip(value)
		default:
			e.UnknownFields++
			b, err = skipValues(b, 2)
		}
		if err != nil {
			return nil, fieldError(key, err)
		}
	}
	if !e.Hashes[i].Set || !haveLocal {
		return nil, errors.New("a block without block_hash or tokens_hash")
	}
	return b, nil
}

// wantBlocks reports what an event of the plane must hold and does not.
func wantBlocks(e *Event) error {
	switch {
	case e.Kind == Unknown:
		return errors.New("event: missing")
	case e.Kind != Cleared && e.Hashes == nil, e.Kind == Stored && len(e.Locals) != len(e.Hashes):
		return errors.New("blocks: missing")
	}
	return nil
}
