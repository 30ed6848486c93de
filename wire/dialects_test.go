package wire

import "testing"

func TestDialectSet(t *testing.T) {
	t.Parallel()
	array := func(n int) list {
		return list{"BlockStored", list{1}, nil, ids(4), 4, nil, "GPU", nil, nil, 0, "full_attention", nil, nil, nil}[:n]
	}
	sglang := func(hash any) dict {
		e := stored(hash, nil)
		delete(e, "lora_name")
		return e
	}
	mocker := dict{"type": "BlockStored", "block_hashes": list{1}, "parent_block_hash": nil, "token_ids": ids(4), "block_size": 4, "group_idx": 0}
	removed := dict{"type": "BlockRemoved", "block_hashes": list{1}, "medium": "GPU"}
	for _, tt := range []struct {
		name   string
		events list
		want   string
		mixed  bool
	}{
		{"nothing", nil, "", false},
		{"unreadable", list{5}, "", false},
		{"maps without a store", list{removed, dict{"type": "AllBlocksCleared"}}, "map", false},
		{"arrays without a store", list{list{"BlockRemoved", list{1}}}, "array", false},
		{"vLLM 0.9", list{array(6)}, "vllm-array-6", false},
		{"vLLM 0.9 with Python's own hash", list{list{"BlockStored", list{-5}, nil, ids(4), 4, nil}}, "vllm-array-6", false},
		{"vLLM 0.22", list{list{"BlockRemoved", list{1}, "GPU", 0}, array(12)}, "vllm-array-12", false},
		{"a length that vLLM has never sent", list{array(14)}, "array-14", false},
		{"vLLM 0.32", list{removed, stored(1, nil)}, "vllm-map", false},
		{"SGLang", list{removed, sglang(1)}, "sglang-map", false},
		{"SGLang, first with LoRA", list{stored(1, dict{"lora_name": "a"}), sglang(1)}, "sglang-map", false},
		{"SGLang, only with LoRA", list{stored(-1, dict{"lora_name": "a"})}, "sglang-map", false},
		{"SGLang, only salted", list{stored(1, dict{"cache_salt": "s"})}, "sglang-map", false},
		{"SGLang's host tier", list{dict{"type": "BlockRemoved", "block_hashes": list{1}, "medium": "CPU_PINNED"}}, "sglang-map", false},
		{"old SGLang", list{list{"BlockStored", list{-5}, nil, ids(4), 4, nil, "GPU"}}, "sglang-array", false},
		{"TensorRT-LLM", list{stored(1, dict{"mm_keys": list{list{}}})}, "trtllm-map", false},
		{"TensorRT-LLM with digests", list{stored(1, nil), stored(1, dict{"token_ids": list{1, "ab"}})}, "trtllm-map", false},
		{"Dynamo's mocker", list{mocker}, "mocker-map", false},
		{"an upgrade", list{array(12), stored(1, nil)}, "vllm-array-12+vllm-map", true},
		{"two releases", list{array(12), array(10)}, "vllm-array-10+vllm-array-12", true},
	} {
		b, err := Decode("", 0, pack(t, list{1.5, append(list{}, tt.events...), 0}))
		if err != nil {
			t.Fatal(err)
		}
		var d DialectSet
		for i := range b.Events {
			d.Add(&b.Events[i])
		}
		if got := d.String(); got != tt.want || d.Mixed() != tt.mixed {
			t.Errorf("%s: %q, mixed %v; want %q", tt.name, got, d.Mixed(), tt.want)
		}
	}
}

func TestFieldSet(t *testing.T) {
	t.Parallel()
	e := decodeOne(t, dict{"type": "BlockRemoved", "block_hashes": list{1}, "medium": nil, "new": 1})
	if got := e.Fields.String(); got != "block_hashes,medium" {
		t.Errorf("fields %s", got)
	}
	if !e.Fields.Has("medium") || e.Fields.Has("group_idx") || e.Fields.Has("new") {
		t.Errorf("Has does not agree with %s", e.Fields)
	}
}
