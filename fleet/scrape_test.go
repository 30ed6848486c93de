package fleet_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/wire"
)

// scraped runs a scraper for a while of a bubble's time.
func scraped(t *testing.T, w *web, opt fleet.Options, during time.Duration, members func() []fleet.Member) []wire.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	opt.Do = w.do
	if opt.Rand == nil {
		opt.Rand = func() float64 { return 0.5 }
	}
	var got []wire.Record
	fleet.NewScraper(opt).Run(ctx, members, func(r wire.Record) { got = append(got, r) })
	w.harmless(t)
	return got
}

func always(members ...fleet.Member) func() []fleet.Member {
	return func() []fleet.Member { return members }
}

const (
	ownLine   = "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3\n"
	otherLine = "# HELP python_gc x\npython_gc 5\n"
)

func TestScraper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(map[string]string{"http://a/metrics": otherLine + ownLine})
		begin := time.Now()
		at := func(seconds int) wire.Time {
			return wire.Time(begin.Add(time.Duration(seconds) * time.Second).UnixNano())
		}
		got := scraped(t, w, fleet.Options{Interval: 2 * time.Second, WholeEvery: 4 * time.Second}, 9*time.Second, always(
			fleet.Member{Name: "a", Metrics: "http://a/metrics", Rank: -1},
			fleet.Member{Name: "gone", Metrics: "http://gone/metrics", Rank: -1},
			fleet.Member{Name: "without"},
		))
		byName := map[wire.Replica][]wire.Record{}
		for _, r := range got {
			byName[r.Replica] = append(byName[r.Replica], r)
		}
		whole, short := otherLine+ownLine, ownLine
		var want []wire.Record
		for i, text := range []string{whole, short, whole, short, whole} {
			want = append(want, wire.Record{At: at(2 * i), Replica: "a", Kind: wire.Scrape, Text: text})
		}
		if d := cmp.Diff(want, byName["a"]); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		if n := len(byName["gone"]); n != 5 {
			t.Errorf("%d records of a page that is not there, want 5", n)
		}
		for _, r := range byName["gone"] {
			if want := "GET http://gone/metrics: connect: connection refused"; r.Err != want || r.Text != "" || r.Kind != wire.Scrape || r.At == 0 {
				t.Errorf("%+v, want the error %q", r, want)
			}
		}
		if len(byName) != 2 {
			t.Errorf("records of %d members, want 2", len(byName))
		}
	})
}

// After a failure the process may be another one: the page is whole again.
func TestScraperAfterFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(map[string]string{"http://a/metrics": otherLine + ownLine})
		round := 0
		w.other = func(*http.Request) *http.Response {
			if round++; round == 3 {
				return answer(http.StatusServiceUnavailable, "no")
			}
			return nil
		}
		var got []string
		for _, r := range scraped(t, w, fleet.Options{}, 11*time.Second, always(fleet.Member{Name: "a", Metrics: "http://a/metrics", Rank: -1})) {
			got = append(got, r.Err+fmt.Sprint(len(r.Text)))
		}
		whole, short := fmt.Sprint(len(otherLine+ownLine)), fmt.Sprint(len(ownLine))
		want := []string{whole, short, "GET http://a/metrics: 503 Service Unavailable0", whole, short, short}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	})
}

// Members come and go between rounds.
func TestScraperFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(map[string]string{"http://a/metrics": ownLine, "http://b/metrics": ownLine})
		round := 0
		got := scraped(t, w, fleet.Options{}, 5*time.Second, func() []fleet.Member {
			round++
			name := []string{"a", "b", "a"}[(round-1)%3]
			return []fleet.Member{{Name: wire.Replica(name), Metrics: "http://" + name + "/metrics", Rank: -1}}
		})
		var names string
		for _, r := range got {
			names += string(r.Replica)
		}
		if names != "aba" {
			t.Errorf("scraped %q, want aba", names)
		}
	})
}

