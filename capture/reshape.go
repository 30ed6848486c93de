package capture

import (
	"bytes"
	"encoding/hex"
	"math"

	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/wire"
)

// This file writes decoded batches anew, in the dialect that they came in and
// with replaced values. It is as true to the form as decoding is: what
// wire.Decode gives for the copy differs in nothing but the replaced values,
// the unknown fields and the sizes.

// positions are the fields of array events behind the tag, as in package wire.
var positions = [...][]string{
	wire.Stored: {
		"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
		"group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership",
		"session_id", "lookahead_token_ids",
	},
	wire.Removed: {
		"block_hashes", "medium",
		"group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership",
	},
	wire.Cleared: {"ownership"},
}

// mapFields are the keys of map events, in the order of engines.
var mapFields = append(positions[wire.Stored][:len(positions[wire.Stored]):len(positions[wire.Stored])],
	"cache_salt", "mm_keys")

// keptWords are the values of text fields that are the engine's own words.
var keptWords = map[string]bool{
	"full_attention": true, "mla_attention": true, "sink_full_attention": true,
	"sliding_window": true, "sliding_window_mla": true, "mamba": true, "chunked_local_attention": true,
	"encoder_only_attention": true, "cross_attention": true,
	"LOCAL": true, "REMOTE": true, "kvcr": true, "worker": true, "cache_owner": true,
}

// payload writes a payload anew; it is empty where it cannot be decoded.
func (r *Redactor) payload(payload []byte) []byte {
	batch, err := wire.Decode("", 0, payload)
	if err != nil {
		r.count.Undecodable++
		return []byte{}
	}
	r.count.Payloads++
	e := encoder{r: r, b: make([]byte, 0, len(payload)+len(payload)/4)}
	e.forms = hashForms(payload, &batch)
	e.batch(&batch, payload)
	return e.b
}

type encoder struct {
	r *Redactor
	b []byte
	// forms says for each event whether its byte hashes are text; nil for none.
	forms []bool
	// hex says so for the event at hand.
	hex bool
}

func (e *encoder) batch(batch *wire.Batch, payload []byte) {
	events := func() {
		e.b = msgp.AppendArrayHeader(e.b, uint32(len(batch.Events)))
		for i := range batch.Events {
			e.hex = i < len(e.forms) && e.forms[i]
			e.event(&batch.Events[i])
		}
	}
	const whole = 3
	n := min(batch.Len, whole)
	e.r.count.Fields += uint64(batch.Len - n)
	if !batch.MapBatch {
		e.b = msgp.AppendArrayHeader(e.b, uint32(n))
		e.time(batch)
		events()
		if n == whole {
			e.rank(batch)
		}
		return
	}
	ranked := batch.Rank >= 0
	timed := batch.Engine != 0 || batch.IntTime || n == whole || n == 2 && !ranked
	n = 1
	for _, has := range []bool{ranked, timed} {
		if has {
			n++
		}
	}
	e.b = msgp.AppendMapHeader(e.b, uint32(n))
	if timed {
		e.b = msgp.AppendString(e.b, "ts")
		e.time(batch)
	}
	e.b = msgp.AppendString(e.b, "events")
	events()
	if ranked {
		key := "data_parallel_rank"
		if bytes.Contains(payload, []byte("attn_dp_rank")) {
			key = "attn_dp_rank"
		}
		e.b = msgp.AppendString(e.b, key)
		e.rank(batch)
	}
}

func (e *encoder) time(batch *wire.Batch) {
	switch {
	case batch.IntTime:
		e.b = msgp.AppendInt64(e.b, int64(batch.Engine/1e9))
	case batch.Engine == 0:
		e.b = msgp.AppendNil(e.b)
	default:
		e.b = msgp.AppendFloat64(e.b, secondsOf(batch.Engine))
	}
}

