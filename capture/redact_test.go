package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tinylib/msgp/msgp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// seeded is a key for tests, the same each time.
func seeded(n byte) io.Reader { return rand.NewChaCha8([32]byte{n}) }

func newRedactor(t testing.TB, opt RedactOptions) *Redactor {
	t.Helper()
	if opt.Random == nil {
		opt.Random = seeded(1)
	}
	r, err := NewRedactor(opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// redactedCopy makes a capture of src.
func redactedCopy(t testing.TB, src wire.Source, opt RedactOptions) ([]byte, Redaction) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{})
	if err != nil {
		t.Fatal(err)
	}
	opt.Random = seeded(1)
	count, err := Redact(context.Background(), w, src, opt)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), count
}

// originals collects what must not be found again.
type originals struct {
	runs    map[[4]wire.Token]bool
	handles map[wire.Handle]bool
	texts   map[string]bool
}

func collect(t testing.TB, recs []wire.Record) *originals {
	o := &originals{map[[4]wire.Token]bool{}, map[wire.Handle]bool{}, map[string]bool{}}
	for _, rec := range recs {
		if rec.Replica != "" {
			o.add("replica:" + string(rec.Replica))
		}
		if rec.Kind != wire.Frames {
			continue
		}
		topic, seq, payload, err := wire.SplitFrames(rec.Frames)
		if err != nil {
			continue
		}
		if parts := strings.Split(topic, "@"); len(parts) > 1 {
			o.add("topic:" + parts[1])
		}
		b, err := wire.Decode(topic, seq, payload)
		if err != nil {
			continue
		}
		for i := range b.Events {
			e := &b.Events[i]
			o.tokens(e.Tokens)
			for _, l := range e.Lookahead {
				o.tokens(l)
			}
			for _, h := range append(e.Hashes, e.Parent) {
				if h.Set {
					o.handles[h] = true
				}
			}
			o.add(e.LoRAName)
			o.add(e.Salt)
			o.add(e.Session)
			for _, keys := range e.Extra {
				o.keys(keys)
			}
		}
	}
	return o
}

func (o *originals) add(s string) {
	if s != "" {
		o.texts[s] = true
	}
}

func (o *originals) tokens(ids []wire.Token) {
	for i := 0; i+4 <= len(ids); i++ {
		o.runs[[4]wire.Token(ids[i:])] = true
	}
}

func (o *originals) keys(keys []wire.ExtraKey) {
	for _, k := range keys {
		if !keyTags[k.Text] {
			o.add(k.Text)
		}
		o.add(string(k.Bytes))
		o.keys(k.List)
	}
}

// absent holds the copy's bytes and records against the originals.
func (o *originals) absent(t *testing.T, recs []wire.Record) {
	t.Helper()
	var raw []byte
	for _, rec := range recs {
		raw = append(raw, rec.Text+rec.Err+string(rec.Replica)...)
		for _, f := range rec.Frames {
			raw = append(raw, f...)
		}
	}
	copied := collect(t, recs)
	for run := range copied.runs {
		if o.runs[run] {
			t.Errorf("tokens %v are in the copy", run)
		}
	}
	// All windows of eight and five bytes, as integers, by which handles are
	// looked up: that is every handle in every place at once.
	for i := 0; i+8 <= len(raw); i++ {
		for _, n := range []uint64{binary.BigEndian.Uint64(raw[i:]), binary.LittleEndian.Uint64(raw[i:])} {
			if n>>32 != 0 && o.handles[wire.IntHandle(n)] {
				t.Fatalf("handle %x is in the copy", n)
			}
		}
	}
	for h := range copied.handles {
		if o.handles[h] {
			t.Errorf("handle %v is in the copy", h)
		}
	}
	for h := range o.handles {
		if len(h.S) >= 8 && bytes.Contains(raw, []byte(h.S)) {
			t.Errorf("digest %v is in the copy", h)
		}
		// Integers as msgpack, with their head byte.
		if enc := msgp.AppendUint64(nil, h.N); h.S == "" && len(enc) >= 5 && bytes.Contains(raw, enc) {
			t.Errorf("handle %v is in the copy", h)
		}
	}
	for text := range o.texts {
		if copied.texts[text] || len(text) > 6 && bytes.Contains(raw, []byte(text)) {
			t.Errorf("text %q is in the copy", text)
		}
	}
}

