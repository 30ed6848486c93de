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
	{ // pains P29
		code: "block-size-mismatch", name: "P29 one of three", facts: oneModel,
		fault: func(t *testing.T) []wire.Record {
			return fleetOf(t, map[wire.Replica][]any{
				"r1": {mapped(16, 1, []uint64{h(1)}, nil)}, "r2": {mapped(64, 1, []uint64{h(2)}, nil)}, "r3": {mapped(16, 1, []uint64{h(1)}, nil)},
			})
		},
		twin: func(t *testing.T) []wire.Record {
			return fleetOf(t, map[wire.Replica][]any{
				"r1": {mapped(16, 1, []uint64{h(1)}, nil)}, "r2": {mapped(16, 1, []uint64{h(1)}, nil)}, "r3": {mapped(16, 1, []uint64{h(1)}, nil)},
			})
		},
		want: titled(diagnose.Warning, "16 on r1 and r3; 64 on r2"),
	},
	{
		code: "block-size-mismatch", name: "since a restart",
		fault: func(t *testing.T) []wire.Record { return twoLives(t, 16, 32) },
		twin:  func(t *testing.T) []wire.Record { return twoLives(t, 16, 16) },
		want:  titled(diagnose.Warning, "since its restart it has blocks of 32 tokens, before it had 16"),
	},
	{ // facts dynamo 10, row 6
		code: "block-size-mismatch", name: "other than configured", facts: wire.Facts{Model: "m", BlockSize: 64},
		fault: func(t *testing.T) []wire.Record {
			return fleetOf(t, map[wire.Replica][]any{"r1": {mapped(128, 1, []uint64{h(1)}, nil)}})
		},
		twin: func(t *testing.T) []wire.Record {
			return fleetOf(t, map[wire.Replica][]any{"r1": {mapped(64, 1, []uint64{h(1)}, nil)}})
		},
		want: titled(diagnose.Warning, "its events have blocks of 128 tokens, its metrics page says 64"),
	},
	{ // pains P61
		code: "dialect-mixed", name: "P61 one replica upgraded",
		fault: func(t *testing.T) []wire.Record {
			return fleetOf(t, map[wire.Replica][]any{"r1": {stored(nil, 1, 1)}, "r2": {mapped(4, 1, []uint64{1}, nil)}})
		},
		twin: func(t *testing.T) []wire.Record {
			return fleetOf(t, map[wire.Replica][]any{"r1": {stored(nil, 1, 1)}, "r2": {stored(nil, 1, 1)}})
		},
		want: titled(diagnose.Warning, "r1 send events as arrays, r2 as maps"),
	},
	{
		code: "dialect-mixed", name: "two publishers under one name",
		fault: func(t *testing.T) []wire.Record {
			return fleetOf(t, map[wire.Replica][]any{"r1": {stored(nil, 1, 1), mapped(4, 2, []uint64{2}, nil)}})
		},
		twin: func(t *testing.T) []wire.Record {
			return fleetOf(t, map[wire.Replica][]any{"r1": {mapped(4, 1, []uint64{1}, nil), mapped(4, 2, []uint64{2}, nil)}})
		},
		want: titled(diagnose.Warning, "vllm-array-7, vllm-map"),
	},
	{ // pains P38
		code: "foreign-replica", name: "P38 the port of another rank",
		fault: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, "pod/1", 0, stored(nil, 1, 1)), frame(t, 3, "pod/1", 1), frame(t, 6, "pod/1", 2), frame(t, 9, "pod/1", 3)}
		},
		twin: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, "pod/0", 0, stored(nil, 1, 1)), frame(t, 3, "pod/0", 1), frame(t, 6, "pod/0", 2), frame(t, 9, "pod/0", 3)}
		},
		want: titled(diagnose.Warning, "its batches say data-parallel rank 0"),
	},
	{
		code: "foreign-replica", name: "a copied topic",
		fault: func(t *testing.T) []wire.Record { return topics(t, "kv@r1@m", "kv@r1@m") },
		twin:  func(t *testing.T) []wire.Record { return topics(t, "kv@r1@m", "kv@r2@m") },
		want:  titled(diagnose.Warning, "r1 and r2 publish under one topic, kv@r1@m"),
	},
	{
		code: "foreign-replica", name: "another model's topic", facts: oneModel,
		fault: func(t *testing.T) []wire.Record { return topics(t, "kv@10.0.0.1:8000@m", "kv@10.0.0.2:8000@old") },
		twin:  func(t *testing.T) []wire.Record { return topics(t, "kv@10.0.0.1:8000@m", "kv@10.0.0.2:8000@m") },
		want:  titled(diagnose.Warning, "its topic says model old, its metrics page m"),
	},
	{ // pains P34
		code: "namespace-collision", name: "P34 a salt called as an adapter",
		fault: func(t *testing.T) []wire.Record { return twoTenants(t, lora("X"), salt("X"), h(1), h(1)) },
		// vLLM from 0.31 on: other hashes.
		twin: func(t *testing.T) []wire.Record { return twoTenants(t, lora("X"), salt("X"), h(1), h(2)) },
		want: titled(diagnose.Error, "block 0 has one hash for two namespaces, adapter X and a cache salt of the same name"),
	},
	{ // the failure table: cross-tenant hits
		code: "cross-tenant", name: "an engine that hashes no salt",
		fault: func(t *testing.T) []wire.Record { return twoTenants(t, salt("one"), salt("two"), h(1), h(1)) },
		twin:  func(t *testing.T) []wire.Record { return twoTenants(t, salt("one"), salt("two"), h(1), h(2)) },
		want:  titled(diagnose.Error, "one hash under a cache salt and under another one"),
	},
	{
		code: "cross-tenant", name: "an adapter goes on from another's block",
		fault: func(t *testing.T) []wire.Record { return adapterChain(t, "one", "two") },
		twin:  func(t *testing.T) []wire.Record { return adapterChain(t, "one", "one") },
		want:  titled(diagnose.Error, "one chain was stored under adapter one and under adapter two"),
	},
}