// A page that several ranks share is asked for once, and each gets what
// ParseMetrics would take of the whole for that rank.
func TestScraperRanks(t *testing.T) {
	t.Parallel()
	const vllm = `# a comment
process_start_time_seconds 5
python_gc 1
vllm:num_requests_running{engine="0",model_name="say \"engine=\",engine=\\"} 1
vllm:num_requests_running{engine="1",model_name="m"} 2
vllm:num_requests_running{model_name="m", engine="10"} 3
vllm:other{engine="1"} 9
vllm:num_requests_waiting 50
`
	const sglang = `sglang:num_running_reqs{dp_rank="0",model_name="m"} 3
sglang:num_running_reqs{dp_rank="1",model_name="m"} 4
sglang:num_requests_total{is_streaming="true",model_name="m"} 20
`
	for name, page := range map[string]string{"vllm": vllm, "sglang": sglang} {
		for _, whole := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " whole ", whole), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWeb(map[string]string{"http://a/metrics": page})
					during := time.Second
					if !whole {
						during = 3 * time.Second
					}
					got := scraped(t, w, fleet.Options{}, during, always(
						fleet.Member{Name: "a/0", Metrics: "http://a/metrics", Rank: 0},
						fleet.Member{Name: "a/1", Metrics: "http://a/metrics", Rank: 1},
					))
					if !whole {
						got = got[2:]
					}
					if len(got) != 2 {
						t.Fatalf("%d records, want 2", len(got))
					}
					for rank, r := range got {
						if want := fmt.Sprint("a/", rank); string(r.Replica) != want {
							t.Errorf("record of %s, want %s", r.Replica, want)
						}
						facts, load, err := fleet.ParseMetrics(page, rank)
						if err != nil {
							t.Fatal(err)
						}
						cutFacts, cutLoad, err := fleet.ParseMetrics(r.Text, -1)
						if err != nil {
							t.Fatal(err)
						}
						if d := cmp.Diff(facts, cutFacts) + cmp.Diff(load, cutLoad); d != "" {
							t.Errorf("rank %d reads another thing (-page +cut):\n%s", rank, d)
						}
						if name == "vllm" && whole != strings.Contains(r.Text, "python_gc") {
							t.Errorf("rank %d, whole %v: %s", rank, whole, r.Text)
						}
						if strings.Contains(r.Text, fmt.Sprintf(`engine="%d"`, 1-rank)) {
							t.Errorf("rank %d got another's series: %s", rank, r.Text)
						}
					}
					if n := w.count("http://a/metrics"); whole && n != 1 {
						t.Errorf("the page was asked for %d times", n)
					}
				})
			})
		}
	}
}

// A server that answers nothing holds up its own page for the timeout.
func TestScraperTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		opt := fleet.Options{
			Rand: func() float64 { return 0 },
			Do: func(req *http.Request) (*http.Response, error) {
				if req.URL.Host == "quick" {
					return answer(http.StatusOK, ownLine), nil
				}
				<-req.Context().Done()
				return nil, req.Context().Err()
			},
		}
		var got []wire.Record
		fleet.NewScraper(opt).Run(ctx, always(
			fleet.Member{Name: "slow", Metrics: "http://slow/metrics"},
			fleet.Member{Name: "quick", Metrics: "http://quick/metrics"},
		), func(r wire.Record) { got = append(got, r) })
		want := []wire.Record{
			{Replica: "quick", Kind: wire.Scrape, Text: ownLine},
			{Replica: "slow", Kind: wire.Scrape, Err: "GET http://slow/metrics: no answer within 2s"},
			{Replica: "quick", Kind: wire.Scrape, Text: ownLine},
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreFields(wire.Record{}, "At")); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	})
}

func TestProbe(t *testing.T) {
	t.Parallel()
	ahead := func(d time.Duration) func(time.Time) string {
		return func(now time.Time) string { return now.Add(d).UTC().Format(http.TimeFormat) }
	}
	tests := []struct {
		name        string
		date        func(now time.Time) string
		least, most time.Duration
		known       bool
	}{
		{"the same clock", ahead(0), -100 * time.Millisecond, 2 * time.Second, true},
		{"an hour ahead", ahead(time.Hour), time.Hour - 100*time.Millisecond, time.Hour + 2*time.Second, true},
		{"behind", ahead(-time.Minute), -time.Minute - 100*time.Millisecond, -58 * time.Second, true},
		{"none", func(time.Time) string { return "" }, 0, 0, false},
		{"nonsense", func(time.Time) string { return "yesterday" }, 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // begins at a whole second
				p := fleet.NewProber(fleet.Options{Do: func(*http.Request) (*http.Response, error) {
					r := answer(http.StatusOK, "x")
					r.Header.Set("Date", tt.date(time.Now()))
					time.Sleep(100 * time.Millisecond)
					return r, nil
				}})
				page, err := p.Probe(t.Context(), "http://u:secret@a/")
				if err != nil {
					t.Fatal(err)
				}
				least, most, ok := page.Ahead()
				if least != tt.least || most != tt.most || ok != tt.known {
					t.Errorf("ahead by %v to %v, %v; want %v to %v, %v", least, most, ok, tt.least, tt.most, tt.known)
				}
				if page.RoundTrip() != 100*time.Millisecond || string(page.Body) != "x" || page.Status != http.StatusOK || page.URL != "http://u:xxxxx@a/" {
					t.Errorf("%+v", page)
				}
			})
		})
	}
}
