package blockhash

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/kvscope/kvscope/refdata"
)

type llmdLine struct {
	Kind   string   `json:"kind"`
	Size   int      `json:"block_size"`
	Model  string   `json:"model"`
	Seed   string   `json:"seed"`
	Extra  string   `json:"extra"` // of the second block, as JSON
	Parent uint64   `json:"parent_u64,string"`
	Tokens []uint32 `json:"tokens"`
	Keys   []string `json:"keys_u64"`
}

func TestLLMDKeys(t *testing.T)       { t.Parallel(); checkLLMDKeys(t, "testdata") }
func TestOracleLLMDKeys(t *testing.T) { t.Parallel(); checkLLMDKeys(t, refdata.Root(t)) }

func checkLLMDKeys(t *testing.T, root string) {
	t.Helper()
	rows, keys := map[string]int{}, 0
	eachLine(t, filepath.Join(root, "llm-d", "block_keys*.jsonl.gz"), func(_ string, l llmdLine) {
		parent := l.Parent
		if l.Kind != "chain_from_parent" {
			parent = LLMDRoot(l.Seed, l.Model)
		}
		var objects [][]string
		if l.Extra != "" {
			var extra struct{ MMHashes []struct{ Hash string } }
			if err := json.Unmarshal([]byte(l.Extra), &extra); err != nil {
				t.Fatal(err)
			}
			objects = [][]string{nil, {}}
			for _, mm := range extra.MMHashes {
				objects[1] = append(objects[1], mm.Hash)
			}
		}
		var got []string
		for _, key := range LLMDKeys(parent, l.Tokens, l.Size, objects) {
			got = append(got, strconv.FormatUint(key, 10))
		}
		if !slices.Equal(got, l.Keys) {
			t.Errorf("%s, block size %d, %d tokens: %v, want %v", l.Kind, l.Size, len(l.Tokens), got, l.Keys)
		}
		rows[l.Kind]++
		keys += len(got)
	})
	t.Logf("rows %v, %d keys equal", rows, keys)
}

// TestLLMDEncoding holds the bytes that are hashed against another CBOR library,
// where the rows have none: ids of all widths, several objects, long names.
func TestLLMDEncoding(t *testing.T) {
	t.Parallel()
	mode, err := cbor.CanonicalEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	sum := func(v ...any) uint64 {
		b, err := mode.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		h := fnv.New64a()
		_, _ = bytes.NewReader(b).WriteTo(h)
		return h.Sum64()
	}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte("7"))
	name := strings.Repeat("é", 200)
	root := LLMDRoot("7", name)
	if want := sum(seed.Sum64(), nil, name); root != want {
		t.Errorf("root %d, want %d", root, want)
	}
	tokens := []uint32{0, 23, 24, 255, 256, 65535, 65536, 1<<32 - 1, 5}
	got := LLMDKeys(root, tokens, 4, [][]string{{"a", "b"}, {}})
	type object struct{ Hash string }
	first := sum(root, tokens[:4], []object{{"a"}, {"b"}})
	if want := []uint64{first, sum(first, tokens[4:8], []object{})}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
