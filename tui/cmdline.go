package tui

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/kvscope/kvscope/wire"
)

// command is one word of the command line.
type command struct {
	name string
	arg  string // what its argument is called, "" if it has none
	help string
	// args lists what the argument could be.
	args func(*model) []string
	// run carries it out; an error is shown and the prompt stays open.
	run func(m *model, arg string) (tea.Cmd, error)
}

// commands gives all commands but those that are named like a view. It is a
// function, because some of them open the command line again.
func commands() []command {
	return []command{
		{"replica", "NAME", "select a replica", replicaNames, runReplica},
		{"at", "TIME", "go to a moment: 14:02:11, RFC 3339, Unix seconds, +90s, -10s", moments, runAt},
		{"sort", "COLUMN", "sort by a column; - before it turns it round", sortColumns, runSort},
		{"filter", "EXPR", "filter the view", nil, runFilter},
		{"export", "FORMAT", "write this view to a file", func(*model) []string { return formatNames() }, runExport},
		{"speed", "N", "play at so many times the real speed", speedWords, runSpeed},
		{"theme", "NAME", "change the colours", func(*model) []string { return themeNames }, runTheme},
		{"open", "FILE", "read a prompt from a file", nil, runOpen},
		{"policy", "NAME", "choose the router's rule in What-if", policyNames, runPolicy},
		{"set", "KEY=VALUE", "change a setting, a load or a match in What-if", setKeys, runSet},
		{"model", "NAME", "choose the model that What-if's prompt is for", modelNames, runModel},
		{"page", "CODE", "the page of a check", pageCodes, func(m *model, arg string) (tea.Cmd, error) { return m.openPage(arg), nil }},
		{"help", "", "the keys", nil, func(m *model, _ string) (tea.Cmd, error) { return m.help(), nil }},
		{"quit", "", "quit at once", nil, func(m *model, _ string) (tea.Cmd, error) { return m.quit(), nil }},
	}
}

// allCommands are the commands, views first.
func (m *model) allCommands() []command {
	var out []command
	for _, v := range m.views {
		out = append(out, command{
			name: v.name(), help: "view " + title(v.name()),
			run: func(m *model, _ string) (tea.Cmd, error) { m.show(v.name()); return nil, nil },
		})
	}
	return append(out, commands()...)
}

// parseCommand finds the command that a text names, by its beginning if no
// other one begins so.
func (m *model) parseCommand(text string) (*command, string, error) {
	name, arg, _ := strings.Cut(strings.TrimSpace(text), " ")
	arg = strings.TrimSpace(arg)
	var found []command
	for _, c := range m.allCommands() {
		if c.name == name {
			found = []command{c}
			break
		}
		if name != "" && strings.HasPrefix(c.name, name) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return nil, "", fmt.Errorf("no command %q; tab lists them", name)
	case 1:
		return &found[0], arg, nil
	}
	var names []string
	for _, c := range found {
		names = append(names, c.name)
	}
	return nil, "", fmt.Errorf("%q could be %s", name, strings.Join(names, ", "))
}

// commandPrompt opens the command line.
func commandPrompt(m *model) *prompt {
	return &prompt{
		sign: ":",
		check: func(m *model, text string) (string, error) {
			if strings.TrimSpace(text) == "" {
				var names []string
				for _, c := range m.allCommands() {
					names = append(names, c.name)
				}
				return strings.Join(names, " ") + "  (tab completes)", nil
			}
			c, _, err := m.parseCommand(text)
			if err != nil {
				if len(m.completeCommand(text)) > 0 {
					return strings.Join(m.completeCommand(text), "  "), nil
				}
				return "", err
			}
			return strings.TrimSpace(c.name+" "+c.arg) + ": " + c.help, nil
		},
		complete: (*model).completeCommand,
		done:     (*model).runCommand,
	}
}

func (m *model) runCommand(text string) tea.Cmd {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	c, arg, err := m.parseCommand(text)
	if err != nil {
		return m.say(err.Error())
	}
	if c.arg != "" && arg == "" {
		return m.askWith(commandPrompt(m), c.name+" ")
	}
	cmd, err := c.run(m, arg)
	if err != nil {
		return m.say(fmt.Sprintf(":%s: %v", c.name, err))
	}
	return cmd
}

