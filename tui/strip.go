package tui

import (
	"github.com/kvscope/kvscope/observe"
)

// cellKind is what one place of a block strip shows, the best first: a place
// that stands for several blocks shows the worst of them.
type cellKind uint8

const (
	cellHit cellKind = iota
	cellLower
	cellDoubt
	cellBeyond
	cellMiss
	cellHole
	numCellKinds
)

// cellKinds says how each kind looks and what the legend calls it.
var cellKinds = [numCellKinds]struct {
	glyph, ascii string
	words        string
	style        func(*theme) style
}{
	cellHit:    {glyphHit, "#", "hit", func(t *theme) style { return t.hit }},
	cellLower:  {glyphHost, "h", "on a lower tier", func(t *theme) style { return t.host }},
	cellDoubt:  {glyphDoubt, "?", "in doubt", func(t *theme) style { return t.doubt }},
	cellBeyond: {"+", "+", "held behind a hole: no use", func(t *theme) style { return t.dim }},
	cellMiss:   {glyphMiss, ".", "miss", func(t *theme) style { return t.miss }},
	cellHole:   {glyphHole, "o", "hole", func(t *theme) style { return t.hole }},
}

// kindsOf is an array, because a prompt can have a million blocks.
var kindsOf = [...]cellKind{
	observe.Hit: cellHit, observe.Lower: cellLower, observe.Doubtful: cellDoubt,
	observe.Beyond: cellBeyond, observe.Miss: cellMiss,
}

// blockStrip compresses a prompt's blocks to at most w places. A missing block
// in front of one that is held is a hole.
func blockStrip(cells []observe.Cell, w int) []cellKind {
	n := min(len(cells), w)
	if n <= 0 {
		return nil
	}
	out := make([]cellKind, n)
	held := false // a block further on is held
	for i := len(cells) - 1; i >= 0; i-- {
		kind := cellMiss
		if c := cells[i]; int(c) < len(kindsOf) {
			if kind = kindsOf[c]; kind == cellMiss && held {
				kind = cellHole
			}
		}
		held = held || kind != cellMiss && kind != cellHole
		at := i * n / len(cells)
		out[at] = max(out[at], kind)
	}
	return out
}

// drawCells gives a block strip for a terminal.
func drawCells(kinds []cellKind, t *theme) string {
	var out string
	for i := 0; i < len(kinds); {
		k, n := kinds[i], 1
		for i+n < len(kinds) && kinds[i+n] == k {
			n++
		}
		var run string
		for range n {
			run += k.glyph(t)
		}
		out += cellKinds[k].style(t).render(run)
		i += n
	}
	return out
}

func (k cellKind) glyph(t *theme) string {
	if t.ascii {
		return cellKinds[k].ascii
	}
	return cellKinds[k].glyph
}

// cellLegend explains the kinds that occur, in the order of the table.
func cellLegend(occur [numCellKinds]bool, t *theme) string {
	out := ""
	for k, is := range occur {
		if is {
			if out != "" {
				out += "   "
			}
			out += cellKinds[k].style(t).render(cellKind(k).glyph(t)) + " " + t.dim.render(cellKinds[k].words)
		}
	}
	return out
}
