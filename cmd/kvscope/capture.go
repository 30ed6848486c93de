package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/wire"
)

func newCapture() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "capture",
		Short: "Convert, describe, cut and redact recordings",
		Long: `capture works on recordings: captures, and JSON Lines with the metrics pages
beside them. What it writes is for you alone (mode 0600), and never overwrites.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError("capture: say what to do: import, export, info, redact or cut")
		},
	}
	cmd.AddCommand(newImport(), newExport(), newInfo(), newRedact(), newCut())
	return cmd
}

// outFlag is the name of a file to be made.
func outFlag(cmd *cobra.Command, path *string, help string) {
	cmd.Flags().StringVarP(path, "output", "o", "", help)
}

func newImport() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "import -o FILE.kvcap FILE|-",
		Short: "Make a capture of a recording in JSON Lines",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return copyInto(cmd, args[0], out, whole)
		},
	}
	outFlag(cmd, &out, "capture to write; it must not exist")
	return cmd
}

// copying fills a capture from a recording, once it knows the header to begin
// it with, and gives the number of records.
type copying func(ctx context.Context, src *recording, begin func(capture.Header) (*capture.Writer, error)) (uint64, error)

// whole copies all of a recording.
func whole(ctx context.Context, src *recording, begin func(capture.Header) (*capture.Writer, error)) (uint64, error) {
	w, err := begin(src.header)
	if err != nil {
		return 0, err
	}
	return capture.Import(ctx, w, src.Source)
}

// copyInto writes a new capture, and says how much is in it. What could be read
// is there, whatever error ends it.
func copyInto(cmd *cobra.Command, from, out string, fill copying) error {
	if out == "" {
		return usageError("%s: say with -o which file to write", cmd.CommandPath())
	}
	src, err := open(from, cmd.InOrStdin())
	if err != nil {
		return inputError(err)
	}
	defer src.Close()
	f, err := create(out)
	if err != nil {
		return err
	}
	n, err, written := fillFile(cmd.Context(), f, src, fill)
	if n == 0 && err != nil {
		// An empty capture beside an error would only look like a result.
		return errors.Join(err, os.Remove(out))
	}
	if written == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d records\n", out, n)
	}
	return first(written, err)
}

// fillFile also closes the file; written is what was wrong with that.
func fillFile(ctx context.Context, f *os.File, src *recording, fill copying) (n uint64, err, written error) {
	var w *capture.Writer
	n, err = fill(ctx, src, func(h capture.Header) (*capture.Writer, error) {
		if h.Tool == "" {
			h.Tool = "kvscope " + version()
		}
		var err error
		w, err = capture.NewWriter(f, h)
		return w, err
	})
	if w != nil {
		written = w.Close()
	}
	var exit *exitError
	if err != nil && !errors.As(err, &exit) {
		err = inputError(err)
	}
	return n, err, errors.Join(written, f.Close())
}

// create makes a new file for the user alone.
func create(path string) (*os.File, error) {
	f, err := capture.Create(path)
	if errors.Is(err, fs.ErrExist) {
		return nil, usageError("%s exists already, and nothing is overwritten: give another name", path)
	}
	if err != nil {
		return nil, inputError(err)
	}
	return f, nil
}

func newExport() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "export [-o FILE] FILE|-",
		Short: "Write a recording as JSON Lines, to standard output unless told otherwise",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			src, err := open(args[0], cmd.InOrStdin())
			if err != nil {
				return inputError(err)
			}
			defer src.Close()
			to := cmd.OutOrStdout()
			if out != "" {
				f, err := create(out)
				if err != nil {
					return err
				}
				defer func() { err = first(f.Close(), err) }()
				to = f
			}
			return export(cmd.Context(), to, strings.HasSuffix(out, ".gz"), src)
		},
	}
	outFlag(cmd, &out, "file to write, packed if it ends in .gz; it must not exist")
	return cmd
}

func export(ctx context.Context, to io.Writer, pack bool, src *recording) error {
	lines := bufio.NewWriterSize(to, 64<<10)
	end := lines.Flush
	if pack {
		packed := gzip.NewWriter(to)
		lines.Reset(packed)
		end = func() error { return errors.Join(lines.Flush(), packed.Close()) }
	}
	_, err := capture.Export(ctx, lines, src.Source)
	if err != nil {
		err = inputError(err)
	}
	return first(end(), err)
}

func newRedact() *cobra.Command {
	var out string
	opt := capture.RedactOptions{Random: rand.Reader}
	cmd := &cobra.Command{
		Use:   "redact -o OUT FILE|-",
		Short: "Make a copy that holds no prompt, and say what it can no longer tell",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var sum capture.Redaction
			err := copyInto(cmd, args[0], out, func(ctx context.Context, src *recording, begin func(capture.Header) (*capture.Writer, error)) (uint64, error) {
				r, err := capture.NewRedactor(opt)
				if err != nil {
					return 0, err
				}
				w, err := begin(r.Header(src.header))
				if err != nil {
					return 0, err
				}
				sum, err = r.Redact(ctx, w, src.Source)
				return sum.Records, err
			})
			if sum.Records == 0 {
				return err
			}
			text := sum.String() + "\n" + strings.Join(sum.Kept(), "\n") + "\n"
			_, failed := io.WriteString(cmd.OutOrStdout(), text)
			return first(failed, err)
		},
	}
	outFlag(cmd, &out, "capture to write; it must not exist")
	redactFlags(cmd, &opt)
	return cmd
}

func newCut() *cobra.Command {
	var out, since, until string
	cmd := &cobra.Command{
		Use:   "cut -o OUT [--since T] [--until T] FILE|-",
		Short: "Make a capture of a part of a recording",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := parseMoment(since)
			if err != nil {
				return err
			}
			to, err := parseMoment(until)
			if err != nil {
				return err
			}
			return copyInto(cmd, args[0], out, part{from, to}.copy)
		},
	}
	outFlag(cmd, &out, "capture to write; it must not exist")
	const form = ": Unix seconds, RFC 3339, or +offset from the start such as +90s"
	cmd.Flags().StringVar(&since, "since", "", "leave out what was received before this moment"+form)
	cmd.Flags().StringVar(&until, "until", "", "leave out what was received after this moment"+form)
	return cmd
}

// part is what was received between two moments, both included.
type part struct{ from, to moment }

func (p part) copy(ctx context.Context, src *recording, begin func(capture.Header) (*capture.Writer, error)) (uint64, error) {
	start, err := src.start(ctx)
	if err != nil {
		return 0, err
	}
	var since, end wire.Time
	if p.from.set {
		since = p.from.micros(start)*micro - micro/2 // what is shown as this moment
	}
	if p.to.set {
		end = (p.to.micros(start) + 1) * micro
	}
	if p.from.set && p.to.set && end <= since {
		return 0, usageError("--until is before --since: nothing lies between")
	}
	w, err := begin(src.header)
	if err != nil {
		return 0, err
	}
	n, err := capture.Cut(ctx, w, src.Source, since, end)
	if err == nil && n == 0 {
		err = usageError("nothing was received between these moments: the recording begins at %s", stamp(start))
	}
	return n, err
}
