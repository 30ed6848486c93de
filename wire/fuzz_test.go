package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvscope/kvscope/refdata"
)

// payloads gives the payloads of all samples in testdata.
func payloads(t testing.TB) [][]byte {
	t.Helper()
	var all [][]byte
	for _, file := range refdata.Files(t, testRoot, "vllm/*.json.gz") {
		refdata.Each(t, file, func(_ int, releases []release) {
			for _, r := range releases {
				for _, s := range r.Samples {
					all = append(all, unhex(t, s.Hex))
				}
			}
		})
	}
	for _, file := range refdata.Files(t, testRoot, "dynamo/*.jsonl.gz") {
		refdata.Each(t, file, func(_ int, c dynamoCase) { all = append(all, unhex(t, c.Payload)) })
	}
	for _, file := range refdata.Files(t, testRoot, "sglang/*.jsonl.gz") {
		refdata.Each(t, file, func(_ int, l sglangLine) {
			if len(l.Frames) > 0 {
				all = append(all, frames64(t, l.Frames)[2])
			}
		})
	}
	for _, file := range refdata.Files(t, testRoot, "plane/nats*.jsonl.gz") {
		refdata.Each(t, file, func(_ int, l planeLine) { all = append(all, unhex(t, l.Data)) })
	}
	return append(all, recorded(t)...)
}

// recorded gives the payloads of the recordings in testdata.
func recorded(t testing.TB) [][]byte {
	t.Helper()
	var all [][]byte
	for _, file := range refdata.Files(t, testRoot, "vllm/*/events.jsonl.gz") {
		recs, err := readAll(t, source(t, file))
		if err != io.EOF {
			t.Fatal(err)
		}
		for _, r := range recs {
			if r.Kind == Frames {
				all = append(all, r.Frames[2])
			}
		}
	}
	return all
}

// sameErrors compares errors by their words.
var sameErrors = cmp.Comparer(func(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
})

func FuzzDecode(f *testing.F) {
	for _, p := range payloads(f) {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, err := Decode("kv", 7, payload)
		if err != nil {
			if !errors.Is(err, ErrNotBatch) || b.Events != nil {
				t.Fatalf("error %v with %d events", err, len(b.Events))
			}
			return
		}
		if b.Topic != "kv" || b.Seq != 7 || b.Bytes != len(payload) || b.Rank < -1 {
			t.Errorf("batch %+v", b)
		}
		tokens, raw := 0, 0
		for i := range b.Events {
			e := &b.Events[i]
			tokens += len(e.Tokens)
			for _, l := range e.Lookahead {
				tokens += len(l)
			}
			raw += len(e.Raw)
			checkEvent(t, e, payload)
		}
		// Each token and each raw byte stands in the payload, once.
		if tokens > len(payload) || raw > len(payload) {
			t.Errorf("%d tokens and %d raw bytes from %d bytes", tokens, raw, len(payload))
		}
		var d Decoder
		for range 2 {
			again, err := d.Decode("kv", 7, bytes.Clone(payload))
			if diff := cmp.Diff(b, again, sameErrors); diff != "" || err != nil {
				t.Fatalf("%v (-first +again)\n%s", err, diff)
			}
		}
	})
}

func checkEvent(t *testing.T, e *Event, payload []byte) {
	tags := eventTags
	if e.Plane {
		tags = planeTags
	}
	switch e.Kind {
	case Bad:
		if e.Err == nil || !bytes.Contains(payload, e.Raw) || e.Hashes != nil || e.Tokens != nil || e.Locals != nil {
			t.Errorf("a bad event: %+v", e)
		}
	case Unknown:
		if e.Err != nil || len(e.Raw) == 0 || !bytes.Contains(payload, e.Raw) || tags[e.Name] != Unknown {
			t.Errorf("an unknown event: %+v", e)
		}
	default:
		if e.Err != nil || e.Raw != nil || tags[e.Name] != e.Kind || e.Len == 0 {
			t.Errorf("an event: %+v", e)
		}
	}
	if e.Group < -1 || e.BlockSize < 0 || e.Window < 0 || e.Tier >= NumTiers || e.UnknownFields < 0 {
		t.Errorf("out of range: %+v", e)
	}
	if e.OpaqueTokens && (e.Tokens != nil || e.Aligned()) {
		t.Errorf("opaque tokens that are there: %+v", e)
	}
	for _, h := range e.Hashes {
		if !h.Set {
			t.Errorf("a hash that is none: %+v", e)
		}
	}
	if n := len(e.Locals); n > 0 && (n != len(e.Hashes) || e.Kind != Stored || !e.Plane) {
		t.Errorf("%d content hashes: %+v", n, e)
	}
	if e.Aligned() { // then every block has its tokens
		last := (len(e.Hashes) - 1) * e.BlockSize
		_ = e.Tokens[last : last+e.BlockSize]
	}
}

