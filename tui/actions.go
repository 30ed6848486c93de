package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/kvscope/kvscope/wire"
)

// actions gives what the model carries out itself, by name. It is a function,
// because some of them carry out others.
func actions() map[string]func(*model) tea.Cmd {
	return map[string]func(*model) tea.Cmd{
		actQuit:      (*model).quit,
		actBack:      (*model).back,
		actHelp:      (*model).help,
		actCommand:   func(m *model) tea.Cmd { return m.ask(commandPrompt(m)) },
		actFilter:    func(m *model) tea.Cmd { return m.ask(filterPrompt(m)) },
		actSeek:      func(m *model) tea.Cmd { return m.ask(seekPrompt(m)) },
		actNextMatch: func(m *model) tea.Cmd { return m.act(actDown) },
		actPrevMatch: func(m *model) tea.Cmd { return m.act(actUp) },
		actFreeze:    (*model).freeze,
		actExport:    func(m *model) tea.Cmd { return m.open("export") },
		actNextEvent: func(m *model) tea.Cmd { return m.move(jump(false)) },
		actPrevEvent: func(m *model) tea.Cmd { return m.move(jump(true)) },
		actStepOn:    func(m *model) tea.Cmd { return m.move(stepBy(1)) },
		actStepBack:  func(m *model) tea.Cmd { return m.move(stepBy(-1)) },
		actFaster:    func(m *model) tea.Cmd { return m.faster(1) },
		actSlower:    func(m *model) tea.Cmd { return m.faster(-1) },
		actRelative:  func(m *model) tea.Cmd { m.relative = !m.relative; return nil },
		actMaximise:  func(m *model) tea.Cmd { m.maximised = !m.maximised; return nil },
		actRedraw:    func(*model) tea.Cmd { return tea.ClearScreen },
		actSuspend:   func(*model) tea.Cmd { return tea.Suspend },
	}
}

// overlayActions are those of the model that also work while something lies
// over the view.
var overlayActions = map[string]bool{actQuit: true, actRedraw: true, actSuspend: true, actCommand: true}

// act carries out an action: the model's, that of what lies over the view, or
// the view's.
func (m *model) act(action string) tea.Cmd {
	if name, ok := strings.CutPrefix(action, goPrefix); ok {
		m.show(name)
		return nil
	}
	if m.overlay != nil && !overlayActions[action] {
		switch action {
		case actBack, actHelp:
			m.overlay = nil
			return nil
		}
		return m.overlay.handle(m, action)
	}
	if run, ok := m.actions[action]; ok {
		return run(m)
	}
	v := m.view()
	return m.do(v, v.handle(m.scene(), action))
}

func (m *model) quit() tea.Cmd {
	m.stop()
	return tea.Quit
}

// back closes what is open, then clears the filter, then returns to the view
// before. It never quits.
func (m *model) back() tea.Cmd {
	name := m.view().name()
	switch {
	case m.maximised:
		m.maximised = false
	case m.filters[name].active():
		delete(m.filters, name)
	case len(m.trail) > 0:
		m.now = m.trail[len(m.trail)-1]
		m.trail = m.trail[:len(m.trail)-1]
	case m.toast != "":
		m.toast = ""
	default:
		return m.say("q quits")
	}
	return nil
}

// commandPrefix begins what opens the command line with a text.
const commandPrefix = "command:"

// open opens a dialog by its name; see effect.open.
func (m *model) open(what string) tea.Cmd {
	if code, ok := strings.CutPrefix(what, "page:"); ok {
		return m.openPage(code)
	}
	if text, ok := strings.CutPrefix(what, commandPrefix); ok {
		return m.askWith(commandPrompt(m), text)
	}
	switch what {
	case actPolicy:
		m.overlay = policyDialog(m.whatIf())
	case "export":
		m.overlay = exportDialog()
	case "columns":
		if c, ok := m.view().(columned); ok {
			m.overlay = columnDialog(c)
		}
	case "file":
		if m.opt.OpenFile == nil {
			return m.say("there is nothing to open files with")
		}
		return m.ask(filePrompt())
	case "paste":
		return m.ask(pastePrompt())
	case "editor":
		if m.opt.Editor == nil {
			return m.say("no editor: set $EDITOR")
		}
		return m.opt.Editor("")
	}
	return nil
}

// openPage shows the page of a check.
func (m *model) openPage(code string) tea.Cmd {
	if m.opt.Page != nil {
		if text, ok := m.opt.Page(code); ok {
			m.overlay = newPage(code, text)
			return nil
		}
	}
	return m.say(fmt.Sprintf("there is no page on %q", code))
}

// openedMsg is a file that was asked for.
type openedMsg struct {
	path string
	data []byte
	err  error
}

func (m *model) opened(msg openedMsg) tea.Cmd {
	if msg.err != nil {
		return m.say("cannot open the file: " + msg.err.Error())
	}
	return m.pasteText(string(msg.data), "read "+wire.Counted(len(msg.data), "byte")+" of "+msg.path)
}

// paste takes what the terminal pasted: into the prompt if one is open, and
// into the what-if view otherwise.
func (m *model) paste(text string) tea.Cmd {
	if m.prompt != nil {
		line, rest, more := strings.Cut(toLF(text), "\n")
		if m.prompt.whole && rest != "" {
			text = m.prompt.input.Value() + text
			m.prompt = nil
			return m.paste(text)
		}
		cmd := m.prompt.insert(m, line)
		if more {
			return tea.Batch(cmd, m.say("a prompt takes one line; the rest was left out"))
		}
		return cmd
	}
	said := "pasted " + wire.Counted(len(text), "byte")
	if n := strings.Count(text, "\r"); n > 0 {
		said += fmt.Sprintf("; %s became LF (tmux sends CR): for exact bytes open a file", wire.Counted(n, "CR"))
	}
	return m.pasteText(toLF(text), said)
}

// pasteView is where pasted text goes.
const pasteView = "what-if"

func (m *model) pasteText(text, said string) tea.Cmd {
	for _, v := range m.views {
		p, ok := v.(paster)
		if !ok || v.name() != pasteView {
			continue
		}
		m.show(pasteView)
		cmd := m.do(v, p.paste(m.scene(), text))
		if !m.spells {
			cmd = tea.Batch(cmd, m.spell())
		}
		return tea.Batch(cmd, m.say(said))
	}
	return m.say("no view takes pasted text")
}

// toLF makes all line ends LF. Terminals, tmux above all, send CR for them.
func toLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}
