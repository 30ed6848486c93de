package wire

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// TestDecodeHostile gives payloads that claim much more than they hold. It is
// not parallel, because it looks at the memory of the whole process.
func TestDecodeHostile(t *testing.T) {
	ts := append([]byte{0x93, 0xcb}, make([]byte, 8)...)
	in := func(parts ...[]byte) []byte { return bytes.Join(append([][]byte{ts}, parts...), nil) }
	huge := []byte{0xdd, 0xff, 0xff, 0xff, 0xff}
	one := []byte{0x91}
	tag := pack(t, "BlockStored")
	mapOf := func(key string, value []byte) []byte {
		return in(one, []byte{0x82}, pack(t, "type"), tag, pack(t, key), value)
	}
	// plane is an envelope of an event whose data has that value at a key.
	plane := func(kind, key string, value []byte) []byte {
		head := pack(t, list{routerEvent(dict{kind: dict{key: 0}}, nil)})
		payload := bytes.Replace(head, append(pack(t, key), 0), append(pack(t, key), value...), 1)
		return pack(t, dict{"publisher_id": 1, "sequence": 1, "published_at": 1, "topic": PlaneEvents, "payload": payload})
	}
	const deep = 2 << 20
	tests := []struct {
		name string
		in   []byte
	}{
		{"batch", append(huge, 0xc0)},
		{"batch as a map", []byte{0xdf, 0xff, 0xff, 0xff, 0xff, 0xa1, 'x', 0xc0}},
		{"events", in(huge)},
		{"event", in(one, huge)},
		{"event as a map", in(one, []byte{0xdf, 0xff, 0xff, 0xff, 0xff})},
		{"hashes", mapOf("block_hashes", huge)},
		{"hashes in bytes", mapOf("block_hashes", []byte{0xc6, 0xff, 0xff, 0xff, 0xff})},
		{"tokens", mapOf("token_ids", huge)},
		{"pairs", mapOf("token_ids", append(huge, 0x92, 1, 2))},
		{"extra keys", mapOf("extra_keys", huge)},
		{"extra keys of a block", mapOf("extra_keys", append([]byte{0x91}, huge...))},
		{"look-ahead", mapOf("lookahead_token_ids", huge)},
		{"mm_keys", mapOf("mm_keys", huge)},
		{"text", mapOf("medium", []byte{0xdb, 0xff, 0xff, 0xff, 0xff})},
		{"unknown field", mapOf("new", huge)},
		{"unknown kind", in(one, []byte{0x92}, pack(t, "New"), huge)},
		{"ext", in(one, []byte{0xc9, 0xff, 0xff, 0xff, 0xff, 1})},
		{"deep batch", bytes.Repeat(one, deep)},
		{"deep event", in(one, bytes.Repeat(one, deep))},
		{"deep extra keys", mapOf("extra_keys", bytes.Repeat(one, deep))},
		{"deep unknown field", mapOf("new", bytes.Repeat(one, deep))},
		{"deep maps", mapOf("new", bytes.Repeat([]byte{0x81, 0}, deep))},
		{"envelope", []byte{0xdf, 0xff, 0xff, 0xff, 0xff, 0xac, 'p', 'u', 'b', 'l', 'i', 's', 'h', 'e', 'r', '_', 'i', 'd', 1}},
		{"blocks of the plane", plane("stored", "blocks", huge)},
		{"block of the plane", plane("stored", "blocks", []byte{0x91, 0xdf, 0xff, 0xff, 0xff, 0xff})},
		{"hashes of the plane", plane("removed", "block_hashes", huge)},
		{"deep event of the plane", plane("stored", "new", bytes.Repeat(one, deep))},
		{"maps in the place of lora_name", in(one, []byte{0x98}, tag, []byte{0x90, 0xc0, 0x90, 0, 0xc0, 0xc0},
			bytes.Repeat([]byte{0x81, 0xa9, 'l', 'o', 'r', 'a', '_', 'n', 'a', 'm', 'e'}, deep/8))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			relay := DynamoRelay{BlockSize: 4}
			for what, do := range map[string]func(){
				"Decode": func() { _, _ = Decode("", 0, tt.in) },
				"Judge":  func() { _ = relay.Judge(tt.in) },
			} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				do()
				runtime.ReadMemStats(&after)
				const limit = 64 << 10
				if got := after.TotalAlloc - before.TotalAlloc; got > limit {
					t.Errorf("%s: a payload of %d bytes took %d bytes, want at most %d", what, len(tt.in), got, limit)
				}
			}
			if v := relay.Judge(tt.in); v.Lost == "" {
				t.Error("Dynamo would read this")
			}
		})
	}
}

