package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/sim/lab"
	"github.com/kvscope/kvscope/wire"
)

// labFlags are those of the command lab.
type labFlags struct {
	json, csv bool

	seedRun bool
	data    string

	workloads, policies, set []string
	trace, log               string
	traceBlock               int
	requests, blockSize      int
	replicas, capacities     []int
	engine                   string
	seed                     uint64
	concurrency              int
	rates                    lab.Rates

	eventDelay          time.Duration
	eventLoss           float64
	routers             int
	syncDelay, scaleOut string
	truncate            int
}

// all is the word for everything of a list.
const all = "all"

// labBlockSize is that of workloads by name and of logs, in tokens.
const labBlockSize = 64

func newLab() *cobra.Command {
	var l labFlags
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Run one workload through routers' rules, and measure what each makes of it",
		Long: "lab runs workloads through routers' real rules on models of engines, in simulated\n" +
			"time, and measures hit rates, balance and latencies. docs/lab.md says what it\n" +
			"simulates, what each number is, and what it does not say.\n\nWorkloads, lengths in tokens:\n" + shapeList() + `
--trace reads one in the form of Mooncake's traces, --requests a log as audit does.

--seed-experiment runs a published reference experiment instead, which its figures
can be held against.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.seedRun {
				return l.experiment(cmd)
			}
			return l.run(cmd)
		},
	}
	f := cmd.Flags()
	rates := lab.DefaultRates()
	f.StringSliceVar(&l.workloads, "workload", []string{"agents"}, "workloads by name, or "+all)
	f.StringVar(&l.trace, "trace", "", "instead: trace with hash_ids, JSON Lines, plain or gzip")
	f.IntVar(&l.traceBlock, "trace-block", lab.TraceBlock, "tokens that a hash id of the trace stands for")
	f.StringVar(&l.log, "requests", "", "instead: requests log, JSON Lines, plain or gzip")
	f.IntVar(&l.requests, "requests-count", 10000, "requests of each workload by name, 1 to 8388608")
	f.StringSliceVar(&l.policies, "policy", []string{all}, "policies, or "+all+": "+strings.Join(route.Policies(), ", "))
	f.StringArrayVar(&l.set, "set", nil, "change a policy's setting: POLICY:SETTING=VALUE; may be repeated")
	f.IntSliceVar(&l.replicas, "replicas", []int{8}, "fleet sizes, 1 to 1024")
	f.IntSliceVar(&l.capacities, "capacity", []int{4096}, "blocks of each replica's cache")
	f.StringVar(&l.engine, "engine", "vllm", "cache model: "+strings.Join(lab.EngineNames(), ", "))
	f.IntVar(&l.blockSize, "block-size", 0, "tokens of a block (default 64, that of a trace 512)")
	f.IntVar(&l.concurrency, "concurrency", 0, "sessions on their way at a time, for workloads by name (default each one's own)")
	f.Float64Var(&l.rates.Prefill, "prefill-rate", rates.Prefill, "prompt tokens that a replica computes in a second")
	f.Float64Var(&l.rates.Decode, "decode-rate", rates.Decode, "tokens that each sequence generates in a second")
	f.IntVar(&l.rates.Slots, "slots", rates.Slots, "sequences that a replica serves at a time")
	f.Uint64Var(&l.seed, "seed", 1, "another number, another course of events")
	f.DurationVar(&l.eventDelay, "event-delay", 0, "fault: how late cache events reach the routers")
	f.Float64Var(&l.eventLoss, "event-loss", 0, "fault: share of event messages that are lost, 0 to 1")
	f.IntVar(&l.routers, "routers", 1, "fault: routers that take requests in turn, 1 to 64")
	f.StringVar(&l.syncDelay, "sync-delay", "never", "with --routers: how late each hears of the others' requests, or never")
	f.StringVar(&l.scaleOut, "scale-out", "", "fault: TIME:N, such as 60s:4, when N replicas come")
	f.IntVar(&l.truncate, "truncate", 0, "fault: tokens of a prompt that routers see, 0 for all")
	jsonFlag(cmd, &l.json)
	f.BoolVar(&l.csv, "csv", false, "write CSV, a row for each run")
	f.BoolVar(&l.seedRun, "seed-experiment", false, "run the reference experiment")
	f.StringVar(&l.data, "data", "", "with --seed-experiment: folder whose seed/tokens.json is read (default the program's own copy)")
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
	cmd.MarkFlagsMutuallyExclusive("seed-experiment", "csv")
	for _, made := range []string{"requests-count", "concurrency"} { // of workloads by name alone
		for _, read := range []string{"trace", "requests"} {
			cmd.MarkFlagsMutuallyExclusive(made, read)
		}
	}
	cmd.MarkFlagsMutuallyExclusive("workload", "trace", "requests", "seed-experiment")
	return cmd
}

func shapeList() string {
	var b strings.Builder
	for _, s := range lab.Shapes() {
		fmt.Fprintf(&b, "  %-9s %s\n", s.Name, s.Says)
	}
	return b.String()
}

func (l *labFlags) run(cmd *cobra.Command) error {
	plan, err := l.plan()
	if err != nil {
		return err
	}
	progress, over := labProgress(cmd.ErrOrStderr())
	groups, err := plan.Run(cmd.Context(), runtime.GOMAXPROCS(0), progress)
	over()
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return usageError("%w", err)
	}
	write := report.LabText
	switch {
	case l.json:
		write = report.LabJSON
	case l.csv:
		write = report.LabCSV
	}
	return first(write(cmd.OutOrStdout(), groups), nil)
}

// plan puts the flags together.
func (l *labFlags) plan() (*lab.Plan, error) {
	p := lab.Plan{Replicas: l.replicas, Capacities: l.capacities}
	o := &p.Base
	o.Rates, o.Concurrency, o.Seed = l.rates, l.concurrency, l.seed
	o.EventDelay, o.EventLoss, o.Routers, o.Truncate = wire.Time(l.eventDelay), l.eventLoss, l.routers, l.truncate
	var err error
	if o.Engine, err = lab.EngineNamed(l.engine); err != nil {
		return nil, usageError("--engine: %w", err)
	}
	if o.SyncDelay, err = syncDelay(l.syncDelay); err != nil {
		return nil, err
	}
	if o.ScaleAt, o.ScaleBy, err = scaleOut(l.scaleOut); err != nil {
		return nil, err
	}
	if p.Policies, err = l.configs(); err != nil {
		return nil, usageError("%w", err)
	}
	p.Workloads, err = l.load()
	return &p, err
}

func syncDelay(text string) (wire.Time, error) {
	if text == "never" {
		return lab.Never, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, usageError("--sync-delay %q: give a duration such as 50ms, or never", text)
	}
	return wire.Time(d), nil
}

func scaleOut(text string) (wire.Time, int, error) {
	if text == "" {
		return 0, 0, nil
	}
	when, count, _ := strings.Cut(text, ":")
	at, err := time.ParseDuration(when)
	n, wrong := strconv.Atoi(count)
	if err != nil || wrong != nil || at < 0 || n < 1 {
		return 0, 0, usageError("--scale-out %q: give TIME:N, such as 60s:4", text)
	}
	return wire.Time(at), n, nil
}

// configs gives the policies with their settings.
func (l *labFlags) configs() ([]*route.Config, error) {
	names := l.policies
	if slices.Contains(names, all) {
		names = route.Policies()
	}
	set := map[string][]route.Setting{}
	for _, s := range l.set {
		policy, rest, ok := strings.Cut(s, ":")
		name, value, given := strings.Cut(rest, "=")
		if !ok || !given {
			return nil, fmt.Errorf("--set %q: give POLICY:SETTING=VALUE", s)
		}
		if !slices.Contains(names, policy) {
			return nil, fmt.Errorf("--set %q: %s is none of the policies that are run", s, wire.Printable(policy))
		}
		set[policy] = append(set[policy], route.Setting{Name: name, Value: value, Origin: "--set"})
	}
	var out []*route.Config
	for _, name := range names {
		p, err := route.Named(name)
		if err != nil {
			return nil, fmt.Errorf("--policy: %w", err)
		}
		cfg, err := p.Configure(route.Sources{Set: set[name]})
		if err != nil {
			return nil, err
		}
		out = append(out, &cfg)
	}
	return out, nil
}

// load reads or makes the workloads.
func (l *labFlags) load() ([]*lab.Workload, error) {
	size := cmp.Or(l.blockSize, labBlockSize)
	if l.trace != "" {
		size = cmp.Or(l.blockSize, l.traceBlock)
	}
	one := func(w *lab.Workload, err error) ([]*lab.Workload, error) {
		if err != nil {
			return nil, inputError(err)
		}
		return []*lab.Workload{w}, nil
	}
	switch {
	case l.trace != "":
		f, err := os.Open(l.trace)
		if err != nil {
			return nil, inputError(fmt.Errorf("--trace: %w", err))
		}
		defer f.Close()
		return one(lab.ReadTrace(f, filepath.Base(l.trace), l.traceBlock, size))
	case l.log != "":
		return one(l.served(size))
	}
	names := l.workloads
	if slices.Contains(names, all) {
		names = nil
		for _, s := range lab.Shapes() {
			names = append(names, s.Name)
		}
	}
	var out []*lab.Workload
	for _, name := range names {
		w, err := lab.Make(name, l.requests, size, l.seed)
		if err != nil {
			return nil, usageError("%w", err)
		}
		out = append(out, w)
	}
	return out, nil
}

// served reads a requests log.
func (l *labFlags) served(size int) (*lab.Workload, error) {
	f, err := os.Open(l.log)
	if err != nil {
		return nil, fmt.Errorf("--requests: %w", err)
	}
	defer f.Close()
	requests, err := explain.ReadRequests(f, l.log)
	if err != nil {
		return nil, err
	}
	var log []lab.Logged
	for _, r := range requests {
		if r.Excluded != "" {
			continue // it skips the cache by design
		}
		log = append(log, lab.Logged{At: r.Start, Took: max(0, r.End-r.Start), Tokens: r.Tokens, LoRA: r.Model, Salt: r.Salt, Cached: r.Cached, Known: r.Known})
	}
	return lab.FromLog(filepath.Base(l.log), log, size, l.rates.Decode)
}

// labProgress tells a terminal how many requests have come.
func labProgress(w io.Writer) (done func(n, of int), over func()) {
	say, over := statusLine(w)
	if say == nil {
		return func(int, int) {}, over
	}
	return func(n, of int) { say("lab: %s of %s requests", wire.Grouped(n), wire.Grouped(of)) }, over
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
