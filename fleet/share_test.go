package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/wire"
)

// TestSharedPagesAreBounded: what a page becomes for many ranks does not grow
// with the page times the ranks.
func TestSharedPagesAreBounded(t *testing.T) {
	t.Parallel()
	const ranks = 1024
	var members []fleet.Member
	var told strings.Builder // a line of each rank
	for rank := range ranks {
		members = append(members, fleet.Member{Name: wire.Replica(fmt.Sprint(rank)), Metrics: "http://a/metrics", Rank: rank})
		fmt.Fprintf(&told, "vllm:num_requests_running{engine=\"%d\"} %d\n", rank, rank)
	}
	junk := strings.Repeat("python_gc 1\n", 3<<20/12)
	for _, tt := range []struct {
		name, page string
		members    []fleet.Member
		// text gives what a rank is handed.
		text func(rank int) string
		err  string
	}{
		{"a page of nobody's rank", junk + ownLine, members, func(int) string { return ownLine }, ""},
		{"the same for a few", junk + ownLine, members[:4], func(int) string { return junk + ownLine }, ""},
		{"a page of all ranks", junk + told.String(), members, func(rank int) string {
			return fmt.Sprintf("vllm:num_requests_running{engine=\"%d\"} %d\n", rank, rank)
		}, ""},
		{
			"lines that all ranks need", strings.Repeat("process_start_time_seconds 1\n", 3<<20/29) + told.String(), members, nil,
			"too large for each of the 1024 replicas that share it: give each a page of its own, or no metrics",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := scraped(t, newWeb(map[string]string{"http://a/metrics": tt.page}), fleet.Options{}, time.Second, always(tt.members...))
				if len(got) != len(tt.members) {
					t.Fatalf("%d records", len(got))
				}
				held, texts := 0, map[*byte]bool{}
				for rank, rec := range got {
					if at := unsafe.StringData(rec.Text); !texts[at] {
						texts[at] = true
						held += len(rec.Text)
					}
					if !strings.Contains(rec.Err, tt.err) || (rec.Err == "") != (tt.err == "") {
						t.Fatalf("rank %d: %q, want %q", rank, rec.Err, tt.err)
					}
					if tt.text != nil && rec.Text != tt.text(rank) {
						t.Fatalf("rank %d got %d bytes: %.80q", rank, len(rec.Text), rec.Text)
					}
				}
				if held > len(tt.page) {
					t.Errorf("a page of %d bytes became %d", len(tt.page), held)
				}
			})
		})
	}
}

// TestFactsOfManyRanks: what a page says of a thousand ranks is read in one go.
func TestFactsOfManyRanks(t *testing.T) {
	t.Parallel()
	var sources []string
	var page strings.Builder
	const ranks = 1000
	for rank := range ranks {
		sources = append(sources, fmt.Sprintf(`"%d":{"endpoint":"tcp://*:%d"}`, rank, 5000+rank))
		for range 30 {
			fmt.Fprintf(&page, "vllm:request_success_total{engine=\"%d\"} 1\n", rank)
		}
		fmt.Fprintf(&page, "vllm:cache_config_info{engine=\"%d\",block_size=\"16\",num_gpu_blocks=\"%d\"} 1\n", rank, rank+2)
	}
	w := newWeb(map[string]string{"http://a/kv_event_sources": "{" + strings.Join(sources, ",") + "}", "http://a/metrics": page.String()})
	began := time.Now()
	got, problems := lookAt(t, w, fleet.Replica{Engine: "http://a"})
	wantErrors(t, problems)
	for rank, m := range got {
		if m.Rank != rank || m.Facts.Capacity != rank+1 || m.Facts.BlockSize != 16 {
			t.Fatalf("rank %d: %+v", rank, m)
		}
	}
	if took := time.Since(began); len(got) != ranks || took > 20*time.Second { // once for each rank it takes a minute
		t.Errorf("%d members in %s", len(got), took)
	}
}
