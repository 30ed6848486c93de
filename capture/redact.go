package capture

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// RedactOptions say what of a capture others may read.
type RedactOptions struct {
	// Random gives the key, 48 bytes, which is used for this one call and kept
	// nowhere. It must be cryptographic, such as crypto/rand.Reader.
	Random io.Reader
	// KeepNames keeps the names of replicas, and of pods in topics and in
	// metrics pages.
	KeepNames bool
	// HideModels replaces the names of models too.
	HideModels bool
}

// Redaction counts what a redacted capture has lost.
type Redaction struct {
	Records uint64
	// Payloads counts messages that were re-encoded.
	Payloads uint64
	// Undecodable counts payloads that are no batch, and Odd messages without
	// the frames of one, routers' bookings included, whose hashes of whole prompts
	// would fit nothing in the copy. In the copy both are empty, so that no sequence number
	// is missing there and what could not be read still cannot.
	Undecodable, Odd uint64
	// Events counts unknown and unreadable events, whose place an empty one of
	// the same kind takes.
	Events uint64
	// Fields counts unknown fields and values, which are left out.
	Fields uint64
	// Opaque counts stores whose token ids were no sequence; what they were is
	// left out.
	Opaque uint64
	// Lines counts lines of metrics pages that are no sample, HELP and TYPE
	// included, Texts notes and error messages, all of which are left out.
	Lines, Texts uint64
}

// Kept says in sentences, one each, what a redacted capture cannot tell any
// more, and what it still does.
func (*Redaction) Kept() []string {
	return []string{
		"Token ids, block hashes, extra keys, salts, adapters and sessions are replaced under a key that is thrown away: equal stays equal, different stays different.",
		"Kept: block structure, parent links, shared prefixes, the token at which prompts diverge, tiers, groups, sequence numbers and times.",
		"Lost: what the text was, so neither what kind of text broke a prefix nor whether a shift of the alignment did can be told.",
		"Lost: the engine's hash recipe and root, so handles can no longer be computed from a prompt.",
		"Lost: the offline look-up of prompts, whose token ids no longer match.",
		"Still told: lengths of prompts, times, how often and where each prefix was used, offsets of multimodal items, metrics values and the engine's own settings.",
	}
}

// Redact appends to w a copy of src that holds no prompt: see Redaction.Kept.
// Each payload is decoded and written anew in its own dialect, so nothing that
// was not understood is copied. All records stay, in their order. A source's
// header takes a Redactor.
//
// The error is nil at a clean end, or what ended src: all that could be read is
// in w then.
func Redact(ctx context.Context, w *Writer, src wire.Source, opt RedactOptions) (Redaction, error) {
	r, err := NewRedactor(opt)
	if err != nil {
		return Redaction{}, err
	}
	return r.Redact(ctx, w, src)
}

// Redactor redacts under one key. It is not safe for concurrent use.
type Redactor struct {
	opt    RedactOptions
	secret *secret
	count  Redaction
}

// NewRedactor takes the key. It fails if opt.Random does.
func NewRedactor(opt RedactOptions) (*Redactor, error) {
	s, err := newSecret(opt.Random)
	if err != nil {
		return nil, err
	}
	return &Redactor{opt: opt, secret: s}, nil
}

// Header gives the header for a redacted copy.
func (r *Redactor) Header(h Header) Header {
	facts := make([]ReplicaFacts, len(h.Facts))
	for i, f := range h.Facts {
		f.Replica, f.Model = wire.Replica(r.name(string(f.Replica))), r.model(f.Model)
		if !plainWord.MatchString(f.HashAlgo) {
			f.HashAlgo = ""
		}
		facts[i] = f
	}
	return Header{Version: h.Version, Tool: h.Tool, Created: h.Created, Facts: facts, Hold: h.Hold}
}

// Name gives what stands for a replica's name.
func (r *Redactor) Name(name wire.Replica) wire.Replica { return wire.Replica(r.name(string(name))) }

// Count says what was lost up to now.
func (r *Redactor) Count() Redaction { return r.count }

// Redact is the function of this name, under r's key; w should have the header
// that Header gives.
func (r *Redactor) Redact(ctx context.Context, w *Writer, src wire.Source) (Redaction, error) {
	r.count = Redaction{}
	_, err := each(ctx, w, src, func(rec *wire.Record) bool {
		*rec = r.Record(*rec)
		return true
	})
	return r.count, err
}

