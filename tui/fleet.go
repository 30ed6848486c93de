package tui

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// fleetView is view 1: a line for each replica, worst first.
type fleetView struct {
	list list
	// moved says that a row was chosen. Until then the first one is, which is
	// the worst and not the one that was.
	moved   bool
	sort    string // a column's name, "" for badness
	reverse bool
	hidden  map[string]bool // columns switched off
	chosen  map[string]bool // columns switched on though their default is off

	// rows is the order of the last snapshot it was made for.
	rows struct {
		snap    *observe.Snapshot
		sort    string
		reverse bool
		filter  *filter
		order   []int
	}
}

func newFleet() *fleetView {
	return &fleetView{hidden: map[string]bool{}, chosen: map[string]bool{}}
}

func (f *fleetView) name() string { return "fleet" }
func (f *fleetView) digit() rune  { return '1' }

func (f *fleetView) bindings() []binding {
	return []binding{
		{keys: []string{"enter"}, action: actOpen, help: "open the replica's stream", short: "open", rank: 10, off: noReplica},
		{keys: []string{"y"}, action: actCopy, help: "copy the replica's name", off: noReplica},
		{
			keys: []string{"R"}, action: actRecent, short: "replay", rank: 15, off: noAsking,
			help: "ask a late-joined replica's publisher for the batches before; says first what it would send",
		},
		{keys: []string{"tab"}, action: actNextPane, help: "to the streams"},
		{keys: []string{"shift+tab"}, action: actPrevPane, help: "to the findings"},
	}
}

func noAsking(s *scene) string {
	if s.asks {
		return noReplica(s)
	}
	return "only a running fleet can be asked for a replay"
}

func noReplica(s *scene) string {
	if len(s.snap.Replicas) == 0 {
		return "no replica has been seen"
	}
	return ""
}

func (f *fleetView) filterFields() []string {
	out := make([]string, len(fleetColumns))
	for i := range fleetColumns {
		out[i] = fleetColumns[i].name
	}
	return out
}

// order gives the rows as they are shown, as positions in the snapshot. It is
// kept until the snapshot, the sort or the filter changes.
func (f *fleetView) order(s *scene) []int {
	r := &f.rows
	if r.snap == s.snap && r.sort == f.sort && r.reverse == f.reverse && r.filter == s.filter && r.order != nil {
		return r.order
	}
	r.snap, r.sort, r.reverse, r.filter = s.snap, f.sort, f.reverse, s.filter
	replicas := s.snap.Replicas
	r.order = r.order[:0]
	if r.order == nil {
		r.order = []int{}
	}
	var fields, cells []string
	if s.filter.active() {
		fields, cells = f.filterFields(), make([]string, len(fleetColumns))
	}
	for i := range replicas {
		if fields != nil {
			for c := range fleetColumns {
				cells[c] = fleetColumns[c].text(s, &replicas[i])
			}
			if !s.filter.match(fields, cells) {
				continue
			}
		}
		r.order = append(r.order, i)
	}
	f.sortRows(s, r.order)
	return r.order
}

func (f *fleetView) sortRows(s *scene, order []int) {
	replicas := s.snap.Replicas
	if c := columnNamed(f.sort); c != nil && c.key != nil {
		keys := make([]float64, len(replicas))
		for _, i := range order {
			keys[i] = c.key(s, &replicas[i])
		}
		slices.SortFunc(order, func(a, b int) int {
			return f.direction(cmp.Or(cmp.Compare(keys[b], keys[a]), cmp.Compare(replicas[a].Replica, replicas[b].Replica)))
		})
		return
	}
	by := worse
	if f.sort == "replica" {
		by = func(a, b *diagnose.Replica) int { return cmp.Compare(a.Replica, b.Replica) }
	}
	slices.SortFunc(order, func(a, b int) int { return f.direction(by(&replicas[a], &replicas[b])) })
}

func (f *fleetView) direction(c int) int {
	if f.reverse {
		return -c
	}
	return c
}

