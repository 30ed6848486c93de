package sim

import (
	"cmp"
	"net"
	"strings"
	"sync"
)

// The defaults of vLLM's publisher, in batches.
const (
	defaultHWM    = 100_000
	defaultBuffer = 10_000
)

// anyPort is where sockets listen that need no address of their own.
const anyPort = "tcp://127.0.0.1:0"

// PublisherOptions of a Publisher. Zero values mean the defaults given.
type PublisherOptions struct {
	// Address is tcp://host:port, port 0 for any: any port of the loopback.
	Address string
	// HWM is how many messages wait for a subscriber before further ones are
	// dropped: 100,000.
	HWM int
	// Listen is net.Listen, with ports of its own choice where any will do.
	Listen Listen
}

// Publisher is a PUB socket with the messages of an engine. Close it after use.
// It is safe for concurrent use.
//
// A message is copied once into the buffer of each subscriber that wants it, and
// goes out with all others that wait in one write.
type Publisher struct {
	server *server
	hwm    int

	mu    sync.Mutex
	subs  map[*subscriber]struct{}
	stats PublisherStats
}

// PublisherStats count the messages of a Publisher since it was opened.
type PublisherStats struct {
	// Subscriptions are those that stand now, of all subscribers.
	Subscriptions int
	// Published counts messages; Sent and Dropped count them once for each
	// subscriber.
	Published, Sent, Dropped uint64
}

// subscriber is one connection. Its fields belong to the publisher's mutex.
type subscriber struct {
	// topics are prefixes, with how often each was asked for.
	topics map[string]int
	// waiting are the bytes of messages to be sent, and queued how many messages
	// those are and the ones being written.
	waiting []byte
	queued  int
	// wake has room for one, so that waking never waits.
	wake chan struct{}
}

// OpenPublisher binds a Publisher.
func OpenPublisher(opt PublisherOptions) (*Publisher, error) {
	p := &Publisher{hwm: cmp.Or(opt.HWM, defaultHWM), subs: map[*subscriber]struct{}{}}
	var err error
	p.server, err = serve(opt.Listen, cmp.Or(opt.Address, anyPort), p.serve)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Address is where the socket is bound, as tcp://host:port.
func (p *Publisher) Address() string { return p.server.address() }

// Publish sends a batch to all who subscribed to its topic. It never waits: a
// subscriber with a full queue loses the message.
func (p *Publisher) Publish(topic string, seq uint64, payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Published++
	for s := range p.subs {
		if !s.wants(topic) {
			continue
		}
		if s.queued >= p.hwm {
			p.stats.Dropped++
			continue
		}
		s.waiting = appendFrame(s.waiting, flagMore, topic)
		s.waiting = appendSeqAndPayload(s.waiting, seq, payload)
		s.added()
	}
}

// added is called for what was put into waiting.
func (s *subscriber) added() {
	s.queued++
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) wants(topic string) bool {
	for prefix := range s.topics {
		if strings.HasPrefix(topic, prefix) {
			return true
		}
	}
	return false
}

// Stats gives the counts so far.
func (p *Publisher) Stats() PublisherStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.stats
	for s := range p.subs {
		out.Subscriptions += len(s.topics)
	}
	return out
}

// Close ends all connections at once, as a process that is killed, and waits
// until nothing runs any more. It may be called again, and its error is nil.
func (p *Publisher) Close() error {
	p.server.close()
	return nil
}

// serve reads from one subscriber until it is gone.
func (p *Publisher) serve(conn net.Conn) {
	c, err := accept(conn, "PUB", "SUB", "XSUB")
	if err != nil {
		return
	}
	s := &subscriber{topics: map[string]int{}, wake: make(chan struct{}, 1)}
	p.mu.Lock()
	p.subs[s] = struct{}{}
	p.mu.Unlock()
	gone := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { p.write(s, conn, gone) })
	for {
		frames, err := c.message(func(name string, data []byte) { p.command(s, name, data) })
		if err != nil {
			break
		}
		// In ZMTP 3.0 a subscription is a message.
		if b := frames[0]; len(frames) == 1 && len(b) > 0 && b[0] <= 1 {
			p.subscribe(s, string(b[1:]), b[0] == 1)
		}
	}
	p.mu.Lock()
	delete(p.subs, s)
	p.mu.Unlock()
	close(gone)
	_ = conn.Close() // the writer may be waiting for it
	writing.Wait()
}

// command takes the commands of ZMTP 3.1; others mean nothing here.
func (p *Publisher) command(s *subscriber, name string, data []byte) {
	switch name {
	case "SUBSCRIBE", "CANCEL":
		p.subscribe(s, string(data), name == "SUBSCRIBE")
	case "PING":
		p.mu.Lock()
		defer p.mu.Unlock()
		if s.queued < p.hwm {
			s.waiting = append(s.waiting, pong(data)...)
			s.added()
		}
	}
}

// maxTopics bounds the different topics of one subscriber.
const maxTopics = 1024

func (p *Publisher) subscribe(s *subscriber, topic string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, known := s.topics[topic]
	switch {
	case on && (known || len(s.topics) < maxTopics):
		s.topics[topic] = n + 1
	case !on && n > 1:
		s.topics[topic] = n - 1
	case !on:
		delete(s.topics, topic)
	}
}

// maxSpare bounds the buffer that is kept for the next messages, in bytes.
const maxSpare = 1 << 20

// write sends what waits for a subscriber, all that there is at a time.
func (p *Publisher) write(s *subscriber, conn net.Conn, gone <-chan struct{}) {
	var spare []byte
	for {
		select {
		case <-s.wake:
		case <-gone:
			return
		}
		p.mu.Lock()
		out, n := s.waiting, s.queued
		if n > 0 {
			s.waiting = spare[:0]
		}
		p.mu.Unlock()
		if n == 0 {
			continue // woken for what went out with the last write
		}
		if _, err := conn.Write(out); err != nil {
			_ = conn.Close() // the reader finds out
			return
		}
		if spare = out; cap(spare) > maxSpare {
			spare = nil
		}
		p.mu.Lock()
		s.queued -= n
		p.stats.Sent += uint64(n)
		p.mu.Unlock()
	}
}
