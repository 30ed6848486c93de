package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// DiffText writes what parts two prompts for people. It holds text of the prompts.
func DiffText(w io.Writer, d *diff.Diff, a, b *prompt.Prompt) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s.\n", d.Summary("A", "B"))
	for _, side := range []struct {
		name string
		p    *prompt.Prompt
	}{{"A", a}, {"B", b}} {
		fmt.Fprintf(&out, "%s: %s.\n", side.name, Prompt(side.p))
	}
	if d.Relation == diff.Parts || d.Relation == diff.Unrelated {
		out.WriteByte('\n')
		diffPlaces(&out, d, "A", "B")
	}
	if len(d.Spans) > 0 {
		out.WriteByte('\n')
		diffSpans(&out, d, "A", "B")
	}
	diffReuse(&out, d)
	for _, notes := range [][]string{d.Notes, a.Notes, b.Notes} {
		for _, n := range notes {
			fmt.Fprintf(&out, "note: %s\n", wire.Printable(n))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Prompt says how a prompt came to be.
func Prompt(p *prompt.Prompt) string {
	out := wire.Counted(len(p.Text), "byte")
	if p.Text == "" {
		out = wire.Counted(len(p.Tokens), "token")
	} else if p.Tokens != nil {
		out = wire.Counted(len(p.Tokens), "token") + ", " + out
	}
	if p.Template != "" {
		out += "; " + p.Template
	}
	if p.Encoder != "" {
		out += "; tokenizer: " + p.Encoder
	}
	return wire.Printable(out)
}

// diffPlaces shows the text around the place where they part, the place marked.
func diffPlaces(b *strings.Builder, d *diff.Diff, names ...string) {
	width := max(len(names[0]), len(names[1]))
	for i, p := range []*diff.Place{&d.A, &d.B} {
		if p.Byte >= 0 {
			fmt.Fprintf(b, "  %-*s  %s ▸%s\n", width, names[i], quoted(p.Before), quoted(p.After))
		}
	}
}

// diffSpans is a table of the spans.
func diffSpans(b *strings.Builder, d *diff.Diff, names ...string) {
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "  differs\ttokens of %[1]s\ttokens of %[2]s\tin\t%[1]s\t%[2]s\t\n", names[0], names[1])
	for i := range d.Spans {
		s := &d.Spans[i]
		class := s.Class.String()
		if s.Detail != "" {
			class += " (" + wire.Printable(s.Detail) + ")"
		}
		if s.Kind != diff.Uncounted {
			class += ", " + s.Kind.String()
		}
		if s.Grows != 0 {
			class += fmt.Sprintf(" by %+d", s.Grows)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t\n", class, extent(s, &s.A), extent(s, &s.B), where(s), short(s.A.Text), short(s.B.Text))
	}
	t.Flush()
	if d.More > 0 {
		fmt.Fprintf(b, "  … and %s more\n", wire.Counted(d.More, "difference"))
	}
}

func extent(s *diff.Span, e *diff.Extent) string {
	switch {
	case s.Kind == diff.Uncounted:
		return ""
	case e.Start == e.End:
		return "none at " + wire.Grouped(e.Start)
	case e.Start+1 == e.End:
		return wire.Grouped(e.Start)
	}
	return wire.Grouped(e.Start) + "–" + wire.Grouped(e.End-1)
}

// where says in which message a span is.
func where(s *diff.Span) string {
	at := s.Where()
	out := at.Part.String()
	if at.Message >= 0 {
		out = "message " + strconv.Itoa(at.Message)
		if at.Role != "" {
			out += ", " + wire.Printable(at.Role)
		}
		if at.Part != prompt.Content {
			out += ", " + at.Part.String()
		}
	}
	return out
}

// diffReuse says what the spans cost.
func diffReuse(b *strings.Builder, d *diff.Diff) {
	r := &d.Reuse
	switch {
	case !d.HasTokens || d.Namespace != "" || d.Relation == diff.Equal || d.Relation == diff.Extends: // the summary says it all
	case r.Lost == 0 && r.Removed <= r.Now:
		fmt.Fprintf(b, "\nShared: %s; to move or remove what differs would gain nothing.\n", wire.Counted(r.Now, "full block"))
	default:
		about := ""
		if !r.Retokenized {
			about = "about "
		}
		fmt.Fprintf(b, "\nShared: %s now, %s%s with that moved last or in one form, %s%s without it. It costs %s.\n", wire.Counted(r.Now, "full block"),
			about, wire.Grouped(r.Moved), about, wire.Grouped(r.Removed), wire.Counted(r.Lost, "block"))
	}
}

// short is the text of a span as a table shows it.
func short(s string) string {
	const most = 40
	r := []rune(s)
	if len(r) > most {
		return quoted(string(r[:most])) + "…"
	}
	return quoted(s)
}

// quoted shows a text of a prompt on one line.
func quoted(s string) string { return strconv.QuoteToGraphic(s) }
