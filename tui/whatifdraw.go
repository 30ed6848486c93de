package tui

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// tierColumns are the numbers of matched blocks; those of lower tiers show
// where any replica has some.
var tierColumns = []struct {
	head string
	n    func(*observe.Row) int
}{
	{"device", func(r *observe.Row) int { return r.Device }},
	{"host", func(r *observe.Row) int { return r.Host }},
	{"disk", func(r *observe.Row) int { return r.Disk }},
	{"external", func(r *observe.Row) int { return r.External }},
}

// whatIfColumn is a column of the table, strip and name left out.
type whatIfColumn struct {
	head string
	text func(*observe.Row) string
	w    int
	left bool
}

// columns are those that fit, the least telling one left out first.
func (v *whatIf) columns(rows []*observe.Row, w int) (before, after []whatIfColumn) {
	mark := func(r *observe.Row, n int) string { return about(r) + group(n) }
	unsure := false
	for _, r := range rows {
		unsure = unsure || r.Certain < r.Depth()
	}
	trust := whatIfColumn{head: "trust", left: true, text: func(r *observe.Row) string { return string(r.Trust.Word) }}
	if w >= 120 {
		trust.text = func(r *observe.Row) string { return r.Trust.String() }
	}
	if w >= 60 {
		before = append(before, trust)
	}
	for i, c := range tierColumns {
		some := i == 0
		for _, r := range rows {
			some = some || c.n(r) > 0
		}
		if some && w >= 70 {
			after = append(after, whatIfColumn{head: c.head, text: func(r *observe.Row) string {
				if i == 0 && r.Upper > r.Device { // a group of a hybrid model lacks its part
					return mark(r, r.Device) + " " + glyphAtMost + group(r.Upper)
				}
				return mark(r, c.n(r))
			}})
		}
	}
	if unsure && w >= 90 {
		after = append(after, whatIfColumn{head: "sure", text: func(r *observe.Row) string { return group(r.Certain) }})
	}
	after = append(after, whatIfColumn{head: "cached tok", text: func(r *observe.Row) string { return mark(r, r.CachedTokens) }})
	if w >= 50 {
		after = append(after, whatIfColumn{head: "share", text: v.share})
	}
	for _, cols := range [][]whatIfColumn{before, after} {
		for i := range cols {
			cols[i].w = ansi.StringWidth(cols[i].head)
			for _, r := range rows {
				cols[i].w = max(cols[i].w, ansi.StringWidth(cols[i].text(r)))
			}
			cols[i].w = min(cols[i].w, 30)
		}
	}
	return before, after
}

func (v *whatIf) drawAnswer(s *scene, w, h int) []string {
	rows := v.rows(s)
	most := 2 // lines of each sentence
	if h < 10 {
		most = 1
	}
	out := joined(v.promptParts(s), w, most)
	for _, line := range wrap(clean(v.verdict()), w-2, most) {
		out = append(out, " "+s.theme.strong.render(line))
	}
	if len(rows) == 0 {
		if s.filter.active() {
			out = append(out, cut(" no replica matches the filter; esc clears it", w))
		}
		return out
	}
	below := v.partingLines(s, w)
	if len(out)+len(below)+4 > h { // a few rows are worth more
		below = below[:max(0, min(len(below), h-len(out)-4))]
	}
	room := max(1, h-len(out)-len(below)-1)
	if room > len(rows) || room > 5 {
		room-- // for the legend
	}
	lines, kinds := v.drawRows(s, rows, w, room)
	out = append(out, lines...)
	if legend := cellLegend(kinds, s.theme); legend != "" {
		out = append(out, cut("   "+legend, w))
	}
	return append(out, below...)
}

