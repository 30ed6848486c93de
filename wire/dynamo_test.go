package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// judge gives the verdict on one batch of events.
func judge(t *testing.T, r *DynamoRelay, rank any, events ...any) []DynamoEvent {
	t.Helper()
	v := r.Judge(pack(t, list{1.5, list(events), rank}))
	if v.Lost != "" {
		t.Fatal(v.Lost)
	}
	return v.Events
}

func TestDynamoLost(t *testing.T) {
	t.Parallel()
	good := stored(1, nil)
	for _, tt := range []struct {
		name, want string
		in         any
	}{
		{"two elements", "exactly 3", list{1.5, list{good}}},
		{"four elements", "exactly 3", list{1.5, list{good}, 0, "x"}},
		{"map", "a map", dict{"ts": 1.5, "events": list{good}}},
		{"time", "time", list{"1.5", list{good}, 0}},
		{"rank", "rank", list{1.5, list{good}, "0"}},
		{"byte hash", "event 1: block_hashes holds bytes", batchOf(good, stored([]byte{1, 2}, nil))},
		{"byte parent", "event 0: parent_block_hash holds bytes", batchOf(stored(1, dict{"parent_block_hash": []byte{1}}))},
		{"tag", "event 0: the tag is not one", batchOf(dict{"type": "BlockPinned"})},
		{"wide token", "event 0: token_ids holds an id beyond 32 bits", batchOf(stored(1, dict{"token_ids": list{uint64(1 << 32)}}))},
		{"missing field", "event 0: token_ids is missing", batchOf(dict{"type": "BlockStored", "block_hashes": list{1}, "block_size": 4})},
		{"digest among the extra keys", "event 0: extra_keys", batchOf(stored(1, dict{"extra_keys": list{list{[]byte{0xff, 0xfe}}}}))},
		{"tagged extra keys", "event 0: extra_keys", batchOf(stored(1, dict{"extra_keys": list{list{list{"mm", "hash", 3}}}}))},
		{"cut off", "cut off", nil},
	} {
		payload := pack(t, tt.in)
		if tt.in == nil {
			payload = pack(t, batchOf(good))
			payload = payload[:len(payload)-1]
		}
		v := new(DynamoRelay).Judge(payload)
		if !strings.Contains(v.Lost, tt.want) || v.Events != nil {
			t.Errorf("%s: lost %q with %d events, want %q", tt.name, v.Lost, len(v.Events), tt.want)
		}
	}
}

