package wire

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// envelopeOf wraps a payload of a topic as publisher 9 does in message 7.
func envelopeOf(t testing.TB, topic string, payload any) dict {
	t.Helper()
	return dict{
		"publisher_id": uint64(9), "sequence": uint64(7), "published_at": uint64(1_796_011_663_684),
		"topic": topic, "payload": pack(t, payload),
	}
}

// onZMQ and onNATS give the frames of an envelope.
func onZMQ(t testing.TB, env dict) [][]byte {
	t.Helper()
	body := pack(t, env)
	frame := binary.BigEndian.AppendUint32([]byte{1}, uint32(len(body)))
	return [][]byte{[]byte(env["topic"].(string)), be64(9), be64(7), append(frame, body...)}
}

func onNATS(t testing.TB, env dict) [][]byte {
	t.Helper()
	return [][]byte{[]byte("namespace.n.component.c.endpoint.e." + env["topic"].(string)), pack(t, env)}
}

func be64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// routerEvent is one event of worker 5, rank 1.
func routerEvent(data any, more dict) dict {
	e := dict{
		"worker_id": uint64(5), "storage_tier": "device", "residency_domain": "worker",
		"event": dict{"event_id": uint64(1), "dp_rank": 1, "data": data},
	}
	for k, v := range more {
		e[k] = v
	}
	return e
}

func routerStored(parent any, blocks ...any) dict {
	return dict{"stored": dict{"parent_hash": parent, "start_position": nil, "blocks": append(list{}, blocks...)}}
}

func routerBlock(handle, local uint64) dict {
	return dict{"block_hash": handle, "tokens_hash": local, "mm_extra_info": nil}
}

func TestPlaneEvents(t *testing.T) {
	t.Parallel()
	block := routerBlock(1<<63, 4)
	without := func(d dict, key string) dict {
		c := dict{}
		for k, v := range d {
			if k != key {
				c[k] = v
			}
		}
		return c
	}
	bad := func(err string) func(*Event) bool {
		return func(e *Event) bool { return e.Kind == Bad && e.Plane && strings.Contains(e.Err.Error(), err) }
	}
	for name, tt := range map[string]struct {
		event any
		want  func(*Event) bool
	}{
		"stored": {routerEvent(routerStored(uint64(3), block), nil), func(e *Event) bool {
			return e.Kind == Stored && e.Parent == IntHandle(3) && e.Hashes[0] == IntHandle(1<<63) && e.Locals[0] == 4 && e.Tier == Device && !e.Aligned()
		}},
		"at the root": {routerEvent(routerStored(nil, block), nil), func(e *Event) bool { return e.Kind == Stored && !e.Parent.Set }},
		"an empty shell": {routerEvent(routerStored(nil), nil), func(e *Event) bool {
			return e.Kind == Stored && e.Hashes != nil && len(e.Hashes) == 0
		}},
		"removed": {routerEvent(dict{"removed": dict{"block_hashes": list{uint64(1)}}}, dict{"storage_tier": "host_pinned"}), func(e *Event) bool {
			return e.Kind == Removed && e.Hashes[0] == IntHandle(1) && e.Tier == Host && e.Locals == nil
		}},
		"cleared":            {routerEvent("cleared", nil), func(e *Event) bool { return e.Kind == Cleared && e.Tier == Device }},
		"cleared in a map":   {routerEvent(dict{"cleared": nil}, nil), func(e *Event) bool { return e.Kind == Cleared }},
		"disk":               {routerEvent("cleared", dict{"storage_tier": "disk"}), func(e *Event) bool { return e.Tier == Disk && !e.UnknownMedium }},
		"external":           {routerEvent("cleared", dict{"storage_tier": "external"}), func(e *Event) bool { return e.Tier == External && !e.UnknownMedium }},
		"an unknown tier":    {routerEvent("cleared", dict{"storage_tier": "GPU"}), func(e *Event) bool { return e.Tier == External && e.UnknownMedium }},
		"session and source": {routerEvent("cleared", dict{"session_id": "s", "state_source": "x"}), func(e *Event) bool { return e.Session == "s" && e.UnknownFields == 1 }},
		"nil options": {routerEvent("cleared", dict{"session_id": nil, "residency_domain": nil}), func(e *Event) bool {
			return e.Kind == Cleared && e.Session == "" && e.Ownership == ""
		}},
		"multimodal": {routerEvent(routerStored(nil, dict{"block_hash": 1, "tokens_hash": 2, "mm_extra_info": dict{}}), nil), func(e *Event) bool {
			return e.Kind == Stored && e.UnknownFields == 1
		}},
		"another kind":         {routerEvent(dict{"tier_cleared": "device"}, nil), func(e *Event) bool { return e.Kind == Unknown && e.Name == "tier_cleared" && len(e.Raw) > 0 }},
		"no map":               {5, bad("found an integer in place of a map")},
		"no worker":            {without(routerEvent("cleared", nil), "worker_id"), bad("worker_id or dp_rank: missing")},
		"another worker":       {routerEvent("cleared", dict{"worker_id": 6}), bad("an event of 6/1 in a message of 5/1")},
		"no event":             {dict{"worker_id": 5, "dp_rank": 1}, bad("event: missing")},
		"no data":              {routerEvent("cleared", dict{"event": dict{"dp_rank": 1}}), bad("event: data: missing")},
		"two kinds":            {routerEvent(dict{"stored": nil, "removed": nil}, nil), bad("a map of 2 in place of one kind")},
		"a kind without words": {routerEvent("stored", nil), bad("block_hashes: missing")},
		"no blocks":            {routerEvent(dict{"stored": dict{"parent_hash": nil}}, nil), bad("blocks: missing")},
		"blocks of a removal":  {routerEvent(dict{"removed": dict{"blocks": list{block}}}, nil), bad("blocks: missing")},
		"half a block":         {routerEvent(routerStored(nil, dict{"block_hash": 1}), nil), bad("a block without block_hash or tokens_hash")},
		"a negative rank":      {routerEvent("cleared", dict{"event": dict{"dp_rank": -1, "data": "cleared"}}), bad("found a negative integer in place of an integer from 0")},
		"an odd content hash":  {routerEvent(routerStored(nil, dict{"block_hash": 1, "tokens_hash": "x"}), nil), bad("event: data: blocks: tokens_hash: found text in place of an integer from 0")},
	} {
		neighbour := routerEvent("cleared", nil)
		topic, seq, payload, err := SplitFrames(onZMQ(t, envelopeOf(t, PlaneEvents, list{neighbour, tt.event, neighbour})))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, err := Decode(topic, seq, payload)
		if err != nil || b.Topic != PlaneEvents || b.Seq != 7 || b.Rank != 1 || b.Engine != 1_796_011_663_684e6 || len(b.Events) != 3 {
			t.Errorf("%s: %+v, %v", name, b, err)
			continue
		}
		if b.Events[0].Kind != Cleared || b.Events[2].Kind != Cleared {
			t.Errorf("%s: it took its neighbours with it", name)
		}
		if e := &b.Events[1]; !tt.want(e) {
			t.Errorf("%s: %+v", name, e)
		}
		var d DialectSet
		d.Add(&b.Events[0])
		if d.String() != "dynamo-plane" {
			t.Errorf("%s: dialect %s", name, d.String())
		}
	}
}

