package tui

import (
	"fmt"
	"strings"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/wire"
)

// prompt is the line at the bottom while something is typed. What it says
// about the text is always in words.
type prompt struct {
	input textinput.Model
	sign  string
	// check looks at the text at every change; it gives a note for the line
	// above, and what is wrong with the text if anything is.
	check func(m *model, text string) (note string, err error)
	// done acts on the text; the prompt is closed then.
	done func(m *model, text string) tea.Cmd
	// whole says that pasted lines are not for this line: they close the prompt and
	// go where text goes that is pasted without one.
	whole bool
	// undo puts back what check changed, after esc.
	undo func(m *model)
	// complete lists what the text could become.
	complete func(m *model, text string) []string

	note    string
	err     error
	offers  []string // completions of the text at the first tab
	offered int
}

// ask opens a prompt.
func (m *model) ask(p *prompt) tea.Cmd {
	p.input = textinput.New()
	p.input.Prompt = ""
	p.input.SetVirtualCursor(false)        // screen readers follow the real one
	p.input.KeyMap.Paste.SetEnabled(false) // it would run a program; bracketed paste does as well
	cmd := p.input.Focus()
	m.prompt = p
	p.changed(m)
	return cmd
}

// askWith is ask with a text to begin from.
func (m *model) askWith(p *prompt, text string) tea.Cmd {
	cmd := m.ask(p)
	p.input.SetValue(text)
	p.input.CursorEnd()
	p.changed(m)
	return cmd
}

func (p *prompt) changed(m *model) {
	p.note, p.err = "", nil
	if p.check != nil {
		p.note, p.err = p.check(m, p.input.Value())
	}
}

func (p *prompt) insert(m *model, text string) tea.Cmd {
	var cmd tea.Cmd
	p.input, cmd = p.input.Update(tea.PasteMsg{Content: text})
	p.offers = nil
	p.changed(m)
	return cmd
}

// promptKey handles a key while a prompt is open.
func (m *model) promptKey(msg tea.KeyPressMsg) tea.Cmd {
	p := m.prompt
	switch msg.String() {
	case "ctrl+c":
		return m.quit()
	case "esc":
		m.prompt = nil
		if p.undo != nil {
			p.undo(m)
		}
		return nil
	case "enter":
		if p.err != nil {
			return nil // the line above says why
		}
		m.prompt = nil
		return p.done(m, p.input.Value())
	case "tab", "shift+tab":
		p.tab(m, msg.String() == "tab")
		return nil
	case "backspace":
		if p.input.Value() == "" {
			m.prompt = nil
			if p.undo != nil {
				p.undo(m)
			}
			return nil
		}
	}
	p.offers = nil
	var cmd tea.Cmd
	p.input, cmd = p.input.Update(msg)
	p.changed(m)
	return cmd
}

// tab puts in the next completion.
func (p *prompt) tab(m *model, on bool) {
	if p.complete == nil {
		return
	}
	if p.offers == nil {
		p.offers = p.complete(m, p.input.Value())
		p.offered = -1
		if !on {
			p.offered = 0
		}
	}
	n := len(p.offers)
	if n == 0 {
		return
	}
	p.offered = (p.offered + map[bool]int{true: 1, false: n - 1}[on]) % n
	p.input.SetValue(p.offers[p.offered])
	p.input.CursorEnd()
	p.changed(m)
}

// line is the prompt itself.
func (p *prompt) line(t *theme, w int) string {
	text, _ := p.visible(w)
	return t.strong.render(p.sign) + text
}

// visible is the part of the text that fits, with the cursor in it, and how
// far into it the cursor is.
func (p *prompt) visible(w int) (text string, cursor int) {
	room := max(w-len(p.sign)-1, 1)
	runes := []rune(clean(p.input.Value()))
	at := min(p.input.Position(), len(runes))
	from := 0
	for ansi.StringWidth(string(runes[from:at])) > room {
		from++
	}
	return ansi.Truncate(string(runes[from:]), room, ""), ansi.StringWidth(string(runes[from:at]))
}

func (p *prompt) cursorAt(y, w int) *tea.Cursor {
	_, x := p.visible(w)
	return tea.NewCursor(min(len(p.sign)+x, max(w-1, 0)), y)
}