// TestDynamoStream follows what a relay learns from one batch to the next.
func TestDynamoStream(t *testing.T) {
	t.Parallel()
	r := &DynamoRelay{BlockSize: 4}
	array := func(seventh any, more ...any) list {
		return append(list{"BlockStored", list{1}, nil, ids(4), 4, nil, "GPU", seventh}, more...)
	}
	removed := func(hash, group int) dict {
		return dict{"type": "BlockRemoved", "block_hashes": list{hash}, "group_idx": group}
	}
	of := func(group int, kind string) dict { return dict{"group_idx": group, "kv_cache_spec_kind": kind} }
	salted := func(hash int, salt string) dict { return stored(hash, dict{"cache_salt": salt}) }
	child := func(hash, parent int) dict { return stored(hash, dict{"parent_block_hash": parent}) }
	steps := []struct {
		rank any
		in   any
		want string // reason and salt
	}{
		{0, removed(1, 1), "unlearned_group_idx/"},
		{0, stored(1, of(1, "mamba")), "non_main_attention_kind/"},
		{0, removed(1, 1), "non_main_attention_group/"},
		{1, removed(1, 1), "unlearned_group_idx/"}, // another rank has not learned it
		{0, stored(1, of(1, "new_kind")), "unknown_kind/"},
		{0, removed(1, 1), "unknown_kind/"},
		{0, stored(1, of(1, "mla_attention")), "/"},
		{0, removed(1, 1), "/"},
		{0, removed(1, 0), "/"},

		{0, salted(10, "a"), "/a"},
		{0, child(11, 10), "/a"},
		{0, child(12, 11), "/a"},
		{1, child(11, 10), "/"}, // a late joiner takes the chain as unsalted
		{0, salted(11, "b"), "/b"},
		{0, child(13, 11), "ambiguous_cache_namespace/"},
		{0, removed(11, 0), "/"}, // does not make it clear again
		{0, child(13, 11), "ambiguous_cache_namespace/"},
		{0, dict{"type": "AllBlocksCleared"}, "/"},
		{0, child(13, 11), "/"},
		{0, dict{"type": "Ignored"}, "ignored_event/"},

		// vLLM's [nil, kind, window] makes Dynamo learn a group of 128 ...
		{0, array(nil, nil, nil, "mamba", 128), "non_main_attention_kind/"},
		{0, removed(1, 128), "non_main_attention_group/"},
		// ... and five elements do not.
		{0, array(nil, nil, nil, "mamba", 129, nil, nil), "non_main_attention_kind/"},
		{0, removed(1, 129), "unlearned_group_idx/"},

		{0, array(dict{"cache_salt": "m"}), "/m"},
		{0, array(dict{"cache_salt": ""}, list{list{"dynamo-cache-salt:k"}}), "/k"},
		{0, array("dynamo-cache-salt:k", list{list{"dynamo-cache-salt:k"}}), "/"}, // a LoRA of that name
		{0, array("dynamo-cache-salt:k", list{list{"dynamo-cache-salt:k", "dynamo-cache-salt:k"}}), "/k"},
	}
	for i, s := range steps {
		got := judge(t, r, s.rank, s.in)[0]
		if text := fmt.Sprintf("%s/%s", got.Filtered, got.Salt); text != s.want {
			t.Errorf("step %d: %s, want %s", i, text, s.want)
		}
		salted := 0
		for _, known := range r.salts {
			salted += len(known)
		}
		if salted != r.salted {
			t.Errorf("step %d: %d salted blocks counted, %d known", i, r.salted, salted)
		}
	}
}

func TestDynamoConvert(t *testing.T) {
	t.Parallel()
	two := func(more dict) dict {
		e := stored(1, dict{"block_hashes": list{1, 2}, "token_ids": ids(8)})
		for k, v := range more {
			e[k] = v
		}
		return e
	}
	media := "00000000000000ab" + strings.Repeat("0", 48)
	for _, tt := range []struct {
		name string
		size int
		in   dict
		want DynamoEvent
	}{
		{"whole", 4, two(nil), DynamoEvent{Hashes: []uint64{1, 2}}},
		{"router's size not known", 0, two(nil), DynamoEvent{Hashes: []uint64{1, 2}}},
		{"other size", 8, two(nil), DynamoEvent{Hashes: []uint64{}, Dropped: 2, Why: DroppedSize}},
		{"size nil", 0, two(dict{"block_size": 0}), DynamoEvent{Hashes: []uint64{}, Dropped: 2, Why: DroppedShort}},
		{"too few tokens", 4, two(dict{"token_ids": ids(7)}), DynamoEvent{Hashes: []uint64{1}, Dropped: 1, Why: DroppedShort}},
		{"repeated", 4, two(dict{"block_hashes": list{2, 2}}), DynamoEvent{Dropped: 2, Why: DroppedRepeat}},
		{"its own parent", 4, two(dict{"parent_block_hash": 2}), DynamoEvent{Dropped: 2, Why: DroppedRepeat}},
		{"parent", 4, two(dict{"parent_block_hash": 3}), DynamoEvent{Hashes: []uint64{1, 2}, Parent: 3, HasParent: true}},
		{"host", 4, two(dict{"medium": "CPU"}), DynamoEvent{Hashes: []uint64{1, 2}, Tier: Host}},
		{"lower case", 4, two(dict{"medium": "cpu"}), DynamoEvent{Tier: Host, Filtered: "unknown_medium"}},
		{
			"salt and media among the extra keys", 4,
			two(dict{"lora_name": "x", "extra_keys": list{list{"x", "dynamo-cache-salt:t"}, list{list{media, 3}}}}),
			DynamoEvent{Hashes: []uint64{1, 2}, Salt: "t", Media: [][]uint64{nil, {0xab}}},
		},
	} {
		tt.want.Kind = Stored
		got := judge(t, &DynamoRelay{BlockSize: tt.size}, 0, tt.in)[0]
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
}
