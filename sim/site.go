package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// site is the outside of one engine: its sockets and its HTTP server. It keeps
// its addresses over restarts of the process. Its methods belong to one
// goroutine; what it serves is safe with that.
type site struct {
	listen Listen
	hwm    int
	replay ReplayerOptions
	// The addresses are of any port before the site is first opened.
	events, replays, web string
	page                 atomic.Pointer[page]

	publisher *Publisher
	replayer  *Replayer
	http      *webServer
}

// open binds all three sockets, or none.
func (s *site) open() error {
	var err error
	if s.publisher, err = OpenPublisher(PublisherOptions{Address: s.events, HWM: s.hwm, Listen: s.listen}); err != nil {
		return err
	}
	opt := s.replay
	opt.Address, opt.Listen = s.replays, s.listen
	if s.replayer, err = OpenReplayer(opt); err != nil {
		s.close()
		return err
	}
	if s.http, err = openWeb(s.listen, s.web, handler(s.page.Load)); err != nil {
		s.close()
		return err
	}
	s.events, s.replays, s.web = s.publisher.Address(), s.replayer.Address(), s.http.address
	return nil
}

// close ends what is open, as a process that is killed.
func (s *site) close() {
	if s.publisher != nil {
		_ = s.publisher.Close()
	}
	if s.replayer != nil {
		_ = s.replayer.Close()
	}
	if s.http != nil {
		s.http.close()
	}
	s.publisher, s.replayer, s.http = nil, nil, nil
	s.page.Store(nil)
}

// batch carries out outlet.batch.
func (s *site) batch(topic string, seq uint64, payload []byte, live, kept bool) {
	if s.publisher == nil {
		return
	}
	if live {
		s.publisher.Publish(topic, seq, payload)
	}
	if kept {
		s.replayer.Keep(topic, seq, payload)
	}
}

// webServer is an HTTP server that waits for its connections.
type webServer struct {
	address string
	server  *http.Server
	running sync.WaitGroup
}

func openWeb(open Listen, address string, h http.Handler) (*webServer, error) {
	if open == nil {
		open = listen
	}
	l, err := open("tcp", strings.TrimPrefix(cmp.Or(address, anyPort), "tcp://"))
	if err != nil {
		return nil, fmt.Errorf("binding the pages: %w", err)
	}
	w := &webServer{address: "tcp://" + l.Addr().String()}
	w.server = &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				w.running.Add(1)
			case http.StateClosed, http.StateHijacked:
				w.running.Done()
			}
		},
	}
	w.running.Go(func() {
		if err := w.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			_ = l.Close() // the loopback fails in no other way
		}
	})
	return w, nil
}

func (w *webServer) close() {
	_ = w.server.Close()
	w.running.Wait()
}
