package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// endSeq is the sequence of the message that ends a replay answer: -1, in
// every engine.
const endSeq = 1<<64 - 1

// ErrFrames says that a message does not have the frames it should have.
var ErrFrames = errors.New("unexpected frames")

// SplitFrames splits a live message. Engines of every release send
//
//	[topic, sequence (8 bytes BE), payload]
//
// and Dynamo's event plane
//
//	[topic, publisher (8 bytes BE), sequence (8 bytes BE), 1 + length (4 bytes BE) + envelope]   on ZMQ
//	[subject, envelope]                                                                         on NATS
//
// where the envelope is the payload: Decode reads it. The error wraps ErrFrames
// and says what was there instead. The payload aliases frames.
func SplitFrames(frames [][]byte) (topic string, seq uint64, payload []byte, err error) {
	const want = "want topic, sequence and payload"
	switch n := len(frames); {
	case n == 3:
		if seq, err = readSeq(frames[1]); err == nil {
			return string(frames[0]), seq, frames[2], nil
		}
	case isPlane(frames):
		raw, env, err := splitPlane(frames)
		if err != nil {
			return "", 0, nil, err
		}
		return string(frames[0]), env.sequence, raw, nil
	case n == 2 && len(frames[0]) == 8:
		err = fmt.Errorf("%w: the topic is missing, %s", ErrFrames, want)
	case n == 4 && len(frames[0]) == 0 && len(frames[2]) == 8:
		err = fmt.Errorf("%w: a replay answer, not a live message", ErrFrames)
	default:
		err = fmt.Errorf("%w: %d of them, %s", ErrFrames, n, want)
	}
	return "", 0, nil, err
}

func readSeq(frame []byte) (uint64, error) {
	if len(frame) != 8 {
		return 0, fmt.Errorf("%w: a sequence of %d bytes, want 8", ErrFrames, len(frame))
	}
	return binary.BigEndian.Uint64(frame), nil
}

// Reply is one message of a replay answer.
type Reply struct {
	// Topic is empty in answers of vLLM up to 0.25 and older SGLang, which
	// leave it out; HasTopic tells that from an empty topic.
	Topic    string
	HasTopic bool
	Seq      uint64
	// Payload aliases the frames.
	Payload []byte
	// End marks the message that ends the answer, which holds no batch. vLLM
	// before 0.33 can drop it, as any other.
	End bool
}

// SplitReply splits one message of a replay answer: [topic], sequence and
// payload, with or without the empty delimiter in front that a DEALER socket
// sees and a REQ socket does not. From three frames on, a first one that is
// empty is the delimiter. The error wraps ErrFrames.
func SplitReply(frames [][]byte) (Reply, error) {
	rest := frames
	if len(rest) > 2 && len(rest[0]) == 0 {
		rest = rest[1:]
	}
	var r Reply
	switch len(rest) {
	case 3:
		r.Topic, r.HasTopic = string(rest[0]), true
		rest = rest[1:]
	case 2:
	default:
		return Reply{}, fmt.Errorf("%w: %d of them in a replay answer, want a delimiter, a topic or none, sequence and payload",
			ErrFrames, len(frames))
	}
	var err error
	if r.Seq, err = readSeq(rest[0]); err != nil {
		return Reply{}, err
	}
	r.Payload, r.End = rest[1], r.Seq == endSeq
	return r, nil
}
