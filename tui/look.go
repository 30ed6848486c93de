package tui

import (
	"fmt"
	"slices"
	"strings"
)

// Look is how the screen is drawn.
type Look struct {
	// Theme is dark, light or none.
	Theme string
	ASCII bool
	// Auto says that nobody chose a theme, so the terminal may be asked for
	// its background.
	Auto bool
	// Mux is the terminal multiplexer that we run in: "", tmux or screen.
	Mux string
	// Remote says that the terminal is on another machine, so that a clipboard
	// here is nobody's.
	Remote bool
}

// ChooseLook joins flags with the environment. color is auto, always or never,
// theme one of the themes or "" for what suits the terminal.
func ChooseLook(env func(string) string, color, theme string, ascii bool) (Look, error) {
	if !slices.Contains([]string{"auto", "always", "never"}, color) {
		return Look{}, fmt.Errorf("--color %q: use auto, always or never", color)
	}
	if theme != "" && !slices.Contains(themeNames, theme) {
		return Look{}, fmt.Errorf("--theme %q: use %s", theme, strings.Join(themeNames, ", "))
	}
	term := env("TERM")
	l := Look{Theme: theme, ASCII: ascii || term == "dumb"}
	plain := env("NO_COLOR") != "" || term == "dumb"
	switch {
	case color == "never" || color == "auto" && plain:
		l.Theme = "none"
	case theme == "":
		l.Theme, l.Auto = "dark", true
	}
	switch {
	case env("TMUX") != "":
		l.Mux = "tmux"
	case env("STY") != "":
		l.Mux = "screen"
	}
	l.Remote = env("SSH_TTY") != "" || env("SSH_CONNECTION") != "" || env("SSH_CLIENT") != ""
	return l, nil
}