var (
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_.+-]{1,32}$`)
	linkWord  = regexp.MustCompile(`^EVENT_[A-Z_]{1,40}$`)
)

// redacted stands in the place of a text that is left out.
const redacted = "(redacted)"

// Record gives the redacted copy of a record.
func (r *Redactor) Record(rec wire.Record) wire.Record {
	r.count.Records++
	out := wire.Record{
		At: rec.At, Replica: wire.Replica(r.name(string(rec.Replica))),
		Kind: rec.Kind, From: rec.From, Link: rec.Link,
	}
	switch rec.Kind {
	case wire.Frames:
		out.Frames = r.message(rec.Frames)
	case wire.ReplayFrames:
		out.Frames = r.reply(rec.Frames)
	case wire.Link:
		if out.Text = rec.Text; !linkWord.MatchString(rec.Text) {
			out.Text = r.drop(rec.Text)
		}
	case wire.Scrape:
		out.Text = r.page(rec.Text)
	case wire.Note:
		out.Text = r.drop(rec.Text)
	}
	out.Err = r.drop(rec.Err)
	return out
}

// drop leaves a text out, but for that there was one.
func (r *Redactor) drop(text string) string {
	if text == "" {
		return ""
	}
	r.count.Texts++
	return redacted
}

// oddMessage has the frames of nothing.
func (r *Redactor) oddMessage() [][]byte {
	r.count.Odd++
	return [][]byte{{}}
}

func (r *Redactor) message(frames [][]byte) [][]byte {
	if out, ok := r.planeMessage(frames); ok {
		return out
	}
	if _, isLoad, err := wire.DecodeLoad(frames); isLoad && err == nil {
		return r.loadStat(frames)
	}
	topic, seq, payload, err := wire.SplitFrames(frames)
	if err != nil {
		return r.oddMessage()
	}
	return [][]byte{[]byte(r.topic(topic)), binary.BigEndian.AppendUint64(nil, seq), r.payload(payload)}
}

func (r *Redactor) reply(frames [][]byte) [][]byte {
	reply, err := wire.SplitReply(frames)
	if err != nil {
		return r.oddMessage()
	}
	var out [][]byte
	want := 2
	if reply.HasTopic {
		want++
	}
	if len(frames) > want {
		out = append(out, []byte{})
	}
	if reply.HasTopic {
		out = append(out, []byte(r.topic(reply.Topic)))
	}
	payload := []byte{}
	if !reply.End {
		payload = r.payload(reply.Payload)
	}
	return append(out, binary.BigEndian.AppendUint64(nil, reply.Seq), payload)
}

// plainTopics are topics that name nobody.
var plainTopics = map[string]bool{"": true, "kv": true, "kv_events": true, wire.PlaneEvents: true, wire.PlaneLoad: true}

// topic keeps the deployers' form kv@<pod>@<model>.
func (r *Redactor) topic(topic string) string {
	if plainTopics[topic] {
		return topic
	}
	if parts := strings.SplitN(topic, "@", 3); len(parts) > 1 && parts[0] == "kv" {
		parts[1] = r.name(parts[1])
		if len(parts) > 2 {
			parts[2] = r.model(parts[2])
		}
		return strings.Join(parts, "@")
	}
	return r.name(topic)
}

func (r *Redactor) name(name string) string {
	if r.opt.KeepNames {
		return name
	}
	if of, ok := wire.LoadOf(wire.Replica(name)); ok {
		return string(wire.LoadName(wire.Replica(r.name(string(of)))))
	}
	// Of Dynamo's event plane; see worker.
	if pod, rank, ok := strings.Cut(name, "/"); ok && isCount(rank) {
		if id, err := strconv.ParseUint(pod, 10, 64); err == nil {
			return strconv.FormatUint(r.worker(id), 10) + "/" + rank
		}
	}
	return r.secret.name(name)
}

func (r *Redactor) model(name string) string {
	if r.opt.HideModels {
		return r.secret.model(name)
	}
	return name
}

// String sums the losses up, for people.
func (c Redaction) String() string {
	return fmt.Sprintf("%s, %d payloads re-encoded; left out: %d payloads that could not be decoded, %d odd messages and routers' bookings, "+
		"%d unknown or unreadable events, %d unknown fields, %d opaque token lists, %d lines of metrics pages, %d notes and errors",
		records(c.Records), c.Payloads, c.Undecodable, c.Odd, c.Events, c.Fields, c.Opaque, c.Lines, c.Texts)
}
