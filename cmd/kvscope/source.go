package main

import (
	"bufio"
	"context"
	"errors"
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

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// input holds the flags of every command that observes a source.
type input struct {
	from     string
	at       string
	period   time.Duration
	fleet    liveFlags
	json     bool
	maxIndex int
	// router is the router in front, where a command asks for it.
	router *diagnose.Router
	// decisions of a router are held against a recording.
	decisions []observe.Decision
	// served are requests of a log to judge a recording by, if any.
	served served
	// renderer makes and spells tokens for the checks, nil without a tokenizer.
	renderer explain.Renderer
}

// recordingFlags are those of commands that need a recording.
func (in *input) recordingFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&in.from, "from", "", "recording to read: a file (capture, or JSON Lines, plain or gzip), its folder, or - for standard input")
	f.StringVar(&in.at, "at", "", "stop at this moment: Unix seconds, RFC 3339, or +offset from the start such as +90s")
	maxIndexFlag(f, &in.maxIndex)
}

// flags are those of commands that look at a recording or a running fleet.
func (in *input) flags(cmd *cobra.Command) {
	in.recordingFlags(cmd)
	cmd.Flags().Lookup("from").Usage += "; without it, the running fleet"
	cmd.Flags().DurationVar(&in.period, "for", 0, "observe for so long, such as 30s")
	in.fleet.add(cmd)
}

// spell loads the tokenizer that was given, if any.
func (in *input) spell(cmd *cobra.Command, words *wordFlags) error {
	err := words.settle(cmd, os.Getenv)
	if err == nil {
		in.renderer, err = words.renderer(cmd.Context())
	}
	return err
}

func jsonFlag(cmd *cobra.Command, json *bool) {
	cmd.Flags().BoolVar(json, "json", false, "write JSON")
}

// maxIndexFlag bounds the index; 962 MB were measured for a million blocks of a
// recording, half of it the collector's room.
func maxIndexFlag(f *pflag.FlagSet, blocks *int) {
	f.IntVar(blocks, "max-index", defaultMaxIndex, "most distinct blocks to keep in the index (about 1 KB of memory each)")
}

// indexOptions checks the bound.
func indexOptions(blocks int) (index.Options, error) {
	if blocks <= 0 {
		return index.Options{}, usageError("--max-index %d: give the number of blocks to keep, 1 or more", blocks)
	}
	return index.Options{MaxBlocks: blocks}, nil
}

// observe reads a recording to its end, or to the moment asked for, and judges
// the served requests by it. An error beside an Observer says what could not be read; the
// rest is in the Observer all the same.
func (in *input) observe(cmd *cobra.Command) (*observe.Observer, error) {
	src, err := in.recorded(cmd)
	if err != nil {
		return nil, err
	}
	defer src.close()
	src.opt.Requests, src.opt.Rename = in.served.requests, in.served.names
	src.opt.Router, src.opt.Decisions = in.router, in.decisions
	o := observe.New(src.opt)
	progress, done := progressOn(cmd.ErrOrStderr())
	err = o.Run(cmd.Context(), src, progress)
	done()
	if err == nil && o.Records() == 0 && src.cut.first != 0 {
		return nil, in.early(src.cut.first)
	}
	if err == nil && o.Records() > 0 && len(o.Replicas()) == 0 {
		err = noEvents(in.from)
	}
	if err != nil {
		return o, inputError(err)
	}
	return o, nil
}

// early is the error of a moment before the first record.
func (in *input) early(first wire.Time) error {
	return usageError("--at %s is before the recording begins (%s)", in.at, stamp(first))
}

// seen is what was observed of a source.
type seen interface {
	Snapshot() *observe.Snapshot
	Explain(context.Context, explain.Query) (*explain.Answer, error)
	Believe(observe.Belief) error
}

