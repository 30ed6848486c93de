package capture

import (
	"errors"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/wire"
)

// Version is the version of the format that is written. A file of a higher
// version is refused. Within a version, kinds of record and trailing fields
// that are not known are skipped and counted.
const Version = 1

// Bounds of a capture.
const (
	// MaxRecord is the largest encoded record, in bytes.
	MaxRecord = 128 << 20
	// MaxReplicas is the most replicas that facts are kept of, and that Info
	// counts one by one.
	MaxReplicas = 1 << 16
	// MaxFrames is the most frames of one message, as in JSON Lines.
	MaxFrames = 64
	// MaxName is the longest name of a replica, in bytes.
	MaxName = 4 << 10
	// MaxHold is the most live batches that a header can say were held back.
	MaxHold = 1 << 20

	// chunkBytes is after how many bytes of records a chunk is closed, and
	// chunkTime after how much time between them.
	chunkBytes = 256 << 10
	chunkTime  = wire.Time(1e9)
	// maxChunk bounds what one chunk unpacks to: a full one and the largest
	// record behind it.
	maxChunk = MaxRecord + 2*chunkBytes
	// maxFact is the longest text in the header, in bytes.
	maxFact = 64 << 10
)

const magic = "kvscope capture"

// The kinds of record in a file. Those below kindHeader are things that
// happened and count in the sequence.
const (
	kindFrames = iota
	kindReplayFrames
	kindReplayBegin
	kindReplayEnd
	kindLink
	kindScrape
	kindNote
	kindHeader = 32
	kindIndex  = 33
)

// kinds are the kinds of record in the file's numbers, which stay as they are
// whatever becomes of package wire's.
var kinds = [...]wire.RecordKind{
	kindFrames: wire.Frames, kindReplayFrames: wire.ReplayFrames,
	kindReplayBegin: wire.ReplayBegin, kindReplayEnd: wire.ReplayEnd,
	kindLink: wire.Link, kindScrape: wire.Scrape, kindNote: wire.Note,
}

// links are the states of a link in the file's numbers.
var links = [...]wire.LinkState{
	wire.LinkUnknown, wire.LinkConnecting, wire.LinkUp, wire.LinkDown, wire.LinkRefused, wire.LinkGone,
}

// Header is what a capture says of itself.
type Header struct {
	// Version is that of the format; Writers set it.
	Version int
	// Tool names the program that wrote the file, with its version.
	Tool string
	// Created is when recording began, 0 if unknown.
	Created wire.Time
	// Facts is what was known of the fleet then; what is learned later is in
	// the metrics pages.
	Facts []ReplicaFacts
	// Hold is how many live batches a replica held back behind a gap while a
	// replay was asked for, 0 where nothing could be asked. Whoever follows the
	// records needs it, to take the answers among them as they were taken.
	Hold int
}

// ReplicaFacts are the facts of one replica.
type ReplicaFacts struct {
	Replica wire.Replica
	wire.Facts
}

// Unknown is the elapsed time of a record whose monotonic time is not known.
const Unknown = math.MinInt64

// header forms the header record.
func (h *Header) append(dst []byte) ([]byte, error) {
	if len(h.Facts) > MaxReplicas {
		return dst, fmt.Errorf("capture header: facts of %d replicas, more than %d", len(h.Facts), MaxReplicas)
	}
	if h.Hold < 0 || h.Hold > MaxHold {
		return dst, fmt.Errorf("capture header: %d batches held back: want 0 to %d", h.Hold, MaxHold)
	}
	dst = msgp.AppendArrayHeader(dst, 7)
	dst = msgp.AppendInt(dst, kindHeader)
	dst = msgp.AppendString(dst, magic)
	dst = msgp.AppendInt(dst, Version)
	dst = msgp.AppendString(dst, h.Tool)
	dst = msgp.AppendInt64(dst, int64(h.Created))
	dst = msgp.AppendArrayHeader(dst, uint32(len(h.Facts)))
	long := len(h.Tool) > maxFact
	for i := range h.Facts {
		f := &h.Facts[i]
		long = long || len(f.Replica) > MaxName || len(f.Model) > maxFact || len(f.HashAlgo) > maxFact
		dst = msgp.AppendArrayHeader(dst, 7)
		dst = msgp.AppendString(dst, string(f.Replica))
		dst = msgp.AppendString(dst, f.Model)
		dst = msgp.AppendInt(dst, f.BlockSize)
		dst = msgp.AppendInt(dst, f.Capacity)
		dst = msgp.AppendString(dst, f.HashAlgo)
		if f.PrefixCaching == nil {
			dst = msgp.AppendNil(dst)
		} else {
			dst = msgp.AppendBool(dst, *f.PrefixCaching)
		}
		dst = msgp.AppendInt64(dst, int64(f.Started))
	}
	dst = msgp.AppendInt(dst, h.Hold)
	if long || len(dst) > maxChunk {
		return dst, errors.New("capture header: a text is too long")
	}
	return dst, nil
}

