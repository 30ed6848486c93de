package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

// divergences runs diagnose, and gives what it finds of the router's belief.
func divergences(t *testing.T, wantCode int, args ...string) (titles map[string]string, errs string) {
	t.Helper()
	var out, said bytes.Buffer
	if code := run(t.Context(), append([]string{"diagnose", "--json"}, args...), nil, &out, &said); code != wantCode {
		t.Fatalf("%q: exit code %d: %s", args, code, said.String())
	}
	if out.Len() == 0 { // nothing was looked at
		return nil, said.String()
	}
	var all struct {
		Damage   string
		Findings []struct{ Code, Subject, Title string }
	}
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	titles = map[string]string{}
	for _, f := range all.Findings {
		if f.Code == "router-divergence" {
			titles[f.Subject] += f.Title
		}
	}
	return titles, said.String() + all.Damage
}

// TestOracleRouterDump: the recorded fleet against its router's own dump, as it is and
// without what it holds of one worker.
func TestOracleRouterDump(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	plane := filepath.Join(root, "dynamo", "live", "event_plane.jsonl.gz")
	dump := filepath.Join(root, "dynamo", "live", "router_dump_final.json.gz")
	found, said := divergences(t, exitFine, "--from", plane, "--router-dump", dump)
	if len(found) != 0 || !strings.Contains(said, "304 blocks of 4 replicas are in the router's index and in ours, 0 in one of them") {
		t.Errorf("%q: %s", found, said)
	}
	t.Log(strings.TrimSpace(said))

	var events []json.RawMessage
	if err := json.Unmarshal(refdata.Unpack(t, dump), &events); err != nil {
		t.Fatal(err)
	}
	const worker = "11177927908543625776"
	kept, lost := events[:0], 0
	for _, e := range events {
		if bytes.Contains(e, []byte(`"worker_id":`+worker)) {
			lost += bytes.Count(e, []byte(`"block_hash"`))
			continue
		}
		kept = append(kept, e)
	}
	text, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	without := filepath.Join(t.TempDir(), "dump.json")
	if err := os.WriteFile(without, text, 0o600); err != nil {
		t.Fatal(err)
	}
	found, _ = divergences(t, exitFine, "--from", plane, "--router-dump", without)
	want := fmt.Sprintf("the router lacks %d blocks that the replica has, 100 %% of %[1]d", lost)
	if len(found) != 1 || found[worker+"/0"] != want || lost == 0 {
		t.Errorf("%q, want %q", found, want)
	}
	// A trace of another time and fleet compares nothing, and says so.
	trace := filepath.Join(root, "dynamo", "request_trace.jsonl.gz")
	if _, said := divergences(t, exitInput, "--from", plane, "--trace", trace); !strings.Contains(said, "none of 15 decisions can be compared: 15 are outside the recording's time") {
		t.Error(said)
	}
}

// TestOracleRouterTrace: the recorded fleet against a trace of its router's decisions,
// made of the overlaps that it knew before each.
func TestOracleRouterTrace(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	var right, wrong bytes.Buffer
	rows := 0
	refdata.Each(t, filepath.Join(root, "dynamo", "live", "truth_joined.jsonl.gz"), func(_ int, r struct {
		At     float64      `json:"t"`
		Tokens []wire.Token `json:"token_ids"`
		Log    struct {
			Worker uint64 `json:"worker_id"`
		} `json:"router_log"`
		Before struct {
			Workers []struct {
				Worker uint64 `json:"worker_id"`
				Blocks int    `json:"device_blocks"`
			}
		} `json:"overlap_before"`
	},
	) {
		if r.At == 0 {
			return
		}
		rows++
		_, seqs := blockhash.Rolling(r.Tokens, 16, false, 0, nil)
		list, _ := json.Marshal(seqs) // numbers
		begun := (len(r.Tokens) + 15) / 16
		for _, w := range r.Before.Workers {
			if w.Worker != r.Log.Worker {
				continue
			}
			for b, blocks := range map[*bytes.Buffer]int{&right: w.Blocks, &wrong: len(seqs)} {
				fmt.Fprintf(b, `{"event":{"event_type":"request_end","event_time_unix_ms":%d,"request":{"request_received_ms":%[1]d,"input_tokens":%d,"output_tokens":2,`+
					`"kv_hit_rate":%g,"worker":{"prefill_worker_id":%d},"replay":{"trace_block_size":16,"input_sequence_hashes":%s}}}}`+"\n",
					int64(r.At*1e3), len(r.Tokens), float64(blocks)/float64(begun), w.Worker, list)
			}
		}
	})
	compare := func(trace []byte) (map[string]string, string) {
		path := filepath.Join(t.TempDir(), "trace")
		if err := os.WriteFile(path, trace, 0o600); err != nil {
			t.Fatal(err)
		}
		return divergences(t, exitFine, "--from", filepath.Join(root, "dynamo", "live", "event_plane.jsonl.gz"), "--trace", path)
	}
	found, said := compare(right.Bytes())
	if want := fmt.Sprintf("%d decisions of the router were compared, 0 differ", rows); len(found) != 0 || !strings.Contains(said, want) || rows != 46 {
		t.Errorf("%q: %s; want %s", found, said, want)
	}
	t.Log(strings.TrimSpace(said))
	// One that takes every prompt for cached.
	found, said = compare(wrong.Bytes())
	for worker, title := range found {
		if !strings.Contains(title, "more for cached than it had") || strings.Contains(title, "fewer") {
			t.Errorf("%s: %s", worker, title)
		}
	}
	if len(found) != 2 || !strings.Contains(said, "46 differ") { // two workers served them
		t.Errorf("%q: %s", found, said)
	}
}

func TestRouterBeliefRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const fixture = "../../fixtures/a_fleet"
	strange := file("strange", `[{"worker_id":7,"storage_tier":"device","event":{"dp_rank":0,"data":{"stored":{"blocks":[{"block_hash":1,"tokens_hash":1}]}}}}]`)
	for _, tt := range []struct {
		code int
		args []string
		want string
	}{
		{exitUsage, []string{"--from", fixture, "--ask-indexer", "http://127.0.0.1:1"}, "with a recording give --router-dump"},
		{exitUsage, []string{"--router-dump", strange}, "for a running fleet give --ask-indexer"},
		{exitUsage, []string{"--trace", strange}, "--trace goes with a recording"},
		{exitUsage, []string{"--ask-indexer", "ftp://x"}, "--ask-indexer: "},
		{exitUsage, []string{"--from", fixture, "--router-dump", strange, "--map", "7/0"}, "--map"},
		{exitInput, []string{"--from", fixture, "--router-dump", file("cut", `[{"worker_id":7`)}, "the dump is cut off or not of the form known"},
		{exitInput, []string{"--from", fixture, "--router-dump", filepath.Join(dir, "none")}, "the router's dump: "},
		{exitInput, []string{"--from", fixture, "--router-dump", strange}, "none of its replicas is observed here, 7/0 for one: say with --map 7/0=REPLICA"},
		{exitInput, []string{"--from", fixture, "--trace", file("empty", "")}, "none of its decisions has the hashes"},
		{exitInput, []string{"--from", fixture, "--trace", file("other", "{}\n")}, "none of its 1 lines is the end of a request"},
	} {
		if _, said := divergences(t, tt.code, tt.args...); !strings.Contains(said, tt.want) {
			t.Errorf("%q: %q, want %q in it", tt.args, said, tt.want)
		}
	}
	found, _ := divergences(t, exitFine, "--from", fixture, "--router-dump", strange, "--map", "7/0=a")
	if !strings.HasPrefix(found["a"], "the router counts 1 block that the replica has not, 100 % of its 1, and lacks ") {
		t.Errorf("%q", found)
	}
}

// TestRouterBeliefLive: a running indexer is sent two kinds of question, and its
// workers are joined by their sockets.
func TestRouterBeliefLive(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it listens to a fleet for a while")
	}
	engines, err := sim.StartFleet(t.Context(), sim.Options{Replicas: 2, Rate: 50, Step: 5 * time.Millisecond, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer engines.Close()
	args := []string{"--for", "2s"}
	var workers []string
	for i, m := range engines.Members() {
		args = append(args, "--engine", m.URL)
		workers = append(workers, fmt.Sprintf(`{"instance_id":%d,"model_name":"sim","listeners":{"0":{"endpoint":%q}}}`, 7+i, m.Events))
	}
	r := newRouters(t, map[string]string{
		"GET /workers": "[" + strings.Join(workers, ",") + "]",
		"GET /dump": `{"sim:default":{"events":[{"worker_id":7,"storage_tier":"device","event":{"dp_rank":0,` +
			`"data":{"stored":{"blocks":[{"block_hash":1,"tokens_hash":1}]}}}}]}}`,
	})
	found, said := divergences(t, exitFine, append(args, "--ask-indexer", r.URL)...)
	u, err := url.Parse(engines.Members()[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	if name := u.Host; !strings.Contains(found[name], "the router counts 1 block that the replica has not, 100 % of its 1, and lacks ") {
		t.Errorf("%s: %q (%s)", name, found, said)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, dump := r.sent["GET /dump"]; len(r.sent) != 2 || !dump {
		t.Errorf("sent %v", r.sent)
	}
}
