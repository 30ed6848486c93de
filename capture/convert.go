package capture

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/kvscope/kvscope/wire"
)

// Import appends all records of src to w, such as a recording in JSON Lines,
// and gives how many. Monotonic times come along where src has them, and
// records that src lost stay missing in the sequence. It does not close w.
//
// The error is nil at a clean end, or what ended src: all that could be read
// is in w then. Records that w refuses are left out, and are an ErrRecord at
// the end.
func Import(ctx context.Context, w *Writer, src wire.Source) (uint64, error) {
	return each(ctx, w, src, func(rec *wire.Record) bool { return true })
}

// Cut appends to w the records of src from the first that was received at or
// after from, up to the first after that which was received at or after to (0:
// to the end). A capture is read from there on only; of another Source all is
// read that lies before. The rest is as for Import.
func Cut(ctx context.Context, w *Writer, src wire.Source, from, to wire.Time) (uint64, error) {
	if r, ok := src.(*Reader); ok && r.ra != nil {
		if err := r.SeekTime(ctx, from); err != nil {
			return 0, err
		}
	}
	return each(ctx, w, &window{Source: src, from: from, to: to}, func(*wire.Record) bool { return true })
}

// window is the part of a source between two moments.
type window struct {
	wire.Source
	from, to wire.Time
	inside   bool
}

func (s *window) Next(ctx context.Context) (wire.Record, error) {
	for {
		rec, err := s.Source.Next(ctx)
		if err != nil {
			return rec, err
		}
		s.inside = s.inside || rec.At >= s.from
		switch {
		case !s.inside:
		case s.to != 0 && rec.At >= s.to:
			return wire.Record{}, io.EOF
		default:
			return rec, nil
		}
	}
}

// each appends the records of src to w as change leaves them, unless it
// reports false.
func each(ctx context.Context, w *Writer, src wire.Source, change func(*wire.Record) bool) (n uint64, err error) {
	reader, _ := src.(*Reader)
	if part, ok := src.(*window); ok {
		reader, _ = part.Source.(*Reader)
	}
	var refused error
	for {
		rec, err := src.Next(ctx)
		if errors.Is(err, io.EOF) {
			return n, refused
		}
		if err != nil {
			return n, errors.Join(err, refused)
		}
		elapsed := int64(Unknown)
		if reader != nil {
			elapsed = reader.elapsed
			w.skip(reader.gap)
		}
		if !change(&rec) {
			continue
		}
		switch err := w.WriteAt(rec, elapsed); {
		case errors.Is(err, ErrRecord):
			if refused == nil {
				refused = fmt.Errorf("record %d: %w", n, err)
			}
		case err != nil:
			return n, err
		default:
			n++
		}
	}
}

// Export writes all records of src to out in JSON Lines, and gives how many.
// Reading them with wire.NewJSONL gives equal records, but for text that is not
// valid UTF-8. The error is nil at a clean end, or what ended src or out.
func Export(ctx context.Context, out io.Writer, src wire.Source) (uint64, error) {
	var line []byte
	for n := uint64(0); ; n++ {
		rec, err := src.Next(ctx)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		line = wire.AppendJSONL(line[:0], rec)
		if _, err := out.Write(line); err != nil {
			return n, fmt.Errorf("export: %w", err)
		}
	}
}
