package wire

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxLine is the longest line of a recording that is read, in bytes. A
	// longer one counts as damaged; it is passed over without being held.
	MaxLine = 128 << 20
	// foreignLines is after how many damaged lines, and no other, a file is
	// taken for something else.
	foreignLines = 100
	// smallLine is how much memory is kept from one line to the next, in bytes.
	smallLine = 1 << 20
)

// JSONL reads a recording in JSON Lines, plain or gzip. Each line is an object
// with "t", the time of reception in Unix seconds, "replica", and one of
//
//	"frames":        ["base64", ...]  a live message
//	"monitor":       "EVENT_..."      a change of the connection, as libzmq calls it
//	"text":          "..."            a metrics page
//	"error":         "..."            why a metrics page could not be had
//	"note":          "..."            a remark
//	"replay_from":   "N"              a replay was asked for, from sequence N
//	"replay_frames": ["base64", ...]  a message of its answer
//	"replay_end":    true             the end of it, with "error" if not complete
//
// A line of another kind becomes a Note that holds its beginning. Lines of two
// other recorders, whose frames are in hexadecimal, are taken too:
//
//	"endpoint": "tcp://...", "frames": ["hex", ...]   of a ZMQ socket
//	"subject":  "namespace...", "data": "hex"         of NATS
//
// Their replicas are named as by PlaneSender, engines after the endpoint, and who
// tells of bookings (see DecodeActivity) by LoadName after it. One line at a time
// is in memory, of at most MaxLine bytes.
type JSONL struct {
	src io.Reader
	r   *bufio.Reader
	// line is the memory of lines that do not fit into r's.
	line    []byte
	maxLine int
	// objects counts lines that were read, records those of a known kind.
	objects, records int
	state            DamagedError
	// err is final; last is what follows the record just returned.
	err, last error
}

// NewJSONL reads from r, which stays the caller's to close; name is what
// errors call it. r is read only in Next, which blocks as r does.
func NewJSONL(r io.Reader, name string) *JSONL {
	return &JSONL{src: r, maxLine: MaxLine, state: DamagedError{Name: name}}
}

// Next gives the next record that can be read. At the end it returns io.EOF,
// or a *DamagedError where anything was not readable, and so again after that.
// An error of the reader itself is final too.
func (j *JSONL) Next(ctx context.Context) (Record, error) {
	for j.err == nil {
		if err := ctx.Err(); err != nil {
			return Record{}, err
		}
		if j.last != nil {
			j.err = j.end(j.last)
			continue
		}
		rec, err := j.read()
		if err == nil {
			return rec, nil
		}
	}
	return Record{}, j.err
}

var (
	errNoRecord = errors.New("no record on this line")
	errTooLong  = errors.New("the line is too long")
)

// read gives the record of the next line, or an error where it has none. It
// sets j.last after the last line.
func (j *JSONL) read() (Record, error) {
	line, whole, err := j.readLine()
	tooLong := errors.Is(err, errTooLong)
	if err != nil && !tooLong {
		j.last = err
	}
	if j.state.Lines == 0 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // some editors' mark
	}
	line = bytes.TrimSpace(line)
	if whole || len(line) > 0 {
		j.state.Lines++
	}
	if len(line) == 0 && !tooLong {
		return Record{}, errNoRecord
	}
	var rec Record
	known := false
	if !tooLong {
		rec, known, err = parseLine(line)
	}
	if err == nil {
		if j.objects++; known {
			j.records++
		}
		return rec, nil
	}
	if !whole && line[0] == '{' {
		// What a recorder was writing when it was killed.
		j.state.Lines--
		j.state.Cut, j.state.Cause = true, err
		return Record{}, errNoRecord
	}
	if j.state.Damaged++; j.state.Damaged == 1 {
		j.state.First, j.state.Cause = j.state.Lines, err
	}
	if j.objects == 0 && (tooLong || j.state.Damaged == foreignLines) {
		j.last = io.EOF // reading on would find no record either
	}
	return Record{}, errNoRecord
}

