package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vmihailenco/msgpack/v5"
)

type (
	list = []any
	dict = map[string]any
)

// pack encodes v as the engines do. Maps come sorted by key, so "type" comes
// last in most events.
func pack(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	enc.SetSortMapKeys(true)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ids(n int) list {
	l := make(list, n)
	for i := range l {
		l[i] = i
	}
	return l
}

// stored is a store of one block as a map.
func stored(hash any, more dict) dict {
	e := dict{
		"type": "BlockStored", "block_hashes": list{hash}, "parent_block_hash": nil,
		"token_ids": ids(4), "block_size": 4, "lora_id": nil, "medium": "GPU", "lora_name": nil,
	}
	for k, v := range more {
		e[k] = v
	}
	return e
}

func batchOf(events ...any) list { return list{1.5, list(events), 0} }

// decodeOne decodes a batch of one event.
func decodeOne(t *testing.T, event any) Event {
	t.Helper()
	b, err := Decode("", 0, pack(t, batchOf(event)))
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Events) != 1 {
		t.Fatalf("%d events, want 1", len(b.Events))
	}
	return b.Events[0]
}

func TestDecodeBatchForms(t *testing.T) {
	t.Parallel()
	event := stored(7, nil)
	half := Time(1_500_000_000)
	tests := []struct {
		name string
		in   any
		want Batch
	}{
		{"vLLM 0.9.0", list{1.5, list{event}}, Batch{Engine: half, Rank: -1, Len: 2}},
		{"three", list{1.5, list{event}, 3}, Batch{Engine: half, Rank: 3, Len: 3}},
		{"rank nil", list{1.5, list{event}, nil}, Batch{Engine: half, Rank: -1, Len: 3}},
		{"rank of another type", list{1.5, list{event}, "x"}, Batch{Engine: half, Rank: -1, Len: 3}},
		{"more behind", list{1.5, list{event}, 2, "x", list{1}}, Batch{Engine: half, Rank: 2, Len: 5}},
		{"rank nil, then a number", list{1.5, list{event}, nil, 5}, Batch{Engine: half, Rank: -1, Len: 4}},
		{"number in front", list{9.5, 1.5, list{event}, 2}, Batch{Engine: half, Rank: 2, Len: 4}},
		{"integer time", list{3, list{event}, 0}, Batch{Engine: 3e9, Len: 3, IntTime: true}},
		{"float32 time", list{float32(1.5), list{event}, 0}, Batch{Engine: half, Len: 3}},
		{"no time", list{nil, list{event}, 0}, Batch{Len: 3}},
		{"time is not a number", list{math.NaN(), list{event}, 0}, Batch{Len: 3}},
		{"endless time", list{math.Inf(1), list{event}, 0}, Batch{Len: 3}},
		{"time beyond all bounds", list{uint64(math.MaxUint64), list{event}, 0}, Batch{Len: 3, IntTime: true}},
		{"map", dict{"ts": 1.5, "events": list{event}, "data_parallel_rank": 2}, Batch{Engine: half, Rank: 2, Len: 3, MapBatch: true}},
		{"SGLang's rank", dict{"ts": 1.5, "events": list{event}, "attn_dp_rank": 2}, Batch{Engine: half, Rank: 2, Len: 3, MapBatch: true}},
		{"map with more", dict{"a": list{1}, "events": list{event}, "zz": dict{"b": 1}}, Batch{Rank: -1, Len: 3, MapBatch: true}},
		{"map with an odd key", map[any]any{1: 2, "events": list{event}}, Batch{Rank: -1, Len: 2, MapBatch: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			payload := pack(t, tt.in)
			want := tt.want
			want.Topic, want.Seq, want.Bytes = "kv", 5, len(payload)
			want.Events = []Event{decodeOne(t, event)}
			got, err := Decode("kv", 5, payload)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDecodeNotBatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   []byte
		want string // in the error
	}{
		{"nothing", nil, "empty"},
		{"a load message", pack(t, list{"LoadStat", 0, 0}), "text"},
		{"an event alone", pack(t, list{"BlockRemoved", list{1}}), "text"},
		{"an event alone, as a map", pack(t, stored(1, nil)), "without a list of events"},
		{"numbers", pack(t, list{1.5, 2}), "no list of events"},
		{"an empty list", pack(t, list{}), "no list of events"},
		{"events without a time", pack(t, list{list{}}), "no time"},
		{"events in a map that are none", pack(t, dict{"ts": 1, "events": 3}), "without a list of events"},
		{"text", []byte(`{"ts": 1}`), "integer"},
		{"never msgpack", []byte{0xc1}, "not msgpack"},
		{"cut in the head", []byte{0xdc, 0}, "ends early"},
		{"cut in the time", []byte{0x93, 0xcb, 0x41}, "ends early"},
		{"too large", make([]byte, MaxPayload+1), "limit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Decode("kv", 5, tt.in)
			if !errors.Is(err, ErrNotBatch) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want ErrNotBatch with %q", err, tt.want)
			}
			want := Batch{Topic: "kv", Seq: 5, Rank: -1, Bytes: len(tt.in)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestDecodeBadEvent puts one event that cannot be read between two good ones.
func TestDecodeBadEvent(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		event any
		want  string // in Err; empty if the event is of an unknown kind
		tag   string
	}{
		{"unknown kind", dict{"type": "BlockPinned", "block_hashes": "what"}, "", "BlockPinned"},
		{"unknown kind, array", list{"BlockPinned", 1, list{2}}, "", "BlockPinned"},
		{"ignored", dict{"type": "Ignored"}, "", "Ignored"},
		{"no list", 5, "an integer", ""},
		{"nil", nil, "nil", ""},
		{"empty list", list{}, "without a tag", ""},
		{"tag of another type", list{list{}, 1}, "tag", ""},
		{"map without a tag", dict{"block_hashes": list{1}}, "without the key type", ""},
		{"no hashes", dict{"type": "BlockRemoved"}, "block_hashes: missing", "BlockRemoved"},
		{"hashes nil", stored(1, dict{"block_hashes": nil}), "block_hashes: missing", "BlockStored"},
		{"array without hashes", list{"BlockStored"}, "block_hashes: missing", "BlockStored"},
		{"hash is a fraction", stored(1.5, nil), "block_hashes: found a fraction in place of a hash", "BlockStored"},
		{"hash is nil", stored(nil, nil), "block_hashes: found nil", "BlockStored"},
		{"hash is empty", stored([]byte{}, nil), "block_hashes: found an empty hash", "BlockStored"},
		{"hashes are no list", stored(1, dict{"block_hashes": 7}), "in place of a list", "BlockStored"},
		{"parent is a list", stored(1, dict{"parent_block_hash": list{}}), "parent_block_hash", "BlockStored"},
		{"token is negative", stored(1, dict{"token_ids": list{1, -2}}), "token_ids: found a negative integer", "BlockStored"},
		{"token is nil", stored(1, dict{"token_ids": list{nil}}), "token_ids: found nil", "BlockStored"},
		{"pair of three", stored(1, dict{"token_ids": list{list{1, 2, 3}}}), "a list of 3 in place of a pair", "BlockStored"},
		{"pair, then token", stored(1, dict{"token_ids": list{list{1, 2}, 3}}), "in place of a list", "BlockStored"},
		{"block size is text", stored(1, dict{"block_size": "4"}), "block_size: found text", "BlockStored"},
		{"block size is negative", stored(1, dict{"block_size": -4}), "block_size", "BlockStored"},
		{"medium is a number", stored(1, dict{"medium": 1}), "medium", "BlockStored"},
		{"group is text", stored(1, dict{"group_idx": "0"}), "group_idx", "BlockStored"},
		{"extra keys too deep", stored(1, dict{"extra_keys": list{list{list{list{list{list{}}}}}}}), "nested too deep", "BlockStored"},
		{"array, block size is text", list{"BlockStored", list{1}, nil, ids(4), "x"}, "block_size", "BlockStored"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before, after := stored(1, nil), dict{"type": "BlockRemoved", "block_hashes": list{2, 3}, "medium": "GPU"}
			payload := pack(t, batchOf(before, tt.event, after))
			b, err := Decode("", 0, payload)
			if err != nil || len(b.Events) != 3 {
				t.Fatalf("%d events, error %v", len(b.Events), err)
			}
			got := b.Events[1]
			if diff := cmp.Diff([]Event{decodeOne(t, before), decodeOne(t, after)}, []Event{b.Events[0], b.Events[2]}); diff != "" {
				t.Errorf("the neighbours (-want +got)\n%s", diff)
			}
			if want := pack(t, tt.event); !bytes.Equal(got.Raw, want) {
				t.Errorf("Raw %x, want %x", got.Raw, want)
			}
			if got.Name != tt.tag || got.Group != -1 || b.Rank != 0 {
				t.Errorf("Name %q, Group %d, Rank %d", got.Name, got.Group, b.Rank)
			}
			switch {
			case tt.want == "":
				if got.Kind != Unknown || got.Err != nil {
					t.Errorf("%v with error %v, want unknown", got.Kind, got.Err)
				}
			case got.Kind != Bad || got.Err == nil || !strings.Contains(got.Err.Error(), tt.want):
				t.Errorf("%v with error %v, want undecodable with %q", got.Kind, got.Err, tt.want)
			}
		})
	}
}

// TestDecodeCut cuts a payload at every byte: events that were whole before
// the cut stay, and one Bad event stands for the rest.
func TestDecodeCut(t *testing.T) {
	t.Parallel()
	events := list{
		stored(1, dict{"extra_keys": list{list{"a", list{"h", 3}}}}),
		list{"BlockRemoved", list{1, 2}, "GPU", 0},
		dict{"type": "AllBlocksCleared"},
		list{"BlockStored", list{bytes.Repeat([]byte{7}, 32)}, 5, ids(4), 4, nil, "CPU"},
	}
	for _, in := range []any{list{1.5, events, 0}, dict{"events": events, "ts": 1.5}} {
		whole := pack(t, in)
		want, err := Decode("", 0, whole)
		if err != nil {
			t.Fatal(err)
		}
		var ends []int // of each event
		at := bytes.Index(whole, pack(t, events[0]))
		for _, e := range events {
			at += len(pack(t, e))
			ends = append(ends, at)
		}
		for n := range len(whole) {
			got, err := Decode("", 0, whole[:n:n])
			if err != nil {
				if n > ends[0]-len(pack(t, events[0])) || !errors.Is(err, ErrNotBatch) {
					t.Errorf("cut at %d: %v", n, err)
				}
				continue
			}
			kept := 0
			for kept < len(ends) && ends[kept] <= n {
				kept++
			}
			if len(got.Events) != kept+1 {
				t.Fatalf("cut at %d: %d events, want %d and the rest", n, len(got.Events), kept)
			}
			if diff := cmp.Diff(want.Events[:kept], got.Events[:kept], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("cut at %d: (-want +got)\n%s", n, diff)
			}
			rest := got.Events[kept]
			if rest.Kind != Bad || !errors.Is(rest.Err, errShort) || !bytes.HasSuffix(whole[:n], rest.Raw) {
				t.Errorf("cut at %d: the rest is %v, error %v, raw %x", n, rest.Kind, rest.Err, rest.Raw)
			}
		}
	}
}

func TestDecodeHashes(t *testing.T) {
	t.Parallel()
	digest := bytes.Repeat([]byte{0xab}, 32)
	tests := []struct {
		name string
		in   any
		want Handle
		form HandleForm
		text string
	}{
		{"small", 5, Handle{N: 5, Set: true}, FormUnsigned, "0000000000000005"},
		{"zero", 0, Handle{Set: true}, FormUnsigned, "0000000000000000"},
		{"all of 64 bits", uint64(math.MaxUint64), Handle{N: math.MaxUint64, Set: true}, FormUnsigned, "ffffffffffffffff"},
		{"negative", -2, Handle{N: math.MaxUint64 - 1, Set: true}, FormSigned, "fffffffffffffffe"},
		{"lowest", int64(math.MinInt64), Handle{N: 1 << 63, Set: true}, FormSigned, "8000000000000000"},
		{"32 bytes", digest, Handle{N: 0xabababababababab, S: string(digest), Set: true}, FormBytes, strings.Repeat("ab", 32)},
		{"3 bytes", []byte{1, 2, 3}, Handle{N: 0x010203, S: "\x01\x02\x03", Set: true}, FormBytes, "010203"},
		{"digest in hex", strings.Repeat("ab", 32), Handle{N: 0xabababababababab, S: string(digest), Set: true}, FormBytes, strings.Repeat("ab", 32)},
		{"other text", "no hex", Handle{N: 0x6e6f20686578, S: "no hex", Set: true}, FormBytes, "6e6f20686578"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := decodeOne(t, stored(tt.in, dict{"parent_block_hash": tt.in}))
			if e.Err != nil || len(e.Hashes) != 1 || e.Hashes[0] != tt.want || e.Parent != tt.want || e.Form != tt.form {
				t.Errorf("%+v with parent %+v, form %d, error %v; want %+v, form %d", e.Hashes, e.Parent, e.Form, e.Err, tt.want, tt.form)
			}
			if e.Parent.String() != tt.text {
				t.Errorf("written as %s, want %s", e.Parent, tt.text)
			}
		})
	}
}

func TestDecodeTokens(t *testing.T) {
	t.Parallel()
	pair := func(a, b int) list { return list{a, b} }
	tests := []struct {
		name    string
		in      any
		size    int
		want    Event
		aligned bool
	}{
		{"ids", ids(4), 4, Event{Tokens: []Token{0, 1, 2, 3}}, true},
		{
			"every width",
			list{1, 200, 300, 70000, uint64(1 << 33)},
			5,
			Event{Tokens: []Token{1, 200, 300, 70000, 1 << 33}},
			true,
		},
		{"none", list{}, 4, Event{}, false},
		{"nil", nil, 4, Event{}, false},
		{"too few", ids(3), 4, Event{Tokens: []Token{0, 1, 2}}, false},
		{
			"pairs",
			list{pair(7, 8), pair(8, 9), pair(9, 7), pair(7, 7)},
			4,
			Event{Tokens: []Token{7, 8, 9, 7, 7}, Bigram: true},
			true,
		},
		{"pairs that do not overlap", list{pair(7, 8), pair(9, 8)}, 2, Event{Bigram: true, OpaqueTokens: true}, false},
		{"digests among ids", list{1, "9f0c", 3, 4}, 4, Event{OpaqueTokens: true}, false},
		{"no block size", ids(4), 0, Event{Tokens: []Token{0, 1, 2, 3}}, false},
		{"block size beyond all tokens", list{}, math.MaxInt, Event{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := decodeOne(t, stored(1, dict{"token_ids": tt.in, "block_size": tt.size}))
			got := Event{Tokens: e.Tokens, Bigram: e.Bigram, OpaqueTokens: e.OpaqueTokens}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" || e.Err != nil {
				t.Errorf("error %v (-want +got)\n%s", e.Err, diff)
			}
			if e.Aligned() != tt.aligned {
				t.Errorf("Aligned is %v", e.Aligned())
			}
		})
	}
}

// TestAlignedWraps multiplies a block size and hashes to more than 64 bits.
func TestAlignedWraps(t *testing.T) {
	t.Parallel()
	e := decodeOne(t, stored(0, dict{"block_hashes": ids(4), "token_ids": ids(4), "block_size": uint64(1<<62 + 1)}))
	if e.Aligned() || e.Kind != Stored {
		t.Errorf("%v, aligned %v: %d tokens in 4 blocks of %d", e.Kind, e.Aligned(), len(e.Tokens), e.BlockSize)
	}
}

// TestDecodeTail reads what stands behind extra_keys in an array.
func TestDecodeTail(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		tail list
		want Event
	}{
		{"none", nil, Event{Group: -1}},
		{"vLLM 0.20", list{2}, Event{Group: 2}},
		{"vLLM 0.22", list{2, "mamba", 128}, Event{Group: 2, Spec: "mamba", Window: 128}},
		{"vLLM 0.22 without a group", list{nil, "sliding_window", 128}, Event{Group: -1, Spec: "sliding_window", Window: 128}},
		{
			"all",
			list{0, "mamba", nil, "LOCAL", "fs0", "s1", list{list{5, 6}}},
			Event{Spec: "mamba", Locality: "LOCAL", Ownership: "fs0", Session: "s1", Lookahead: [][]Token{{5, 6}}},
		},
		{"beyond all that is known", list{0, nil, nil, nil, nil, nil, nil, "new", list{1}}, Event{UnknownFields: 2}},
		{"unused slots left out", list{"mamba", 3, 64}, Event{Group: 3, Spec: "mamba", Window: 64}},
		{"two numbers", list{3, 64}, Event{Group: 3, Window: 64}},
		{"old multimodal objects in front", list{list{nil}, 3, "mamba", 64}, Event{Group: 3, Spec: "mamba", Window: 64, UnknownFields: 1}},
		{"a third number", list{"mamba", 1, 2, 3}, Event{Group: 1, Spec: "mamba", Window: 2, UnknownFields: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := append(list{"BlockStored", list{1}, nil, ids(4), 4, nil, "GPU", nil, nil}, tt.tail...)
			e := decodeOne(t, in)
			got := Event{
				Group: e.Group, Spec: e.Spec, Window: e.Window, Locality: e.Locality, Ownership: e.Ownership,
				Session: e.Session, Lookahead: e.Lookahead, UnknownFields: e.UnknownFields,
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || e.Kind != Stored || e.Len != len(in) {
				t.Errorf("%v of %d, error %v (-want +got)\n%s", e.Kind, e.Len, e.Err, diff)
			}
		})
	}
}

// TestDecodeOddities reads what only one engine or release sends.
func TestDecodeOddities(t *testing.T) {
	t.Parallel()
	salted := decodeOne(t, list{"BlockStored", list{1}, nil, ids(4), 4, nil, "GPU", dict{"cache_salt": "t9", "new": 1}})
	if salted.Salt != "t9" || salted.LoRAName != "" || salted.UnknownFields != 1 || salted.Kind != Stored ||
		!salted.Fields.Has("cache_salt") || salted.Fields.Has("lora_name") {
		t.Errorf("SGLang's map in an array: %+v", salted)
	}
	stamped := decodeOne(t, list{1.7e9, "BlockRemoved", list{1}, "GPU"})
	if stamped.Kind != Removed || len(stamped.Hashes) != 1 || stamped.UnknownFields != 1 || stamped.Medium != "GPU" {
		t.Errorf("a time in front of the tag: %+v", stamped)
	}
	trt := decodeOne(t, stored(1, dict{"mm_keys": list{list{dict{"type": "mm_key", "hash": "ab", "start_offset": 0}}, list{}}}))
	if trt.MMKeys != 1 || trt.UnknownFields != 0 || trt.Kind != Stored {
		t.Errorf("TensorRT-LLM's mm_keys: %+v", trt)
	}
	cleared := decodeOne(t, list{"AllBlocksCleared", "kvcr"})
	if cleared.Kind != Cleared || cleared.Ownership != "kvcr" {
		t.Errorf("a clear with an owner: %+v", cleared)
	}
	// A field that says neither which block nor where does not spoil the event.
	lenient := decodeOne(t, stored(1, dict{
		"lora_id": "x", "locality": 1, "session_id": list{}, "lookahead_token_ids": 3, "mm_keys": 4, "new": 5,
	}))
	if lenient.Kind != Stored || lenient.UnknownFields != 6 || !lenient.Aligned() {
		t.Errorf("odd optional fields: %+v", lenient)
	}
	keys := decodeOne(t, stored(1, dict{"extra_keys": list{
		list{"lora", list{"hash", -3}, 7, []byte{1}, nil, 1.5}, nil, list{}, "alone",
	}}))
	want := [][]ExtraKey{
		{{Text: "lora"}, {List: []ExtraKey{{Text: "hash"}, {Int: -3, IsInt: true}}}, {Int: 7, IsInt: true}, {Bytes: []byte{1}}, {}, {}},
		nil,
		{},
		{{Text: "alone"}},
	}
	if diff := cmp.Diff(want, keys.Extra); diff != "" || keys.UnknownFields != 2 {
		t.Errorf("extra keys: %d unknown, (-want +got)\n%s", keys.UnknownFields, diff)
	}
}

func TestTierOf(t *testing.T) {
	t.Parallel()
	for medium, want := range map[string]Tier{
		"": Device, "GPU": Device, "gpu": Device, "device": Device,
		"CPU": Host, "cpu": Host, "CPU_PINNED": Host, "cpu_tier1": Host,
		"CPU_TIER2": Disk, "disk": Disk, "NVMe": Disk, "STORAGE": Disk,
		"EXTERNAL": External, "Network": External, "REMOTE": External, "SHARED": External,
	} {
		if got, known := TierOf(medium); got != want || !known {
			t.Errorf("%q is %v, known %v, want %v", medium, got, known, want)
		}
	}
	if got, known := TierOf("FS"); got != External || known {
		t.Errorf("an unknown medium is %v, known %v", got, known)
	}
	e := decodeOne(t, stored(1, dict{"medium": "OBJ"}))
	if e.Tier != External || !e.UnknownMedium || e.Medium != "OBJ" {
		t.Errorf("an unknown medium decodes to %v, unknown %v", e.Tier, e.UnknownMedium)
	}
}

// TestDecoderReuse checks that what a Decoder keeps does not show.
func TestDecoderReuse(t *testing.T) {
	t.Parallel()
	var d Decoder
	for i := range 600 { // more words than it keeps
		payload := pack(t, batchOf(stored(i, dict{"lora_name": fmt.Sprint("adapter-", i%400), "medium": "GPU"})))
		want, err := Decode("", 0, payload)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Decode("", 0, payload)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-fresh +reused)\n%s", diff)
		}
	}
}
