package tui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// findings is the view of what is wrong: a list, and the selected one in full.
type findings struct {
	list    list
	sort    int
	reverse bool
	// inside says that the selected finding's text has the focus; scroll is its
	// first line shown.
	inside bool
	scroll int
}

// actJump goes to the batch or block that a finding names.
const actJump = "jump"

func newFindings() *findings { return &findings{} }

func (v *findings) name() string { return "findings" }
func (v *findings) digit() rune  { return '5' }

func (v *findings) bindings() []binding {
	open, short, help := actOpen, "page", "the check's page: what it means and what to do"
	if v.inside {
		open, short, help = actJump, "jump", "to the batch that the evidence names"
	}
	out := []binding{
		{keys: []string{"enter"}, action: open, help: help, short: short, rank: 5, off: v.none},
		{keys: []string{"J"}, action: actJump, help: "jump to the batch that the evidence names", short: "jump", rank: 6, off: v.noEvidence},
		{keys: []string{"tab"}, action: actNextPane, help: "the list, or the finding's text", off: v.none},
		{keys: []string{"s"}, action: actSort, help: "sort by severity, time or subject", short: "sort", rank: 40},
		{keys: []string{"y"}, action: actCopy, help: "copy the finding as text", short: "copy", rank: 45, off: v.none},
		{keys: []string{"Y"}, action: actCopyRow, help: "copy the finding as JSON", off: v.none},
	}
	if v.inside {
		out = append(out, binding{keys: []string{"esc"}, action: actShallower, help: "back to the list"})
	}
	return out
}

func (v *findings) none(s *scene) string {
	if v.selected(s) == nil {
		return "there is no finding"
	}
	return ""
}

func (v *findings) noEvidence(s *scene) string {
	f := v.selected(s)
	if f == nil {
		return "there is no finding"
	}
	if f.Evidence.Replica == "" {
		return "this finding names no replica"
	}
	return ""
}

// severityWords are those of diagnose.Severity, short.
var severityWords = [...]string{"INFO", "WARN", "ERROR"}

func severityWord(s diagnose.Severity) string {
	return severityWords[min(int(s), len(severityWords)-1)]
}

func stateWord(f *diagnose.Finding) string {
	if f.Open() {
		return "open"
	}
	return "over"
}

// findingSorts are the orders of the list.
var findingSorts = []struct {
	name   string
	column int // of the list
	cmp    func(a, b *diagnose.Finding) int
}{
	{"severity", 0, bySeverity},
	{"time", 4, func(a, b *diagnose.Finding) int { return cmp.Or(cmp.Compare(b.Since, a.Since), bySeverity(a, b)) }},
	{"subject", 3, func(a, b *diagnose.Finding) int { return cmp.Or(cmp.Compare(a.Subject, b.Subject), bySeverity(a, b)) }},
}

func bySeverity(a, b *diagnose.Finding) int {
	return cmp.Or(
		cmp.Compare(b.Severity, a.Severity), cmp.Compare(stateWord(a), stateWord(b)), // open before over
		cmp.Compare(b.Since, a.Since), cmp.Compare(a.Subject, b.Subject),
	)
}

func (v *findings) sortNames() []string {
	out := make([]string, len(findingSorts))
	for i := range findingSorts {
		out[i] = findingSorts[i].name
	}
	return out
}

func (v *findings) sortBy(name string) {
	v.sort, v.reverse = max(0, slices.Index(v.sortNames(), name)), false
}

var findingFields = []string{"severity", "state", "code", "subject", "since", "until", "title", "kind", "next"}

func (v *findings) filterFields() []string { return findingFields }

func (v *findings) cells(s *scene, f *diagnose.Finding) []string {
	until := ""
	if f.Until != nil {
		until = s.when(*f.Until)
	}
	return []string{
		severityWord(f.Severity), stateWord(f), clean(f.Code), clean(f.Subject), s.when(f.Since), until,
		clean(f.Title), f.Kind, clean(f.Next),
	}
}

// all are the findings that the filter lets through, in order.
func (v *findings) all(s *scene) []diagnose.Finding {
	if s.snap == nil {
		return nil
	}
	var out []diagnose.Finding
	for i := range s.snap.Findings {
		f := &s.snap.Findings[i]
		if !s.filter.active() || s.filter.match(findingFields, v.cells(s, f)) {
			out = append(out, *f)
		}
	}
	slices.SortStableFunc(out, func(a, b diagnose.Finding) int {
		c := findingSorts[v.sort].cmp(&a, &b)
		if v.reverse {
			return -c
		}
		return c
	})
	return out
}

