package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// rig is an engine whose batches a test publishes, loses and keeps as it likes,
// and a tap that follows it.
type rig struct {
	t       *testing.T
	engine  *sim.Engine
	pub     *sim.Publisher
	rep     *sim.Replayer
	rng     *rand.Rand
	seq     uint64
	jobs    int
	prompts [][]wire.Token
	tap     *tap.Tap
	live    *observe.Live
	policy  string
	idle    time.Duration
}

func newRig(t *testing.T, policy string, opt sim.ReplayerOptions) *rig {
	t.Helper()
	r := &rig{t: t, rng: rand.New(rand.NewPCG(7, 7)), policy: policy}
	r.boot("tcp://127.0.0.1:0", opt)
	return r
}

// boot starts an engine with its sockets, the publisher's at an address.
func (r *rig) boot(address string, opt sim.ReplayerOptions) {
	r.t.Helper()
	var err error
	if r.engine, err = sim.NewEngine(sim.EngineOptions{Blocks: 120}); err != nil {
		r.t.Fatal(err)
	}
	// A program that is being started, by another test, has the socket that was
	// just closed for a moment.
	bind := func(open func() error) {
		r.t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if err := open(); err == nil {
				return
			} else if time.Now().After(end) {
				r.t.Fatal(err)
			}
		}
	}
	bind(func() (err error) {
		r.pub, err = sim.OpenPublisher(sim.PublisherOptions{Address: address})
		return err
	})
	bind(func() (err error) {
		r.rep, err = sim.OpenReplayer(opt)
		return err
	})
	// A pause of an answer is short only where it has to pass.
	if r.idle = 20 * time.Second; opt.Mute || opt.Limit > 0 {
		r.idle = 2 * time.Second
	}
	pub, rep := r.pub, r.rep
	r.t.Cleanup(func() { _, _ = pub.Close(), rep.Close() })
	r.seq, r.prompts = 0, nil
}

// follow begins to tap.
func (r *rig) follow() {
	r.t.Helper()
	policy, err := tap.ParsePolicy(r.policy)
	if err != nil {
		r.t.Fatal(err)
	}
	r.tap = tap.New(tap.Options{Replay: tap.ReplayOptions{Policy: policy, Idle: r.idle}, BackoffMax: 200 * time.Millisecond})
	r.live = observe.NewLive(observe.Options{
		Stream: stream.Options{Hold: liveHold},
		Want:   func(name wire.Replica, from uint64) { r.tap.Want(tap.Want{Replica: name, From: from}) },
	}, nil)
	if err := r.tap.Add(tap.Endpoint{Name: "r", Address: r.pub.Address(), Replay: r.rep.Address()}); err != nil {
		r.t.Fatal(err)
	}
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		if err := r.live.Run(context.Background(), r.tap); err != nil {
			r.t.Error(err)
		}
	}()
	r.t.Cleanup(func() {
		_ = r.tap.Close()
		<-ran
	})
	r.until("the subscription", func() bool { return r.pub.Stats().Subscriptions > 0 })
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("waited in vain for %s: %+v, %+v", what, r.replica(), r.tap.Stats())
		}
	}
}

// fate is what becomes of a batch.
type fate struct{ live, kept bool }

var (
	sent     = fate{true, true}
	missed   = fate{false, true}  // live only
	lostEver = fate{false, false} // and in no replay answer
)

// serve serves requests until n batches were made, and lets all have one fate.
func (r *rig) serve(n int, f fate) {
	r.t.Helper()
	for made := 0; made < n; {
		if len(r.engine.Jobs()) == 0 {
			r.submit()
		}
		if events, _ := r.engine.Step(); len(events) > 0 {
			r.batch(events, f)
			made++
		}
	}
}

