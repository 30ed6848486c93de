package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// decided makes an answer about replicas of which the first has hostile names.
func decided(t *testing.T, n int, edits ...explain.Edit) *explain.Answer {
	t.Helper()
	p, err := route.Named("dynamo")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := p.Configure(route.Sources{Set: []route.Setting{{Name: "decode_active_request_weight", Value: "1", Origin: "a\x1b[2Jfile"}}})
	if err != nil {
		t.Fatal(err)
	}
	f := explain.Fleet{Now: 20e9, Index: index.New(index.Options{}), Loads: explain.NewLoads()}
	tokens := make([]wire.Token, 40)
	for i := range n {
		name := wire.Replica(fmt.Sprintf("r%02d\x1b[31m", i))
		e := wire.Event{Kind: wire.Stored, BlockSize: 16, Group: -1, Hashes: []wire.Handle{wire.IntHandle(1)}, Tokens: tokens[:16]}
		f.Index.Apply(name, &e, false)
		f.Replicas = append(f.Replicas, explain.Replica{
			Name: name, Trust: explain.Trust{Words: "DEGRADED(late-join)"}, Capacity: 100,
			Load: wire.Load{Known: true, At: 1e9, Running: float64(i)},
		})
	}
	asked := slices.Clone(tokens)
	asked[35] = 9
	a, err := explain.Candidates(f, explain.Query{Tokens: asked, Config: &cfg, PrefillRate: 1000, Edits: edits})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestExplainText(t *testing.T) {
	t.Parallel()
	show := func(a *explain.Answer, damage string) string {
		t.Helper()
		var b bytes.Buffer
		if err := ExplainText(&b, a, &prompt.Prompt{}, damage); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsRune(b.String(), 0x1b) {
			t.Errorf("an escape: %q", b.String())
		}
		return b.String()
	}
	got := show(decided(t, 25), "cut off")
	for _, want := range []string{
		"INCOMPLETE: cut off\nIt goes to r00?[31m, before r01?[31m by active_request_cost_blocks (1).\n",
		"A prompt of 40 tokens, 2 full blocks of 16, by the policy dynamo",
		"active_request_cost_blocks ◂", "~16", "24 ms", "stale", "… and 5 more (--json lists all)",
		"Equal for all, so it cancels: prompt_blocks 2.5, device_overlap_credit -1, new_decode_blocks 2.",
		" and 17 more: load stale, from the engine's metrics; nobody tells active_prefill_tokens, which counts as 0; it is 19 s old",
		"--set r00?[31m:active_prefill_tokens=17", "It leaves all stored chains in block 1 at token 16 (both from 0): no chain goes on from there. From there on no cache has it (1 full block).",
		"decode_active_request_weight 1 (a?[2Jfile)", "note: the load of 25 candidates is stale",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	hostile := decided(t, 1)
	hostile.Notes = append(hostile.Notes, "a template says \x1b[31mno\nyes")
	hostile.Divergence = &explain.Divergence{
		Parting: index.Parting{Token: 7, Replica: "a", Known: true, Foreign: true, Asked: []wire.Token{1}},
		Diff:    &diff.Diff{Relation: diff.Unrelated, A: diff.Place{Byte: -1}, B: diff.Place{Byte: -1}},
	}
	got = show(hostile, "")
	if !strings.Contains(got, "note: a template says ?[31mno yes\n") || strings.Contains(got, "differs  ") ||
		!strings.Contains(got, "What follows has too little in common") ||
		!strings.Contains(got, "token 7 (both from 0): a holds the chain that runs alongside it longest, but under another cache salt or LoRA (--salt, --lora).") {
		t.Error(got)
	}
	if got := show(decided(t, 1), ""); !strings.HasPrefix(got, "It goes to r00?[31m, it alone is eligible.\n") {
		t.Error(got)
	}
	if got := show(decided(t, 2, explain.Edit{Key: "r01\x1b[31m:active_requests", Value: "0"}), ""); !strings.HasPrefix(got, "It goes to any of r00?[31m, r01?[31m, which tie: all that are eligible are equal.\n") {
		t.Error(got)
	}
	if got := show(decided(t, 2, explain.Edit{Key: "router_temperature", Value: "1"}), ""); !strings.HasPrefix(got, "It is drawn, most likely to go to r00?[31m, before r01?[31m by ") {
		t.Error(got)
	}
	unlike := decided(t, 2)
	unlike.Unlike, unlike.Divergence = true, nil
	if got := show(unlike, ""); !strings.Contains(got, "No candidate has blocks of 16 tokens") || strings.Contains(got, "stored as one chain") {
		t.Error(got)
	}
	out := decided(t, 2)
	for i := range out.Candidates {
		out.Candidates[i].Scored = route.Scored{Replica: out.Candidates[i].Replica, Out: "overloaded"}
	}
	out.Choice, out.Best, out.Why = nil, nil, "no candidate is eligible"
	if got := show(out, ""); !strings.HasPrefix(got, "It goes nowhere: no candidate is eligible.\n") || !strings.Contains(got, "r00?[31m, r01?[31m: overloaded") {
		t.Error(got)
	}
}

// TestExplainAsked: what routers said is for people without escapes, and an error
// has its place.
func TestExplainAsked(t *testing.T) {
	t.Parallel()
	a := decided(t, 2)
	a.Asked = []explain.Asked{
		{Who: "router", At: "http://a\x1b[2J", Choice: "r00", Why: "they chose r00, here r01", Differences: []explain.AskedDifference{{What: "event", Text: "one came"}}},
		{Who: "indexer", At: "http://b", Agrees: true, Said: "tokens held: 3\x1b[2J", Why: "the same"},
		{Who: "trace", At: "t.jsonl", Err: "no \x1b[2Jsuch file"},
	}
	var b bytes.Buffer
	if err := ExplainText(&b, a, &prompt.Prompt{}, ""); err != nil {
		t.Fatal(err)
	}
	want := "What was asked of routers:\n" +
		"  router http://a?[2J differs: they chose r00, here r01\n    event: one came\n" +
		"  indexer http://b agrees: the same\n    tokens held: 3?[2J\n" +
		"  trace t.jsonl gives no answer: no ?[2Jsuch file\n\nSettings"
	if !strings.Contains(b.String(), want) {
		t.Errorf("%q is not in\n%s", want, b.String())
	}
	b.Reset()
	if err := ExplainJSON(&b, a, &prompt.Prompt{}, ""); err != nil {
		t.Fatal(err)
	}
	var v struct {
		Asked []map[string]any
	}
	if err := json.Unmarshal(b.Bytes(), &v); err != nil || len(v.Asked) != 3 {
		t.Fatal(v, err)
	}
	for _, row := range v.Asked {
		for _, field := range []string{"who", "at", "choice", "agrees", "said", "why", "differences", "error"} {
			if row[field] == nil {
				t.Errorf("no %s in %v", field, row)
			}
		}
	}
}

// TestExplainContract: every promised field is there, and no list is null.
func TestExplainContract(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := ExplainJSON(&b, decided(t, 2), &prompt.Prompt{}, "half"); err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(b.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"schema", "prompt.tokens", "prompt.blocks", "prompt.block_size", "policy", "config.0.name", "config.0.value", "config.0.origin",
		"candidates.0.replica", "candidates.0.trust", "candidates.0.matched.device", "candidates.0.matched.host", "candidates.0.matched.disk",
		"candidates.0.predicted_cached_tokens", "candidates.0.terms.prompt_blocks", "candidates.0.cost", "candidates.0.probability",
		"candidates.0.load", "choice.0", "deciding_term", "flip.0.what", "flip.0.from", "flip.0.to", "flip.0.then.0",
		"divergence.token", "divergence.block", "divergence.against", "divergence.blocks_lost", "damage",
	} {
		var at any = v
		for _, step := range strings.Split(path, ".") {
			switch in := at.(type) {
			case map[string]any:
				at = in[step]
			case []any:
				at = nil
				if len(in) > 0 {
					at = in[0]
				}
			}
		}
		if at == nil {
			t.Errorf("no %s in\n%s", path, b.String())
		}
	}
	if v["schema"] != ExplainSchema || v["choice"].([]any)[0] != "r00\x1b[31m" {
		t.Errorf("%v, %v", v["schema"], v["choice"])
	}
	b.Reset()
	if err := ExplainJSON(&b, &explain.Answer{Candidates: []explain.Candidate{{}}}, &prompt.Prompt{}, ""); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "null") != 4 { // divergence, cost, and both times
		t.Errorf("%s", b.String())
	}
}
