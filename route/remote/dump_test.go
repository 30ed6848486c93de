package remote_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/route/remote"
	"github.com/kvscope/kvscope/wire"
)

// chained are the sequence hashes of blocks with these content hashes, as a sorted
// set.
func chained(locals ...uint64) (out []uint64) {
	parent := uint64(0)
	for i, local := range locals {
		parent = blockhash.Next(parent, local, i == 0)
		out = append(out, parent)
	}
	slices.Sort(out)
	return out
}

func TestDump(t *testing.T) {
	t.Parallel()
	text := golden(t, "dump.json")
	got, err := answering("GET /dump", text).client().Dump(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	// The engines of the recorded fleet call their blocks by their sequence hashes.
	blocks := map[wire.Replica][]uint64{}
	var groups map[string]struct {
		Events []struct {
			Worker uint64 `json:"worker_id"`
			Event  struct {
				Data struct {
					Stored struct {
						Blocks []struct {
							Handle uint64 `json:"block_hash"`
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &groups); err != nil {
		t.Fatal(err)
	}
	for _, e := range groups["qwen3-mock:default"].Events {
		name := wire.Replica(fmt.Sprintf("%d/0", e.Worker))
		for _, b := range e.Event.Data.Stored.Blocks {
			blocks[name] = append(blocks[name], b.Handle)
		}
		slices.Sort(blocks[name])
	}
	want := []remote.Holding{
		{Model: "qwen3-mock", Group: "default", BlockSize: 16, Replica: first, Blocks: [wire.NumTiers][]uint64{blocks[first]}},
		{Model: "qwen3-mock", Group: "default", BlockSize: 16, Replica: second, Blocks: [wire.NumTiers][]uint64{blocks[second]}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("holdings (-want +got):\n%s", d)
	}
	if len(blocks[first]) != 6 || len(blocks[second]) != 4 {
		t.Errorf("%d and %d blocks", len(blocks[first]), len(blocks[second]))
	}
}

// event is one of a dump, by the engine's hashes of blocks and what they hold.
func event(tier, parent, blocks string) string {
	return `{"worker_id":7,"storage_tier":"` + tier + `","event":{"dp_rank":1,"data":{"stored":{"parent_hash":` + parent + `,"blocks":[` + blocks + `]}}}}`
}

func TestDumpTiers(t *testing.T) {
	t.Parallel()
	events := strings.Join([]string{
		event("device", "null", `{"block_hash":1,"tokens_hash":11},{"block_hash":2,"tokens_hash":12}`),
		event("host_pinned", "2", `{"block_hash":3,"tokens_hash":13}`), // goes on on another tier
		event("disk", "null", `{"block_hash":1,"tokens_hash":11}`),
		event("disk", "null", `{"block_hash":1,"tokens_hash":11}`), // twice is once
		event("device", "9", `{"block_hash":4,"tokens_hash":14}`),  // of nobody
	}, ",")
	all := chained(11, 12, 13)
	third := slices.DeleteFunc(slices.Clone(all), func(s uint64) bool { return slices.Contains(chained(11, 12), s) })
	want := remote.Holding{
		Model: "a:b", Group: "g", BlockSize: 4, Replica: "7/1",
		Blocks: [wire.NumTiers][]uint64{chained(11, 12), third, chained(11)}, Unplaced: 1,
	}
	got, err := answering("GET /dump", `{"a:b:g":{"events":[`+events+`],"later":{"x":[1]},"block_size":4},"z:g":{"block_size":8,"events":[]}}`).
		client().Dump(t.Context(), host)
	if d := cmp.Diff([]remote.Holding{want}, got); d != "" || err != nil {
		t.Errorf("error %v, holdings (-want +got):\n%s", err, d)
	}
	// The events alone, as the binding gives them, from a file.
	want.Model, want.Group, want.BlockSize = "", "", 0
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte("[" + events + "]")) // a buffer takes all
	_ = z.Close()
	for _, r := range []io.Reader{strings.NewReader("[" + events + "]"), &zipped} {
		got, err := remote.ReadDump(r, "x")
		if d := cmp.Diff([]remote.Holding{want}, got); d != "" || err != nil {
			t.Errorf("error %v, holdings (-want +got):\n%s", err, d)
		}
	}
}

func TestDumpDamaged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "router dump x: the dump is cut off or not of the form known"},
		{"a number", "7", "not of the form known"},
		{"two in one", "[][]", "not of the form known"},
		{"something behind it", "[] and more", "not of the form known"},
		{"a size that is none", `{"m:g":{"block_size":-1,"events":[]}}`, "router dump x: a number in it is no count of tokens, blocks"},
		{"cut off", "[" + event("device", "null", ""), "the dump is cut off"},
		{"a cut archive", "\x1f\x8b\x08", "router dump x: "},
		{"another list", `["a"]`, "not of the form known"},
		{"a hash that is none", "[" + event("device", "-1", "") + "]", "not of the form known"},
		{"an unknown tier", "[" + event("tape", "null", "") + "]", `"tape", which is no tier known`},
		{"an event without end", "", "an event of more than 67108864 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if strings.HasSuffix(tt.name, "without end") {
				if testing.Short() {
					t.Skip("it is 64 MB, slow under the race detector")
				}
				tt.text = `[{"a":"` + strings.Repeat("x", 65<<20)
			}
			got, err := remote.ReadDump(strings.NewReader(tt.text), "x")
			if err == nil || !strings.Contains(err.Error(), tt.want) || got != nil {
				t.Errorf("%d holdings, error %v, want %q in it", len(got), err, tt.want)
			}
		})
	}
}

func FuzzDump(f *testing.F) {
	f.Add([]byte(golden(f, "dump.json")))
	f.Add([]byte("[" + event("device", "null", `{"block_hash":1,"tokens_hash":11}`) + "]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _ := remote.ReadDump(bytes.NewReader(text), "x") // an error is fine
		for _, h := range all {
			for _, blocks := range h.Blocks {
				if !slices.IsSorted(blocks) || len(slices.Compact(slices.Clone(blocks))) != len(blocks) {
					t.Errorf("%s: %v is no sorted set", h.Replica, blocks)
				}
			}
		}
	})
}