func (r *rig) submit() {
	r.t.Helper()
	var prompt []wire.Token
	if len(r.prompts) > 0 && r.rng.IntN(2) == 0 {
		prompt = slices.Clone(r.prompts[r.rng.IntN(len(r.prompts))])
	}
	for range 40 + r.rng.IntN(60) {
		prompt = append(prompt, wire.Token(r.rng.IntN(1000)))
	}
	if len(prompt) > 600 {
		prompt = prompt[:100]
	}
	r.prompts = append(r.prompts, prompt)
	r.jobs++
	if err := r.engine.Submit(sim.Job{Prompt: prompt, Output: prompt[:20], ID: r.jobs}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) batch(events []wire.Event, f fate) {
	payload := sim.AppendBatch(nil, wire.Time(time.Now().UnixNano()), events, 0)
	if f.live {
		r.pub.Publish("", r.seq, payload)
	}
	if f.kept {
		r.rep.Keep("", r.seq, payload)
	}
	r.seq++
}

func (r *rig) replica() *diagnose.Replica {
	s := r.live.Snapshot()
	for i := range s.Replicas {
		if s.Replicas[i].Replica == "r" {
			return &s.Replicas[i]
		}
	}
	return &diagnose.Replica{}
}

// settle waits until all that was published is applied.
func (r *rig) settle() *diagnose.Replica {
	r.t.Helper()
	r.until("the last batch", func() bool {
		x := r.replica()
		return x.Heard && x.Last+1 == r.seq && x.Held == 0 && x.Trust.Word != stream.Replaying
	})
	return r.replica()
}

// equals holds the index against the engine's own cache: the copies of blocks,
// and what each prompt so far would find.
func (r *rig) equals() {
	r.t.Helper()
	copies := 0
	for _, b := range r.engine.Residents() {
		copies += b.Copies
	}
	if got := r.replica().Index.Copies; got != copies {
		r.t.Errorf("the index has %d copies of blocks, the engine %d", got, copies)
	}
	for _, p := range r.prompts {
		a, err := r.live.Ask(context.Background(), observe.Question{Tokens: p})
		if err != nil {
			r.t.Fatal(err)
		}
		if got, want := a.Rows[0].CachedTokens, r.engine.Match(p); got != want {
			r.t.Errorf("a prompt of %d tokens would find %d by the index, and %d in the engine", len(p), got, want)
		}
	}
}

// clear resets the engine's cache, after which everything is known again.
func (r *rig) clear() {
	r.t.Helper()
	for len(r.engine.Jobs()) > 0 {
		if events, _ := r.engine.Step(); len(events) > 0 {
			r.batch(events, sent)
		}
	}
	if !r.engine.Reset(false) {
		r.t.Fatal("the cache cannot be reset")
	}
	r.serve(5, sent)
}

// requests is how often the replay socket was asked.
func (r *rig) requests() uint64 {
	b, _ := r.tap.Budget("r")
	return b.Requests
}

// TestReplayEndsInTheTruth: whatever a replay answer is like, the index ends as
// the engine's cache, or says that it does not; and the requests are few, and
// counted.
func TestReplayEndsInTheTruth(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		policy string
		opt    sim.ReplayerOptions
		story  func(*rig)
		// exact is what must be true without a clear.
		exact bool
		// most is how many requests there may be.
		most uint64
	}{
		{"a gap", "gaps", sim.ReplayerOptions{}, func(r *rig) {
			r.follow()
			r.serve(20, sent)
			r.serve(5, missed)
			r.serve(20, sent)
		}, true, 1},
		{"a gap, answered without topics", "gaps", sim.ReplayerOptions{Old: true}, func(r *rig) {
			r.follow()
			r.serve(20, sent)
			r.serve(5, missed)
			r.serve(20, sent)
		}, true, 1},
		{"joined late, all still kept", "full", sim.ReplayerOptions{}, func(r *rig) {
			r.serve(60, sent)
			r.follow()
			r.serve(20, sent)
		}, true, 2},
		{"clipped start", "full", sim.ReplayerOptions{Buffer: 10}, func(r *rig) {
			r.serve(60, sent)
			r.follow()
			r.serve(5, sent)
		}, false, 2},
		{"truncated answers", "gaps", sim.ReplayerOptions{Limit: 20}, func(r *rig) {
			r.follow()
			r.serve(20, sent)
			r.serve(50, missed)
			r.serve(5, sent)
		}, true, 4},
		{"a hole that is never filled", "gaps", sim.ReplayerOptions{}, func(r *rig) {
			r.follow()
			r.serve(20, sent)
			r.serve(3, missed)
			r.serve(1, lostEver)
			r.serve(3, missed)
			r.serve(5, sent)
		}, false, 2},
		{"no answer", "gaps", sim.ReplayerOptions{Mute: true}, func(r *rig) {
			r.follow()
			r.serve(20, sent)
			r.serve(3, missed)
			r.serve(5, sent)
		}, false, 2},
		{"overlap with live", "full", sim.ReplayerOptions{}, func(r *rig) {
			r.serve(100, sent)
			r.follow()
			for range 20 {
				r.serve(5, sent)
				time.Sleep(2 * time.Millisecond)
			}
		}, true, 2},
		{"live removal of what the gap stored", "gaps", sim.ReplayerOptions{}, func(r *rig) {
			r.follow()
			r.serve(100, sent) // the cache is full: what comes evicts
			r.serve(30, missed)
			r.serve(60, sent) // and evicts what the gap stored
		}, true, 1},
		{"restart during the replay", "gaps", sim.ReplayerOptions{Mute: true}, func(r *rig) {
			r.follow()
			r.serve(30, sent)
			r.serve(5, missed)
			r.serve(2, sent)
			r.until("the request", func() bool { return r.rep.Stats().Requests > 0 })
			address, replays := r.pub.Address(), r.rep.Address()
			_, _ = r.pub.Close(), r.rep.Close()
			r.boot(address, sim.ReplayerOptions{Address: replays})
			r.until("the subscription", func() bool { return r.pub.Stats().Subscriptions > 0 })
			r.serve(10, sent)
		}, true, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tt.policy, tt.opt)
			tt.story(r)
			x := r.settle()
			if x.Trust.Exact() != tt.exact {
				t.Errorf("trust is %s", x.Trust)
			}
			if tt.exact {
				r.equals()
			}
			if n := r.requests(); n == 0 || n > tt.most {
				t.Errorf("%d requests were sent, want 1 to %d", n, tt.most)
			}
			r.clear()
			if x := r.settle(); !x.Trust.Exact() {
				t.Errorf("after a clear trust is %s", x.Trust)
			}
			r.equals()
			if n := r.rep.Stats().Requests; tt.name != "restart during the replay" && n != r.requests() {
				t.Errorf("%d requests came, and %d are shown", n, r.requests())
			}
		})
	}
}
