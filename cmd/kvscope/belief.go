package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/route/remote"
	"github.com/kvscope/kvscope/web"
	"github.com/kvscope/kvscope/wire"
)

// beliefFlags say where a router's belief of the caches is to be had.
type beliefFlags struct {
	dump, indexer, trace string
	names                map[wire.Replica]wire.Replica
}

func (f *beliefFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.dump, "router-dump", "", "dump of a Dynamo router's index (what its standalone indexer gives at /dump, or KvRouter.dump_events), plain or gzip, to compare with the recording's end")
	fl.StringVar(&f.indexer, "ask-indexer", "", "URL of Dynamo's standalone indexer whose index to compare with the running fleet: GETs /workers once and /dump twice; nothing else is sent")
	fl.StringVar(&f.trace, "trace", "", "request trace of a Dynamo frontend (file of DYN_REQUEST_TRACE), whose overlaps to compare with the recording at their time")
}

// Bounds of what is compared of a trace: decisions, and blocks in all of them.
const (
	maxDecisions      = 1 << 20
	maxDecisionBlocks = 1 << 25
)

// check refuses what can be refused before anything is observed, and reads the trace.
// rename maps a router's names to ours.
func (f *beliefFlags) check(rename []string, in *input) error {
	named, err := parseMap(rename)
	if err != nil {
		return err
	}
	f.names = map[wire.Replica]wire.Replica{}
	for theirs, ours := range named {
		f.names[wire.Replica(theirs)] = ours
	}
	switch {
	case f.indexer != "" && in.from != "":
		return usageError("--ask-indexer asks for what is now: with a recording give --router-dump FILE, of a dump made at its end")
	case f.dump != "" && in.from == "":
		return usageError("--router-dump goes with a recording (--from) that ends when the dump was made; for a running fleet give --ask-indexer URL")
	case f.trace != "" && in.from == "":
		return usageError("--trace goes with a recording (--from) of the time in which it was written")
	case f.indexer != "":
		if err := remote.CheckURL(f.indexer); err != nil {
			return usageError("--ask-indexer: %w", err)
		}
	case f.trace != "":
		return f.readTrace(in)
	}
	return nil
}

// readTrace reads the decisions, all of which must be known before the recording is
// read.
func (f *beliefFlags) readTrace(in *input) error {
	file, err := os.Open(f.trace)
	if err != nil {
		return inputError(fmt.Errorf("the request trace: %w", err))
	}
	defer file.Close() // only read from
	t := remote.NewTrace(file, f.trace)
	for blocks := 0; ; {
		row, err := t.Next()
		switch {
		case errors.Is(err, io.EOF) && in.decisions != nil:
			return nil
		case errors.Is(err, io.EOF):
			return inputError(fmt.Errorf("request trace %s: none of its decisions has the hashes of its prompt", f.trace))
		case err != nil:
			return inputError(err)
		case row.BlockSize <= 0 || len(row.Blocks) == 0:
			continue
		}
		if blocks += len(row.Blocks); blocks > maxDecisionBlocks || len(in.decisions) == maxDecisions {
			return inputError(fmt.Errorf("request trace %s: it has more than %d decisions or %d blocks: give the part of the recording's time", f.trace, maxDecisions, maxDecisionBlocks))
		}
		begun := (row.Length + row.BlockSize - 1) / row.BlockSize
		in.decisions = append(in.decisions, observe.Decision{
			At: row.At, Replica: f.named(row.Prefill), Blocks: slices.Clone(row.Blocks), BlockSize: row.BlockSize,
			Overlap: int(math.Round(row.HitRate * float64(begun))),
		})
	}
}

func (f *beliefFlags) named(theirs wire.Replica) wire.Replica {
	return cmp.Or(f.names[theirs], theirs)
}

// snapshot observes the source as in.snapshot does, and holds the router's belief
// against it.
func (f *beliefFlags) snapshot(cmd *cobra.Command, in *input) (*observe.Snapshot, error) {
	var asked error
	o, err := in.look(cmd, func(s seen, members []fleet.Member) { asked = f.compare(cmd.Context(), s, members) })
	if o == nil {
		return nil, err
	}
	if asked != nil {
		err = inputError(together(err, asked))
	}
	shot := o.Snapshot()
	if shot.Belief != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), compared(shot.Belief))
	}
	return shot, err
}

// compared says how much was, also where nothing differs.
func compared(b *diagnose.Belief) string {
	both, differ, decisions, others := 0, 0, 0, 0
	for i := range b.Rows {
		d := &b.Rows[i]
		both, differ = both+d.Both, differ+d.Stale+d.Missing
	}
	for i := range b.Decided {
		d := &b.Decided[i]
		decisions, others = decisions+d.Rows, others+d.More+d.Fewer
	}
	var says []string
	if b.Source != "" {
		says = append(says, fmt.Sprintf("%s of %s are in the router's index and in ours, %d in one of them",
			wire.Counted(both, "block"), wire.Counted(len(b.Rows), "replica"), differ))
	}
	if decisions > 0 {
		says = append(says, fmt.Sprintf("%s of the router were compared, %d differ", wire.Counted(decisions, "decision"), others))
	}
	return strings.Join(says, "; ")
}

// lookApart is how long after the first look at a running router's index the second
// is: longer than events are on their way.
const lookApart = 2 * time.Second

func (f *beliefFlags) compare(ctx context.Context, s seen, members []fleet.Member) error {
	var traceErr error
	if o, recorded := s.(*observe.Observer); recorded && f.trace != "" {
		if _, err := o.Decided(); err != nil {
			traceErr = fmt.Errorf("request trace %s: %w", f.trace, err)
		}
	}
	switch {
	case f.dump != "":
		return together(traceErr, f.file(s))
	case f.indexer == "":
		return traceErr
	}
	client := remote.New(remote.Options{})
	if err := f.join(ctx, client, s, members); err != nil {
		return err
	}
	for _, first := range []bool{true, false} {
		if !first {
			select {
			case <-time.After(lookApart):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		held, err := client.Dump(ctx, f.indexer)
		if err == nil {
			b := f.belief(f.indexer, held)
			b.First = first
			err = s.Believe(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *beliefFlags) file(s seen) error {
	file, err := os.Open(f.dump)
	if err != nil {
		return fmt.Errorf("the router's dump: %w", err)
	}
	defer file.Close() // only read from
	held, err := remote.ReadDump(file, f.dump)
	if err != nil {
		return err
	}
	return s.Believe(f.belief(f.dump, held))
}

// join names the indexer's workers by their event sockets.
func (f *beliefFlags) join(ctx context.Context, client *remote.Client, s seen, members []fleet.Member) error {
	listeners, err := client.Workers(ctx, f.indexer)
	if err != nil {
		return err
	}
	known := map[wire.Replica]bool{}
	for _, r := range s.Snapshot().Replicas {
		known[r.Replica] = true
	}
	nameBySockets(f.names, listeners, eventSockets(members), func(r wire.Replica) bool { return known[r] })
	return nil
}

// belief is a dump by our names.
func (f *beliefFlags) belief(source string, held []remote.Holding) observe.Belief {
	if u, err := web.Parse(source); err == nil {
		source = web.Shown(u)
	}
	b := observe.Belief{Source: source}
	for i := range held {
		h := &held[i]
		b.Held = append(b.Held, observe.Held{
			Replica: f.named(h.Replica), Model: h.Model, BlockSize: h.BlockSize, Blocks: h.Blocks, Unplaced: h.Unplaced,
		})
	}
	return b
}
