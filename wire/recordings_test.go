package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvscope/kvscope/refdata"
)

// sameBytes compares byte slices as wholes, which is much faster; empty ones
// are left to cmpopts.EquateEmpty.
var sameBytes = cmp.FilterValues(
	func(a, b []byte) bool { return len(a)+len(b) > 0 },
	cmp.Comparer(bytes.Equal))

// source opens a recording for the time of a test.
func source(t testing.TB, file string) *JSONL {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // read only
	return NewJSONL(f, file)
}

// recordedLine is a line of a recording, read by other means.
type recordedLine struct {
	T       json.Number `json:"t"`
	Replica Replica     `json:"replica"`
	Frames  [][]byte    `json:"frames"`
	Monitor string      `json:"monitor"`
	Text    string      `json:"text"`
	Error   string      `json:"error"`
}

func (l *recordedLine) want(t *testing.T) Record {
	seconds, err := l.T.Float64()
	if err != nil {
		t.Fatal(err)
	}
	rec := Record{Replica: l.Replica, Frames: l.Frames, Text: l.Text, Err: l.Error}
	rec.At, _ = TimeOf(seconds)
	switch {
	case l.Monitor != "":
		rec.Kind, rec.Text = Link, l.Monitor
		rec.Link = linkEvents[l.Monitor]
	case l.Frames == nil:
		rec.Kind = Scrape
	}
	return rec
}

func TestRecordings(t *testing.T)       { t.Parallel(); checkRecordings(t, testRoot) }
func TestOracleRecordings(t *testing.T) { t.Parallel(); checkRecordings(t, refdata.Root(t)) }

// checkRecordings reads every recording of vLLM, decodes all of its messages,
// writes it again, and merges it with its metrics.
func checkRecordings(t *testing.T, root string) {
	t.Helper()
	// A float64 keeps a time of today to 256 ns or so.
	nearly := cmp.Comparer(func(a, b Time) bool { return max(a-b, b-a) < 500 })
	var total, batches, events, unaligned int
	for _, file := range refdata.Files(t, root, "vllm/*/events.jsonl.gz") {
		recs, err := readAll(t, source(t, file))
		if err != io.EOF {
			t.Fatalf("%s: %v", file, err)
		}
		total += len(recs)
		refdata.Each(t, file, func(n int, l recordedLine) {
			if n > len(recs) {
				t.Fatalf("%s: only %d records", file, len(recs))
			}
			if diff := cmp.Diff(l.want(t), recs[n-1], cmpopts.EquateEmpty(), nearly, sameBytes); diff != "" {
				t.Errorf("%s: line %d: (-file +record)\n%s", file, n, diff)
			}
		})
		var dialect DialectSet
		relays := map[Replica]*DynamoRelay{}
		for _, r := range recs {
			if r.Kind != Frames {
				continue
			}
			topic, seq, payload, err := SplitFrames(r.Frames)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			b := wholeBatch(t, file, Reply{Topic: topic, Seq: seq, Payload: payload})
			batches++
			events += len(b.Events)
			if relays[r.Replica] == nil {
				relays[r.Replica] = &DynamoRelay{}
			}
			v := relays[r.Replica].Judge(payload)
			bytesForm := false
			for i := range b.Events {
				e := &b.Events[i]
				dialect.Add(e)
				bytesForm = bytesForm || e.Form&FormBytes != 0
				if e.Kind == Stored && !e.Aligned() {
					unaligned++
				}
			}
			if (v.Lost != "") != bytesForm {
				t.Errorf("%s: seq %d: byte hashes %v, but Dynamo's verdict is %q", file, seq, bytesForm, v.Lost)
			}
		}
		if dialect.String() == "" {
			t.Errorf("%s: no dialect", file)
		}
		t.Logf("%s: %d records, dialect %s", filepath.Base(filepath.Dir(file)), len(recs), &dialect)
		sameWritten(t, file, recs)
		sameMerged(t, file, recs)
	}
	t.Logf("%d records, %d batches, %d events, none undecodable or unknown, %d stores not aligned", total, batches, events, unaligned)
}