var (
	errNoCapture = errors.New("not a capture of kvscope")
	errShape     = errors.New("a record of another form than the format's")
)

// newerError says that a file has a higher version than ours.
type newerError int

func (v newerError) Error() string {
	return fmt.Sprintf("written in version %d of the format, and this kvscope reads up to %d: update it", int(v), Version)
}

// parseHeader reads the header record that b begins with.
func parseHeader(b []byte) (h Header, rest []byte, err error) {
	d := fields{b: b}
	n := d.list(maxChunk)
	if d.int() != kindHeader || string(d.text(len(magic))) != magic || d.err != nil {
		return h, nil, errNoCapture
	}
	if h.Version = int(d.int()); d.err == nil && h.Version > Version {
		return h, nil, newerError(h.Version)
	}
	h.Tool = string(d.text(maxFact))
	h.Created = wire.Time(d.int())
	count := d.list(MaxReplicas)
	if d.err == nil && count > 0 {
		h.Facts = make([]ReplicaFacts, 0, count)
	}
	for ; count > 0 && d.err == nil; count-- {
		var f ReplicaFacts
		m := d.list(maxChunk)
		f.Replica = wire.Replica(d.text(MaxName))
		f.Model = string(d.text(maxFact))
		f.BlockSize, f.Capacity = int(d.int()), int(d.int())
		f.HashAlgo = string(d.text(maxFact))
		f.PrefixCaching = d.boolean()
		f.Started = wire.Time(d.int())
		d.skip(m - 7)
		h.Facts = append(h.Facts, f)
	}
	if n -= 6; n > 0 { // the first files ended here
		h.Hold = int(min(max(0, d.int()), MaxHold))
		n--
	}
	d.skip(n)
	if d.err != nil || h.Version < 1 {
		return Header{}, nil, errNoCapture
	}
	return h, d.b, nil
}

// chunkIndex is the first record of a chunk: what its records span.
type chunkIndex struct {
	first, records uint64
	// from and until bound the times of the chunk's records. high is the
	// highest time of all records from the file's beginning to this chunk's
	// end: it never falls, even when the clock does, so it can be searched.
	from, until, high wire.Time
}

// maxIndex is the longest index record, in bytes.
const maxIndex = 3 + 5*9

func (x *chunkIndex) append(dst []byte) []byte {
	dst = msgp.AppendArrayHeader(dst, 6)
	dst = msgp.AppendInt(dst, kindIndex)
	dst = msgp.AppendUint64(dst, x.first)
	dst = msgp.AppendUint64(dst, x.records)
	dst = msgp.AppendInt64(dst, int64(x.from))
	dst = msgp.AppendInt64(dst, int64(x.until))
	return msgp.AppendInt64(dst, int64(x.high))
}

func parseIndex(b []byte) (x chunkIndex, rest []byte, err error) {
	d := fields{b: b}
	n := d.list(maxChunk)
	if d.int() != kindIndex && d.err == nil {
		d.err = errShape
	}
	x.first, x.records = d.uint(), d.uint()
	x.from, x.until, x.high = wire.Time(d.int()), wire.Time(d.int()), wire.Time(d.int())
	d.skip(n - 6)
	return x, d.b, d.err
}
