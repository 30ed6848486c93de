package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/tui"
	"github.com/kvscope/kvscope/wire"
)

// replay holds the flags of the command.
type replay struct {
	screen
	path     string
	at       string
	log      requestFlags
	maxIndex int
	words    wordFlags
}

func newReplay() *cobra.Command {
	var r replay
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Look at a recording, at any of its moments",
		Long: `replay shows a recording on a terminal, paused at its end: space plays it,
, and . step by a batch, [ and ] go to the findings, @ goes to a time, ? helps.

Without a terminal it prints the report; --plain prints only what changes, one
line each, for screen readers and logs.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.path = args[0]
			return r.run(cmd)
		},
	}
	r.screen.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&r.at, "at", "", "begin at this moment: Unix seconds, RFC 3339, or +offset from the start such as +90s")
	r.log.add(f, "requests log, to show really cached over predicted tokens for each replica; see audit")
	maxIndexFlag(f, &r.maxIndex)
	r.words.add(cmd)
	return cmd
}

func (r *replay) run(cmd *cobra.Command) error {
	look, err := r.look()
	if err != nil {
		return err
	}
	at, err := parseMoment(r.at)
	if err != nil {
		return err
	}
	if err := r.words.settle(cmd, os.Getenv); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel() // it may still load
	words := r.words.start(ctx)
	var spell explain.Renderer
	if r.words.given() {
		// A recording's findings must not depend on when the tokenizer is there.
		m, err := words.wait(ctx)
		switch {
		case err == nil:
			spell = speech{m}
		case !r.shown(cmd):
			return inputError(err)
		}
	}
	player, damage, err := r.load(cmd, spell)
	if err != nil {
		return err
	}
	if err := r.begin(cmd.Context(), player, at); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	switch {
	case r.json:
		err = report.JSON(out, player.Snapshot(), sentence(damage))
	case r.plain:
		err = plainReplay(cmd.Context(), out, player, at)
	case !usable(cmd):
		err = report.Text(out, player.Snapshot(), sentence(damage))
	default:
		opt := tui.Options{Feed: player, Player: player, Look: look, Audit: player.Audit(), Words: words}
		if damage != nil {
			opt.Notice = "damaged: shown is what could be read: " + damage.Error()
		}
		err = r.show(cmd.Context(), cmd, opt)
	}
	if damage != nil {
		damage = inputError(damage)
	}
	return first(err, damage)
}

// load reads the recording. damage is what could not be read of it, err that
// there is nothing to show.
func (r *replay) load(cmd *cobra.Command, spell explain.Renderer) (player *observe.Player, damage, err error) {
	src, err := open(r.path, cmd.InOrStdin())
	if err != nil {
		return nil, nil, inputError(err)
	}
	defer src.Close()
	bounds, err := indexOptions(r.maxIndex)
	if err != nil {
		return nil, nil, err
	}
	log, logErr, err := r.log.read(cmd.Context(), spell, r.words.args)
	if err != nil {
		return nil, nil, err
	}
	progress, done := progressOn(cmd.ErrOrStderr())
	player, damage = observe.Load(cmd.Context(), src, observe.Options{
		Name: r.path, Stream: src.stream(), Scrape: fleet.ParseMetrics, RouterPage: routerView, Index: bounds, Facts: src.facts(),
		Requests: log.requests, Rename: log.names, Speech: spell,
	}, progress)
	done()
	if damage == nil {
		damage = logErr
	}
	if player == nil {
		return nil, nil, inputError(damage)
	}
	if len(player.End().Replicas) == 0 {
		if damage == nil {
			damage = noEvents(r.path)
		}
		return nil, nil, inputError(damage)
	}
	return player, damage, nil
}

// begin goes to the moment asked for.
func (r *replay) begin(ctx context.Context, p *observe.Player, at moment) error {
	if !at.set {
		return nil
	}
	end := p.End()
	t := at.at
	if at.offset {
		t += end.From
	}
	if t < end.From {
		return usageError("--at %s is before the recording begins (%s)", r.at, stamp(end.From))
	}
	_, err := p.SeekTime(ctx, t)
	return err
}

// plainReplay prints what changes from the beginning of a recording, or from
// the moment asked for, to its end.
func plainReplay(ctx context.Context, w io.Writer, p *observe.Player, at moment) error {
	// Changes closer together than this come out at the same moment; a long
	// recording is walked in at most so many steps.
	const least, most = wire.Time(100e6), 50_000
	end := p.End()
	step := max(least, (end.Until-end.From)/most)
	plain := tui.NewPlain(w)
	t := end.From
	if at.set {
		t = p.Snapshot().Until
	}
	for ; ; t += step {
		s, err := p.SeekTime(ctx, min(t, end.Until))
		if err == nil {
			err = plain.Next(s)
		}
		if err != nil || t >= end.Until {
			return err
		}
	}
}