// FuzzPlane gives whole messages to all that reads them.
func FuzzPlane(f *testing.F) {
	for _, file := range refdata.Files(f, testRoot, "plane/*.jsonl.gz") {
		refdata.Each(f, file, func(_ int, l planeLine) {
			if l.Subject != "" {
				f.Add(l.Subject, []byte(nil), []byte(nil), unhex(f, l.Data))
				return
			}
			f.Add(l.Topic, unhex(f, l.Frames[1]), unhex(f, l.Frames[2]), unhex(f, l.Frames[3]))
		})
	}
	f.Add("load", []byte(nil), []byte(seq7), pack(f, list{"LoadStat", 1, 2, 3, 4, 5}))
	f.Fuzz(func(t *testing.T, topic string, publisher, seq, body []byte) {
		all := [][]byte{[]byte(topic)}
		for _, frame := range [][]byte{publisher, seq} {
			if frame != nil {
				all = append(all, frame)
			}
		}
		all = append(all, body)
		r, ok, err := DecodeLoad(all)
		if (ok || err != nil) && r.KVUsage > 1 || !ok && err != nil || r.Rank < 0 {
			t.Errorf("%+v %v %v", r, ok, err)
		}
		activities, isActivity, err := DecodeActivity(all)
		if err != nil && activities != nil || isActivity && ok {
			t.Errorf("%v %v %v", activities, isActivity, err)
		}
		for _, a := range activities {
			checkActivity(t, &a, body)
		}
		_, name, _ := PlaneSender(all)
		_, n, payload, err := SplitFrames(all)
		if err != nil {
			if !errors.Is(err, ErrFrames) || name != "" {
				t.Errorf("of %q: %v", name, err)
			}
			return
		}
		b, err := Decode(topic, n, payload)
		if ok && err == nil {
			t.Error("a load message and a batch")
		}
		for i := range b.Events {
			checkEvent(t, &b.Events[i], payload)
		}
		if len(all) != 3 && err == nil && name != "" && b.Events[0].Kind != Bad && !strings.HasSuffix(string(name), "/"+strconv.Itoa(b.Rank)) {
			t.Errorf("named %s, and the rank is %d", name, b.Rank)
		}
	})
}

func checkActivity(t *testing.T, a *Activity, body []byte) {
	bad := a.Kind == BadActivity
	if bad != (a.Err != nil) || bad != (a.Request == "") || bad != (a.Replica == "") ||
		len(a.Blocks)+len(a.Request)+len(a.LoRA) > len(body) || a.PrefillTokens < 0 || a.ExpectedOutput < 0 {
		t.Errorf("%+v", a)
	}
}

