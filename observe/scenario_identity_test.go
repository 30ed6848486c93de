package observe

import (
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// mapped is a stored event as vLLM sends it from 0.24 on, of one chain of blocks of
// size tokens from the root. Fields in more replace those given.
func mapped(size int, first uint64, hashes []uint64, more map[string]any) map[string]any {
	tokens := []uint64{}
	for i := range uint64(size * len(hashes)) {
		tokens = append(tokens, 1000*first+i)
	}
	e := map[string]any{
		"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": nil, "token_ids": tokens,
		"block_size": size, "lora_id": nil, "medium": "GPU", "lora_name": nil, "extra_keys": nil,
	}
	for k, v := range more {
		e[k] = v
	}
	return e
}

// fleetOf is a recording of replicas that each send one batch of events, with their
// metrics pages before and something later behind it, so that all is looked at.
func fleetOf(t *testing.T, events map[wire.Replica][]any) []wire.Record {
	t.Helper()
	var pages, batches, ends []wire.Record
	for _, name := range []wire.Replica{"r1", "r2", "r3", "r4"} {
		if of, ok := events[name]; ok {
			rec, _ := page(1, name, wire.Facts{})
			pages = append(pages, rec)
			batches = append(batches, frame(t, 2, name, 0, of...))
			ends = append(ends, frame(t, 4, name, 1))
		}
	}
	return append(append(pages, batches...), ends...)
}

// h makes numbers that look like hashes.
func h(n uint64) uint64 { return n<<40 | 0x5eed0000 + n }

var oneModel = wire.Facts{Model: "m"}

var identityScenarios = []scenario{
	{ // pains P27
		code: "hash-mismatch", name: "P27 four roots", facts: oneModel,
		fault: func(t *testing.T) []wire.Record {
			events := map[wire.Replica][]any{}
			for i, name := range []wire.Replica{"r1", "r2", "r3", "r4"} {
				events[name] = []any{mapped(16, 1, []uint64{h(uint64(i + 1))}, nil)}
			}
			return fleetOf(t, events)
		},
		twin: func(t *testing.T) []wire.Record {
			events := map[wire.Replica][]any{}
			for _, name := range []wire.Replica{"r1", "r2", "r3", "r4"} {
				events[name] = []any{mapped(16, 1, []uint64{h(1)}, nil)}
			}
			return fleetOf(t, events)
		},
		want: titled(diagnose.Warning, "4 replicas give the same tokens 4 different hashes"),
	},
	{ // pains P28
		code: "hash-mismatch", name: "P28 only blocks with extra keys", facts: oneModel,
		fault: func(t *testing.T) []wire.Record {
			keys := map[string]any{"extra_keys": []any{[]any{"tenant-7"}}}
			return fleetOf(t, map[wire.Replica][]any{
				"r1": {mapped(16, 1, []uint64{h(1)}, nil), mapped(16, 2, []uint64{h(2)}, keys)},
				"r2": {mapped(16, 1, []uint64{h(1)}, nil), mapped(16, 2, []uint64{h(3)}, keys)},
			})
		},
		twin: func(t *testing.T) []wire.Record {
			keys := map[string]any{"extra_keys": []any{[]any{"tenant-7"}}}
			other := map[string]any{"extra_keys": []any{[]any{"tenant-8"}}}
			return fleetOf(t, map[wire.Replica][]any{
				"r1": {mapped(16, 1, []uint64{h(1)}, nil), mapped(16, 2, []uint64{h(2)}, keys)},
				"r2": {mapped(16, 1, []uint64{h(1)}, nil), mapped(16, 2, []uint64{h(3)}, other)},
			})
		},
		want: titled(diagnose.Warning, "r1 and r2 hash plain blocks alike and blocks with a cache salt"),
	},
	{ // pains P32
		code: "hash-mismatch", name: "P32 only the adapter", facts: oneModel,
		fault: func(t *testing.T) []wire.Record {
			lora := map[string]any{"lora_name": "adapter-116", "extra_keys": []any{[]any{"adapter-116"}}}
			return fleetOf(t, map[wire.Replica][]any{
				"r1": {mapped(16, 1, []uint64{h(1)}, nil), mapped(16, 1, []uint64{h(2)}, lora)},
				"r2": {mapped(16, 1, []uint64{h(1)}, nil), mapped(16, 1, []uint64{h(3)}, lora)},
			})
		},
		twin: func(t *testing.T) []wire.Record {
			lora := map[string]any{"lora_name": "adapter-116", "extra_keys": []any{[]any{"adapter-116"}}}
			return fleetOf(t, map[wire.Replica][]any{
				"r1": {mapped(16, 1, []uint64{h(1)}, nil), mapped(16, 1, []uint64{h(2)}, lora)},
				"r2": {mapped(16, 1, []uint64{h(1)}, nil), mapped(16, 1, []uint64{h(2)}, lora)},
			})
		},
		want: titled(diagnose.Warning, "blocks with an adapter differently"),
	},
	{ // pains P31
		code: "hash-mismatch", name: "P31 other width", facts: oneModel,
		fault: func(t *testing.T) []wire.Record {
			wide := make([]byte, 32)
			copy(wide[24:], []byte{0, 0, 1, 0, 0x5e, 0xed, 0, 1})
			return fleetOf(t, map[wire.Replica][]any{
				"r1": {mapped(16, 1, []uint64{h(1)}, nil)},
				"r2": {mapped(16, 1, []uint64{0}, map[string]any{"block_hashes": []any{wide}})},
			})
		},
		twin: func(t *testing.T) []wire.Record {
			return fleetOf(t, map[wire.Replica][]any{
				"r1": {mapped(16, 1, []uint64{h(1)}, nil)}, "r2": {mapped(16, 1, []uint64{h(1)}, nil)},
			})
		},
		want: titled(diagnose.Warning, "r1 and r2 publish the same hashes in different widths"),
	},
}
