package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/wire"
)

func newReport() *cobra.Command {
	var in input
	var words wordFlags
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Say what every replica holds and how sure that is",
		Long: `report says what every replica holds and how sure that is, of a recording
(--from FILE) or of a running fleet, which it listens to for --for (10 s).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := in.spell(cmd, &words); err != nil {
				return err
			}
			s, err := in.snapshot(cmd)
			if s == nil {
				return err
			}
			if in.json {
				return first(report.JSON(cmd.OutOrStdout(), s, sentence(err)), err)
			}
			if s.Records == 0 || len(s.Replicas) == 0 {
				return err
			}
			return first(report.Text(cmd.OutOrStdout(), s, sentence(err)), err)
		},
	}
	in.flags(cmd)
	words.add(cmd)
	jsonFlag(cmd, &in.json)
	return cmd
}

func newDiagnose() *cobra.Command {
	var in input
	var words wordFlags
	var failOn string
	var router routerFlags
	var belief beliefFlags
	var log requestFlags
	var page bool
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "List what is wrong, with evidence; exit code 1 if an open finding is an error",
		Long: `diagnose lists what is wrong, worst first, with its evidence, its effect and the
next step, of a recording (--from FILE) or of a running fleet, which it listens to
for --for (10 s). Findings that are alike on several replicas are one entry.

What a router of Dynamo believes of the caches is held against ours with
--ask-indexer URL (a running fleet), or --router-dump FILE and --trace FILE (a
recording). Its workers are joined with replicas by their names on the event plane
(worker/rank), by the event sockets that the indexer names, or by --map.

With --requests LOG (see audit) a recording is also held against what the engines
really reused, and with --tokenizer the tokens that it makes of the log's requests
against those that the engines made.

--markdown writes a page to paste into an incident channel: names and texts of the
fleet stand in it as code, so that they can be neither links nor mentions.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level, err := diagnose.SeverityOf(failOn)
			if err != nil {
				return usageError("--fail-on: %w", err)
			}
			if in.router, err = router.known(os.Getenv); err != nil {
				return usageError("%w", err)
			}
			if page && in.json {
				return usageError("give --json or --markdown, not both")
			}
			if err := belief.check(log.rename, &in); err != nil {
				return err
			}
			if log.path != "" && in.from == "" {
				return usageError("--requests goes with a recording (--from) of the time in which they ran")
			}
			if err := in.spell(cmd, &words); err != nil {
				return err
			}
			var logErr error
			if in.served, logErr, err = log.read(cmd.Context(), in.renderer, words.args); err != nil {
				return err
			}
			s, err := belief.snapshot(cmd, &in)
			if s == nil {
				return err
			}
			if logErr != nil {
				err = inputError(errors.Join(err, logErr))
			}
			if len(s.Replicas) == 0 && !in.json {
				return err // nothing was looked at
			}
			findings := s.Findings
			var wrong error
			switch out := cmd.OutOrStdout(); {
			case in.json:
				wrong = report.FindingsJSON(out, findings, sentence(err))
			case page:
				wrong = report.FindingsMarkdown(out, s, sentence(err), made())
			default:
				wrong = report.FindingsText(out, s, sentence(err))
			}
			if err := first(wrong, err); err != nil {
				return err
			}
			for i := range findings {
				if findings[i].Open() && findings[i].Severity >= level {
					return &exitError{code: exitFindings}
				}
			}
			return nil
		},
	}
	in.flags(cmd)
	router.add(cmd.Flags())
	belief.add(cmd.Flags())
	log.add(cmd.Flags(), "requests log, to judge by what the engines really reused and how they made tokens; see audit")
	words.add(cmd)
	jsonFlag(cmd, &in.json)
	cmd.Flags().BoolVar(&page, "markdown", false, "write a page in Markdown, for an incident channel")
	cmd.Flags().StringVar(&failOn, "fail-on", "error", "exit with 1 if an open finding is at least this severe: info, warning or error")
	return cmd
}

// made is the mark of a page that is written now.
func made() report.Made { return report.Made{At: systemTime(), Tool: "kvscope " + version()} }

func newAudit() *cobra.Command {
	var in input
	var log requestFlags
	cmd := &cobra.Command{
		Use:   "audit --from FILE --requests LOG",
		Short: "Hold what the index promised against what the engines really reused",
		Long: `audit holds, for every request of a log, what the index promised while it ran
against the cached tokens that the engine reports.

A log is JSON Lines with kind (chat or completion), replica, t_start, t_end,
status, request and response; the engine must have been asked for
return_token_ids and started with --enable-prompt-tokens-details.

It measures, and does not judge: the exit code is 0 whatever it finds.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var logErr, err error
			if in.served, logErr, err = log.read(cmd.Context(), nil, ""); err != nil {
				return err
			}
			o, err := in.observe(cmd)
			if o == nil {
				return err
			}
			if logErr != nil {
				err = inputError(errors.Join(err, logErr))
			}
			audit := o.Audit()
			if in.json {
				err = first(report.AuditJSON(cmd.OutOrStdout(), audit, sentence(err)), err)
			} else {
				err = first(report.AuditText(cmd.OutOrStdout(), audit, sentence(err)), err)
			}
			return err
		},
	}
	in.recordingFlags(cmd)
	jsonFlag(cmd, &in.json)
	log.add(cmd.Flags(), "requests log: JSON Lines, plain or gzip")
	if err := cmd.MarkFlagRequired("requests"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func parseMap(pairs []string) (map[string]wire.Replica, error) {
	names := map[string]wire.Replica{}
	for _, pair := range pairs {
		log, replica, ok := strings.Cut(pair, "=")
		if !ok || log == "" || replica == "" {
			return nil, usageError("--map %q: give THEIRS=REPLICA", pair)
		}
		if other, twice := names[log]; twice && other != wire.Replica(replica) {
			return nil, usageError("--map gives %q two names, %q and %q: give one", log, other, replica)
		}
		names[log] = wire.Replica(replica)
	}
	return names, nil
}

// sentence is what a report says of a source's error.
func sentence(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// first gives the first error, so that a failed write outranks a damaged
// input.
func first(write, input error) error {
	if write != nil {
		return inputError(fmt.Errorf("the result could not be written: %w", write))
	}
	return input
}
