package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/wire"
)

// maxClip is the most text that goes to the clipboard through the terminal:
// 100,000 bytes once encoded, which is where terminals cut without a word.
const maxClip = 74_994

// screenChunk is how much GNU screen passes through at once.
const screenChunk = 76

// clipSequence is what to write so that the terminal at the other end of the
// line puts text on its clipboard: OSC 52, wrapped for the multiplexers that
// lie between.
//
// tmux takes the plain form if its set-clipboard is on, and passes the wrapped
// one on if its allow-passthrough is; by default it does one or the other, so
// it gets both.
func clipSequence(text, mux string) string {
	seq := ansi.SetSystemClipboard(text)
	switch mux {
	case "tmux":
		return seq + ansi.TmuxPassthrough(seq)
	case "screen":
		return ansi.ScreenPassthrough(seq, screenChunk)
	}
	return seq
}

// copy puts text on the clipboard: through the terminal, and on this machine
// where the terminal is here. Then it says where the text went.
//
// Bubble Tea's own command for it does not know multiplexers, so the sequence
// is written raw.
func (m *model) copy(text string) tea.Cmd {
	long := len(text) > maxClip
	if long && m.opt.CopyNative == nil {
		return m.say(fmt.Sprintf("%s bytes are too many for the terminal's clipboard (at most %s): x exports them to a file", wire.Grouped(len(text)), wire.Grouped(maxClip)))
	}
	native := m.opt.CopyNative
	mux := m.opt.Look.Mux
	report := func() tea.Msg {
		where := []string{}
		if !long {
			where = append(where, "through the terminal (OSC 52"+map[string]string{"tmux": ", tmux", "screen": ", screen"}[mux]+")")
		}
		if native != nil {
			if tool, err := native(text); err == nil {
				where = append(where, "with "+tool)
			}
		}
		if len(where) == 0 {
			return toastMsg{"nothing was copied: the text is too long for the terminal, and no local clipboard took it"}
		}
		return toastMsg{fmt.Sprintf("copied %s %s", wire.Counted(len(text), "byte"), strings.Join(where, " and "))}
	}
	if long {
		return report
	}
	return tea.Batch(tea.Raw(clipSequence(text, mux)), report)
}
