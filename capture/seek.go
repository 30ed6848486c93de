package capture

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/kvscope/kvscope/wire"
)

// ErrNoSeek says that a capture is a stream, which only goes on.
var ErrNoSeek = errors.New("a stream cannot seek")

// SeekTime goes to the first record, in the order of the file, that was
// received at or after t: Next gives that one. It reads the beginnings of a
// few chunks and two whole ones, whatever the size of the file. It goes
// backwards too; after a seek, errors speak of what was read since.
//
// If ctx ends, the Reader stands anywhere. The error is ctx's, ErrNoSeek, or
// one of the file; damage is no error here.
func (r *Reader) SeekTime(ctx context.Context, t wire.Time) error {
	if r.ra == nil {
		return ErrNoSeek
	}
	// The highest time so far reaches t in the chunk that holds the record.
	low, high := 0, len(r.chunks)
	for low < high {
		if err := ctx.Err(); err != nil {
			return err
		}
		mid := low + (high-low)/2
		at, x, err := r.readable(mid, high)
		if err != nil {
			return err
		}
		switch {
		case at == high || x.high >= t:
			high = mid
		default:
			low = at + 1
		}
	}
	// What was peeked at was held against no checksum yet.
	if ok, err := r.confirm(low, t); err != nil {
		return err
	} else if !ok {
		if low, err = r.findLinear(ctx, t); err != nil {
			return err
		}
	}
	r.rewind(low)
	for {
		e, err := r.entry(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			var damaged *DamagedError
			if err == io.EOF || errors.As(err, &damaged) {
				return nil // as Next will say
			}
			return err
		case e.At >= t:
			r.held = &e
			return nil
		}
	}
}

// Rewind goes back to the first record.
func (r *Reader) Rewind() error {
	if r.ra == nil {
		return ErrNoSeek
	}
	r.rewind(0)
	return nil
}

func (r *Reader) rewind(chunk int) {
	r.next, r.rest, r.index, r.got = chunk, nil, chunkIndex{}, 0
	r.want, r.placed, r.held, r.err = 0, chunk == 0, nil, nil
	r.elapsed, r.gap, r.unknown, r.unpacked = Unknown, 0, 0, 0
	r.damage = DamagedError{Name: r.damage.Name, Offset: r.damage.Offset, Header: r.damage.Header}
}

// confirm reports whether t is reached first in chunk i: by the checked index
// of that one and of the last readable one before it, which suffices because
// the highest time never falls.
func (r *Reader) confirm(i int, t wire.Time) (bool, error) {
	if i < len(r.chunks) {
		if x, ok, err := r.checkedIndex(i); err != nil || !ok || x.high < t {
			return false, err
		}
	}
	for i--; i >= 0; i-- {
		if x, ok, err := r.checkedIndex(i); err != nil || ok {
			return ok && x.high < t, err
		}
	}
	return true, nil
}

// findLinear finds the chunk by reading all before it.
func (r *Reader) findLinear(ctx context.Context, t wire.Time) (int, error) {
	for i := range r.chunks {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if x, ok, err := r.checkedIndex(i); err != nil || ok && x.high >= t {
			return i, err
		}
	}
	return len(r.chunks), nil
}

// checkedIndex unpacks a whole chunk, and reports whether it has an index.
func (r *Reader) checkedIndex(i int) (chunkIndex, bool, error) {
	frame, err := r.readFrame(r.chunks[i])
	if err != nil && !errors.Is(err, errFrame) {
		return chunkIndex{}, false, fmt.Errorf("capture %s: %w", r.damage.Name, err)
	}
	b, err := r.unpack(frame)
	if err != nil {
		return chunkIndex{}, false, nil
	}
	x, _, err := parseIndex(b)
	return x, err == nil, nil
}

// readable gives the first chunk from i on, before end, whose index can be
// read, and end if there is none.
func (r *Reader) readable(i, end int) (int, chunkIndex, error) {
	for ; i < end; i++ {
		x, err := r.peek(r.chunks[i])
		if err == nil {
			return i, x, nil
		}
		if !errors.Is(err, errChunk) {
			return i, x, fmt.Errorf("capture %s: %w", r.damage.Name, err)
		}
	}
	return end, chunkIndex{}, nil
}

// peek reads a chunk's index, and of the chunk no more than its first block.
func (r *Reader) peek(s span) (chunkIndex, error) {
	section := &errorReader{r: io.NewSectionReader(r.ra, s.off, s.size)}
	var err error
	if r.peeker == nil {
		r.peeker, err = zstd.NewReader(section, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(maxChunk), zstd.WithDecoderMaxWindow(8<<20))
	} else {
		err = r.peeker.Reset(section)
	}
	var b [maxIndex]byte
	n := 0
	if err == nil {
		n, err = io.ReadFull(r.peeker, b[:])
	}
	if section.err != nil {
		return chunkIndex{}, section.err
	}
	x, _, parseErr := parseIndex(b[:n])
	if parseErr != nil {
		return x, fmt.Errorf("%w: %v", errChunk, errors.Join(parseErr, err))
	}
	return x, nil
}

// errorReader remembers an error of the file, which the decoder would mix with
// those of what it reads.
type errorReader struct {
	r   io.Reader
	err error
}

func (e *errorReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		e.err = err
	}
	return n, err
}
