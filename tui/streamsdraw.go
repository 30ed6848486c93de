package tui

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// streamsLayout says how many lines each part gets, titles included; 0 hides
// it. With beside the bytes are at the right of the events.
type streamsLayout struct {
	strips, axis, legend int
	panes                [numPanes]int
	beside               bool
}

// From these heights on, below the strips, there is room for more panes.
const (
	roomForTwo   = 10
	roomForThree = 24
	wideEnough   = 140 // for events and bytes beside each other
)

// layoutStreams divides the body. It depends on sizes, focus and the number of
// replicas alone.
func layoutStreams(w, h, replicas int, focus pane, maximised bool) streamsLayout {
	var l streamsLayout
	switch {
	case maximised && focus != paneStrips || h < 5 && focus != paneStrips:
		l.panes[focus] = h
		return l
	case maximised || h < 5:
		l.axis = min(1, h/5)
		l.legend = min(1, h/8)
		l.strips = h - l.axis - l.legend
		return l
	}
	l.axis = min(1, h/7)
	l.legend = min(1, h/14)
	l.strips = min(replicas, max(1, (h-l.axis-l.legend)/4))
	rest := h - l.strips - l.axis - l.legend
	switch {
	case rest >= roomForThree && w >= wideEnough:
		l.beside = true
		l.panes[paneBatches] = rest / 3
		l.panes[paneEvents], l.panes[paneBytes] = rest-rest/3, rest-rest/3
	case rest >= roomForThree:
		l.panes[paneBatches], l.panes[paneBytes] = rest/3, rest/3
		l.panes[paneEvents] = rest - 2*(rest/3)
	case rest >= roomForTwo && focus == paneBytes:
		l.panes[paneEvents] = rest / 2
		l.panes[paneBytes] = rest - rest/2
	case rest >= roomForTwo:
		l.panes[paneBatches] = rest / 2
		l.panes[paneEvents] = rest - rest/2
	default:
		l.panes[max(focus, paneBatches)] = rest
	}
	return l
}

func (v *streams) draw(s *scene, w, h int) []string {
	if w <= 0 || h <= 0 {
		return nil
	}
	shown, chosen := v.replicas(s)
	at, r := v.selected(shown)
	if r == nil {
		return []string{cut(" no replica has been seen", w)}
	}
	v.choose(r.Replica)
	rows := v.rows(s)
	if v.pickedOf(rows) == nil {
		v.focus = paneStrips
	}
	l := layoutStreams(w, h, len(shown), v.focus, s.maximised)
	out := v.drawStrips(s, shown, at, l, w)
	out = append(out, v.drawBatches(s, rows, r, chosen, w, l.panes[paneBatches])...)
	e := v.pickedOf(rows)
	if e == nil || l.panes[paneEvents]+l.panes[paneBytes] == 0 {
		return out
	}
	st := v.studied(s, e, r)
	v.event = clamp(v.event, max(1, len(e.Batch.Events)))
	if !l.beside {
		out = append(out, v.drawEvents(s, st, r, w, l.panes[paneEvents])...)
		return append(out, v.drawBytes(s, st, w, l.panes[paneBytes])...)
	}
	const dump = 1 + 7 + 3*16 + 1 + 16
	left := v.drawEvents(s, st, r, w-dump-1, l.panes[paneEvents])
	right := v.drawBytes(s, st, dump, l.panes[paneBytes])
	for i := range l.panes[paneEvents] {
		line := strings.Repeat(" ", w-dump-1)
		if i < len(left) {
			line = fit(left[i], w-dump-1)
		}
		if i < len(right) {
			line += s.theme.rule.render(glyphBar) + right[i]
		}
		out = append(out, line)
	}
	return out
}

// span is the time that the strips show: all of a recording, else what was
// observed.
func span(s *scene) period {
	p := period{s.snap.From, s.snap.Until}
	if s.end != nil {
		p = period{min(p.from, s.end.From), max(p.to, s.end.Until)}
		if p.from == 0 { // nothing is shown yet
			p.from = s.end.From
		}
	}
	if p.to <= p.from {
		p.to = p.from + 1e9
	}
	return p
}

