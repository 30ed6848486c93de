package capture

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// TestRedactPlane redacts real messages of Dynamo's event plane: their form
// stays, and so does who is equal to whom, and no number of the original is in
// the copy.
func TestRedactPlane(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "wire", "testdata")
	hidden, seen := map[uint64]bool{}, map[uint64]uint64{}
	replaced := func(domain string, was, is uint64) {
		t.Helper()
		hidden[was] = true
		if old, ok := seen[was]; ok && old != is && domain == "local" {
			t.Errorf("content %d became %d and %d", was, old, is)
		}
		if domain == "local" {
			seen[was] = is
		}
	}
	var copies [][]byte
	for _, file := range refdata.Files(t, root, "plane/*.jsonl.gz") {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		src := wire.NewJSONL(f, file)
		r := newRedactor(t, RedactOptions{})
		clear(seen)
		events, loads := 0, 0
		for {
			rec, err := src.Next(t.Context())
			if err != nil {
				break
			}
			if rec.Kind != wire.Frames {
				continue
			}
			out := r.Record(rec)
			copies = append(copies, out.Frames...)
			if _, booking, _ := wire.DecodeActivity(rec.Frames); booking {
				// Its hashes are of whole prompts, and a copy's contents give others.
				if len(bytes.Join(out.Frames, nil)) > 0 || r.count.Odd == 0 {
					t.Errorf("a booking became %q", out.Frames)
				}
				continue
			}
			_, name, ok := wire.PlaneSender(out.Frames)
			if !ok || name != out.Replica || name == rec.Replica || strings.Contains(string(name), "pod") {
				t.Errorf("%s became %s, and its message is of %s", rec.Replica, out.Replica, name)
			}
			worker, _, _ := strings.Cut(string(rec.Replica), "/")
			id, err := strconv.ParseUint(worker, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			hidden[id] = true
			if was, isLoad, _ := wire.DecodeLoad(rec.Frames); isLoad {
				is, ok, err := wire.DecodeLoad(out.Frames)
				was.Replica = out.Replica
				if !ok || err != nil || is != was {
					t.Errorf("load %+v became %+v, %v", was, is, err)
				}
				loads++
				continue
			}
			was, is := decoded(t, rec.Frames), decoded(t, out.Frames)
			if diff := cmp.Diff(was, is, cmpopts.IgnoreFields(wire.Batch{}, "Topic", "Bytes"),
				cmpopts.IgnoreFields(wire.Event{}, "Hashes", "Locals", "Parent")); diff != "" {
				t.Errorf("(-original +copy)\n%s", diff)
			}
			for i := range was.Events {
				a, b := &was.Events[i], &is.Events[i]
				events++
				if len(a.Hashes) != len(b.Hashes) || len(a.Locals) != len(b.Locals) || a.Parent.Set != b.Parent.Set {
					t.Fatalf("%d hashes and %d contents became %d and %d", len(a.Hashes), len(a.Locals), len(b.Hashes), len(b.Locals))
				}
				for j := range a.Hashes {
					replaced("handle", a.Hashes[j].N, b.Hashes[j].N)
				}
				for j := range a.Locals {
					replaced("local", a.Locals[j], b.Locals[j])
				}
			}
		}
		if events == 0 || loads == 0 {
			t.Errorf("%s: %d events, %d loads", file, events, loads)
		}
	}
	all := bytes.Join(copies, nil)
	for n := range hidden {
		if bytes.Contains(all, msgp.AppendUint64(nil, n)) || bytes.Contains(all, strconv.AppendUint(nil, n, 10)) {
			t.Errorf("%d is still there", n)
		}
	}
	if bytes.Contains(all, []byte("kvlab")) {
		t.Error("the namespace is still there")
	}
}

func decoded(t *testing.T, frames [][]byte) wire.Batch {
	t.Helper()
	topic, seq, payload, err := wire.SplitFrames(frames)
	if err != nil {
		t.Fatal(err)
	}
	b, err := wire.Decode(topic, seq, payload)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRedactPlaneOdd: what cannot be read still cannot, and takes nothing with it.
func TestRedactPlaneOdd(t *testing.T) {
	t.Parallel()
	envelope := func(topic, payload string) [][]byte {
		b := msgp.AppendUint64(msgp.AppendString(msgp.AppendMapHeader(nil, 5), "publisher_id"), 9)
		b = msgp.AppendInt(msgp.AppendString(b, "sequence"), 1)
		b = msgp.AppendInt(msgp.AppendString(b, "published_at"), 1)
		b = msgp.AppendString(msgp.AppendString(b, "topic"), topic)
		return [][]byte{[]byte("namespace.secret." + topic), msgp.AppendBytes(msgp.AppendString(b, "payload"), []byte(payload))}
	}
	event := "\x83\xa9worker_id\x05\xacstorage_tier\xa6secret\xa5event\x82\xa7dp_rank\x00\xa4data"
	r := newRedactor(t, RedactOptions{})
	out := r.message(envelope(wire.PlaneEvents, "\x94"+event+"\xa7cleared"+event+"\xa6secret\xa6secret"+event+"\xa7cleared"))
	b := decoded(t, out)
	var kinds []wire.EventKind
	for i := range b.Events {
		kinds = append(kinds, b.Events[i].Kind)
	}
	if diff := cmp.Diff([]wire.EventKind{wire.Cleared, wire.Unknown, wire.Bad, wire.Cleared}, kinds); diff != "" || !b.Events[0].UnknownMedium {
		t.Errorf("%s", diff)
	}
	for _, frames := range [][][]byte{out, r.message(envelope("secret", "secret")), r.message(envelope(wire.PlaneLoad, "secret"))} {
		if bytes.Contains(bytes.Join(frames, nil), []byte("secret")) {
			t.Errorf("%q", frames)
		}
	}
}

func TestRedactLoad(t *testing.T) {
	t.Parallel()
	stat := []byte("\x98\xa8LoadStat\x01\x02\x05\x0a\x03\xcd\x01\x00\xa6secret")
	rec := wire.Record{Replica: wire.LoadName("a/3"), Frames: [][]byte{[]byte("load"), {0, 0, 0, 0, 0, 0, 0, 1}, stat}}
	out := newRedactor(t, RedactOptions{}).Record(rec)
	was, _, _ := wire.DecodeLoad(rec.Frames)
	is, ok, err := wire.DecodeLoad(out.Frames)
	if !ok || err != nil || is != was || is.Running != 1 || bytes.Contains(out.Frames[2], []byte("secret")) {
		t.Errorf("%+v became %+v, %v", was, is, err)
	}
	if of, ok := wire.LoadOf(out.Replica); !ok || !strings.HasPrefix(string(of), "pod-") || !strings.HasSuffix(string(of), "/3") {
		t.Errorf("named %s", out.Replica)
	}
}