// TestDecodeMemory fills payloads with the elements that take the most memory
// for their size.
func TestDecodeMemory(t *testing.T) {
	const n = 1 << 20
	ts := append([]byte{0x93, 0xcb}, make([]byte, 8)...)
	listOf := func(element byte) []byte {
		return append([]byte{0xdd, 0, n >> 16, 0, 0}, bytes.Repeat([]byte{element}, n)...)
	}
	fill := func(key string, element byte) []byte {
		return bytes.Join([][]byte{
			ts, {0x91, 0x82}, pack(t, "type"), pack(t, "BlockStored"), pack(t, key), listOf(element), {0},
		}, nil)
	}
	events := bytes.Join([][]byte{ts, listOf(0x90), {0}}, nil)
	// The list ends the payload: what is missing behind it costs one Bad event.
	blocks := pack(t, routerEvent(dict{"stored": dict{"blocks": 0}}, nil))
	blocks = bytes.Replace(blocks, append(pack(t, "blocks"), 0), append(pack(t, "blocks"), listOf(0x80)...), 1)
	plane := pack(t, dict{
		"publisher_id": 1, "sequence": 1, "published_at": 1, "topic": PlaneEvents, "payload": append([]byte{0x91}, blocks...),
	})
	for name, payload := range map[string][]byte{
		"hashes": fill("block_hashes", 1), "tokens": fill("token_ids", 1), "extra keys": fill("extra_keys", 0xc0),
		"empty keys": fill("extra_keys", 0x90), "look-ahead": fill("lookahead_token_ids", 0xc0), "events": events,
		"blocks of the plane": plane,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b, err := Decode("", 0, payload)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		// Events themselves are bounded by number.
		limit := uint64(memorySpare + memoryFactor*len(payload) + 4096)
		if name == "events" {
			limit = 96 << 20
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > limit {
			t.Errorf("%s: %d bytes took %d, want at most %d", name, len(payload), got, limit)
		}
		if last := b.Events[len(b.Events)-1]; name == "events" && (len(b.Events) != maxEvents+1 || last.Kind != Bad) {
			t.Errorf("%d events kept, want %d and one for the rest", len(b.Events), maxEvents)
		}
	}
}

// TestDecodeHog puts an event that would take too much memory between others,
// which keep theirs.
func TestDecodeHog(t *testing.T) {
	hashes := make(list, 1<<17)
	for i := range hashes {
		hashes[i] = i % 100
	}
	good := stored(1, dict{"extra_keys": list{list{"a", "b"}}})
	hog := msgpack.RawMessage(pack(t, dict{"type": "BlockRemoved", "block_hashes": hashes}))
	events := list{good}
	for range 20 {
		events = append(events, hog, good)
	}
	b, err := Decode("", 0, pack(t, list{1.5, events, 0}))
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	for i, e := range b.Events {
		if e.Kind == Bad {
			bad++
		}
		if i%2 == 0 && e.Kind != Stored {
			t.Errorf("event %d is %v: %v", i, e.Kind, e.Err)
		}
	}
	if len(b.Events) != 41 || bad == 0 || bad == 20 {
		t.Errorf("%d events, %d of them undecodable", len(b.Events), bad)
	}
}
