package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/tui"
	"github.com/kvscope/kvscope/wire"
)

// demoPeriod is how long a demo without a screen runs unless told.
const demoPeriod = 20 * time.Second

// demo holds the flags of the command.
type demo struct {
	screen
	period   time.Duration
	replicas int
	rate     float64
	seed     uint64
	faults   []string
	page     bool
}

func newDemo() *cobra.Command {
	var d demo
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Look at a simulated fleet with faults: no GPU, no engine, no configuration",
		Long: "demo starts engines that cache, evict and publish as vLLM does, on the loopback\n" +
			"of this machine, sends them conversations, lets some things go wrong and looks at\n" +
			"it all as kvscope live would.\n\nFaults for --fault:\n" + faultList(),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	d.screen.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&d.period, "duration", 0, "run for so long (default: until you quit, and 20s without a screen)")
	f.IntVar(&d.replicas, "replicas", 4, "engines, 1 to 64")
	f.Float64Var(&d.rate, "rate", 6, "requests a second, 0.1 to 200")
	f.Uint64Var(&d.seed, "seed", 1, "another number, another course of events")
	f.BoolVar(&d.page, "markdown", false, "without a screen: write what diagnose finds, as a page for an incident channel")
	f.StringSliceVar(&d.faults, "fault", []string{"lost", "restart", "undecodable"}, "what goes wrong, or none")
	return cmd
}

// faultList is the table of faults for the help.
func faultList() string {
	var b strings.Builder
	for _, f := range sim.Faults {
		fmt.Fprintf(&b, "  %-13s %s\n", f.Name, f.Text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (d *demo) run(cmd *cobra.Command) error {
	look, err := d.look()
	switch {
	case err != nil:
		return err
	case d.replicas < 1 || d.replicas > 64:
		return usageError("--replicas %d: give 1 to 64", d.replicas)
	case !(d.rate >= 0.1 && d.rate <= 200):
		return usageError("--rate %g: give 0.1 to 200 requests a second", d.rate)
	case d.page && (d.json || d.plain):
		return usageError("--markdown goes with neither --json nor --plain")
	case d.period < 0:
		return usageError("--duration %s: give a time such as 30s", d.period)
	}
	faults := slices.DeleteFunc(slices.Clone(d.faults), func(s string) bool { return s == "none" })
	for _, name := range faults {
		if !slices.ContainsFunc(sim.Faults, func(f sim.Fault) bool { return f.Name == name }) {
			var names []string
			for _, f := range sim.Faults {
				names = append(names, f.Name)
			}
			return usageError("--fault %s: there is none of that name, only %s", name, strings.Join(names, ", "))
		}
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	shown := d.shown(cmd) && !d.page
	if d.period == 0 && !shown {
		d.period = demoPeriod
	}
	if d.period > 0 {
		ctx, cancel = context.WithTimeout(cmd.Context(), d.period)
	}
	defer cancel()
	model, err := demoModel(ctx)
	if err != nil {
		return err
	}
	engines, err := sim.StartFleet(ctx, sim.Options{
		Replicas: d.replicas, Rate: d.rate, Seed: d.seed, Faults: faults, Audience: 5 * time.Second, Encode: demoEncode(model),
	})
	if err != nil {
		return inputError(err)
	}
	defer engines.Close()
	src, err := followDemo(ctx, engines, tap.Options{})
	if err != nil {
		return err
	}
	defer src.close()
	src.opt.Speech = speech{model}
	if shown || d.json || d.plain {
		words := startWords(ctx, nil, func(context.Context, func(string, int64, int64)) (*prompt.Model, error) { return model, nil })
		return d.watch(ctx, cmd, src, tui.Options{
			Look: look, Recent: src.recent, Notice: demoNotice(faults), Words: words, Prompt: demoPrompt(model, engines),
		})
	}
	live := src.live()
	done := countdown(ctx, cmd.ErrOrStderr(), live)
	err = ended(ctx, live.Run(ctx, src))
	done()
	if d.page {
		return first(report.FindingsMarkdown(cmd.OutOrStdout(), live.Snapshot(), "", made()), err)
	}
	return first(report.Text(cmd.OutOrStdout(), live.Snapshot(), ""), err)
}

// demoModel is a small tokenizer with a chat template, both of our own.
func demoModel(ctx context.Context) (*prompt.Model, error) {
	files, err := fs.Sub(fixtures.FS, "tokenizer")
	if err != nil {
		return nil, err
	}
	return prompt.Load(ctx, files, prompt.Options{})
}

// demoEncode makes what simulated conversations say.
func demoEncode(m *prompt.Model) func(string) []wire.Token {
	return func(text string) []wire.Token {
		e, err := m.Tokenizer.Encode(text, false)
		if err != nil {
			panic(err) // both text and tokenizer are ours
		}
		return e.IDs
	}
}

// demoPrompt is a request like those that the engines are sent.
func demoPrompt(m *prompt.Model, engines *sim.Fleet) string {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body, err := json.Marshal(map[string]any{"model": sim.Model, "messages": []message{
		{"system", m.Tokenizer.Decode(engines.System())},
		{"user", "Where is my parcel from Lisbon?"},
	}})
	if err != nil {
		panic(err) // texts always encode
	}
	return string(body)
}

// demoNotice says what will go wrong.
func demoNotice(faults []string) string {
	if len(faults) == 0 {
		return "a simulated fleet in which nothing goes wrong (--fault)"
	}
	return "a simulated fleet in which things go wrong: " + strings.Join(faults, ", ")
}

// followDemo listens to a simulated fleet as to a real one, which says itself
// where its sockets are.
func followDemo(ctx context.Context, engines *sim.Fleet, opt tap.Options) (*following, error) {
	var spec fleet.Spec
	for _, m := range engines.Members() {
		spec.Replicas = append(spec.Replicas, fleet.Replica{Name: m.Name, Engine: m.URL})
	}
	finder, err := fleet.NewFinder(spec, fleet.Options{})
	if err != nil {
		return nil, err
	}
	a := attach(ctx, opt, finder.Run, fleet.NewScraper(fleet.Options{}).Run)
	return a.following(observe.Options{
		Name: "simulated fleet", Scrape: fleet.ParseMetrics, RouterPage: routerView, Index: index.Options{MaxBlocks: defaultMaxIndex},
	}), nil
}
