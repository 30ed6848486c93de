package tap

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zeromq/zmq4"
)

// maxPingContext is what ZMTP allows a PING to ask back, in bytes.
const maxPingContext = 16

// session is one connection that is up. read belongs to one goroutine, send and
// what uses it to any.
type session struct {
	opt  *Options
	conn net.Conn
	in   frameReader
	// silence is how long the peer may say nothing, 0 for any time: a peer that
	// knows no PING has no way to show that it is there.
	silence time.Duration
	write   sync.Mutex
	// pinged is when the newest PING left, in Unix nanoseconds, and rtt how
	// long the newest answer took.
	pings       atomic.Uint64
	pinged, rtt atomic.Int64
	// stop ends the watch on the context, and beats the goroutine that pings.
	stop  func() bool
	beats sync.WaitGroup
	quit  chan struct{}
}

// open does the handshake on conn, which it owns from then on, also when it
// fails; probing as in guard. When ctx ends, the connection is closed and whatever waits on it
// returns.
func open(ctx context.Context, opt *Options, conn net.Conn, sec zmq4.Security, typ zmq4.SocketType, probing bool) (*session, error) {
	s := &session{opt: opt, conn: conn, quit: make(chan struct{})}
	s.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	s.in = frameReader{
		r: bufio.NewReaderSize(s, readAhead), maxMessage: opt.MaxMessage, maxFrames: opt.MaxFrames, command: s.command,
		held: hold{of: opt.large},
	}
	_ = conn.SetDeadline(opt.Clock.Now().Add(opt.HandshakeTimeout))
	g := &guard{Conn: conn, r: s.in.r, left: maxHandshake, probing: probing}
	if err := g.shake(sec, typ); err != nil {
		s.close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	// A replay's reader has deadlines of its own, which a PONG must not extend.
	if typ == zmq4.Sub && g.speaksPing() {
		s.silence = 3 * opt.PingEvery
		s.beats.Go(s.beat)
	}
	return s, nil
}

// close ends the connection and waits for its goroutines. Whoever reads has
// ended.
func (s *session) close() {
	s.in.held.release()
	s.stop()
	_ = s.conn.Close()
	close(s.quit)
	s.beats.Wait()
}

// Read is under the frame reader's buffer: any byte is a sign of life.
func (s *session) Read(p []byte) (int, error) {
	if s.silence > 0 {
		_ = s.conn.SetReadDeadline(s.opt.Clock.Now().Add(s.silence))
	}
	return s.conn.Read(p)
}

// read gives the next message. Heartbeats are answered on the way.
func (s *session) read() ([][]byte, error) {
	frames, err := s.in.message()
	if err == nil {
		return frames, nil
	}
	switch {
	case isTimeout(err):
		return nil, fmt.Errorf("no sign of life for %s, not even an answer to PING", s.silence)
	case errors.Is(err, io.EOF):
		return nil, errors.New("the peer closed the connection")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("the connection broke off within a message")
	}
	return nil, err
}

// send writes what was encoded, whole. A peer that takes nothing fails it.
func (s *session) send(b []byte) error {
	s.write.Lock()
	defer s.write.Unlock()
	_ = s.conn.SetWriteDeadline(s.opt.Clock.Now().Add(s.opt.PingEvery))
	_, err := s.conn.Write(b)
	return err
}

// lastRTT is how long the peer took to answer the newest PING, 0 if unknown.
func (s *session) lastRTT() time.Duration { return time.Duration(s.rtt.Load()) }

// subscribe asks for topics by prefix, in the form that ZMTP 3.0 peers use: a
// message of 1 and the topic.
func (s *session) subscribe(topics []string) error {
	var b []byte
	for _, topic := range topics {
		b = appendMessage(b, append([]byte{1}, topic...))
	}
	return s.send(b)
}

// command takes a command of the peer. Those not known are passed over.
func (s *session) command(body []byte) error {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return fmt.Errorf("%w: a command that ends within its name", errFrame)
	}
	name, data := string(body[1:1+body[0]]), body[1+body[0]:]
	switch name {
	case "PING":
		if len(data) < 2 || len(data) > 2+maxPingContext {
			return fmt.Errorf("%w: a PING of %d bytes", errFrame, len(data))
		}
		return s.send(appendCommand(nil, "PONG", data[2:])) // after its time to live
	case "PONG":
		if len(data) == 8 && binary.BigEndian.Uint64(data) == s.pings.Load() {
			s.rtt.Store(s.opt.Clock.Now().UnixNano() - s.pinged.Load())
		}
	case "ERROR":
		return fmt.Errorf("the peer says ERROR %q", data[min(1, len(data)):min(256, len(data))])
	}
	return nil
}

// beat pings until the session ends. The time to live is 0, which asks nothing
// of the peer.
func (s *session) beat() {
	for {
		fired, stop := s.opt.Clock.After(s.opt.PingEvery)
		select {
		case <-fired:
		case <-s.quit:
			stop()
			return
		}
		s.pinged.Store(s.opt.Clock.Now().UnixNano())
		data := binary.BigEndian.AppendUint64([]byte{0, 0}, s.pings.Add(1))
		if s.send(appendCommand(nil, "PING", data)) != nil {
			_ = s.conn.Close() // the reader finds out
			return
		}
	}
}
