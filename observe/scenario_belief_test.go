package observe

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// configured is Dynamo's default policy with flags.
func configured(flags ...string) *diagnose.Router {
	p, err := route.Named("dynamo")
	if err != nil {
		panic(err)
	}
	var src route.Sources
	if src.Flags, err = p.FromFlags(flags); err != nil {
		panic(err)
	}
	cfg, err := p.Configure(src)
	if err != nil {
		panic(err)
	}
	return &diagnose.Router{Config: cfg}
}

// group is a KV-cache group's part of a stored event.
func group(id int, kind string, window any) map[string]any {
	return map[string]any{"group_idx": id, "kv_cache_spec_kind": kind, "kv_cache_spec_sliding_window": window}
}

// run is n hashes in a row.
func records(from, n int) []uint64 {
	var out []uint64
	for i := range n {
		out = append(out, h(uint64(from+i)))
	}
	return out
}

// alone is a replica's batches, a second apart, with a metrics page before them and
// an empty batch behind.
func alone(t *testing.T, batches ...[]any) []wire.Record {
	rec, _ := page(1, r1, wire.Facts{})
	out := []wire.Record{rec}
	for i, events := range batches {
		out = append(out, frame(t, 2+float64(i), r1, uint64(i), events...))
	}
	return append(out, frame(t, 4+float64(len(batches)), r1, uint64(len(batches))))
}

// behind makes a store go on from a block.
func behind(parent uint64, e map[string]any) map[string]any {
	e["parent_block_hash"] = parent
	return e
}

// tiered is a store on the device, and the same block on another tier.
func tiered(t *testing.T, more map[string]any) []wire.Record {
	return alone(t, []any{mapped(16, 1, records(1, 1), nil), mapped(16, 1, records(1, 1), more)})
}

// sliding is a hybrid model whose window's blocks are gone when a prompt comes again.
func sliding(t *testing.T, comesAgain bool) []wire.Record {
	again := []any{mapped(16, 3, records(200, 40), group(0, "full_attention", nil))}
	if comesAgain {
		again = []any{mapped(16, 1, records(100, 40), group(0, "full_attention", nil))}
	}
	tail := group(1, "sliding_window", 64)
	tail["block_hashes"] = records(136, 4)
	return alone(t,
		[]any{mapped(16, 1, records(100, 40), group(0, "full_attention", nil)), mapped(16, 1, records(100, 40), tail)},
		[]any{map[string]any{"type": "BlockRemoved", "block_hashes": records(136, 4), "medium": "GPU", "group_idx": 1}},
		again)
}

