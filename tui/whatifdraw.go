package tui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// whatIfHelp is what the view says before there is a prompt.
var whatIfHelp = []string{
	"Where would a router send a prompt, why, and who holds how much of it?",
	"",
	"Paste a prompt: text, a request body, a curl command or token ids. p takes one that is typed, f opens a file with one, E lets you write it in $EDITOR.",
	"Understood are",
	"  text, which is tokenized as it is",
	"  the JSON body of an OpenAI or Anthropic request, or the curl command that sends it",
	"  [151644, 8948, 198]  or  151644 8948 198",
	"  a JSON object with prompt_token_ids, token_ids or tokens: an engine's response, a /tokenize answer, a line of a truth log",
	"Text and requests need the model's tokenizer, and chats its template too.",
}

func (v *whatIf) draw(s *scene, w, h int) []string {
	if w <= 0 || h <= 0 {
		return nil
	}
	var out []string
	if v.trouble != "" {
		words := clean(v.trouble)
		if v.answer != nil {
			words += " (Below is still the prompt before.)"
		}
		for _, line := range wrap(words, w-2, 4) {
			out = append(out, " "+s.theme.fault.render(line))
		}
	}
	switch {
	case v.answer != nil:
		out = append(out, v.drawAnswer(s, w, h-len(out))...)
	case v.busy:
		out = append(out, cut(" reading the prompt …"+waitWords(s), w))
	default:
		help := whatIfHelp
		if s.state != "" {
			help = append(help[:len(help):len(help)], "Now: "+clean(s.state)+".")
		}
		for _, line := range help {
			indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
			for _, part := range wrap(strings.TrimSpace(line), w-2-len(indent), 4) {
				out = append(out, " "+indent+part)
			}
		}
	}
	return out[:min(len(out), h)]
}

// lead is what is read first: where the prompt goes, what was edited, who holds
// most and what cancels.
func (v *whatIf) lead(s *scene, w, h int) []string {
	most := 2 // lines of each sentence
	if h < 12 {
		most = 1
	}
	out := joined(v.promptParts(s), w, most)
	say := func(st style, words string, most int) {
		for _, line := range wrap(words, w-2, most) {
			if line != "" {
				out = append(out, " "+st.render(line))
			}
		}
	}
	if v.why == nil {
		if v.whyNot != "" {
			say(s.theme.fault, "Where it goes is not known: "+clean(v.whyNot)+v.undoHint(), most)
		}
		say(s.theme.strong, v.verdict(), most)
		return out
	}
	say(s.theme.strong, v.why.Verdict(), most)
	if len(v.edits) > 0 {
		say(s.theme.warn, v.editWords(), most)
	}
	if h >= 12 {
		say(style{}, strings.TrimSpace(v.verdict()+" "+v.why.Equal()), most+1)
	}
	return out
}

// undoHint says how to get rid of an edit that no answer comes with.
func (v *whatIf) undoHint() string {
	if len(v.edits) == 0 {
		return ""
	}
	return " (u undoes the " + wire.Counted(len(v.edits), "edit") + ")"
}

// editWords lists the edits.
func (v *whatIf) editWords() string {
	words := make([]string, len(v.edits))
	for i, e := range v.edits {
		words[i] = clean(e.Key + "=" + e.Value)
	}
	return "Edited" + byHand + " (u undoes): " + strings.Join(words, ", ")
}

