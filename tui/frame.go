package tui

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// draw puts the whole screen together: at most h lines of at most w cells.
func (m *model) draw() string {
	m.cursor = nil
	if m.w <= 0 || m.h <= 0 {
		return ""
	}
	l := layoutOf(m.w, m.h, m.maximised)
	s := m.scene()
	var top, bottom []string
	if !l.minimal {
		top = m.header(s, l)
	}
	bottom = m.bottom(s, l)
	room := max(0, l.h-len(top)-len(bottom))
	if m.prompt != nil && room == 0 { // a terminal of one or two lines
		bottom = bottom[max(0, len(bottom)-l.h):]
	}
	body := m.body(s, l, room)
	for len(body) < room && len(bottom) > 0 {
		body = append(body, "")
	}
	lines := slices.Concat(top, body[:min(len(body), room)], bottom)
	lines = lines[:min(len(lines), l.h)]
	for i, line := range lines {
		if ansi.StringWidth(line) > l.w {
			lines[i] = ansi.Truncate(line, l.w, "")
		}
	}
	if m.prompt != nil {
		m.cursor = m.prompt.cursorAt(len(lines)-1, l.w)
	}
	out := strings.Join(lines, "\n")
	if m.theme.ascii {
		out = toASCII(out)
	}
	return out
}

// body draws the view or what lies over it.
func (m *model) body(s *scene, l layout, room int) []string {
	switch {
	case m.overlay != nil:
		return m.overlay.draw(s, l.w, room)
	case l.minimal:
		// One line per replica, whatever the view: it is view 1's list.
		return m.views[0].draw(s, min(l.w, minimalWidth-1), room)
	}
	return m.view().draw(s, l.w, room)
}

// bottom draws the status line and the footer, or the prompt in their place.
func (m *model) bottom(s *scene, l layout) []string {
	if m.prompt != nil {
		if l.minimal {
			return []string{m.prompt.line(m.theme, l.w)}
		}
		return []string{m.prompt.hint(m.theme, l.w), m.prompt.line(m.theme, l.w)}
	}
	var out []string
	switch {
	case m.toast != "" && (l.status || l.footer || l.h > 1):
		out = append(out, m.theme.strong.render(cut(" "+m.toast, l.w)))
	case l.status:
		out = append(out, m.theme.rule.render(strings.Repeat(glyphRule, l.w)))
	}
	if l.footer {
		out = append(out, m.footer(s, l.w))
	}
	return out
}

// most keys in the footer, besides the views.
const footerKeys = 5

// footer shows the keys that matter now, then the views.
func (m *model) footer(s *scene, w int) string {
	t := m.theme
	line := ""
	for _, b := range m.footerBindings(s) {
		part := t.key.render(keyName(b.keys[0])) + " " + b.short
		if line != "" {
			part = t.dim.render(" · ") + part
		}
		if ansi.StringWidth(line+part)+1 > w {
			break
		}
		line += part
	}
	line = " " + line
	tabs := ""
	for i, v := range m.views {
		name := string(v.digit()) + " " + title(v.name())
		if i == m.now && m.overlay == nil {
			name = t.sel.render(name)
		}
		tabs += "  " + name
	}
	if room := w - ansi.StringWidth(line) - 1; ansi.StringWidth(tabs) <= room {
		return line + strings.Repeat(" ", room-ansi.StringWidth(tabs)) + tabs + " "
	}
	return cut(line, w)
}

// footerBindings are those of the lowest ranks that can be used now.
func (m *model) footerBindings(s *scene) []binding {
	var all []binding
	if m.overlay != nil {
		all = merged(m.overlay.bindings(), overlayGlobals)
	} else {
		all = merged(m.view().bindings(), globals)
	}
	var out []binding
	for _, b := range all {
		if b.action == actFreeze {
			b = m.freezeBinding(b)
		}
		if b.short != "" && (b.off == nil || b.off(s) == "") {
			out = append(out, b)
		}
	}
	slices.SortStableFunc(out, func(a, b binding) int { return a.rank - b.rank })
	return out[:min(len(out), footerKeys)]
}

// freezeBinding words the space bar as it acts now.
func (m *model) freezeBinding(b binding) binding {
	b.rank = 15
	switch {
	case m.opt.Player != nil && m.play.playing:
		b.short = "pause"
	case m.opt.Player != nil:
		b.short = "play"
	case m.frozen:
		b.short = "go on"
	default:
		b.short, b.rank = "freeze", 50
	}
	return b
}
