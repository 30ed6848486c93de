package tap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// This file follows Dynamo's event plane on a NATS server. Of NATS's text
// protocol it needs six words; the official client allocates what a MSG line
// claims, so that one line of a wrong or hostile server ends the program.

const natsScheme = "nats://"

// natsSubjects are those that are subscribed to unless others are given.
var natsSubjects = []string{
	"namespace.*.component.*.endpoint.*." + wire.PlaneEvents,
	"namespace.*.component.*.endpoint.*." + wire.PlaneLoad,
	"namespace.*.component.*.endpoint.*." + wire.PlaneActivity,
}

func (e Endpoint) isNATS() bool { return strings.HasPrefix(e.Address, natsScheme) }

// checkNATS gives what is wrong with an endpoint on NATS, in one sentence.
func (e Endpoint) checkNATS() error {
	_, _, err := natsAddress(e.Address)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", e.Name, err)
	case e.Bind:
		return fmt.Errorf("%s: a NATS server is connected to, never bound", e.Name)
	case e.Replay != "":
		return fmt.Errorf("%s: nothing can be replayed over NATS; leave the replay socket out", e.Name)
	case e.Mechanism != "":
		return fmt.Errorf("%s: NATS has no mechanism %q; give user and password alone", e.Name, e.Mechanism)
	}
	for _, subject := range e.Topics {
		if subject == "" || len(subject) > maxTopic || strings.ContainsFunc(subject, func(r rune) bool { return r <= ' ' }) {
			return fmt.Errorf("%s: %q is no subject of NATS, which has from 1 to %d bytes and no space", e.Name, wire.Printable(subject), maxTopic)
		}
	}
	return nil
}

// natsAddress gives the network and address for package net; the port is NATS's
// own where none is given.
func natsAddress(s string) (network, address string, err error) {
	const port = ":4222"
	rest := strings.TrimSuffix(strings.TrimPrefix(s, natsScheme), "/")
	if rest != "" && !strings.Contains(rest[strings.LastIndexByte(rest, ']')+1:], ":") {
		rest += port
	}
	if strings.Contains(rest, "@") {
		return "", "", errors.New("user and password are given beside a nats:// address, not within it")
	}
	return parseHostPort(s, rest, false)
}

// follow is one life of a link to a NATS server.
func (l *link) follow(ctx context.Context) (err error) {
	l.set(Connecting, nil)
	network, address, err := natsAddress(l.ep.Address)
	if err != nil {
		return &refusedError{err.Error()}
	}
	conn, err := connectTo(ctx, l.opt, network, address)
	if err != nil {
		return err
	}
	l.set(Handshaking, nil)
	s := newNATS(ctx, l.opt, conn)
	defer s.close()
	if err := s.subscribe(l.ep); err != nil {
		return err
	}
	l.set(Up, nil)
	l.hold(s)
	defer l.hold(nil)
	p := &publisher{remote: address, since: l.opt.now()}
	l.mu.Lock()
	l.publishers[p] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.seen = p.names
		l.dismiss(p)
		if ctx.Err() == nil { // otherwise whoever closes says so
			l.lost(p, err)
		}
	}()
	for _, name := range l.seen {
		_ = l.carry(p, name, maxNames) // it was carried before
	}
	senders := map[uint64]wire.Replica{}
	for {
		subject, body, err := s.message()
		if err != nil {
			return err
		}
		frames := [][]byte{subject, body}
		name := l.sender(senders, frames)
		if l.carry(p, name, maxNames) != nil {
			l.fail(errCrowd)
			continue
		}
		l.take(ctx, name, frames)
	}
}

var errCrowd = errors.New("messages of more replicas than can be told apart come over it, and those of the newest are dropped")

