package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kvscope/kvscope/sim/lab"
)

// LabSchema is that of LabJSON.
const LabSchema = "kvscope.lab/1"

type jsonLab struct {
	Schema string         `json:"schema"`
	Groups []jsonLabGroup `json:"groups"`
}

// jsonLabGroup are runs that differ by policy alone.
type jsonLabGroup struct {
	Workload  string `json:"workload"`
	Requests  int    `json:"requests"`
	Sessions  int    `json:"sessions"`
	Inferred  bool   `json:"sessions_inferred"`
	OpenLoop  bool   `json:"open_loop"`
	Engine    string `json:"engine"`
	Replicas  int    `json:"replicas"`
	Capacity  int    `json:"capacity_blocks"`
	BlockSize int    `json:"block_size"`
	// Log is what the log itself says of caches; null of other workloads.
	Log *jsonLabLog `json:"log"`
	// Verdict says what the workload cannot tell apart; "" if it can.
	Verdict string `json:"verdict"`
	// Alike are the sets of policies that it does not tell apart.
	Alike   [][]string      `json:"alike"`
	Results []jsonLabResult `json:"results"`
}

type jsonLabLog struct {
	HitRate      *float64 `json:"hit_rate"` // null without any usage
	WithUsage    int      `json:"with_usage"`
	WithoutUsage int      `json:"without_usage"`
}

// jsonLabResult is what a policy made of a workload. Times are in seconds; null is
// what was not measured.
type jsonLabResult struct {
	Policy   string            `json:"policy"`
	Affinity string            `json:"affinity"`
	Set      map[string]string `json:"set"`
	Served   int               `json:"served"`
	Refused  int               `json:"refused"`
	Short    int               `json:"too_short"`
	HitRate  float64           `json:"hit_rate"`
	Phantom  *float64          `json:"phantom_share"`
	Backlog  float64           `json:"backlog_cv"`
	Blocks   float64           `json:"blocks_cv"`
	Makespan float64           `json:"makespan_s"`
	TTFT     jsonTimes         `json:"ttft_s"`
	Latency  jsonTimes         `json:"latency_s"`
	Session  *jsonTimes        `json:"session_s"`
	Sticky   *float64          `json:"stickiness"`
	Share    []float64         `json:"share"`
}

type jsonTimes struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
}

// LabJSON writes what the lab measured as JSON.
func LabJSON(w io.Writer, groups []lab.Group) error {
	out := jsonLab{LabSchema, make([]jsonLabGroup, len(groups))}
	for i, g := range groups {
		of := g.Workload
		to := jsonLabGroup{
			Workload: of.Name, Requests: of.Requests(), Sessions: of.Sessions(), Inferred: of.Inferred, OpenLoop: of.Open(),
			Engine: g.Engine.String(), Replicas: g.Replicas, Capacity: g.Capacity, BlockSize: of.BlockSize,
			Verdict: lab.Verdict(g.Results), Alike: [][]string{},
		}
		if of.Known+of.Unknown > 0 {
			to.Log = &jsonLabLog{nil, of.Known, of.Unknown}
			if of.Known > 0 {
				to.Log.HitRate = &of.Measured
			}
		}
		for _, set := range lab.Alike(g.Results) {
			to.Alike = append(to.Alike, labPolicies(set))
		}
		for _, r := range g.Results {
			to.Results = append(to.Results, labResult(r, of.Open()))
		}
		out.Groups[i] = to
	}
	return write(w, out)
}

func labResult(r *lab.Result, open bool) jsonLabResult {
	out := jsonLabResult{
		Policy: r.Policy, Affinity: r.Sticks.String(), Set: map[string]string{},
		Served: r.Requests, Refused: r.Refused, Short: r.Short,
		HitRate: r.HitRate, Backlog: r.BacklogCV, Blocks: r.BlocksCV, Makespan: r.Makespan,
		TTFT: jsonTimes(r.TTFT), Latency: jsonTimes(r.Latency), Share: r.Share,
	}
	for _, s := range r.Set {
		out.Set[s.Name] = s.Value
	}
	if r.Believes {
		out.Phantom = &r.Phantom
	}
	if !open {
		session := jsonTimes(r.Session)
		out.Session = &session
	}
	if r.Later > 0 {
		out.Sticky = &r.Sticky
	}
	return out
}

