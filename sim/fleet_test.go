package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// stepped is a clock that a test moves. It serves one waiter.
type stepped struct {
	mu    sync.Mutex
	now   time.Time
	fire  chan time.Time
	waits chan struct{}
}

func newStepped() *stepped {
	return &stepped{now: time.Unix(1_800_000_000, 0), fire: make(chan time.Time), waits: make(chan struct{}, 1)}
}

func (c *stepped) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *stepped) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	c.mu.Unlock()
	c.waits <- struct{}{}
	return c.fire, func() {}
}

// steps has a fleet make n steps.
func (c *stepped) steps(n int) {
	for range n {
		c.fire <- time.Time{}
		<-c.waits
	}
}

// startFleet starts a fleet that stands still before its first step.
func startFleet(t *testing.T, opt Options) (*Fleet, *stepped) {
	t.Helper()
	c := newStepped()
	opt.Clock = c
	f, err := StartFleet(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	<-c.waits
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, c
}

// journal is what came of each engine's current life, by sequence.
type journal map[wire.Replica]map[uint64][]byte

// follow takes records until each engine's journal is complete up to next, or
// as complete as the replays make it.
func (j journal) follow(t *testing.T, tp *tap.Tap, next map[wire.Replica]uint64) {
	t.Helper()
	ends := 0
	whole := func() bool {
		for name, n := range next {
			if uint64(len(j[name])) < n {
				return false
			}
		}
		return true
	}
	for !whole() && ends < len(next) {
		records(t, tp, func(rec wire.Record) bool {
			if j[rec.Replica] == nil {
				j[rec.Replica] = map[uint64][]byte{}
			}
			switch rec.Kind {
			case wire.Frames:
				_, seq, payload, err := wire.SplitFrames(rec.Frames)
				if err != nil {
					t.Fatal(err)
				}
				j[rec.Replica][seq] = payload
			case wire.Link:
				if rec.Link == wire.LinkDown {
					clear(j[rec.Replica]) // the next life counts from 0
				}
			case wire.ReplayFrames:
				if r, err := wire.SplitReply(rec.Frames); err == nil && !r.End {
					j[rec.Replica][r.Seq] = r.Payload
				}
			case wire.ReplayEnd:
				ends++
			}
			return true
		})
	}
}

// TestFleet taps a fleet in which one engine restarts and one loses batches that
// its replay buffer keeps: what was published makes exactly the truth.
func TestFleet(t *testing.T) {
	t.Parallel()
	opt := small
	opt.Faults = []string{"restart", "drop"}
	f, clock := startFleet(t, opt)
	tp := tap.New(tap.Options{BackoffMax: 50 * time.Millisecond})
	t.Cleanup(func() { _ = tp.Close() })
	members := f.Members()
	for _, m := range members {
		if err := tp.Add(tap.Endpoint{Name: wire.Replica(m.Name), Address: m.Events, Replay: m.Replay, Topics: []string{m.Topic}}); err != nil {
			t.Fatal(err)
		}
	}
	up := func(name string, connects uint64) {
		t.Helper()
		eventually(t, name+" is subscribed", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			for i, m := range members {
				st := tp.Stats()[i]
				if m.Name == name {
					return st.Connects >= connects && f.sites[i].publisher != nil && f.sites[i].publisher.Stats().Subscriptions == 1
				}
			}
			return false
		})
	}
	for _, m := range members {
		up(m.Name, 1)
	}
	j, done := journal{}, make(chan struct{})
	want := make(chan map[wire.Replica]uint64, 1)
	go func() {
		defer close(done)
		j.follow(t, tp, <-want)
	}()
	clock.steps(6*40 + 10) // the restart has begun
	if truth := f.Truth(); truth[0].Up || !truth[1].Up {
		t.Errorf("up: %t, %t", truth[0].Up, truth[1].Up)
	}
	if _, err := http.Get(members[0].Metrics); err == nil {
		t.Error("an engine that is down answers")
	}
	clock.steps(2 * 40)
	up("sim-0", 2)
	clock.steps(6 * 40)
	f.Freeze()
	clock.steps(5)
	truth := f.Truth()
	next := map[wire.Replica]uint64{}
	for _, tr := range truth {
		next[wire.Replica(tr.Name)] = tr.Next
		tp.Want(tap.Want{Replica: wire.Replica(tr.Name)})
	}
	want <- next
	<-done
	for i, tr := range truth {
		s := newShadow()
		batches := j[wire.Replica(tr.Name)]
		for seq := range tr.Next {
			s.take(t, batches[seq])
		}
		if tr.Next < 20 || uint64(len(batches)) != tr.Next || !slices.EqualFunc(tr.Residents, s.residents(), same) {
			t.Errorf("%s: %d of %d batches, %d blocks, and by the batches %d", tr.Name, len(batches), tr.Next, len(tr.Residents), len(s.residents()))
		}
		if tr.Pending || tr.Blocks != small.Blocks || tr.BlockSize != 16 || (i == 0) == (tr.Started == 1_800_000_000e9) {
			t.Errorf("%s: pending %t, %d blocks of %d, since %d", tr.Name, tr.Pending, tr.Blocks, tr.BlockSize, tr.Started)
		}
	}
	if d := cmp.Diff(members, f.Members()); d != "" {
		t.Errorf("the members changed:\n%s", d)
	}
	got := map[string]int{}
	for _, s := range f.Strikes() {
		got[s.Fault+" "+s.Engine]++
	}
	if !maps.Equal(got, map[string]int{"restart sim-0": 1, "drop sim-1": 2}) {
		t.Errorf("strikes %v", got)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", url, resp.Status, err)
	}
	return string(b)
}