// secondsOf gives the float64 that decodes to t: dividing can miss it by the
// last digit.
func secondsOf(t wire.Time) float64 {
	s := t.Seconds()
	for _, try := range []float64{s, math.Nextafter(s, math.Inf(1)), math.Nextafter(s, math.Inf(-1))} {
		if got, ok := wire.TimeOf(try); ok && got == t {
			return try
		}
	}
	return s
}

func (e *encoder) rank(batch *wire.Batch) {
	if batch.Rank < 0 {
		e.b = msgp.AppendNil(e.b)
		return
	}
	e.b = msgp.AppendInt(e.b, batch.Rank)
}

func (e *encoder) event(v *wire.Event) {
	e.r.count.Fields += uint64(v.UnknownFields)
	switch {
	case v.Kind == wire.Unknown: // an array whose tag is none
		e.r.count.Events++
		e.b = msgp.AppendString(msgp.AppendArrayHeader(e.b, 1), redacted)
	case v.Kind == wire.Bad: // an array without a tag
		e.r.count.Events++
		e.b = msgp.AppendArrayHeader(e.b, 0)
	case v.Array:
		e.arrayEvent(v)
	default:
		e.mapEvent(v)
	}
}

// arrayEvent writes the positions up to the last one that was there.
func (e *encoder) arrayEvent(v *wire.Event) {
	names := positions[v.Kind]
	n := 0
	metadata := false
	for i, name := range names {
		if v.Fields.Has(name) {
			n = i + 1
		}
	}
	// SGLang writes a map in the place of lora_name.
	const lora = 6
	if v.Kind == wire.Stored && !v.Fields.Has("lora_name") && (n > lora || v.Fields.Has("cache_salt")) {
		metadata, n = true, max(n, lora+1)
		if v.Fields.Has("session_id") && !v.Fields.Has("ownership") {
			// The session came with the map, and not at the end.
			n = lora + 1
			for i, name := range names[:len(names)-2] {
				if v.Fields.Has(name) {
					n = max(n, i+1)
				}
			}
		}
	}
	e.b = msgp.AppendArrayHeader(e.b, uint32(n+1))
	e.b = msgp.AppendString(e.b, v.Name)
	for i, name := range names[:n] {
		if metadata && i == lora {
			e.metadata(v, n)
			continue
		}
		e.field(v, name)
	}
}

// metadata writes SGLang's map of an array event of n positions.
func (e *encoder) metadata(v *wire.Event, n int) {
	const session = 13
	keys := make([]string, 0, 2)
	if v.Fields.Has("cache_salt") {
		keys = append(keys, "cache_salt")
	}
	if v.Fields.Has("session_id") && n <= session {
		keys = append(keys, "session_id")
	}
	e.b = msgp.AppendMapHeader(e.b, uint32(len(keys)))
	for _, key := range keys {
		e.b = msgp.AppendString(e.b, key)
		e.field(v, key)
	}
}

func (e *encoder) mapEvent(v *wire.Event) {
	n := uint32(1)
	for _, name := range mapFields {
		if v.Fields.Has(name) {
			n++
		}
	}
	e.b = msgp.AppendMapHeader(e.b, n)
	e.b = msgp.AppendString(e.b, "type")
	e.b = msgp.AppendString(e.b, v.Name)
	for _, name := range mapFields {
		if v.Fields.Has(name) {
			e.b = msgp.AppendString(e.b, name)
			e.field(v, name)
		}
	}
}

