package tui

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/kvscope/kvscope/observe"
)

// Run shows the UI on a terminal until the user quits or ctx ends, and gives
// the snapshot that was on the screen then.
func Run(ctx context.Context, opt Options, in io.Reader, out io.Writer, env []string) (*observe.Snapshot, error) {
	m := newModel(ctx, opt)
	defer m.stop()
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(env))
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramPanic) {
		// A command's goroutine tells where it went wrong while we leave.
		time.Sleep(300 * time.Millisecond)
	}
	if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		err = nil // asked for from outside
	}
	return m.snap, err
}
