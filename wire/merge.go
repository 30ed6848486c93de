package wire

import (
	"context"
	"errors"
	"io"
)

// Merge gives the records of all sources in the order of Record.At. Records of
// one source keep their order, so that one without a time follows the one
// before it, and at the same moment the source that stands first comes first.
//
// A source that fails ends there while the others go on. At the end Next
// returns io.EOF, the one error, or all of them joined; errors.As finds a
// *DamagedError in there. Merge asks every source for its next record before
// it gives one, so it is for recordings, not for live links.
func Merge(sources ...Source) Source {
	m := &merge{inputs: make([]input, len(sources))}
	for i, s := range sources {
		m.inputs[i].source = s
	}
	return m
}

type merge struct {
	inputs []input
	errs   []error
}

// input is a source and its next record.
type input struct {
	source Source
	rec    Record
	filled bool
}

// Next implements Source.
func (m *merge) Next(ctx context.Context) (Record, error) {
	var next *input
	for i := range m.inputs {
		in := &m.inputs[i]
		if err := m.fill(ctx, in); err != nil {
			return Record{}, err
		}
		if in.filled && (next == nil || in.rec.At < next.rec.At) {
			next = in
		}
	}
	if next != nil {
		next.filled = false
		return next.rec, nil
	}
	switch len(m.errs) {
	case 0:
		return Record{}, io.EOF
	case 1:
		return Record{}, m.errs[0]
	}
	return Record{}, errors.Join(m.errs...)
}

// fill makes the next record of a source ready, or drops a source that is at
// its end. It fails only when ctx is over.
func (m *merge) fill(ctx context.Context, in *input) error {
	if in.filled || in.source == nil {
		return nil
	}
	rec, err := in.source.Next(ctx)
	switch {
	case err == nil:
		in.rec, in.filled = rec, true
		return nil
	case ctx.Err() != nil:
		return err
	case !errors.Is(err, io.EOF):
		m.errs = append(m.errs, err)
	}
	in.source = nil
	return nil
}
