package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// The tests of this file have their expectations from real engines.

// TestEngineHashes has the hashes that vLLM itself computed.
func TestEngineHashes(t *testing.T) {
	t.Parallel()
	type set struct {
		Algo  string
		Seed  string `json:"none_hash_seed"`
		Cases []struct {
			Blocks []struct {
				Tokens []wire.Token `json:"token_ids"`
				Extra  any          `json:"extra_keys"`
				Hash   string       `json:"wire_int"`
			}
		}
	}
	checked := 0
	refdata.Each(t, "../blockhash/testdata/vllm/golden_hashes.jsonl.gz", func(_ int, s set) {
		if s.Algo != "sha256" || s.Seed == "" {
			return
		}
	cases:
		for _, c := range s.Cases {
			var prompt []wire.Token
			var want []string
			for _, b := range c.Blocks {
				if b.Extra != nil {
					continue cases // the engine has no such requests
				}
				prompt = append(prompt, b.Tokens...)
				want = append(want, b.Hash)
			}
			e := newEngine(t, EngineOptions{BlockSize: len(c.Blocks[0].Tokens), Seed: s.Seed})
			submit(t, e, Job{Prompt: prompt, Output: tokens(0, 1)})
			events, _ := e.Step()
			var got []string
			for _, h := range events[0].Hashes {
				got = append(got, strconv.FormatUint(h.N, 10))
			}
			if !slices.Equal(got, want) {
				t.Errorf("hashes %v, want %v", got, want)
			}
			checked++
		}
	})
	if checked == 0 {
		t.Error("no chain was checked")
	}
}

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	r, err := fixtures.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestAppendBatch encodes the batches of real engines again, to the same bytes.
func TestAppendBatch(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a_fleet", "c_reset", "d_restart"} {
		n := 0
		for line := range bytes.Lines(fixture(t, name+"/events.jsonl.gz")) {
			var rec struct{ Frames [][]byte }
			if err := json.Unmarshal(line, &rec); err != nil {
				t.Fatal(err)
			}
			if rec.Frames == nil {
				continue
			}
			b, err := wire.Decode("", 0, rec.Frames[2])
			if err != nil {
				t.Fatal(err)
			}
			got := AppendBatch(nil, b.Engine, b.Events, b.Rank)
			if !bytes.Equal(got, rec.Frames[2]) {
				t.Fatalf("%s, batch %d:\n%x, want\n%x", name, n, got, rec.Frames[2])
			}
			n++
		}
		if n == 0 {
			t.Errorf("%s has no batch", name)
		}
	}
}

// TestRealFleet serves the requests that were sent to real engines, and holds
// what was cached against what they answered. A request begins here only after
// all those have ended that had ended there; how the others interleave is not
// known, so a few may differ.
func TestRealFleet(t *testing.T) {
	t.Parallel()
	const atOnce = 0.02 // seconds
	type row struct {
		Kind, Replica string
		Status        int
		Start         float64 `json:"t_start"`
		End           float64 `json:"t_end"`
		Response      struct {
			Prompt  []wire.Token `json:"prompt_token_ids"`
			Choices []struct {
				Prompt []wire.Token `json:"prompt_token_ids"`
				Tokens []wire.Token `json:"token_ids"`
			}
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
	}
	var rows []row
	for line := range bytes.Lines(fixture(t, "a_fleet/truth.jsonl.gz")) {
		var r row
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r.Status == 200 && (r.Kind == "chat" || r.Kind == "completion") {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.Start, b.Start) })

	engines, open := map[string]*Engine{}, map[string]map[int]bool{}
	cached := make([]int, len(rows))
	step := func(name string) {
		_, served := engines[name].Step()
		for _, s := range served {
			delete(open[name], s.ID)
			cached[s.ID] = s.Cached
		}
	}
	byReplica := map[string][]int{}
	for id, r := range rows {
		e := engines[r.Replica]
		if e == nil {
			e = newEngine(t, EngineOptions{Blocks: 199, BlockSize: 32})
			engines[r.Replica], open[r.Replica] = e, map[int]bool{}
		}
		ended := func(id int) bool { return rows[id].End < r.Start }
		for slices.ContainsFunc(slices.Collect(maps.Keys(open[r.Replica])), ended) {
			step(r.Replica)
		}
		c := r.Response.Choices[0]
		prompt := r.Response.Prompt
		if prompt == nil {
			prompt = c.Prompt
		}
		submit(t, e, Job{Prompt: prompt, Output: c.Tokens, ID: id})
		open[r.Replica][id] = true
		byReplica[r.Replica] = append(byReplica[r.Replica], id)
	}
	for name := range engines {
		for len(open[name]) > 0 {
			step(name)
		}
	}
	checked := 0
	for name, ids := range byReplica {
		for len(ids) > 0 {
			n := 1
			for n < len(ids) && rows[ids[n]].Start-rows[ids[n-1]].Start < atOnce {
				n++
			}
			var got, want []int
			for _, id := range ids[:n] {
				got, want = append(got, cached[id]), append(want, rows[id].Response.Usage.Details.Cached)
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s, requests %v: %v tokens cached, and vLLM had %v", name, ids[:n], got, want)
			}
			checked += n
			ids = ids[n:]
		}
	}
	if checked != 319 {
		t.Errorf("%d requests, want 319", checked)
	}
}
