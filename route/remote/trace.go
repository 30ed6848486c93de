package remote

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/kvscope/kvscope/wire"
)

// Traced is a decision that a router has made, from its request trace.
type Traced struct {
	// At is when the request came, and Ended when it was over.
	At, Ended wire.Time
	Request   string
	Choice
	// Length is the prompt's, in tokens, Cached how many of them the router
	// reports as cached, and Output what was generated.
	Length, Cached, Output int
	// HitRate is the share of the prompt's blocks, the one begun counted too, that
	// the router took for cached on the worker that it chose, those on lower tiers
	// by their weights.
	HitRate float64
	// Queued is how many requests waited.
	Queued    int
	BlockSize int
	// Blocks are the sequence hashes of the prompt's complete blocks (see
	// blockhash.Rolling). They leave out the salt.
	Blocks []uint64
	// Unanswered says that no token came: a query-only probe, or a request that
	// failed.
	Unanswered bool
}

// Answer is what it says of the chosen replica, to be compared.
func (t *Traced) Answer() Answer {
	a := Answer{Choice: &t.Choice}
	if t.BlockSize > 0 {
		begun := (t.Length + t.BlockSize - 1) / t.BlockSize
		h := Held{Replica: t.Prefill, Weighted: true}
		h.Tokens[wire.Device] = int(math.Round(t.HitRate*float64(begun))) * t.BlockSize
		a.Matches = &Matches{BlockSize: t.BlockSize, Rows: []Held{h}, Partial: true}
	}
	return a
}

// maxTraceLine bounds a line, in bytes: a million tokens in blocks of 16 have
// hashes of 1.3 MB.
const maxTraceLine = 16 << 20

// Trace reads the file that Dynamo writes with DYN_REQUEST_TRACE: JSON Lines,
// plain or gzip. A line that cannot be read is passed over.
type Trace struct {
	name string
	src  io.Reader
	r    *bufio.Reader
	line []byte
	// rows counts lines, others those that are of another kind, and bad those that
	// could not be read.
	rows, others, bad int
	first, err        error
}

// NewTrace reads from r, which stays the caller's to close; name is what errors
// call it.
func NewTrace(r io.Reader, name string) *Trace { return &Trace{name: name, src: r} }

// Next gives the next decision. At the end it returns io.EOF, or an error where
// any line was not readable, and so again after that.
func (t *Trace) Next() (Traced, error) {
	if t.r == nil {
		t.err = t.open()
	}
	for t.err == nil {
		line, ended, err := t.next()
		if err != nil {
			t.err = t.end(err)
		}
		if len(line) == 0 {
			continue
		}
		t.rows++
		out, ok, bad := parseTraced(line)
		switch {
		case ok:
			return out, nil
		case bad == nil:
			t.others++
		case !ended && line[0] == '{': // what the router is writing now
			t.rows--
		default:
			if t.bad++; t.first == nil {
				t.first = fmt.Errorf("line %d: %w", t.rows, bad)
			}
		}
		if t.err != nil {
			t.err = t.end(err)
		}
	}
	return Traced{}, t.err
}

func (t *Trace) open() error {
	t.r = bufio.NewReaderSize(t.src, 1<<16)
	if magic, _ := t.r.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(t.r)
		if err != nil {
			return fmt.Errorf("request trace %s: %w", t.name, err)
		}
		t.r = bufio.NewReaderSize(z, 1<<16)
	}
	return nil
}

// end is what the reader's last error means.
func (t *Trace) end(err error) error {
	switch {
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("request trace %s: cut off after line %d: %w", t.name, t.rows, err)
	case t.bad > 0:
		return fmt.Errorf("request trace %s: %d of %d lines could not be read; first: %w", t.name, t.bad, t.rows, t.first)
	case t.rows > 0 && t.others == t.rows:
		return fmt.Errorf("request trace %s: none of its %d lines is the end of a request: give the file that DYN_REQUEST_TRACE_FILE_PATH names", t.name, t.rows)
	}
	return io.EOF
}

// next gives a line, and whether it ended; one that is too long comes back as
// something that cannot be read.
func (t *Trace) next() (line []byte, ended bool, err error) {
	t.line = t.line[:0]
	for {
		part, err := t.r.ReadSlice('\n')
		if len(t.line)+len(part) <= maxTraceLine {
			t.line = append(t.line, part...)
		} else {
			t.line = append(t.line[:0], "too long"...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(t.line), err == nil, err
		}
	}
}

// traceRow is a line of the trace. Times are Unix milliseconds.
type traceRow struct {
	Event struct {
		Type  string `json:"event_type"`
		Ended int64  `json:"event_time_unix_ms"`
		Req   struct {
			ID       string   `json:"request_id"`
			Received int64    `json:"request_received_ms"`
			Input    count    `json:"input_tokens"`
			Output   count    `json:"output_tokens"`
			Cached   count    `json:"cached_tokens"`
			First    *float64 `json:"ttft_ms"`
			HitRate  float64  `json:"kv_hit_rate"`
			Queue    count    `json:"queue_depth"`
			Worker   workers  `json:"worker"`
			Replay   struct {
				BlockSize count    `json:"trace_block_size"`
				Hashes    []uint64 `json:"input_sequence_hashes"`
			} `json:"replay"`
		} `json:"request"`
	} `json:"event"`
}

var errTraceLine = errors.New("it is no JSON of the form known")

// parseTraced reads a line, and reports false without an error where it is
// something else than the end of a request that a worker was chosen for.
func parseTraced(line []byte) (out Traced, ok bool, err error) {
	var row traceRow
	if json.Unmarshal(line, &row) != nil { // its error can hold what was found
		return out, false, errTraceLine
	}
	q := &row.Event.Req
	c := q.Worker.choice()
	if row.Event.Type != "request_end" || c == nil {
		return out, false, nil
	}
	const most = math.MaxInt64 / 1000000
	switch {
	case q.HitRate < 0 || q.HitRate > 1:
		return out, false, errors.New("kv_hit_rate is no share from 0 to 1")
	case q.Received < 0 || q.Received > most || row.Event.Ended < 0 || row.Event.Ended > most:
		return out, false, errors.New("a time is out of range")
	}
	out = Traced{
		At: wire.Time(q.Received * 1e6), Ended: wire.Time(row.Event.Ended * 1e6), Request: q.ID, Choice: *c,
		Length: int(q.Input), Cached: int(q.Cached), Output: int(q.Output), HitRate: q.HitRate, Queued: int(q.Queue),
		BlockSize: int(q.Replay.BlockSize), Blocks: q.Replay.Hashes, Unanswered: q.First == nil && q.Output == 0,
	}
	if out.BlockSize > 0 { // the trace hashes the block begun too
		out.Blocks = out.Blocks[:min(len(out.Blocks), out.Length/out.BlockSize)]
	}
	return out, true, nil
}