func TestFleetPages(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	opt := small
	opt.Faults, opt.Buffer = []string{"no-caching"}, 77
	f, clock := startFleet(t, opt)
	clock.steps(400)
	f.Freeze()
	for i, m := range f.Members() {
		facts, load, err := fleet.ParseMetrics(get(t, m.Metrics), -1)
		if err != nil {
			t.Fatal(err)
		}
		on := i > 0
		wantFacts := wire.Facts{
			Model: "sim-model", BlockSize: 16, Capacity: 400, HashAlgo: "sha256", PrefixCaching: &on, Started: 1_800_000_000e9,
		}
		if d := cmp.Diff(wantFacts, facts); d != "" {
			t.Errorf("%s (-want +got):\n%s", m.Name, d)
		}
		var served, hit, asked float64
		for _, r := range f.Requests() {
			if r.Replica == m.Name {
				served++
				hit += float64(r.Cached)
				asked += float64(len(r.Tokens))
			}
		}
		// What runs still has been looked up already.
		if !load.Known || load.Requests != served || load.HitTokens < hit || load.QueriedTokens < asked ||
			load.Running > 0 != (load.KVUsage > 0) || (load.HitTokens > 0) != on {
			t.Errorf("%s: load %+v, served %g, %g of %g tokens", m.Name, load, served, hit, asked)
		}
		var sources map[string]map[string]any
		if err := json.Unmarshal([]byte(get(t, m.URL+"/kv_event_sources")), &sources); err != nil {
			t.Fatal(err)
		}
		want := map[string]map[string]any{"0": {
			"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": starred(m.Events), "replay_endpoint": starred(m.Replay),
			"buffer_steps": 77.0, "hwm": 100_000.0, "max_queue_size": 100_000.0, "topic": m.Topic,
		}}
		if d := cmp.Diff(want, sources); d != "" {
			t.Errorf("%s (-want +got):\n%s", m.Name, d)
		}
		if got := get(t, m.URL+"/version"); got != "{\"version\":\"0.32.0\"}\n" {
			t.Errorf("version %s", got)
		}
		if got := get(t, m.URL+"/health"); got != "" {
			t.Errorf("health %q", got)
		}
	}
}

