package wire

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvscope/kvscope/refdata"
)

// release is one entry of golden_wire_by_version: sample batches encoded with
// one release's own struct definitions.
type release struct {
	Version       string   `json:"version"`
	StoredFields  []string `json:"stored_fields"`
	RemovedFields []string `json:"removed_fields"`
	BatchFields   []string `json:"batch_fields"`
	EventEncoding string   `json:"event_encoding"`
	Samples       map[string]struct {
		Hex     string `json:"hex"`
		Decoded []any  `json:"decoded"`
	} `json:"samples"`
}

// want gives the Batch of a sample's decoded form.
func (r *release) want(t *testing.T, decoded []any, payload []byte) Batch {
	b := Batch{Rank: -1, Len: len(decoded), Bytes: len(payload)}
	for i, name := range r.BatchFields {
		if i >= len(decoded) || decoded[i] == nil {
			continue
		}
		switch v := decoded[i]; name {
		case "ts":
			seconds, err := v.(json.Number).Float64()
			if err != nil {
				t.Fatal(err)
			}
			b.Engine, _ = TimeOf(seconds)
			b.IntTime = !strings.ContainsAny(string(v.(json.Number)), ".eE")
		case "events":
			for _, e := range v.([]any) {
				b.Events = append(b.Events, r.wantEvent(t, e))
			}
		case "data_parallel_rank":
			b.Rank = int(wantInt(t, v))
		}
	}
	return b
}

func (r *release) wantEvent(t *testing.T, v any) Event {
	var e Event
	switch v := v.(type) {
	case []any:
		tag := v[0].(string)
		names := map[string][]string{"BlockStored": r.StoredFields, "BlockRemoved": r.RemovedFields}[tag]
		fields := map[string]any{}
		for i, value := range v[1:] {
			fields[names[i]] = value
		}
		e = wantEvent(t, tag, fields)
		e.Array, e.Len = true, len(v)
	case map[string]any:
		fields := maps.Clone(v)
		delete(fields, "type")
		e = wantEvent(t, v["type"].(string), fields)
		e.Len = len(v)
	}
	return e
}

// sameBatch compares all fields; an empty and a missing list are the same.
func sameBatch(t *testing.T, where string, want, got Batch) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: (-engine +ours)\n%s", where, diff)
	}
}

func TestGoldenWire(t *testing.T)       { t.Parallel(); checkGoldenWire(t, testRoot) }
func TestOracleGoldenWire(t *testing.T) { t.Parallel(); checkGoldenWire(t, refdata.Root(t)) }

func checkGoldenWire(t *testing.T, root string) {
	t.Helper()
	releases, samples, events := 0, 0, 0
	for _, file := range refdata.Files(t, root, "vllm/golden_wire_by_version*.json.gz") {
		refdata.Each(t, file, func(_ int, all []release) {
			for _, r := range all {
				releases++
				for name, s := range r.Samples {
					payload := unhex(t, s.Hex)
					got, err := Decode("", 0, payload)
					if err != nil {
						t.Errorf("%s %s: %v", r.Version, name, err)
						continue
					}
					samples++
					events += len(got.Events)
					sameBatch(t, r.Version+" "+name, r.want(t, s.Decoded, payload), got)
				}
			}
		})
	}
	t.Logf("%d releases, %d samples, %d events equal", releases, samples, events)
}

// sglangLine is a line of the SGLang recordings.
type sglangLine struct {
	Kind    string     `json:"kind"`
	Seq     uint64     `json:"seq"`
	Frames  []string   `json:"frames_b64"`
	Replies [][]string `json:"reply_frames_b64"`
	Decoded *struct {
		TS     json.Number      `json:"ts"`
		Rank   *int             `json:"attn_dp_rank"`
		Events []map[string]any `json:"events"`
	} `json:"decoded"`
	Values map[string]any `json:"values"`
}

func TestSGLang(t *testing.T)       { t.Parallel(); checkSGLang(t, testRoot) }
func TestOracleSGLang(t *testing.T) { t.Parallel(); checkSGLang(t, refdata.Root(t)) }

