package tui

import (
	"slices"

	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// textPane shows a prompt's text block by block. Every block begins a line, so
// what is on the screen is laid out from the cursor on and nothing else is looked
// at, however long the prompt is.
type textPane struct {
	script *script
	grid   grid
	// parting is where the prompt leaves what is stored, nil where it does not, and
	// beside what to say there.
	parting *observe.Parting
	beside  string
	// focus says that keys go to the pane, off that it is not wanted, and shown
	// that it was drawn last.
	focus, off, shown bool
	// token is the first one of the block under the cursor: blocks of another
	// replica can be of another size. line is the cursor's of those that the
	// block is on, and row the one of the screen.
	token, line, row int
	// w and h are the text's size, as of the last draw.
	w, h int
}

// grid says how one replica cuts a prompt into blocks, and what it has of each.
type grid struct {
	tokens, size, blocks int
	// per is how many blocks may share lines: small ones do.
	per   int
	kinds []cellKind
	of    *whatIfRow
}

// leastShared is how many tokens blocks have that share no line.
const leastShared = 16

func newGrid(r *whatIfRow, tokens, size int) grid {
	g := grid{tokens: tokens, size: size, of: r}
	if r.BlockSize > 0 {
		g.size, g.kinds = r.BlockSize, blockStrip(r.Cells, len(r.Cells))
		g.blocks = min(r.Blocks, tokens/g.size)
	} else {
		g.size = max(g.size, leastShared)
		g.blocks = tokens / g.size
	}
	g.per = max(1, (leastShared+g.size-1)/g.size)
	return g
}

// rest says whether tokens are left behind the last full block.
func (g *grid) rest() int { return min(1, max(0, g.tokens-g.blocks*g.size)) }

// count is the number of blocks, with the rest as one.
func (g *grid) count() int { return g.blocks + g.rest() }

// units is the number of groups of blocks that share lines.
func (g *grid) units() int { return (g.blocks+g.per-1)/g.per + g.rest() }

func (g *grid) unit(block int) int {
	if block >= g.blocks {
		return g.units() - 1
	}
	return block / g.per
}

// span gives the blocks of a unit.
func (g *grid) span(unit int) (from, to int) {
	if unit == g.units()-1 && g.rest() > 0 {
		return g.blocks, g.blocks + 1
	}
	return unit * g.per, min((unit+1)*g.per, g.blocks)
}

// tokensOf gives the tokens of a block, to excluded.
func (g *grid) tokensOf(block int) (from, to int) {
	if block >= g.blocks {
		return g.blocks * g.size, g.tokens
	}
	return block * g.size, min((block+1)*g.size, g.tokens)
}

// kind says what the replica has of a block; false where that is not known, or
// of the rest, which is no block.
func (g *grid) kind(block int) (cellKind, bool) {
	if block >= len(g.kinds) {
		return cellMiss, false
	}
	return g.kinds[block], true
}

// block gives the one under the cursor.
func (p *textPane) block() int { return clamp(p.token/max(p.grid.size, 1), p.grid.count()) }

// toBlock moves the cursor to the beginning of a block.
func (p *textPane) toBlock(block int) {
	block = clamp(block, p.grid.count())
	p.token, _ = p.grid.tokensOf(block)
	p.line = -1
}

// lay gives the lines of a unit.
func (p *textPane) lay(w Words, unit int) []textLine {
	t := setter{w: p.w}
	from, to := p.grid.span(unit)
	for b := from; b < to; b++ {
		first, end := p.grid.tokensOf(b)
		parts := p.parting != nil && p.parting.Token >= first && p.parting.Token < end
		if !parts {
			p.say(&t, w, b, first, end, b > from && p.grid.alike(b-1, b))
			continue
		}
		at := p.parting.Token
		if at > first {
			p.say(&t, w, b, first, at, false)
		}
		t.open(textLine{block: b, head: at == first, note: p.beside})
		next := len(t.lines)
		p.say(&t, w, b, at, end, false)
		t.lines[next].head = false
	}
	return t.lines
}

// alike says whether two blocks look the same, and so can share a line.
func (g *grid) alike(a, b int) bool {
	kind, known := g.kind(a)
	other, otherKnown := g.kind(b)
	return kind == other && known == otherKnown
}

// say puts the text of a block's tokens on lines of its own, or behind the block
// before with join. Whoever begins to speak begins a line.
func (p *textPane) say(t *setter, w Words, block, from, to int, join bool) {
	text, more := p.script.run(w, from, to)
	at := p.script.offset(from)
	turns := p.script.turns(at, at+len(text))
	if join && (len(turns) == 0 || turns[0].offset > at) {
		t.bar(block)
	} else {
		t.open(textLine{block: block, head: true})
	}
	for _, turn := range turns {
		t.put(block, text[:turn.offset-at])
		if turn.offset > at {
			t.open(textLine{block: block})
		}
		t.lines[len(t.lines)-1].who = turn.who
		text, at = text[turn.offset-at:], turn.offset
	}
	t.put(block, text)
	if more > 0 {
		t.put(block, " "+glyphMore+" and "+wire.Counted(more, "byte")+" more")
	}
}

// lineOf gives the line of a unit that a block begins on.
func lineOf(lines []textLine, block int) int {
	for i := range lines {
		l := &lines[i]
		if l.block == block || slices.ContainsFunc(l.pieces, func(p piece) bool { return p.block == block }) {
			return i
		}
	}
	return 0
}

// settle finds the line of the cursor, where it is not known.
func (p *textPane) settle(lines []textLine) {
	if p.line < 0 || p.line >= len(lines) {
		p.line = lineOf(lines, p.block())
	}
}

// move carries out an action, and reports whether it is one of movement.
func (p *textPane) move(w Words, action string) bool {
	switch action {
	case actLeft:
		p.toBlock(p.block() - 1)
		return true
	case actRight:
		p.toBlock(p.block() + 1)
		return true
	}
	to, ok := moves[action]
	switch {
	case !ok:
		return false
	case action == actTop:
		p.toBlock(0)
	case action == actBottom:
		p.toBlock(p.grid.count() - 1)
	default:
		p.scroll(w, to(0, 0, max(p.h, 1)))
	}
	return true
}

// scroll moves the cursor by lines.
func (p *textPane) scroll(w Words, by int) {
	unit := p.grid.unit(p.block())
	lines := p.lay(w, unit)
	p.settle(lines)
	p.row += by
	for by != 0 {
		switch {
		case p.line+by >= 0 && p.line+by < len(lines):
			p.line += by
			by = 0
		case by < 0 && unit == 0:
			p.line, by = 0, 0
		case by > 0 && unit == p.grid.units()-1:
			p.line, by = len(lines)-1, 0
		case by < 0:
			by += p.line + 1
			unit--
			lines = p.lay(w, unit)
			p.line = len(lines) - 1
		default:
			by -= len(lines) - p.line
			unit++
			lines = p.lay(w, unit)
			p.line = 0
		}
	}
	p.token, _ = p.grid.tokensOf(lines[p.line].block)
}

// window gives the lines of the text that the screen shows, and which of them is
// the cursor's: as far from the top as before, if there is enough text.
func (p *textPane) window(w Words, h int) (lines []textLine, at int) {
	p.h = h
	unit := p.grid.unit(p.block())
	lines = p.lay(w, unit)
	p.settle(lines)
	at = p.line
	before, after := unit-1, unit+1
	row := min(max(p.row, 0), h-1)
	for ; at < row && before >= 0; before-- {
		more := p.lay(w, before)
		lines, at = append(more, lines...), at+len(more)
	}
	top := at - min(row, at)
	for ; len(lines)-top < h && after < p.grid.units(); after++ {
		lines = append(lines, p.lay(w, after)...)
	}
	for ; len(lines)-top < h && (top > 0 || before >= 0); top-- {
		if top == 0 {
			more := p.lay(w, before)
			lines, at, top = append(more, lines...), at+len(more), len(more)
			before--
		}
	}
	p.row = at - top
	return lines[top:min(len(lines), top+h)], at - top
}