// labFields is the table of columns of the CSV. What was not measured is empty.
var labFields = []struct {
	name  string
	value func(g *lab.Group, r *jsonLabResult) any
}{
	{"workload", func(g *lab.Group, _ *jsonLabResult) any { return g.Workload.Name }},
	{"engine", func(g *lab.Group, _ *jsonLabResult) any { return g.Engine }},
	{"replicas", func(g *lab.Group, _ *jsonLabResult) any { return g.Replicas }},
	{"capacity_blocks", func(g *lab.Group, _ *jsonLabResult) any { return g.Capacity }},
	{"block_size", func(g *lab.Group, _ *jsonLabResult) any { return g.Workload.BlockSize }},
	{"policy", func(_ *lab.Group, r *jsonLabResult) any { return r.Policy }},
	{"affinity", func(_ *lab.Group, r *jsonLabResult) any { return r.Affinity }},
	{"served", func(_ *lab.Group, r *jsonLabResult) any { return r.Served }},
	{"refused", func(_ *lab.Group, r *jsonLabResult) any { return r.Refused }},
	{"too_short", func(_ *lab.Group, r *jsonLabResult) any { return r.Short }},
	{"hit_rate", func(_ *lab.Group, r *jsonLabResult) any { return r.HitRate }},
	{"phantom_share", func(_ *lab.Group, r *jsonLabResult) any { return r.Phantom }},
	{"backlog_cv", func(_ *lab.Group, r *jsonLabResult) any { return r.Backlog }},
	{"blocks_cv", func(_ *lab.Group, r *jsonLabResult) any { return r.Blocks }},
	{"makespan_s", func(_ *lab.Group, r *jsonLabResult) any { return r.Makespan }},
	{"ttft_mean_s", func(_ *lab.Group, r *jsonLabResult) any { return r.TTFT.Mean }},
	{"ttft_p50_s", func(_ *lab.Group, r *jsonLabResult) any { return r.TTFT.P50 }},
	{"ttft_p99_s", func(_ *lab.Group, r *jsonLabResult) any { return r.TTFT.P99 }},
	{"latency_p99_s", func(_ *lab.Group, r *jsonLabResult) any { return r.Latency.P99 }},
	{"session_p99_s", func(_ *lab.Group, r *jsonLabResult) any {
		if r.Session == nil {
			return nil
		}
		return r.Session.P99
	}},
	{"stickiness", func(_ *lab.Group, r *jsonLabResult) any { return r.Sticky }},
	{"share", func(_ *lab.Group, r *jsonLabResult) any {
		out := make([]string, len(r.Share))
		for i, v := range r.Share {
			out[i] = field(v)
		}
		return strings.Join(out, " ")
	}},
}

// LabCSV writes what the lab measured as CSV: a row for each run.
func LabCSV(w io.Writer, groups []lab.Group) error {
	c := csv.NewWriter(w)
	row := make([]string, len(labFields))
	for i, f := range labFields {
		row[i] = f.name
	}
	c.Write(row) // its error comes with Error
	for i := range groups {
		g := &groups[i]
		for _, r := range g.Results {
			out := labResult(r, g.Workload.Open())
			out.Policy = labPolicy(r)
			for k, f := range labFields {
				row[k] = field(f.value(g, &out))
			}
			c.Write(row)
		}
	}
	c.Flush()
	return c.Error()
}

func field(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', 6, 64)
	case *float64:
		if v == nil {
			return ""
		}
		return field(*v)
	}
	return fmt.Sprint(v)
}