// starred puts * in the place of the host.
func starred(address string) string { return strings.Replace(address, "127.0.0.1", "*", 1) }

// TestRequestsLog: what is written, kvscope audit reads.
func TestRequestsLog(t *testing.T) {
	t.Parallel()
	f, clock := startFleet(t, small)
	clock.steps(200)
	rows := f.Requests()
	var b bytes.Buffer
	if err := WriteRequests(&b, rows); err != nil {
		t.Fatal(err)
	}
	read, err := explain.ReadRequests(&b, "log")
	if err != nil {
		t.Fatal(err)
	}
	if len(read) != len(rows) || len(rows) < 20 {
		t.Fatalf("%d rows, read %d", len(rows), len(read))
	}
	slices.SortStableFunc(rows, func(a, b Request) int { return int((a.Start - b.Start) * 1e6) })
	for i, q := range read {
		r := rows[i]
		if q.Replica != r.Replica || !slices.Equal(q.Tokens, r.Tokens) || q.Cached != r.Cached || !q.Known ||
			q.Start.Seconds() != r.Start || q.End.Seconds() != r.End {
			t.Fatalf("row %d: %+v, read as %+v", i, r, q)
		}
	}
}

// TestFleetWaits: time stands still until each engine has a subscriber, or for
// as long as was said.
func TestFleetWaits(t *testing.T) {
	t.Parallel()
	opt := small
	opt.Audience = 10 * time.Second
	f, clock := startFleet(t, opt)
	clock.steps(100)
	tp := tap.New(tap.Options{})
	t.Cleanup(func() { _ = tp.Close() })
	for i, m := range f.Members() {
		if n := f.Truth()[i].Next; n > 0 {
			t.Errorf("%s has published %d batches to nobody", m.Name, n)
		}
		if err := tp.Add(tap.Endpoint{Name: wire.Replica(m.Name), Address: m.Events, Topics: []string{m.Topic}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are subscribed to", func() bool {
		return !slices.ContainsFunc(f.sites, func(s *site) bool { return s.publisher.Stats().Subscriptions == 0 })
	})
	clock.steps(100)
	if n := f.Truth()[0].Next; n == 0 {
		t.Error("nothing was published to a subscriber")
	}
	alone, clock := startFleet(t, opt)
	clock.steps(10*40 + 100)
	if n := alone.Truth()[0].Next; n == 0 {
		t.Error("it still waits")
	}
}

func TestFleetRefuses(t *testing.T) {
	t.Parallel()
	for want, opt := range map[string]Options{
		"-1 replicas":          {Replicas: -1},
		"at least 2048 tokens": {Blocks: 100},
		"-1 requests a second": {Rate: -1},
		"a step of 1µs":        {Step: time.Microsecond},
		"a buffer of -1":       {Buffer: -1},
		`no fault "x"`:         {Faults: []string{"drop", "x"}},
	} {
		if _, err := StartFleet(t.Context(), opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	// The third socket cannot be bound, and the first two do not stay.
	bound := 0
	listen := func(network, address string) (net.Listener, error) {
		if bound++; bound == 3 {
			return nil, errors.New("no more ports")
		}
		return net.Listen(network, address)
	}
	if _, err := StartFleet(t.Context(), Options{Listen: listen}); err == nil || !strings.Contains(err.Error(), "sim-0: binding the pages: no more ports") {
		t.Errorf("error %v", err)
	}
}

// TestFleetEnds: with its context, or when it is closed, once or twice; the
// system's clock drives it.
func TestFleetEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f, err := StartFleet(ctx, Options{Step: time.Millisecond, Rate: 500})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a request is served", func() bool { return len(f.Requests()) > 0 })
	cancel()
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.Truth()) != 4 {
		t.Error("no truth after the end")
	}
}
