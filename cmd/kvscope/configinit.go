package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func newInit() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "init [-o FILE|-]",
		Short: "Write a commented configuration: where the fleet is and what may be asked of it",
		Long: `init writes a configuration in which every field is explained and commented
out, with examples for vLLM, SGLang, Dynamo and Kubernetes: to
$XDG_CONFIG_HOME/kvscope/config.yaml unless told otherwise. It never overwrites.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "-" {
				_, err := io.WriteString(cmd.OutOrStdout(), configText())
				return first(err, nil)
			}
			if out == "" {
				path, err := configPath(os.Getenv)
				if err != nil {
					return usageError("init: %w", err)
				}
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					return inputError(err)
				}
				out = path
			}
			f, err := create(out)
			if err != nil {
				return err
			}
			_, err = io.WriteString(f, configText())
			if closed := f.Close(); err == nil {
				err = closed
			}
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: say in it where the fleet is, then run kvscope doctor\n", out)
			}
			return first(err, nil)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write, or - for standard output")
	return cmd
}

const configHead = `## The configuration of kvscope.
##
## Lines with ## explain. Lines with # are settings: take the # away to use
## them. The values shown are examples, or the defaults where there are any.
## Flags and variables of the environment override: KVSCOPE_REPLAY is --replay.
## Any flag that says where replicas are stands in the place of all such
## settings here.
##
## This file can hold passwords: keep its mode at 0600.
`

// configText writes the table of settings out.
func configText() string {
	var b strings.Builder
	b.WriteString(configHead)
	for i := range settings {
		f := &settings[i]
		comment(&b, "", f)
		for j := range f.fields {
			comment(&b, "  ", &f.fields[j])
		}
		for line := range strings.Lines(f.example) {
			b.WriteString("#" + line)
		}
	}
	return b.String()
}

// comment writes what one field takes.
func comment(b *strings.Builder, indent string, f *setting) {
	if indent == "" {
		b.WriteString("\n")
	}
	text := f.key + ": " + f.help + "."
	for _, group := range f.needs {
		text += " Needed: " + strings.Join(group, " or ") + "."
	}
	if f.kind != section {
		text += fmt.Sprintf(" Value: %s. Default: %s.", f.span(), f.def)
	}
	const width = 78
	line := "## " + indent
	for i, word := range strings.Fields(text) {
		if i > 0 && len(line)+1+len(word) > width {
			b.WriteString(line + "\n")
			line = "##     " + indent + word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}