func snapshot(t testing.TB, src wire.Source) *observe.Snapshot {
	t.Helper()
	o := observe.New(observe.Options{Name: "x", Scrape: fleet.ParseMetrics})
	if err := o.Run(context.Background(), src, nil); err != nil {
		t.Fatal(err)
	}
	s := o.Snapshot()
	// Their order is that of their names, which a copy has not.
	slices.SortFunc(s.Replicas, func(a, b diagnose.Replica) int { return int(a.Joined - b.Joined) })
	return s
}

// sameNumbers leaves out what a redacted copy is known to have lost: names,
// the hash recipe, sizes in bytes and texts.
var sameNumbers = cmp.Options{
	cmpopts.IgnoreUnexported(stream.State{}),
	cmpopts.IgnoreFields(observe.Snapshot{}, "Tape", "Findings", "Source"),
	cmpopts.IgnoreFields(stream.State{}, "Replica", "Topic", "Bytes", "LinkText", "ScrapeError", "LastError"),
	cmpopts.IgnoreFields(stream.Mark{}, "Text"),
	cmpopts.IgnoreFields(index.Stats{}, "Recipe"),
	cmpopts.EquateEmpty(),
}

func TestRedactFixtures(t *testing.T) {
	t.Parallel()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recs := drain(t, fixture(t, name))
			out, count := redactedCopy(t, fixture(t, name), RedactOptions{})
			r, err := openBytes(out)
			if err != nil {
				t.Fatal(err)
			}
			copied := drain(t, r)
			if count.Records != uint64(len(recs)) || len(copied) != len(recs) || count.Payloads == 0 ||
				count.Undecodable+count.Odd+count.Events+count.Fields+count.Opaque > 0 {
				t.Errorf("%v", count)
			}
			o := collect(t, recs)
			if len(o.runs) == 0 || len(o.handles) == 0 {
				t.Fatal("nothing to look for")
			}
			o.absent(t, copied)
			if err := r.Rewind(); err != nil {
				t.Fatal(err)
			}
			want, got := snapshot(t, fixture(t, name)), snapshot(t, r)
			if diff := cmp.Diff(want, got, sameNumbers); diff != "" {
				t.Errorf("the copy's snapshot (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(codes(want.Findings), codes(got.Findings)); diff != "" {
				t.Errorf("the copy's findings (-want +got)\n%s", diff)
			}
		})
	}
}

func codes(fs []diagnose.Finding) []string {
	var out []string
	for i := range fs {
		b, _ := json.Marshal(fs[i].Code)
		out = append(out, string(b))
	}
	slices.Sort(out)
	return out
}

