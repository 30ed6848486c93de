package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/tap"
)

// comparable gives a report as JSON without what tells a live one from that of
// its capture: names, the clock, and what may still be asked.
func comparable(t *testing.T, s *observe.Snapshot) map[string]any {
	t.Helper()
	var b bytes.Buffer
	if err := report.JSON(&b, s, ""); err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	delete(out, "source")
	delete(out, "until")
	for _, r := range out["replicas"].([]any) {
		delete(r.(map[string]any), "replay")
	}
	return out
}

// TestLiveIsTrueAndRecorded: a fleet that loses batches, restarts an engine and
// clears a cache is found, followed and recorded; the index then holds what the
// engines hold, and the capture tells the same as the live run.
func TestLiveIsTrueAndRecorded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes as long as a fleet needs to get into trouble")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	engines, err := sim.StartFleet(ctx, sim.Options{
		Replicas: 3, Blocks: 400, Rate: 60, Step: 5 * time.Millisecond, Seed: 3, Faults: []string{"drop", "restart", "clear"},
		Audience: time.Minute, // who comes late is not exact
	})
	if err != nil {
		t.Fatal(err)
	}
	defer engines.Close()
	src, err := followDemo(ctx, engines, tap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.close()
	var file bytes.Buffer
	w, err := capture.NewWriter(&file, src.header(ctx))
	if err != nil {
		t.Fatal(err)
	}
	rec := &tee{Source: src, w: w, began: time.Now()}
	live := src.live()
	ran := make(chan error, 1)
	go func() { ran <- live.Run(ctx, rec) }()
	// All that goes wrong has to be seen, however long that takes a fleet that is
	// short of processors. The engine that restarted is heard again only once it
	// publishes with the link back.
	var gaps, restarts int
	trouble := func() bool {
		s := live.Snapshot()
		gaps, restarts = 0, 0
		for i := range s.Replicas {
			gaps += len(s.Replicas[i].Gaps)
			restarts += s.Replicas[i].Restarts
		}
		cleared := slices.ContainsFunc(engines.Strikes(), func(s sim.Strike) bool { return s.Fault == "clear" })
		return gaps > 0 && restarts > 0 && cleared && !slices.ContainsFunc(s.Replicas, func(r diagnose.Replica) bool { return !r.Heard })
	}
	for end := time.Now().Add(time.Minute); !trouble(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d gaps and %d restarts: nothing went wrong", gaps, restarts)
		}
	}
	engines.Freeze()
	truth := engines.Truth()
	behind := func() bool {
		s := live.Snapshot()
		for i := range truth {
			for j := range s.Replicas {
				if r := &s.Replicas[j]; string(r.Replica) == truth[i].Name && (!r.Heard || r.Last+1 != truth[i].Next || r.Held > 0) {
					return true
				}
			}
		}
		return len(s.Replicas) < len(truth)
	}
	for end := time.Now().Add(20 * time.Second); behind(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			for _, r := range live.Snapshot().Replicas {
				t.Errorf("%s is %s at batch %d of epoch %d, gaps %+v", r.Replica, r.Trust, r.Last, r.Epoch, r.Gaps)
			}
			t.Fatal("the last batches do not come")
		}
	}
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := rec.close(); err != nil {
		t.Fatal(err)
	}
	s := live.Snapshot()
	for _, want := range truth {
		copies := 0
		for _, b := range want.Residents {
			copies += b.Copies
		}
		for i := range s.Replicas {
			r := &s.Replicas[i]
			if string(r.Replica) != want.Name {
				continue
			}
			if !r.Trust.Exact() || r.Index.Copies != copies {
				t.Errorf("%s is %s with %d copies of blocks; the engine holds %d", r.Replica, r.Trust, r.Index.Copies, copies)
			}
		}
	}

	read, err := capture.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()), "test")
	if err != nil {
		t.Fatal(err)
	}
	again := &recording{Source: read, header: read.Header()}
	o := observe.New(observe.Options{
		Stream: again.stream(), Scrape: fleet.ParseMetrics, RouterPage: routerView, Index: index.Options{MaxBlocks: defaultMaxIndex}, Facts: again.facts(),
	})
	if err := o.Run(context.Background(), again, nil); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(comparable(t, s), comparable(t, o.Snapshot())); diff != "" {
		t.Errorf("live and its capture differ (-live +capture):\n%s", diff)
	}
}

// TestRecordCommand: the real command writes a private file, never over
// another, and what it wrote can be reported.
func TestRecordCommand(t *testing.T) {
	t.Parallel()
	fleet := engines(t, sim.Options{Replicas: 2, Rate: 40})
	path := filepath.Join(t.TempDir(), "a.kvcap")
	args := []string{"record", "--for", "2s", "-o", path, "--engine", fleet[0].URL, "--engine", fleet[1].URL}
	call := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := run(context.Background(), args, strings.NewReader(""), &out, &errs)
		return code, out.String(), errs.String()
	}
	if code, _, errs := call(args...); code != exitFine || !strings.Contains(errs, "records of 2 replicas") {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	private(t, path)
	if code, _, errs := call(args...); code != exitUsage || !strings.Contains(errs, "nothing is overwritten") {
		t.Errorf("a second time: exit code %d: %s", code, errs)
	}
	code, out, errs := call("report", "--from", path, "--json")
	if code != exitFine {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var got struct {
		Replicas []struct {
			Model   string
			Batches int
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Replicas) != 2 || got.Replicas[0].Batches == 0 || got.Replicas[0].Model == "" {
		t.Errorf("the capture's report: %+v", got)
	}
	if code, _, errs := call("record", "-o", "-", "--from", path); code != exitFine {
		t.Errorf("through a pipe: exit code %d: %s", code, errs)
	}
}

// private checks that only its owner can read a file.
func private(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %o", path, info.Mode().Perm())
	}
}