var beliefScenarios = []scenario{
	{
		code: "tier-granularity", name: "placeholders",
		fault: func(t *testing.T) []wire.Record {
			return tiered(t, map[string]any{"medium": "CPU", "token_ids": []uint64{}, "block_size": 0})
		},
		twin: func(t *testing.T) []wire.Record { return tiered(t, map[string]any{"medium": "CPU"}) },
		want: titled(diagnose.Warning, "1 of 1 block announced for the host tier come without tokens"),
	},
	{
		code: "tier-granularity", name: "a medium nobody knows",
		fault: func(t *testing.T) []wire.Record { return tiered(t, map[string]any{"medium": "CXL"}) },
		twin:  func(t *testing.T) []wire.Record { return tiered(t, map[string]any{"medium": "CPU_PINNED"}) },
		want:  titled(diagnose.Warning, "1 block announced for the medium CXL"),
	},
	{
		code: "tier-granularity", name: "larger blocks below",
		fault: func(t *testing.T) []wire.Record {
			return alone(t, []any{mapped(16, 1, records(1, 1), nil), mapped(256, 1, records(2, 1), map[string]any{"medium": "CPU"})})
		},
		twin: func(t *testing.T) []wire.Record {
			return alone(t, []any{mapped(16, 1, records(1, 1), nil), mapped(16, 1, records(2, 1), map[string]any{"medium": "CPU"})})
		},
		want: titled(diagnose.Info, "blocks of the host tier have 256 tokens, those of the device 16"),
	},
	{ // pains P46
		code: "hybrid-overprediction", name: "P46 one dense group of four",
		fault: func(t *testing.T) []wire.Record {
			events := []any{mapped(16, 1, records(1, 5), group(3, "mla_attention", nil))}
			for id := range 3 {
				one := group(id, "mamba", nil)
				one["block_hashes"] = records(5, 1)
				events = append(events, mapped(16, 1, records(1, 5), one))
			}
			return alone(t, events)
		},
		twin: func(t *testing.T) []wire.Record {
			return alone(t, []any{mapped(16, 1, records(1, 5), group(0, "mla_attention", nil))})
		},
		want: titled(diagnose.Info, "1 group for prefixes (mla_attention), 3 that need a part of it (mamba)"),
	},
	{
		code: "hybrid-overprediction", name: "the window's blocks are gone",
		fault: func(t *testing.T) []wire.Record { return sliding(t, true) },
		twin: func(t *testing.T) []wire.Record {
			return alone(t, []any{mapped(16, 1, records(100, 40), nil)}, []any{mapped(16, 1, records(100, 40), nil)})
		},
		want: titled(diagnose.Warning, "40 blocks that full attention still had were computed anew", "50 % of what was stored", "sliding_window of 64 tokens"),
	},
	{
		code: "phantom-hit", name: "removals that were lost",
		fault: func(t *testing.T) []wire.Record { return returning(t, false) },
		twin:  func(t *testing.T) []wire.Record { return returning(t, true) },
		want:  titled(diagnose.Warning, "40 blocks that the index calls resident were computed anew", "49 %"),
	},
	{ // the failure table: it degrades after an incident and never recovers
		code: "phantom-hit", name: "an incident that lost a batch of removals",
		fault: func(t *testing.T) []wire.Record { return slices.Delete(returning(t, true), 2, 3) },
		twin:  func(t *testing.T) []wire.Record { return returning(t, true) },
		want:  titled(diagnose.Warning, "40 blocks that the index calls resident were computed anew"),
	},
	{ // pains P53
		code: "ghost-miss", name: "P53 no dense group", load: wire.Load{Known: true, QueriedTokens: 1131},
		fault: func(t *testing.T) []wire.Record {
			return alone(t, []any{mapped(16, 1, records(1, 1), group(0, "mamba", nil))})
		},
		twin: func(t *testing.T) []wire.Record {
			return alone(t, []any{mapped(16, 1, records(1, 1), group(0, "mamba", nil)), mapped(16, 1, records(1, 1), group(1, "full_attention", nil))})
		},
		want: titled(diagnose.Warning, "0 of 1 131 prompt tokens were cache hits", "mamba"),
	},
	{
		code: "deprecated-knob", name: "a weight that lost its meaning",
		router: configured("--router-kv-overlap-score-weight", "0.4"), twinRouter: configured("--router-host-cache-hit-weight", "0.4"),
		fault: func(t *testing.T) []wire.Record { return alone(t) },
		twin:  func(t *testing.T) []wire.Record { return alone(t) },
		want:  titled(diagnose.Warning, "--router-kv-overlap-score-weight=0.4 does not weigh overlap any more: it overwrites prefill_load_scale"),
	},
	{
		code: "deprecated-knob", name: "a flag that moves to the file",
		router: configured("--router-kv-overlap-score-credit", "0.4"), twinRouter: configured("--router-temperature", "0.4"),
		fault: func(t *testing.T) []wire.Record { return alone(t) },
		twin:  func(t *testing.T) []wire.Record { return alone(t) },
		want:  titled(diagnose.Info, "from 1.7 on taken from the policy file alone: --router-kv-overlap-score-credit"),
	},
	{
		code: "unsupported-shape", name: "byte hashes before a Dynamo router", router: configured(), twinRouter: configured(),
		fault: func(t *testing.T) []wire.Record {
			return alone(t, []any{mapped(16, 1, records(1, 1), map[string]any{"block_hashes": []any{make([]byte, 32)}})})
		},
		twin: func(t *testing.T) []wire.Record { return alone(t, []any{mapped(16, 1, records(1, 1), nil)}) },
		want: titled(diagnose.Warning, "Dynamo's relay cannot read 1 of 1 batch looked at"),
	},
	{ // pains P55
		code: "index-growth", name: "P55 the router's index grows without bound",
		fault: func(t *testing.T) []wire.Record { return diverse(t, true) },
		twin:  func(t *testing.T) []wire.Record { return diverse(t, false) },
		want:  titled(diagnose.Info, "120 000 different blocks were stored so far and 10 000 are resident", "92 % of it"),
	},
}

