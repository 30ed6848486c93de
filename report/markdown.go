package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// Made says when a page was made, and by what.
type Made struct {
	At   wire.Time
	Tool string
}

// Bounds of a page that is to be read in a channel.
const (
	mdReplicas = 20
	mdFindings = 20
	mdOver     = 30
	mdDetails  = 8
	mdNames    = 8
)

// FindingsMarkdown writes a snapshot's findings as a page for an incident channel;
// damage as for Text.
func FindingsMarkdown(w io.Writer, s *observe.Snapshot, damage string, made Made) error {
	var b strings.Builder
	open, over := apart(s.Findings)
	fmt.Fprintf(&b, "## kvscope: %s\n\n", verdict(open))
	// Of trust alone: what is found follows in full.
	fmt.Fprintf(&b, "**%s**\n\n", prose(diagnose.Headline(diagnose.View{Now: s.Until, Replicas: s.Replicas}, nil)))
	if damage != "" {
		fmt.Fprintf(&b, "INCOMPLETE: %s\n\n", prose(damage))
	}
	mdReplicaTable(&b, s.Replicas)
	if n := unheard(s.Replicas); n > 0 {
		fmt.Fprintf(&b, "%d of %s could not be judged: no event came.\n\n", n, wire.Counted(len(s.Replicas), "replica"))
	}
	for i, a := range open {
		if i == mdFindings {
			fmt.Fprintf(&b, "… and %s more, less severe: `kvscope diagnose --json` lists all.\n\n", wire.Counted(len(open)-i, "finding"))
			break
		}
		mdFinding(&b, a, s.Until)
	}
	mdPast(&b, over)
	fmt.Fprintf(&b, "From %s, %s to %s (%s, %s records). Made %s by %s.\n", code(s.Source), clock(s.From), clock(s.Until),
		lasting(s.Until-s.From), wire.Grouped(s.Records), clock(made.At), prose(made.Tool))
	_, err := io.WriteString(w, b.String())
	return err
}

// apart gives the findings that are open, worst first as they come, and those
// that are over.
func apart(findings []diagnose.Finding) (open, over []diagnose.Alike) {
	for _, a := range diagnose.Collapse(findings, true) {
		if a[0].Open() {
			open = append(open, a)
		} else {
			over = append(over, a)
		}
	}
	return open, over
}

// verdict counts what is open, and names the checks at warning or above.
func verdict(open []diagnose.Alike) string {
	var n [diagnose.Error + 1]int
	for _, a := range open {
		n[min(a[0].Severity, diagnose.Error)] += len(a)
	}
	var words []string
	for s := diagnose.Error; ; s-- {
		switch {
		case n[s] == 0:
		case s == diagnose.Info:
			words = append(words, wire.Counted(n[s], "note"))
		default:
			words = append(words, wire.Counted(n[s], s.String()))
		}
		if s == diagnose.Info {
			break
		}
	}
	if len(words) == 0 {
		return "no open finding"
	}
	var codes []string
	for _, a := range open {
		if c := code(a[0].Code); a[0].Severity >= diagnose.Warning && !slices.Contains(codes, c) {
			codes = append(codes, c)
		}
	}
	said := listed(words, len(words)) + " open"
	if len(codes) > 0 {
		said += ": " + listed(codes, 4)
	}
	return said
}

// unheard counts the replicas of which no event came.
func unheard(replicas []diagnose.Replica) int {
	n := 0
	for i := range replicas {
		if replicas[i].Epoch == 0 {
			n++
		}
	}
	return n
}

// mdColumns are those of the table.
var mdColumns = []column{
	{head: "replica", value: func(r *diagnose.Replica) string { return code(string(r.Replica)) }},
	{head: "trust", value: func(r *diagnose.Replica) string { return prose(r.Trust.String()) }},
	{head: "blocks in doubt", value: func(r *diagnose.Replica) string {
		switch {
		case r.Trust.Exact():
			return "0"
		case r.Doubt < 0:
			return "unknown"
		}
		return "≤ " + wire.Grouped(r.Doubt) + share(r.Doubt, r.Facts.Capacity)
	}},
	{head: "device blocks", value: func(r *diagnose.Replica) string {
		return strings.Replace(doubtful(r), "~", "about ", 1) + wire.Grouped(r.Index.Resident[wire.Device]) + capacity(r)
	}},
	{head: "gaps", value: gaps},
	{head: "engine hit", value: func(r *diagnose.Replica) string {
		if rate, ok := r.Load.HitRate(); ok {
			return percent(rate, 1)
		}
		return "–"
	}},
}

