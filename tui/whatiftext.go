package tui

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/wire"
)

// The widths of the pane's gutter, and from which width on it says who speaks.
const (
	speakerWidth = 9
	roomForWho   = 60
	leastText    = 8
)

// leastPane is the lowest text pane that is shown unasked, title included.
const leastPane = 6

// cutFor makes the pane follow the selected replica.
func (v *whatIf) cutFor(r *whatIfRow) {
	p := &v.text
	if p.grid.of == r && p.script == v.prompt {
		return
	}
	size := 0
	if v.why != nil {
		size = v.why.BlockSize
	}
	if p.script != v.prompt { // begin where it gets interesting
		p.grid, p.token, p.line, p.row = grid{}, 0, -1, 2
		if part := v.answer.Parting; part != nil {
			p.token = part.Token
		}
	}
	was := p.grid
	p.script, p.grid, p.parting = v.prompt, newGrid(r, len(v.prompt.Tokens), size), v.answer.Parting
	if p.grid.size != was.size || p.grid.blocks != was.blocks {
		p.toBlock(p.block())
	}
}

// besideWords says what the nearest stored chain goes on with where the prompt
// leaves it.
func (v *whatIf) besideWords(s *scene) string {
	p := v.text.parting
	if p == nil {
		return ""
	}
	who := nameOf(p.Replica)
	switch text, ok := quoted(s.speech(), p.Stored, maxBeside); {
	case p.Replica == "":
		return "no stored chain goes on from here"
	case !p.Known:
		return "no stored chain goes on like this; " + who + " holds the nearest one, whose tokens were not kept"
	case ok:
		return who + " goes on with " + text
	}
	return who + " goes on with " + numbers(p.Stored[:min(len(p.Stored), 64)])
}

// maxBeside is how much of the stored text is said where a prompt leaves it.
const maxBeside = 400

// drawText draws the text pane: a title, the text with what the selected replica
// has of it, and the ids of the block under the cursor.
func (v *whatIf) drawText(s *scene, r *whatIfRow, w, h int) []string {
	p := &v.text
	p.shown = h > 0
	if h <= 0 {
		return nil
	}
	g := &p.grid
	digits := max(len("rest"), len(wire.Grouped(g.count())))
	named := p.script.named() && w >= roomForWho
	gutter := 2 + digits + 2
	if named {
		gutter += speakerWidth + 1
	}
	if w-gutter < leastText {
		named, digits, gutter = false, 0, 3
	}
	if p.w != max(1, w-gutter) {
		p.w, p.line = max(1, w-gutter), -1
	}
	p.beside = v.besideWords(s)
	ids := v.idLines(s, w, h)
	out := []string{paneTitle(s.theme, p.focus, v.blockWords(r), v.textFrom(s), w)}
	lines, at := p.window(s.speech(), max(1, h-1-len(ids)))
	for i := range lines {
		out = append(out, cut(v.textRow(s, &lines[i], i == at, named, digits), w))
	}
	out = append(out, ids...)
	return out[:min(len(out), h)]
}

// textRow is a line of the text with its gutter.
func (v *whatIf) textRow(s *scene, l *textLine, at, named bool, digits int) string {
	p, t := &v.text, s.theme
	kind, known := p.grid.kind(l.block)
	marker, mark, on := " ", " ", style{}
	if at {
		marker = glyphMarker
	}
	if known {
		on = cellKinds[kind].style(t)
		mark = on.render(kind.glyph(t))
	}
	number, edge := "", glyphBar
	if l.head {
		edge = glyphBegin
		if number = wire.Grouped(l.block); l.block >= p.grid.blocks {
			number = "rest"
		}
	}
	line := marker + mark
	if digits > 0 {
		line += t.dim.render(fitRight(number, digits)) + " "
	}
	if named {
		line += t.title.render(fit(l.who, speakerWidth)) + " "
	}
	line += t.rule.render(edge)
	if l.note != "" {
		return line + t.warn.render(glyphGap+" "+cut(l.note, p.w-2))
	}
	for _, piece := range l.pieces {
		switch {
		case piece.block < 0:
			line += t.rule.render(piece.text)
		case piece.block == p.block() && p.focus:
			line += t.sel.render(piece.text)
		default:
			line += on.render(piece.text)
		}
	}
	return line
}

// blockWords says what is under the cursor.
func (v *whatIf) blockWords(r *whatIfRow) string {
	p := &v.text
	g, b := &p.grid, p.block()
	from, to := g.tokensOf(b)
	words := fmt.Sprintf("block %s of %s · ", wire.Grouped(b), wire.Grouped(g.blocks))
	if b >= g.blocks {
		words = "behind the last full block · "
	}
	words += "tokens " + wire.Grouped(from) + "–" + wire.Grouped(to-1)
	if kind, known := g.kind(b); known {
		words += " · " + cellKinds[kind].words + " on " + nameOf(r.Replica)
	}
	if who := p.script.inMessage(from); who != "" {
		words += " · " + who
	}
	return words
}

