package tap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/kvscope/kvscope/wire"
)

// link is the way to one endpoint. run belongs to one goroutine; stats may be
// called from any.
type link struct {
	opt    *Options
	ep     Endpoint
	lane   *lane
	replay *replayer

	mu sync.Mutex
	st Stats
	// told is what the last Link record of each name said.
	told map[wire.Replica]told
	// session is the connection that is up, in connect mode.
	session interface{ lastRTT() time.Duration }
	// seen are the replicas that came over NATS so far.
	seen []wire.Replica
	// publishers are the connections of a bound endpoint, and carriers counts
	// those that carry a name.
	publishers map[*publisher]struct{}
	carriers   map[wire.Replica]int
	// joined says that a message was seen.
	joined bool
}

type told struct {
	state wire.LinkState
	err   string
}

func newLink(opt *Options, ep Endpoint, q *queue, replay *replayer) *link {
	return &link{
		opt: opt, ep: ep, lane: &lane{q: q}, replay: replay,
		st:   Stats{Name: ep.Name, Address: ep.Address, Bind: ep.Bind, Since: opt.now()},
		told: map[wire.Replica]told{}, publishers: map[*publisher]struct{}{}, carriers: map[wire.Replica]int{},
	}
}

// run keeps the link alive until ctx ends.
func (l *link) run(ctx context.Context) {
	once := l.connect
	switch {
	case l.ep.Bind:
		once = l.listen
	case l.ep.isNATS():
		once = l.follow
	}
	wait := l.opt.backoff()
	for {
		began := l.opt.Clock.Now()
		err := once(ctx)
		if ctx.Err() != nil {
			l.set(Closed, nil)
			return
		}
		state := BackingOff
		if refused := (*refusedError)(nil); errors.As(err, &refused) {
			state = Refused
		}
		l.set(state, err)
		// A peer that lets us in and hangs up at once is no reason to hurry.
		if l.opt.Clock.Now().Sub(began) > l.opt.BackoffMax {
			wait.reset()
		}
		if !l.opt.sleep(ctx, wait.next()) {
			l.set(Closed, nil)
			return
		}
	}
}

// set notes the state, and tells of it where that is news.
func (l *link) set(state State, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opt.now()
	l.st.State, l.st.Since = state, now
	switch state {
	case Connecting:
		l.st.Attempts++
	case Up:
		l.st.Connects++
	}
	if err != nil {
		l.st.LastError, l.st.LastErrorAt = words(err), now
	}
	_, before := l.told[l.ep.Name]
	switch {
	case state == Closed: // whoever closes knows, and says so where it matters
		return
	case (l.ep.Bind || l.ep.isNATS()) && err == nil && !before: // an address is no replica until it has trouble
		return
	case l.ep.isNATS() && !before && len(l.seen) > 0: // the trouble is told of its replicas
		return
	}
	l.tell(l.ep.Name, now, states[state].wire, err)
}

// tell emits a Link record if it says something new: a publisher that is away
// for a night is told of once, and not at every attempt. It is called with l.mu
// held.
func (l *link) tell(name wire.Replica, at wire.Time, state wire.LinkState, err error) {
	was, before := l.told[name]
	is := told{state: state}
	if err != nil {
		is.err = words(err)
	}
	if state == wire.LinkUnknown || is == was || state == wire.LinkConnecting && before {
		return
	}
	l.told[name] = is
	l.lane.force(wire.Record{At: at, Replica: name, Kind: wire.Link, Link: state, Text: state.String(), Err: is.err})
}

// gone tells that the link was taken away.
func (l *link) gone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opt.now()
	for name := range l.told {
		l.tell(name, now, wire.LinkGone, errors.New("removed"))
	}
}

var errDial = errors.New("no answer to the attempt to connect")

// dial opens a connection and does the handshake. whenConnected may be nil.
func dial(ctx context.Context, opt *Options, ep Endpoint, address string, typ zmq4.SocketType, whenConnected func()) (*session, error) {
	conn, err := connect(ctx, opt, address)
	if err != nil {
		return nil, err
	}
	if whenConnected != nil {
		whenConnected()
	}
	s, err := open(ctx, opt, conn, ep.security(), typ, false)
	if !errors.Is(err, errCut) {
		return s, err
	}
	// Once more, to find out which mechanism it demands.
	if conn, err := connect(ctx, opt, address); err == nil {
		return open(ctx, opt, conn, ep.security(), typ, true)
	}
	return nil, err
}

func connect(ctx context.Context, opt *Options, address string) (net.Conn, error) {
	network, address, err := parseAddress(address, false)
	if err != nil {
		return nil, &refusedError{err.Error()}
	}
	return connectTo(ctx, opt, network, address)
}

func connectTo(ctx context.Context, opt *Options, network, address string) (net.Conn, error) {
	limited, free := opt.within(ctx, opt.DialTimeout, errDial)
	defer free()
	conn, err := opt.Dial(limited, network, address)
	if cause := context.Cause(limited); err != nil && cause != nil {
		return nil, fmt.Errorf("%w to %s in %s", cause, address, opt.DialTimeout)
	}
	return conn, err
}

// connect is one life of a link that connects.
func (l *link) connect(ctx context.Context) error {
	l.set(Connecting, nil)
	s, err := dial(ctx, l.opt, l.ep, l.ep.Address, zmq4.Sub, func() { l.set(Handshaking, nil) })
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.subscribe(l.ep.topics()); err != nil {
		return fmt.Errorf("the peer did not take the subscription: %w", err)
	}
	l.set(Up, nil)
	l.hold(s)
	defer l.hold(nil)
	l.replay.up()
	for {
		frames, err := s.read()
		if err != nil {
			return err
		}
		l.take(ctx, l.ep.Name, frames)
		if !l.joined {
			l.joined = true
			l.replay.joined(frames)
		}
	}
}

// hold is called when the connection is up, and with nil when it is no more.
func (l *link) hold(s interface{ lastRTT() time.Duration }) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = s
	l.replay.session.Add(1)
}

// take counts a message and passes it on.
func (l *link) take(ctx context.Context, name wire.Replica, frames [][]byte) {
	now := l.opt.now()
	n := 0
	for _, f := range frames {
		n += len(f)
	}
	l.mu.Lock()
	l.st.Messages++
	l.st.Bytes += uint64(n)
	l.st.LastMessage = now
	l.mu.Unlock()
	l.lane.push(ctx, wire.Record{At: now, Replica: name, Kind: wire.Frames, Frames: frames})
}

func (l *link) stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.st
	if l.session != nil {
		st.RTT = l.session.lastRTT()
	}
	st.Queued, st.QueuedBytes, st.Dropped = l.lane.depth()
	st.Publishers = l.whoIsThere()
	st.Replay = l.replay.stats()
	return st
}