func share(part, whole int) string {
	if whole <= 0 {
		return ""
	}
	return " (" + percent(float64(part), float64(whole)) + ")"
}

func mdReplicaTable(b *strings.Builder, replicas []diagnose.Replica) {
	if len(replicas) == 0 {
		return
	}
	row := func(cell func(column) string) {
		for _, c := range mdColumns {
			b.WriteString("| " + cell(c) + " ")
		}
		b.WriteString("|\n")
	}
	row(func(c column) string { return c.head })
	row(func(column) string { return "---" })
	rows := worstFirst(replicas)
	left := ""
	if n := len(rows) - mdReplicas; n > 1 {
		exact := 0
		for _, r := range rows[mdReplicas:] {
			if r.Trust.Exact() {
				exact++
			}
		}
		rows, left = rows[:mdReplicas], fmt.Sprintf("… and %s more, %d of them EXACT.\n\n", wire.Counted(n, "replica"), exact)
	}
	for _, r := range rows {
		row(func(c column) string { return c.value(r) })
	}
	b.WriteString("\n" + left)
}

// mdFinding writes open findings that are alike.
func mdFinding(b *strings.Builder, a diagnose.Alike, now wire.Time) {
	x := a[0]
	fmt.Fprintf(b, "### %s %s: %s\n\n", strings.ToUpper(x.Severity.String()), code(x.Code), codes(a.Names(), mdNames))
	// Bold, so that no title begins a list.
	fmt.Fprintf(b, "**%s.**\n\n", strings.TrimSuffix(mdTitle(a), "."))
	since := a.First().Since
	var evidence, effect []string
	for _, f := range a {
		evidence = add(evidence, "", f.Evidence.String())
		of := ""
		if len(a.Names()) > 1 {
			of = code(f.Subject) + " "
		}
		effect = add(effect, of, f.Effect.String())
	}
	for _, line := range []struct{ name, text string }{
		{"open", "since " + clock(since) + ", for " + lasting(now-since)},
		{"evidence", few(evidence)},
		{"effect", few(effect)},
		{"without the fault", prose(x.Counterfactual)},
		{"**next**", prose(x.Next)},
		{"what it means", code("docs/checks/" + x.Code + ".md")},
	} {
		if line.text != "" {
			fmt.Fprintf(b, "- %s: %s\n", line.name, line.text)
		}
	}
	b.WriteByte('\n')
}

// mdTitle says what findings that are alike say, in the first one's numbers.
func mdTitle(a diagnose.Alike) string {
	x := a[0]
	switch {
	case a.Same():
		return prose(x.Title)
	case len(a.Names()) == 1:
		return fmt.Sprintf("%s (and %d more like it)", prose(x.Title), len(a)-1)
	}
	return code(x.Subject) + ": " + prose(x.Title) + " (likewise the others)"
}

// add adds a text, if there is one that is new.
func add(texts []string, of, text string) []string {
	if said := of + prose(text); text != "" && !slices.Contains(texts, said) {
		texts = append(texts, said)
	}
	return texts
}

// few joins the first of many texts.
func few(texts []string) string {
	if n := len(texts) - mdDetails; n > 1 {
		texts = append(slices.Clip(texts[:mdDetails]), fmt.Sprintf("%d more", n))
	}
	return strings.Join(texts, "; ")
}

// mdPast writes what is over, folded up.
func mdPast(b *strings.Builder, over []diagnose.Alike) {
	if len(over) == 0 {
		return
	}
	n := 0
	for _, a := range over {
		n += len(a)
	}
	fmt.Fprintf(b, "<details><summary>Over: %s</summary>\n\n", wire.Counted(n, "finding"))
	for i, a := range over {
		if i == mdOver {
			fmt.Fprintf(b, "- … and %d more kinds\n", len(over)-i)
			break
		}
		x := a[0]
		fmt.Fprintf(b, "- %s %s %s, %s: %s\n", clock(a.First().Since), x.Severity, code(x.Code), codes(a.Names(), mdNames), mdTitle(a))
	}
	b.WriteString("\n</details>\n\n")
}

// codes joins names.
func codes(names []string, most int) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = code(name)
	}
	return listed(quoted, most)
}

// lasting writes a length of time for people.
func lasting(t wire.Time) string {
	s := int64(max(t, 0) / 1e9)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	}
	return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
}