// rows are the lines of the list: findings on several replicas that are alike are one.
func (v *findings) rows(s *scene) []diagnose.Alike { return diagnose.Collapse(v.all(s), false) }

// selected is the first of those on the selected line.
func (v *findings) selected(s *scene) *diagnose.Finding {
	rows := v.rows(s)
	if len(rows) == 0 {
		return nil
	}
	return rows[v.at(rows)][0]
}

// at is the selected line.
func (v *findings) at(rows []diagnose.Alike) int {
	v.list.sync(len(rows), v.list.height, func(i int) string { return rows[i].Key() })
	return v.list.cursor
}

func (v *findings) count(s *scene) (shown, all int) { return len(v.all(s)), len(s.snap.Findings) }

func (v *findings) export(s *scene) table {
	t := table{columns: findingFields}
	all := v.all(s)
	for i := range all {
		t.rows = append(t.rows, v.cells(s, &all[i]))
	}
	return t
}

func (v *findings) handle(s *scene, action string) effect {
	switch action {
	case actSort:
		v.sort, v.reverse = (v.sort+1)%len(findingSorts), false
		return effect{toast: "sorted by " + findingSorts[v.sort].name}
	case actReverse:
		v.reverse = !v.reverse
		return effect{}
	case actShallower:
		v.inside = false
		return effect{}
	}
	rows := v.rows(s)
	if step, ok := moves[action]; ok && v.inside {
		v.scroll = max(0, step(v.scroll, 1<<20, v.list.height))
		return effect{}
	}
	if v.list.move(action, len(rows), func(i int) string { return rows[i].Key() }) {
		v.scroll = 0
		return effect{}
	}
	if len(rows) == 0 {
		return effect{}
	}
	a := rows[v.at(rows)]
	f := a[0]
	switch action {
	case actNextPane, actPrevPane:
		v.inside, v.scroll = !v.inside, 0
	case actOpen:
		return effect{open: "page:" + f.Code}
	case actJump:
		return evidenceAt(f)
	case actCopy:
		return effect{copy: strings.Join(v.text(s, a, 100), "\n")}
	case actCopyRow:
		if b, err := json.MarshalIndent(one(a), "", "  "); err == nil {
			return effect{copy: string(b)}
		}
	}
	return effect{}
}

// one is a finding, or the list of several.
func one(a diagnose.Alike) any {
	if len(a) == 1 {
		return a[0]
	}
	return a
}

// behind are the checks whose evidence is batches that never came: the batch
// behind them is the one to look at.
var behind = map[string]bool{"seq-gap": true, "late-join": true}

func evidenceAt(f *diagnose.Finding) effect {
	e := effect{goTo: "streams", replica: f.Evidence.Replica, seq: f.Evidence.SeqFrom, block: f.Evidence.Block}
	if to := f.Evidence.SeqTo; to != nil && behind[f.Code] {
		seq := *to + 1
		e.seq = &seq
	}
	return e
}

func (v *findings) draw(s *scene, w, h int) []string {
	if w <= 0 || h <= 0 {
		return nil
	}
	rows := v.rows(s)
	if len(rows) == 0 {
		v.inside = false
		var out []string
		for _, line := range wrap(v.empty(s), w-2, h) {
			out = append(out, " "+line)
		}
		return out
	}
	// Half for the list; what it does not need goes to the text.
	top := min(len(rows)+1, max(2, h/2))
	switch {
	case h < 8 && v.inside || s.maximised && v.inside:
		top = 0
	case h < 8 || s.maximised:
		top = h
	}
	var out []string
	if top > 0 {
		out = v.drawList(s, rows, w, top)
	}
	if h > len(out) && (top < h) {
		out = append(out, v.drawText(s, rows[v.at(rows)], w, h-len(out))...)
	}
	return out
}

func (v *findings) empty(s *scene) string {
	if s.filter.active() && s.snap != nil && len(s.snap.Findings) > 0 {
		return "no finding matches the filter; esc clears it"
	}
	n := 0
	if s.snap != nil {
		n = len(s.snap.Replicas)
	}
	return fmt.Sprintf("Nothing is wrong that the checks can see (%s on %s).", wire.Counted(len(diagnose.Checks), "check"), wire.Counted(n, "replica"))
}