// completeCommand lists the texts that a text could become.
func (m *model) completeCommand(text string) []string {
	text = strings.TrimLeft(text, " ")
	name, arg, inArg := strings.Cut(text, " ")
	var out []string
	for _, c := range m.allCommands() {
		switch {
		case !inArg && strings.HasPrefix(c.name, name):
			if c.arg != "" {
				out = append(out, c.name+" ")
			} else {
				out = append(out, c.name)
			}
		case inArg && c.name == name && c.args != nil:
			for _, a := range c.args(m) {
				if strings.HasPrefix(a, arg) {
					out = append(out, c.name+" "+a)
				}
			}
		}
	}
	return out
}

func replicaNames(m *model) []string {
	var out []string
	for i := range m.snap.Replicas {
		out = append(out, string(m.snap.Replicas[i].Replica))
	}
	slices.Sort(out)
	return out
}

func runReplica(m *model, arg string) (tea.Cmd, error) {
	for i := range m.snap.Replicas {
		if r := m.snap.Replicas[i].Replica; string(r) == arg {
			if _, ok := m.view().(selector); !ok {
				m.show(m.views[0].name())
			}
			return m.do(m.view(), effect{replica: r}), nil
		}
	}
	return nil, fmt.Errorf("no replica %q", arg)
}

// moments offers the times of findings.
func moments(m *model) []string {
	if m.end == nil {
		return nil
	}
	var times []wire.Time
	for i := range m.end.Findings {
		times = append(times, m.end.Findings[i].Since)
	}
	slices.Sort(times)
	out := []string{clock(m.end.From)}
	for _, t := range times {
		out = append(out, clock(t))
	}
	return slices.Compact(append(out, clock(m.end.Until)))
}

func runAt(m *model, arg string) (tea.Cmd, error) { return m.seekText(arg), nil }

func sortColumns(m *model) []string {
	v, ok := m.view().(sorter)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(v.sortNames()), func(s string) bool { return s == "" })
}

func runSort(m *model, arg string) (tea.Cmd, error) {
	v, ok := m.view().(sorter)
	if !ok {
		return nil, errors.New("this view has an order of its own")
	}
	name, turned := strings.CutPrefix(arg, "-")
	if !slices.Contains(v.sortNames(), name) {
		return nil, fmt.Errorf("no column %q: %s", name, strings.Join(sortColumns(m), ", "))
	}
	v.sortBy(name)
	if turned {
		return m.act(actReverse), nil
	}
	return nil, nil
}

func runFilter(m *model, arg string) (tea.Cmd, error) {
	v := m.view()
	f, err := parseFilter(arg, v.filterFields())
	if err != nil {
		return nil, err
	}
	m.filters[v.name()] = f
	return m.say(fmt.Sprintf("filter %s: %s; esc clears it", arg, m.shownRows(v))), nil
}

func runExport(m *model, arg string) (tea.Cmd, error) { return m.export(arg), nil }

func speedWords(*model) []string {
	var out []string
	for _, s := range speeds {
		out = append(out, s.word)
	}
	return out
}

func runSpeed(m *model, arg string) (tea.Cmd, error) {
	if m.opt.Player == nil {
		return nil, errors.New("a live fleet has one speed")
	}
	i := slices.Index(speedWords(m), strings.TrimSuffix(arg, "x"))
	if i < 0 {
		return nil, fmt.Errorf("no speed %q: %s", arg, strings.Join(speedWords(m), ", "))
	}
	return m.setSpeed(i), nil
}

func runTheme(m *model, arg string) (tea.Cmd, error) {
	if !slices.Contains(themeNames, arg) {
		return nil, fmt.Errorf("no theme %q: %s", arg, strings.Join(themeNames, ", "))
	}
	m.theme = newTheme(arg, m.theme.ascii)
	m.opt.Look.Auto = false
	return nil, nil
}

func runOpen(m *model, arg string) (tea.Cmd, error) {
	if m.opt.OpenFile == nil {
		return nil, errors.New("there is nothing to open files with")
	}
	return filePrompt().done(m, arg), nil
}

// pageCodes offers the checks that have found something.
func pageCodes(m *model) []string {
	var out []string
	for i := range m.snap.Findings {
		out = append(out, m.snap.Findings[i].Code)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
