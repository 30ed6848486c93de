package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// This file finds the boundaries of zstd frames from their headers, without
// unpacking them (RFC 8878): a file that lacks its seek table has no other
// list of them.

const (
	zstdMagic = 0xfd2fb528
	skipMagic = 0x184d2a50 // the low four bits are free
	skipMask  = 0xfffffff0
	// maxBlock is the largest block of a zstd frame, in bytes.
	maxBlock = 128 << 10
	// maxPacked is the largest frame, packed: a chunk that cannot be packed
	// grows a little.
	maxPacked = maxChunk + maxChunk>>8
)

var errFrame = errors.New("not the zstd frame of a capture")

// Sniff reports whether a file that begins with b can be a capture. Four bytes
// are enough to tell it from JSON Lines, plain or gzip.
func Sniff(b []byte) bool { return len(b) >= 4 && binary.LittleEndian.Uint32(b) == zstdMagic }

// walker goes from frame to frame.
type walker struct {
	r   *bufio.Reader
	off int64 // of the next frame
	// keep says whether a frame's bytes are collected in buf.
	keep bool
	buf  []byte
	// size counts the bytes of this frame so far, blocks its blocks.
	size   int64
	blocks int
	skips  bool
}

func newWalker(r io.Reader, keep bool) *walker {
	const buffer = 64 << 10
	return &walker{r: bufio.NewReaderSize(r, buffer), keep: keep}
}

// next passes one frame. The error is io.EOF at a clean end,
// io.ErrUnexpectedEOF where the file ends within the frame, one that wraps
// errFrame where something else begins, or the reader's own.
func (w *walker) next() error {
	w.off += w.size
	w.size, w.blocks, w.skips, w.buf = 0, 0, false, nil
	head, err := w.take(4)
	if err != nil {
		if w.size == 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			return io.EOF
		}
		return err
	}
	switch m := binary.LittleEndian.Uint32(head); {
	case m == zstdMagic:
		return w.frame()
	case m&skipMask == skipMagic:
		w.skips = true
		if head, err = w.take(4); err != nil {
			return err
		}
		return w.pass(int64(binary.LittleEndian.Uint32(head)))
	}
	return fmt.Errorf("%w: it does not begin like one", errFrame)
}

// frame passes a zstd frame behind its magic number.
func (w *walker) frame() error {
	b, err := w.take(1)
	if err != nil {
		return err
	}
	const dictBits, checksum, reserved, single = 3, 1 << 2, 1 << 3, 1 << 5
	d := b[0]
	switch {
	case d&checksum == 0:
		return fmt.Errorf("%w: it has no checksum", errFrame)
	case d&(dictBits|reserved) != 0:
		return fmt.Errorf("%w: it wants a dictionary or a newer zstd", errFrame)
	}
	size := int64(0) // of the window's and the content's size
	if d&single == 0 {
		size++
	}
	switch d >> 6 {
	case 0:
		if d&single != 0 {
			size++
		}
	default:
		size += 1 << (d >> 6)
	}
	if err := w.pass(size); err != nil {
		return err
	}
	for last := false; !last; w.blocks++ {
		b, err := w.take(3)
		if err != nil {
			return err
		}
		h := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		last = h&1 != 0
		const repeat, none = 1, 3
		kind, n := h>>1&3, int64(h>>3)
		if kind == none || n > maxBlock {
			return fmt.Errorf("%w: a block of no known form", errFrame)
		}
		if kind == repeat {
			n = 1
		}
		if err := w.pass(n); err != nil {
			return err
		}
	}
	return w.pass(4)
}

// take gives the next n bytes, n at most 4, valid until the next call.
func (w *walker) take(n int) ([]byte, error) {
	b, err := w.r.Peek(n)
	if w.keep {
		w.buf = append(w.buf, b...)
	}
	w.size += int64(len(b))
	if err != nil {
		return nil, cutError(err)
	}
	// The bytes stay where they are until more are read.
	_, err = w.r.Discard(n)
	return b, err
}

// pass goes over n bytes.
func (w *walker) pass(n int64) error {
	if n > maxPacked-w.size && !w.skips || n < 0 {
		return fmt.Errorf("%w: more than %d bytes", errFrame, int64(maxPacked))
	}
	for n > 0 {
		// In steps, because a size that was lied about must not be made.
		step := int(min(n, maxBlock))
		if w.keep && !w.skips {
			have := len(w.buf)
			w.buf = append(w.buf, make([]byte, step)...)
			got, err := io.ReadFull(w.r, w.buf[have:])
			if w.size += int64(got); err != nil {
				return cutError(err)
			}
		} else {
			got, err := w.r.Discard(step)
			if w.size += int64(got); err != nil {
				return cutError(err)
			}
		}
		n -= int64(step)
	}
	return nil
}

func cutError(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