func (v *whatIf) drawAnswer(s *scene, w, h int) []string {
	rows := v.rows(s)
	v.text.shown = false
	if len(rows) == 0 {
		out := v.lead(s, w, h)
		if s.filter.active() {
			out = append(out, cut(" no replica matches the filter; esc clears it", w))
		}
		return out
	}
	selected := v.selected(rows)
	v.cutFor(selected)
	if v.text.focus && (s.maximised || h < roomForAll) {
		return v.drawText(s, selected, w, h)
	}
	out := v.lead(s, w, h)
	if v.text.focus && h-len(out) < leastPane+4 {
		out = out[:1]
	}
	// A few rows are worth more than what stands below, and that more than all. The
	// text gets what is left, but with the focus it takes the place of the rest.
	left := h - len(out)
	table := min(len(rows), max(3, left/2)) + 2
	var below []string
	text := 0
	if v.text.focus {
		table = min(table, left-leastPane, max(5, left/3))
		text = left - table
	} else {
		below = v.below(s, rows, w, left-table)
		if spare := left - table - len(below); spare >= leastPane && !v.text.off {
			text = spare
		}
	}
	v.text.shown = text > 0
	room := max(1, left-len(below)-text-1)
	if room > len(rows) || room > 5 {
		room-- // for the legend
	}
	lines, kinds := v.drawRows(s, rows, w, room)
	out = append(out, lines...)
	if legend := cellLegend(kinds, s.theme); legend != "" {
		out = append(out, cut("   "+legend, w))
	}
	out = append(out, below...)
	return append(out, v.drawText(s, selected, w, text)...)
}

// roomForAll is the height from which on the text does not take all of it.
const roomForAll = 12

// below gives the panes that fit in h lines, the most telling first; the first
// one that does not fit is cut, and ends it.
func (v *whatIf) below(s *scene, rows []*whatIfRow, w, h int) []string {
	var out []string
	for _, pane := range [][]string{
		v.flipLines(w), v.partingLines(s, w), v.candidateLines(s, v.selected(rows), w), v.noteLines(w),
	} {
		if room := h - len(out); len(pane) > room {
			if room > 1 { // more than the empty line before it
				out = append(out, pane[:room]...)
			}
			return out
		}
		out = append(out, pane...)
	}
	return out
}

// selected gives the row under the cursor.
func (v *whatIf) selected(rows []*whatIfRow) *whatIfRow {
	v.list.sync(len(rows), v.list.height, func(i int) string { return string(rows[i].Replica) })
	return rows[v.list.cursor]
}

func (v *whatIf) drawRows(s *scene, rows []*whatIfRow, w, h int) (lines []string, kinds [numCellKinds]bool) {
	v.list.sync(len(rows), h, func(i int) string { return string(rows[i].Replica) })
	visible := rows[v.list.top:min(len(rows), v.list.top+h)]
	name := len("replica")
	for _, r := range visible {
		name = max(name, ansi.StringWidth(nameOf(r.Replica)))
	}
	name = min(name, max(7, w/5))
	blocks := len("prefix")
	for _, r := range rows {
		blocks = max(blocks, len(r.Cells))
	}
	wide := w - 4 - name
	cols := v.columns(rows, wide, blocks)
	for _, c := range cols {
		wide -= c.w + 2
	}
	wide = min(max(1, wide), blocks)
	// line puts together what stands before the strip, the strip, and the rest.
	line := func(lead, strip string, cell func(c *whatIfColumn) string) string {
		before, after := "", ""
		for i := range cols {
			c := &cols[i]
			if c.before {
				before += "  " + cell(c)
			} else {
				after += "  " + cell(c)
			}
		}
		return lead + before + "  " + strip + after
	}
	head := s.theme.head.render
	lines = append(lines, cut(line("  "+head(fit("replica", name)), v.caret("prefix", wide, s.theme), func(c *whatIfColumn) string {
		if c.before {
			return head(fit(c.head, c.w))
		}
		return head(fitRight(c.head, c.w))
	}), w))
	for i, r := range visible {
		strip := r.blocks(wide)
		for _, k := range strip {
			kinds[k] = true
		}
		text := line(fit(nameOf(r.Replica), name), drawCells(strip, s.theme)+strings.Repeat(" ", wide-len(strip)), func(c *whatIfColumn) string {
			switch {
			case c.head == "trust":
				return s.theme.trust(r.Trust.Word.Badness()).render(fit(c.text(r), c.w))
			case c.before:
				return fit(c.text(r), c.w)
			}
			return fitRight(c.text(r), c.w)
		})
		if v.list.top+i == v.list.cursor {
			lines = append(lines, s.theme.selected(glyphMarker+" "+text, w))
		} else {
			lines = append(lines, cut("  "+text, w))
		}
	}
	return lines, kinds
}