// sender gives the replica that a message is about: what it says, or what its
// publisher said before. A message of neither is the endpoint's own. Bookings are
// of many replicas, whoever tells of them.
func (l *link) sender(senders map[uint64]wire.Replica, frames [][]byte) wire.Replica {
	publisher, name, ok := wire.PlaneSender(frames)
	switch {
	case ok && strings.HasSuffix(string(frames[0]), "."+wire.PlaneActivity):
		return wire.LoadName(l.ep.Name)
	case name != "" && len(senders) < maxNames:
		senders[publisher] = name
	case name == "" && ok:
		name = senders[publisher]
	}
	if name == "" {
		name = l.ep.Name
	}
	return name
}

// natsConn is a connection to a NATS server. message belongs to one goroutine.
type natsConn struct {
	opt     *Options
	conn    net.Conn
	in      frameReader
	silence time.Duration
	// early is the line of a message that came before the answer to the greeting.
	early string
	write sync.Mutex
	// pinged is when the PING without an answer left, in Unix nanoseconds, 0 if
	// there is none, and rtt how long the newest answer took.
	pinged, rtt atomic.Int64
	stop        func() bool
	beats       sync.WaitGroup
	quit        chan struct{}
}

// newNATS owns conn, which is closed when ctx ends.
func newNATS(ctx context.Context, opt *Options, conn net.Conn) *natsConn {
	s := &natsConn{opt: opt, conn: conn, quit: make(chan struct{}), silence: opt.HandshakeTimeout}
	s.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	s.in = frameReader{r: bufio.NewReaderSize(s, readAhead), held: hold{of: opt.large}}
	return s
}

func (s *natsConn) close() {
	s.in.held.release()
	s.stop()
	_ = s.conn.Close()
	close(s.quit)
	s.beats.Wait()
}

// Read is under the buffer: any byte is a sign of life.
func (s *natsConn) Read(p []byte) (int, error) {
	_ = s.conn.SetReadDeadline(s.opt.Clock.Now().Add(s.silence))
	return s.conn.Read(p)
}

func (s *natsConn) send(text string) error {
	s.write.Lock()
	defer s.write.Unlock()
	_ = s.conn.SetWriteDeadline(s.opt.Clock.Now().Add(s.opt.PingEvery))
	_, err := io.WriteString(s.conn, text)
	return err
}

// natsInfo is what a server says of itself, as far as it matters.
type natsInfo struct {
	TLSRequired bool `json:"tls_required"`
	AuthNeeded  bool `json:"auth_required"`
}

// subscribe greets the server and asks for the endpoint's subjects. The error is
// a *refusedError where a setting is wrong.
func (s *natsConn) subscribe(ep Endpoint) error {
	line, err := s.line()
	if err != nil {
		return err
	}
	var info natsInfo
	text, ok := strings.CutPrefix(line, "INFO ")
	switch {
	case !ok || json.Unmarshal([]byte(text), &info) != nil:
		return &refusedError{"what listens there does not speak NATS: is this the right port?"}
	case info.TLSRequired:
		return &refusedError{"the NATS server demands TLS, which kvscope does not speak; use a listener of it without TLS"}
	case info.AuthNeeded && ep.User == "":
		return &refusedError{"the NATS server demands a user and a password"}
	}
	hello, err := json.Marshal(struct {
		Verbose  bool   `json:"verbose"`
		Pedantic bool   `json:"pedantic"`
		Headers  bool   `json:"headers"`
		Echo     bool   `json:"echo"`
		Name     string `json:"name"`
		Lang     string `json:"lang"`
		User     string `json:"user,omitempty"`
		Password string `json:"pass,omitempty"`
	}{Name: "kvscope", Lang: "go", User: ep.User, Password: ep.Password})
	if err != nil {
		return err
	}
	subjects := ep.Topics
	if len(subjects) == 0 {
		subjects = natsSubjects
	}
	var b strings.Builder
	fmt.Fprintf(&b, "CONNECT %s\r\n", hello)
	for i, subject := range subjects {
		fmt.Fprintf(&b, "SUB %s %d\r\n", subject, i+1)
	}
	// The answer to PING comes behind what is said to all of the above.
	if err := s.send(b.String() + "PING\r\n"); err != nil {
		return err
	}
	for {
		switch line, err = s.line(); {
		case err != nil:
			return err
		case line == "PONG" || isMessage(line):
			if isMessage(line) { // it overtook the answer
				s.early = line
			}
			s.silence = 3 * s.opt.PingEvery
			s.beats.Go(s.beat)
			return nil
		default:
			if err := s.control(line); err != nil {
				return err
			}
		}
	}
}

