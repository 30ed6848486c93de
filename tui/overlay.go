package tui

import (
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// overlay is what lies over a view until esc closes it.
type overlay interface {
	bindings() []binding
	draw(s *scene, w, h int) []string
	handle(m *model, action string) tea.Cmd
}

// overlayGlobals are the global keys as they act in an overlay.
var overlayGlobals = []binding{
	{keys: []string{"esc"}, action: actBack, help: "close", short: "close", rank: 1},
	{keys: []string{"q", "ctrl+c"}, action: actQuit, help: "quit at once", short: "quit", rank: 95},
}

// page shows a text.
type page struct {
	title string
	text  string
	top   int
	lines int
	h     int
}

func newPage(title, text string) *page { return &page{title: title, text: text} }

func (p *page) bindings() []binding {
	return []binding{{keys: []string{"down", "j"}, action: actDown, help: "down", short: "down", rank: 2}}
}

func (p *page) draw(s *scene, w, h int) []string {
	out := boxHead(s.theme, p.title, w)
	p.h = max(h-len(out), 1)
	lines := markdown(s.theme, p.text, w-2)
	p.lines = len(lines)
	p.top = min(max(p.top, 0), max(0, p.lines-p.h))
	for _, l := range lines[p.top:min(p.lines, p.top+p.h)] {
		out = append(out, " "+l)
	}
	return out[:min(len(out), h)]
}

func (p *page) handle(_ *model, action string) tea.Cmd {
	if to, ok := scrolls[action]; ok {
		p.top = to(p.top, p.lines, p.h)
	}
	return nil
}

// scrolls moves the first line of a text by an action.
var scrolls = map[string]func(top, n, h int) int{
	actUp:       func(t, _, _ int) int { return t - 1 },
	actDown:     func(t, _, _ int) int { return t + 1 },
	actTop:      func(_, _, _ int) int { return 0 },
	actBottom:   func(_, n, h int) int { return n - h },
	actHalfUp:   func(t, _, h int) int { return t - max(1, h/2) },
	actHalfDown: func(t, _, h int) int { return t + max(1, h/2) },
	actPageUp:   func(t, _, h int) int { return t - h },
	actPageDown: func(t, _, h int) int { return t + h },
	actOpen:     func(t, _, _ int) int { return t + 1 },
}

func boxHead(t *theme, text string, w int) []string {
	line := cut(glyphRule+glyphRule+" "+clean(text)+" ", w)
	return []string{t.rule.render(line + strings.Repeat(glyphRule, max(0, w-ansi.StringWidth(line))))}
}

// markdown draws the little of Markdown that the checks' pages use: heads,
// lists and paragraphs, wrapped anew for the width.
func markdown(t *theme, text string, w int) []string {
	var out []string
	para := ""
	flush := func() {
		if para == "" {
			return
		}
		indent := ""
		if strings.HasPrefix(para, "- ") {
			indent = "  "
		}
		for i, line := range wrap(para, max(w-len(indent), 1), 1<<20) {
			if i > 0 {
				line = indent + line
			}
			out = append(out, emphasis(t, line))
		}
		para = ""
	}
	code := false
	for _, line := range strings.Split(toLF(text), "\n") {
		line = clean(strings.TrimRight(line, " "))
		switch {
		case strings.HasPrefix(line, "```"):
			flush()
			code = !code
		case code:
			out = append(out, cut("  "+line, w))
		case strings.HasPrefix(line, "#"):
			flush()
			for _, l := range wrap(strings.TrimLeft(line, "# "), w, 4) {
				out = append(out, t.title.render(l))
			}
		case line == "":
			flush()
			if n := len(out); n > 0 && out[n-1] != "" {
				out = append(out, "")
			}
		case strings.HasPrefix(line, "- "):
			flush()
			para = line
		case para == "":
			para = line
		default:
			para += " " + strings.TrimSpace(line)
		}
	}
	flush()
	return out
}

// emphasis draws **strong** and `code` without their signs.
func emphasis(t *theme, line string) string {
	for _, sign := range []string{"**", "`"} {
		parts := strings.Split(line, sign)
		if len(parts)%2 == 0 {
			continue // broken by a line's end: left as it is
		}
		for i := 1; i < len(parts); i += 2 {
			parts[i] = t.strong.render(parts[i])
		}
		line = strings.Join(parts, "")
	}
	return line
}

// dialog lets the user choose among lines.
type dialog struct {
	title string
	items []item
	list  list
	// choose acts on a line and says whether the dialog closes.
	choose func(m *model, i int) (done bool, cmd tea.Cmd)
	verb   string
}

// item is one line of a dialog.
type item struct {
	key   string // chooses it at once, "" for none
	label string
	help  string
	on    *bool // a switch, or nil
}

func (d *dialog) bindings() []binding {
	out := []binding{
		{keys: []string{"enter"}, action: actOpen, help: d.verb, short: d.verb, rank: 2},
		{keys: []string{"space"}, action: actOpen, help: d.verb},
	}
	for _, it := range d.items {
		if it.key != "" {
			out = append(out, binding{keys: []string{it.key}, action: choosePrefix + it.key, help: it.label})
		}
	}
	return out
}

// choosePrefix begins the actions that choose a line by its key.
const choosePrefix = "choose:"

func (d *dialog) rowName(i int) string { return d.items[i].label }

func (d *dialog) draw(s *scene, w, h int) []string {
	out := boxHead(s.theme, d.title, w)
	d.list.sync(len(d.items), h-len(out), d.rowName)
	for i := d.list.top; i < min(len(d.items), d.list.top+d.list.height); i++ {
		out = append(out, d.row(s.theme, i, w))
	}
	return out[:min(len(out), max(h, 0))]
}

func (d *dialog) row(t *theme, i, w int) string {
	it := d.items[i]
	mark := ""
	switch {
	case it.on != nil && *it.on:
		mark = "[x] "
	case it.on != nil:
		mark = "[ ] "
	case it.key != "":
		mark = it.key + "  "
	}
	text := mark + fit(it.label, d.labels(w)) + "  " + it.help
	if i == d.list.cursor {
		return t.selected(cut(glyphMarker+" "+text, w), w)
	}
	return cut("  "+text, w)
}

// labels is how wide the labels are.
func (d *dialog) labels(w int) int {
	widest := 10
	for _, it := range d.items {
		widest = max(widest, ansi.StringWidth(it.label))
	}
	return max(10, min(widest, w/2))
}

func (d *dialog) handle(m *model, action string) tea.Cmd {
	if d.list.move(action, len(d.items), d.rowName) {
		return nil
	}
	at := -1
	if action == actOpen {
		at = d.list.cursor
	}
	for i, it := range d.items {
		if it.key != "" && action == choosePrefix+it.key {
			at = i
		}
	}
	if at < 0 || at >= len(d.items) {
		return nil
	}
	done, cmd := d.choose(m, at)
	if done {
		m.overlay = nil
	}
	return cmd
}

// exportDialog asks for the format.
func exportDialog() *dialog {
	d := &dialog{title: "export this view as it is shown", verb: "write"}
	for _, f := range formats {
		d.items = append(d.items, item{key: f.name[:1], label: f.name, help: f.what})
	}
	d.choose = func(m *model, i int) (bool, tea.Cmd) { return true, m.export(formats[i].name) }
	return d
}

// columnDialog switches columns on and off.
func columnDialog(c columned) *dialog {
	d := &dialog{title: "columns: those that do not fit are dropped by themselves", verb: "switch"}
	names, on := c.columnNames()
	for i, n := range names {
		d.items = append(d.items, item{label: n, on: &on[i]})
	}
	d.choose = func(_ *model, i int) (bool, tea.Cmd) {
		c.setColumn(names[i], !on[i])
		_, now := c.columnNames()
		copy(on, now)
		return false, nil
	}
	return d
}
