package tui

import (
	tea "charm.land/bubbletea/v2"
)

// confirm says what would be done, and does it only on enter.
type confirm struct {
	title, text string
	// verb names what enter does.
	verb string
	do   func(m *model) tea.Cmd
}

func (c *confirm) bindings() []binding {
	return []binding{{keys: []string{"enter"}, action: actOpen, help: c.verb, short: c.verb, rank: 1}}
}

func (c *confirm) draw(s *scene, w, h int) []string {
	out := boxHead(s.theme, c.title, w)
	for _, l := range wrap(clean(c.text), w-2, max(h-1, 1)) {
		out = append(out, " "+l)
	}
	return out[:min(len(out), max(h, 0))]
}

func (c *confirm) handle(m *model, action string) tea.Cmd {
	if action != actOpen {
		return nil
	}
	m.overlay = nil
	return c.do(m)
}

// offerReplay says what a replay would send, and sends it on enter.
func (m *model) offerReplay(late lateJoin) tea.Cmd {
	if m.opt.Recent == nil {
		return nil
	}
	offer, send, err := m.opt.Recent(late.replica, late.first)
	if err != nil {
		return m.say(err.Error())
	}
	m.overlay = &confirm{
		title: "replay for " + nameOf(late.replica), text: offer, verb: "send it",
		do: func(m *model) tea.Cmd {
			return tea.Batch(m.say("asked: the answer shows as REPLAYING until it is complete"), func() tea.Msg {
				send()
				return nil
			})
		},
	}
	return nil
}
