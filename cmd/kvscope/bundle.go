package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/doctor"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// bundle makes a ticket's attachment.
type bundle struct {
	input input
	out   string
	opt   capture.RedactOptions
}

func newBundle() *cobra.Command {
	b := bundle{opt: capture.RedactOptions{Random: rand.Reader}}
	return b.command()
}

func (b *bundle) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle -o FILE.zip",
		Short: "Make a ticket's attachment: redacted records, report and findings",
		Long: `bundle writes one zip file that can be attached to a ticket: a redacted capture
(see kvscope capture redact), the report and the findings, each for people and for
programs, and, of a running fleet, what doctor finds. It is made of a recording
(--from FILE) or of a running fleet, which it listens to for --for (10 s).

Report and findings are made of the redacted records, so nothing in the file tells
more than they do: no prompt, token id, hash or salt. What that costs is said in the
file and on standard output, and which replica has which name in it only there.
Its mode is 0600, and it is never written over another file.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	b.input.flags(cmd)
	outFlag(cmd, &b.out, "file to write; it must not exist")
	redactFlags(cmd, &b.opt)
	return cmd
}

// maxConsult is how long doctor listens for a bundle.
const maxConsult = 10 * time.Second

func (b *bundle) run(cmd *cobra.Command) (err error) {
	switch {
	case b.out == "" || b.out == "-":
		return usageError("bundle: say with -o which file to write, such as -o ticket.zip")
	case strings.HasSuffix(b.out, "gz") || strings.HasSuffix(b.out, ".tar"):
		return usageError("-o %s: a bundle is a zip: give a name such as ticket.zip", b.out)
	}
	red, err := capture.NewRedactor(b.opt)
	if err != nil {
		return inputError(err)
	}
	var z *bundleFile
	defer func() {
		if z != nil { // it was not finished
			err = errors.Join(err, z.remove())
		}
	}()
	var members []fleet.Member
	policy, bounds := tap.Policy{}, observe.Options{}
	live, damage := b.input.listen(cmd, func(ctx context.Context, src *following) (wire.Source, error) {
		policy, bounds = src.replay, src.opt
		var err error
		if z, err = newBundleFile(b.out, systemTime()); err != nil {
			return nil, err
		}
		h := src.header(ctx)
		h.Tool = "kvscope " + version()
		return z.redacting(src, src.members != nil, red, h)
	}, func(_ *observe.Live, src *following) {
		if src.members != nil {
			members = src.members()
		}
	})
	if live == nil {
		return damage
	}
	if cmd.Context().Err() != nil {
		return cmd.Context().Err()
	}
	clear := live.Snapshot()
	if clear.Records == 0 {
		return first(nil, orEmpty(damage))
	}
	if err := z.endCapture(); err != nil {
		return inputError(err)
	}
	s, err := z.observe(cmd.Context(), observe.Options{Scrape: fleet.ParseMetrics, Index: bounds.Index})
	if err != nil {
		return inputError(err)
	}
	var checked *doctor.Report
	if len(members) > 0 {
		checked = b.consult(cmd.Context(), members, policy, red)
	}
	if cmd.Context().Err() != nil {
		return cmd.Context().Err()
	}
	said := b.told(s, clear, red, damage != nil)
	if err := z.finish(s, checked, said, damage != nil); err != nil {
		return inputError(err)
	}
	z = nil
	_, wrong := io.WriteString(cmd.OutOrStdout(), b.out+": "+said+b.names(clear, red))
	return first(wrong, damage)
}

// orEmpty is the error of a source without a record.
func orEmpty(err error) error {
	if err == nil {
		err = inputError(errors.New("nothing was received: there is nothing to put into a bundle"))
	}
	return err
}

// consult runs doctor, and leaves out of its report what redacting would.
func (b *bundle) consult(ctx context.Context, members []fleet.Member, policy tap.Policy, red *capture.Redactor) *doctor.Report {
	period := maxConsult
	if d := b.input.period; d > 0 {
		period = max(time.Second, min(d, period))
	}
	r := doctor.Run(ctx, members, doctor.Options{
		Tap: tap.Options{Replay: tap.ReplayOptions{Policy: policy}}, Get: fleet.NewProber(fleet.Options{}).Probe, Wait: period,
	})
	hide := red.Name
	if b.opt.KeepNames {
		hide = nil
	}
	r = r.Redacted(hide)
	return &r
}

// told says what a bundle holds, and what it cannot tell.
func (b *bundle) told(s, clear *observe.Snapshot, red *capture.Redactor, damaged bool) string {
	var out strings.Builder
	source := "a recording"
	if b.input.from == "" {
		source = "a running fleet"
	}
	fmt.Fprintf(&out, "a bundle of %s (replicas: %d), from %s to %s, made %s by kvscope %s.\n", source, len(s.Replicas),
		stamp(s.From), stamp(s.Until), stamp(systemTime()), version())
	if damaged {
		out.WriteString("INCOMPLETE: the source could not be read to its end, or not all replicas were reached.\n")
	}
	fmt.Fprintf(&out, "\n%s holds the records, redacted: %s.\nAll other files are made of it, but for doctor's, which say what looking at a running fleet found.\n\n", captureName, red.Count())
	out.WriteString(strings.Join((*capture.Redaction)(nil).Kept(), "\n") + "\n")
	words := map[bool][2]string{
		true:  {"Names of replicas, pods and hosts are kept.", "Names of models are replaced."},
		false: {"Names of replicas, pods and hosts are replaced; --keep-names keeps them.", "Names of models are kept; --hide-models replaces them."},
	}
	fmt.Fprintf(&out, "%s\n%s\n", words[b.opt.KeepNames][0], words[b.opt.HideModels][1])
	out.WriteString("Left out everywhere: notes, error messages, and what doctor was told by engines in their own words.\n")
	if lost := tally(clear.Findings, s.Findings); lost != "" {
		fmt.Fprintf(&out, "Findings that redacting hides: %s.\n", lost)
	}
	if more := tally(s.Findings, clear.Findings); more != "" {
		fmt.Fprintf(&out, "Findings that redacting brings about: %s.\n", more)
	}
	return out.String()
}

// tally counts the findings that a has and b has not, by their codes.
func tally(a, b []diagnose.Finding) string {
	left := map[string]int{}
	for i := range a {
		left[a[i].Code]++
	}
	for i := range b {
		left[b[i].Code]--
	}
	var out []string
	for i := range diagnose.Checks {
		if code := diagnose.Checks[i].Code; left[code] > 0 {
			out = append(out, fmt.Sprintf("%d of %s", left[code], code))
		}
	}
	return strings.Join(out, ", ")
}

// names says which replica has which name in the bundle. It is for who made it.
func (b *bundle) names(clear *observe.Snapshot, red *capture.Redactor) string {
	if b.opt.KeepNames {
		return ""
	}
	const most = 64
	var out strings.Builder
	out.WriteString("\nThe names in it, which it does not tell:\n")
	for i := range clear.Replicas {
		if i == most {
			fmt.Fprintf(&out, "  … and %d more\n", len(clear.Replicas)-i)
			break
		}
		name := clear.Replicas[i].Replica
		fmt.Fprintf(&out, "  %s is %s\n", red.Name(name), wire.Printable(string(name)))
	}
	return out.String()
}

// redactFlags say what of a capture others may read.
func redactFlags(cmd *cobra.Command, opt *capture.RedactOptions) {
	cmd.Flags().BoolVar(&opt.KeepNames, "keep-names", false, "keep the names of replicas and pods")
	cmd.Flags().BoolVar(&opt.HideModels, "hide-models", false, "replace the names of models too")
}