// worse orders replicas by what should be looked at first.
func worse(a, b *diagnose.Replica) int {
	return cmp.Or(
		cmp.Compare(b.Trust.Word.Badness(), a.Trust.Word.Badness()),
		cmp.Compare(b.GapsOpen, a.GapsOpen),
		cmp.Compare(b.Doubt, a.Doubt),
		cmp.Compare(b.Restarts, a.Restarts),
		cmp.Compare(a.Replica, b.Replica),
	)
}

func (f *fleetView) count(s *scene) (shown, all int) {
	return len(f.order(s)), len(s.snap.Replicas)
}

func (f *fleetView) draw(s *scene, w, h int) []string {
	if h <= 0 || w <= 0 {
		return nil
	}
	order := f.order(s)
	name := f.namer(s, order)
	if !f.moved {
		f.list.cursor, f.list.selected = 0, ""
	}
	if w < minimalWidth || h < 3 {
		return f.drawMinimal(s, order, w, h)
	}
	below := detailLines(len(order), h)
	f.list.sync(len(order), h-1, name) // where there is a detail, all rows fit
	cols := f.columns(s, w-2)
	out := make([]string, 0, h)
	out = append(out, cut("  "+f.headRow(s.theme, cols), w))
	if len(order) == 0 {
		return append(out, s.theme.dim.render(cut("  "+emptyFleet(s), w)))
	}
	for i := f.list.top; i < min(len(order), f.list.top+f.list.height); i++ {
		out = append(out, f.row(s, cols, &s.snap.Replicas[order[i]], i == f.list.cursor, w))
	}
	if below > 0 {
		out = append(out, "")
		out = append(out, f.detail(s, &s.snap.Replicas[order[f.list.cursor]], w, below)...)
	}
	return out
}

func emptyFleet(s *scene) string {
	if s.filter.active() {
		return "no replica matches the filter; esc clears it"
	}
	return "no replica has been seen"
}

func (f *fleetView) namer(s *scene, order []int) func(int) string {
	return func(i int) string { return string(s.snap.Replicas[order[i]].Replica) }
}

func (f *fleetView) headRow(t *theme, cols []placed) string {
	var b strings.Builder
	for i, c := range cols {
		if i > 0 {
			b.WriteString("  ")
		}
		head := c.head
		if c.name == f.sort || f.sort == "" && c.name == "trust" {
			arrow := glyphDown
			if f.reverse {
				arrow = glyphUp
			}
			head += arrow
		}
		b.WriteString(t.head.render(c.align(head, c.w)))
	}
	return b.String()
}

func (f *fleetView) row(s *scene, cols []placed, r *diagnose.Replica, selected bool, w int) string {
	var b strings.Builder
	for i, c := range cols {
		if i > 0 {
			b.WriteString("  ")
		}
		cell := c.align(c.draw(s, r, c.w), c.w)
		if c.style != nil && !selected {
			cell = c.style(s.theme, r).render(cell)
		}
		b.WriteString(cell)
	}
	if selected {
		return s.theme.selected(glyphMarker+" "+b.String(), w)
	}
	return "  " + b.String()
}

// drawMinimal is what is left on a tiny terminal: who, and how sure.
func (f *fleetView) drawMinimal(s *scene, order []int, w, h int) []string {
	f.list.sync(len(order), h, f.namer(s, order))
	if len(order) == 0 {
		return []string{cut(emptyFleet(s), w)}
	}
	var out []string
	for i := f.list.top; i < min(len(order), f.list.top+h); i++ {
		r := &s.snap.Replicas[order[i]]
		word := string(r.Trust.Word)
		if w < 16 {
			word = word[:4]
		}
		width := min(max(w-len(word)-3, 1), 24)
		line := fit(clean(string(r.Replica)), width) + " " + word
		if i == f.list.cursor {
			out = append(out, s.theme.selected(cut(glyphMarker+" "+line, w), w))
			continue
		}
		out = append(out, cut("  "+fit(clean(string(r.Replica)), width)+" "+s.theme.trust(r.Trust.Word.Badness()).render(word), w))
	}
	return out
}

// chosenReplica is the selected one, nil if there is none.
func (f *fleetView) chosenReplica(s *scene) *diagnose.Replica {
	order := f.order(s)
	if len(order) == 0 {
		return nil
	}
	f.list.sync(len(order), f.list.height, f.namer(s, order))
	return &s.snap.Replicas[order[f.list.cursor]]
}