// pack encodes with another library than the one under test.
func pack(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type (
	list = []any
	dict = map[string]any
)

// payloads are batches in every dialect, with a secret of every kind.
func payloads(t testing.TB) map[string][]byte {
	digest := bytes.Repeat([]byte{0xab, 0xcd, 1, 2}, 8)
	ids := list{70001, 70002, 70003, 70004}
	hash := uint64(0xfedcba9876543210)
	mm := strings.Repeat("deadbeef", 8)
	batch := func(events ...any) []byte { return pack(t, list{1796011713.0769467, events, 3}) }
	return map[string][]byte{
		"vllm-0.9": pack(t, list{1796011713.5, list{list{"BlockStored", list{hash, hash - 1}, nil, ids, 2, nil}}}),
		"vllm-array": batch(
			list{"BlockStored", list{hash}, hash - 7, ids, 4, 12345, "GPU", "secret-adapter", list{list{"secret-adapter", list{mm, 17}, "secret-salt", digest}}, 1, "sliding_window", 1024},
			list{"BlockRemoved", list{hash}, "CPU", 1}, list{"AllBlocksCleared"}),
		"bytes":  batch(list{"BlockStored", list{digest}, digest[1:], ids, 4, nil, "GPU", nil, list{nil}}),
		"narrow": batch(list{"BlockStored", list{digest[:5], digest[:8]}, nil, ids, 2, nil, "GPU"}),
		"map": batch(dict{
			"type": "BlockStored", "block_hashes": list{hash}, "parent_block_hash": nil, "token_ids": ids, "block_size": 4,
			"lora_id": nil, "medium": "GPU", "lora_name": "secret-adapter",
			"extra_keys": list{list{list{"cache_salt", "secret-salt"}, list{"mm", mm, 3}, "dynamo-cache-salt:tenant-42"}},
			"group_idx":  0, "kv_cache_spec_kind": "full_attention", "locality": "LOCAL", "session_id": "session-77", "lookahead_token_ids": list{nil, list{70009, 70008, 70007, 70006}},
		}),
		"sglang":     batch(list{"BlockStored", list{int64(-5123456789012345678), 5}, nil, ids, 2, nil, "CPU_PINNED", dict{"cache_salt": "secret-salt", "session_id": "session-77"}}),
		"sglang-map": batch(dict{"type": "BlockStored", "block_hashes": list{int64(-5)}, "parent_block_hash": int64(-77), "token_ids": ids, "block_size": 4, "lora_id": nil, "medium": "GPU", "cache_salt": "secret-salt"}),
		"trtllm":     pack(t, dict{"ts": 5, "events": list{dict{"type": "BlockStored", "block_hashes": list{strings.Repeat("0f1e2d3c", 8)}, "parent_block_hash": strings.Repeat("aabbccdd", 8), "token_ids": list{70001, "digest"}, "block_size": 2, "mm_keys": list{list{1, 2}, nil}}}, "attn_dp_rank": 2}),
		"bigram":     batch(list{"BlockStored", list{hash, hash + 1}, nil, list{list{70001, 70002}, list{70002, 70003}}, 1, nil, "GPU"}),
		"opaque":     batch(list{"BlockStored", list{hash}, nil, list{list{70001, 70002}, list{70005, 70003}}, 2, nil, "GPU"}),
		"odd": batch(list{"BlockStored", "no list"}, list{"NewKind", "secret-new"}, 7, list{"BlockRemoved", list{hash}, "QUANTUM-secret"},
			dict{"type": "BlockRemoved", "block_hashes": list{hash}, "unheard_of": "secret-field"}),
		"late": pack(t, list{1.5, 2.5, list{}, nil, "secret-tail"}),
	}
}

// reshaped is what decoding the copy must give: the original with replaced
// values.
func reshaped(r *Redactor, b wire.Batch) wire.Batch {
	s := r.secret
	ids := func(in []wire.Token) (out []wire.Token) {
		for _, t := range in {
			out = append(out, s.token(t))
		}
		return out
	}
	var keys func(in []wire.ExtraKey, nested bool) []wire.ExtraKey
	keys = func(in []wire.ExtraKey, nested bool) []wire.ExtraKey {
		var out []wire.ExtraKey
		for i, k := range in {
			if !(nested && i == 0 && keyTags[k.Text]) {
				k.Text = s.text(k.Text)
			}
			if k.Bytes != nil {
				k.Bytes = s.expand(bytesDomain, string(k.Bytes), len(k.Bytes))
			}
			if k.IsInt && !nested {
				k.Int = int64(s.number(adapterDomain, uint64(k.Int)))
			}
			k.List = keys(k.List, true)
			out = append(out, k)
		}
		return out
	}
	for i := range b.Events {
		e := &b.Events[i]
		for j := range e.Hashes {
			e.Hashes[j] = s.handle(e.Hashes[j])
		}
		e.Parent, e.Tokens = s.handle(e.Parent), ids(e.Tokens)
		e.LoRAName, e.Salt, e.Session = s.text(e.LoRAName), s.text(e.Salt), s.text(e.Session)
		for j := range e.Extra {
			e.Extra[j] = keys(e.Extra[j], false)
		}
		for j := range e.Lookahead {
			e.Lookahead[j] = ids(e.Lookahead[j])
		}
		if e.LoRAID != nil {
			id := int64(s.number(adapterDomain, uint64(*e.LoRAID)))
			e.LoRAID = &id
		}
		if e.UnknownMedium {
			e.Medium = s.text(e.Medium)
		}
		for _, w := range []*string{&e.Spec, &e.Locality, &e.Ownership} {
			if !keptWords[*w] {
				*w = s.text(*w)
			}
		}
	}
	return b
}

// sameShape leaves out what a copy has lost.
var sameShape = cmp.Options{
	cmpopts.IgnoreFields(wire.Batch{}, "Bytes"),
	cmpopts.IgnoreFields(wire.Event{}, "UnknownFields", "Raw", "Err", "Name", "Len", "Array"),
	cmpopts.EquateEmpty(),
}

func TestRedactDialects(t *testing.T) {
	t.Parallel()
	for name, payload := range payloads(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkReshape(t, newRedactor(t, RedactOptions{}), payload)
		})
	}
}

