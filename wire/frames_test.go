package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func frames(parts ...string) [][]byte {
	out := make([][]byte, len(parts))
	for i, p := range parts {
		out[i] = []byte(p)
	}
	return out
}

const (
	seq7 = "\x00\x00\x00\x00\x00\x00\x00\x07"
	ends = "\xff\xff\xff\xff\xff\xff\xff\xff"
)

func TestSplitFrames(t *testing.T) {
	t.Parallel()
	topic, seq, payload, err := SplitFrames(frames("kv@a", seq7, "p"))
	if topic != "kv@a" || seq != 7 || string(payload) != "p" || err != nil {
		t.Errorf("%q %d %q %v", topic, seq, payload, err)
	}
	if _, seq, _, err := SplitFrames(frames("", ends, "")); seq != 1<<64-1 || err != nil {
		t.Errorf("the last sequence: %d %v", seq, err)
	}
	for want, in := range map[string][][]byte{
		"0 of them":              nil,
		"1 of them":              frames("p"),
		"topic is missing":       frames(seq7, "p"),
		"2 of them":              frames("kv", "p"),
		"a sequence of 3 bytes":  frames("kv", "abc", "p"),
		"Dynamo's event plane":   frames("kv-events", seq7, seq7, "p"),
		"a replay answer":        frames("", "kv", seq7, "p"),
		"4 of them, want topic,": frames("a", "b", "c", "d"),
		"5 of them":              frames("a", "b", "c", "d", "e"),
	} {
		topic, seq, payload, err := SplitFrames(in)
		if !errors.Is(err, ErrFrames) || !strings.Contains(err.Error(), want) || topic != "" || seq != 0 || payload != nil && len(in) != 3 {
			t.Errorf("%q: %q %d %q, error %v, want %q in it", in, topic, seq, payload, err, want)
		}
	}
}

func TestSplitReply(t *testing.T) {
	t.Parallel()
	p := []byte("p")
	for _, tt := range []struct {
		name string
		in   [][]byte
		want Reply
	}{
		{"without topic", frames("", seq7, "p"), Reply{Seq: 7, Payload: p}},
		{"without topic, REQ", frames(seq7, "p"), Reply{Seq: 7, Payload: p}},
		{"with topic", frames("", "kv", seq7, "p"), Reply{Topic: "kv", HasTopic: true, Seq: 7, Payload: p}},
		{"with topic, REQ", frames("kv", seq7, "p"), Reply{Topic: "kv", HasTopic: true, Seq: 7, Payload: p}},
		{"with an empty topic", frames("", "", seq7, "p"), Reply{HasTopic: true, Seq: 7, Payload: p}},
		{"end", frames("", ends, ""), Reply{Seq: endSeq, Payload: []byte{}, End: true}},
		{"end with topic", frames("", "", ends, ""), Reply{HasTopic: true, Seq: endSeq, Payload: []byte{}, End: true}},
		{"end, REQ", frames(ends, ""), Reply{Seq: endSeq, Payload: []byte{}, End: true}},
	} {
		if got, err := SplitReply(tt.in); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
	for _, in := range [][][]byte{
		nil, frames(""), frames("p"), frames("", "p"), frames("", "abc", "p"), frames("a", "b", seq7, "p"), frames("", "a", "b", seq7, "p"),
	} {
		if got, err := SplitReply(in); !errors.Is(err, ErrFrames) || !reflect.DeepEqual(got, Reply{}) {
			t.Errorf("%q: %+v, %v; want ErrFrames", in, got, err)
		}
	}
}
