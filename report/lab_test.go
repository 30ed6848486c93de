package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/sim/lab"
)

func TestBars(t *testing.T) {
	t.Parallel()
	many := make([]float64, 64)
	for i := range many {
		many[i] = 1.0 / 32 * float64(1-i/32) // the first half has all
	}
	for _, tt := range []struct {
		share []float64
		want  string
	}{
		{[]float64{0.25, 0.25, 0.25, 0.25}, "▄▄▄▄"},
		{[]float64{1, 0, 0, 0}, "█···"},
		{[]float64{0.5, 0.375, 0.124, 0.001}, "█▆▂▁"},
		{[]float64{1}, "▄"},
		{many, strings.Repeat("█", 16) + strings.Repeat("·", 16)},
		{nil, ""},
	} {
		if got := bars(tt.share); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.share, got, tt.want)
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0 s", 0.0004: "0.000 s", 0.1234: "0.123 s", 1.234: "1.23 s", 12.34: "12.3 s", 123.4: "123 s", 12345: "12345 s"} {
		if got := seconds(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

// labGroups are small runs of an open workload, with a request that is too short,
// one that is refused, and a policy with a setting.
func labGroups(t *testing.T) []lab.Group {
	t.Helper()
	w, err := lab.ReadTrace(strings.NewReader(`{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 900, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 1000, "input_length": 100, "output_length": 5, "hash_ids": [2]}
{"timestamp": 2000, "input_length": 1024, "output_length": 60000, "hash_ids": [0, 3]}
`), "a\x1btrace", 512, 512)
	if err != nil {
		t.Fatal(err)
	}
	var policies []*route.Config
	for _, of := range []struct {
		name string
		set  []route.Setting
	}{
		{"dynamo", []route.Setting{{Name: "overlap_score_credit", Value: "0.5", Origin: "a test"}}},
		{"round-robin", nil},
		{"least-loaded", nil},
	} {
		p, err := route.Named(of.name)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := p.Configure(route.Sources{Set: of.set})
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, &cfg)
	}
	plan := lab.Plan{Workloads: []*lab.Workload{w}, Policies: policies, Replicas: []int{2, 3}, Capacities: []int{50}}
	plan.Base.Rates = lab.DefaultRates()
	groups, err := plan.Run(context.Background(), 2, func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

func TestLabText(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := LabText(&b, labGroups(t)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 replicas of 50 blocks of 512 tokens", "3 replicas of",
		"dynamo overlap_score_credit=0.5", "1 request too short", "1 request longer than a cache",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in %s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("the name of a trace reaches the terminal as it is")
	}
}

// TestLabLog: the rate of a log of which no request tells its usage is not 0.
func TestLabLog(t *testing.T) {
	t.Parallel()
	groups := labGroups(t)[:1]
	for known, want := range map[int][2]string{0: {"no hit rate of its own", `"hit_rate":null,"with_usage":0`}, 1: {"own hit rate: 0.0 % of 1 request; 2 without", `"hit_rate":0,"with_usage":1`}} {
		w := *groups[0].Workload
		w.Known, w.Unknown = known, 2
		groups[0].Workload = &w
		var b, j, small bytes.Buffer
		if err := errors.Join(LabText(&b, groups), LabJSON(&j, groups), json.Compact(&small, j.Bytes())); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want[0]) || !strings.Contains(small.String(), want[1]) {
			t.Errorf("%d with usage: %s\n%s", known, b.String(), small.String())
		}
	}
}

func TestLabJSONAndCSV(t *testing.T) {
	t.Parallel()
	groups := labGroups(t)
	var j, c bytes.Buffer
	if err := LabJSON(&j, groups); err != nil {
		t.Fatal(err)
	}
	if err := LabCSV(&c, groups); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Groups []struct {
			Results []struct {
				Policy  string   `json:"policy"`
				HitRate float64  `json:"hit_rate"`
				Phantom *float64 `json:"phantom_share"`
				Session any      `json:"session_s"`
			} `json:"results"`
		} `json:"groups"`
	}
	if err := json.Unmarshal(j.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&c).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1+2*3 || len(got.Groups) != 2 || len(got.Groups[0].Results) != 3 {
		t.Fatalf("%d rows, %d groups", len(rows), len(got.Groups))
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	// A session has no time where requests come at their own times.
	dynamo, robin := got.Groups[0].Results[0], got.Groups[0].Results[1]
	if dynamo.Session != nil || rows[1][column["session_p99_s"]] != "" || dynamo.Phantom == nil || robin.Phantom != nil || rows[2][column["phantom_share"]] != "" {
		t.Errorf("what was not measured: %+v, %+v, %v", dynamo, robin, rows[1:3])
	}
	// Two equal prompts of 1,000 tokens on one replica share a block of 512.
	if dynamo.HitRate != 0.256 || rows[1][column["hit_rate"]] != "0.256000" || robin.HitRate != 0 {
		t.Errorf("hit rates %v and %v, in the table %v", dynamo.HitRate, robin.HitRate, rows[1])
	}
	if rows[1][column["policy"]] != "dynamo overlap_score_credit=0.5" || rows[1][column["share"]] == "" || rows[4][column["replicas"]] != "3" {
		t.Errorf("%v", rows)
	}
}
