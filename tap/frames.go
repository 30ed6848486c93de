package tap

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// The flags of a ZMTP frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// errFrame says that a peer sends what is not ZMTP, or more than we take.
var errFrame = errors.New("malformed frame")

const (
	// readAhead is the size of a link's buffer, in bytes: headers and small
	// frames then cost no system call of their own.
	readAhead = 256 << 10
	// maxCommand bounds a command, in bytes. PING has at most 23.
	maxCommand = 4 << 10
)

// frameReader reads ZMTP frames. It trusts no size: a frame's memory grows as
// its bytes arrive. Errors of the peer's making wrap errFrame, and all are
// final.
type frameReader struct {
	r *bufio.Reader
	// maxMessage bounds a message and each frame, in bytes; maxFrames bounds
	// the frames of a message.
	maxMessage, maxFrames int
	// command is given the commands, which may stand between any two frames
	// (libzmq sends its heartbeats so). The body is valid until it returns.
	command func(body []byte) error
	// held is what the newest message holds.
	held hold
}

// message reads the next message. The frames are the caller's to keep; by the
// next call it has passed them on.
func (f *frameReader) message() ([][]byte, error) {
	f.held.release()
	frames := make([][]byte, 0, 4)
	for total := 0; ; {
		flags, size, err := f.header()
		if err != nil {
			if len(frames) > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if flags&flagCommand != 0 {
			if err := f.readCommand(flags, size); err != nil {
				return nil, err
			}
			continue
		}
		if size > uint64(f.maxMessage-total) {
			return nil, fmt.Errorf("%w: a message of %d bytes or more, and the limit is %d", errFrame, size+uint64(total), f.maxMessage)
		}
		if len(frames) == f.maxFrames {
			return nil, fmt.Errorf("%w: a message of more than %d frames", errFrame, f.maxFrames)
		}
		body, err := f.body(int(size))
		if err != nil {
			return nil, err
		}
		total += len(body)
		frames = append(frames, body)
		if flags&flagMore == 0 {
			return frames, nil
		}
	}
}

func (f *frameReader) header() (flags byte, size uint64, err error) {
	if flags, err = f.r.ReadByte(); err != nil {
		return 0, 0, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return 0, 0, fmt.Errorf("%w: flags %#02x", errFrame, flags)
	}
	var b [8]byte
	n := b[7:]
	if flags&flagLong != 0 {
		n = b[:]
	}
	if err := readFull(f.r, n); err != nil {
		return 0, 0, err
	}
	return flags, binary.BigEndian.Uint64(b[:]), nil
}

func (f *frameReader) readCommand(flags byte, size uint64) error {
	if size > maxCommand || flags&flagMore != 0 {
		return fmt.Errorf("%w: a command of %d bytes with flags %#02x", errFrame, size, flags)
	}
	body := make([]byte, size) // no part of a message
	if err := readFull(f.r, body); err != nil {
		return err
	}
	return f.command(body)
}

// body reads n bytes.
func (f *frameReader) body(n int) ([]byte, error) {
	if n <= readAhead {
		if err := f.held.grow(n); err != nil {
			return nil, err
		}
		b := make([]byte, n)
		return b, readFull(f.r, b)
	}
	var b []byte
	for len(b) < n {
		more := min(n-len(b), max(readAhead, len(b)))
		if err := f.held.grow(more); err != nil {
			return nil, err
		}
		b = slices.Grow(b, more)
		at := len(b)
		b = b[:at+more]
		if err := readFull(f.r, b[at:]); err != nil {
			return nil, err
		}
	}
	return slices.Clip(b), nil
}

// readFull fills b; an end before that is unexpected even where nothing came.
func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends one frame.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	} else {
		dst = append(dst, flags, byte(len(body)))
	}
	return append(dst, body...)
}

// appendMessage appends the frames of one message.
func appendMessage(dst []byte, frames ...[]byte) []byte {
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		dst = appendFrame(dst, flags, f)
	}
	return dst
}

// appendCommand appends a command: its name, then data.
func appendCommand(dst []byte, name string, data []byte) []byte {
	body := append([]byte{byte(len(name))}, name...)
	return appendFrame(dst, flagCommand, append(body, data...))
}