func FuzzDynamoVerdict(f *testing.F) {
	for _, p := range payloads(f) {
		f.Add(p, 4)
		f.Add(p, 0)
	}
	f.Fuzz(func(t *testing.T, payload []byte, size int) {
		relay := DynamoRelay{BlockSize: size}
		v := relay.Judge(payload)
		if v.Lost != "" {
			if v.Events != nil {
				t.Errorf("lost, with %d events", len(v.Events))
			}
			return
		}
		if len(v.Events) == 0 {
			return
		}
		// What Dynamo reads, we read: every event, and none of it Bad.
		b, err := Decode("", 0, payload)
		if err != nil || len(b.Events) < len(v.Events) {
			t.Fatalf("Dynamo reads %d events, we %d: %v", len(v.Events), len(b.Events), err)
		}
		for i := range v.Events {
			d, e := &v.Events[i], &b.Events[i]
			if e.Kind == Bad {
				t.Errorf("event %d: Dynamo reads it, we do not: %v", i, e.Err)
				continue
			}
			if d.Kind != e.Kind {
				t.Errorf("event %d: %v for Dynamo, %v for us", i, d.Kind, e.Kind)
			}
			if d.Filtered != "" {
				if d.Hashes != nil || d.Why != "" {
					t.Errorf("event %d: filtered and converted: %+v", i, d)
				}
				continue
			}
			if (d.Why != "") != (d.Dropped > 0) || d.Kind == Stored && len(d.Hashes)+d.Dropped != len(e.Hashes) {
				t.Errorf("event %d: %d hashes: %+v", i, len(e.Hashes), d)
			}
			for j, h := range d.Hashes {
				if h != e.Hashes[j].N {
					t.Errorf("event %d: hash %d is %x for Dynamo, %s for us", i, j, h, e.Hashes[j])
				}
			}
			// A block that is published has its tokens.
			if n := len(d.Hashes); d.Kind == Stored && n > 0 && !e.OpaqueTokens && len(e.Tokens)/n < e.BlockSize {
				t.Errorf("event %d: %d blocks of %d from %d tokens", i, n, e.BlockSize, len(e.Tokens))
			}
		}
	})
}

func FuzzJSONL(f *testing.F) {
	for _, file := range refdata.Files(f, testRoot, filepath.Join("vllm", "*", "events.jsonl.gz")) {
		plain := refdata.Unpack(f, file)
		lines := bytes.SplitAfter(plain, []byte{'\n'})
		head := bytes.Join(lines[:min(len(lines), 4)], nil)
		f.Add(head)
		f.Add(zip(f, head))
		f.Add(head[:len(head)-5])
	}
	for _, line := range []string{
		`{"t":1.5,"replica":"a","text":"x 1\n"}`, `{"t":-1e3,"replica":"a","error":"e"}`, `{"replay_from":"7"}`,
		`{"replay_frames":["","AAAAAAAAAAc=","kA=="]}`, `{"replay_end":true}`, `{"monitor":"EVENT_CLOSED","detail":"x"}`,
		`{"note":"n"}`, `{"new":[1,2]}`, "\xff\xfe{}", "",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		const limit = 1 << 16
		j := NewJSONL(bytes.NewReader(file), "FILE")
		j.maxLine = limit
		recs, err := drain(t, j)
		var damaged *DamagedError
		if err != io.EOF && !errors.As(err, &damaged) {
			t.Fatalf("the end is %v", err)
		}
		if damaged != nil {
			if damaged.Error() == "" || damaged.Cause == nil || damaged.Damaged > damaged.Lines ||
				(damaged.First > 0) != (damaged.Damaged > 0) || damaged.First > damaged.Lines {
				t.Errorf("%+v", damaged)
			}
		} else if len(recs) == 0 {
			t.Error("a clean end without a record")
		}
		// The fast way to read a line gives what encoding/json gives.
		for line := range bytes.Lines(file) {
			line = bytes.TrimSpace(line)
			fast, ok := parseFrames(line)
			if !ok {
				continue
			}
			slow, known, err := parseObject(line)
			if diff := cmp.Diff(slow, fast, cmpopts.EquateEmpty(), sameBytes); diff != "" || !known || err != nil {
				t.Errorf("%q: known %v, error %v (-slow +fast)\n%s", line, known, err, diff)
			}
		}
		// What was read can be written, and reads as the same again.
		var written []byte
		for _, r := range recs {
			written = AppendJSONL(written, r)
		}
		again, err := drain(t, NewJSONL(bytes.NewReader(written), "FILE"))
		if len(recs) > 0 && err != io.EOF {
			t.Fatalf("written and read: %v\n%q", err, written)
		}
		if diff := cmp.Diff(recs, again, cmpopts.EquateEmpty(), sameBytes); diff != "" {
			t.Errorf("(-read +written and read)\n%s", diff)
		}
	})
}

// drain is readAll, with a bound that a source which never ends would pass.
func drain(t *testing.T, s Source) (recs []Record, final error) {
	for range 1 << 20 {
		rec, err := s.Next(context.Background())
		if err != nil {
			return recs, err
		}
		recs = append(recs, rec)
	}
	t.Fatal("no end")
	return nil, nil
}