// hint is the line above: what is wrong, what the text means, or what it could
// become.
func (p *prompt) hint(t *theme, w int) string {
	switch {
	case p.err != nil:
		return t.fault.render(cut(" invalid: "+clean(p.err.Error()), w))
	case len(p.offers) > 1:
		return cut(" "+strings.Join(p.offers, "  "), w)
	}
	return t.dim.render(cut(" "+clean(p.note), w))
}

// filterPrompt changes the filter of the view while it is typed.
func filterPrompt(m *model) *prompt {
	v := m.view()
	name := v.name()
	before := m.filters[name]
	restore := func(m *model) {
		if before == nil {
			delete(m.filters, name)
			return
		}
		m.filters[name] = before
	}
	p := &prompt{sign: "/"}
	p.check = func(m *model, text string) (string, error) {
		f, err := parseFilter(text, v.filterFields())
		if err != nil {
			restore(m)
			return "", err
		}
		if !f.active() {
			delete(m.filters, name)
			return "words, field:word, field>n, !not, /regexp/; fields: " + strings.Join(v.filterFields(), " "), nil
		}
		m.filters[name] = f
		return "valid: " + m.shownRows(v), nil
	}
	p.complete = func(_ *model, text string) []string {
		head, last := "", text
		if i := strings.LastIndexAny(text, " !"); i >= 0 {
			head, last = text[:i+1], text[i+1:]
		}
		var out []string
		for _, f := range v.filterFields() {
			if strings.HasPrefix(f, last) {
				out = append(out, head+f+":")
			}
		}
		return out
	}
	p.done = func(m *model, text string) tea.Cmd {
		if m.filters[name].active() {
			return m.say(fmt.Sprintf("filter %s: %s; esc clears it", text, m.shownRows(v)))
		}
		return nil
	}
	p.undo = restore
	return p
}

// shownRows says how many rows the filter lets through.
func (m *model) shownRows(v view) string {
	s := m.scene()
	if c, ok := v.(counter); ok {
		shown, all := c.count(s)
		return fmt.Sprintf("%s of %s", wire.Grouped(shown), wire.Counted(all, "row"))
	}
	return wire.Counted(len(v.export(s).rows), "row")
}

// seekPrompt asks for a moment of the recording.
func seekPrompt(m *model) *prompt {
	return &prompt{
		sign: "@",
		check: func(m *model, text string) (string, error) {
			if text == "" {
				return fmt.Sprintf("%s to %s; 14:02:11, RFC 3339, Unix seconds, +90s or -10s from here", date(m.end.From), date(m.end.Until)), nil
			}
			t, err := parseMoment(text, m.snap.Until, m.end.From)
			if err != nil {
				return "", err
			}
			return "goes to " + date(t), nil
		},
		done: func(m *model, text string) tea.Cmd { return m.seekText(text) },
	}
}

func (m *model) seekText(text string) tea.Cmd {
	if text == "" {
		return nil
	}
	if m.end == nil {
		return m.say("only a recording has other moments")
	}
	t, err := parseMoment(text, m.snap.Until, m.end.From)
	if err != nil {
		return m.say(err.Error())
	}
	w := seekTime(t)
	if t < m.end.From || t > m.end.Until {
		w.said = fmt.Sprintf("%s is outside of the recording, %s to %s", clock(t), clock(m.end.From), clock(m.end.Until))
	}
	return m.move(w)
}

// filePrompt asks for a file to read a prompt from.
func filePrompt() *prompt {
	return &prompt{
		sign:  "file: ",
		check: func(*model, string) (string, error) { return "path of a file with the prompt", nil },
		done: func(m *model, path string) tea.Cmd {
			open := m.opt.OpenFile
			if path == "" {
				return nil
			}
			return func() tea.Msg {
				data, err := open(path)
				return openedMsg{path, data, err}
			}
		},
	}
}

// pastePrompt takes a prompt typed or pasted as one line; a longer paste comes
// by bracketed paste at any time.
func pastePrompt() *prompt {
	return &prompt{
		sign:  "prompt: ",
		whole: true,
		check: func(*model, string) (string, error) {
			return "type or paste text, a request body, a curl command or token ids; several lines are taken at once", nil
		},
		done: func(m *model, text string) tea.Cmd {
			if text == "" {
				return nil
			}
			return m.pasteText(text, "took "+wire.Counted(len(text), "byte"))
		},
	}
}
