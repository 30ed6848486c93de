package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// This file reads Dynamo's event plane: what the relays in the engines' pods
// tell the routers. Every publisher counts its own messages from 0, and has one
// topic. A message is an envelope, a msgpack map of
//
//	{publisher_id, sequence, published_at (Unix ms), topic, payload (bin)}
//
// and comes as four ZMQ frames, or as a NATS message that is kept as two:
//
//	[topic, publisher (8 bytes BE), sequence (8 bytes BE), 1 + length (4 bytes BE) + envelope]
//	[subject, envelope]

// The topics of the plane that are read. A NATS subject ends with one.
const (
	PlaneEvents = "kv-events"
	PlaneLoad   = "kv_metrics"
)

// envelope is a message of the plane. The slices alias it.
type envelope struct {
	publisher, sequence uint64
	sent                Time
	topic, payload      []byte
}

// errNotEnvelope says that a map is something else.
var errNotEnvelope = errors.New("no envelope of Dynamo's event plane")

// isPlane reports whether frames have one of the plane's shapes. An engine's
// message has three, and one whose topic was lost begins with 8 bytes.
func isPlane(frames [][]byte) bool {
	switch len(frames) {
	case 4:
		return len(frames[0]) > 0 && len(frames[1]) == 8 && len(frames[2]) == 8
	case 2:
		return len(frames[0]) != 8 && msgp.NextType(frames[1]) == msgp.MapType
	}
	return false
}

// splitPlane gives the envelope of a message that isPlane, as bytes and read.
// The error wraps ErrFrames.
func splitPlane(frames [][]byte) (raw []byte, env envelope, err error) {
	raw = frames[len(frames)-1]
	if len(frames) == 4 {
		const version, header = 1, 5
		switch {
		case len(raw) < header:
			err = fmt.Errorf("%w: a message of Dynamo's event plane of %d bytes", ErrFrames, len(raw))
		case raw[0] != version:
			err = fmt.Errorf("%w: version %d of Dynamo's event plane, and kvscope reads version %d", ErrFrames, raw[0], version)
		case uint64(binary.BigEndian.Uint32(raw[1:])) != uint64(len(raw)-header):
			err = fmt.Errorf("%w: a message of Dynamo's event plane that claims %d bytes and holds %d",
				ErrFrames, binary.BigEndian.Uint32(raw[1:]), len(raw)-header)
		}
		if err != nil {
			return nil, env, err
		}
		raw = raw[header:]
	}
	if env, err = readEnvelope(raw); err != nil {
		return nil, env, fmt.Errorf("%w: %w", ErrFrames, err)
	}
	if len(frames) == 4 &&
		(env.publisher != binary.BigEndian.Uint64(frames[1]) || env.sequence != binary.BigEndian.Uint64(frames[2])) {
		return nil, env, fmt.Errorf("%w: an envelope of Dynamo's event plane that contradicts the frames around it", ErrFrames)
	}
	return raw, env, nil
}

// lastMilli is the last moment that is kept, as for TimeOf, in Unix ms.
const (
	milli     = 1e6
	lastMilli = 1 << 62 / uint64(milli)
)

// envelopeKeys are the keys of an envelope, all of which have to be there.
var envelopeKeys = [...]string{"publisher_id", "sequence", "published_at", "topic", "payload"}

// readEnvelope reads the map that b begins with. The error is errNotEnvelope
// where it does not say its publisher.
func readEnvelope(b []byte) (env envelope, err error) {
	n, b, err := readMap(b)
	if err != nil {
		return env, errNotEnvelope
	}
	var have [len(envelopeKeys)]bool
	for ; n > 0 && err == nil; n-- {
		key, value := mapKey(b)
		at := slices.Index(envelopeKeys[:], string(key))
		if at >= 0 {
			have[at] = true
		}
		switch at {
		case 0:
			env.publisher, b, err = readUint(value)
		case 1:
			env.sequence, b, err = readUint(value)
		case 2:
			var ms uint64
			ms, b, err = readUint(value)
			if ms <= lastMilli {
				env.sent = Time(ms * milli)
			}
		case 3:
			env.topic, b, err = readText(value)
		case 4:
			env.payload, b, err = readText(value)
		default:
			b, err = skipValues(b, 2)
		}
		if err != nil {
			err = fieldError(key, err)
		}
	}
	if !have[0] {
		return env, errNotEnvelope
	}
	for i, key := range envelopeKeys {
		if err == nil && !have[i] {
			err = fmt.Errorf("%s: missing from an envelope of Dynamo's event plane", key)
		}
	}
	return env, err
}

// isTopic reports whether frames that are the plane's, or their subject, are of
// a topic.
func isTopic(frames [][]byte, topic string) bool {
	name := string(frames[0])
	return name == topic || len(frames) == 2 && strings.HasSuffix(name, "."+topic)
}

// PlaneSender says whose message of Dynamo's event plane frames are: the
// publisher's number, and the replica that it is about as worker/rank, both in
// decimal. The name is empty where the message holds none, and ok false where
// frames are no message of the plane.
func PlaneSender(frames [][]byte) (publisher uint64, name Replica, ok bool) {
	if !isPlane(frames) {
		return 0, "", false
	}
	_, env, err := splitPlane(frames)
	if err != nil {
		return 0, "", false
	}
	b := env.payload
	switch string(env.topic) {
	case PlaneEvents:
		n, rest, err := readList(b)
		if err != nil || n == 0 {
			return env.publisher, "", true
		}
		b = rest
	case PlaneLoad:
	default:
		return env.publisher, "", true
	}
	if worker, rank, err := readOwner(b); err == nil {
		name = planeName(worker, rank)
	}
	return env.publisher, name, true
}

func planeName(worker uint64, rank int) Replica {
	return Replica(strconv.FormatUint(worker, 10) + "/" + strconv.Itoa(rank))
}

// readOwner finds worker_id, and dp_rank there or within event, in the map that
// b begins with.
func readOwner(b []byte) (worker uint64, rank int, err error) {
	haveWorker, haveRank := false, false
	var read func(b []byte, depth int) ([]byte, error)
	read = func(b []byte, depth int) ([]byte, error) {
		n, b, err := readMap(b)
		if err != nil {
			return nil, err
		}
		for ; n > 0; n-- {
			key, value := mapKey(b)
			switch name := string(key); {
			case name == "worker_id" && depth == 0:
				haveWorker = true
				worker, b, err = readUint(value)
			case name == "dp_rank":
				haveRank = true
				rank, b, err = readRank(value)
			case name == "event" && depth == 0:
				b, err = read(value, depth+1)
			default:
				b, err = skipValues(b, 2)
			}
			if err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	if _, err = read(b, 0); err == nil && !(haveWorker && haveRank) {
		err = errors.New("worker_id or dp_rank: missing")
	}
	return worker, rank, err
}

// readRank reads a data-parallel rank.
func readRank(b []byte) (int, []byte, error) {
	rank, rest, err := readUint(b)
	if err == nil && rank > math.MaxInt32 {
		err = fmt.Errorf("%d is no rank", rank)
	}
	return int(rank), rest, err
}
