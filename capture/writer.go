package capture

import (
	"errors"
	"fmt"
	"io"
	"os"

	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/klauspost/compress/zstd"

	"github.com/kvscope/kvscope/wire"
)

// Create makes a new file for a capture that only its owner can read. It never
// opens a file that is there already: that fails with fs.ErrExist.
func Create(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// Writer appends records to a capture. Each chunk, of about a second or 256 KB
// of records, goes out in one Write, so a killed process loses at most the
// chunk that was open. After an error of the underlying writer every call
// returns that error.
type Writer struct {
	frames *seekable.Writer
	// buf holds the open chunk behind room for its index.
	buf     []byte
	index   chunkIndex
	seq     uint64
	opened  wire.Time // the first record's time of the open chunk
	written int64
	err     error
	closed  bool
}

var errClosed = errors.New("the capture is closed")

// NewWriter writes the header, at once, to w, which stays the caller's to
// close. h.Version is ignored.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	const window = 1 << 20 // more than a usual chunk
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(window), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, err
	}
	c := &Writer{buf: make([]byte, maxIndex, maxIndex+chunkBytes)}
	if c.frames, err = seekable.NewWriter(counter{w, &c.written}, enc); err != nil {
		return nil, err
	}
	head, err := h.append(nil)
	if err != nil {
		return nil, err
	}
	if _, err := c.frames.Write(head); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return c, nil
}

// counter counts what is written.
type counter struct {
	io.Writer
	n *int64
}

func (c counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	*c.n += int64(n)
	return n, err
}

// Write appends a record whose monotonic time is not known; see WriteAt.
func (c *Writer) Write(rec wire.Record) error { return c.WriteAt(rec, Unknown) }

// WriteAt appends a record. elapsed is the monotonic time since recording
// began, in nanoseconds, or Unknown. Of rec the fields of its kind and Err are
// kept, and nothing of it is held. A record that cannot be written is an
// ErrRecord; it takes a sequence number all the same, so that readers see that
// one is missing, and the next can be written.
func (c *Writer) WriteAt(rec wire.Record, elapsed int64) error {
	if c.closed {
		return errClosed
	}
	if c.err != nil {
		return c.err
	}
	if d := rec.At - c.opened; c.index.records > 0 && (d >= chunkTime || d <= -chunkTime) {
		if err := c.Flush(); err != nil {
			return err
		}
	}
	if c.index.records == 0 {
		c.index.first = c.seq
	}
	buf, err := appendRecord(c.buf, c.seq, &rec, elapsed)
	c.buf = buf
	c.seq++
	if err != nil {
		return err
	}
	x := &c.index
	if x.records == 0 {
		c.opened, x.from, x.until = rec.At, rec.At, rec.At
	}
	x.records++
	x.from, x.until, x.high = min(x.from, rec.At), max(x.until, rec.At), max(x.high, rec.At)
	if len(c.buf)-maxIndex >= chunkBytes {
		return c.Flush()
	}
	return nil
}

// skip leaves n sequence numbers out: records that the source of a copy lost.
func (c *Writer) skip(n uint64) { c.seq += n }

// Tick flushes if the open chunk began a second or more before now.
func (c *Writer) Tick(now wire.Time) error {
	if c.index.records > 0 && now-c.opened >= chunkTime {
		return c.Flush()
	}
	return c.err
}

// Flush writes the open chunk, if there is any.
func (c *Writer) Flush() error {
	if c.err != nil || c.index.records == 0 {
		return c.err
	}
	var room [maxIndex]byte
	head := c.index.append(room[:0])
	start := maxIndex - len(head)
	copy(c.buf[start:], head)
	if _, err := c.frames.Write(c.buf[start:]); err != nil {
		c.err = fmt.Errorf("capture: %w", err)
	}
	if cap(c.buf) > 4*chunkBytes { // a large record does not stay
		c.buf = make([]byte, maxIndex, maxIndex+chunkBytes)
	}
	c.buf = c.buf[:maxIndex]
	c.index = chunkIndex{high: c.index.high}
	return c.err
}

// Close flushes and writes the seek table, which makes the capture complete.
// It does not close the underlying writer. Closing again does nothing.
func (c *Writer) Close() error {
	if c.closed {
		return nil
	}
	err := c.Flush()
	c.closed = true
	if err != nil {
		// Without a table: the file reads as cut, which it is.
		return err
	}
	if err := c.frames.Close(); err != nil {
		c.err = fmt.Errorf("capture: %w", err)
	}
	return c.err
}

// Records counts the records given so far, refused ones included.
func (c *Writer) Records() uint64 { return c.seq }

// Bytes counts the bytes written to the file so far.
func (c *Writer) Bytes() int64 { return c.written }
