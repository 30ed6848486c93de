package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/tui"
	"github.com/kvscope/kvscope/wire"
)

// live holds the flags of the command.
type live struct {
	screen
	input input
	words wordFlags
}

func newLive() *cobra.Command {
	var l live
	cmd := &cobra.Command{
		Use:   "live",
		Short: "Look at a running fleet",
		Long: `live listens to the event sockets of a running fleet and shows what its caches
hold. It sends nothing but subscriptions, heartbeats, GETs of metrics and
discovery pages, and, as --replay allows, requests to replay sockets.

Without a terminal it prints only what changes, one line each; --json writes the
report once --for is over or it is interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.run(cmd) },
	}
	l.screen.flags(cmd)
	l.input.flags(cmd)
	l.words.add(cmd)
	return cmd
}

func (l *live) run(cmd *cobra.Command) error {
	look, err := l.look()
	if err != nil {
		return err
	}
	if err := l.words.settle(cmd, os.Getenv); err != nil {
		return err
	}
	ctx, cancel := l.input.wait(cmd.Context(), 0)
	defer cancel()
	src, err := l.input.follow(ctx, cmd)
	if err != nil {
		return err
	}
	defer src.close()
	if l.input.from == "-" && isTerminal(cmd.OutOrStdout()) {
		// Standard input brings the records, so the keys come from the terminal.
		if tty, err := os.Open("/dev/tty"); err == nil {
			defer tty.Close() // only read from
			cmd.SetIn(tty)
		}
	}
	words := l.words.start(ctx)
	src.opt.Speech = words
	return l.watch(ctx, cmd, src, tui.Options{Look: look, Recent: src.recent, Words: words})
}

// watch shows what a source brings until ctx ends, the user quits or, without a
// screen, the source is over.
func (s *screen) watch(ctx context.Context, cmd *cobra.Command, src *following, opt tui.Options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	live := src.live()
	over := make(chan struct{})
	var damage error
	go func() {
		defer close(over)
		damage = ended(ctx, live.Run(ctx, src))
		if ctx.Err() == nil { // a screen stays on
			live.Say(strings.TrimSuffix("the input has ended: "+sentence(damage), ": "))
		}
	}()
	err := s.display(ctx, cmd, live, opt, over)
	stop()
	<-over
	if damage == nil && src.recent != nil && !s.shown(cmd) {
		damage = reached(live.Snapshot()) // who has a screen has seen it
	}
	if s.json {
		err = report.JSON(cmd.OutOrStdout(), live.Snapshot(), sentence(damage))
	}
	if damage != nil {
		damage = inputError(damage)
	}
	return first(err, damage)
}

// display shows a Live as the terminal allows.
func (s *screen) display(ctx context.Context, cmd *cobra.Command, live *observe.Live, opt tui.Options, over <-chan struct{}) error {
	switch {
	case s.json:
		wait(ctx, over)
		return nil
	case s.shown(cmd):
		opt.Feed = live
		return s.show(ctx, cmd, opt)
	}
	return s.changes(ctx, cmd.OutOrStdout(), live, over)
}

// ended takes the end of the time that was asked for for no error.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return nil
	}
	return err
}

func systemTime() wire.Time { return wire.Time(time.Now().UnixNano()) }
