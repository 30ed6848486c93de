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
}

// JSON writes a report for programs.
func JSON(w io.Writer, r *Report) error {
	out := jsonReport{
		Schema: Schema, At: r.At, Waited: r.Waited.Seconds(), Errors: r.Count(Error), Warnings: r.Count(Warning),
		Members: r.Members, Fleet: r.Fleet,
	}
	if out.Members == nil {
		out.Members = []Member{}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// Text writes a report for people.
func Text(w io.Writer, r *Report) error {
	var b strings.Builder
	for i := range r.Members {
		m := &r.Members[i]
		head := string(m.Replica)
		for _, more := range []string{m.Events, m.Found} {
			if more != "" {
				head += " · " + more
			}
		}
		b.WriteString(wire.Printable(head) + "\n")
		table(&b, m.Checks)
	}
	b.WriteString("fleet\n")
	table(&b, r.Fleet)
	fmt.Fprintf(&b, "\n%s, %s, %s; listened for %s.\n", count(len(r.Members), "replica"),
		count(r.Count(Error), "error"), count(r.Count(Warning), "warning"), seconds(r.Waited))
	_, err := io.WriteString(w, b.String())
	return err
}

func table(b *strings.Builder, results []Result) {
	for i := range results {
		r := &results[i]
		fmt.Fprintf(b, "  %-8s %-15s %s\n", r.Status, r.Code, wire.Printable(r.Text))
		if r.Fix != "" {
			fmt.Fprintf(b, "  %-8s %-15s → %s\n", "", "", wire.Printable(r.Fix))
		}
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
