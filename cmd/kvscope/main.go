// Command kvscope shows on-call engineers what the KV caches of an LLM fleet
// hold, and how sure that is.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/wire"
)

// The exit codes.
const (
	exitFine     = 0
	exitFindings = 1
	exitUsage    = 2
	exitInput    = 3

	exitInterrupted = 130 // 128 and the number of the signal, as shells have it
)

// exitError ends the program with a code; a nil err says nothing more.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func inputError(err error) error { return &exitError{exitInput, err} }
func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A read that blocks does not see the context: a second interrupt kills, and
	// so does a second's patience.
	release := context.AfterFunc(ctx, func() {
		stop()
		time.Sleep(time.Second)
		os.Exit(exitInterrupted)
	})
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	release() // ending is no interrupt
	stop()
	os.Exit(code)
}

// run executes a command line and gives its exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitFine
	}
	if errors.Is(err, context.Canceled) {
		err = &exitError{exitInterrupted, errors.New("interrupted")}
	}
	code := exitUsage
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if msg := err.Error(); msg != "" {
		// One sentence, whatever names and joined errors it is made of.
		msg = wire.Printable(strings.ReplaceAll(msg, "\n", "; "))
		fmt.Fprintf(errs, "kvscope: %s\n", msg)
	}
	return code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "kvscope",
		Short: "See what the KV caches of an LLM fleet hold, and how sure that is",
		Long: `kvscope reads the cache events of LLM engines (vLLM, SGLang, TensorRT-LLM),
keeps its own index of which replica holds which prefix, and says how far each
replica's part of it can be trusted.

Exit codes: 0 fine, 1 findings, 2 usage, 3 input damaged or unreachable.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newLive(), newReplay(), newReport(), newDiagnose(), newExplain(), newDiff(), newAudit(), newRecord(), newCapture(), newBundle(), newDoctor(), newInit(), newDemo(), newLab(),
	)
	return root
}
