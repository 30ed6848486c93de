package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

func newRecord() *cobra.Command {
	var in input
	var out string
	cmd := &cobra.Command{
		Use:   "record -o FILE|-",
		Short: "Record a running fleet",
		Long: `record writes all that a running fleet publishes to a capture, until it is
interrupted or --for is over: messages as they were received, what became of the
links, answers to replay requests, and metrics pages. It is flushed every second,
so a recorder that is killed loses no more than that.

A capture holds prompts: its mode is 0600, and it is never written over another
file. kvscope capture redact makes a copy that can be shared.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return record(cmd, &in, out) },
	}
	in.flags(cmd)
	outFlag(cmd, &out, "capture to write; it must not exist (- for standard output)")
	return cmd
}

func record(cmd *cobra.Command, in *input, out string) (err error) {
	if out == "" {
		return usageError("record: say with -o which file to write")
	}
	if out == "-" && isTerminal(cmd.OutOrStdout()) {
		return usageError("record: a capture is no text: redirect standard output, or give -o FILE")
	}
	ctx, cancel := in.wait(cmd.Context(), 0)
	defer cancel()
	src, err := in.follow(ctx, cmd)
	if err != nil {
		return err
	}
	defer src.close()
	to := cmd.OutOrStdout()
	if out != "-" {
		f, createErr := create(out)
		if createErr != nil {
			return createErr
		}
		defer func() {
			if e := f.Close(); err == nil && e != nil {
				err = inputError(fmt.Errorf("%s: %w", out, e))
			}
		}()
		to = f
	}
	w, err := capture.NewWriter(to, src.header(ctx))
	if err != nil {
		return inputError(fmt.Errorf("%s: %w", out, err))
	}
	t := &tee{Source: src, w: w, began: time.Now()}
	live := src.live()
	done := t.keepFlushed(cmd.ErrOrStderr(), live)
	err = ended(ctx, live.Run(ctx, t))
	done()
	if e := t.close(); e != nil {
		err = fmt.Errorf("%s: %w", out, e)
	}
	s := live.Snapshot()
	fmt.Fprintf(cmd.ErrOrStderr(), "recorded %d records of %d replicas in %s: %d bytes. %s\n", w.Records()-t.refused, len(s.Replicas), out, w.Bytes(),
		diagnose.Headline(diagnose.View{Now: s.Until, Replicas: s.Replicas}, s.Findings))
	if err == nil {
		err = reached(s)
	}
	if err != nil {
		return inputError(err)
	}
	return nil
}

// tee writes all records of a source to a capture before it passes them on.
type tee struct {
	wire.Source
	began time.Time

	mu      sync.Mutex
	w       *capture.Writer
	refused uint64
}

// Next ends with an error of the capture: what cannot be written is not shown
// either.
func (t *tee) Next(ctx context.Context) (wire.Record, error) {
	rec, err := t.Source.Next(ctx)
	if err != nil {
		return rec, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err = t.w.WriteAt(rec, int64(time.Since(t.began)))
	if errors.Is(err, capture.ErrRecord) {
		t.refused++
		err = nil
	}
	return rec, err
}

func (t *tee) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.w.Close()
	if err == nil && t.refused > 0 {
		err = fmt.Errorf("%d records were too large to be written", t.refused)
	}
	return err
}

// keepFlushed writes out what is older than a second, and tells a terminal how
// far the recording is.
func (t *tee) keepFlushed(status io.Writer, live *observe.Live) (done func()) {
	stop, over := make(chan struct{}), make(chan struct{})
	_, terminal := status.(*os.File)
	terminal = terminal && isTerminal(status)
	go func() {
		defer close(over)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				if terminal {
					fmt.Fprint(status, "\r\033[K")
				}
				return
			case <-tick.C:
			}
			t.mu.Lock()
			_ = t.w.Tick(systemTime()) // its error comes again with the next record, and at the end
			records, bytes := t.w.Records(), t.w.Bytes()
			t.mu.Unlock()
			if terminal {
				fmt.Fprintf(status, "\rrecording for %s: %d replicas, %d records, %d bytes \033[K",
					time.Since(t.began).Round(time.Second), len(live.Snapshot().Replicas), records, bytes)
			}
		}
	}()
	return func() {
		close(stop)
		<-over
	}
}
