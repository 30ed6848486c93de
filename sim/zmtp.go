package sim

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// The bits of a ZMTP frame's first byte.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

const (
	greetingSize = 64
	// maxIncoming bounds a frame that a client sends, in bytes, and
	// maxIncomingFrames the frames of its messages. Subscriptions and requests
	// are far smaller.
	maxIncoming       = 4 << 10
	maxIncomingFrames = 16
	// handshakeTimeout is how long a client has to say who it is.
	handshakeTimeout = 3 * time.Second
)

var errZMTP = errors.New("the client does not speak ZMTP")

// greeting is that of ZMTP 3.1 with the mechanism NULL.
func greeting() []byte {
	b := make([]byte, greetingSize)
	b[0], b[9], b[10], b[11] = 0xff, 0x7f, 3, 1
	copy(b[12:], "NULL")
	return b
}

// client is a connection to a socket that was bound here.
type client struct {
	conn net.Conn
	r    *bufio.Reader
}

// accept does the handshake as a socket of type ours, for clients of the types
// named. The caller closes the connection.
func accept(conn net.Conn, ours string, theirs ...string) (*client, error) {
	// Deadlines of the kernel are in its own time, whatever a Fleet's clock says.
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	c := &client{conn: conn, r: bufio.NewReader(conn)}
	ready := appendCommand(greeting(), "READY", property("Socket-Type", ours))
	// libzmq takes greeting and READY in one piece, and so does everyone who
	// reads a stream.
	if _, err := conn.Write(ready); err != nil {
		return nil, err
	}
	hello := make([]byte, greetingSize)
	if _, err := io.ReadFull(c.r, hello); err != nil {
		return nil, err
	}
	if hello[0] != 0xff || hello[9] != 0x7f || hello[10] < 3 || !bytes.Equal(bytes.TrimRight(hello[12:32], "\x00"), []byte("NULL")) {
		return nil, fmt.Errorf("%w 3 with the mechanism NULL", errZMTP)
	}
	flags, body, err := c.frame()
	if err != nil {
		return nil, err
	}
	name, data, err := command(body)
	if err != nil || flags&flagCommand == 0 || name != "READY" {
		return nil, fmt.Errorf("%w: no READY after the greeting", errZMTP)
	}
	typ, err := socketType(data)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(theirs, typ) {
		return nil, fmt.Errorf("%w with us: a socket of type %q at one of type %s", errZMTP, typ, ours)
	}
	return c, conn.SetDeadline(time.Time{})
}

// frame reads a frame.
func (c *client) frame() (flags byte, body []byte, err error) {
	if flags, err = c.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	head := make([]byte, 8)
	size := head[7:]
	if flags&flagLong != 0 {
		size = head
	}
	if _, err := io.ReadFull(c.r, size); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint64(head)
	if n > maxIncoming {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, and the limit is %d", errZMTP, n, maxIncoming)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(c.r, body)
	return flags, body, err
}

// message reads the next message; commands in between go to handle.
func (c *client) message(handle func(name string, data []byte)) ([][]byte, error) {
	var frames [][]byte
	for {
		flags, body, err := c.frame()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			name, data, err := command(body)
			if err != nil {
				return nil, err
			}
			handle(name, data)
			continue
		}
		if len(frames) == maxIncomingFrames {
			return nil, fmt.Errorf("%w: a message of more than %d frames", errZMTP, maxIncomingFrames)
		}
		frames = append(frames, body)
		if flags&flagMore == 0 {
			return frames, nil
		}
	}
}

// command splits a command into its name and data.
func command(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, fmt.Errorf("%w: a command that ends within its name", errZMTP)
	}
	return string(body[1 : 1+body[0]]), body[1+body[0]:], nil
}

// pong answers a PING: what stands behind its time to live comes back.
func pong(ping []byte) []byte {
	return appendCommand(nil, "PONG", ping[min(2, len(ping)):])
}

// socketType finds the property of a READY.
func socketType(data []byte) (string, error) {
	for len(data) > 0 {
		n := 1 + int(data[0])
		if len(data) < n+4 {
			break
		}
		name := string(data[1:n])
		size := binary.BigEndian.Uint32(data[n:])
		data = data[n+4:]
		if uint64(size) > uint64(len(data)) {
			break
		}
		if name == "Socket-Type" {
			return string(data[:size]), nil
		}
		data = data[size:]
	}
	return "", fmt.Errorf("%w: no socket type in READY", errZMTP)
}

func property(name, value string) []byte {
	b := append([]byte{byte(len(name))}, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// appendHead appends the head of a frame of n bytes.
func appendHead(dst []byte, flags byte, n int) []byte {
	if n > 255 {
		return binary.BigEndian.AppendUint64(append(dst, flags|flagLong), uint64(n))
	}
	return append(dst, flags, byte(n))
}

func appendFrame[T string | []byte](dst []byte, flags byte, body T) []byte {
	return append(appendHead(dst, flags, len(body)), body...)
}

func appendCommand(dst []byte, name string, data []byte) []byte {
	dst = appendHead(dst, flagCommand, 1+len(name)+len(data))
	dst = append(append(dst, byte(len(name))), name...)
	return append(dst, data...)
}

// appendSeqAndPayload appends the frames that all messages of a publisher end with:
// sequence and payload.
func appendSeqAndPayload(dst []byte, seq uint64, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint64(appendHead(dst, flagMore, 8), seq)
	return appendFrame(dst, 0, payload)
}