// message gives the next message. What else the server says is seen to.
func (s *natsConn) message() (subject, body []byte, err error) {
	s.in.held.release()
	for {
		line := s.early
		if s.early = ""; line == "" {
			line, err = s.line()
		}
		if err == nil && isMessage(line) {
			return s.body(line)
		}
		if err == nil {
			err = s.control(line)
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

func isMessage(line string) bool { return strings.HasPrefix(line, "MSG ") }

// line reads one line of the protocol, without its end.
func (s *natsConn) line() (string, error) {
	line, err := s.in.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", fmt.Errorf("%w: a line of more than %d bytes", errFrame, readAhead)
	case isTimeout(err):
		return "", fmt.Errorf("no sign of life for %s", s.silence)
	case errors.Is(err, io.EOF):
		return "", errors.New("the NATS server closed the connection")
	case err != nil:
		return "", err
	}
	return string(bytes.TrimRight(line, "\r\n")), nil
}

// body reads the rest of a message: MSG subject sid [reply] bytes.
func (s *natsConn) body(line string) (subject, body []byte, err error) {
	words := strings.Fields(line)
	if len(words) != 4 && len(words) != 5 || len(words[1]) > maxTopic {
		return nil, nil, fmt.Errorf("%w: a MSG line of %d words", errFrame, len(words))
	}
	size, err := strconv.ParseUint(words[len(words)-1], 10, 63)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w: a MSG line without a size", errFrame)
	case size > uint64(s.opt.MaxMessage):
		return nil, nil, fmt.Errorf("%w: a message of %d bytes, and the limit is %d", errFrame, size, s.opt.MaxMessage)
	}
	if body, err = s.in.body(int(size)); err != nil {
		return nil, nil, err
	}
	end, err := s.line()
	if err == nil && end != "" {
		err = fmt.Errorf("%w: a message that is longer than its MSG line says", errFrame)
	}
	if err != nil {
		return nil, nil, err
	}
	return []byte(words[1]), body, nil
}

// natsRefusals are errors that only another setting mends, in lower case as
// they begin.
var natsRefusals = map[string]string{
	"authorization violation":                "the NATS server rejects this user and password",
	"authentication timeout":                 "the NATS server rejects this user and password",
	"permissions violation for subscription": "the NATS server does not let this user subscribe to the subjects",
	"invalid subject":                        "the NATS server takes a subject for invalid",
}

// control sees to what is no message.
func (s *natsConn) control(line string) error {
	word, text, _ := strings.Cut(line, " ")
	switch word {
	case "PING":
		return s.send("PONG\r\n")
	case "PONG":
		if pinged := s.pinged.Swap(0); pinged > 0 {
			s.rtt.Store(s.opt.Clock.Now().UnixNano() - pinged)
		}
		return nil
	case "INFO", "+OK":
		return nil
	case "-ERR":
		text = strings.Trim(text, "' ")
		for begins, what := range natsRefusals {
			if strings.HasPrefix(strings.ToLower(text), begins) {
				return &refusedError{what}
			}
		}
		return fmt.Errorf("the NATS server says %q", wire.Printable(text))
	}
	return fmt.Errorf("%w: %q in the place of a word of NATS", errFrame, wire.Printable(word))
}

func (s *natsConn) lastRTT() time.Duration { return time.Duration(s.rtt.Load()) }

// beat pings until the connection ends.
func (s *natsConn) beat() {
	for {
		fired, stop := s.opt.Clock.After(s.opt.PingEvery)
		select {
		case <-fired:
		case <-s.quit:
			stop()
			return
		}
		s.pinged.CompareAndSwap(0, s.opt.Clock.Now().UnixNano())
		if s.send("PING\r\n") != nil {
			_ = s.conn.Close() // the reader finds out
			return
		}
	}
}
