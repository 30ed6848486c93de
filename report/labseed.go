package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/kvscope/kvscope/sim/lab"
)

// SeedSchema is that of SeedJSON.
const SeedSchema = "kvscope.lab-seed/1"

// SeedText writes the reference experiment for people.
func SeedText(w io.Writer, s *lab.Seed) error {
	var b strings.Builder
	fmt.Fprintf(&b, "index: %d of %d matches equal a scan of what each replica holds; the probe matches %v blocks; after a removal %d\n",
		s.Equal, s.Queries, s.Probe, s.Removed)
	b.WriteString("boundary, blocks that still match:\n")
	for _, c := range s.Boundaries {
		fmt.Fprintf(&b, "  %s: %d\n", c.Change, c.Match)
	}
	fmt.Fprintf(&b, "decay: credit %s on the least loaded replica, %s on one with 8 blocks more to prefill\n\n", decimal(s.Least), decimal(s.Loaded))
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "herding\tplacements\tbacklog cv\tmakespan (blocks)\tof that with credit 1\tlater turns on their first replica\t")
	for i := range s.Herding {
		h := &s.Herding[i]
		fmt.Fprintf(t, "%s\t%v\t%.3f\t%.0f\t%.2f×\t%.1f %%\t\n", h.Rule, h.Placements, h.CV, h.Makespan, h.Ratio, 100*h.Sticky)
	}
	t.Flush()
	b.WriteByte('\n')
	for _, st := range s.Stale {
		with := "without"
		if st.Removals {
			with = "with"
		}
		fmt.Fprintf(&b, "stale index, %s removals: believed %d, served %d of %d blocks (%.1f points of phantom hits)\n",
			with, st.Believed, st.Served, st.Asked, 100*float64(st.Believed-st.Served)/float64(max(1, st.Asked)))
	}
	fmt.Fprintf(&b, "cold fleet with 4, 1, 9 and 3 blocks to prefill: replica %d\n", s.Cold)
	_, err := io.WriteString(w, b.String())
	return err
}

// decimal writes a number as short as it can be read.
func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// jsonSeed is the reference experiment. Backlogs and makespans are in blocks.
type jsonSeed struct {
	Schema string `json:"schema"`
	Index  struct {
		Queries int   `json:"queries"`
		Equal   int   `json:"equal"`
		Probe   []int `json:"probe"`
		Removed int   `json:"after_removal"`
	} `json:"index"`
	Boundaries []jsonBoundary `json:"boundary"`
	Decay      struct {
		Least  float64 `json:"least_loaded"`
		Loaded float64 `json:"loaded"`
	} `json:"decay_credit"`
	Herding []jsonHerding `json:"herding"`
	Stale   []jsonStale   `json:"stale_index"`
	Cold    int           `json:"cold"`
}

type jsonBoundary struct {
	Change string `json:"change"`
	Match  int    `json:"match"`
}

type jsonHerding struct {
	Rule       string    `json:"rule"`
	Placements []int     `json:"placements"`
	Backlogs   []float64 `json:"backlogs"`
	CV         float64   `json:"backlog_cv"`
	Makespan   float64   `json:"makespan"`
	Sticky     float64   `json:"stickiness"`
	Ratio      float64   `json:"makespan_ratio"`
}

type jsonStale struct {
	Removals bool `json:"removals"`
	Believed int  `json:"believed"`
	Served   int  `json:"served"`
	Asked    int  `json:"asked"`
}

// SeedJSON writes the reference experiment as JSON.
func SeedJSON(w io.Writer, s *lab.Seed) error {
	out := jsonSeed{Schema: SeedSchema, Cold: s.Cold}
	out.Index.Queries, out.Index.Equal, out.Index.Probe, out.Index.Removed = s.Queries, s.Equal, s.Probe, s.Removed
	out.Decay.Least, out.Decay.Loaded = s.Least, s.Loaded
	for _, c := range s.Boundaries {
		out.Boundaries = append(out.Boundaries, jsonBoundary(c))
	}
	for _, h := range s.Herding {
		out.Herding = append(out.Herding, jsonHerding(h))
	}
	for _, st := range s.Stale {
		out.Stale = append(out.Stale, jsonStale(st))
	}
	return write(w, out)
}
