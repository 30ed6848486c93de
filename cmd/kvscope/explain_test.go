package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/sim"
)

// TestExplainLive asks a running fleet where the prompt of a request would go that
// was just served, with the engines' own metrics as loads.
func TestExplainLive(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it listens to a fleet for a while")
	}
	engines, err := sim.StartFleet(t.Context(), sim.Options{Replicas: 2, Rate: 50, Step: 5 * time.Millisecond, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer engines.Close()
	time.Sleep(time.Second)
	served := engines.Requests()
	if len(served) == 0 {
		t.Fatal("nothing was served")
	}
	prompt, err := json.Marshal(served[len(served)-1].Tokens)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"explain", "-", "--for", "3s", "--replay", "full", "--json"}
	for _, m := range engines.Members() {
		args = append(args, "--engine", m.URL)
	}
	var out, errs bytes.Buffer
	if code := run(context.Background(), args, bytes.NewReader(prompt), &out, &errs); code != exitFine {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var a struct {
		Choice     []string
		Candidates []struct {
			Replica, Load string
			Cached        int `json:"predicted_cached_tokens"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	cached := 0
	for _, c := range a.Candidates {
		if cached += c.Cached; c.Load != "known" {
			t.Errorf("%s: load %s", c.Replica, c.Load)
		}
	}
	if len(a.Candidates) != 2 || len(a.Choice) == 0 || cached == 0 {
		t.Errorf("%+v", a)
	}
}

// TestRouterPages reads loads from routers' pages under the names that replicas
// have.
func TestRouterPages(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page")
	for name, tt := range map[string]struct {
		page string
		want []explain.WorkerLoad
		err  string
	}{
		"Dynamo": {
			`dynamo_frontend_worker_active_decode_blocks{worker_id="7",dp_rank="1"} 12` + "\n" +
				`dynamo_frontend_worker_active_prefill_tokens{worker_id="7",dp_rank="1"} 300` + "\n",
			[]explain.WorkerLoad{{Replica: "7/1", PrefillTokens: 300, Blocks: 12, Requests: -1}},
			"",
		},
		"SGLang": {
			`smg_worker_requests_active{worker="http://10.0.0.5:30000"} 3` + "\n",
			[]explain.WorkerLoad{{Replica: "10.0.0.5:30000", PrefillTokens: -1, Blocks: -1, Requests: 3}},
			"",
		},
		"an engine's": {`vllm:num_requests_running 1` + "\n", nil, "no metric of a router"},
	} {
		if err := os.WriteFile(path, []byte(tt.page), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := routerPage(t.Context(), path)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got.Workers); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// TestOracleRouterPage: a real frontend's page names workers as replicas of the
// event plane are named.
func TestOracleRouterPage(t *testing.T) {
	t.Parallel()
	text := refdata.Unpack(t, refdata.Files(t, refdata.Root(t), "dynamo/live/frontend_metrics_final.txt.gz")[0])
	facts, err := fleet.ParseRouter(string(text))
	if err != nil || len(facts.Workers) == 0 {
		t.Fatal(facts, err)
	}
	names := map[string]bool{}
	for _, w := range facts.Workers {
		names[string(workerLoad(facts.Router, &w).Replica)] = true
	}
	for _, want := range []string{"1555977845772451487/0", "7277214081447531914/0", "11177927908543625776/0", "16185360218674927381/0"} {
		if !names[want] {
			t.Errorf("%s is not among %v", want, names)
		}
	}
}
