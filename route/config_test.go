package route

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// origins gives the values that are no default, as name=value (origin).
func origins(c *Config) []string {
	var out []string
	for _, s := range c.Settings() {
		if s.Origin != OriginDefault {
			out = append(out, fmt.Sprintf("%s=%s (%s)", s.Name, s.Value, s.Origin))
		}
	}
	return out
}

func TestConfigure(t *testing.T) {
	t.Parallel()
	p, err := Named("dynamo")
	if err != nil {
		t.Fatal(err)
	}
	flags := func(line string) []Setting {
		s, err := p.FromFlags(SplitCommand(line))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	env := func(vars map[string]string) []Setting { return p.FromEnv(func(n string) string { return vars[n] }) }
	for name, tt := range map[string]struct {
		from Sources
		want []string
	}{
		"nothing": {},
		"a command line": {
			Sources{Flags: flags(`python -m dynamo.frontend --http-port 8000 --router-mode kv \
				--router-temperature=0.5 --router-kv-overlap-score-credit "2" --no-router-kv-events --router-track-output-blocks`)},
			[]string{
				"overlap_score_credit=2 (--router-kv-overlap-score-credit)", "router_temperature=0.5 (--router-temperature)",
				"use_kv_events=false (--no-router-kv-events)", "router_track_output_blocks=true (--router-track-output-blocks)",
			},
		},
		"a flag wins over a variable": {
			Sources{
				Env:   env(map[string]string{"DYN_ROUTER_TEMPERATURE": "1", "DYN_ROUTER_TTL_SECS": "7", "DYN_USE_KV_EVENTS": "No"}),
				Flags: flags("--router-temperature 2"),
			},
			[]string{"router_temperature=2 (--router-temperature)", "use_kv_events=false (DYN_USE_KV_EVENTS)", "router_ttl_secs=7 (DYN_ROUTER_TTL_SECS)"},
		},
		"the first variable wins over its alias": {
			Sources{Env: env(map[string]string{"DYN_OVERLAP_SCORE_WEIGHT": "1", "DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT": "3"})},
			[]string{
				"prefill_load_scale=3 (overlap_score_weight, DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT)",
				"overlap_score_weight=3 (DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT)",
			},
		},
		// The published example: the legacy weight is a scale, and not a credit.
		"the legacy weight": {
			Sources{Flags: []Setting{{"overlap_score_weight", "2.5", "x"}, {"overlap_score_credit", "0.5", "x"}, {"prefill_load_scale", "3.0", "x"}}},
			[]string{"overlap_score_credit=0.5 (x)", "prefill_load_scale=2.5 (overlap_score_weight, x)", "overlap_score_weight=2.5 (x)"},
		},
		"a legacy weight of 0": {
			Sources{
				Env:   env(map[string]string{"DYN_OVERLAP_SCORE_WEIGHT": "0"}),
				Flags: flags("--router-kv-overlap-score-credit 0.5 --router-prefill-load-scale 3"),
			},
			[]string{
				"overlap_score_credit=0 (overlap_score_weight, DYN_OVERLAP_SCORE_WEIGHT)",
				"prefill_load_scale=0 (overlap_score_weight, DYN_OVERLAP_SCORE_WEIGHT)", "overlap_score_weight=0 (DYN_OVERLAP_SCORE_WEIGHT)",
			},
		},
		"the preset's ten": {
			Sources{Flags: flags("--load-aware --router-kv-overlap-score-credit 2 --use-remote-indexer --shared-cache-type hicache --router-predicted-ttl-secs 5 --router-prefill-load-scale 4")},
			[]string{
				"overlap_score_credit=0 (load_aware, --load-aware)", "prefill_load_scale=4 (--router-prefill-load-scale)",
				"shared_cache_multiplier=0 (load_aware, --load-aware)", "shared_cache_type=none (load_aware, --load-aware)",
				"use_kv_events=false (load_aware, --load-aware)", "router_track_active_blocks=true (load_aware, --load-aware)",
				"router_assume_kv_reuse=false (load_aware, --load-aware)", "router_track_prefill_tokens=true (load_aware, --load-aware)",
				"router_predicted_ttl_secs= (load_aware, --load-aware)", "use_remote_indexer=false (load_aware, --load-aware)",
				"serve_indexer=false (load_aware, --load-aware)", "load_aware=true (--load-aware)",
			},
		},
		"a file wins over flags and the preset": {
			Sources{
				Flags: flags("--load-aware --router-temperature 1"),
				File:  []Setting{{"overlap_score_credit", "1.5", "p.yaml"}, {"router_temperature", "0", "p.yaml"}},
				Set:   []Setting{{"router_temperature", "3", "set"}, {"router_temperature", "4", "set"}},
			},
			[]string{
				"overlap_score_credit=1.5 (p.yaml)", "shared_cache_multiplier=0 (load_aware, --load-aware)",
				"shared_cache_type=none (load_aware, --load-aware)", "router_temperature=4 (set)", "use_kv_events=false (load_aware, --load-aware)",
				"router_track_active_blocks=true (load_aware, --load-aware)", "router_assume_kv_reuse=false (load_aware, --load-aware)",
				"router_track_prefill_tokens=true (load_aware, --load-aware)", "router_predicted_ttl_secs= (load_aware, --load-aware)",
				"use_remote_indexer=false (load_aware, --load-aware)", "serve_indexer=false (load_aware, --load-aware)", "load_aware=true (--load-aware)",
			},
		},
		"a hand after the legacy weight": {
			Sources{Flags: flags("--router-kv-overlap-score-weight 2"), Set: []Setting{{"prefill_load_scale", "5", "set"}}},
			[]string{"prefill_load_scale=5 (set)", "overlap_score_weight=2 (--router-kv-overlap-score-weight)"},
		},
	} {
		c, err := p.Configure(tt.from)
		if got := origins(&c); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, strings.Join(got, "\n     "), strings.Join(tt.want, "\n     "))
		}
	}
	c, err := p.Configure(Sources{Flags: flags("--shared-cache-type hicache")})
	if err != nil || c.num(dynShared) != 0.5 {
		t.Errorf("hicache: %v, %v", c.num(dynShared), err)
	}
}

