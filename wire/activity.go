package wire

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// PlaneActivity is the topic under which routers tell each other what they
// booked, so that each knows the load of all. It comes only from routers with
// replica sync on; workers tell of prefills that are done under it too.
const PlaneActivity = "active_sequences_events"

// ActivityKind says what an Activity tells.
type ActivityKind uint8

// The kinds of activity. BadActivity is one that cannot be read; Activity.Err
// says why.
const (
	BadActivity ActivityKind = iota
	RequestAdded
	PrefillCompleted
	RequestFreed
)

// activityWords are the kinds in the plane's own words.
var activityWords = map[string]ActivityKind{
	"AddRequest":           RequestAdded,
	"MarkPrefillCompleted": PrefillCompleted,
	"Free":                 RequestFreed,
}

// Activity is one event in a router's bookkeeping.
type Activity struct {
	Kind    ActivityKind
	Request string
	// Replica is where the request went, as worker/rank.
	Replica Replica
	Router  uint64
	LoRA    string
	// Blocks are the sequence hashes of the prompt's complete blocks, and nil
	// where the router does not track them.
	Blocks []uint64
	// PrefillTokens are the prompt tokens to compute, 0 where not tracked.
	PrefillTokens int
	// ExpectedOutput is in tokens, 0 where nobody said.
	ExpectedOutput int
	Err            error
}

// DecodeActivity reads a message of that topic: {events: [...]} as ZMQ carries
// it, or one bare event as NATS does. Each event is
//
//	{request_id, worker: {worker_id, dp_rank}, router_id, lora_name?,
//	 data: {"AddRequest": {...}} | "MarkPrefillCompleted" | "Free"}
//
// ok tells such a message from others, and err why it cannot be read. An event
// that cannot be read takes no other with it.
func DecodeActivity(frames [][]byte) (all []Activity, ok bool, err error) {
	if !isPlane(frames) || !isTopic(frames, PlaneActivity) {
		return nil, false, nil
	}
	_, env, err := splitPlane(frames)
	if err == nil {
		all, err = readActivities(env.payload)
	}
	if err != nil {
		return nil, true, fmt.Errorf("a message of %s that cannot be read: %w", PlaneActivity, err)
	}
	return all, true, nil
}

func readActivities(payload []byte) ([]Activity, error) {
	n, b, err := readMap(payload)
	if err != nil {
		return nil, err
	}
	for ; n > 0; n-- {
		key, value := mapKey(b)
		if string(key) != "events" {
			if b, err = skipValues(b, 2); err != nil {
				return nil, err
			}
			continue
		}
		count, b, err := readList(value)
		if err != nil {
			return nil, fieldError(key, err)
		}
		var all []Activity
		for ; count > 0; count-- {
			rest, err := skip(b)
			if err != nil {
				return nil, fieldError(key, err)
			}
			all = append(all, readActivity(b))
			b = rest
		}
		return all, nil
	}
	return []Activity{readActivity(payload)}, nil
}

// readActivity reads the event that b begins with.
func readActivity(b []byte) Activity {
	var a Activity
	if err := a.read(b); err != nil {
		return Activity{Err: err}
	}
	return a
}

func (a *Activity) read(b []byte) error {
	n, b, err := readMap(b)
	for ; n > 0 && err == nil; n-- {
		key, value := mapKey(b)
		switch string(key) {
		case "request_id":
			a.Request, b, err = readWord(value)
		case "worker":
			var worker uint64
			var rank int
			if worker, rank, err = readOwner(value); err == nil {
				a.Replica = planeName(worker, rank)
				b, err = skip(value)
			}
		case "router_id":
			a.Router, b, err = readUint(value)
		case "lora_name":
			if rest, isNil := readNil(value); isNil {
				b = rest
			} else {
				a.LoRA, b, err = readWord(value)
			}
		case "data":
			b, err = a.readKind(value)
		default:
			b, err = skipValues(b, 2)
		}
		if err != nil {
			err = fieldError(key, err)
		}
	}
	switch {
	case err != nil:
	case a.Request == "":
		err = errors.New("request_id: missing")
	case a.Replica == "":
		err = errors.New("worker: missing")
	case a.Kind == BadActivity:
		err = errors.New("data: missing")
	}
	return err
}

func readWord(b []byte) (string, []byte, error) {
	text, rest, err := readText(b)
	return string(text), rest, err
}

// readKind reads a kind alone, or one with what it says.
func (a *Activity) readKind(b []byte) ([]byte, error) {
	var body []byte
	if msgp.NextType(b) == msgp.MapType {
		n, rest, err := readMap(b)
		if err != nil {
			return nil, err
		}
		if n != 1 {
			return nil, fmt.Errorf("a map of %d in place of one kind", n)
		}
		b = rest
		if body, err = skip(b); err != nil {
			return nil, err
		}
	}
	word, rest, err := readText(b)
	if err != nil {
		return nil, err
	}
	if a.Kind = activityWords[string(word)]; a.Kind == BadActivity {
		return nil, fmt.Errorf("%s is no kind that kvscope knows", Printable(string(word)))
	}
	switch {
	case body == nil && a.Kind != RequestAdded:
		return rest, nil
	case body == nil:
		return nil, errors.New("AddRequest without a map")
	case a.Kind != RequestAdded:
		return skip(body)
	}
	return a.readAdded(body)
}

// readAdded reads
//
//	{token_sequence?, track_prefill_tokens, expected_output_tokens?,
//	 prefill_load_hint?: {initial_effective_prefill_tokens, ...}}
func (a *Activity) readAdded(b []byte) ([]byte, error) {
	track := true
	n, b, err := readMap(b)
	for ; n > 0 && err == nil; n-- {
		key, value := mapKey(b)
		if rest, isNil := readNil(value); isNil {
			b = rest
			continue
		}
		switch string(key) {
		case "token_sequence":
			a.Blocks, b, err = readHashes(value)
		case "track_prefill_tokens":
			if track, b, err = msgp.ReadBoolBytes(value); err != nil {
				err = wrongOr(err, "true or false", value)
			}
		case "expected_output_tokens":
			a.ExpectedOutput, b, err = readCount(value)
		case "prefill_load_hint":
			b, err = a.readHint(value)
		default:
			b, err = skipValues(b, 2)
		}
		if err != nil {
			err = fieldError(key, err)
		}
	}
	if !track {
		a.PrefillTokens = 0
	}
	return b, err
}

func (a *Activity) readHint(b []byte) ([]byte, error) {
	n, b, err := readMap(b)
	for ; n > 0 && err == nil; n-- {
		key, value := mapKey(b)
		if string(key) != "initial_effective_prefill_tokens" {
			b, err = skipValues(b, 2)
			continue
		}
		if a.PrefillTokens, b, err = readCount(value); err != nil {
			err = fieldError(key, err)
		}
	}
	return b, err
}

func readHashes(b []byte) ([]uint64, []byte, error) {
	n, b, err := readList(b)
	if err != nil {
		return nil, nil, err
	}
	out := make([]uint64, n) // each takes a byte at least, and readList has seen to that
	for i := range out {
		if out[i], b, err = readUint(b); err != nil {
			return nil, nil, err
		}
	}
	return out, b, nil
}

// maxTokens bounds a number of tokens.
const maxTokens = 1 << 40

func readCount(b []byte) (int, []byte, error) {
	u, rest, err := readUint(b)
	if err == nil && u > maxTokens {
		err = fmt.Errorf("%d is no number of tokens", u)
	}
	return int(u), rest, err
}
