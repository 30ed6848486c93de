package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvscope/kvscope/refdata"
)

// planeLine is a line of the recordings of Dynamo's event plane.
type planeLine struct {
	Topic    string   `json:"topic"`
	Instance uint64   `json:"instance_id"`
	Frames   []string `json:"frames"`
	Subject  string   `json:"subject"`
	Data     string   `json:"data"`
}

// message gives the frames in which a line comes, its topic, and its envelope as
// another decoder reads it.
func (l *planeLine) message(t *testing.T) (frames [][]byte, topic string, envelope dict) {
	t.Helper()
	raw := l.Data
	if topic = l.Topic; l.Subject != "" {
		topic = l.Subject[strings.LastIndexByte(l.Subject, '.')+1:]
		frames = [][]byte{[]byte(l.Subject), unhex(t, l.Data)}
	} else {
		for _, f := range l.Frames {
			frames = append(frames, unhex(t, f))
		}
		raw = l.Frames[3][10:] // behind the version and the length
	}
	unpack(t, unhex(t, raw), &envelope)
	return frames, topic, envelope
}

// unpack decodes with integers as int64 and uint64.
func unpack(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := msgpack.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

func u64(v any) uint64 {
	var n uint64
	_, _ = fmt.Sscan(fmt.Sprint(v), &n) // whatever its width
	return n
}

func text(v any) string { s, _ := v.(string); return s }

// wantPlane gives the Batch that an envelope must decode to.
func wantPlane(t *testing.T, topic string, env dict) Batch {
	t.Helper()
	b := Batch{Topic: topic, Seq: u64(env["sequence"]), Rank: -1, Engine: Time(u64(env["published_at"]) * 1e6)}
	var events []dict
	unpack(t, env["payload"].([]byte), &events)
	for _, outer := range events {
		inner := outer["event"].(dict)
		e := Event{
			Plane: true, Group: -1, Len: len(outer), Medium: text(outer["storage_tier"]),
			Ownership: text(outer["residency_domain"]), Fields: 1<<fieldMedium | 1<<fieldOwnership | 1<<fieldHashes,
			Tier: map[string]Tier{"device": Device, "host_pinned": Host, "disk": Disk, "external": External}[text(outer["storage_tier"])],
			Form: FormUnsigned,
		}
		b.Rank = int(u64(inner["dp_rank"]))
		for kind, v := range inner["data"].(dict) {
			e.Name = kind
			data := v.(dict)
			switch kind {
			case "stored":
				e.Kind = Stored
				e.Fields |= 1 << fieldParent
				if parent := data["parent_hash"]; parent != nil {
					e.Parent = IntHandle(u64(parent))
				}
				for _, block := range data["blocks"].(list) {
					e.Hashes = append(e.Hashes, IntHandle(u64(block.(dict)["block_hash"])))
					e.Locals = append(e.Locals, u64(block.(dict)["tokens_hash"]))
				}
			case "removed":
				e.Kind = Removed
				for _, h := range data["block_hashes"].(list) {
					e.Hashes = append(e.Hashes, IntHandle(u64(h)))
				}
			default:
				t.Errorf("the data %s", kind)
			}
		}
		b.Events = append(b.Events, e)
	}
	return b
}

func TestPlane(t *testing.T) { t.Parallel(); checkPlane(t, testRoot, "plane/*.jsonl.gz") }
func TestOraclePlane(t *testing.T) {
	t.Parallel()
	checkPlane(t, refdata.Root(t), "dynamo/live/event_plane.jsonl.gz", "dynamo/nats/*.jsonl.gz")
}

// checkPlane decodes every message of the recordings, on ZMQ and NATS, and
// compares with what an independent decoder finds in it.
func checkPlane(t *testing.T, root string, patterns ...string) {
	t.Helper()
	for _, file := range refdata.Files(t, root, patterns...) {
		var batches, events, loads, others int
		refdata.Each(t, file, func(n int, line planeLine) {
			where := fmt.Sprintf("%s %d", filepath.Base(file), n)
			frames, topic, env := line.message(t)
			publisher, name, ok := PlaneSender(frames)
			if !ok || publisher != u64(env["publisher_id"]) || line.Instance != 0 && publisher != line.Instance {
				t.Errorf("%s: publisher %d %v", where, publisher, ok)
			}
			gotTopic, seq, payload, err := SplitFrames(frames)
			if err != nil || gotTopic != string(frames[0]) || seq != u64(env["sequence"]) {
				t.Fatalf("%s: %q %d %v", where, gotTopic, seq, err)
			}
			report, isLoad, err := DecodeLoad(frames)
			if isLoad != (topic == PlaneLoad) || err != nil {
				t.Errorf("%s: load message %v, %v", where, isLoad, err)
			}
			got, err := Decode(gotTopic, seq, payload)
			switch topic {
			case PlaneEvents:
				if err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				want := wantPlane(t, gotTopic, env)
				want.Bytes = len(payload)
				sameBatch(t, where, want, got)
				batches++
				events += len(got.Events)
				var all []dict
				unpack(t, env["payload"].([]byte), &all)
				if want := fmt.Sprintf("%d/%d", u64(all[0]["worker_id"]), want.Rank); string(name) != want {
					t.Errorf("%s: named %s, want %s", where, name, want)
				}
			case PlaneLoad:
				var load dict
				unpack(t, env["payload"].([]byte), &load)
				want := LoadReport{
					Replica: Replica(fmt.Sprintf("%d/%d", u64(load["worker_id"]), u64(load["dp_rank"]))),
					Rank:    int(u64(load["dp_rank"])), Running: -1, Waiting: -1, KVUsage: -1,
					UsedBlocks: float64(u64(load["kv_used_blocks"])),
				}
				if report != want || name != want.Replica {
					t.Errorf("%s: %+v of %s, want %+v", where, report, name, want)
				}
				loads++
			default:
				if err == nil || name != "" {
					t.Errorf("%s: a message of %s was taken for a batch, of %q", where, topic, name)
				}
				others++
			}
		})
		t.Logf("%s: %d batches with %d events equal, %d load messages, %d messages of other topics refused",
			filepath.Base(file), batches, events, loads, others)
	}
}

// TestPlaneRecordings reads the recordings as they are.
func TestPlaneRecordings(t *testing.T) {
	t.Parallel()
	for _, file := range refdata.Files(t, testRoot, "plane/*.jsonl.gz") {
		lines := refdata.All[planeLine](t, file)
		recs, err := readAll(t, source(t, file))
		if len(recs) != len(lines) {
			t.Fatalf("%s: %d records of %d lines, %v", file, len(recs), len(lines), err)
		}
		for i, line := range lines {
			frames, topic, _ := line.message(t)
			_, name, _ := PlaneSender(frames)
			rec := recs[i]
			switch {
			case rec.At == 0:
				t.Errorf("%s %d: no time", file, i)
			case topic == PlaneActivity:
				if _, ok, err := DecodeActivity(rec.Frames); !ok || err != nil || !strings.HasSuffix(string(rec.Replica), loadSuffix) {
					t.Errorf("%s %d: a booking as a record of %s, %v", file, i, rec.Replica, err)
				}
			case topic != PlaneEvents && topic != PlaneLoad:
				if rec.Kind != Note || !strings.HasSuffix(rec.Text, topic) {
					t.Errorf("%s %d: %+v", file, i, rec)
				}
			case rec.Kind != Frames || rec.Replica != name || !bytes.Equal(bytes.Join(rec.Frames, nil), bytes.Join(frames, nil)):
				t.Errorf("%s %d: record of %s, want %s", file, i, rec.Replica, name)
			}
			again, _, err := parseLine(bytes.TrimSpace(AppendJSONL(nil, rec)))
			if err != nil || again.Replica != rec.Replica || len(again.Frames) != len(rec.Frames) {
				t.Errorf("%s %d: written and read again: %+v, %v", file, i, again, err)
			}
		}
	}
}

func TestForeignLines(t *testing.T) {
	t.Parallel()
	sock := `{"t": 1, "endpoint": "tcp://h:1", "port": 1, "frames": ["6b76", "0000000000000007", "90"]}`
	rec, known, err := parseLine([]byte(sock))
	if !known || err != nil || rec.Replica != "tcp://h:1" || string(rec.Frames[0]) != "kv" || len(rec.Frames) != 3 {
		t.Errorf("an engine's socket: %+v %v %v", rec, known, err)
	}
	for _, line := range []string{
		`{"t": 1, "endpoint": "tcp://h:1", "frames": ["6b7"]}`,
		`{"t": 1, "subject": "a.kv-events", "data": "zz"}`,
	} {
		if _, _, err := parseLine([]byte(line)); err == nil || err.Error() != "a frame is not hexadecimal" {
			t.Errorf("%s: %v", line, err)
		}
	}
	odd, err2 := json.Marshal(dict{"t": 1, "subject": "a.kv-events", "data": hex.EncodeToString([]byte("\x80"))})
	if err2 != nil {
		t.Fatal(err2)
	}
	if rec, known, err := parseLine(odd); !known || err != nil || rec.Kind != Frames || rec.Replica != "a.kv-events" {
		t.Errorf("a message that names nobody: %+v %v %v", rec, known, err)
	}
}
