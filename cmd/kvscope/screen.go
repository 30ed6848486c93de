package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/docs"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/tui"
	"github.com/kvscope/kvscope/wire"
)

// screen holds the flags of every command that shows something on a terminal,
// and says what it gets where there is none.
type screen struct {
	plain bool
	json  bool
	ascii bool
	color string
	theme string
}

func (s *screen) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&s.plain, "plain", false, "print only changes, one per line, without moving the cursor")
	f.BoolVar(&s.json, "json", false, "write the report as JSON")
	f.BoolVar(&s.ascii, "ascii", false, "draw with ASCII characters only")
	f.StringVar(&s.color, "color", "auto", "use colours: auto, always or never (NO_COLOR is honoured)")
	f.StringVar(&s.theme, "theme", "", "colours: dark, light or none (default: what suits the terminal)")
}

func (s *screen) look() (tui.Look, error) {
	look, err := tui.ChooseLook(os.Getenv, s.color, s.theme, s.ascii)
	if err != nil {
		return look, usageError("%w", err)
	}
	return look, nil
}

// usable says whether the terminal of a command can show the UI. A dumb one
// cannot place text, so it gets what a pipe gets.
func usable(cmd *cobra.Command) bool {
	return isTerminal(cmd.OutOrStdout()) && isTerminal(cmd.InOrStdin()) && os.Getenv("TERM") != "dumb"
}

// shown says whether the command has the UI on its terminal.
func (s *screen) shown(cmd *cobra.Command) bool { return usable(cmd) && !s.plain && !s.json }

// show runs the UI, and then says in plain text what was seen last.
func (s *screen) show(ctx context.Context, cmd *cobra.Command, opt tui.Options) error {
	opt.WriteFile, opt.OpenFile, opt.Editor, opt.Page = writeNew, readRegular, editor, docs.Page
	opt.CopyNative = nativeClipboard(opt.Look.Remote)
	env := os.Environ()
	if s.color == "always" {
		env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "NO_COLOR=") })
	}
	last, err := tui.Run(ctx, opt, cmd.InOrStdin(), cmd.OutOrStdout(), env)
	if err != nil {
		return fmt.Errorf("the terminal: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s at %s: %s\n%s\n", last.Source, stamp(last.Until),
		diagnose.Headline(diagnose.View{Now: last.Until, Replicas: last.Replicas}, last.Findings), findingCount(last))
	return nil
}

func findingCount(s *observe.Snapshot) string {
	open := 0
	for i := range s.Findings {
		if s.Findings[i].Open() {
			open++
		}
	}
	return fmt.Sprintf("%d replicas, %d records, %d findings, %d of them open.", len(s.Replicas), s.Records, len(s.Findings), open)
}

// changes prints what changes, a few times a second.
func (s *screen) changes(ctx context.Context, w io.Writer, live *observe.Live, over <-chan struct{}) error {
	const every = 250 * time.Millisecond
	plain := tui.NewPlain(w)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := plain.Next(live.Snapshot()); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-over:
			return plain.Next(live.Snapshot())
		case <-ctx.Done():
			return plain.Next(live.Snapshot())
		}
	}
}

func wait(ctx context.Context, over <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-over:
	}
}

// isTerminal says whether a stream of a command is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

var errTooLong = errors.New("longer than 64 MB")

// maxPromptFile is the longest file that is taken for a prompt.
const maxPromptFile = 64 << 20

// silence is how long an input may take without a word.
const silence = 2 * time.Second

// waiting says what is waited for, unless it is stopped before: a pipe that nobody
// writes to, or a terminal that nobody types at, never ends.
func waiting(errs io.Writer, what string) (stop func() bool) {
	return time.AfterFunc(silence, func() {
		fmt.Fprintf(errs, "kvscope: waiting for the end of %s\n", wire.Printable(what))
	}).Stop
}

func readPrompt(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read from
	return limited(f)
}

// readRegular reads a prompt's file for the screen, which no pipe may keep waiting.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return nil, err
	}
	return readPrompt(path)
}

// limited reads what may be a prompt.
func limited(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPromptFile+1))
	if err == nil && len(data) > maxPromptFile {
		err = errTooLong
	}
	return data, err
}