func checkReshape(t *testing.T, r *Redactor, payload []byte) {
	t.Helper()
	before, err := wire.Decode("kv", 1, payload)
	if err != nil {
		t.Fatal(err)
	}
	out := r.payload(payload)
	after, err := wire.Decode("kv", 1, out)
	if err != nil {
		t.Fatal(err)
	}
	var a, b wire.DialectSet
	for i := range before.Events {
		a.Add(&before.Events[i])
		if i < len(after.Events) {
			b.Add(&after.Events[i])
		}
	}
	rec := []wire.Record{{Frames: [][]byte{[]byte("kv@pod-secret@m"), make([]byte, 8), payload}}}
	collect(t, rec).absent(t, []wire.Record{{Frames: [][]byte{[]byte("kv"), make([]byte, 8), out}}})
	if bytes.Contains(out, []byte("secret")) || bytes.Contains(out, []byte("tenant")) {
		t.Errorf("a secret is in %q", out)
	}
	if r.count.Fields == 0 && before.Len <= 3 {
		before.Len = after.Len // maps without ts
	}
	if len(before.Events) != len(after.Events) {
		t.Fatalf("%d events became %d", len(before.Events), len(after.Events))
	}
	before.Len = min(before.Len, after.Len)
	if diff := cmp.Diff(reshaped(r, before), after, sameShape); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if a.String() != b.String() && r.count.Events == 0 {
		t.Errorf("dialect %s became %s", a.String(), b.String())
	}
}

func TestRedactForms(t *testing.T) {
	t.Parallel()
	out := newRedactor(t, RedactOptions{}).payload(payloads(t)["trtllm"])
	var v dict
	if err := msgpack.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	event := v["events"].(list)[0].(dict)
	for _, h := range []any{event["block_hashes"].(list)[0], event["parent_block_hash"]} {
		if text, ok := h.(string); !ok || len(text) != 64 {
			t.Errorf("a hash in hexadecimal became %v", h)
		}
	}
	if v["attn_dp_rank"] == nil {
		t.Errorf("the rank's key is gone: %v", v)
	}
}

func FuzzRedact(f *testing.F) {
	for _, p := range payloads(f) {
		f.Add(p)
	}
	f.Add([]byte("vllm:a{b=\"c\"} 1\n"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		r := newRedactor(t, RedactOptions{})
		before, err := wire.Decode("kv", 1, payload)
		after, afterErr := wire.Decode("kv", 1, r.payload(payload))
		if (err == nil) != (afterErr == nil) || len(before.Events) != len(after.Events) {
			t.Fatalf("%d events and %v became %d and %v", len(before.Events), err, len(after.Events), afterErr)
		}
		for i := range before.Events {
			b, a := &before.Events[i], &after.Events[i]
			if b.Kind != a.Kind || len(b.Hashes) != len(a.Hashes) || len(b.Tokens) != len(a.Tokens) || b.Bigram != a.Bigram ||
				b.OpaqueTokens != a.OpaqueTokens || b.Group != a.Group || b.Tier != a.Tier || b.BlockSize != a.BlockSize ||
				b.Parent.Set != a.Parent.Set || b.Window != a.Window || len(b.Extra) != len(a.Extra) || b.MMKeys != a.MMKeys {
				t.Fatalf("%+v became %+v", b, a)
			}
		}
		_ = r.page(string(payload))
	})
}