func TestPlaneFrames(t *testing.T) {
	t.Parallel()
	env := envelopeOf(t, PlaneEvents, list{routerEvent("cleared", nil)})
	for name, f := range map[string][][]byte{"ZMQ": onZMQ(t, env), "NATS": onNATS(t, env)} {
		topic, seq, payload, err := SplitFrames(f)
		if topic != string(f[0]) || seq != 7 || string(payload) != string(pack(t, env)) || err != nil {
			t.Errorf("%s: %q %d %v", name, topic, seq, err)
		}
		if publisher, sender, ok := PlaneSender(f); publisher != 9 || sender != "5/1" || !ok {
			t.Errorf("%s: publisher %d of %s, %v", name, publisher, sender, ok)
		}
	}
	change := func(do func(f [][]byte)) [][]byte {
		f := onZMQ(t, env)
		do(f)
		return f
	}
	for want, f := range map[string][][]byte{
		"of 3 bytes":                     change(func(f [][]byte) { f[3] = f[3][:3] }),
		"version 2":                      change(func(f [][]byte) { f[3][0] = 2 }),
		"and holds":                      change(func(f [][]byte) { f[3] = f[3][:len(f[3])-1] }),
		"contradicts the frames":         change(func(f [][]byte) { f[1][0] = 1 }),
		"contradicts the frames around":  change(func(f [][]byte) { f[2][7] = 8 }),
		"no envelope of Dynamo's":        {[]byte("a.kv-events"), pack(t, dict{"x": 1})},
		"payload: missing":               {[]byte("a.kv-events"), pack(t, dict{"publisher_id": 1, "sequence": 2, "published_at": 3, "topic": ""})},
		"sequence: found text in place":  {[]byte("a.kv-events"), pack(t, dict{"publisher_id": 1, "sequence": "x"})},
		"no envelope of Dynamo's event ": {[]byte("a.kv-events"), {0xdf, 0xff, 0xff, 0xff, 0xff}},
	} {
		if topic, seq, payload, err := SplitFrames(f); !errors.Is(err, ErrFrames) || !strings.Contains(err.Error(), want) || topic != "" || seq != 0 || payload != nil {
			t.Errorf("want %q, got %v", want, err)
		}
		if _, _, ok := PlaneSender(f); ok {
			t.Errorf("%q: has a sender", want)
		}
	}
	for want, payload := range map[string][]byte{
		"the topic kv_metrics of":         pack(t, envelopeOf(t, PlaneLoad, dict{})),
		"holds a map in place of a list":  pack(t, envelopeOf(t, PlaneEvents, dict{})),
		"topic: missing from an envelope": pack(t, dict{"publisher_id": 1, "sequence": 2, "published_at": 3, "payload": []byte{}}),
	} {
		if b, err := Decode("", 7, payload); !errors.Is(err, ErrNotBatch) || !strings.Contains(err.Error(), want) || b.Events != nil {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestPlaneSenderUnnamed(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]dict{
		"no events":     envelopeOf(t, PlaneEvents, list{}),
		"no list":       envelopeOf(t, PlaneEvents, 5),
		"an odd event":  envelopeOf(t, PlaneEvents, list{5}),
		"another topic": envelopeOf(t, "active_sequences_events", routerEvent("cleared", nil)),
	} {
		if publisher, sender, ok := PlaneSender(onNATS(t, env)); publisher != 9 || sender != "" || !ok {
			t.Errorf("%s: %d %q %v", name, publisher, sender, ok)
		}
	}
	if _, _, ok := PlaneSender(frames("kv", seq7, "p")); ok {
		t.Error("an engine's message has a sender")
	}
}