func (v *streams) drawStrips(s *scene, shown []*diagnose.Replica, at int, l streamsLayout, w int) []string {
	if l.strips <= 0 {
		return nil
	}
	from, all := window(at, len(shown), l.strips), len(shown)
	shown = shown[from:min(len(shown), from+l.strips)]
	at -= from
	name, seq := 3, 3
	for _, r := range shown {
		name = max(name, ansi.StringWidth(nameOf(r.Replica)))
		seq = max(seq, len(lastSeq(r)))
	}
	name = min(name, max(4, min(24, w/5)))
	seq++
	words := min(40, w*7/20) // whatever they say, so that strips keep their scale
	room := w - 2 - name - 1
	if room-seq-words < max(20, w/3) {
		words = 0
	}
	if room-seq-words < 20 {
		seq = 0
	}
	wide := max(1, room-seq-words)
	p := span(s)
	now := p.bin(s.snap.Until, wide)
	pulse := takePulse(s.snap, shown, p, wide)
	ahead := v.ahead(s, shown, p, wide, pulse)
	var occur [numBeats]bool
	var out []string
	for i, r := range shown {
		line := strip(r, p, s.snap.Until, pulse, wide)
		if next := ahead[r.Replica]; next != nil {
			copy(line[now+1:], next[now+1:])
		}
		for _, b := range line {
			occur[b] = true
		}
		text := fit(nameOf(r.Replica), name) + " " + drawBeats(line, now+1, s.theme)
		if seq > 0 {
			text += fitRight(lastSeq(r), seq)
		}
		if words > 0 {
			says := plight(r)
			if says == "" {
				says = string(r.Trust.Word)
			}
			text += "  " + s.theme.trust(r.Trust.Word.Badness()).render(cut(says, words-2))
		}
		switch {
		case i == at && v.focus == paneStrips:
			text = s.theme.selected(glyphMarker+" "+text, w)
		case i == at:
			text = glyphMarker + " " + text
		default:
			text = "  " + text
		}
		out = append(out, cut(text, w))
	}
	if l.axis > 0 {
		label := axis(p, s.snap.Until, wide, s.relative)
		if s.end != nil && now < wide-1 && label[now] == ' ' {
			label = label[:now] + "^" + label[now+1:]
		}
		zone := " UTC"
		if s.relative {
			zone = " ago"
		}
		if len(shown) < all {
			zone += fmt.Sprintf("  %s–%s of %s", wire.Grouped(from+1), wire.Grouped(from+len(shown)), wire.Counted(all, "replica"))
		}
		out = append(out, cut(strings.Repeat(" ", 3+name)+s.theme.dim.render(label+zone), w))
	}
	if l.legend > 0 {
		out = append(out, cut(strings.Repeat(" ", 3+name)+beatLegend(occur, s.theme), w))
	}
	return out
}

// ahead gives the strips at the end of a recording, for what is still to come.
func (v *streams) ahead(s *scene, shown []*diagnose.Replica, p period, w int, now *pulse) map[wire.Replica][]beat {
	if s.end == nil || s.end == s.snap {
		return nil
	}
	names := map[wire.Replica]bool{}
	for _, r := range shown {
		names[r.Replica] = true
	}
	var later []*diagnose.Replica
	for i := range s.end.Replicas {
		if r := &s.end.Replicas[i]; names[r.Replica] {
			later = append(later, r)
		}
	}
	pulse := takePulse(s.end, later, p, w)
	now.most = max(now.most, pulse.most) // one scale for before and after
	out := map[wire.Replica][]beat{}
	for _, r := range later {
		out[r.Replica] = strip(r, p, s.end.Until, pulse, w)
	}
	return out
}

