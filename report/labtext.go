package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/kvscope/kvscope/sim/lab"
	"github.com/kvscope/kvscope/wire"
)

// LabText writes what the lab measured for people: a table for each group.
func LabText(w io.Writer, groups []lab.Group) error {
	var b strings.Builder
	for i := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		labGroup(&b, &groups[i])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// labColumns is the table of columns for people.
var labColumns = []struct {
	head  string
	value func(r *lab.Result, open bool) string
}{
	{"policy", func(r *lab.Result, _ bool) string { return labPolicy(r) }},
	{"hit rate", func(r *lab.Result, _ bool) string { return percent(r.HitRate, 1) }},
	{"phantom", func(r *lab.Result, _ bool) string {
		if !r.Believes {
			return "–"
		}
		return percent(r.Phantom, 1)
	}},
	{"backlog cv", func(r *lab.Result, _ bool) string { return fmt.Sprintf("%.2f", r.BacklogCV) }},
	{"blocks cv", func(r *lab.Result, _ bool) string { return fmt.Sprintf("%.2f", r.BlocksCV) }},
	{"makespan", func(r *lab.Result, _ bool) string { return seconds(r.Makespan) }},
	{"TTFT mean", func(r *lab.Result, _ bool) string { return seconds(r.TTFT.Mean) }},
	{"TTFT p50", func(r *lab.Result, _ bool) string { return seconds(r.TTFT.P50) }},
	{"TTFT p99", func(r *lab.Result, _ bool) string { return seconds(r.TTFT.P99) }},
	{"latency p99", func(r *lab.Result, _ bool) string { return seconds(r.Latency.P99) }},
	{"session p99", func(r *lab.Result, open bool) string {
		if open {
			return "–"
		}
		return seconds(r.Session.P99)
	}},
	{"sticky", func(r *lab.Result, _ bool) string {
		if r.Later == 0 {
			return "–"
		}
		return percent(r.Sticky, 1)
	}},
	{"share of each replica", func(r *lab.Result, _ bool) string { return bars(r.Share) }},
}

func labGroup(b *strings.Builder, g *lab.Group) {
	w := g.Workload
	inferred := ""
	if w.Inferred {
		inferred = ", inferred"
	}
	fmt.Fprintf(b, "%s: %s (%s%s) · %s of %s of %s · %s\n", wire.Printable(w.Name),
		wire.Counted(w.Requests(), "request"), wire.Counted(w.Sessions(), "session"), inferred,
		wire.Counted(g.Replicas, "replica"), wire.Counted(g.Capacity, "block"), wire.Counted(w.BlockSize, "token"), g.Engine)
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, c := range labColumns {
		fmt.Fprintf(t, "%s\t", c.head)
	}
	fmt.Fprintln(t)
	for _, r := range g.Results {
		for _, c := range labColumns {
			fmt.Fprintf(t, "%s\t", c.value(r, w.Open()))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	if r := g.Results[0]; r.Short > 0 {
		fmt.Fprintf(b, "%s too short to hit anything: left out of the rates.\n", wire.Counted(r.Short, "request"))
	}
	if r := g.Results[0]; r.Refused > 0 {
		fmt.Fprintf(b, "%s longer than a cache: refused.\n", wire.Counted(r.Refused, "request"))
	}
	switch known := w.Known; {
	case known > 0:
		fmt.Fprintf(b, "The log's own hit rate: %s of %s; %s without usage left out.\n",
			percent(w.Measured, 1), wire.Counted(known, "request"), wire.Grouped(w.Unknown))
	case w.Unknown > 0:
		b.WriteString("The log has no hit rate of its own: none of its requests tells its usage.\n")
	}
	verdict, alike := lab.Verdict(g.Results), lab.Alike(g.Results)
	if verdict != "" {
		fmt.Fprintf(b, "Note: %s.\n", verdict)
	}
	for _, set := range alike {
		if len(set) < len(g.Results) {
			fmt.Fprintf(b, "Alike: %s.\n", strings.Join(labPolicies(set), ", "))
		}
	}
}

// labPolicy names a policy and what was set of it.
func labPolicy(r *lab.Result) string {
	out := r.Policy
	for _, s := range r.Set {
		out += " " + s.Name + "=" + wire.Printable(s.Value)
	}
	return out
}

func labPolicies(of []*lab.Result) []string {
	out := make([]string, len(of))
	for i, r := range of {
		out[i] = labPolicy(r)
	}
	return out
}

// seconds writes a time with three digits that count.
func seconds(v float64) string {
	decimals := 0
	if v > 0 {
		decimals = min(3, max(0, 2-int(math.Floor(math.Log10(v)))))
	}
	return fmt.Sprintf("%.*f s", decimals, v)
}

// bars draws the share of each replica: half of the height is an even share, the
// whole is twice that or more, and a dot is nothing at all. Of more than 32
// replicas, neighbours share a bar.
func bars(share []float64) string {
	const most, even = 32, 4
	heights := []rune("·▁▂▃▄▅▆▇█")
	per := (len(share) + most - 1) / most
	var b strings.Builder
	for i := 0; i < len(share); i += per {
		part := share[i:min(len(share), i+per)]
		sum := 0.0
		for _, v := range part {
			sum += v
		}
		height := 0
		if sum > 0 {
			height = max(1, int(math.Round(even*sum/float64(len(part))*float64(len(share)))))
		}
		b.WriteRune(heights[min(height, len(heights)-1)])
	}
	return b.String()
}