// readLine gives the next line without its end, valid until the next call, and
// whether it had an end. The error is errTooLong, or what ended the file.
func (j *JSONL) readLine() (line []byte, whole bool, err error) {
	if j.r == nil {
		if err := j.open(); err != nil {
			return nil, false, err
		}
	}
	if cap(j.line) > smallLine {
		j.line = nil
	}
	j.line = j.line[:0]
	tooLong := false
	for {
		part, err := j.r.ReadSlice('\n')
		if len(j.line) == 0 && err == nil && len(part) <= j.maxLine && !tooLong {
			return part, true, nil
		}
		if tooLong = tooLong || len(part) > j.maxLine-len(j.line); tooLong {
			j.line = nil
		} else {
			j.line = append(j.line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case tooLong:
			if err != nil {
				j.last = err
			}
			return nil, true, errTooLong
		default:
			return j.line, err == nil, err
		}
	}
}

// open finds out whether the file is gzip.
func (j *JSONL) open() error {
	const buffer = 64 << 10
	j.r = bufio.NewReaderSize(j.src, buffer)
	if magic, err := j.r.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return nil // an error comes again with the first line
	}
	z, err := gzip.NewReader(j.r)
	if err != nil {
		return err
	}
	j.r = bufio.NewReaderSize(z, buffer)
	return nil
}

// end makes the final error from what ended the file.
func (j *JSONL) end(err error) error {
	s := &j.state
	var corrupt flate.CorruptInputError
	switch {
	case err == io.EOF:
	case errors.Is(err, gzip.ErrHeader) && s.Lines > 0, errors.Is(err, gzip.ErrChecksum):
		s.Cause = err
		if j.records > 0 {
			return s
		}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, gzip.ErrHeader), errors.As(err, &corrupt):
		s.Cut, s.Cause = true, err
	default:
		return fmt.Errorf("recording %s: %w", s.Name, err)
	}
	switch {
	case s.Cut:
	case j.objects == 0 && s.Damaged == 0:
		s.Cause = ErrEmpty
	case j.records == 0:
		s.Cause = ErrForeign
	case s.Damaged == 0:
		return io.EOF
	}
	return s
}

var (
	// ErrEmpty is the Cause of a DamagedError for a file without any line.
	ErrEmpty = errors.New("empty")
	// ErrForeign is the Cause of a DamagedError for a file without any record.
	ErrForeign = errors.New("not a recording")
)

// DamagedError says, after all records that could be read, that a recording
// holds more than those, or nothing that is one.
type DamagedError struct {
	// Name is what the recording is called.
	Name string
	// Lines counts lines, and Damaged those that could not be read, of which
	// line First is the first.
	Lines, Damaged, First int
	// Cut says that the file ends, or cannot be unpacked any further, within
	// the line behind Lines.
	Cut bool
	// Cause is ErrEmpty, ErrForeign, or what was wrong with the end of a cut
	// file or with the first damaged line.
	Cause error
}

func (e *DamagedError) Unwrap() error { return e.Cause }

// Error is one sentence for people.
func (e *DamagedError) Error() string {
	switch {
	case errors.Is(e.Cause, ErrEmpty):
		return fmt.Sprintf("recording %s is empty: nothing was written into it", e.Name)
	case errors.Is(e.Cause, ErrForeign):
		return fmt.Sprintf(`%s is not a recording that kvscope can read: expected JSON Lines with "t" and "replica", plain or gzip`, e.Name)
	case errors.Is(e.Cause, gzip.ErrChecksum):
		return fmt.Sprintf("recording %s: its checksum is wrong: all %d lines were read, and some of them may be false", e.Name, e.Lines)
	case errors.Is(e.Cause, gzip.ErrHeader) && !e.Cut:
		return fmt.Sprintf("recording %s is followed by bytes that do not belong to it: all its %d lines were read", e.Name, e.Lines)
	case e.Cut && e.Lines == 0:
		return fmt.Sprintf("recording %s is cut off within its first line: nothing of it can be read", e.Name)
	case e.Cut && e.Damaged == 0:
		return fmt.Sprintf("recording %s is cut off after line %d: what came before was read", e.Name, e.Lines)
	case e.Cut:
		return fmt.Sprintf("recording %s is cut off after line %d: what came before was read, but for %s", e.Name, e.Lines, e.damaged())
	}
	return fmt.Sprintf("recording %s: all of its %d lines were read, but for %s: %v", e.Name, e.Lines, e.damaged(), e.Cause)
}

func (e *DamagedError) damaged() string {
	if e.Damaged == 1 {
		return fmt.Sprintf("line %d, which is damaged", e.First)
	}
	return fmt.Sprintf("%d damaged ones from line %d on", e.Damaged, e.First)
}
