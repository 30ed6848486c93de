package tui

import (
	"image/color"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// The glyphs of all views. A screen is made of these and of text; for
// terminals without them each one has an ASCII twin of the same width below.
const (
	glyphMarker  = "▸"
	glyphHit     = "●"
	glyphMiss    = "·"
	glyphHole    = "○"
	glyphHost    = "h"
	glyphDoubt   = "?"
	glyphApprox  = "~"
	glyphGap     = "╳"
	glyphReplay  = "≋"
	glyphRestart = "▌"
	glyphClear   = "∅"
	glyphRule    = "─"
	glyphBar     = "│"
	glyphNone    = "–"
	glyphMore    = "…"
	glyphArrow   = "→"
	glyphAtMost  = "≤"
	glyphUp      = "▴"
	glyphDown    = "▾"
	glyphPlay    = "▶"
	glyphPause   = "‖"
	glyphReturn  = "↵"
	glyphBegin   = "├"
)

// sparkGlyphs are the steps of a sparkline, from nothing to most.
var sparkGlyphs = [...]rune{' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'}

// twins are the ASCII forms. What is not here becomes a question mark, so that
// no text from a recording breaks an ASCII terminal.
var twins = map[rune]byte{
	'▸': '>', '●': '#', '·': '.', '○': 'o', '╳': 'x', '≋': '=', '▌': '|', '∅': '0', '─': '-',
	'│': '|', '–': '-', '—': '-', '…': '.', '→': '>', '←': '<', '≤': '<', '≥': '>', '▴': '^', '▾': 'v',
	'▶': '>', '‖': '|', '↵': '$', '×': 'x', '√': 'v', '≈': '~', '’': '\'', '“': '"', '”': '"', '╌': '-', '┄': '-',
	'▁': '_', '▂': '.', '▃': ',', '▄': '-', '▅': '=', '▆': '+', '▇': '*', '█': '#',
	'┌': '+', '┐': '+', '└': '+', '┘': '+', '├': '+', '┤': '+', '┬': '+', '┴': '+', '┼': '+',
}

// toASCII replaces every rune by its twin and keeps the width of the text.
func toASCII(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] < 0x80
	}
	if plain {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch c, ok := twins[r]; {
		case r < 0x80:
			b.WriteByte(byte(r))
		case ok:
			b.WriteByte(c)
		default:
			b.WriteString(strings.Repeat("?", ansi.StringWidth(string(r))))
		}
	}
	return b.String()
}

// style is what to write before and after a text. Making it from a
// lipgloss.Style once keeps that work out of every cell of every redraw.
type style struct{ on, off string }

func newStyle(s lipgloss.Style) style {
	const mark = "x"
	on, off, _ := strings.Cut(s.Render(mark), mark)
	return style{on, off}
}

// render gives the text in the style.
func (s style) render(text string) string {
	if text == "" || s.on == "" {
		return text
	}
	return s.on + text + s.off
}

// theme holds the styles by what they mean. None of them says anything that
// the text does not say too.
type theme struct {
	name  string
	ascii bool

	title, head, dim, key, rule style // the frame
	ok, warn, bad, info, doubt  style // states
	hit, miss, hole, host       style // cells of a block strip
	strong, fault               style // what to read first; what is invalid
	sel                         style // the selected row, always reverse video
}

// selected gives a line as the selected one: reverse over its whole width,
// without styles of its own, which would end the reverse.
func (t *theme) selected(line string, w int) string {
	return t.sel.render(fit(ansi.Strip(line), w))
}

// trust gives the style of a word of trust; see stream.Word.
func (t *theme) trust(badness int) style {
	return [...]style{t.ok, t.info, t.warn, t.bad, t.bad}[min(max(badness, 0), 4)]
}

// severity gives the style of a diagnose.Severity: info, warning, error.
func (t *theme) severity(s int) style {
	return [...]style{t.info, t.warn, t.bad}[min(max(s, 0), 2)]
}

// palette is what themes differ in. The default hues are Okabe and Ito's, who
// chose them to be told apart with any kind of colour blindness; the light
// ones are the same, darkened to be read on white.
type palette struct{ ok, warn, bad, info, doubt, dim color.Color }

var palettes = map[string]palette{
	"dark": {
		ok: lipgloss.Color("#2DB58E"), warn: lipgloss.Color("#E69F00"), bad: lipgloss.Color("#EE7733"),
		info: lipgloss.Color("#56B4E9"), doubt: lipgloss.Color("#CC79A7"), dim: lipgloss.Color("#9A9A9A"),
	},
	"light": {
		ok: lipgloss.Color("#00664A"), warn: lipgloss.Color("#855B00"), bad: lipgloss.Color("#B23C00"),
		info: lipgloss.Color("#005B8F"), doubt: lipgloss.Color("#8F3F6B"), dim: lipgloss.Color("#5F5F5F"),
	},
}

// themeNames lists the themes.
var themeNames = []string{"dark", "light", "none"}

// newTheme makes a theme; an unknown name gives the one without colours.
func newTheme(name string, ascii bool) *theme {
	plain, bold := lipgloss.NewStyle(), lipgloss.NewStyle().Bold(true)
	of := func(c color.Color) lipgloss.Style {
		if c == nil {
			return plain
		}
		return plain.Foreground(c)
	}
	p, ok := palettes[name]
	if !ok {
		name = "none"
	}
	return &theme{
		name: name, ascii: ascii,
		title: newStyle(bold), head: newStyle(of(p.dim).Underline(true)), dim: newStyle(of(p.dim)),
		key: newStyle(bold), rule: newStyle(of(p.dim)), strong: newStyle(bold),
		ok: newStyle(of(p.ok)), warn: newStyle(of(p.warn)), bad: newStyle(of(p.bad).Bold(true)),
		info: newStyle(of(p.info)), doubt: newStyle(of(p.doubt)), fault: newStyle(of(p.bad).Bold(true)),
		hit: newStyle(of(p.ok)), miss: newStyle(of(p.dim)), hole: newStyle(of(p.bad)), host: newStyle(of(p.info)),
		sel: newStyle(plain.Reverse(true)),
	}
}
