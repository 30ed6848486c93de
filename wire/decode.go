package wire

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// Bounds on what one payload may make the decoder do.
const (
	// MaxPayload is the largest payload that is decoded, in bytes. A batch of
	// a million tokens takes about five.
	MaxPayload = 64 << 20
	// maxEvents is the most events kept of one batch; the rest becomes one Bad
	// event. A step that evicts the cache of a million tokens makes as many.
	maxEvents = 1 << 16
	// memoryFactor and memorySpare bound the memory of what events hold, in
	// bytes per payload byte and in bytes: hostile lists of tiny elements would
	// otherwise take 80 times their size.
	memoryFactor = 12
	memorySpare  = 1 << 20
)

// ErrNotBatch says that a payload as a whole is not a batch of cache events.
var ErrNotBatch = errors.New("not a batch of cache events")

func notBatch(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNotBatch, fmt.Sprintf(format, args...))
}

// Decoder decodes payloads. It keeps small things between payloads to allocate
// less; the zero value is ready. It is not safe for concurrent use.
type Decoder struct {
	// memory is what the events of this payload may still take, in bytes.
	memory int
	// words are short texts met before, such as LoRA names, from the second
	// payload on.
	words map[string]string
	used  bool
	plane planeState
}

// Decode decodes one payload with a Decoder of its own.
func Decode(topic string, seq uint64, payload []byte) (Batch, error) {
	var d Decoder
	return d.Decode(topic, seq, payload)
}

// Decode decodes one payload in any dialect. A batch is
//
//	[ts, events]                    vLLM 0.9.0
//	[ts, events, rank, ...]         all others
//	{ts, events, data_parallel_rank | attn_dp_rank}
//	{publisher_id, sequence, ...}   an envelope of Dynamo's event plane (see planeBatch)
//
// where ts is in Unix seconds, rank can be nil, numbers can stand before ts,
// and anything can follow rank. An event is an array, [tag, ...], or a map with
// the key "type" anywhere; see Event for its fields.
//
// One event never takes its neighbours with it: one that cannot be read is kept
// as Bad, one whose tag is not known as Unknown, and where the msgpack itself
// breaks off, the events before it are followed by one Bad event for the rest.
// Events alias payload only in Raw. The error wraps ErrNotBatch and says what
// the payload is instead; the Batch then has only Topic, Seq, Bytes and a Rank
// of -1.
func (d *Decoder) Decode(topic string, seq uint64, payload []byte) (Batch, error) {
	batch := Batch{Topic: topic, Seq: seq, Rank: -1, Bytes: len(payload)}
	if len(payload) > MaxPayload {
		return batch, notBatch("%d bytes, and the limit is %d", len(payload), MaxPayload)
	}
	d.memory = memorySpare + memoryFactor*len(payload)
	if d.used && d.words == nil {
		d.words = make(map[string]string)
	}
	d.used = true
	d.plane = planeState{}
	got := batch
	var err error
	switch msgp.NextType(payload) {
	case msgp.ArrayType:
		err = d.arrayBatch(&got, payload)
	case msgp.MapType:
		err = d.anyMap(&got, payload)
	case msgp.InvalidType:
		err = notBatch("the payload is empty")
		if len(payload) > 0 {
			err = notBatch("the payload is not msgpack")
		}
	default:
		err = notBatch("the payload is %s", found(payload))
	}
	if err != nil {
		return batch, err
	}
	return got, nil
}

// spend takes n elements of size bytes from the payload's memory.
func (d *Decoder) spend(n, size int) error {
	if n*size > d.memory {
		return errors.New("more values than a payload of this size should hold")
	}
	d.memory -= n * size
	return nil
}

// text makes a string of b, the same one for the short words that repeat.
func (d *Decoder) text(b []byte) (string, error) {
	const longWord, maxWords = 64, 256
	if s, ok := commonWords.get(b); ok {
		return s, nil
	}
	if s, ok := d.words[string(b)]; ok {
		return s, nil
	}
	if err := d.spend(1, len(b)); err != nil {
		return "", err
	}
	s := string(b)
	if d.words != nil && len(b) <= longWord && len(d.words) < maxWords {
		d.words[s] = s
	}
	return s, nil
}

