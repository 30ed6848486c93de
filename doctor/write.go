package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// Schema names the form of JSON's output. A field once given keeps its meaning;
// new ones may come.
const Schema = "kvscope.doctor/1"

type jsonReport struct {
	Schema   string    `json:"schema"`
	At       wire.Time `json:"at"`
	Waited   float64   `json:"waited_seconds"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Members  []Member  `json:"replicas"`
	Fleet    []Result  `json:"fleet"`
	Problems []string  `json:"problems"`
}

// JSON writes a report for programs.
func JSON(w io.Writer, r *Report) error {
	out := jsonReport{
		Schema: Schema, At: r.At, Waited: r.Waited.Seconds(), Errors: r.Count(Error), Warnings: r.Count(Warning),
		Members: r.Members, Fleet: r.Fleet, Problems: r.Problems,
	}
	if out.Members == nil {
		out.Members = []Member{}
	}
	if out.Problems == nil {
		out.Problems = []string{}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// Text writes a report for people: the verdict, and what is wrong.
func Text(w io.Writer, r *Report) error { return text(w, r, Warning) }

// Verbose writes all results.
func Verbose(w io.Writer, r *Report) error { return text(w, r, Skipped) }

// text writes the results from a status up, and counts the others.
func text(w io.Writer, r *Report, least Status) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s; listened for %s.\n\n", count(len(r.Members), "replica"),
		count(r.Count(Error), "error"), count(r.Count(Warning), "warning"), seconds(r.Waited))
	if len(r.Problems) > 0 {
		b.WriteString("discovery\n")
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "  %-8s %s\n", "problem", wire.Printable(p))
	}
	for i := range r.Members {
		m := &r.Members[i]
		head := string(m.Replica)
		for _, more := range []string{m.Events, m.Found} {
			if more != "" {
				head += " · " + more
			}
		}
		table(&b, wire.Printable(head), m.Checks, least)
	}
	table(&b, "fleet", r.Fleet, least)
	_, err := io.WriteString(w, b.String())
	return err
}

func table(b *strings.Builder, head string, results []Result, least Status) {
	well, unknown := 0, 0
	var rows strings.Builder
	for i := range results {
		r := &results[i]
		switch {
		case r.Status >= least:
		case r.Status == OK:
			well++
			continue
		default:
			unknown++
			continue
		}
		fmt.Fprintf(&rows, "  %-8s %-15s %s\n", r.Status, r.Code, wire.Printable(r.Text))
		if r.Fix != "" {
			fmt.Fprintf(&rows, "  %-8s %-15s → %s\n", "", "", wire.Printable(r.Fix))
		}
	}
	b.WriteString(head)
	if well > 0 {
		fmt.Fprintf(b, " · %d ok", well)
	}
	if unknown > 0 {
		fmt.Fprintf(b, " · %d could not be looked at", unknown)
	}
	b.WriteByte('\n')
	b.WriteString(rows.String())
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