// flipLines names the smallest changes that flip the choice.
func (v *whatIf) flipLines(w int) []string {
	if v.why == nil || len(v.why.Flips) == 0 {
		return nil
	}
	out := []string{"", cut(" The smallest changes that flip it:", w)}
	for _, f := range v.why.Flips {
		words := fmt.Sprintf("%-6s :set %s=%s (now %s): then %s", f.Kind, f.What, f.To, f.From, explain.Names(f.Then))
		out = append(out, cut("   "+clean(words), w))
	}
	return out
}

// candidateLines tells all of the selected candidate: its terms in the router's
// own words, and its load.
func (v *whatIf) candidateLines(s *scene, r *whatIfRow, w int) []string {
	c := r.cand
	if c == nil {
		return nil
	}
	out := append([]string{""}, boxHead(s.theme, nameOf(r.Replica)+": "+r.Trust.String(), w)...)
	say := func(words string) {
		if words != "" {
			for _, line := range wrap(clean(words), w-2, 6) {
				out = append(out, " "+line)
			}
		}
	}
	if c.Out != "" {
		say("out: " + c.Out)
	}
	var terms []string
	for _, t := range c.Terms {
		if t.Cost != 0 {
			terms = append(terms, t.Name+" "+explain.Number(t.Cost))
		}
	}
	if c.Rank > 0 {
		say("cost " + explain.Number(c.Cost) + " = " + strings.Join(terms, " + "))
	}
	say("load " + c.Load.Words())
	if c.Load.State != route.LoadUnknown {
		say(fmt.Sprintf("     active_prefill_tokens %d, active_decode_blocks %d, active_requests %d",
			c.Load.PrefillTokens, c.Load.Blocks, c.Load.Requests))
	}
	say(c.Note)
	return out
}

// noteLines says what holds for the whole answer.
func (v *whatIf) noteLines(w int) []string {
	var notes []string
	if n := v.prompt.Notes; len(n) > 1 || len(n) == 1 && len(n[0]) > shortNote {
		notes = n
	}
	if v.why != nil {
		notes = slices.Concat(notes, v.why.Notes)
	}
	var out []string
	for _, n := range notes {
		for _, line := range wrap("note: "+clean(n), w-2, 3) {
			out = append(out, " "+line)
		}
	}
	if len(out) > 0 {
		out = append([]string{""}, out...)
	}
	return out
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
	case p.Foreign && len(p.Asked) == 0:
		who = nameOf(p.Replica) + " holds the same tokens under another cache salt or LoRA"
	case p.Foreign:
		who += ", but under another cache salt or LoRA"
	}
	words := fmt.Sprintf("It parts from every resident chain in block %s at token %s (from 0): %s.", wire.Grouped(p.Block), wire.Grouped(p.Token), who)
	if d := v.divergence(); d != nil && d.Block == p.Block {
		words += " From there on no cache has it (" + wire.Counted(d.Lost, "full block") + ")."
	}
	if d := v.divergence(); d != nil && d.Block == p.Block && d.Diff != nil && !(p.Foreign && len(p.Asked) == 0) {
		if what := d.Diff.Difference("the stored chain", "this prompt"); what != "" {
			words += " What parts them: " + clean(what) + "."
		}
	}
	out := []string{""}
	for _, line := range wrap(words, w-2, 5) {
		out = append(out, " "+line)
	}
	for _, side := range []struct {
		name          string
		tokens, other []wire.Token
	}{{"stored", p.Stored, p.Asked}, {"asked", p.Asked, p.Stored}} {
		name := "   " + fit(side.name, 8)
		if words := tokenWords(s, side.tokens, w-len(name)); words != "" {
			out = append(out, name+words)
			name = fit("", len(name))
		}
		if len(side.tokens) > 0 {
			out = append(out, cut(name+tokenRun(s.theme, side.tokens, side.other), w))
		}
	}
	return out
}

func (v *whatIf) divergence() *explain.Divergence {
	if v.why == nil {
		return nil
	}
	return v.why.Divergence
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
			wire.Grouped(d), wire.Grouped(r.Blocks), wire.Grouped(d*r.BlockSize))
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
