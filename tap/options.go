package tap

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"github.com/kvscope/kvscope/clock"
	"github.com/kvscope/kvscope/wire"
)

// Options of a Tap. Zero values mean the defaults given.
type Options struct {
	// Dial connects to tcp or unix addresses; a net.Dialer. It resolves the
	// host anew each time.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Listen is net.Listen, for endpoints that are bound.
	Listen func(network, address string) (net.Listener, error)
	// Clock sets the deadlines of connections, so it must agree with theirs.
	Clock clock.Clock
	// Rand gives numbers in [0, 1) for jitter, from any goroutine.
	Rand func() float64

	// DialTimeout bounds one attempt to connect: 3 s.
	DialTimeout time.Duration
	// HandshakeTimeout bounds greeting and handshake together: 1 s.
	HandshakeTimeout time.Duration
	// PingEvery is how often a link asks its peer for a sign of life: 5 s. One
	// that gives none for three times as long is lost.
	PingEvery time.Duration
	// BackoffMin and BackoffMax bound the wait before the next attempt, which
	// doubles each time: 0.1 s and 5 s. The waits are between half of that and all.
	BackoffMin, BackoffMax time.Duration

	// MaxMessage bounds one message and each frame of it: 64 MB. MaxFrames
	// bounds its frames: 16.
	MaxMessage, MaxFrames int
	// MaxPublishers bounds the connections to one bound endpoint: 1,024.
	MaxPublishers int

	// LaneRecords and LaneBytes bound what one link may have waiting in the
	// queue, and once more what its replays may: 8,192 records and 64 MB.
	LaneRecords, LaneBytes int
	// QueueBytes bounds what all links together may have waiting, and once more
	// what messages of more than 1 MB may have on their way to there: 256 MB.
	QueueBytes int
	// Patience is how long a link waits for room before it drops: 1 s.
	Patience time.Duration

	Replay ReplayOptions

	large *largeBudget
}

// ReplayOptions say what may be asked of replay sockets.
type ReplayOptions struct {
	Policy Policy
	// Idle is how long an answer may pause, or take to begin: 5 s. A publisher
	// under load serves one request for each batch it publishes.
	Idle time.Duration
	// Total bounds all requests for one want: 60 s.
	Total time.Duration
	// MaxRequests bounds the requests for one want, PerMinute those to one
	// replica in any minute: 8 and 12.
	MaxRequests, PerMinute int
	// MaxBytes bounds what is read for one want: 512 MB.
	MaxBytes int
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (o Options) withDefaults() Options {
	if o.Dial == nil {
		// The kernel's own probes find a dead host behind a peer that knows no PING.
		o.Dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	if o.Listen == nil {
		o.Listen = net.Listen
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	or(&o.DialTimeout, 3*time.Second)
	or(&o.HandshakeTimeout, time.Second)
	or(&o.PingEvery, 5*time.Second)
	or(&o.BackoffMin, 100*time.Millisecond)
	or(&o.BackoffMax, 5*time.Second)
	or(&o.MaxMessage, 64<<20)
	or(&o.MaxFrames, 16)
	or(&o.MaxPublishers, 1024)
	or(&o.LaneRecords, 8192)
	or(&o.LaneBytes, 64<<20)
	or(&o.QueueBytes, 256<<20)
	or(&o.Patience, time.Second)
	o.large = &largeBudget{most: o.QueueBytes}
	or(&o.Replay.Policy, Policy{kind: gaps})
	or(&o.Replay.Idle, 5*time.Second)
	or(&o.Replay.Total, time.Minute)
	or(&o.Replay.MaxRequests, 8)
	or(&o.Replay.PerMinute, 12)
	or(&o.Replay.MaxBytes, 512<<20)
	return o
}

func (o *Options) now() wire.Time { return wire.Time(o.Clock.Now().UnixNano()) }

// sleep waits for d and reports false when ctx ended first.
func (o *Options) sleep(ctx context.Context, d time.Duration) bool {
	fired, stop := o.Clock.After(d)
	defer stop()
	select {
	case <-fired:
		return true
	case <-ctx.Done():
		return false
	}
}

// within is context.WithTimeoutCause on our clock. The function returned frees
// it, and waits until nothing of it runs any more.
func (o *Options) within(ctx context.Context, d time.Duration, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	fired, stop := o.Clock.After(d)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-fired:
			cancel(cause)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		stop()
		<-done
	}
}

// backoff is a wait that doubles from min to max.
type backoff struct {
	min, max time.Duration
	rand     func() float64
	wait     time.Duration
}

func (o *Options) backoff() backoff {
	return backoff{min: o.BackoffMin, max: o.BackoffMax, rand: o.Rand}
}

func (b *backoff) reset() { b.wait = 0 }

// next gives the next wait, with jitter so that a fleet of taps does not come
// back to a publisher in step.
func (b *backoff) next() time.Duration {
	b.wait = min(max(2*b.wait, b.min), b.max)
	return b.wait/2 + time.Duration(b.rand()*float64(b.wait/2))
}