// arrayBatch reads [time..., events, rank, anything...].
func (d *Decoder) arrayBatch(batch *Batch, b []byte) error {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return notBatch("%v", errShort)
	}
	batch.Len = int(n)
	at := uint32(0)
	// Numbers in front of the events are times; the last one is the batch's.
	for ; at < n && msgp.NextType(b) != msgp.ArrayType; at++ {
		before := b
		if b, err = skip(b); err != nil {
			return notBatch("%v", err)
		}
		if !batch.setTime(before) {
			return notBatch("it begins with %s in place of a time", found(before))
		}
	}
	switch {
	case at == n:
		return notBatch("it holds no list of events")
	case at == 0:
		return notBatch("no time stands before the list")
	}
	b, ok := d.events(batch, b)
	if ok && at+1 < n {
		batch.setRank(b)
	}
	for at++; ok && at < n; at++ {
		b, ok = d.pass(batch, b)
	}
	return nil
}

// anyMap reads an envelope of Dynamo's event plane, or a batch that is a map.
func (d *Decoder) anyMap(batch *Batch, b []byte) error {
	env, err := readEnvelope(b)
	switch {
	case err == nil:
		return d.planeBatch(batch, &env)
	case errors.Is(err, errNotEnvelope):
		return d.mapBatch(batch, b)
	}
	return notBatch("%v", err)
}

// mapBatch reads the same as an array does, as a map.
func (d *Decoder) mapBatch(batch *Batch, b []byte) error {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return notBatch("%v", errShort)
	}
	batch.Len, batch.MapBatch = int(n), true
	listed, ok := false, true
	for ; ok && n > 0; n-- {
		key, value, err := readText(b)
		if err != nil {
			if b, ok = d.pass(batch, b); ok {
				b, ok = d.pass(batch, b)
			}
			continue
		}
		switch string(key) {
		case "events":
			if msgp.NextType(value) == msgp.ArrayType {
				listed = true
				b, ok = d.events(batch, value)
				continue
			}
		case "ts":
			batch.setTime(value)
		case "data_parallel_rank", "attn_dp_rank":
			batch.setRank(value)
		}
		b, ok = d.pass(batch, value)
	}
	if !listed {
		return notBatch("it is a map without a list of events")
	}
	return nil
}

// setTime takes the time from the first value of b, and reports whether it
// could be one: a number or nil.
func (batch *Batch) setTime(b []byte) bool {
	batch.Engine, batch.IntTime = 0, false
	if seconds, _, err := msgp.ReadFloat64Bytes(b); err == nil {
		batch.Engine, _ = TimeOf(seconds)
		return true
	}
	switch msgp.NextType(b) {
	case msgp.IntType, msgp.UintType:
		seconds, _, _ := msgp.ReadInt64Bytes(b) // 0 where it is beyond all times
		batch.Engine, _ = TimeOf(float64(seconds))
		batch.IntTime = true
		return true
	}
	_, isNil := readNil(b)
	return isNil
}

// setRank takes the rank from the first value of b, if that is one.
func (batch *Batch) setRank(b []byte) {
	if rank, _, err := msgp.ReadInt32Bytes(b); err == nil && rank >= 0 {
		batch.Rank = int(rank)
	}
}

// pass gives what follows the first value of b. Where b breaks off it notes
// that as a Bad event and reports false.
func (d *Decoder) pass(batch *Batch, b []byte) ([]byte, bool) {
	rest, err := skip(b)
	if err != nil {
		batch.Events = append(batch.Events, badEvent(err, b))
	}
	return rest, err == nil
}

// events reads the list of events that b begins with, as far as it goes, and
// reports whether it was whole.
func (d *Decoder) events(batch *Batch, b []byte) ([]byte, bool) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return d.pass(batch, b)
	}
	const shortest = len("\x91\xb0AllBlocksCleared")
	batch.Events = slices.Grow(batch.Events, min(int(n), len(b)/shortest+1, maxEvents))
	for ; n > 0; n-- {
		if len(batch.Events) == maxEvents {
			rest, err := skipValues(b, uint64(n))
			batch.Events = append(batch.Events, badEvent(
				fmt.Errorf("the batch holds %d events more than the limit of %d", n, maxEvents),
				b[:len(b)-len(rest)]))
			return rest, err == nil
		}
		batch.Events = append(batch.Events, Event{})
		var ok bool
		if b, ok = d.event(&batch.Events[len(batch.Events)-1], b); !ok {
			return nil, false
		}
	}
	return b, true
}

func badEvent(err error, raw []byte) Event {
	return Event{Kind: Bad, Group: -1, Err: err, Raw: raw}
}