// look observes the source to its end, or a running fleet until the time asked
// for is over. It then calls ask, while a fleet is still observed. An error beside
// what was seen says what could not be read.
func (in *input) look(cmd *cobra.Command, ask func(seen, []fleet.Member)) (seen, error) {
	if in.from != "" {
		o, err := in.observe(cmd)
		if o == nil {
			return nil, err
		}
		if a := o.Audit(); a != nil {
			if none := in.served.judged(cmd.ErrOrStderr(), a); none != nil {
				err = inputError(together(err, none))
			}
		}
		ask(o, nil)
		return o, err
	}
	live, err := in.listen(cmd, func(_ context.Context, f *following) (wire.Source, error) { return f, nil }, func(l *observe.Live, f *following) {
		ask(l, f.members())
	})
	if live == nil {
		return nil, err
	}
	return live, err
}

// listen observes a recording to its end, or a running fleet until the time asked
// for is over, through what its records pass on the way. It then calls ask, while a
// fleet is still observed. An error beside what was seen says what could not be read.
func (in *input) listen(cmd *cobra.Command, through func(context.Context, *following) (wire.Source, error), ask func(*observe.Live, *following)) (*observe.Live, error) {
	unless := defaultPeriod
	if in.from != "" {
		unless = 0
	}
	period, cancel := in.wait(cmd.Context(), unless)
	defer cancel()
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	src, err := in.follow(ctx, cmd)
	if err != nil {
		return nil, err
	}
	defer src.close()
	src.opt.Router = in.router
	records, err := through(ctx, src)
	if err != nil {
		return nil, err
	}
	live := src.live()
	done := countdown(period, cmd.ErrOrStderr(), live)
	over := make(chan error, 1)
	go func() { over <- ended(ctx, live.Run(ctx, records)) }()
	select {
	case <-period.Done():
		replayed(ctx, live)
	case early := <-over:
		over <- early
	}
	done()
	ask(live, src)
	stop()
	err = <-over
	switch s := live.Snapshot(); {
	case err != nil:
	case src.members != nil:
		err = reached(s)
	case s.Records == 0 && src.cut.first != 0:
		return nil, in.early(src.cut.first)
	case s.Records > 0 && len(s.Replicas) == 0:
		err = noEvents(in.from)
	}
	if err != nil {
		err = inputError(err)
	}
	return live, err
}

// snapshot gives what the source shows at its end. An error beside it says what
// could not be read.
func (in *input) snapshot(cmd *cobra.Command) (*observe.Snapshot, error) {
	o, err := in.look(cmd, func(seen, []fleet.Member) {})
	if o == nil {
		return nil, err
	}
	return o.Snapshot(), err
}

// noEvents is the error of a file that is a recording of something else.
func noEvents(path string) error {
	return fmt.Errorf(`%s holds no cache event: expected a capture with messages, or lines with "replica" and "frames"`, path)
}

// recording is an open file, or standard input. Close it after use.
type recording struct {
	// Source is a *capture.Reader where the recording is a capture.
	wire.Source
	// header is what a capture says of itself, zero for JSON Lines.
	header capture.Header
	files  []io.Closer
}

// Close closes what was only read from.
func (r *recording) Close() {
	for _, f := range r.files {
		_ = f.Close()
	}
}

// stream gives the tracker's options: the answers in a capture of a live tap
// come behind batches that the tap held back.
func (r *recording) stream() stream.Options { return stream.Options{Hold: r.header.Hold} }

// facts are what a capture's header says of replicas.
func (r *recording) facts() map[wire.Replica]wire.Facts {
	out := map[wire.Replica]wire.Facts{}
	for _, f := range r.header.Facts {
		out[f.Replica] = f.Facts
	}
	return out
}