// field writes one field's value; nil where it holds nothing.
func (e *encoder) field(v *wire.Event, name string) {
	s := e.r.secret
	switch name {
	case "block_hashes":
		e.hashes(v)
	case "parent_block_hash":
		e.hash(v, v.Parent)
	case "token_ids":
		e.tokens(v)
	case "block_size":
		e.b = msgp.AppendInt(e.b, v.BlockSize)
	case "lora_id":
		if v.LoRAID == nil {
			e.b = msgp.AppendNil(e.b)
			return
		}
		e.b = msgp.AppendInt64(e.b, int64(s.number(adapterDomain, uint64(*v.LoRAID))))
	case "lora_name":
		e.text(s.text(v.LoRAName))
	case "extra_keys":
		e.extra(v.Extra)
	case "medium":
		medium := v.Medium
		if v.UnknownMedium {
			medium = s.text(medium)
		}
		e.text(medium)
	case "group_idx":
		e.count(v.Group, -1)
	case "kv_cache_spec_sliding_window":
		e.count(v.Window, 0)
	case "kv_cache_spec_kind":
		e.word(v.Spec)
	case "locality":
		e.word(v.Locality)
	case "ownership":
		e.word(v.Ownership)
	case "session_id":
		e.text(s.text(v.Session))
	case "cache_salt":
		e.text(s.text(v.Salt))
	case "lookahead_token_ids":
		lists(e, v.Lookahead, e.ids)
	case "mm_keys": // only their number is known
		e.b = msgp.AppendArrayHeader(e.b, 1)
		e.b = msgp.AppendArrayHeader(e.b, uint32(v.MMKeys))
		for range v.MMKeys {
			e.b = msgp.AppendNil(e.b)
		}
	}
}

func (e *encoder) text(t string) {
	if t == "" {
		e.b = msgp.AppendNil(e.b)
		return
	}
	e.b = msgp.AppendString(e.b, t)
}

func (e *encoder) word(w string) {
	if !keptWords[w] {
		w = e.r.secret.text(w)
	}
	e.text(w)
}

func (e *encoder) count(n, none int) {
	if n == none {
		e.b = msgp.AppendNil(e.b)
		return
	}
	e.b = msgp.AppendInt(e.b, n)
}

func (e *encoder) hashes(v *wire.Event) {
	if v.Hashes == nil {
		e.b = msgp.AppendNil(e.b)
		return
	}
	e.b = msgp.AppendArrayHeader(e.b, uint32(len(v.Hashes)))
	for _, h := range v.Hashes {
		e.hash(v, h)
	}
}

func (e *encoder) hash(v *wire.Event, h wire.Handle) {
	h = e.r.secret.handle(h)
	switch {
	case !h.Set:
		e.b = msgp.AppendNil(e.b)
	case h.S != "" && e.hex:
		e.b = msgp.AppendString(e.b, hex.EncodeToString([]byte(h.S)))
	case h.S != "":
		e.b = msgp.AppendBytes(e.b, []byte(h.S))
	case v.Form&wire.FormSigned != 0:
		e.b = msgp.AppendInt64(e.b, int64(h.N))
	default:
		e.b = msgp.AppendUint64(e.b, h.N)
	}
}

func (e *encoder) tokens(v *wire.Event) {
	pair := func(a, b wire.Token) {
		e.b = msgp.AppendArrayHeader(e.b, 2)
		e.b = msgp.AppendUint64(msgp.AppendUint64(e.b, uint64(a)), uint64(b))
	}
	s := e.r.secret
	switch {
	case v.OpaqueTokens && v.Bigram: // two pairs that do not overlap
		e.r.count.Opaque++
		e.b = msgp.AppendArrayHeader(e.b, 2)
		pair(0, 1)
		pair(2, 3)
	case v.OpaqueTokens: // a digest in the place of an id
		e.r.count.Opaque++
		e.b = msgp.AppendString(msgp.AppendArrayHeader(e.b, 1), redacted)
	case v.Bigram:
		e.b = msgp.AppendArrayHeader(e.b, uint32(len(v.Tokens)-1))
		for i := range v.Tokens[1:] {
			pair(s.token(v.Tokens[i]), s.token(v.Tokens[i+1]))
		}
	default:
		e.ids(v.Tokens)
	}
}

func (e *encoder) ids(tokens []wire.Token) {
	e.b = msgp.AppendArrayHeader(e.b, uint32(len(tokens)))
	for _, t := range tokens {
		e.b = msgp.AppendUint64(e.b, uint64(e.r.secret.token(t)))
	}
}
