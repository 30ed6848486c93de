package fleet_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// page is a line of a metrics.jsonl.gz.
type page struct {
	Replica string `json:"replica"`
	Text    string `json:"text"`
	Full    bool   `json:"full"`
	Error   string `json:"error"`
}

func readPages(t testing.TB, r io.Reader) []page {
	t.Helper()
	var out []page
	s := bufio.NewScanner(r)
	s.Buffer(nil, 8<<20)
	for s.Scan() {
		var p page
		if err := json.Unmarshal(s.Bytes(), &p); err != nil {
			t.Fatalf("line %d: %v", len(out)+1, err)
		}
		out = append(out, p)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// pages are those of a real vLLM 0.32.0 fleet of three.
func pages(t testing.TB) []page {
	t.Helper()
	r, err := fixtures.Open("a_fleet/metrics.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	return readPages(t, r)
}

// The independent reading of a page: one regular expression for each fact.
var (
	anyGPUBlocks = regexp.MustCompile(`[{,]num_gpu_blocks="(\d+)"`)
	anyBlockSize = regexp.MustCompile(`[{,]block_size="(\d+)"`)
	anyAlgo      = regexp.MustCompile(`prefix_caching_hash_algo="(\w+)"`)
	anyModel     = regexp.MustCompile(`model_name="([^"]*)"`)
	anyStart     = regexp.MustCompile(`(?m)^process_start_time_seconds (\S+)$`)
	anyQueries   = regexp.MustCompile(`(?m)^vllm:prefix_cache_queries_total\{[^}]*\} (\S+)$`)
	anyHits      = regexp.MustCompile(`(?m)^vllm:prefix_cache_hits_total\{[^}]*\} (\S+)$`)
	anyRunning   = regexp.MustCompile(`(?m)^vllm:num_requests_running\{[^}]*\} (\S+)$`)
	anyWaiting   = regexp.MustCompile(`(?m)^vllm:num_requests_waiting\{[^}]*\} (\S+)$`)
	anyUsage     = regexp.MustCompile(`(?m)^vllm:kv_cache_usage_perc\{[^}]*\} (\S+)$`)
	anyFinished  = regexp.MustCompile(`(?m)^vllm:request_success_total\{[^}]*\} (\S+)$`)
)

func word(re *regexp.Regexp, text string) string {
	if m := re.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

func number(t *testing.T, re *regexp.Regexp, text string) float64 {
	t.Helper()
	var sum float64
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// checkPage compares ParseMetrics with the independent reading.
func checkPage(t *testing.T, p page) (wire.Facts, wire.Load) {
	t.Helper()
	facts, load, err := fleet.ParseMetrics(p.Text, 0)
	if err != nil {
		t.Fatalf("a page of %s: %v", p.Replica, err)
	}
	capacity := int(number(t, anyGPUBlocks, p.Text))
	if capacity > 0 {
		capacity--
	}
	counts := []struct {
		name      string
		got, want float64
	}{
		{"capacity", float64(facts.Capacity), float64(capacity)},
		{"block size", float64(facts.BlockSize), number(t, anyBlockSize, p.Text)},
		{"start", float64(facts.Started), number(t, anyStart, p.Text) * 1e9},
		{"queried tokens", load.QueriedTokens, number(t, anyQueries, p.Text)},
		{"hit tokens", load.HitTokens, number(t, anyHits, p.Text)},
		{"running", load.Running, number(t, anyRunning, p.Text)},
		{"waiting", load.Waiting, number(t, anyWaiting, p.Text)},
		{"usage", load.KVUsage, number(t, anyUsage, p.Text)},
		{"finished", load.Requests, number(t, anyFinished, p.Text)},
	}
	for _, c := range counts {
		if c.got != c.want {
			t.Errorf("a page of %s: %s %v, want %v", p.Replica, c.name, c.got, c.want)
		}
	}
	if want := word(anyModel, p.Text); facts.Model != want {
		t.Errorf("model %q, want %q", facts.Model, want)
	}
	if want := word(anyAlgo, p.Text); facts.HashAlgo != want {
		t.Errorf("hash algorithm %q, want %q", facts.HashAlgo, want)
	}
	if !load.Known || load.HitTokens > load.QueriedTokens || load.KVUsage > 1 {
		t.Errorf("a page of %s: impossible load %+v", p.Replica, load)
	}
	return facts, load
}

func TestFixturePages(t *testing.T) {
	t.Parallel()
	full := 0
	for _, p := range pages(t) {
		facts, _ := checkPage(t, p)
		if !p.Full {
			continue
		}
		full++
		if facts.BlockSize != 32 || facts.Capacity != 199 || facts.PrefixCaching == nil || !*facts.PrefixCaching {
			t.Errorf("a full page of %s gives %+v", p.Replica, facts)
		}
	}
	if full != 6 {
		t.Errorf("%d full pages, want 6", full)
	}
}

// TestOracleMetrics reads every metrics page of every recording in the shared
// data, and holds the result against an independent reading of the same text.
func TestOracleMetrics(t *testing.T) {
	t.Parallel()
	for _, name := range refdata.Files(t, refdata.Root(t), "vllm/*/metrics.jsonl.gz") {
		t.Run(filepath.Base(filepath.Dir(name)), func(t *testing.T) {
			t.Parallel()
			var parsed, full, failed int
			last := map[string]wire.Load{}
			started := map[string]wire.Time{}
			for _, p := range readPages(t, bytes.NewReader(refdata.Unpack(t, name))) {
				if p.Error != "" {
					failed++
					continue
				}
				facts, load := checkPage(t, p)
				parsed++
				if p.Full {
					full++
				}
				// Counters only grow in one life of the process, which a full
				// page dates.
				if facts.Started != 0 && facts.Started != started[p.Replica] {
					started[p.Replica] = facts.Started
					delete(last, p.Replica)
				}
				if was := last[p.Replica]; load.Requests < was.Requests || load.QueriedTokens < was.QueriedTokens {
					t.Errorf("%s: counters fell from %+v to %+v", p.Replica, was, load)
				}
				last[p.Replica] = load
			}
			if parsed == 0 {
				t.Error("no page with text")
			}
			t.Logf("%d pages read, %d of them full; %d failed scrapes", parsed, full, failed)
		})
	}
}
