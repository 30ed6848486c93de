package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// defaultPeriod is for how long a running fleet is observed by a command that
// says something once, and was not told.
const defaultPeriod = 10 * time.Second

// following is what a command observes, whatever it is.
type following struct {
	wire.Source
	opt observe.Options
	// clock is nil where time is that of the records.
	clock func() wire.Time
	// recent offers replays of a running fleet, and is nil for a recording.
	recent func(r wire.Replica, first uint64) (offer string, send func(), err error)
	// header gives what a capture of it begins with.
	header func(context.Context) capture.Header
	// inform makes its argument hear of what is known of replicas from
	// elsewhere than the source.
	inform func(describe func(wire.Replica, wire.Facts))
	// members gives who is listened to, and is nil for a recording.
	members func() []fleet.Member
	// replay says what may be asked of replay sockets.
	replay tap.Policy
	// cut is set for a recording.
	cut   *until
	close func()
}

// live follows the source.
func (f *following) live() *observe.Live {
	l := observe.NewLive(f.opt, f.clock)
	f.inform(l.Describe)
	return l
}

// wait gives a context for the time that a command was told to observe: all of
// it in a recording, and otherwise what it does unless told.
func (in *input) wait(ctx context.Context, unless time.Duration) (context.Context, context.CancelFunc) {
	d := in.period
	if d == 0 {
		d = unless
	}
	if d == 0 || in.from != "" && in.from != "-" {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// follow opens the recording, or begins to listen to the running fleet.
func (in *input) follow(ctx context.Context, cmd *cobra.Command) (*following, error) {
	switch {
	case in.period < 0:
		return nil, usageError("--for %s: give a time such as 30s", in.period)
	case in.from != "":
		return in.recorded(cmd)
	case in.at != "":
		return nil, usageError("--at goes with a recording (--from); for a running fleet give --for")
	}
	cfg, err := in.fleet.config(cmd, os.Getenv)
	if err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	bounds, err := indexOptions(cfg.MaxIndex)
	if err != nil {
		return nil, err
	}
	look, err := cfg.lookout()
	if err != nil {
		return nil, err
	}
	a := attach(ctx, cfg.tap(), look, cfg.scraper())
	return a.following(observe.Options{Name: cfg.name(), Scrape: fleet.ParseMetrics, RouterPage: routerView, Index: bounds, Speech: in.renderer}), nil
}

// tap says what the tap may do.
func (c *liveConfig) tap() tap.Options {
	return tap.Options{Replay: tap.ReplayOptions{Policy: c.Replay, PerMinute: c.ReplayPerMinute}}
}

// lookout finds the members by discovery, and adds the NATS servers.
func (c *liveConfig) lookout() (lookout, error) {
	var servers []fleet.Member
	for _, n := range c.NATS {
		servers = append(servers, n.member())
	}
	if !c.places() {
		return func(_ context.Context, changed func([]fleet.Member, []error)) { changed(servers, nil) }, nil
	}
	finder, err := fleet.NewFinder(c.Fleet, fleet.Options{})
	if err != nil {
		return nil, usageError("%w", err)
	}
	return func(ctx context.Context, changed func([]fleet.Member, []error)) {
		finder.Run(ctx, func(members []fleet.Member, problems []error) {
			changed(append(slices.Clip(members), servers...), problems)
		})
	}, nil
}

// member is a NATS server as a publisher; who publishes there shows as it does.
func (n *natsServer) member() fleet.Member {
	m := fleet.Member{Kind: fleet.Plane, Topics: n.Subjects, Rank: -1, Found: "nats"}
	u, err := url.Parse(n.URL)
	if err != nil { // the configuration was checked
		m.Name, m.Problem = wire.Replica(n.URL), err.Error()
		return m
	}
	m.User = u.User.Username()
	m.Password, _ = u.User.Password()
	u.User = nil
	m.Name, m.Events = wire.Replica(u.Host), u.String()
	return m
}

// name is what the fleet is called on a screen.
func (c *liveConfig) name() string {
	if c.File == "" {
		return "live fleet"
	}
	return "fleet of " + c.File
}

// following is what a command sees of an attachment.
func (a *attachment) following(opt observe.Options) *following {
	opt = a.options(opt)
	return &following{
		Source: a, opt: opt, clock: systemTime, recent: a.recent, members: a.list,
		header: func(ctx context.Context) capture.Header {
			return capture.Header{Tool: "kvscope " + version(), Created: systemTime(), Facts: a.facts(ctx), Hold: opt.Stream.Hold}
		},
		inform: a.inform,
		close:  func() { _ = a.Close() },
	}
}

// recorded opens a recording up to the moment asked for.
func (in *input) recorded(cmd *cobra.Command) (*following, error) {
	if in.from == "" {
		return nil, usageError("%s needs a recording: give --from FILE", cmd.Name())
	}
	stop, err := parseMoment(in.at)
	if err != nil {
		return nil, err
	}
	if in.period > 0 {
		if stop.set {
			return nil, usageError("give --at or --for, not both: they say the same of a recording")
		}
		stop = moment{set: true, offset: true, at: wire.Time(in.period)}
	}
	bounds, err := indexOptions(in.maxIndex)
	if err != nil {
		return nil, err
	}
	src, err := open(in.from, cmd.InOrStdin())
	if err != nil {
		return nil, inputError(err)
	}
	cut := &until{Source: src, moment: stop}
	if in.from == "-" {
		cut.Source = newPatient(src)
	}
	return &following{
		Source: cut, cut: cut, close: src.Close,
		header: func(context.Context) capture.Header { return src.header },
		inform: func(func(wire.Replica, wire.Facts)) {},
		opt: observe.Options{
			Name: in.from, Stream: src.stream(), Scrape: fleet.ParseMetrics, RouterPage: routerView, Index: bounds, Facts: src.facts(), Speech: in.renderer,
		},
	}, nil
}

// reached says in one sentence which replicas of a fleet were never reached.
func reached(s *observe.Snapshot) error {
	var why []string
	for i := range s.Replicas {
		if r := &s.Replicas[i]; !r.Heard && r.Link != wire.LinkUp {
			why = append(why, strings.TrimSuffix(fmt.Sprintf("%s: %s", r.Replica, r.LinkText), ": "))
		}
	}
	missed := len(why)
	if len(s.Replicas) == 0 {
		for _, n := range s.Notes {
			why = append(why, n.Text)
		}
	}
	const most = 3
	if len(why) > most {
		why = append(why[:most], fmt.Sprintf("%d more", len(why)-most))
	}
	said := strings.Join(why, "; ")
	switch {
	case len(s.Replicas) == 0 && said == "":
		return errors.New("no replica was found")
	case len(s.Replicas) == 0:
		return fmt.Errorf("no replica was found: %s", said)
	case missed == len(s.Replicas):
		return fmt.Errorf("no replica was reached (%s): kvscope doctor says what to do", said)
	case missed > 0:
		return fmt.Errorf("%d of %d replicas were not reached (%s): kvscope doctor says what to do", missed, len(s.Replicas), said)
	}
	return nil
}

// replayed waits, once the time to observe is over, until no replay is running
// any more: what was asked for belongs to the answer.
func replayed(ctx context.Context, live *observe.Live) {
	const most, every = 20 * time.Second, 100 * time.Millisecond
	pending := func() bool {
		s := live.Snapshot()
		for i := range s.Replicas {
			if s.Replicas[i].Trust.Word == stream.Replaying {
				return true
			}
		}
		return false
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for end := time.Now().Add(most); pending() && time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// countdown tells a terminal what is heard while it waits.
func countdown(ctx context.Context, w io.Writer, live *observe.Live) (done func()) {
	end, bounded := ctx.Deadline()
	if !isTerminal(w) || !bounded {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s := live.Snapshot()
				fmt.Fprintf(w, "\rlistening: %d replicas, %d records, %d s left \033[K", len(s.Replicas), s.Records, int(time.Until(end).Seconds()))
			case <-ctx.Done():
				fmt.Fprint(w, "\r\033[K")
				return
			}
		}
	}()
	return func() {
		stop()
		<-over
	}
}
