package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/klauspost/compress/zstd"

	"github.com/kvscope/kvscope/wire"
)

// span is where a frame stands in the file.
type span struct{ off, size int64 }

// NewReader opens a capture of size bytes. A complete one is opened by its seek
// table; for one that is not, the file is read once to find its chunks. name is
// what errors call it. ra stays the caller's to close, after the Reader's last
// use.
//
// The error is a *DamagedError where not even the header can be read, or one
// of ra.
func NewReader(ra io.ReaderAt, size int64, name string) (*Reader, error) {
	r, err := newReader(name)
	if err != nil {
		return nil, err
	}
	r.ra, r.size = ra, size
	spans, err := readTable(ra, size)
	if err != nil {
		return nil, fmt.Errorf("capture %s: %w", name, err)
	}
	if r.cut = nil; spans == nil {
		if spans, err = r.findFrames(); err != nil {
			return nil, fmt.Errorf("capture %s: %w", name, err)
		}
	}
	if len(spans) == 0 {
		return nil, r.foreign(r.cut)
	}
	frame, err := r.readFrame(spans[0])
	if err == nil {
		err = r.begin(frame)
	}
	r.chunks = spans[1:]
	if errors.Is(err, errChunk) && len(r.chunks) > 0 {
		// The records can still be read if they are a capture's.
		if _, ok, indexErr := r.checkedIndex(0); ok && indexErr == nil {
			r.damage.Header, err = true, nil
		}
	}
	if err != nil {
		return nil, r.foreign(err)
	}
	return r, nil
}

// NewStream opens a capture that is read from its beginning to its end, such
// as standard input. It cannot seek, and has no Info. It reads the header at
// once, and blocks as src does.
func NewStream(src io.Reader, name string) (*Reader, error) {
	r, err := newReader(name)
	if err != nil {
		return nil, err
	}
	r.walk = newWalker(src, true)
	err = r.walk.next()
	if err == nil && !r.walk.skips {
		err = r.begin(r.walk.buf)
	}
	if err != nil {
		r.size = r.walk.off + r.walk.size
		return nil, r.foreign(err)
	}
	return r, nil
}

func newReader(name string) (*Reader, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxChunk), zstd.WithDecoderMaxWindow(maxChunk))
	if err != nil {
		return nil, err
	}
	return &Reader{
		dec: dec, replicas: map[string]wire.Replica{}, elapsed: Unknown, placed: true, damage: DamagedError{Name: name},
	}, nil
}

// begin reads the header's frame.
func (r *Reader) begin(frame []byte) error {
	b, err := r.unpack(frame)
	if err != nil {
		return err
	}
	r.header, r.rest, err = parseHeader(b)
	r.unpacked = int64(len(b))
	return err
}

// foreign is the error of a file without a header. A file that ends within its
// first frame can still be a capture.
func (r *Reader) foreign(cause error) error {
	e := r.damage
	e.Offset = r.size
	var newer newerError
	switch {
	case r.size == 0:
		e.Cause = wire.ErrEmpty
	case errors.As(cause, &newer):
		e.Cause = newer
	case errors.Is(cause, io.ErrUnexpectedEOF) && r.sniffed():
		e.Cut, e.Cause = true, cause
	case errors.Is(cause, errFrame), errors.Is(cause, errNoCapture), errors.Is(cause, errChunk),
		errors.Is(cause, io.ErrUnexpectedEOF), errors.Is(cause, io.EOF), errors.Is(cause, errNoTable), cause == nil:
		e.Cause = wire.ErrForeign
	default:
		return fmt.Errorf("capture %s: %w", e.Name, cause)
	}
	return &e
}

// sniffed reports whether the file's first bytes, as far as there are any, are
// those of a capture.
func (r *Reader) sniffed() bool {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], zstdMagic)
	var have [4]byte
	n := 0
	if r.ra != nil {
		n, _ = r.ra.ReadAt(have[:min(4, r.size)], 0) // what is not there does not match
	} else {
		n = copy(have[:], r.walk.buf)
		if n == 0 {
			return true // fewer than four bytes: nobody can tell
		}
	}
	return n > 0 && string(have[:n]) == string(b[:n])
}

// readTable gives the frames by the seek table, or nil where the file does not
// end in one that fits it. Nothing is made that the file is too short for.
func readTable(ra io.ReaderAt, size int64) ([]span, error) {
	const footer, head, tableMagic = 9, 8, 0x8f92eab1
	if size < footer+head {
		return nil, nil
	}
	var tail [footer]byte
	if _, err := ra.ReadAt(tail[:], size-footer); err != nil && err != io.EOF {
		return nil, err
	}
	if binary.LittleEndian.Uint32(tail[5:]) != tableMagic {
		return nil, nil
	}
	entry := int64(8)
	if tail[4]&(1<<7) != 0 {
		entry = 12
	}
	length := head + footer + entry*int64(binary.LittleEndian.Uint32(tail[:]))
	if length > size {
		return nil, nil
	}
	raw := make([]byte, length)
	if _, err := ra.ReadAt(raw, size-length); err != nil && err != io.EOF {
		return nil, err
	}
	table, err := seekable.NewSeekTable(raw)
	if err != nil {
		return nil, nil // it is not one, so the frames are looked for
	}
	spans := make([]span, table.NumFrames())
	end := int64(0)
	for i := range spans {
		e, _ := table.EntryByID(int64(i))
		spans[i] = span{end, int64(e.CompressedSize)}
		if end += spans[i].size; spans[i].size == 0 || end > size-length {
			return nil, nil
		}
	}
	if end != size-length {
		return nil, nil
	}
	return spans, nil
}

// findFrames walks the file from frame to frame. It sets r.cut where the file
// does not end as a complete one does.
func (r *Reader) findFrames() ([]span, error) {
	var spans []span
	w := newWalker(io.NewSectionReader(r.ra, 0, r.size), false)
	r.cut = errNoTable
	for {
		err := w.next()
		switch {
		case err == nil && w.skips:
			if w.isTable(len(spans)) {
				r.cut = nil
			}
			continue
		case err == nil:
			spans = append(spans, span{w.off, w.size})
			r.cut = errNoTable
			continue
		case err == io.EOF:
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errFrame):
			r.cut = err
		default:
			return nil, err
		}
		r.damage.Offset = w.off
		return spans, nil
	}
}

// isTable reports whether the frame just passed has the size of a seek table
// of n frames, with checksums or without.
func (w *walker) isTable(n int) bool {
	const around = 8 + 9
	return w.skips && (w.size == around+12*int64(n) || w.size == around+8*int64(n))
}

// readFrame reads a chunk's frame, which must be exactly one.
func (r *Reader) readFrame(s span) ([]byte, error) {
	if s.size > maxPacked {
		return nil, fmt.Errorf("%w: more than %d bytes", errFrame, int64(maxPacked))
	}
	b := make([]byte, s.size)
	if _, err := r.ra.ReadAt(b, s.off); err != nil && err != io.EOF {
		return nil, err
	}
	return b, nil
}

// unpack checks and unpacks one frame.
func (r *Reader) unpack(frame []byte) ([]byte, error) {
	blocks, err := r.blocksOf(frame)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errChunk, err)
	}
	// The decoder allocates by what the header claims, so that is bounded by
	// what the blocks can hold.
	b, err := r.dec.DecodeAll(frame, make([]byte, 0, min(maxChunk, blocks*maxBlock, 8*len(frame)+maxIndex)))
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errChunk, err)
	}
	return b, nil
}
