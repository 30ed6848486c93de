package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/sim/lab"
)

// labFlags are those of the command lab.
type labFlags struct {
	json bool
	seed bool
	data string
}

func newLab() *cobra.Command {
	var l labFlags
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Run one workload through routers' rules, and measure what each makes of it",
		Long: `lab runs workloads through routers' real rules on models of engines, in simulated
time, and measures hit rates, balance and latencies.

--seed-experiment runs a published reference experiment instead, which its figures
can be held against.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.experiment(cmd) },
	}
	f := cmd.Flags()
	jsonFlag(cmd, &l.json)
	f.BoolVar(&l.seed, "seed-experiment", false, "run the reference experiment")
	f.StringVar(&l.data, "data", "", "with --seed-experiment: folder whose seed/tokens.json is read (default the program's own copy)")
	return cmd
}

// experiment runs the reference experiment.
func (l *labFlags) experiment(cmd *cobra.Command) error {
	r, err := l.tokens()
	if err != nil {
		return inputError(err)
	}
	defer r.Close()
	tokens, err := lab.ReadSeed(r)
	if err != nil {
		return inputError(err)
	}
	s, err := lab.RunSeed(tokens)
	if err != nil {
		return inputError(err)
	}
	write := report.SeedText
	if l.json {
		write = report.SeedJSON
	}
	return first(write(cmd.OutOrStdout(), s), nil)
}

func (l *labFlags) tokens() (io.ReadCloser, error) {
	if l.data == "" {
		return fixtures.Open("seed/tokens.json.gz")
	}
	f, err := os.Open(filepath.Join(l.data, "seed", "tokens.json"))
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	return f, nil
}
