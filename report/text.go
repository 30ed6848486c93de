package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// incomplete says in a report itself that it is not about the whole input.
func incomplete(b *strings.Builder, damage string) {
	if damage != "" {
		fmt.Fprintf(b, "INCOMPLETE: %s\n", wire.Printable(damage))
	}
}

// Text writes a snapshot for people. damage, if not empty, says what could not
// be read.
func Text(w io.Writer, s *observe.Snapshot, damage string) error {
	var b strings.Builder
	incomplete(&b, damage)
	head(&b, s)
	b.WriteByte('\n')
	replicaTable(&b, s.Replicas)
	links(&b, s.Replicas)
	findingsText(&b, s)
	stores(&b, s)
	engines(&b, s.Replicas)
	replays(&b, s)
	notes(&b, s.Notes)
	_, err := io.WriteString(w, b.String())
	return err
}

// head says what is looked at, and how it is, in two lines.
func head(b *strings.Builder, s *observe.Snapshot) {
	fmt.Fprintf(b, "%s · %s · %s to %s\n", wire.Printable(s.Source), wire.Counted(len(s.Replicas), "replica"), clock(s.From), clock(s.Until))
	fmt.Fprintf(b, "%s\n", diagnose.Headline(diagnose.View{Now: s.Until, Replicas: s.Replicas}, s.Findings))
}

// column is one column of the replica table.
type column struct {
	head  string
	value func(*diagnose.Replica) string
	// optional columns are left out where no replica fills them.
	optional bool
}

var columns = []column{
	{head: "replica", value: func(r *diagnose.Replica) string { return name(r.Replica) }},
	{head: "trust", value: func(r *diagnose.Replica) string { return r.Trust.String() }},
	{head: "epoch", value: func(r *diagnose.Replica) string { return strconv.Itoa(r.Epoch) }},
	{head: "seq", value: func(r *diagnose.Replica) string {
		if !r.Heard {
			return "–"
		}
		return fmt.Sprintf("%d–%d", r.First, r.Last)
	}},
	{head: "gaps", value: func(r *diagnose.Replica) string { return gaps(r) }},
	{head: "batches", value: func(r *diagnose.Replica) string { return wire.Grouped(r.Batches) }},
	{head: "stored", value: func(r *diagnose.Replica) string { return wire.Grouped(r.Index.Stored) }},
	{head: "removed", value: func(r *diagnose.Replica) string { return wire.Grouped(r.Index.Removed) }},
	{head: "device blocks", value: func(r *diagnose.Replica) string {
		return doubtful(r) + wire.Grouped(r.Index.Resident[wire.Device]) + capacity(r)
	}},
	{head: "host", value: func(r *diagnose.Replica) string { return optional(r.Index.Resident[wire.Host]) }, optional: true},
	{head: "disk", value: func(r *diagnose.Replica) string { return optional(r.Index.Resident[wire.Disk]) }, optional: true},
	{head: "external", value: func(r *diagnose.Replica) string { return optional(r.Index.Resident[wire.External]) }, optional: true},
	{head: "orphans", value: func(r *diagnose.Replica) string { return optional(r.Index.Orphans) }, optional: true},
	{head: "out of order", value: func(r *diagnose.Replica) string { return optional(int(r.Reordered)) }, optional: true},
	{head: "unknown events", value: func(r *diagnose.Replica) string { return optional(int(r.Events.Unknown)) }, optional: true},
	{head: "in doubt", value: func(r *diagnose.Replica) string {
		switch {
		case r.Trust.Exact():
			return ""
		case r.Doubt < 0:
			return "unknown"
		}
		return "≤" + wire.Grouped(r.Doubt)
	}, optional: true},
	{head: "engine hit", value: func(r *diagnose.Replica) string {
		rate, ok := r.Load.HitRate()
		if !ok {
			return ""
		}
		return percent(rate, 1)
	}, optional: true},
	{head: "lag", value: func(r *diagnose.Replica) string {
		if r.LastBatch == 0 || r.Lag == 0 {
			return ""
		}
		return time.Duration(r.Lag).Round(time.Millisecond).String()
	}, optional: true},
}

