package tap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"

	"github.com/kvscope/kvscope/wire"
)

// Bounds on what those who dial a bound endpoint can make us keep.
const (
	// maxNames bounds the topics that become replicas of one bound endpoint,
	// and maxNamesEach those of one connection.
	maxNames     = 4096
	maxNamesEach = 256
)

// publisher is one connection to a bound endpoint.
type publisher struct {
	remote string
	since  wire.Time
	names  []wire.Replica
}

// listen is one life of a link that is bound.
func (l *link) listen(ctx context.Context) error {
	l.set(Connecting, nil)
	network, address, err := parseAddress(l.ep.Address, true)
	if err != nil {
		return &refusedError{err.Error()}
	}
	if network == "unix" {
		l.unlinkStale(ctx, address)
	}
	ln, err := l.opt.Listen(network, address)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	defer ln.Close()
	l.mu.Lock()
	l.st.Bound = ln.Addr().String()
	l.mu.Unlock()
	l.set(Listening, nil)
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait := l.opt.backoff()
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return fmt.Errorf("cannot listen any more: %w", err)
		default: // such as too many open files, which passes
			l.fail(err)
			if !l.opt.sleep(ctx, wait.next()) {
				return err
			}
			continue
		}
		wait.reset()
		p := &publisher{remote: conn.RemoteAddr().String(), since: l.opt.now()}
		if !l.admit(p) {
			_ = conn.Close()
			continue
		}
		serving.Go(func() {
			defer l.dismiss(p)
			if err := l.serve(ctx, conn, p); ctx.Err() == nil {
				l.lost(p, err)
			}
		})
	}
}

// unlinkStale removes a socket file that nobody listens on, as libzmq does,
// since a program that was killed leaves it behind.
func (l *link) unlinkStale(ctx context.Context, path string) {
	st, err := os.Lstat(path)
	if err != nil || st.Mode()&os.ModeSocket == 0 {
		return
	}
	conn, err := l.opt.Dial(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return
	}
	_ = os.Remove(path)
}

// fail notes an error that ends no more than one connection.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st.LastError, l.st.LastErrorAt = words(err), l.opt.now()
}

func (l *link) admit(p *publisher) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st.Attempts++
	if len(l.publishers) >= l.opt.MaxPublishers {
		l.st.LastError, l.st.LastErrorAt = fmt.Sprintf("%d publishers are connected, which is the limit", len(l.publishers)), p.since
		return false
	}
	l.publishers[p] = struct{}{}
	return true
}

func (l *link) dismiss(p *publisher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.publishers, p)
}

// serve reads one publisher until its connection ends.
func (l *link) serve(ctx context.Context, conn net.Conn, p *publisher) error {
	s, err := open(ctx, l.opt, conn, null.Security(), zmq4.Sub, false)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.subscribe(l.ep.topics()); err != nil {
		return fmt.Errorf("the peer did not take the subscription: %w", err)
	}
	l.mu.Lock()
	l.st.Connects++
	l.mu.Unlock()
	for {
		frames, err := s.read()
		if err != nil {
			return err
		}
		name, err := l.name(p, frames)
		if err != nil {
			return err
		}
		l.take(ctx, name, frames)
	}
}

// name gives the replica of a message by its topic. The ranks of one topic are
// told apart by the stream's tracker.
func (l *link) name(p *publisher, frames [][]byte) (wire.Replica, error) {
	name := l.ep.Name
	if len(frames[0]) > maxTopic {
		return "", &refusedError{fmt.Sprintf("its topic has %d bytes, and the limit is %d", len(frames[0]), maxTopic)}
	}
	if len(frames[0]) > 0 {
		name += "/" + wire.Replica(strings.ToValidUTF8(string(frames[0]), "\uFFFD"))
	}
	return name, l.carry(p, name, maxNamesEach)
}

// carry notes that a connection carries a name, and tells of it where that is
// news. One connection has most names at the most.
func (l *link) carry(p *publisher, name wire.Replica, most int) error {
	if slices.Contains(p.names, name) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.told[name]; len(p.names) >= most || !known && len(l.told) >= maxNames {
		return &refusedError{"it publishes more topics than can be told apart"}
	}
	now := l.opt.now()
	p.names = append(p.names, name)
	l.carriers[name]++
	l.tell(name, now, wire.LinkUp, nil)
	if n := l.carriers[name]; n > 1 {
		l.lane.force(wire.Record{At: now, Replica: name, Kind: wire.Note, Text: fmt.Sprintf(
			"%d connections to %s publish as %s: unless their data-parallel ranks differ, give each publisher a topic of its own", n, l.ep.Address, name,
		)})
	}
	return nil
}

// lost tells that a connection ended, for those names that no other carries.
func (l *link) lost(p *publisher, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opt.now()
	l.st.LastError, l.st.LastErrorAt = fmt.Sprintf("%s: %s", p.remote, words(err)), now
	for _, name := range p.names {
		if l.carriers[name]--; l.carriers[name] == 0 {
			delete(l.carriers, name)
			l.tell(name, now, wire.LinkDown, err)
		}
	}
}

// whoIsThere is called with l.mu held.
func (l *link) whoIsThere() []Publisher {
	var out []Publisher
	for p := range l.publishers {
		out = append(out, Publisher{Remote: p.remote, Since: p.since, Replicas: slices.Clone(p.names)})
	}
	slices.SortFunc(out, func(a, b Publisher) int { return strings.Compare(a.Remote, b.Remote) })
	return out
}
