package capture

import (
	"errors"
	"fmt"
	"io"

	"github.com/kvscope/kvscope/wire"
)

// DamagedError says, after all records that could be read, that a capture
// holds, or should hold, more than those. errors.As finds a
// *wire.DamagedError in it, for those who treat all recordings alike.
type DamagedError struct {
	// Name is what the capture is called.
	Name string
	// Records counts the records that were read, since the last seek.
	Records uint64
	// Lost counts records that are known to be missing or could not be read,
	// and Chunks the chunks of which nothing could be; how many records those
	// held is known only where a later one can be read.
	Lost   uint64
	Chunks int
	// First is the sequence number of the first record that is missing.
	First uint64
	// Header says that the header cannot be read.
	Header bool
	// Cut says that the file ends without its seek table, at byte Offset: the
	// writer was killed, or the file was not copied to its end.
	Cut    bool
	Offset int64
	// Cause is what was wrong first. It is wire.ErrEmpty for a file of no
	// bytes, and wire.ErrForeign for one that is not a capture.
	Cause error
}

func (e *DamagedError) Unwrap() error { return e.Cause }

// As fills in a *wire.DamagedError, with records in the place of lines.
func (e *DamagedError) As(target any) bool {
	t, ok := target.(**wire.DamagedError)
	if ok {
		*t = &wire.DamagedError{
			Name: e.Name, Lines: int(e.Records), Damaged: int(e.Lost), First: int(e.First),
			Cut: e.Cut, Cause: e.Cause,
		}
	}
	return ok
}

// Error is one sentence for people.
func (e *DamagedError) Error() string {
	var newer newerError
	switch {
	case errors.Is(e.Cause, wire.ErrEmpty):
		return fmt.Sprintf("capture %s is empty: nothing was written into it", e.Name)
	case errors.Is(e.Cause, wire.ErrForeign):
		return fmt.Sprintf("%s is not a capture that kvscope can read", e.Name)
	case errors.As(e.Cause, &newer):
		return fmt.Sprintf("capture %s was %v", e.Name, newer)
	case e.Cut && e.Records == 0 && e.whole():
		return fmt.Sprintf("capture %s is cut off at byte %d, before its first whole record", e.Name, e.Offset)
	case e.Cut && e.whole():
		return fmt.Sprintf("capture %s is cut off at byte %d: the %s before that were read", e.Name, e.Offset, records(e.Records))
	case e.Cut:
		return fmt.Sprintf("capture %s is cut off at byte %d: %s were read, but %s: %v",
			e.Name, e.Offset, records(e.Records), e.missing(), e.Cause)
	}
	return fmt.Sprintf("capture %s is damaged: %s were read, but %s: %v", e.Name, records(e.Records), e.missing(), e.Cause)
}

func records(n uint64) string {
	if n == 1 {
		return "1 record"
	}
	return fmt.Sprintf("%d records", n)
}

// whole reports whether nothing is missing that was written.
func (e *DamagedError) whole() bool { return e.Lost == 0 && e.Chunks == 0 && !e.Header }

func (e *DamagedError) missing() string {
	switch {
	case e.Lost == 0 && e.Chunks == 0:
		return "its header is lost"
	case e.Lost == 0 && e.Chunks == 1:
		return fmt.Sprintf("one chunk from record %d on is lost", e.First)
	case e.Lost == 0:
		return fmt.Sprintf("%d chunks from record %d on are lost", e.Chunks, e.First)
	}
	return fmt.Sprintf("%s from number %d on are missing", records(e.Lost), e.First)
}

// lose notes n records that are missing from first on.
func (e *DamagedError) lose(n, first uint64, cause error) {
	if e.Cause == nil {
		e.First, e.Cause = first, cause
	}
	e.Lost += n
}

// loseChunk notes a chunk of which nothing can be read.
func (e *DamagedError) loseChunk(first uint64, cause error) {
	e.lose(0, first, cause)
	e.Chunks++
}

// end gives the final error of a capture without its seek table (cut) or with.
func (e *DamagedError) end(cut error) error {
	if cut != nil {
		e.Cut = true
		if e.Cause == nil {
			e.Cause = cut
		}
	}
	if e.Cause == nil && e.Header {
		e.Cause = errChunk
	}
	if e.Cause == nil {
		return io.EOF
	}
	copied := *e
	return &copied
}

var (
	errNoTable = errors.New("the file ends without its seek table")
	errGap     = errors.New("sequence numbers are missing")
	errOrder   = errors.New("a record stands behind one that should follow it")
	errChunk   = errors.New("a chunk that does not unpack")
)
