package wire

import (
	"context"
	"encoding/hex"
	"math"
	"strconv"
)

// Time is a moment in nanoseconds since the Unix epoch. Zero means unknown.
type Time int64

// TimeOf converts Unix seconds, the form that engines and recordings use.
// It reports false for values that are not finite or do not fit.
func TimeOf(seconds float64) (Time, bool) {
	ns := seconds * 1e9
	if math.IsNaN(ns) || ns < -1<<62 || ns > 1<<62 {
		return 0, false
	}
	return Time(math.Round(ns)), true
}

// Seconds gives t in Unix seconds.
func (t Time) Seconds() float64 { return float64(t) / 1e9 }

// MarshalJSON writes Unix seconds with microseconds, the precision that
// float64 seconds still carry today.
func (t Time) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, math.Round(float64(t)/1e3)/1e6, 'f', -1, 64), nil
}

// Replica names one event publisher: one engine data-parallel rank, as `pod`
// or `pod/rank`. On Dynamo's event plane it is `worker/rank`, both in decimal.
type Replica string

// Token is a token id. Engines use 32-bit ids; SGLang hashes wider ones in a
// form of their own, so they are kept whole.
type Token uint64

// Handle is the engine's own hash of a block: opaque, valid within one replica
// epoch, or within all replicas that share hash recipe and root. The zero
// Handle means "none".
type Handle struct {
	// N is the integer form. Signed hashes are reinterpreted as unsigned, so
	// an engine that switches between the two keeps its handles. For byte
	// hashes N is their last 8 bytes, big-endian: the integer that vLLM would
	// have sent for the same digest.
	N uint64
	// S holds the bytes of a byte hash, and is empty for integers.
	S string
	// Set tells a hash of 0 from no hash at all.
	Set bool
}

// IntHandle is the handle of an integer hash.
func IntHandle(n uint64) Handle { return Handle{N: n, Set: true} }

// BytesHandle is the handle of a byte hash of any width. It copies b.
func BytesHandle(b []byte) Handle {
	var n uint64
	for _, c := range b[max(0, len(b)-8):] {
		n = n<<8 | uint64(c)
	}
	return Handle{N: n, S: string(b), Set: true}
}

// String gives 16 hexadecimal digits for integers, all bytes for byte hashes
// and "-" for none.
func (h Handle) String() string {
	switch {
	case !h.Set:
		return "-"
	case h.S != "":
		return hex.EncodeToString([]byte(h.S))
	}
	const digits = "0123456789abcdef"
	var b [16]byte
	for i := range b {
		b[i] = digits[h.N>>(60-4*i)&15]
	}
	return string(b[:])
}

// HandleForm says which forms of hash an event, or a whole stream, has used.
type HandleForm uint8

// The forms of a hash on the wire; a stream can show several.
const (
	FormUnsigned HandleForm = 1 << iota // a non-negative integer
	FormSigned                          // a negative integer
	FormBytes                           // a byte string
)

// Tier is where a block lives.
type Tier uint8

// The tiers, from fastest to slowest.
const (
	Device   Tier = iota // the accelerator's own memory
	Host                 // host memory
	Disk                 // local storage
	External             // a store shared over the network
	NumTiers = iota
)

var tierNames = [NumTiers]string{"device", "host", "disk", "external"}

func (t Tier) String() string {
	if int(t) < len(tierNames) {
		return tierNames[t]
	}
	return "tier " + strconv.Itoa(int(t))
}

// EventKind says what an event tells.
type EventKind uint8

// The kinds of event. Everything the decoder does not know is Unknown: kept
// and counted, never applied. Bad is an event of a known kind whose fields
// could not be read; Event.Err says why.
const (
	Unknown EventKind = iota
	Stored
	Removed
	Cleared
	Bad
)

var kindNames = [...]string{"unknown", "stored", "removed", "cleared", "undecodable"}