// textFrom says why the pane shows ids, and whose text it is otherwise.
func (v *whatIf) textFrom(s *scene) string {
	switch {
	case v.text.script.starts != nil:
		return ""
	case v.text.script.worded(s.speech()):
		return "decoded"
	case s.state != "":
		return clean(s.state)
	}
	return "token ids"
}

// idLines list the ids of the block under the cursor, where the text is none and
// there is room.
func (v *whatIf) idLines(s *scene, w, h int) []string {
	if h < leastPane || !v.text.script.worded(s.speech()) {
		return nil
	}
	from, to := v.text.grid.tokensOf(v.text.block())
	var out []string
	for i, line := range wrap("ids "+numbers(v.text.script.Tokens[from:to]), w-6, 1+h/leastPane/2) {
		if i > 0 {
			line = "    " + line
		}
		out = append(out, s.theme.dim.render(cut("  "+line, w)))
	}
	return out
}

// caret marks the place of the block under the cursor above a strip.
func (v *whatIf) caret(head string, wide int, t *theme) string {
	p := &v.text
	if !p.shown || p.grid.blocks == 0 || wide <= 0 {
		return t.head.render(fit(head, wide))
	}
	at := min(p.block(), p.grid.blocks-1) * min(wide, p.grid.blocks) / p.grid.blocks
	after := at + 1
	before := fit(head, at)
	if at < ansi.StringWidth(head) {
		before, after = strings.Repeat(" ", at), at+2
	}
	line := t.head.render(before) + t.strong.render(glyphDown)
	if after > at+1 && wide >= after+ansi.StringWidth(head) {
		return line + " " + t.head.render(fit(head, wide-after))
	}
	return line + t.head.render(fit("", wide-at-1))
}

// toggleText shows the text and moves to it, or hides it.
func (v *whatIf) toggleText() {
	if v.text.shown {
		v.text.off, v.text.focus, v.text.shown = true, false, false
		return
	}
	v.text.off, v.text.focus = false, true
}

func (v *whatIf) focusText() {
	v.text.focus = !v.text.focus
	v.text.off = v.text.off && !v.text.focus
}

func (v *whatIf) noText(s *scene) string {
	if why := v.noAnswer(s); why != "" {
		return why
	}
	if !v.text.shown && !v.text.focus {
		return "the prompt's text is not shown: tab goes to it"
	}
	return ""
}

// blockFields are the columns of the text's export.
var blockFields = []string{"block", "from", "to", "cell", "message", "token_ids", "text"}

// blockRow is a block as it is copied and exported.
func (v *whatIf) blockRow(w Words, block int) []string {
	g := &v.text.grid
	from, to := g.tokensOf(block)
	number, cell := fmt.Sprint(block), ""
	if block >= g.blocks {
		number = "rest"
	}
	if kind, known := g.kind(block); known {
		cell = cellKinds[kind].words
	}
	text := ""
	if v.text.script.worded(w) {
		text, _ = v.text.script.run(w, from, to)
	}
	return []string{
		number, fmt.Sprint(from), fmt.Sprint(to - 1), cell, v.text.script.inMessage(from), numbers(v.text.script.Tokens[from:to]), text,
	}
}

func (v *whatIf) exportText(s *scene) table {
	t := table{columns: blockFields}
	for b := range v.text.grid.count() {
		t.rows = append(t.rows, v.blockRow(s.speech(), b))
	}
	return t
}

// handleText carries out an action on the text, and reports whether it was one.
func (v *whatIf) handleText(s *scene, rows []*whatIfRow, action string) (effect, bool) {
	aside := v.text.shown && (action == actLeft || action == actRight)
	if len(rows) == 0 || !v.text.focus && !aside {
		return effect{}, false
	}
	v.cutFor(v.selected(rows))
	switch {
	case v.text.move(s.speech(), action):
		return effect{}, true
	case action == actCopy:
		from, to := v.text.grid.tokensOf(v.text.block())
		text, _ := v.text.script.run(s.speech(), from, to)
		return effect{copy: text}, true
	case action == actCopyRow:
		return effect{copy: rowJSON(blockFields, v.blockRow(s.speech(), v.text.block()))}, true
	}
	return effect{}, false
}

// tokenWords gives what tokens say, for the lines where a prompt leaves what is
// stored: nothing where no tokenizer is known.
func tokenWords(s *scene, tokens []wire.Token, w int) string {
	text, ok := quoted(s.speech(), tokens, maxBeside)
	if !ok || len(tokens) == 0 {
		return ""
	}
	return cut(text, w)
}