func checkSGLang(t *testing.T, root string) {
	t.Helper()
	var frames, events, replies, refused int
	for _, file := range refdata.Files(t, root, "sglang/*.jsonl.gz") {
		sent := map[uint64]Batch{}
		refdata.Each(t, file, func(n int, line sglangLine) {
			where := filepath.Base(file)
			for _, reply := range line.Replies {
				r, err := SplitReply(frames64(t, reply))
				if err != nil {
					t.Errorf("%s %d: %v", where, n, err)
				}
				if replies++; r.End {
					continue
				}
				got, err := Decode(r.Topic, r.Seq, r.Payload)
				if err != nil {
					t.Errorf("%s %d: %v", where, n, err)
				}
				sameBatch(t, where+" replay", sent[r.Seq], got)
			}
			if len(line.Frames) == 0 {
				return
			}
			topic, seq, payload, err := SplitFrames(frames64(t, line.Frames))
			if err != nil {
				t.Fatalf("%s %d: %v", where, n, err)
			}
			got, err := Decode(topic, seq, payload)
			if line.Values != nil { // a load message is not a batch
				if refused++; err == nil {
					t.Errorf("%s %d: a load message was taken for a batch", where, n)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s %d: %v", where, n, err)
			}
			frames++
			events += len(got.Events)
			want := Batch{Topic: topic, Seq: line.Seq, Rank: *line.Decoded.Rank, Len: 3, Bytes: len(payload)}
			seconds, err := line.Decoded.TS.Float64()
			if err != nil {
				t.Fatal(err)
			}
			want.Engine, _ = TimeOf(seconds)
			for _, e := range line.Decoded.Events {
				size := len(e)
				tag := e["type"].(string)
				delete(e, "type")
				w := wantEvent(t, tag, e)
				w.Len = size
				want.Events = append(want.Events, w)
			}
			sameBatch(t, where, want, got)
			sent[seq] = got
		})
	}
	t.Logf("%d frames with %d events equal, %d replies equal to what was sent, %d load messages refused",
		frames, events, replies, refused)
}

// replayLine is one exchange on a replay socket.
type replayLine struct {
	Name    string `json:"name"`
	Note    string `json:"note"`
	Replies []struct {
		Frames []string `json:"frames"`
	} `json:"replies"`
}

// labLine is a line of the publisher lab.
type labLine struct {
	Kind      string          `json:"kind"`
	Name      string          `json:"name"`
	Batches   int             `json:"batches"`
	First     []uint64        `json:"first"`
	Last      []uint64        `json:"last"`
	EndMarker bool            `json:"end_marker"`
	Frames    json.RawMessage `json:"frames"`
	Rank      int             `json:"rank"`
}

func TestReplay(t *testing.T)       { t.Parallel(); checkReplay(t, testRoot) }
func TestOracleReplay(t *testing.T) { t.Parallel(); checkReplay(t, refdata.Root(t)) }

func checkReplay(t *testing.T, root string) {
	t.Helper()
	var exchanges, replies, ends int
	for _, file := range refdata.Files(t, root, "vllm/*/replay*.jsonl.gz") {
		refdata.Each(t, file, func(_ int, line replayLine) {
			where := filepath.Base(filepath.Dir(file)) + ": " + line.Name
			exchanges++
			last, ended := uint64(0), false
			for i, reply := range line.Replies {
				frames := frames64(t, reply.Frames)
				r, err := SplitReply(frames)
				if err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				replies++
				// Real messages name the shape that they have.
				withDelimiter := len(frames[0]) == 0
				if wantTopic := len(frames) == 4 || len(frames) == 3 && !withDelimiter; r.HasTopic != wantTopic {
					t.Errorf("%s: reply of %d frames: HasTopic %v", where, len(frames), r.HasTopic)
				}
				if r.End {
					ended = true
					ends++
					if len(r.Payload) > 0 {
						t.Errorf("%s: an end with a payload", where)
					}
					continue
				}
				if i > 0 && r.Seq != last+1 {
					t.Errorf("%s: seq %d after %d", where, r.Seq, last)
				}
				last = r.Seq
				wholeBatch(t, where, r)
			}
			if ended != (line.Note == "end marker") {
				t.Errorf("%s: end seen %v, note %q", where, ended, line.Note)
			}
		})
	}
	t.Logf("%d exchanges, %d replies, %d ends", exchanges, replies, ends)
}

func wholeBatch(t *testing.T, where string, r Reply) Batch {
	t.Helper()
	b, err := Decode(r.Topic, r.Seq, r.Payload)
	if err != nil {
		t.Errorf("%s: %v", where, err)
	}
	for _, e := range b.Events {
		if e.Kind == Bad || e.Kind == Unknown {
			t.Errorf("%s: seq %d: %v %s: %v", where, r.Seq, e.Kind, e.Name, e.Err)
		}
	}
	return b
}

func TestPublisherLab(t *testing.T)       { t.Parallel(); checkPublisherLab(t, testRoot) }
func TestOraclePublisherLab(t *testing.T) { t.Parallel(); checkPublisherLab(t, refdata.Root(t)) }

func checkPublisherLab(t *testing.T, root string) {
	t.Helper()
	var live, replies, ends int
	for _, file := range refdata.Files(t, root, "vllm/h_*/*.jsonl.gz") {
		refdata.Each(t, file, func(_ int, line labLine) {
			where := filepath.Base(file) + ": " + line.Name
			var frames [][]string
			if len(line.Frames) == 0 {
				return
			}
			if err := json.Unmarshal(line.Frames, &frames); err != nil {
				t.Fatal(err)
			}
			for _, f := range frames {
				if line.Kind != "replay" {
					topic, seq, payload, err := SplitFrames(frames64(t, f))
					if err != nil {
						t.Fatalf("%s: %v", where, err)
					}
					b := wholeBatch(t, where, Reply{Topic: topic, Seq: seq, Payload: payload})
					if line.Kind == "dp" && b.Rank != line.Rank {
						t.Errorf("%s: rank %d, want %d", where, b.Rank, line.Rank)
					}
					live++
					continue
				}
				r, err := SplitReply(frames64(t, f))
				if err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				replies++
				if r.End {
					ends++
					continue
				}
				if r.Seq < line.First[0] || r.Seq > line.Last[0] {
					t.Errorf("%s: seq %d is not in %v..%v", where, r.Seq, line.First, line.Last)
				}
				wholeBatch(t, where, r)
			}
		})
	}
	t.Logf("%d live messages, %d replies, %d of them ends", live, replies, ends)
}