func (k EventKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// ExtraKey is one element of a block's extra keys: what besides tokens makes
// its content. Exactly one of the forms below is filled.
type ExtraKey struct {
	// Text is a LoRA name, a cache salt or a bare multimodal hash; the wire
	// does not say which (vLLM publishes them untagged).
	Text string
	// Bytes is a prompt-embeddings digest.
	Bytes []byte
	// Int is a LoRA id (vLLM up to 0.11.0) when IsInt is set.
	Int   int64
	IsInt bool
	// List is a multimodal item, [hash, offset], or a tagged tuple.
	List []ExtraKey
}

// Event is one decoded cache event. Slices belong to the event.
type Event struct {
	Kind EventKind
	// Name is the tag as the engine spelled it, also for unknown kinds.
	Name string
	// Hashes names the blocks stored or removed, in the engine's order.
	Hashes []Handle
	// Form says how they were written.
	Form HandleForm
	// Parent is the block before the first one stored; unset at the root.
	Parent Handle
	// Tokens are all ids that the store spans: BlockSize for each block when
	// the two align. With Bigram, token ids came as overlapping pairs
	// (speculative decoding) and Tokens is the sequence that they were made
	// of, one longer than the pairs.
	Tokens []Token
	Bigram bool
	// OpaqueTokens says that token ids came but are not one sequence of ids:
	// pairs that do not overlap, or digests in place of ids (TensorRT-LLM).
	// Tokens is empty then, and the event is not Aligned.
	OpaqueTokens bool
	// Locals are the local content hashes of the blocks (Dynamo's), one for
	// each of Hashes, where they come in place of Tokens: on Dynamo's event
	// plane.
	Locals []uint64
	// BlockSize is in tokens; 0 where the engine does not say.
	BlockSize int
	LoRAID    *int64
	LoRAName  string
	// Salt is the cache salt where the dialect has a field for it (SGLang).
	Salt string
	// Medium is the tier as the engine spelled it, and Tier what it means. An
	// unknown spelling is External and sets UnknownMedium.
	Medium        string
	Tier          Tier
	UnknownMedium bool
	// Extra holds the extra keys of each block, or is nil.
	Extra [][]ExtraKey
	// Group is the KV-cache group of a hybrid model, -1 where not given.
	Group  int
	Spec   string // the group's attention kind, e.g. full_attention
	Window int    // its sliding window in tokens, 0 if none
	// Locality, Ownership and Session are as the engine spelled them.
	Locality, Ownership, Session string
	// Lookahead holds, for each block, the speculative tokens behind it that
	// its hash covers too (vLLM 0.33).
	Lookahead [][]Token
	// MMKeys counts TensorRT-LLM's multimodal keys, which are not interpreted.
	MMKeys int
	// Fields are the known fields that were there, nil or not.
	Fields FieldSet
	// UnknownFields counts fields and values that the decoder skipped.
	UnknownFields int
	// Array tells a positional array from a map, and Plane an event of Dynamo's
	// event plane from an engine's.
	Array, Plane bool
	// Len is the number of array elements or map entries.
	Len int
	// Err is set when Kind is Bad.
	Err error
	// Raw is the event's own bytes, set when Kind is Unknown or Bad. It
	// aliases the payload.
	Raw []byte
}

// Aligned reports whether the store's tokens divide evenly among its hashes,
// so that each hash can be given its tokens. Skipped blocks, hybrid tails and
// placeholders are not aligned and are indexed by handle alone.
func (e *Event) Aligned() bool {
	n := len(e.Tokens)
	if e.Bigram {
		n--
	}
	// Divided, because a hostile block size times the hashes can wrap around.
	h := len(e.Hashes)
	return h > 0 && e.BlockSize > 0 && n > 0 && n%h == 0 && n/h == e.BlockSize
}

// Batch is one message of a publisher.
type Batch struct {
	Topic string
	// Seq counts batches per publisher process from 0.
	Seq uint64
	// Engine is the engine's own time at the end of the step, 0 if unusable. On
	// Dynamo's event plane it is the publisher's time of sending.
	Engine Time
	Events []Event
	// Rank is the data-parallel rank, -1 where the batch does not say.
	Rank int
	// Len is the number of elements of the batch; MapBatch and IntTime note
	// forms that some consumers refuse.
	Len      int
	MapBatch bool
	IntTime  bool
	// Bytes is the size of the payload.
	Bytes int
}

// RecordKind says what a Record holds.
type RecordKind uint8

// The kinds of record.
const (
	// Frames is one message as received, in a form that SplitFrames knows, or a
	// load message (see DecodeLoad).
	Frames RecordKind = iota
	// ReplayFrames is one message of a replay answer, delimiter included.
	ReplayFrames
	// ReplayBegin says that a replay from Record.From was asked for.
	ReplayBegin
	// ReplayEnd says that the answer is over: complete, or Err says why not.
	ReplayEnd
	// Link is a change of the connection; see Record.Link.
	Link
	// Scrape is a metrics page in Text, or Err.
	Scrape
	// Note is a remark for people.
	Note
)

// LinkState is the state of a connection to a replica.
type LinkState uint8

// The states of a link.
const (
	LinkUnknown LinkState = iota
	LinkConnecting
	LinkUp
	LinkDown
	LinkRefused
	LinkGone // taken away: discovery does not know the publisher any more
)

var linkNames = [...]string{"unknown", "connecting", "up", "down", "refused", "gone"}

func (s LinkState) String() string {
	if int(s) < len(linkNames) {
		return linkNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// Record is one thing that happened at a tap, as received.
type Record struct {
	// At is when it was received.
	At      Time
	Replica Replica
	Kind    RecordKind
	// Frames is filled for Frames and ReplayFrames.
	Frames [][]byte
	// From is the first sequence asked for (ReplayBegin).
	From uint64
	Link LinkState
	// Text is a metrics page, a note, or the transport's word for the link.
	Text string
	// Err is what failed, in words.
	Err string
}

// Source yields records in the order in which they were received. Next
// returns io.EOF at the end; a *DamagedError at the end says that what came
// before is all that could be read. Any other error is final too.
type Source interface {
	Next(ctx context.Context) (Record, error)
}

// Facts are what a replica says about itself; zero values are unknown.
type Facts struct {
	Model     string
	BlockSize int
	// Capacity is the number of blocks the device tier can hold for requests
	// (vLLM: num_gpu_blocks minus the null block).
	Capacity int
	HashAlgo string
	// PrefixCaching is nil where unknown.
	PrefixCaching *bool
	// Started is when the serving process started.
	Started Time
	// Buffer and HWM are the publisher's buffer_steps and hwm in batches, 0 where
	// unknown.
	Buffer, HWM int
}

// Load is a replica's load at one moment, as scraped.
type Load struct {
	At      Time
	Known   bool
	Running float64 // requests
	Waiting float64 // requests
	// KVUsage is the share of device blocks held by running requests, 0 to 1.
	KVUsage float64
	// QueriedTokens and HitTokens count prompt tokens looked up in, and served
	// from, the engine's prefix cache since it started.
	QueriedTokens, HitTokens float64
	// Requests counts finished requests since the engine started.
	Requests float64
}

// HitRate is the engine's own hit rate since it started, by tokens, 0 to 1. It
// reports false where the engine gives none, or one that cannot be.
func (l *Load) HitRate() (float64, bool) {
	rate := l.HitTokens / l.QueriedTokens
	return rate, l.QueriedTokens > 0 && rate >= 0 && rate <= 1
}
