package blockhash

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/kvscope/kvscope/refdata"
)

type vllmSet struct {
	Algo     string `json:"algo"`
	Seed     string `json:"none_hash_seed"`
	NoneHash string `json:"none_hash_hex"`
	Cases    []struct {
		Name   string      `json:"name"`
		Blocks []vllmBlock `json:"blocks"`
	} `json:"cases"`
}

type vllmBlock struct {
	Tokens     []uint64  `json:"token_ids"`
	Extra      []jsonKey `json:"extra_keys"`
	Serialized string    `json:"serialized_hex"`
	Digest     string    `json:"digest_hex"`
	WireInt    string    `json:"wire_int"`
}

// jsonKey reads a hashed extra key: text, an integer, {"bytes_hex"} or a list.
type jsonKey struct{ Value }

var tags = map[string]bool{"lora": true, "mm": true, "cache_salt": true, "prompt_embeds": true}

func (k *jsonKey) UnmarshalJSON(b []byte) error {
	var v struct {
		Hex string `json:"bytes_hex"`
	}
	var list []jsonKey
	var text string
	var n int64
	switch {
	case json.Unmarshal(b, &text) == nil:
		k.Value = Text(text)
	case json.Unmarshal(b, &n) == nil:
		k.Value = Int(n)
	case json.Unmarshal(b, &v) == nil:
		raw, err := hex.DecodeString(v.Hex)
		k.Value = Bytes(raw)
		return err
	case json.Unmarshal(b, &list) == nil:
		elems := values(list)
		if len(elems) > 0 && tags[elems[0].text] {
			elems[0] = tag(elems[0].text)
		}
		k.Value = Tuple(elems...)
	default:
		return fmt.Errorf("extra key %s", b)
	}
	return nil
}

func values(keys []jsonKey) []Value {
	var v []Value
	for _, k := range keys {
		v = append(v, k.Value)
	}
	return v
}

// published takes hashed extra keys back to what events show, and the context
// and form that lead from there to the hashed ones.
func published(blocks []vllmBlock) (Run[uint64], Form) {
	run := Run[uint64]{BlockSize: len(blocks[0].Tokens)}
	form := AnyForm
	for _, b := range blocks {
		run.Tokens = append(run.Tokens, b.Tokens...)
		var keys []Value
		for _, v := range values(b.Extra) {
			form = max(form, Bare)
			switch {
			case v.kind == intValue:
				form = BareID
				run.LoRAID = &v.n
				continue
			case v.kind != tupleValue || v.list[0].kind != tagValue:
			case v.list[0].text == "mm":
				form = Tagged
				v = Tuple(v.list[1:]...)
			case v.list[0].text == "lora":
				run.LoRA, run.LoRAPath = v.list[1].text, v.list[2].text
				fallthrough
			default:
				form = Tagged
				v = v.list[1]
			}
			keys = append(keys, v)
		}
		run.Extra = append(run.Extra, keys)
	}
	return run, form
}

func testVLLM(t *testing.T, dir string) {
	var sets, cases, blocks int
	eachLine(t, filepath.Join(dir, "vllm", "golden_hashes*.jsonl.gz"), func(file string, set vllmSet) {
		sets++
		name := "vllm/" + set.Algo + seedWord + set.Seed
		r, ok := Named(name)
		if !ok || r.Name() != name {
			t.Fatalf("%s: no recipe %q", file, name)
		}
		if got := r.Root().String(); got != set.NoneHash {
			t.Errorf("%s: root %s, want %s", name, got, set.NoneHash)
		}
		for _, c := range set.Cases {
			cases++
			blocks += len(c.Blocks)
			name := name + " " + c.Name
			checkSerialized(t, name, r, c.Blocks)
			checkChain(t, name, r, set.Seed, c.Blocks)
		}
	})
	t.Logf("compared %d sets, %d cases, %d blocks: serialized bytes, digests, wire integers", sets, cases, blocks)
}

var vllmHashes = map[string]vllmHash{
	"vllm/sha256":      {pickled, sumSHA256},
	"vllm/sha256_cbor": {cbored, sumSHA256},
	"vllm/xxhash":      {pickled, sumXXH128},
	"vllm/xxhash_cbor": {cbored, sumXXH128},
}

// checkSerialized hashes the extra keys as the engine had them.
func checkSerialized(t *testing.T, name string, r Recipe, blocks []vllmBlock) {
	h := vllmHashes[r.alg.name]
	w := work{parent: r.Root()}
	for i, b := range blocks {
		w.tokens, w.keys = b.Tokens, values(b.Extra)
		got := vllmEncode(h.encoding(&w), nil, &w)
		want, err := hex.DecodeString(b.Serialized)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s block %d: serialized\n%x, want\n%x", name, i, got, want)
		}
		w.parent = h.sum(got)
		if got := w.parent.String(); got != b.Digest {
			t.Errorf("%s block %d: digest %s, want %s", name, i, got, b.Digest)
		}
	}
}

// checkChain goes the way of an event: published extra keys, then the recipe.
func checkChain(t *testing.T, name string, r Recipe, seed string, blocks []vllmBlock) {
	run, form := published(blocks)
	r.Form = form
	links, err := Chain(r, Digest{}, run)
	if err != nil || len(links) != len(blocks) {
		t.Errorf("%s: %d links, want %d: %v", name, len(links), len(blocks), err)
		return
	}
	store := Store[uint64]{Run: run}
	for i, l := range links {
		wire, err := strconv.ParseUint(blocks[i].WireInt, 10, 64)
		if err != nil || l.Handle != wire || l.Digest.String() != blocks[i].Digest {
			t.Errorf("%s block %d: handle %d digest %s, want %s %s", name, i, l.Handle, l.Digest, blocks[i].WireInt, blocks[i].Digest)
		}
		store.Handles = append(store.Handles, wire)
	}
	if got, ok := Identify(store, seed); !ok || got != r {
		t.Errorf("%s: integer hashes identified as %q form %v, want form %v", name, got.Name(), got.Form, form)
	}
	for _, b := range blocks {
		raw, _ := hex.DecodeString(b.Digest)
		store.Bytes = append(store.Bytes, string(raw))
	}
	if got, ok := Identify(store, seed); !ok || got != r {
		t.Errorf("%s: byte hashes identified as %q form %v, want form %v", name, got.Name(), got.Form, form)
	}
}

func TestVLLM(t *testing.T) {
	t.Parallel()
	testVLLM(t, "testdata")
}

func TestOracleVLLM(t *testing.T) {
	t.Parallel()
	testVLLM(t, refdata.Root(t))
}