func (v *findings) drawList(s *scene, rows []diagnose.Alike, w, h int) []string {
	v.list.sync(len(rows), h-1, func(i int) string { return rows[i].Key() })
	code, subject, since := 5, 8, 6
	for _, a := range rows {
		f := a[0]
		code = max(code, ansi.StringWidth(clean(f.Code)))
		subject = max(subject, ansi.StringWidth(subjects(a)))
		since = max(since, len(findingTime(s, f)))
	}
	code, subject = min(code, 20), min(subject, max(8, w/8))
	cols := []int{5, 5, code, subject, since}
	if w < 60 {
		cols = []int{5, 0, code, subject, 0}
	}
	row := func(cells []string, on func(i int) style) string {
		var line string
		for i, width := range cols {
			if width > 0 {
				line += on(i).render(fit(cells[i], width)) + "  "
			}
		}
		return line
	}
	heads := []string{"sev", "state", "check", "subject", "since"}
	arrow := glyphDown
	if v.reverse {
		arrow = glyphUp
	}
	heads[findingSorts[v.sort].column] += arrow
	out := []string{cut("  "+row(heads, func(int) style { return s.theme.head })+s.theme.head.render("what"), w)}
	for i := v.list.top; i < min(len(rows), v.list.top+h-1); i++ {
		f := rows[i][0]
		cells := []string{severityWord(f.Severity), stateWord(f), clean(f.Code), subjects(rows[i]), findingTime(s, f)}
		line := row(cells, func(i int) style {
			switch {
			case !f.Open():
				return s.theme.dim
			case i == 0:
				return s.theme.severity(int(f.Severity))
			}
			return style{}
		}) + clean(f.Title)
		switch {
		case i == v.list.cursor && !v.inside:
			out = append(out, s.theme.selected(glyphMarker+" "+line, w))
		case i == v.list.cursor:
			out = append(out, cut(glyphMarker+" "+line, w))
		default:
			out = append(out, cut("  "+line, w))
		}
	}
	return out
}

// subjects names whom findings are about, in a column.
func subjects(a diagnose.Alike) string {
	names := a.Names()
	if len(names) > 2 {
		return wire.Counted(len(names), "replica")
	}
	return clean(strings.Join(names, ", "))
}

func findingTime(s *scene, f *diagnose.Finding) string {
	if s.relative {
		return s.when(f.Since)
	}
	return clock(f.Since)
}

func (v *findings) drawText(s *scene, a diagnose.Alike, w, h int) []string {
	f := a[0]
	lines := v.text(s, a, w-2)
	v.scroll = min(v.scroll, max(0, len(lines)-(h-1)))
	right := ""
	if len(lines) > h-1 {
		right = fmt.Sprintf("%d–%d of %d lines", v.scroll+1, min(len(lines), v.scroll+h-1), len(lines))
	}
	words := severityWord(f.Severity) + " " + clean(f.Code) + " · " + subjects(a)
	out := []string{paneTitle(s.theme, v.inside, words, right, w)}
	for _, line := range lines[v.scroll:min(len(lines), v.scroll+h-1)] {
		if strings.HasPrefix(line, glyphArrow) {
			line = s.theme.strong.render(line)
		}
		out = append(out, cut("  "+line, w))
	}
	return out
}

// text is a finding in full, wrapped, and who else it is about.
func (v *findings) text(s *scene, a diagnose.Alike, w int) []string {
	f := a[0]
	lasted := "open since " + s.when(f.Since) + " UTC, for " + ago(s.snap.Until-f.Since)
	if s.relative {
		lasted = "open since " + s.when(f.Since)
	}
	if f.Until != nil {
		lasted = "over: from " + s.when(f.Since) + " to " + s.when(*f.Until)
		if *f.Until == f.Since {
			lasted = "over: happened at " + s.when(f.Since)
		}
	}
	out := wrap(clean(f.Title), w, 8)
	for _, part := range []struct{ name, text string }{
		{"when", lasted},
		{"check", checkTitle(f.Code)},
		{"evidence", f.Evidence.String()},
		{"effect", f.Effect.String()},
		{"likewise", likewise(a)},
		{"otherwise", f.Counterfactual},
		{glyphArrow + " next", f.Next},
	} {
		if part.text == "" {
			continue
		}
		name := part.name
		for _, line := range wrap(clean(part.text), max(8, w-11), 12) {
			out = append(out, fit(name, 11)+line)
			name = ""
		}
	}
	return out
}

// likewise says what the others of findings that are alike rest on. A filter by
// subject shows one of them alone.
func likewise(a diagnose.Alike) string {
	var out []string
	for _, f := range a[1:] {
		out = append(out, f.Evidence.String())
	}
	return strings.Join(out, "; ")
}

func checkTitle(code string) string {
	for i := range diagnose.Checks {
		if c := &diagnose.Checks[i]; c.Code == code {
			return c.Title + " (from " + c.Needs + ")"
		}
	}
	return ""
}
