package tap

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-zeromq/zmq4"
)

const (
	greetingSize = 64
	// maxHandshake bounds all that a peer may send before it is up, in bytes.
	maxHandshake = 64 << 10
)

// maxSaid bounds what is kept of a frame to explain a failure, in bytes.
const maxSaid = 256

// errCut says that a peer hung up before its greeting was whole. libzmq does so,
// before it names its mechanism, when it is sent a whole greeting with another
// one; if that was there before libzmq looked, it has not said a byte.
var errCut = errors.New("the peer hung up before its greeting was whole")

// refusedError is a failure that trying again will not mend: somebody has to
// change a setting.
type refusedError struct{ what string }

func (e *refusedError) Error() string { return e.what }

// guard stands between the library's handshake and the peer. The library
// allocates what a header claims and panics on 2^62; the guard counts along and
// fails before that, and keeps the greeting, which the library does not show.
type guard struct {
	net.Conn
	r        *bufio.Reader
	greeting []byte
	// head collects the header of the frame that is due, body is what is left
	// of the frame that is being read, and left what the peer may still send.
	head []byte
	body uint64
	left int
	// said is the beginning of the newest frame's body.
	said []byte
	// probing holds our mechanism back until the peer has named its own.
	probing bool
	// ended says that the peer hung up; the library says so too where metadata
	// ends early.
	ended bool
}

func (g *guard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p[:min(len(p), g.left)])
	g.ended = g.ended || err != nil && !isTimeout(err)
	if g.left -= n; g.left == 0 {
		return 0, fmt.Errorf("%w: more than %d bytes of handshake", errFrame, maxHandshake)
	}
	b := p[:n]
	take := min(greetingSize-len(g.greeting), len(b))
	g.greeting = append(g.greeting, b[:take]...)
	for b = b[take:]; len(b) > 0; {
		if g.body > 0 {
			take := min(g.body, uint64(len(b)))
			g.body -= take
			g.said = append(g.said, b[:min(take, uint64(maxSaid-len(g.said)))]...)
			b = b[take:]
			continue
		}
		g.head = append(g.head, b[0])
		b = b[1:]
		size, ok := headSize(g.head)
		if !ok {
			continue
		}
		if size > uint64(g.left) {
			return 0, fmt.Errorf("%w: a handshake that claims a frame of %d bytes", errFrame, size)
		}
		g.head, g.body, g.said = g.head[:0], size, g.said[:0]
	}
	return n, err
}

func (g *guard) Write(p []byte) (int, error) {
	n, err := 0, error(nil)
	if g.probing && len(p) == greetingSize {
		const signatureAndVersion = 12
		g.probing = false
		if n, err = g.Conn.Write(p[:signatureAndVersion]); err == nil {
			_, err = g.r.Peek(greetingSize) // left for Read
		}
	}
	if err == nil {
		var more int
		more, err = g.Conn.Write(p[n:])
		n += more
	}
	g.ended = g.ended || err != nil && !isTimeout(err)
	return n, err
}

// headSize gives the size that a frame's header claims, once it is complete.
func headSize(head []byte) (uint64, bool) {
	switch long := head[0]&flagLong != 0; {
	case long && len(head) == 9:
		return binary.BigEndian.Uint64(head[1:]), true
	case !long && len(head) == 2:
		return uint64(head[1]), true
	}
	return 0, false
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// speaksPing reports whether the peer's ZMTP has heartbeats: 3.1 and later.
func (g *guard) speaksPing() bool {
	return len(g.greeting) == greetingSize && (g.greeting[10] > 3 || g.greeting[10] == 3 && g.greeting[11] >= 1)
}

// shake does greeting and handshake as a socket of type typ. The caller has set
// a deadline. The error is a *refusedError where a setting is wrong.
func (g *guard) shake(sec zmq4.Security, typ zmq4.SocketType) (err error) {
	defer func() {
		// The library indexes a peer's metadata and socket type unchecked.
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: the handshake holds what is not ZMTP", errFrame)
		}
	}()
	if _, err = zmq4.Open(g, sec, typ, nil, false, nil); err == nil {
		return nil
	}
	return g.explain(sec.Type(), typ, err)
}

// explain says in a sentence why a handshake failed.
func (g *guard) explain(ours zmq4.SecurityType, typ zmq4.SocketType, err error) error {
	hello := g.greeting
	isZMTP := len(hello) > 0 && hello[0] == 0xff && (len(hello) < 10 || hello[9] == 0x7f)
	var theirs zmq4.SecurityType
	if len(hello) == greetingSize {
		name, _, _ := bytes.Cut(hello[12:32], []byte{0})
		theirs = zmq4.SecurityType(name)
	}
	reason, isError := errorCommand(g.said)
	switch {
	case len(hello) > 0 && !isZMTP:
		return &refusedError{"what listens there does not speak ZMQ: is this the right port?"}
	case len(hello) >= 12 && hello[10] < 3:
		return &refusedError{fmt.Sprintf("the peer speaks ZMTP %d, older than any engine's", hello[10])}
	case theirs == zmq4.CurveSecurity:
		return &refusedError{"the publisher demands CURVE: " + noCurve}
	case theirs != "" && theirs != ours:
		return &refusedError{fmt.Sprintf("the publisher's mechanism is %q, and ours is set to %s", theirs, ours)}
	case isError && ours == zmq4.PlainSecurity:
		return &refusedError{"the publisher rejects this user and password"}
	case isError:
		return &refusedError{fmt.Sprintf("the publisher refuses us: %q", reason)}
	case strings.Contains(err.Error(), "not compatible"):
		return &refusedError{fmt.Sprintf("what listens there is not the counterpart of a %s socket: are event and replay port swapped?", typ)}
	case g.ended && theirs == zmq4.PlainSecurity:
		return &refusedError{"the publisher hung up during the PLAIN handshake: wrong user or password?"}
	case g.ended && len(hello) < greetingSize:
		return errCut
	case g.ended:
		return errors.New("the peer hung up during the handshake")
	case isTimeout(err):
		return errors.New("the peer accepted the connection and said nothing in time: is it hung, or no ZMQ port?")
	case errors.Is(err, errFrame):
		return err
	}
	return fmt.Errorf("%w: the handshake holds what is not ZMTP: %w", errFrame, err)
}

// errorCommand gives the reason in an ERROR command. libzmq 4.3 spells its name
// ^RROR: the length before it, written \x5 in C, takes the E for a digit.
func errorCommand(body []byte) (reason []byte, ok bool) {
	for _, name := range []string{"\x05ERROR", "^RROR"} {
		if rest, ok := bytes.CutPrefix(body, []byte(name)); ok {
			return rest[min(1, len(rest)):], true // after its length
		}
	}
	return nil, false
}
