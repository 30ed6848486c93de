package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/charmbracelet/x/ansi"
)

// helpPage lists what can be done now, made from the bindings themselves;
// enter does what the line says.
type helpPage struct {
	rows []helpRow
	list list
}

type helpRow struct {
	keys, help string
	off        string // why it cannot be done now
	binding    binding
	head       bool
}

// help opens the help for the view that is shown.
func (m *model) help() tea.Cmd {
	s := m.scene()
	v := m.view()
	h := &helpPage{}
	add := func(title string, bindings []binding) {
		h.rows = append(h.rows, helpRow{help: title, head: true})
		for _, b := range bindings {
			row := helpRow{help: b.help, binding: b}
			var names []string
			for _, k := range b.keys {
				names = append(names, keyName(k))
			}
			row.keys = strings.Join(names, " ")
			if b.off != nil {
				row.off = b.off(s)
			}
			h.rows = append(h.rows, row)
		}
	}
	own := v.bindings()
	add(fmt.Sprintf("In view %c, %s", v.digit(), title(v.name())), own)
	add("Views", m.viewBindings())
	add("Everywhere", merged(own, globals)[len(own):])
	h.list.selected = h.name(1)
	m.overlay = h
	return nil
}

// viewBindings are the digits of the views.
func (m *model) viewBindings() []binding {
	out := make([]binding, len(m.views))
	for i, v := range m.views {
		out[i] = binding{keys: []string{string(v.digit())}, action: goPrefix + v.name(), help: "view " + title(v.name())}
	}
	return out
}

func (h *helpPage) name(i int) string { return h.rows[i].keys + h.rows[i].help }

func (h *helpPage) bindings() []binding {
	return []binding{
		{keys: []string{"enter"}, action: actOpen, help: "do what the line says", short: "do it", rank: 2},
		{keys: []string{"down", "j"}, action: actDown, help: "down", short: "down", rank: 3},
	}
}

func (h *helpPage) draw(s *scene, w, height int) []string {
	t := s.theme
	out := boxHead(t, "help: enter does what a line says", w)
	h.list.sync(len(h.rows), height-len(out), h.name)
	for i := h.list.top; i < min(len(h.rows), h.list.top+h.list.height); i++ {
		r := h.rows[i]
		keys := min(14, w/3)
		text := fit(r.keys, keys) + "  " + r.help
		switch {
		case r.head:
			text = r.help
		case r.off != "":
			text = fit(r.keys, keys) + "  (not now: " + r.off + ") " + r.help // the reason first: lines are cut
		}
		switch {
		case i == h.list.cursor:
			text = t.selected(cut(glyphMarker+" "+text, w), w)
		case r.head:
			text = " " + t.title.render(cut(text, w-1))
		case r.off != "":
			text = "  " + t.dim.render(cut(text, w-2))
		default:
			text = "  " + t.key.render(ansi.Truncate(text, keys, "")) + ansi.TruncateLeft(cut(text, w-2), keys, "")
		}
		out = append(out, text)
	}
	return out[:min(len(out), max(height, 0))]
}

func (h *helpPage) handle(m *model, action string) tea.Cmd {
	if h.list.move(action, len(h.rows), h.name) {
		return nil
	}
	if action != actOpen || len(h.rows) == 0 {
		return nil
	}
	r := h.rows[h.list.cursor]
	if r.head {
		return nil
	}
	m.overlay = nil
	return m.press(r.binding)
}