func replicaTable(b *strings.Builder, replicas []diagnose.Replica) {
	if len(replicas) == 0 {
		return
	}
	var shown []column
	for _, c := range columns {
		filled := !c.optional
		for i := range replicas {
			filled = filled || c.value(&replicas[i]) != ""
		}
		if filled {
			shown = append(shown, c)
		}
	}
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	for _, c := range shown {
		fmt.Fprintf(t, "%s\t", c.head)
	}
	fmt.Fprintln(t)
	for _, r := range worstFirst(replicas) {
		for _, c := range shown {
			fmt.Fprintf(t, "%s\t", c.value(r))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	for line := range strings.Lines(out.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// links says why links are not up.
func links(b *strings.Builder, replicas []diagnose.Replica) {
	for i := range replicas {
		r := &replicas[i]
		if r.Link == wire.LinkUp || r.LinkText == "" || r.LinkText == r.Link.String() {
			continue
		}
		fmt.Fprintf(b, "%s: link %s: %s\n", name(r.Replica), r.Link, wire.Printable(r.LinkText))
	}
}

// worstFirst orders replicas by their word of trust, and then by name.
func worstFirst(replicas []diagnose.Replica) []*diagnose.Replica {
	out := make([]*diagnose.Replica, len(replicas))
	for i := range replicas {
		out[i] = &replicas[i]
	}
	slices.SortStableFunc(out, func(a, b *diagnose.Replica) int {
		return b.Trust.Word.Badness() - a.Trust.Word.Badness()
	})
	return out
}

func gaps(r *diagnose.Replica) string {
	switch {
	case r.GapsOpen == 0 && r.GapsHealed == 0:
		return "none"
	case r.GapsOpen == 0:
		return fmt.Sprintf("%d healed", r.GapsHealed)
	}
	return fmt.Sprintf("%d open (%s batches), %d healed", r.GapsOpen, wire.Grouped(r.MissingNow), r.GapsHealed)
}

// doubtful marks numbers that come from a replica that is not EXACT.
func doubtful(r *diagnose.Replica) string {
	if r.Trust.Exact() {
		return ""
	}
	return "~"
}

func capacity(r *diagnose.Replica) string {
	if r.Facts.Capacity <= 0 {
		return ""
	}
	return " / " + wire.Grouped(r.Facts.Capacity)
}

func stores(b *strings.Builder, s *observe.Snapshot) {
	l := s.Ledger
	total := l.First + l.Elsewhere + l.EvictedHere + l.EvictedElsewhere + l.Duplicate + l.Unattached
	if total == 0 {
		return
	}
	fmt.Fprintf(b, "\nWhy %s blocks had to be stored:\n", wire.Grouped(total))
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, row := range []struct {
		n    uint64
		what string
	}{
		{l.First, "new work: never seen before"},
		{l.Elsewhere, "resident on another replica at that moment: the routing cost it"},
		{l.EvictedHere, "evicted here before: the capacity cost it"},
		{l.EvictedElsewhere, "evicted on another replica before"},
		{l.Duplicate, "already resident here: duplicates"},
		{l.Unattached, "cannot be told: the beginning of their chain was never announced"},
	} {
		if row.n > 0 {
			fmt.Fprintf(t, "  %s\t%s\t  %s\n", wire.Grouped(row.n), percent(float64(row.n), float64(total)), row.what)
		}
	}
	t.Flush()
	fmt.Fprintf(b, "Blocks: %s distinct ones resident, %s of them on more than one replica.\n",
		wire.Grouped(s.Blocks.Resident), wire.Grouped(s.Blocks.Shared))
}

// engines lists what the replicas run, one line for each kind.
func engines(b *strings.Builder, replicas []diagnose.Replica) {
	var order []string
	who := map[string][]string{}
	for i := range replicas {
		r := &replicas[i]
		if !r.Heard {
			continue
		}
		recipe := r.Index.Recipe
		if recipe == "" {
			recipe = "not identified"
		}
		size := "unknown"
		if n := r.Index.BlockSize; n > 0 {
			size = strconv.Itoa(n)
		}
		if r.Index.Bigram {
			size += " of overlapping pairs (speculative decoding)"
		}
		kind := fmt.Sprintf("model %s, block size %s, events %s, hash %s", or(wire.Printable(r.Model), "unknown"), size, r.Dialect, recipe)
		if who[kind] == nil {
			order = append(order, kind)
		}
		who[kind] = append(who[kind], name(r.Replica))
	}
	for _, kind := range order {
		fmt.Fprintf(b, "%s: %s\n", strings.Join(who[kind], ", "), kind)
	}
}

// replays says what was sent to replay sockets.
func replays(b *strings.Builder, s *observe.Snapshot) {
	for i := range s.Replicas {
		r := &s.Replicas[i]
		a := s.Replay[r.Replica]
		if a.Requests == 0 {
			continue
		}
		fmt.Fprintf(b, "%s: %s sent (policy %s, %d left this minute), %s batches received", name(r.Replica),
			wire.Counted(int(a.Requests), "replay request"), a.Policy, a.Left, wire.Grouped(a.Batches))
		if a.Last != "" {
			fmt.Fprintf(b, "; the last one: %s", wire.Printable(a.Last))
		}
		b.WriteByte('\n')
	}
}

// notes lists what the source itself said.
func notes(b *strings.Builder, notes []observe.Note) {
	for _, n := range notes {
		fmt.Fprintf(b, "note: %s ", clock(n.At))
		if n.Replica != "" {
			fmt.Fprintf(b, "%s: ", name(n.Replica))
		}
		b.WriteString(wire.Printable(n.Text))
		if n.Times > 1 {
			fmt.Fprintf(b, " (%d times)", n.Times)
		}
		b.WriteByte('\n')
	}
}

// FindingsText writes a snapshot's findings for people; damage as for Text.
func FindingsText(w io.Writer, s *observe.Snapshot, damage string) error {
	var b strings.Builder
	incomplete(&b, damage)
	head(&b, s)
	findingsText(&b, s)
	_, err := io.WriteString(w, b.String())
	return err
}

// findingsText lists findings. None says little of a replica that was not heard.
func findingsText(b *strings.Builder, s *observe.Snapshot) {
	f := s.Findings
	unheard := 0
	for i := range s.Replicas {
		if s.Replicas[i].Epoch == 0 {
			unheard++
		}
	}
	switch {
	case len(f) == 0 && unheard > 0:
		fmt.Fprintf(b, "\nFindings: none, but %d of %s could not be judged: no event came.\n", unheard, wire.Counted(len(s.Replicas), "replica"))
		return
	case len(f) == 0:
		b.WriteString("\nFindings: none.\n")
		return
	}
	fmt.Fprintf(b, "\nFindings: %d\n", len(f))
	const indent = "          "
	for _, a := range diagnose.Collapse(f, true) {
		x := a[0]
		over := ""
		if !x.Open() {
			over = " (over)"
		}
		fmt.Fprintf(b, "  %-7s %-18s %s  %s%s\n", strings.ToUpper(x.Severity.String()), x.Code, clock(a.First().Since), wire.Printable(listed(a.Names(), 6)), over)
		if a.Same() {
			fmt.Fprintf(b, indent+"%s\n", wire.Printable(x.Title))
		} else {
			fmt.Fprintf(b, indent+"%s: %s\n", wire.Printable(x.Subject), wire.Printable(x.Title))
			fmt.Fprintf(b, indent+"likewise: %s\n", wire.Printable(listed(rest(a), 4)))
		}
		if x.Counterfactual != "" {
			fmt.Fprintf(b, indent+"%s\n", wire.Printable(x.Counterfactual))
		}
		fmt.Fprintf(b, indent+"→ %s\n", wire.Printable(x.Next))
	}
}

// rest says what the findings behind the first rest on.
func rest(a diagnose.Alike) []string {
	var out []string
	for _, f := range a[1:] {
		out = append(out, strings.TrimPrefix(f.Evidence.Batches()+" of "+f.Subject, " of "))
	}
	return out
}

// listed joins words, of which it names so many.
func listed(words []string, most int) string {
	if n := len(words) - most; n > 1 {
		words = append(slices.Clip(words[:most]), fmt.Sprintf("%d more", n))
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// AuditText writes an audit for people; damage as for Text.
func AuditText(w io.Writer, a *explain.Audit, damage string) error {
	var b strings.Builder
	incomplete(&b, damage)
	judged := a.Agree + a.Over + a.Under
	rate := ""
	if judged > 0 {
		rate = " (" + percent(float64(a.Agree), float64(judged)) + ")"
	}
	fmt.Fprintf(&b, "%d of %d requests agree%s with what the index promised while they ran; for %d the promise at their start alone was right.\n", a.Agree, judged, rate, a.AtStart)
	if f := a.Funnel; f.Asked > 0 {
		of := func(n int) string { return percent(float64(n), float64(f.Asked)) }
		fmt.Fprintf(&b, "Of their %s, %s were cached on some replica as the request came, %s on the one that was chosen, and %s were reused.\n",
			wire.Counted(f.Asked, "prompt token"), of(f.Somewhere), of(f.Chosen), of(f.Cached))
	}
	if a.Bounds > 0 {
		fmt.Fprintf(&b, "%d of them ran on a replica that was not EXACT, where a promise is only a lower bound; in %d the full prediction was right too.\n", a.Bounds, a.Tight)
	}
	if a.Unverifiable+a.Excluded > 0 {
		fmt.Fprintf(&b, "%d could not be judged, %d skip the cache read by design.\n", a.Unverifiable, a.Excluded)
	}
	b.WriteByte('\n')
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "log\treplica\trequests\tagree\tpromised too much\ttoo little\tnot judged\texcluded\t")
	for _, r := range a.PerReplica {
		names := make([]string, len(r.Replicas))
		for i, n := range r.Replicas {
			names[i] = name(n)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", wire.Printable(r.Log), or(strings.Join(names, ", "), "–"), r.Requests, r.Agree, r.Over, r.Under, r.Unverifiable, r.Excluded)
	}
	t.Flush()
	verdictText(&b, "Disagreements", a.Disagreements)
	verdictText(&b, "Not judged", a.Exclusions)
	_, err := io.WriteString(w, b.String())
	return err
}

func verdictText(b *strings.Builder, title string, v []explain.Verdict) {
	const most = 20
	if len(v) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for i, x := range v {
		if i == most {
			fmt.Fprintf(b, "  … and %d more (--json lists all)\n", len(v)-most)
			return
		}
		fmt.Fprintf(b, "  %s  %s  %s\n", clock(x.Start), name(x.Replica), wire.Printable(x.Why))
	}
}

// name shows a replica's name, whatever is in it.
func name(r wire.Replica) string {
	if r == "" {
		return `""`
	}
	return wire.Printable(string(r))
}

func clock(t wire.Time) string {
	if t == 0 {
		return "–"
	}
	return time.Unix(0, int64(t)).UTC().Format("2006-01-02 15:04:05.000Z")
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func optional(n int) string {
	if n == 0 {
		return ""
	}
	return wire.Grouped(n)
}

func percent(part, whole float64) string { return fmt.Sprintf("%.1f %%", 100*part/whole) }
