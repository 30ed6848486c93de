package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// input holds the flags of every command that observes a source.
type input struct {
	from     string
	at       string
	json     bool
	maxIndex int
}

func (in *input) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&in.from, "from", "", "recording to read: a file (JSON Lines, plain or gzip), its folder, or - for standard input")
	f.StringVar(&in.at, "at", "", "stop at this moment: Unix seconds, RFC 3339, or +offset from the start such as +90s")
	f.BoolVar(&in.json, "json", false, "write JSON")
	maxIndexFlag(f, &in.maxIndex)
	if err := cmd.MarkFlagRequired("from"); err != nil {
		panic(err) // the flag is defined above
	}
}

// maxIndexFlag bounds the index; 962 MB were measured for a million blocks of a
// recording, half of it the collector's room.
func maxIndexFlag(f *pflag.FlagSet, blocks *int) {
	f.IntVar(blocks, "max-index", 8<<20, "most distinct blocks to keep in the index (about 1 KB of memory each)")
}

// indexOptions checks the bound.
func indexOptions(blocks int) (index.Options, error) {
	if blocks <= 0 {
		return index.Options{}, usageError("--max-index %d: give the number of blocks to keep, 1 or more", blocks)
	}
	return index.Options{MaxBlocks: blocks}, nil
}

// observe reads the source to its end, or to the moment asked for. An error
// beside an Observer says what could not be read; the rest is in the Observer
// all the same.
func (in *input) observe(cmd *cobra.Command, requests []explain.Request, rename map[string]wire.Replica) (*observe.Observer, error) {
	stop, err := parseMoment(in.at)
	if err != nil {
		return nil, err
	}
	bounds, err := indexOptions(in.maxIndex)
	if err != nil {
		return nil, err
	}
	src, closeAll, err := open(in.from, cmd.InOrStdin())
	if err != nil {
		return nil, inputError(err)
	}
	defer closeAll()
	o := observe.New(observe.Options{
		Name: in.from, Scrape: fleet.ParseMetrics, Index: bounds,
		Requests: requests, Rename: rename,
	})
	cut := &until{Source: src, moment: stop}
	progress, done := progressOn(cmd.ErrOrStderr())
	err = o.Run(cmd.Context(), cut, progress)
	done()
	if err == nil && o.Records() == 0 && cut.first != 0 {
		return nil, usageError("--at %s is before the recording begins (%s)", in.at, stamp(cut.first))
	}
	if err == nil && o.Records() > 0 && len(o.Replicas()) == 0 {
		err = noEvents(in.from)
	}
	if err != nil {
		return o, inputError(err)
	}
	return o, nil
}

// noEvents is the error of a file that is JSON Lines and nothing else.
func noEvents(path string) error {
	return fmt.Errorf(`%s holds no cache event: expected lines with "replica" and "frames"`, path)
}

// open opens a recording, with the metrics pages beside it if there are any.
func open(path string, stdin io.Reader) (wire.Source, func(), error) {
	if path == "-" {
		return wire.NewJSONL(stdin, "standard input"), func() {}, nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		found := firstFile(filepath.Join(path, "events"))
		if found == "" {
			return nil, nil, fmt.Errorf("%s holds no recording: expected events.jsonl or events.jsonl.gz in it", path)
		}
		path = found
	}
	var closers []io.Closer
	closeAll := func() {
		for _, c := range closers {
			_ = c.Close() // only read from
		}
	}
	var sources []wire.Source
	for i, name := range []string{path, metricsBeside(path)} {
		if name == "" {
			continue
		}
		f, err := os.Open(name)
		if err != nil && i == 0 {
			return nil, nil, err
		}
		if err != nil { // the events can be read all the same
			sources = append(sources, unreadable{err})
			continue
		}
		sources, closers = append(sources, wire.NewJSONL(f, name)), append(closers, f)
	}
	return wire.Merge(sources...), closeAll, nil
}

// unreadable is a source of which nothing can be had.
type unreadable struct{ err error }

func (u unreadable) Next(context.Context) (wire.Record, error) { return wire.Record{}, u.err }

// firstFile finds a recording's file by its name without ending.
func firstFile(stem string) string {
	for _, ending := range []string{".jsonl", ".jsonl.gz"} {
		if info, err := os.Lstat(stem + ending); err == nil && !info.IsDir() {
			return stem + ending
		}
	}
	return ""
}

// metricsBeside names the file of metrics pages that belongs to a recording:
// metrics.jsonl or .jsonl.gz beside events.jsonl or .jsonl.gz.
func metricsBeside(path string) string {
	dir, base := filepath.Split(path)
	stem := strings.TrimSuffix(strings.TrimSuffix(base, ".gz"), ".jsonl")
	if !strings.Contains(stem, "events") {
		return ""
	}
	return firstFile(dir + strings.Replace(stem, "events", "metrics", 1))
}

// moment is a point in time, or an offset from a recording's start.
type moment struct {
	set    bool
	offset bool
	at     wire.Time
}

func parseMoment(s string) (moment, error) {
	if s == "" {
		return moment{}, nil
	}
	if rest, ok := strings.CutPrefix(s, "+"); ok {
		if d, err := time.ParseDuration(rest); err == nil {
			return moment{true, true, wire.Time(d)}, nil
		}
		if sec, err := strconv.ParseFloat(rest, 64); err == nil {
			if t, ok := wire.TimeOf(sec); ok {
				return moment{true, true, t}, nil
			}
		}
	} else if sec, err := strconv.ParseFloat(s, 64); err == nil {
		if t, ok := wire.TimeOf(sec); ok {
			return moment{true, false, t}, nil
		}
	} else if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		if whole, ok := wire.TimeOf(float64(t.Unix())); ok {
			return moment{true, false, whole + wire.Time(t.Nanosecond())}, nil
		}
	}
	return moment{}, usageError("%q is not a moment: give Unix seconds, RFC 3339 (2026-11-30T05:41:09Z) or +offset (+90s)", s)
}

// until ends a source after a moment.
type until struct {
	wire.Source
	moment moment
	first  wire.Time
}

func (u *until) Next(ctx context.Context) (wire.Record, error) {
	rec, err := u.Source.Next(ctx)
	if err != nil || !u.moment.set {
		return rec, err
	}
	if u.first == 0 {
		u.first = rec.At
	}
	end := u.moment.at
	if u.moment.offset {
		end += u.first
	}
	// Times are shown in microseconds: the whole one that was asked for counts.
	const micro = 1000
	if rec.At/micro > (end+micro/2)/micro {
		return wire.Record{}, io.EOF
	}
	return rec, nil
}

// progressOn tells a terminal how far reading has come, a few times a second.
func progressOn(w io.Writer) (func(uint64, wire.Time), func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	last, shown := time.Now(), false
	return func(records uint64, at wire.Time) {
			if time.Since(last) < 200*time.Millisecond {
				return
			}
			last, shown = time.Now(), true
			fmt.Fprintf(w, "\rreading: %d records, at %s ", records, stamp(at))
		}, func() {
			if shown {
				fmt.Fprint(w, "\r\033[K")
			}
		}
}

func stamp(t wire.Time) string {
	return time.Unix(0, int64(t)).UTC().Format("2006-01-02T15:04:05.000Z")
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
