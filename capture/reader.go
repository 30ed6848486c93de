package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/wire"
)

// Reader reads a capture, one chunk at a time. It implements wire.Source.
// Frames of its records alias the chunk that they came in, of about 256 KB,
// which they keep in memory.
type Reader struct {
	ra     io.ReaderAt // nil for a stream
	size   int64
	walk   *walker // of a stream
	check  *walker // of frames in memory
	dec    *zstd.Decoder
	peeker *zstd.Decoder
	header Header

	chunks []span
	next   int
	// frames counts the frames of a stream; table says that its last one was
	// its seek table.
	frames int
	table  bool
	// cut is what is wrong with the end of the file.
	cut error

	// rest is what is left of the chunk, index its index, got how many of its
	// records were passed.
	rest     []byte
	index    chunkIndex
	got      uint64
	unpacked int64

	replicas map[string]wire.Replica
	// want is the next sequence number, if placed says that it is known.
	want   uint64
	placed bool
	// held is a record that a seek found.
	held    *entry
	elapsed int64
	// gap counts the records lost right before the one just returned, unknown
	// those of unknown kinds.
	gap, unknown uint64
	damage       DamagedError
	err          error
}

// Header gives the file's header. It is shared: do not change it.
func (r *Reader) Header() Header { return r.header }

// Elapsed gives the monotonic time of the record that Next gave last, in
// nanoseconds since recording began, or Unknown.
func (r *Reader) Elapsed() int64 { return r.elapsed }

// Next gives the next record that can be read. At the end it returns io.EOF,
// or a *DamagedError where anything was not readable, and so again after that.
// An error of the file itself is final too.
func (r *Reader) Next(ctx context.Context) (wire.Record, error) {
	e, err := r.entry(ctx)
	if err != nil {
		return wire.Record{}, err
	}
	r.damage.Records++
	r.elapsed = e.elapsed
	return e.Record, nil
}

// PeekTime gives the time of the record that Next gives next, which it still
// does then. The error is Next's.
func (r *Reader) PeekTime(ctx context.Context) (wire.Time, error) {
	e, err := r.entry(ctx)
	if err != nil {
		return 0, err
	}
	r.held = &e
	return e.At, nil
}

// entry gives the next record of a known kind.
func (r *Reader) entry(ctx context.Context) (entry, error) {
	if e := r.held; e != nil {
		r.held = nil
		return *e, nil
	}
	r.gap = 0
	for r.err == nil {
		if err := ctx.Err(); err != nil {
			return entry{}, err
		}
		if len(r.rest) == 0 {
			r.endChunk()
			r.load()
			continue
		}
		e, rest, err := parseRecord(r.rest, r.intern)
		r.rest = rest
		r.got++
		switch {
		case err != nil:
			r.lose(1, err)
		case r.placed && e.seq < r.want:
			r.damage.lose(1, e.seq, errOrder)
		default:
			if r.placed && e.seq > r.want {
				r.lose(e.seq-r.want, errGap)
			}
			r.want, r.placed = e.seq+1, true
			if e.known {
				return e, nil
			}
			r.unknown++
		}
	}
	return entry{}, r.err
}

// lose notes that the next n records are missing.
func (r *Reader) lose(n uint64, cause error) {
	r.damage.lose(n, r.want, cause)
	r.gap += n
	r.want += n
}

// endChunk notes the records that the chunk's index promised and its end took.
func (r *Reader) endChunk() {
	if r.got < r.index.records {
		r.lose(r.index.records-r.got, errShape)
	}
	r.index, r.got = chunkIndex{}, 0
}

// load makes the next chunk's records ready, or sets r.err.
func (r *Reader) load() {
	frame, err := r.nextFrame()
	if err != nil {
		r.err = err
		return
	}
	b, err := r.unpack(frame)
	if err != nil {
		r.damage.loseChunk(r.want, err)
		return
	}
	r.unpacked += int64(len(b))
	index, rest, err := parseIndex(b)
	if err != nil {
		// Its records may be good all the same.
		r.damage.loseChunk(r.want, err)
		if rest, err = msgp.Skip(b); err != nil {
			return
		}
		index = chunkIndex{}
	} else if !r.placed {
		r.want, r.placed = index.first, true
	}
	r.index, r.rest = index, rest
}

// nextFrame gives the next chunk's frame; its error is final.
func (r *Reader) nextFrame() ([]byte, error) {
	if r.walk != nil {
		return r.streamed()
	}
	if r.next == len(r.chunks) {
		return nil, r.damage.end(r.cut)
	}
	frame, err := r.readFrame(r.chunks[r.next])
	r.next++
	if err != nil && !errors.Is(err, errFrame) {
		return nil, fmt.Errorf("capture %s: %w", r.damage.Name, err)
	}
	return frame, nil
}

// streamed gives the next frame of a stream.
func (r *Reader) streamed() ([]byte, error) {
	for {
		err := r.walk.next()
		switch {
		case err == nil && r.walk.skips:
			r.table = r.walk.isTable(r.frames + 1)
			continue
		case err == nil:
			r.frames++
			r.next++
			r.table = false
			return r.walk.buf, nil
		case err == io.EOF && r.table:
			return nil, r.damage.end(nil)
		case err == io.EOF:
			err = errNoTable
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errFrame):
		default:
			return nil, fmt.Errorf("capture %s: %w", r.damage.Name, err)
		}
		r.damage.Offset = r.walk.off
		return nil, r.damage.end(err)
	}
}

// intern gives the one string for a replica's name.
func (r *Reader) intern(b []byte) wire.Replica {
	if name, ok := r.replicas[string(b)]; ok {
		return name
	}
	name := wire.Replica(b)
	if len(r.replicas) < MaxReplicas {
		r.replicas[string(name)] = name
	}
	return name
}

// blocksOf checks that b is exactly one zstd frame of the form that is written,
// and counts its blocks.
func (r *Reader) blocksOf(b []byte) (int, error) {
	src := bytes.NewReader(b)
	if r.check == nil {
		r.check = newWalker(src, false)
	}
	w := r.check
	w.r.Reset(src)
	w.size = 0
	if err := w.next(); err != nil {
		return 0, err
	}
	if w.skips || w.size != int64(len(b)) {
		return 0, errFrame
	}
	return w.blocks, nil
}