func (f *fleetView) handle(s *scene, action string) effect {
	order := f.order(s)
	if f.list.move(action, len(order), f.namer(s, order)) {
		f.moved = true
		return effect{}
	}
	switch action {
	case actSort:
		f.sort = after(f.sortNames(), f.sort)
		f.reverse = false
		return effect{toast: "sorted by " + f.sortWord()}
	case actReverse:
		f.reverse = !f.reverse
		return effect{toast: "sorted by " + f.sortWord()}
	case actColumns:
		return effect{open: "columns"}
	case actNextPane:
		return effect{goTo: "streams"}
	case actPrevPane:
		return effect{goTo: "findings"}
	}
	r := f.chosenReplica(s)
	if r == nil {
		return effect{}
	}
	switch action {
	case actOpen:
		return effect{goTo: "streams", replica: r.Replica}
	case actCopy:
		return effect{copy: string(r.Replica)}
	case actCopyRow:
		return effect{copy: rowJSON(f.fieldsOf(s, r))}
	case actRecent:
		return f.recent(s, r)
	}
	return effect{}
}

// recent asks for a replay of what a replica published before it was joined.
func (f *fleetView) recent(s *scene, r *diagnose.Replica) effect {
	switch {
	case !r.Heard:
		return effect{toast: nameOf(r.Replica) + " has sent no batch yet"}
	case r.First == 0:
		return effect{toast: nameOf(r.Replica) + " was joined at its first batch: there is none before"}
	}
	return effect{recent: &lateJoin{r.Replica, r.First}}
}

func (f *fleetView) sortWord() string {
	word := cmp.Or(f.sort, "what is worst")
	if f.reverse {
		word += ", the other way round"
	}
	return word
}

// after gives the name that follows, the first one after the last.
func after(names []string, name string) string {
	return names[(slices.Index(names, name)+1)%len(names)]
}

// sortNames begins with the default, which has no column of its own.
func (f *fleetView) sortNames() []string {
	out := []string{""}
	for i := range fleetColumns {
		if c := &fleetColumns[i]; c.key != nil || c.name == "replica" {
			out = append(out, c.name)
		}
	}
	return out
}

func (f *fleetView) sortBy(name string) { f.sort, f.reverse = name, false }

func (f *fleetView) selectAt(_ *scene, e effect) {
	if e.replica != "" {
		f.moved = true
		f.list.selected = string(e.replica)
	}
}

func (f *fleetView) columnNames() (names []string, on []bool) {
	for i := range fleetColumns {
		names = append(names, fleetColumns[i].name)
		on = append(on, !f.hidden[fleetColumns[i].name])
	}
	return names, on
}

func (f *fleetView) setColumn(name string, on bool) {
	if name == "replica" {
		return // a row without its name says nothing
	}
	f.hidden[name] = !on
	f.chosen[name] = on
}

// fieldsOf gives a row's shown columns as names and texts.
func (f *fleetView) fieldsOf(s *scene, r *diagnose.Replica) (names, cells []string) {
	for i := range fleetColumns {
		c := &fleetColumns[i]
		if f.shown(s, c) {
			names = append(names, c.name)
			cells = append(cells, c.text(s, r))
		}
	}
	return names, cells
}

func (f *fleetView) export(s *scene) table {
	var t table
	for i := range fleetColumns {
		if f.shown(s, &fleetColumns[i]) {
			t.columns = append(t.columns, fleetColumns[i].name)
		}
	}
	for _, i := range f.order(s) {
		_, cells := f.fieldsOf(s, &s.snap.Replicas[i])
		t.rows = append(t.rows, cells)
	}
	return t
}

// rowJSON writes a row as a JSON object with its columns in order.
func rowJSON(names, cells []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoteJSON(n) + ": " + quoteJSON(cells[i]))
	}
	b.WriteByte('}')
	return b.String()
}

func quoteJSON(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil { // a string cannot fail
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// nameOf is a replica's name on screen.
func nameOf(r wire.Replica) string { return clean(string(r)) }
