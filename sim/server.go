package sim

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
)

// Listen opens a listener; net.Listen is one.
type Listen func(network, address string) (net.Listener, error)

// listen is net.Listen, but any port is below those that systems give out by
// themselves: an engine that is down for a while finds its own free again.
func listen(network, address string) (net.Listener, error) {
	if host, ok := strings.CutSuffix(address, ":0"); ok {
		for range 20 {
			if l, err := net.Listen(network, fmt.Sprintf("%s:%d", host, 20_000+rand.IntN(10_000))); err == nil {
				return l, nil
			}
		}
	}
	return net.Listen(network, address)
}

// maxClients bounds the connections to one socket.
const maxClients = 1024

// server accepts connections until it is closed, and then waits for whatever
// serves them.
type server struct {
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// serve listens on tcp://host:port, where port 0 is any, and has each
// connection served by a goroutine. It owns the connections.
func serve(open Listen, address string, each func(net.Conn)) (*server, error) {
	host, ok := strings.CutPrefix(address, "tcp://")
	if !ok {
		return nil, fmt.Errorf("%q: want tcp://host:port", address)
	}
	if open == nil {
		open = listen
	}
	l, err := open("tcp", host)
	if err != nil {
		return nil, fmt.Errorf("binding %s: %w", address, err)
	}
	s := &server{listener: l, conns: map[net.Conn]struct{}{}}
	s.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed; a loopback listener fails in no other way
			}
			if !s.add(conn) {
				_ = conn.Close()
				continue
			}
			s.done.Go(func() {
				defer s.remove(conn)
				each(conn)
			})
		}
	})
	return s, nil
}

func (s *server) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxClients {
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

func (s *server) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	_ = conn.Close()
}

// address is where it listens.
func (s *server) address() string { return "tcp://" + s.listener.Addr().String() }

func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	_ = s.listener.Close()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}