func lora(name string) map[string]any {
	return map[string]any{"lora_name": name, "extra_keys": []any{[]any{name}}}
}
func salt(text string) map[string]any { return map[string]any{"extra_keys": []any{[]any{text}}} }

// twoTenants is a replica that stores the same tokens for two tenants.
func twoTenants(t *testing.T, one, two map[string]any, a, b uint64) []wire.Record {
	return fleetOf(t, map[wire.Replica][]any{"r1": {mapped(16, 1, []uint64{a}, one), mapped(16, 1, []uint64{b}, two)}})
}

// adapterChain is a block stored for one adapter, and the next for another.
func adapterChain(t *testing.T, one, two string) []wire.Record {
	next := lora(two)
	next["parent_block_hash"] = h(1)
	return fleetOf(t, map[wire.Replica][]any{"r1": {mapped(16, 1, []uint64{h(1)}, lora(one)), mapped(16, 2, []uint64{h(2)}, next)}})
}

// twoLives is a replica that restarts and has other blocks then.
func twoLives(t *testing.T, before, after int) []wire.Record {
	return []wire.Record{
		frame(t, 1, r1, 0, mapped(before, 1, []uint64{h(1)}, nil)), frame(t, 2, r1, 1),
		frame(t, 5, r1, 0, mapped(after, 1, []uint64{h(1)}, nil)), frame(t, 8, r1, 1),
	}
}

// topics are two replicas with topics of their own.
func topics(t *testing.T, one, two string) []wire.Record {
	var out []wire.Record
	for seq := range uint64(4) {
		at := 1 + 2*float64(seq)
		for _, r := range []struct {
			name  wire.Replica
			topic string
		}{{r1, one}, {"r2", two}} {
			rec := frame(t, at, r.name, seq)
			rec.Frames[0] = []byte(r.topic)
			out = append(out, rec)
		}
		for _, name := range []wire.Replica{r1, "r2"} {
			rec, _ := page(at, name, wire.Facts{})
			out = append(out, rec)
		}
	}
	return out
}