// beatLegend explains what stands out on the strips that are shown.
func beatLegend(occur [numBeats]bool, t *theme) string {
	var parts []string
	for b := numBeats - 1; b > beatNone; b-- {
		if words := beats[b].words; occur[b] && words != "" {
			parts = append(parts, b.style(t).render(b.glyph(t))+" "+t.dim.render(words))
		}
	}
	return strings.Join(parts, "  ")
}

// window gives the first of n rows to show in h lines, so that row at is about
// in the middle.
func window(at, n, h int) int { return max(0, min(at-h/2, n-h)) }

// paneTitle is a pane's first line.
func paneTitle(t *theme, focused bool, words, right string, w int) string {
	line := "  " + words + " "
	on := t.dim
	if focused {
		line, on = glyphMarker+" "+words+" ", t.title
	}
	line = cut(line, w)
	fill := w - ansi.StringWidth(line) - ansi.StringWidth(right)
	if right == "" || fill < 4 {
		return on.render(line) + t.rule.render(strings.Repeat(glyphRule, max(0, w-ansi.StringWidth(line))))
	}
	return on.render(line) + t.rule.render(strings.Repeat(glyphRule, fill-2)) + " " + t.dim.render(right) + " "
}

func (v *streams) drawBatches(s *scene, rows []tapeRow, r *diagnose.Replica, chosen bool, w, h int) []string {
	if h <= 0 {
		return nil
	}
	now := v.pickedOf(rows)
	at, n, of := 0, 0, 0
	for i := range rows {
		if rows[i].entry == nil {
			continue
		}
		n++
		if rows[i].entry == now {
			at, of = i, n
		}
	}
	words := "batches of " + nameOf(r.Replica) + " · " + string(r.Trust.Word)
	if p := plight(r); p != "" {
		words += ": " + p
	}
	if s.filter.active() && !chosen {
		words += " · filtered"
	}
	right := ""
	if n > 0 {
		right = fmt.Sprintf("%s of %s, newest first", wire.Grouped(of), wire.Grouped(n))
	}
	out := []string{paneTitle(s.theme, v.focus == paneBatches, words, right, w)}
	if n == 0 {
		return append(out, cut("  "+noBatches(s, chosen), w))[:min(h, 2)]
	}
	seq := 0
	from := window(at, len(rows), h-1)
	visible := rows[from:min(len(rows), from+h-1)]
	for _, row := range visible {
		if row.entry != nil {
			seq = max(seq, len(wire.Grouped(row.entry.Batch.Seq)))
		}
	}
	for i, row := range visible {
		out = append(out, v.batchRow(s, r, row, from+i == at, seq, w))
	}
	return out
}

func noBatches(s *scene, chosen bool) string {
	if s.filter.active() && !chosen {
		return "no batch matches the filter; esc clears it"
	}
	return "no batch of this replica is on the tape, which holds the newest ones of the fleet"
}

func (v *streams) batchRow(s *scene, r *diagnose.Replica, row tapeRow, selected bool, seq, w int) string {
	if row.entry == nil {
		words, kind := row.words(r)
		return kind.style(s.theme).render(cut("  "+kind.glyph(s.theme)+" "+words, w))
	}
	e := row.entry
	replayed := " "
	if e.Replayed {
		replayed = beatReplay.glyph(s.theme)
	}
	line := fitRight(wire.Grouped(e.Batch.Seq), seq) + "  " + s.when(e.At)
	if w >= 60 {
		line += "  " + fitRight(lagOf(e), 7)
	}
	line = cut(line+" "+replayed+" "+clean(summary(e.Batch)), w-2)
	switch {
	case selected && v.focus == paneBatches:
		return s.theme.selected(glyphMarker+" "+line, w)
	case selected:
		return cut(glyphMarker+" "+line, w)
	}
	return cut("  "+line, w)
}