func (v *whatIf) drawRows(s *scene, rows []*observe.Row, w, h int) (lines []string, kinds [numCellKinds]bool) {
	v.list.sync(len(rows), h, func(i int) string { return string(rows[i].Replica) })
	visible := rows[v.list.top:min(len(rows), v.list.top+h)]
	before, after := v.columns(rows, w)
	name := len("replica")
	for _, r := range visible {
		name = max(name, ansi.StringWidth(nameOf(r.Replica)))
	}
	name = min(name, max(7, w/5))
	wide := w - 2 - name
	for _, c := range before {
		wide -= c.w + 2
	}
	for _, c := range after {
		wide -= c.w + 2
	}
	wide = max(1, wide-2)
	blocks := len("prefix")
	for _, r := range rows {
		blocks = max(blocks, len(r.Cells))
	}
	wide = min(wide, blocks)
	head := "  " + s.theme.head.render(fit("replica", name))
	line := func(r *observe.Row, on func(int, string) string) string {
		text := fit(nameOf(r.Replica), name)
		for i, c := range before {
			text += "  " + on(i, fit(c.text(r), c.w))
		}
		k := blockStrip(r.Cells, wide)
		for _, k := range k {
			kinds[k] = true
		}
		text += "  " + drawCells(k, s.theme) + strings.Repeat(" ", wide-len(k))
		for _, c := range after {
			text += "  " + fitRight(c.text(r), c.w)
		}
		return text
	}
	for _, c := range before {
		head += "  " + s.theme.head.render(fit(c.head, c.w))
	}
	head += "  " + s.theme.head.render(fit("prefix", wide))
	for _, c := range after {
		head += "  " + s.theme.head.render(fitRight(c.head, c.w))
	}
	lines = append(lines, cut(head, w))
	for i, r := range visible {
		text := line(r, func(_ int, t string) string { return s.theme.trust(r.Trust.Word.Badness()).render(t) })
		if v.list.top+i == v.list.cursor {
			lines = append(lines, s.theme.selected(glyphMarker+" "+text, w))
		} else {
			lines = append(lines, cut("  "+text, w))
		}
	}
	return lines, kinds
}

// partingLines says where the prompt leaves what is known.
func (v *whatIf) partingLines(s *scene, w int) []string {
	p := v.answer.Parting
	switch {
	case p == nil:
		return v.deepestLines(w)
	case p.Token == 0 && (p.Known || p.Replica == ""):
		return []string{"", cut(" No resident chain begins with its first token.", w)}
	}
	who := nameOf(p.Replica) + " holds the chain that runs alongside it longest"
	switch {
	case p.Replica == "":
		who = "none goes on from there"
	case !p.Known:
		who = nameOf(p.Replica) + " holds the nearest one, whose tokens were not kept"
	}
	words := fmt.Sprintf("It parts from every resident chain in block %s at token %s (from 0): %s.", group(p.Block), group(p.Token), who)
	out := []string{""}
	for _, line := range wrap(words, w-2, 3) {
		out = append(out, " "+line)
	}
	if len(p.Stored) > 0 {
		out = append(out, cut("   stored  "+tokenRun(s.theme, p.Stored, p.Asked), w))
	}
	return append(out, cut("   asked   "+tokenRun(s.theme, p.Asked, p.Stored), w))
}

// deepestLines says which is the first block that nobody holds along the prefix.
func (v *whatIf) deepestLines(w int) []string {
	best := -1
	for i := range v.answer.Rows {
		r := &v.answer.Rows[i]
		if r.BlockSize > 0 && (best < 0 || r.Depth() > v.answer.Rows[best].Depth()) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	r := &v.answer.Rows[best]
	words := "All its full blocks are held; the last token is computed in any case."
	if d := r.Depth(); d < r.Blocks {
		words = fmt.Sprintf("The first block that no replica's prefix reaches is block %s of %s, from token %s on (both from 0).",
			group(d), group(r.Blocks), group(d*r.BlockSize))
	}
	out := []string{""}
	for _, line := range wrap(words, w-2, 3) {
		out = append(out, " "+line)
	}
	return out
}

// tokenRun lists tokens; those that differ from the other run stand out.
func tokenRun(t *theme, tokens, other []wire.Token) string {
	words := make([]string, len(tokens))
	for i, tok := range tokens {
		words[i] = fmt.Sprint(uint64(tok))
		if i >= len(other) || other[i] != tok {
			words[i] = t.strong.render(words[i])
		}
	}
	return strings.Join(words, " ")
}

// joined puts parts on lines, at most most of them.
func joined(parts []string, w, most int) []string {
	var out []string
	line := ""
	for _, p := range parts {
		switch {
		case line == "":
			line = " " + p
		case ansi.StringWidth(line)+1+ansi.StringWidth(p) <= w || len(out)+1 == most:
			line += " " + p
		default:
			out = append(out, cut(line, w))
			line = "   " + p
		}
	}
	return append(out, cut(line, w))
}