// open opens a recording: a capture, or JSON Lines with the metrics pages beside
// them if there are any.
func open(path string, stdin io.Reader) (*recording, error) {
	r := &recording{}
	if path == "-" {
		return r, r.open(stdin, nil, "standard input")
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if path, err = inFolder(path); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r.files = append(r.files, f)
	if err := r.open(f, f, path); err != nil {
		r.Close()
		return nil, err
	}
	if _, ok := r.Source.(*wire.JSONL); ok {
		r.addMetrics(metricsBeside(path))
	}
	return r, nil
}

// open looks at the first bytes of src, which file is where it can be sought in.
func (r *recording) open(src io.Reader, file *os.File, name string) error {
	head := bufio.NewReader(src)
	// What is wrong with the rest comes again when it is read.
	if b, _ := head.Peek(4); !capture.Sniff(b) {
		r.Source = wire.NewJSONL(head, name)
		return nil
	}
	reader, err := openCapture(head, file, name)
	if err != nil {
		return err
	}
	r.Source, r.header = reader, reader.Header()
	return nil
}

// openCapture reads a file by its seek table, and a pipe as it comes.
func openCapture(src io.Reader, file *os.File, name string) (*capture.Reader, error) {
	if file != nil {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			return capture.NewReader(file, info.Size(), name)
		}
	}
	return capture.NewStream(src, name)
}

// addMetrics merges metrics pages in. The events can be read without them.
func (r *recording) addMetrics(path string) {
	if path == "" {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		r.Source = wire.Merge(r.Source, unreadable{err})
		return
	}
	r.files = append(r.files, f)
	r.Source = wire.Merge(r.Source, wire.NewJSONL(f, path))
}

// captureEnding is how the names of captures end by custom.
const captureEnding = ".kvcap"

// inFolder finds the recording of a folder.
func inFolder(dir string) (string, error) {
	if found := firstFile(filepath.Join(dir, "events")); found != "" {
		return found, nil
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var captures []string
	for _, d := range names {
		if filepath.Ext(d.Name()) == captureEnding && !d.IsDir() {
			captures = append(captures, d.Name())
		}
	}
	switch len(captures) {
	case 0:
		return "", fmt.Errorf("%s holds no recording: expected events.jsonl, events.jsonl.gz or one capture, *%s, in it", dir, captureEnding)
	case 1:
		return filepath.Join(dir, captures[0]), nil
	}
	return "", fmt.Errorf("%s holds %d captures: name one of them, such as %s", dir, len(captures), filepath.Join(dir, captures[0]))
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

// micro is what times are shown in: a whole one that was asked for counts.
const micro = 1000

// micros gives the moment, in microseconds, in a recording that begins at first.
func (m moment) micros(first wire.Time) wire.Time {
	at := m.at
	if m.offset {
		at += first
	}
	return (at + micro/2) / micro
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
	if rec.At/micro > u.moment.micros(u.first) {
		return wire.Record{}, io.EOF
	}
	return rec, nil
}

// start gives the time of the next record, which stays the next. It is 0 where
// there is none.
func (r *recording) start(ctx context.Context) (wire.Time, error) {
	if c, ok := r.Source.(*capture.Reader); ok {
		at, err := c.PeekTime(ctx)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return at, err
	}
	rec, err := r.Source.Next(ctx)
	if errors.Is(err, io.EOF) {
		return 0, nil
	}
	r.Source = &ahead{Source: r.Source, rec: &rec}
	return rec.At, err
}

// ahead gives a record that was read already before those of the source.
type ahead struct {
	wire.Source
	rec *wire.Record
}

func (a *ahead) Next(ctx context.Context) (wire.Record, error) {
	if rec := a.rec; rec != nil {
		a.rec = nil
		return *rec, nil
	}
	return a.Source.Next(ctx)
}

// statusLine gives a line of a terminal that is written over, a few times a second at
// most, and what clears it. say is nil where w is no terminal.
func statusLine(w io.Writer) (say func(format string, args ...any), clear func()) {
	if !isTerminal(w) {
		return nil, func() {}
	}
	last, shown := time.Now(), false
	return func(format string, args ...any) {
			if time.Since(last) < 200*time.Millisecond {
				return
			}
			last, shown = time.Now(), true
			fmt.Fprintf(w, "\r"+format+" ", args...)
		}, func() {
			if shown {
				fmt.Fprint(w, "\r\033[K")
			}
		}
}

// progressOn tells a terminal how far reading has come.
func progressOn(w io.Writer) (func(uint64, wire.Time), func()) {
	say, over := statusLine(w)
	if say == nil {
		return nil, over
	}
	return func(records uint64, at wire.Time) { say("reading: %d records, at %s", records, stamp(at)) }, over
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
