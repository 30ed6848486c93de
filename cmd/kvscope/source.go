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
	f.IntVar(&in.maxIndex, "max-index", 8<<20, "most distinct blocks to keep in the index (about 150 bytes each)")
	if err := cmd.MarkFlagRequired("from"); err != nil {
		panic(err) // the flag is defined above
	}
}

// observe reads the source to its end, or to the moment asked for. An error
// beside an Observer says what could not be read; the rest is in the Observer
// all the same.
func (in *input) observe(cmd *cobra.Command, requests []explain.Request, rename map[string]wire.Replica) (*observe.Observer, error) {
	stop, err := parseMoment(in.at)
	if err != nil {
		return nil, err
	}
	src, closeAll, err := open(in.from, cmd.InOrStdin())
	if err != nil {
		return nil, inputError(err)
	}
	defer closeAll()
	o := observe.New(observe.Options{
		Name: in.from, Scrape: fleet.ParseMetrics, Index: index.Options{MaxBlocks: in.maxIndex},
		Requests: requests, Rename: rename,
	})
	cut := &until{Source: src, moment: stop}
	progress, done := progressOn(cmd.ErrOrStderr())
	err = o.Run(cmd.Context(), cut, progress)
	done()
	if err == nil && o.Records() == 0 && cut.first != 0 {
		return nil, usageError("--at %s is before the recording begins (%s)", in.at, stamp(cut.first))
	}
	if err != nil {
		return o, inputError(err)
	}
	return o, nil
}

// open opens a recording, with the metrics pages beside it if there are any.
func open(path string, stdin io.Reader) (wire.Source, func(), error) {
	if path == "-" {
		return wire.NewJSONL(stdin, "standard input"), func() {}, nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		found, err := filepath.Glob(filepath.Join(path, "events.jsonl*"))
		if err != nil || len(found) == 0 {
			return nil, nil, fmt.Errorf("%s holds no recording: expected events.jsonl or events.jsonl.gz in it", path)
		}
		path = found[0]
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	sources := []wire.Source{wire.NewJSONL(f, path)}
	closers := []io.Closer{f}
	if beside := metricsBeside(path); beside != "" {
		if m, err := os.Open(beside); err == nil {
			sources = append(sources, wire.NewJSONL(m, beside))
			closers = append(closers, m)
		}
	}
	return wire.Merge(sources...), func() {
		for _, c := range closers {
			_ = c.Close() // only read from
		}
	}, nil
}

// metricsBeside names the file of metrics pages that belongs to a recording:
// metrics.jsonl.gz beside events.jsonl.gz.
func metricsBeside(path string) string {
	dir, base := filepath.Split(path)
	if name := strings.Replace(base, "events", "metrics", 1); name != base {
		return dir + name
	}
	return ""
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
		return moment{true, false, wire.Time(t.UnixNano())}, nil
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
	if rec.At > end {
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