// TestTables reads every default and every value that the tables imply.
func TestTables(t *testing.T) {
	t.Parallel()
	for i := range policies {
		c, err := policies[i].Configure(Sources{})
		if err != nil {
			t.Error(err)
		}
		for _, s := range c.policy.settings {
			if s.weight && (s.kind == onOff || s.kind >= word) || s.off != "" && s.kind != onOff {
				t.Errorf("%s: %+v", policies[i].Name, s)
			}
		}
	}
	for _, o := range loadAware {
		if _, err := dynamoSettings[o.at].read(o.text, ""); err != nil {
			t.Error(err)
		}
	}
	if len(loadAware) != 10 {
		t.Errorf("%d overrides", len(loadAware))
	}
}

func TestConfigureRefuses(t *testing.T) {
	t.Parallel()
	for want, tt := range map[string]struct{ policy, name, value string }{
		`router_temprature (f) is no setting of the policy dynamo: it has overlap_score_credit, `: {"dynamo", "router_temprature", "1"},
		`x (f) is no setting of the policy affinity: it has none`:                                 {"affinity", "x", "1"},
		`router_temperature (f): "-1" is not a number from 0`:                                     {"dynamo", "router_temperature", "-1"},
		`router_temperature (f): "NaN" is not a number from 0`:                                    {"dynamo", "router_temperature", "NaN"},
		`router_temperature (f): "Inf" is not a number from 0`:                                    {"dynamo", "router_temperature", "Inf"},
		`router_temperature (f): "" is not a number from 0`:                                       {"dynamo", "router_temperature", ""},
		`use_kv_events (f): "maybe" is not true or false`:                                         {"dynamo", "use_kv_events", "maybe"},
		`shared_cache_type (f): "x?y" is not one of none, hicache`:                                {"dynamo", "shared_cache_type", "x\x1by"},
		`cache_threshold (f): "1.5" is not a number from 0 to 1`:                                  {"dynamo-two-tier-cost-fn", "cache_threshold", "1.5"},
		`balance_rel_threshold (f): "0.5" is not a number from 1`:                                 {"dynamo-two-tier-cost-fn", "balance_rel_threshold", "0.5"},
		`balance_abs_threshold (f): "1.5" is not a whole number from 0`:                           {"dynamo-two-tier-cost-fn", "balance_abs_threshold", "1.5"},
		`turn (f): "x" is not a whole number from 0, or nothing`:                                  {"round-robin", "turn", "x"},
		`router_tracking_key_id (f): `:                                                            {"dynamo", "router_tracking_key_id", strings.Repeat("x", maxValue+1)},
	} {
		p, err := Named(tt.policy)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = p.Configure(Sources{Flags: []Setting{{tt.name, tt.value, "f"}}}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p, err := Named("dynamo")
	if err != nil {
		t.Fatal(err)
	}
	for want, line := range map[string]string{
		`--router-temperature needs a value behind it`:        "--router-temperature",
		`--load-aware takes no value: leave out "=1"`:         "--load-aware=1",
		`--router-kv-events takes no value: leave out "=yes"`: "--router-kv-events=yes",
	} {
		if _, err := p.FromFlags(strings.Fields(line)); err == nil || err.Error() != want {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestSplitCommand(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"":                       nil,
		"  a  b\tc\n":            {"a", "b", "c"},
		`a "b c" 'd "e' ""`:      {"a", "b c", `d "e`, ""},
		"a \\\n b":               {"a", "b"},
		`a\ b "c\"d" 'e\f'`:      {"a b", `c"d`, `e\f`},
		`--x="1 2" --y='3' un"f`: {"--x=1 2", "--y=3", "unf"},
	} {
		if got := SplitCommand(line); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestPolicyFile(t *testing.T) {
	t.Parallel()
	const two = `
worker_selection:
  aggregated: smg
  prefill: mine
  decode: default
  instances:
    - name: smg
      type: dynamo-two-tier-cost-fn
      parameters: {cache_threshold: 0.25, balance_abs_threshold: 8}
    - name: mine
      type: dynamo-default-cost-fn
      parameters:
        router_temperature: 0.1
        overlap_score_credit: 2
    - name: agent
      type: thunder-agent
`
	for name, tt := range map[string]struct {
		text   string
		pool   Pool
		policy string
		want   []Setting
		err    string
	}{
		"aggregated": {two, Aggregated, "dynamo-two-tier-cost-fn", []Setting{{"balance_abs_threshold", "8", "p"}, {"cache_threshold", "0.25", "p"}}, ""},
		"encode":     {two, Encode, "dynamo-two-tier-cost-fn", []Setting{{"balance_abs_threshold", "8", "p"}, {"cache_threshold", "0.25", "p"}}, ""},
		"prefill":    {two, Prefill, "dynamo", []Setting{{"overlap_score_credit", "2", "p"}, {"router_temperature", "0.1", "p"}}, ""},
		"decode":     {two, Decode, "dynamo", nil, ""},
		"queues alone": {
			"default_policy_family: a\nuncached_isl_buckets: [{min_tokens: 0, bucket: all}]\npolicy_classes: [{name: a, quantum: 1}]\n",
			Aggregated, "dynamo", nil, "",
		},
		"a type of others":  {strings.Replace(two, "prefill: mine", "prefill: agent", 1), Prefill, "", nil, "the policy type thunder-agent of agent is not one that kvscope knows"},
		"no such instance":  {"worker_selection: {aggregated: x}", Aggregated, "", nil, "worker_selection names x, which is none of its instances"},
		"a list":            {"worker_selection: {aggregated: x, instances: [{name: x, type: default, parameters: {a: [1]}}]}", Aggregated, "", nil, "the parameter a is no single value"},
		"an unknown key":    {"worker_selektion: {}", Aggregated, "", nil, "line 1: field worker_selektion not found"},
		"no YAML":           {"a: [", Aggregated, "", nil, "yaml: "},
		"nothing":           {"", Aggregated, "", nil, "it is empty"},
		"a file that is no": {strings.Repeat("#", maxPolicyFile+1), Aggregated, "", nil, "1048577 bytes, and at most 1048576 are read"},
	} {
		p, got, err := ReadPolicyFile([]byte(tt.text), tt.pool, "p")
		if tt.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), "the policy file p: "+tt.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || p.Name != tt.policy || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v %v", name, got, err)
			continue
		}
		if _, err := p.Configure(Sources{File: got}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPage holds the page's table of settings against the program's.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/routers/dynamo.md")
	if err != nil {
		t.Fatal(err)
	}
	code := func(words ...string) string {
		var out []string
		for _, w := range words {
			if w != "" {
				out = append(out, "`"+w+"`")
			}
		}
		return strings.Join(out, ", ")
	}
	for _, s := range slices.Concat(dynamoSettings, twoTierSettings) {
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", s.name, code(s.flag, s.off), code(s.vars...), s.def)
		row = strings.ReplaceAll(row, "|  |", "| |")
		row = strings.ReplaceAll(row, "|  |", "| |")
		if !strings.Contains(string(page), row) {
			t.Errorf("the page has not\n%s", row)
		}
	}
}

// FuzzPolicyFile: what is read can be configured with, or is refused in words.
func FuzzPolicyFile(f *testing.F) {
	f.Add([]byte("worker_selection: {aggregated: x, instances: [{name: x, type: default, parameters: {router_temperature: 1}}]}"), uint8(0))
	f.Add([]byte("a: &a [*a]"), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, pool uint8) {
		p, settings, err := ReadPolicyFile(text, Pool(pool), "p")
		if (p == nil) == (err == nil) {
			t.Fatalf("%v %v", p, err)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "the policy file p: ") || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%q", err)
			}
			return
		}
		if c, err := p.Configure(Sources{File: settings}); err == nil {
			Flips(&c, &Request{Tokens: 32, BlockSize: 16}, []Candidate{{Replica: "a"}, {Replica: "b"}})
		}
	})
}
