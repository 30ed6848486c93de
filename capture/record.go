package capture

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/wire"
)

// ErrRecord says that a record cannot be written: it is larger than MaxRecord,
// or of a form that no reader would take.
var ErrRecord = errors.New("the record cannot be written")

// appendRecord appends rec: its kind's own fields, and Err.
func appendRecord(dst []byte, seq uint64, rec *wire.Record, elapsed int64) ([]byte, error) {
	start := len(dst)
	kind := slices.Index(kinds[:], rec.Kind)
	switch {
	case kind < 0:
		return dst, fmt.Errorf("%w: kind %d is not known", ErrRecord, rec.Kind)
	case len(rec.Replica) > MaxName:
		return dst, fmt.Errorf("%w: the replica's name has %d bytes, more than %d", ErrRecord, len(rec.Replica), MaxName)
	case len(rec.Frames) > MaxFrames:
		return dst, fmt.Errorf("%w: %d frames, more than %d", ErrRecord, len(rec.Frames), MaxFrames)
	}
	// Looked at before anything is copied.
	size := len(rec.Text) + len(rec.Err)
	for _, f := range rec.Frames {
		size += len(f)
	}
	if size > MaxRecord-MaxName-MaxFrames*8 {
		return dst, fmt.Errorf("%w: %d bytes, and a record can have %d", ErrRecord, size, MaxRecord)
	}
	n := uint32(6)
	if rec.Err != "" {
		n++
	}
	dst = msgp.AppendArrayHeader(dst, n)
	dst = msgp.AppendInt(dst, kind)
	dst = msgp.AppendUint64(dst, seq)
	dst = msgp.AppendInt64(dst, int64(rec.At))
	if elapsed == Unknown {
		dst = msgp.AppendNil(dst)
	} else {
		dst = msgp.AppendInt64(dst, elapsed)
	}
	dst = msgp.AppendString(dst, string(rec.Replica))
	switch kind {
	case kindFrames, kindReplayFrames:
		dst = msgp.AppendArrayHeader(dst, uint32(len(rec.Frames)))
		for _, f := range rec.Frames {
			dst = msgp.AppendBytes(dst, f)
		}
	case kindReplayBegin:
		dst = msgp.AppendUint64(dst, rec.From)
	case kindReplayEnd:
		dst = msgp.AppendNil(dst)
	case kindLink:
		state := slices.Index(links[:], rec.Link)
		if state < 0 {
			return dst[:start], fmt.Errorf("%w: link state %d is not known", ErrRecord, rec.Link)
		}
		dst = msgp.AppendArrayHeader(dst, 2)
		dst = msgp.AppendInt(dst, state)
		dst = msgp.AppendString(dst, rec.Text)
	case kindScrape, kindNote:
		dst = msgp.AppendString(dst, rec.Text)
	}
	if rec.Err != "" {
		dst = msgp.AppendString(dst, rec.Err)
	}
	return dst, nil
}

// entry is a record as it stands in a file.
type entry struct {
	wire.Record
	seq     uint64
	elapsed int64
	// known is false for a kind of record that a newer version added.
	known bool
}

// parseRecord reads the record that b begins with. Frames alias b. Where it
// fails, rest is what follows the record, or nil if that cannot be found.
func parseRecord(b []byte, name func([]byte) wire.Replica) (e entry, rest []byte, err error) {
	d := fields{b: b}
	n := d.list(maxChunk)
	kind := d.int()
	e.seq = d.uint()
	e.At = wire.Time(d.int())
	e.elapsed = Unknown
	if !d.null() {
		e.elapsed = d.int()
	}
	replica := d.text(MaxName)
	e.known = d.err == nil && kind >= 0 && kind < int64(len(kinds))
	if e.known {
		e.Kind = kinds[kind]
		e.Replica = name(replica)
		d.value(&e)
		n--
	}
	if n -= 5; n > 0 && e.known {
		e.Err = string(d.text(MaxRecord))
		n--
	}
	d.skip(n)
	if d.err == nil {
		return e, d.b, nil
	}
	rest, skipErr := msgp.Skip(b)
	if skipErr != nil {
		rest = nil
	}
	return entry{}, rest, d.err
}

// value reads the field that depends on the kind.
func (d *fields) value(e *entry) {
	switch e.Kind {
	case wire.Frames, wire.ReplayFrames:
		n := d.list(MaxFrames)
		if d.err != nil {
			return
		}
		e.Frames = make([][]byte, n)
		for i := range e.Frames {
			e.Frames[i] = d.bytes()
		}
	case wire.ReplayBegin:
		e.From = d.uint()
	case wire.ReplayEnd:
		d.skip(1)
	case wire.Link:
		n := d.list(maxChunk)
		if state := d.uint(); state < uint64(len(links)) {
			e.Link = links[state]
		}
		e.Text = string(d.text(MaxRecord))
		d.skip(n - 2)
	case wire.Scrape, wire.Note:
		e.Text = string(d.text(MaxRecord))
	}
}

// fields reads msgpack values one after the other. Once it has failed it stays
// so and gives zero values.
type fields struct {
	b   []byte
	err error
}

func (d *fields) fail(err error) {
	if d.err == nil && err != nil {
		d.err = errShape
	}
}

// list reads the head of a list of at most limit values, which can all follow.
func (d *fields) list(limit int) int {
	if d.err != nil {
		return 0
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(d.b)
	if err == nil && (uint64(n) > uint64(limit) || uint64(n) > uint64(len(rest))) {
		err = errShape
	}
	if d.fail(err); err != nil {
		return 0
	}
	d.b = rest
	return int(n)
}

func (d *fields) int() (v int64) {
	if d.err == nil {
		var err error
		v, d.b, err = msgp.ReadInt64Bytes(d.b)
		d.fail(err)
	}
	return v
}

func (d *fields) uint() (v uint64) {
	if d.err == nil {
		var err error
		v, d.b, err = msgp.ReadUint64Bytes(d.b)
		d.fail(err)
	}
	return v
}

// text reads text or bytes of at most limit bytes; it aliases b.
func (d *fields) text(limit int) []byte {
	if d.err != nil {
		return nil
	}
	text, rest, err := msgp.ReadMapKeyZC(d.b)
	if err == nil && len(text) > limit {
		err = errShape
	}
	if d.fail(err); err != nil {
		return nil
	}
	d.b = rest
	return text
}

// bytes reads bytes; they alias b, with no room behind them.
func (d *fields) bytes() []byte {
	if d.err != nil {
		return nil
	}
	bin, rest, err := msgp.ReadBytesZC(d.b)
	if d.fail(err); err != nil {
		return nil
	}
	d.b = rest
	return bin[:len(bin):len(bin)]
}

func (d *fields) null() bool {
	if d.err != nil || len(d.b) == 0 || d.b[0] != 0xc0 {
		return false
	}
	d.b = d.b[1:]
	return true
}

func (d *fields) boolean() *bool {
	if d.err != nil || d.null() {
		return nil
	}
	v, rest, err := msgp.ReadBoolBytes(d.b)
	if d.fail(err); err != nil {
		return nil
	}
	d.b = rest
	return &v
}

// skip passes n values; n below 0 is a list that was too short.
func (d *fields) skip(n int) {
	if n < 0 {
		d.fail(errShape)
	}
	for ; n > 0 && d.err == nil; n-- {
		rest, err := msgp.Skip(d.b)
		if d.fail(err); err == nil {
			d.b = rest
		}
	}
}
