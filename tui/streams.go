package tui

import (
	"slices"
	"strings"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// pane is a part of the streams view; each one is deeper than the one before.
type pane uint8

const (
	paneStrips pane = iota
	paneBatches
	paneEvents
	paneBytes
	numPanes
)

// batchKey tells batches apart in every snapshot: seeking in a recording makes
// new entries of the same batches.
type batchKey struct {
	seq uint64
	at  wire.Time
}

func keyOf(e *observe.Entry) batchKey { return batchKey{e.Batch.Seq, e.At} }

// streams is the view of what came over the wire: timelines above, and the tape
// of the selected replica below them, from batches down to bytes.
type streams struct {
	replica wire.Replica
	// batch is the selected one, the newest while picked is false.
	batch  batchKey
	picked bool
	// event is the selected one of the batch and line the line of it; offset is
	// the first byte of the selected row of the dump.
	event, line, offset int
	focus               pane
	order               int
	study               *study
	// perRow and fieldWidth are the dump's and the fields' widths, as of the
	// last draw.
	perRow, fieldWidth int
}

// actShallower goes back to the pane or list that this one was opened from.
const actShallower = "shallower"

func newStreams() *streams { return &streams{perRow: 16, fieldWidth: 72} }

func (v *streams) name() string { return "streams" }
func (v *streams) digit() rune  { return '2' }

// stripOrders are the orders of the strips.
var stripOrders = []struct {
	name, words string
	cmp         func(a, b *diagnose.Replica) int
}{
	{"seen", "as first seen", nil},
	{"badness", "worst first", func(a, b *diagnose.Replica) int {
		return b.Trust.Word.Badness() - a.Trust.Word.Badness()
	}},
	{"replica", "by name", func(a, b *diagnose.Replica) int { return strings.Compare(string(a.Replica), string(b.Replica)) }},
}

func (v *streams) bindings() []binding {
	out := []binding{
		{keys: []string{"enter"}, action: actOpen, help: "deeper: batches, their events, their bytes", short: "deeper", rank: 10},
		{keys: []string{"tab"}, action: actNextPane, help: "next pane", short: "pane", rank: 15},
		{keys: []string{"left", "h"}, action: actLeft, help: "event before, in the events"},
		{keys: []string{"right", "l"}, action: actRight, help: "next event, in the events"},
		{keys: []string{"s"}, action: actSort, help: "order of replicas: as first seen, worst first, by name", short: "order", rank: 50},
		{keys: []string{"y", "Y"}, action: actCopyRow, help: "copy the batch as JSON", short: "copy", rank: 35, off: v.noBatch},
		{keys: []string{"e"}, action: actMaximise, help: "the pane alone, again to restore", short: "maximise", rank: 45},
	}
	if v.focus > paneStrips { // else esc is the model's: back to the view before
		out = append(out, binding{keys: []string{"esc"}, action: actShallower, help: "back to the pane above"})
	}
	return out
}

func (v *streams) noBatch(s *scene) string {
	if v.entry(s) == nil {
		return "no batch of this replica is on the tape"
	}
	return ""
}

func (v *streams) sortNames() []string {
	out := make([]string, len(stripOrders))
	for i := range stripOrders {
		out[i] = stripOrders[i].name
	}
	return out
}

func (v *streams) sortBy(name string) { v.order = max(0, slices.Index(v.sortNames(), name)) }

func (v *streams) filterFields() []string {
	return []string{"replica", "model", "trust", "state", "seq", "time", "lag", "replayed", "events"}
}

// replicas lists those that are shown. A filter that fits any replica chooses
// replicas; one that fits none chooses batches.
func (v *streams) replicas(s *scene) (shown []*diagnose.Replica, chosen bool) {
	if s.snap == nil {
		return nil, false
	}
	for pass := 0; pass < 2 && len(shown) == 0; pass++ {
		chosen = pass == 0 && s.filter.active()
		for i := range s.snap.Replicas {
			r := &s.snap.Replicas[i]
			if !chosen || s.filter.match(v.filterFields(), []string{
				clean(string(r.Replica)), clean(r.Model), r.Trust.String(), plight(r),
			}) {
				shown = append(shown, r)
			}
		}
	}
	if by := stripOrders[v.order].cmp; by != nil {
		slices.SortStableFunc(shown, by)
	}
	return shown, chosen
}

// selected gives the selected replica, the first one where it is gone.
func (v *streams) selected(shown []*diagnose.Replica) (int, *diagnose.Replica) {
	for i, r := range shown {
		if r.Replica == v.replica {
			return i, r
		}
	}
	if len(shown) == 0 {
		return 0, nil
	}
	return 0, shown[0]
}

// tapeRow is a batch, or what lies between two batches of the tape: a gap or a
// restart.
type tapeRow struct {
	entry         *observe.Entry
	before, after *observe.Entry
	restart       bool
}

// separator gives what lies between two batches, if anything does.
func separator(births []wire.Time, before, after *observe.Entry) (tapeRow, bool) {
	if before == nil {
		return tapeRow{}, false
	}
	row := tapeRow{before: before, after: after, restart: before.At < lifeBegan(births, after.At)}
	return row, row.restart || after.Batch.Seq > before.Batch.Seq+1
}

// words says what lies between the batches, and what kind of thing it is.
func (t *tapeRow) words(r *diagnose.Replica) (string, beat) {
	if t.restart {
		return "restarted: batch " + wire.Grouped(t.after.Batch.Seq) + " follows " + wire.Grouped(t.before.Batch.Seq), beatRestart
	}
	from, to := t.before.Batch.Seq+1, t.after.Batch.Seq-1
	s := "gap " + rangeOf(from, to) + ", 1 batch"
	if n := to - from; n > 0 {
		s = "gap " + rangeOf(from, to) + ", " + wire.Grouped(n+1) + " batches"
	}
	for _, g := range r.Gaps {
		switch {
		case g.Seen != t.after.At || g.From > to || g.To < from:
		case g.Healed:
			return s + ", healed " + clock(g.HealedAt), beatHealed
		case g.Reason != "":
			return s + ", " + clean(g.Reason), beatGap
		}
	}
	return s, beatGap
}

// rows lists the tape of the selected replica, newest first.
func (v *streams) rows(s *scene) []tapeRow {
	shown, chosen := v.replicas(s)
	_, r := v.selected(shown)
	if r == nil {
		return nil
	}
	filtered := s.filter.active() && !chosen
	births := births(r)
	var out []tapeRow
	var last *observe.Entry
	for _, e := range s.snap.Tape {
		if e.Replica != r.Replica {
			continue
		}
		if filtered {
			if s.filter.match(v.filterFields(), v.cells(s, r, e)) {
				out = append(out, tapeRow{entry: e})
			}
			continue
		}
		if between, ok := separator(births, last, e); ok {
			out = append(out, between)
		}
		out = append(out, tapeRow{entry: e})
		if last == nil || !e.Replayed || e.Batch.Seq > last.Batch.Seq {
			last = e
		}
	}
	slices.Reverse(out)
	return out
}

// count counts what the filter chose from: replicas or batches.
func (v *streams) count(s *scene) (shown, all int) {
	replicas, chosen := v.replicas(s)
	_, r := v.selected(replicas)
	if chosen || r == nil {
		return len(replicas), len(s.snap.Replicas)
	}
	for _, e := range s.snap.Tape {
		if e.Replica == r.Replica {
			all++
		}
	}
	for _, row := range v.rows(s) {
		if row.entry != nil {
			shown++
		}
	}
	return shown, all
}

// cells is a batch as text, in the order of filterFields.
func (v *streams) cells(s *scene, r *diagnose.Replica, e *observe.Entry) []string {
	replayed := "no"
	if e.Replayed {
		replayed = "yes"
	}
	return []string{
		clean(string(r.Replica)), clean(r.Model), r.Trust.String(), plight(r),
		wire.Grouped(e.Batch.Seq), s.when(e.At), lagOf(e), replayed, clean(summary(e.Batch)),
	}
}

func lagOf(e *observe.Entry) string {
	if e.Batch.Engine <= 0 {
		return glyphNone
	}
	d := e.At - e.Batch.Engine
	if d < 0 {
		return ago(d)
	}
	return "+" + ago(d)
}

// entry gives the selected batch: the newest one unless another was picked.
func (v *streams) entry(s *scene) *observe.Entry {
	return v.pickedOf(v.rows(s))
}

func (v *streams) pickedOf(rows []tapeRow) *observe.Entry {
	var newest *observe.Entry
	for i := range rows {
		e := rows[i].entry
		if e == nil {
			continue
		}
		if newest == nil {
			newest = e
		}
		if v.picked && keyOf(e) == v.batch {
			return e
		}
	}
	return newest
}

// studied gives what is known about the selected batch.
func (v *streams) studied(s *scene, e *observe.Entry, r *diagnose.Replica) *study {
	if v.study == nil || v.study.entry != e {
		v.study = newStudy(s.snap.Tape, e, r)
	}
	return v.study
}

func (v *streams) handle(s *scene, action string) effect {
	switch action {
	case actSort:
		v.order = (v.order + 1) % len(stripOrders)
		return effect{toast: "replicas " + stripOrders[v.order].words}
	case actOpen, actNextPane:
		v.focusOn(s, v.focus+1, action == actNextPane)
	case actPrevPane:
		v.focusOn(s, v.focus+numPanes-1, true)
	case actShallower:
		v.focusOn(s, max(v.focus, 1)-1, false)
	case actCopyRow, actCopy:
		if e := v.entry(s); e != nil {
			return effect{copy: entryJSON(e)}
		}
	default:
		if by, ok := strides[action]; ok {
			v.move(s, by)
		}
	}
	return effect{}
}

// focusOn moves to a pane; around at the ends where that is asked for. There is
// nothing below the strips without a batch.
func (v *streams) focusOn(s *scene, p pane, around bool) {
	last := numPanes - 1
	if v.entry(s) == nil {
		last = paneStrips
	}
	switch {
	case p <= last:
	case around:
		p %= last + 1
	default:
		p = last
	}
	v.focus = p
}

// strides says how far each action moves: lines, or to an end.
var strides = map[string]int{
	actUp: -1, actDown: 1, actHalfUp: -8, actHalfDown: 8, actPageUp: -16, actPageDown: 16,
	actTop: -1 << 30, actBottom: 1 << 30, actLeft: stepLeft, actRight: stepRight,
}

const stepLeft, stepRight = -1<<30 - 1, 1<<30 + 1

func (v *streams) move(s *scene, by int) {
	aside := by == stepLeft || by == stepRight
	switch {
	case v.focus == paneStrips && !aside:
		shown, _ := v.replicas(s)
		if len(shown) > 0 {
			at, _ := v.selected(shown)
			v.choose(shown[clamp(at+by, len(shown))].Replica)
		}
	case v.focus == paneBatches && !aside:
		v.moveBatch(s, by)
	case v.focus == paneEvents:
		v.moveEvent(s, by)
	case v.focus == paneBytes && !aside:
		v.moveBytes(s, by)
	}
}

func clamp(i, n int) int { return min(max(i, 0), n-1) }

// choose selects a replica, and its newest batch.
func (v *streams) choose(name wire.Replica) {
	if v.replica != name {
		v.replica, v.picked = name, false
		v.event, v.line, v.offset = 0, 0, 0
	}
}

func (v *streams) moveBatch(s *scene, by int) {
	var list []*observe.Entry
	at := 0
	rows := v.rows(s)
	now := v.pickedOf(rows)
	for _, r := range rows {
		if r.entry == nil {
			continue
		}
		if r.entry == now {
			at = len(list)
		}
		list = append(list, r.entry)
	}
	if len(list) == 0 {
		return
	}
	to := clamp(at+by, len(list))
	// At the top it follows what comes.
	v.batch, v.picked = keyOf(list[to]), to > 0
	v.event, v.line, v.offset = 0, 0, 0
}

func (v *streams) moveEvent(s *scene, by int) {
	e := v.entry(s)
	if e == nil || len(e.Batch.Events) == 0 {
		return
	}
	n := len(e.Batch.Events)
	shown, _ := v.replicas(s)
	_, r := v.selected(shown)
	st := v.studied(s, e, r)
	v.event = clamp(v.event, n)
	fields := eventLines(s, st, v.event, r, v.fieldWidth)
	lines := 1 + len(fields)
	switch {
	case by == stepLeft:
		v.event, v.line = clamp(v.event-1, n), 0
	case by == stepRight:
		v.event, v.line = clamp(v.event+1, n), 0
	case v.line+by >= 0 && v.line+by < lines:
		v.line += by
	case by < -1<<20:
		v.event, v.line = 0, 0
	case by > 1<<20:
		v.event, v.line = n-1, 0
	case by < 0 && v.line > 0:
		v.line = 0
	case by > 0 && v.event == n-1:
		v.line = lines - 1
	default:
		v.event, v.line = clamp(v.event+by/max(by, -by), n), 0
	}
	v.offset = st.bytes[v.event].from
	from, to := v.lineTokens(st)
	if at, ok := st.tokenBytes(v.event, from, to); ok {
		v.offset = at.from
	}
}

// lineTokens gives the tokens of the selected event that its selected line is
// about, none if it is about none.
func (v *streams) lineTokens(st *study) (from, to int) {
	if st.linesOf != v.event || v.line < 1 || v.line > len(st.lines) {
		return 0, 0
	}
	l := &st.lines[v.line-1]
	return l.from, l.to
}

func (v *streams) moveBytes(s *scene, by int) {
	e := v.entry(s)
	if e == nil || len(e.Payload) == 0 {
		return
	}
	rows := (len(e.Payload) + v.perRow - 1) / v.perRow
	v.offset = clamp(v.offset/v.perRow+by, rows) * v.perRow
	shown, _ := v.replicas(s)
	_, r := v.selected(shown)
	st := v.studied(s, e, r)
	for i, b := range st.bytes {
		if b.from < v.offset+v.perRow && v.offset < b.to {
			v.event, v.line = i, v.lineAt(s, st, i, r)
			break
		}
	}
}

// lineAt gives the line of an event with the first token on the selected row of
// the dump, 0 for the event itself.
func (v *streams) lineAt(s *scene, st *study, event int, r *diagnose.Replica) int {
	for i, l := range eventLines(s, st, event, r, v.fieldWidth) {
		if at, ok := st.tokenBytes(event, l.from, l.to); ok && at.from < v.offset+v.perRow && v.offset < at.to {
			return i + 1
		}
	}
	return 0
}

// selectAt shows a replica, and the batch with a number or the one behind the
// gap that it lies in.
func (v *streams) selectAt(s *scene, e effect) {
	if e.replica != "" {
		v.choose(e.replica)
	}
	if e.seq == nil || s.snap == nil {
		return
	}
	var found *observe.Entry
	for _, t := range s.snap.Tape {
		// Of several lives the newest one counts.
		if t.Replica != v.replica || t.Batch.Seq < *e.seq {
			continue
		}
		if found == nil || t.Batch.Seq <= found.Batch.Seq || found.Batch.Seq != *e.seq && t.Batch.Seq == *e.seq {
			found = t
		}
	}
	if found != nil {
		v.batch, v.picked, v.focus = keyOf(found), true, paneBatches
		v.event, v.line, v.offset = 0, 0, 0
	}
}

// export gives the strips as words, or the batches where those have the focus.
func (v *streams) export(s *scene) table {
	if v.focus == paneStrips {
		out := table{columns: []string{"replica", "trust", "last_seq", "state", "gaps_open", "gaps_healed", "restarts"}}
		shown, _ := v.replicas(s)
		for _, r := range shown {
			out.rows = append(out.rows, []string{
				nameOf(r.Replica), r.Trust.String(), lastSeq(r), plight(r),
				wire.Grouped(r.GapsOpen), wire.Grouped(r.GapsHealed), wire.Grouped(r.Restarts),
			})
		}
		return out
	}
	out := table{columns: []string{"replica", "seq", "time", "lag", "replayed", "events"}}
	shown, _ := v.replicas(s)
	_, r := v.selected(shown)
	for _, row := range v.rows(s) {
		if row.entry == nil {
			words, _ := row.words(r)
			out.rows = append(out.rows, []string{nameOf(r.Replica), "", "", "", "", words})
			continue
		}
		c := v.cells(s, r, row.entry)
		out.rows = append(out.rows, append([]string{c[0]}, c[4:]...))
	}
	return out
}

func lastSeq(r *diagnose.Replica) string {
	if !r.Heard {
		return glyphNone
	}
	return wire.Grouped(r.Last)
}
