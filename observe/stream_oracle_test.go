package observe

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// streamCodes are the checks of the stream itself.
var streamCodes = []string{
	"seq-gap", "late-join", "replica-restart", "cache-cleared", "replay-clipped", "replay-truncated", "unfillable-hole",
	"clear-held-back", "prefix-caching-off", "events-off", "stream-silent", "publisher-stalled", "orphan-chains",
	"clock-skew", "buffer-too-short", "tap-too-slow", "dead-replica-blocks", "relay-loss", "undecodable-events", "over-capacity",
}

// toldOf gives the findings of those checks as code, subject and batches.
func toldOf(findings []diagnose.Finding) (out []string) {
	for i := range findings {
		f := &findings[i]
		if !slices.Contains(streamCodes, f.Code) {
			continue
		}
		line := f.Severity.String() + " " + f.Code + " " + f.Subject
		if e := f.Evidence; e.SeqFrom != nil && e.SeqTo != nil {
			line += fmt.Sprintf(" %d–%d", *e.SeqFrom, *e.SeqTo)
		}
		if f.Effect.Blocks != nil && f.Code != "late-join" {
			line += fmt.Sprintf(" %d blocks", *f.Effect.Blocks)
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// TestOracleStreamChecks: what the recordings of real servers hold, and nothing else.
// The numbers are those of their notes of what was done to the servers.
func TestOracleStreamChecks(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"vllm/a_fleet":     nil,
		"vllm/b_timestamp": {"info cache-cleared a 180–180", "info late-join a 0–179"},
		"vllm/c_reset":     {"info cache-cleared a 168–168", "info clear-held-back a 148–148", "info late-join a 0–145"},
		// c was away for four minutes before its new process was up; b never came back.
		"vllm/d_restart": {
			"info late-join a 0–216", "info late-join b 0–279", "info late-join c 0–144",
			"warning dead-replica-blocks b", "warning dead-replica-blocks c", "warning replica-restart c 156–0",
		},
		"vllm/g1_lora_cbor_bytes": nil,
		"vllm/k_v0.22.1_array":    {"info cache-cleared k 22–22"},
		"dynamo/live":             nil,
		"dynamo/nats":             nil,
	}
	root := refdata.Root(t)
	recordings, records := 0, uint64(0)
	for _, path := range refdata.Files(t, root, "vllm/*/events.jsonl.gz", "dynamo/live/vllm_wire.jsonl.gz", "dynamo/live/event_plane.jsonl.gz", "dynamo/nats/*.jsonl.gz") {
		o := New(Options{Scrape: fleet.ParseMetrics})
		if err := o.Run(context.Background(), source(t, path), nil); err != nil {
			t.Error(err)
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		s := o.Snapshot()
		got := toldOf(s.Findings)
		for i, line := range got { // how many blocks is held against the truth below
			if at := strings.Index(line, " blocks"); at > 0 {
				got[i] = line[:strings.LastIndex(line[:at], " ")]
			}
		}
		if !slices.Equal(got, want[filepath.ToSlash(dir)]) {
			t.Errorf("%s:\n got %q\nwant %q", path, got, want[filepath.ToSlash(dir)])
		}
		recordings++
		records += s.Records
	}
	t.Logf("%d recordings with %d records", recordings, records)
}

// TestOracleClearHeldBack: the reset of the idle server lies between the bounds that
// the finding names, by the log of who asked for it.
func TestOracleClearHeldBack(t *testing.T) {
	t.Parallel()
	path := refdata.Files(t, refdata.Root(t), "vllm/c_reset/events.jsonl.gz")[0]
	o := New(Options{Scrape: fleet.ParseMetrics})
	if err := o.Run(context.Background(), source(t, path), nil); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(o.Snapshot().Findings, func(f diagnose.Finding) bool { return f.Code == "clear-held-back" })
	if at < 0 {
		t.Fatal("not found")
	}
	f := o.Snapshot().Findings[at]
	asked := 0
	refdata.Each(t, filepath.Join(filepath.Dir(path), "truth.jsonl.gz"), func(_ int, l struct {
		Tag    string
		TStart float64 `json:"t_start"`
	},
	) {
		if l.Tag != "idle reset" {
			return
		}
		asked++
		if when, _ := wire.TimeOf(l.TStart); when < f.Since || when > *f.Until {
			t.Errorf("reset at %d, finding from %d to %d", when, f.Since, *f.Until)
		}
		t.Logf("reset %.2f s after the batch before and %.2f s before it was announced",
			l.TStart-f.Since.Seconds(), f.Until.Seconds()-l.TStart)
	})
	if asked != 1 {
		t.Errorf("%d resets", asked)
	}
}

// exchange is a recorded request to a replay socket with its answer.
type exchange struct {
	Kind, Name, Note string
	// Of the publisher lab.
	Start       uint64
	First, Last []uint64
	Holes       [][2]uint64
	EndMarker   bool `json:"end_marker"`
	// Of the servers, in base64.
	Replica       string
	RequestFrames []string `json:"request_frames"`
	Replies       []struct{ Frames []string }
}

func (e *exchange) read(t *testing.T) (asked uint64, seqs []uint64, complete bool) {
	t.Helper()
	if e.RequestFrames == nil {
		holes := e.Holes
		for i := range e.First {
			for seq := e.First[i]; seq <= e.Last[i]; seq++ {
				seqs = append(seqs, seq)
				if len(holes) > 0 && holes[0][0] == seq {
					seq, holes = holes[0][1]-1, holes[1:]
				}
			}
		}
		return e.Start, seqs, e.EndMarker
	}
	number := func(text string) (n uint64) {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range b {
			n = n<<8 | uint64(c)
		}
		return n
	}
	asked = number(e.RequestFrames[len(e.RequestFrames)-1])
	for _, r := range e.Replies {
		seq := number(r.Frames[len(r.Frames)-2])
		if complete = seq == math.MaxUint64; !complete {
			seqs = append(seqs, seq)
		}
	}
	return asked, seqs, complete
}

// TestOracleReplayChecks has a replica joined at the newest batch of all, and then
// each recorded answer: what it lacks is told by its cause, with its numbers.
func TestOracleReplayChecks(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for _, file := range refdata.Files(t, refdata.Root(t), "vllm/e_replay/*.jsonl.gz", "vllm/h_publisher_lab/*.jsonl.gz", "vllm/k*/replay.jsonl.gz") {
		newest := map[string]uint64{}
		all := refdata.All[exchange](t, file)
		for i := range all {
			if _, seqs, _ := all[i].read(t); len(seqs) > 0 && all[i].Kind != "hwm" {
				newest[all[i].Replica] = max(newest[all[i].Replica], seqs[len(seqs)-1])
			}
		}
		for i := range all {
			e := &all[i]
			if e.Kind != "" && e.Kind != "replay" {
				continue
			}
			asked, seqs, complete := e.read(t)
			now := newest[e.Replica]
			if complete && len(seqs) > 0 && e.Kind != "" { // a lab has several publishers
				now = seqs[len(seqs)-1]
			}
			failed := map[bool]string{false: "no answer for 2 s"}[complete]
			replay := answered(t, 2, r1, asked, failed, seqs...)
			o := New(Options{})
			for _, rec := range append([]wire.Record{replay[0], frame(t, 2, r1, now)}, replay[1:]...) {
				o.Push(rec)
			}
			var want []string
			rebuilt := len(seqs) > 0 && seqs[0] < now
			switch {
			case rebuilt && seqs[0] > asked:
				want = append(want, fmt.Sprintf("warning replay-clipped r1 %d–%d", asked, seqs[0]-1))
			case rebuilt && seqs[0] > 0:
				want = append(want, fmt.Sprintf("info late-join r1 0–%d", seqs[0]-1))
			case !rebuilt && now > 0:
				want = append(want, fmt.Sprintf("info late-join r1 0–%d", now-1))
			}
			for k := 1; k < len(seqs); k++ {
				if seqs[k] != seqs[k-1]+1 {
					want = append(want, fmt.Sprintf("error unfillable-hole r1 %d–%d", seqs[k-1]+1, seqs[k]-1))
				}
			}
			if last := len(seqs) - 1; rebuilt && seqs[last]+1 < now {
				want = append(want, fmt.Sprintf("error replay-truncated r1 %d–%d", seqs[last]+1, now-1))
			}
			slices.Sort(want)
			if got := toldOf(o.Snapshot().Findings); !slices.Equal(got, want) {
				t.Errorf("%s %s %s:\n got %q\nwant %q", filepath.Base(file), e.Replica, e.Name, got, want)
			}
			count["answers"]++
			for _, line := range want {
				count[strings.Fields(line)[1]]++
			}
		}
	}
	t.Logf("%v", count)
}

// TestOracleRelayLoss: an engine's batches, and what Dynamo's relay made of them.
func TestOracleRelayLoss(t *testing.T) {
	t.Parallel()
	type event struct {
		Type      string
		Hashes    []string     `json:"block_hashes"`
		Parent    *json.Number `json:"parent_block_hash"`
		Tokens    []uint64     `json:"token_ids"`
		BlockSize int          `json:"block_size"`
	}
	type line struct {
		Sent   *uint64 `json:"sent_engine_seq"`
		Events []event
		Plane  *uint64 `json:"plane_sequence"`
		Data   struct {
			Stored struct {
				Parent *json.Number `json:"parent_hash"`
				Blocks []struct {
					Hash json.Number `json:"block_hash"`
				}
			}
		}
	}
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	parent := func(n *json.Number) any {
		if n == nil {
			return nil
		}
		return number(n.String())
	}
	var engine, plane []wire.Record
	for _, l := range refdata.All[line](t, refdata.Files(t, refdata.Root(t), "dynamo/relay_gap.jsonl.gz")[0]) {
		switch {
		case l.Sent != nil:
			at := float64(1 + len(engine))
			var events []any
			for _, e := range l.Events {
				hashes := []any{}
				for _, h := range e.Hashes {
					if raw, ok := strings.CutPrefix(h, "b'"); ok {
						hashes = append(hashes, []byte(strings.TrimSuffix(raw, "'")))
					} else {
						hashes = append(hashes, number(h))
					}
				}
				events = append(events, map[string]any{
					"type": e.Type, "block_hashes": hashes, "parent_block_hash": parent(e.Parent), "token_ids": e.Tokens, "block_size": e.BlockSize,
				})
			}
			payload, err := msgpack.Marshal([]any{at, events, 0})
			if err != nil {
				t.Fatal(err)
			}
			engine = append(engine, wire.Record{At: wire.Time(at * 1e9), Replica: r1, Frames: [][]byte{nil, binary.BigEndian.AppendUint64(nil, *l.Sent), payload}})
		case l.Plane != nil:
			var hashes []uint64
			for _, b := range l.Data.Stored.Blocks {
				hashes = append(hashes, number(b.Hash.String()))
			}
			plane = append(plane, onPlane(t, 0, "9/0", *l.Plane, parent(l.Data.Stored.Parent), hashes...))
		}
	}
	// The plane's events came as their batches did; of the fifth there is none.
	o := New(Options{})
	push := func(rec wire.Record, at float64) {
		rec.At = wire.Time(at * 1e9)
		o.Push(rec)
	}
	beforeRestart := []string(nil)
	for i, rec := range engine {
		if i == len(engine)-1 {
			push(wire.Record{Kind: wire.Note, Text: "time goes on"}, float64(1+i))
			beforeRestart = toldOf(o.Snapshot().Findings)
		}
		push(rec, float64(1+i))
		if i == 4 {
			continue
		}
		push(plane[0], 1.5+float64(i))
		plane = plane[1:]
	}
	if want := []string{"error relay-loss r1 7–9 3 blocks", "error seq-gap r1 2–4"}; !slices.Equal(beforeRestart, want) {
		t.Errorf("before the restart:\n got %q\nwant %q", beforeRestart, want)
	}
	for at := range 40 {
		push(wire.Record{Kind: wire.Note, Text: "time goes on"}, 10+float64(at))
	}
	after := toldOf(o.Snapshot().Findings)
	// 1, 2, 3, 9 and 5 came through and are still there.
	if want := "error relay-loss r1 5 blocks"; !slices.Contains(after, want) {
		t.Errorf("after it:\n got %q\nwant %q among them", after, want)
	}
	t.Logf("%d engine batches: %q, then %q", len(engine), beforeRestart, after)
}