// returning is a chain of 41 blocks that is evicted but for its first, which is told
// or lost, and computed anew.
func returning(t *testing.T, told bool) []wire.Record {
	gone := []any{map[string]any{"type": "BlockRemoved", "block_hashes": records(101, 40), "medium": "GPU"}}
	if !told {
		gone = nil
	}
	return alone(t, []any{mapped(16, 1, records(100, 41), nil)}, gone, []any{behind(h(100), mapped(16, 2, records(101, 40), nil))})
}

// diverse stores 120,000 blocks, of which 10,000 stay or all.
func diverse(t *testing.T, evict bool) []wire.Record {
	var out []wire.Record
	for i := range uint64(12) {
		hashes := records(int(1+i*10000), 10000)
		out = append(out, frame(t, 1+float64(10*i), r1, 2*i, mapped(1, 1000*(1+i), hashes, nil)))
		var gone []any
		if evict && i < 11 {
			gone = []any{map[string]any{"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"}}
		}
		out = append(out, frame(t, 2+float64(10*i), r1, 2*i+1, gone...))
	}
	return append(out, frame(t, 200, r1, 24), frame(t, 300, r1, 25))
}

// TestOurIndexIsFull: what is left out of kvscope's own index is said.
func TestOurIndexIsFull(t *testing.T) {
	t.Parallel()
	for blocks, want := range map[int]bool{4: true, 64: false} {
		o := New(Options{Index: index.Options{MaxBlocks: blocks}})
		o.Push(frame(t, 1, r1, 0, mapped(4, 1, records(1, 8), nil)))
		for i := range uint64(80) {
			o.Push(frame(t, 2+float64(i), r1, 1+i))
		}
		found := ""
		for _, f := range o.Snapshot().Findings {
			if f.Code == "index-growth" {
				found = f.Title
			}
		}
		if (found == "kvscope's own index is full: 4 of 4 blocks are resident, 4 blocks left out") != want || !want && found != "" {
			t.Errorf("at most %d blocks: %q", blocks, found)
		}
	}
}

// TestAuditFindings: an index that promises what the engine does not have, and one
// that knows less, as a requests log shows it.
func TestAuditFindings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		cached int
		code   string
		title  string
	}{
		{"phantoms", 0, "phantom-hit", "4 of 4 requests reused fewer tokens than the index promised, by 128 in sum"},
		{"right", 32, "", ""},
		{"ghosts", 48, "ghost-miss", "4 of 4 requests reused more tokens than the index knew of, by 64 in sum"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var tokens []wire.Token
			for i := range 64 {
				tokens = append(tokens, wire.Token(1000+i))
			}
			var asked []explain.Request
			for i := range 4 {
				at := wire.Time(2e9 + i*1e9)
				asked = append(asked, explain.Request{Replica: "r1", Start: at, End: at + 5e8, Tokens: tokens, Known: true, Cached: tt.cached})
			}
			o := New(Options{Requests: asked})
			o.Push(frame(t, 1, r1, 0, mapped(16, 1, records(1, 2), nil)))
			o.Push(frame(t, 9, r1, 1))
			o.Audit()
			found := ""
			for _, f := range o.Snapshot().Findings {
				if f.Severity >= diagnose.Warning {
					found += f.Code + ": " + f.Title
				}
			}
			want := ""
			if tt.code != "" {
				want = fmt.Sprintf("%s: %s", tt.code, tt.title)
			}
			if found != want {
				t.Errorf("%q, want %q", found, want)
			}
		})
	}
}