func (v *streams) drawEvents(s *scene, st *study, r *diagnose.Replica, w, h int) []string {
	if h <= 0 {
		return nil
	}
	v.fieldWidth = max(20, w-6)
	e := st.entry
	n := len(e.Batch.Events)
	words := "events of batch " + wire.Grouped(e.Batch.Seq)
	if e.Replayed {
		words += ", replayed"
	}
	out := []string{paneTitle(s.theme, v.focus == paneEvents, words, batchFacts(e), w)}
	if n == 0 {
		return append(out, cut("  no events: the engine had nothing to tell in this step", w))[:min(h, 2)]
	}
	fields := eventLines(s, st, v.event, r, v.fieldWidth)
	v.line = min(v.line, len(fields))
	at := v.event + v.line
	all := n + len(fields)
	from := window(at, all, h-1)
	if v.event+len(fields)-from >= h-1 && v.focus != paneEvents {
		from = min(v.event, max(0, all-(h-1))) // as much as fits of what is selected
	}
	for i := from; i < min(all, from+h-1); i++ {
		event, field := i, -1
		switch {
		case i > v.event+len(fields):
			event = i - len(fields)
		case i > v.event:
			event, field = v.event, i-v.event-1
		}
		line, on := "", style{}
		if field < 0 {
			ev := &e.Batch.Events[event]
			line = fmt.Sprintf("%d  %s", event+1, clean(eventTitle(ev)))
			on = eventStyle(s.theme, ev)
			if event == v.event {
				line = glyphMarker + " " + line
			} else {
				line = "  " + line
			}
		} else {
			line = "      " + fields[field].text
		}
		line = cut(line, w)
		if i == at && v.focus == paneEvents {
			out = append(out, s.theme.selected(line, w))
		} else {
			out = append(out, on.render(line))
		}
	}
	return out
}

// batchFacts is what a batch says besides its events.
func batchFacts(e *observe.Entry) string {
	s := wire.Counted(len(e.Batch.Events), "event")
	if e.Batch.Rank >= 0 {
		s += fmt.Sprintf(" · rank %d", e.Batch.Rank)
	}
	if e.Batch.Topic != "" {
		s += " · " + clean(e.Batch.Topic)
	}
	return s
}

func eventStyle(t *theme, e *wire.Event) style {
	switch e.Kind {
	case wire.Bad:
		return t.bad
	case wire.Unknown:
		return t.warn
	case wire.Cleared:
		return t.info
	}
	return style{}
}

func (v *streams) drawBytes(s *scene, st *study, w, h int) []string {
	if h <= 0 {
		return nil
	}
	payload := st.entry.Payload
	var mark stretch
	words := "bytes of batch " + wire.Grouped(st.entry.Batch.Seq)
	if v.event < len(st.bytes) {
		mark = st.bytes[v.event]
		words = fmt.Sprintf("bytes · event %d is %s–%s", v.event+1, wire.Grouped(mark.from), wire.Grouped(max(mark.from, mark.to-1)))
		from, to := v.lineTokens(st)
		if at, ok := st.tokenBytes(v.event, from, to); ok {
			mark = at
			words = fmt.Sprintf("bytes · tokens +%s–+%s of event %d are %s–%s",
				wire.Grouped(from), wire.Grouped(to-1), v.event+1, wire.Grouped(mark.from), wire.Grouped(mark.to-1))
		}
	}
	out := []string{paneTitle(s.theme, v.focus == paneBytes, words, wire.Grouped(len(payload))+" B", w)}
	if len(payload) == 0 {
		return append(out, cut("  the payload was not kept", w))[:min(h, 2)]
	}
	v.perRow = dumpWidth(w)
	n := (len(payload) + v.perRow - 1) / v.perRow
	at := clamp(v.offset/v.perRow, n)
	if v.focus != paneBytes { // it follows the event
		at = clamp(mark.from/v.perRow, n)
	}
	from := window(at, n, h-1)
	for i := from; i < min(n, from+h-1); i++ {
		line := dumpRow(payload, i*v.perRow, v.perRow, mark, s.theme.strong)
		if i == at && v.focus == paneBytes {
			out = append(out, s.theme.selected(line, w))
		} else {
			out = append(out, cut(line, w))
		}
	}
	return out
}