// sameWritten writes records and reads them again.
func sameWritten(t *testing.T, file string, recs []Record) {
	t.Helper()
	var written []byte
	for _, rec := range recs {
		written = AppendJSONL(written, rec)
	}
	again, err := readAll(t, NewJSONL(bytes.NewReader(written), file))
	if diff := cmp.Diff(recs, again, sameBytes); diff != "" || err != io.EOF {
		t.Errorf("%s: %v (-read +written and read)\n%s", file, err, diff)
	}
}

// sameMerged merges a recording with the metrics beside it.
func sameMerged(t *testing.T, file string, recs []Record) {
	t.Helper()
	beside := filepath.Join(filepath.Dir(file), "metrics.jsonl.gz")
	if _, err := os.Stat(beside); errors.Is(err, os.ErrNotExist) {
		return
	}
	pages, err := readAll(t, source(t, beside))
	if err != io.EOF {
		t.Fatalf("%s: %v", beside, err)
	}
	merged := Merge(source(t, file), source(t, beside))
	last := Time(0)
	for range len(recs) + len(pages) {
		rec, err := merged.Next(context.Background())
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if rec.At < last {
			t.Errorf("%s: %d after %d", file, rec.At, last)
		}
		last = rec.At
		want := &recs
		if rec.Kind == Scrape {
			want = &pages
		}
		if len(*want) == 0 || !cmp.Equal((*want)[0], rec, sameBytes) {
			t.Fatalf("%s: a record out of turn", file)
		}
		*want = (*want)[1:]
	}
	if _, err := merged.Next(context.Background()); err != io.EOF {
		t.Errorf("%s: %v, want the end", file, err)
	}
}

// TestOracleMocker decodes the messages of Dynamo's mocker, live and replayed.
func TestOracleMocker(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	batches, replies := 0, 0
	var dialect DialectSet
	relay := &DynamoRelay{BlockSize: 16}
	for _, file := range refdata.Files(t, root, "dynamo/live/vllm_wire.jsonl.gz") {
		refdata.Each(t, file, func(n int, l struct{ Frames []string }) {
			topic, seq, payload, err := SplitFrames([][]byte{unhex(t, l.Frames[0]), unhex(t, l.Frames[1]), unhex(t, l.Frames[2])})
			if err != nil {
				t.Fatalf("%s %d: %v", file, n, err)
			}
			b := wholeBatch(t, file, Reply{Topic: topic, Seq: seq, Payload: payload})
			batches++
			for i := range b.Events {
				dialect.Add(&b.Events[i])
			}
			v := relay.Judge(payload)
			for i, e := range v.Events {
				if e.Filtered != "" || e.Dropped > 0 || len(e.Hashes) != len(b.Events[i].Hashes) {
					t.Errorf("%s %d: event %d: %+v", file, n, i, e)
				}
			}
			if v.Lost != "" {
				t.Errorf("%s %d: %s", file, n, v.Lost)
			}
		})
	}
	for _, file := range refdata.Files(t, root, "dynamo/variants.jsonl.gz") {
		refdata.Each(t, file, func(n int, l struct {
			Kind     string
			Messages json.RawMessage // of another form in other kinds of line
		},
		) {
			if l.Kind != "replay" {
				return
			}
			var messages [][]string
			if err := json.Unmarshal(l.Messages, &messages); err != nil {
				t.Fatal(err)
			}
			for _, m := range messages {
				var fs [][]byte
				for _, f := range m {
					fs = append(fs, unhex(t, f))
				}
				r, err := SplitReply(fs)
				if err != nil || !r.HasTopic {
					t.Fatalf("%s %d: %+v, %v", file, n, r, err)
				}
				if replies++; !r.End {
					wholeBatch(t, file, r)
				}
			}
		})
	}
	if got := dialect.String(); got != "mocker-map" {
		t.Errorf("dialect %s", got)
	}
	t.Logf("%d batches, all published by Dynamo; %d replies", batches, replies)
}
