package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/doctor"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/tap"
)

func newDoctor() *cobra.Command {
	var live liveFlags
	var wait time.Duration
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at every replica once, and say what is wrong with the fix; exit code 1 on errors",
		Long: `doctor looks at every replica of the fleet before its events are relied on:
whether it can be reached, publishes, answers replays, and agrees with the
others.

It subscribes, reads each metrics page twice, and asks each replay socket once,
for what comes after the highest number there is: the engine answers that with
its end marker and reads nothing of its buffer. With --replay=never it does not
ask. What is well is only counted: --verbose lists it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < time.Second || wait > time.Hour {
				return usageError("--for %s: give 1s to 1h", wait)
			}
			cfg, err := live.config(cmd, os.Getenv)
			if err != nil {
				return err
			}
			if err := cfg.check(); err != nil {
				return err
			}
			members, problems, err := findMembers(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if len(members) == 0 && !asJSON {
				return inputError(errors.Join(problems...))
			}
			report := doctor.Run(cmd.Context(), members, doctor.Options{
				Tap: tap.Options{Replay: tap.ReplayOptions{Policy: cfg.Replay}}, Get: fleet.NewProber(fleet.Options{}).Probe, Wait: wait,
			})
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			for _, p := range problems {
				report.Problems = append(report.Problems, p.Error())
			}
			write := doctor.Text
			switch {
			case asJSON:
				write = doctor.JSON
			case verbose:
				write = doctor.Verbose
			}
			if wrong := write(cmd.OutOrStdout(), &report); wrong != nil {
				return first(wrong, nil)
			}
			switch {
			case len(members) == 0:
				return inputError(errors.Join(problems...))
			case report.Count(doctor.Error) > 0:
				return &exitError{code: exitFindings}
			case len(problems) > 0: // written already
				return &exitError{code: exitInput}
			}
			return nil
		},
	}
	live.add(cmd)
	cmd.Flags().DurationVar(&wait, "for", 10*time.Second, "how long to listen for events of a replica that gives none")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list what is well and what could not be looked at too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// findMembers looks around once. The error is of the settings; problems are what
// could not be found out.
func findMembers(ctx context.Context, cfg liveConfig) (members []fleet.Member, problems []error, err error) {
	if cfg.places() {
		finder, err := fleet.NewFinder(cfg.Fleet, fleet.Options{})
		if err != nil {
			return nil, nil, usageError("%w", err)
		}
		members, problems = finder.Look(ctx)
	}
	for i := range cfg.NATS {
		members = append(members, cfg.NATS[i].member())
	}
	if len(members) == 0 && len(problems) == 0 {
		problems = append(problems, errors.New("no replica was found"))
	}
	return members, problems, nil
}
