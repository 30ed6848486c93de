package main

import (
	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/wire"
)

func newDiff() *cobra.Command {
	var p promptFlags
	var size int
	var json bool
	var viewB string
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Say where two prompts part, what is written there, and what it costs",
		Long: `diff says at which token, block and message two prompts part, what is written there
(a timestamp, a counter, tools in another order …), whether what follows is shifted,
and how many blocks they would share with that moved last or removed.

Each prompt is text, @FILE or -: plain text, a request body (OpenAI chat completions,
completions or responses, Anthropic messages), a whole curl command, or token ids.
Text needs the model's tokenizer: --tokenizer DIR.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if size < 1 {
				return usageError("--block-size %d: give tokens, such as 16", size)
			}
			if err := p.settle(cmd); err != nil {
				return err
			}
			texts, names := [2][]byte{}, [2]string{}
			for i, arg := range args {
				var err error
				if texts[i], names[i], err = p.argument(arg, cmd.InOrStdin(), i > 0 && args[0] == "-"); err != nil {
					return err
				}
			}
			ctx := cmd.Context()
			m, err := p.model(ctx)
			if err != nil {
				return err
			}
			var prompts [2]*prompt.Prompt
			for i := range prompts {
				if i == 1 && viewB != "" {
					p.view = viewB
				}
				if prompts[i], _, err = p.prompt(ctx, m, texts[i], names[i]); err != nil {
					return err
				}
			}
			opt := diff.Options{BlockSize: size}
			if m != nil {
				if m.Tokenizer != nil {
					for i, p := range prompts {
						prompts[i] = explain.Spelled(p, speech{m})
					}
				}
				opt.Encode = func(text string) ([]wire.Token, []prompt.Span, error) { return speech{m}.Encode(ctx, text) }
			}
			d, err := diff.Compare(prompts[0], prompts[1], opt)
			if err != nil {
				return usageError("%w", err)
			}
			write := report.DiffText
			if json {
				write = report.DiffJSON
			}
			return first(write(cmd.OutOrStdout(), d, prompts[0], prompts[1]), nil)
		},
	}
	p.add(cmd)
	jsonFlag(cmd, &json)
	cmd.Flags().StringVar(&viewB, "view-b", "", "--view of B alone, so that a request can be compared with what a router sees of it")
	cmd.Flags().IntVar(&size, "block-size", 16, "tokens of a block")
	return cmd
}
