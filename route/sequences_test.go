package route

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

func rulesOf(t testing.TB, set ...string) Rules { return configured(t, "dynamo", set...).Booking(4) }

func TestBookingRules(t *testing.T) {
	t.Parallel()
	want := Rules{BlockSize: 4, Blocks: true, Prefill: true, Reuse: true, Expiry: 300e9, Scan: 30e9}
	if got := rulesOf(t); got != want {
		t.Errorf("%+v", got)
	}
	if got := configured(t, "least-loaded").Booking(4); got != want {
		t.Errorf("another policy: %+v", got)
	}
	want.Blocks, want.Prefill, want.Output, want.Reuse = false, false, true, false
	if got := rulesOf(t, "router_track_active_blocks=false", "router_track_prefill_tokens=false", "router_track_output_blocks=true", "router_assume_kv_reuse=false"); got != want {
		t.Errorf("%+v", got)
	}
}

func TestSequences(t *testing.T) {
	t.Parallel()
	s := NewSequences(rulesOf(t))
	check := func(what string, want Load) {
		t.Helper()
		want.State = LoadKnown
		if got := s.Load("a", []uint64{1, 2, 3, 4}); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	check("idle", Load{})
	s.Add(1, Added{Request: "x", Replica: "a", Blocks: []uint64{1, 2}, Prefill: 8})
	check("one", Load{PrefillTokens: 8, Blocks: 2, Prefix: 2, Requests: 1})
	s.Add(1, Added{Request: "x", Replica: "b", Blocks: []uint64{9}, Prefill: 80})
	s.Add(1, Added{Request: "y", Replica: "a", Blocks: []uint64{1, 2, 3}, Prefill: 4})
	check("a shared prefix", Load{PrefillTokens: 12, Blocks: 3, Prefix: 3, Requests: 2})
	s.PrefillCompleted("x")
	s.PrefillCompleted("x")
	check("a first token", Load{PrefillTokens: 4, Blocks: 3, Prefix: 3, Requests: 2})
	s.Free("x")
	check("one is done", Load{PrefillTokens: 4, Blocks: 3, Prefix: 3, Requests: 1})
	s.Free("y")
	check("all are done", Load{})
	if s.Free("y"); s.Unknown != 1 || len(s.replicas) != 0 || s.blocks != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSequencesExpire(t *testing.T) {
	t.Parallel()
	const second = wire.Time(1e9)
	s := NewSequences(rulesOf(t))
	s.Add(1*second, Added{Request: "x", Replica: "a", Prefill: 8})
	s.Add(290*second, Added{Request: "y", Replica: "a", Prefill: 1})
	s.Expire(301 * second) // 300 s are not more than 300 s, and the last look was at 290 s
	if got := s.Load("a", nil).Requests; got != 2 {
		t.Errorf("%d requests after 300 s", got)
	}
	s.Expire(319 * second)
	if got := s.Load("a", nil).Requests; got != 2 {
		t.Errorf("%d requests before the next look", got)
	}
	s.Expire(320 * second)
	if got := s.Load("a", nil); got.Requests != 1 || got.PrefillTokens != 1 || s.Expired != 1 {
		t.Errorf("%+v, %d expired", got, s.Expired)
	}
}

// TestSequencesOutput follows a request of 6 tokens in blocks of 4.
func TestSequencesOutput(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set  []string
		want map[int]int // blocks by tokens generated
	}{
		"not tracked": {nil, map[int]int{1: 3, 3: 3, 90: 3}},
		"tracked":     {[]string{"router_track_output_blocks=true"}, map[int]int{1: 3, 2: 3, 3: 4, 6: 4, 7: 5, 14: 6}},
	} {
		s := NewSequences(rulesOf(t, tt.set...))
		s.Add(1, Added{Request: "x", Replica: "a", Blocks: []uint64{1}, Tokens: 6})
		s.Add(1, Added{Request: "y", Replica: "a", Blocks: []uint64{7, 8}, Tokens: 8})
		for tokens := range 91 {
			s.Output("x", tokens)
			if want, ok := tt.want[tokens]; ok && s.Load("a", nil).Blocks != want {
				t.Errorf("%s: %d blocks after %d tokens, want %d", name, s.Load("a", nil).Blocks, tokens, want)
			}
		}
		s.Free("x")
		if got := s.Load("a", nil).Blocks; got != 2 {
			t.Errorf("%s: %d blocks left", name, got)
		}
	}
	// With 20 tokens expected, 10 of them make the request's own blocks weigh half:
	// 3 of output and 1 of its prompt, beside 1 that is shared and 1 of another's.
	// Where nothing is shared (3 + 2) / 2 + 2 are rounded.
	for reuse, want := range map[string]int{"true": 4, "false": 5} {
		s := NewSequences(rulesOf(t, "router_track_output_blocks=true", "router_assume_kv_reuse="+reuse))
		s.Add(1, Added{Request: "x", Replica: "a", Blocks: []uint64{1, 2}, Tokens: 8, ExpectedOutput: 20})
		s.Add(1, Added{Request: "y", Replica: "a", Blocks: []uint64{1, 3}, Tokens: 8})
		s.Output("x", 10)
		if got := s.Load("a", nil).Blocks; got != want {
			t.Errorf("reuse %s: %d blocks, want %d", reuse, got, want)
		}
		s.Free("x")
		if got := s.Load("a", nil).Blocks; got != 2 {
			t.Errorf("reuse %s: %d blocks left", reuse, got)
		}
	}
}

// TestSequencesModel holds the book against one that is summed up anew each time.
func TestSequencesModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := Rules{
			BlockSize: 4, Blocks: rapid.Bool().Draw(t, "blocks"), Prefill: rapid.Bool().Draw(t, "prefill"),
			Reuse: rapid.Bool().Draw(t, "reuse"), Expiry: 300e9, Scan: 30e9,
		}
		s, model := NewSequences(rules), map[string]Added{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			id := fmt.Sprint(rapid.IntRange(0, 8).Draw(t, "request"))
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				tokens := rapid.SliceOfN(rapid.Uint32Range(0, 1), 0, 20).Draw(t, "tokens")
				_, seq := blockhash.Rolling(tokens, 4, false, 0, nil)
				a := Added{
					Request: id, Replica: wire.Replica(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "replica")),
					Blocks: seq, Tokens: len(tokens), Prefill: rapid.IntRange(0, len(tokens)).Draw(t, "prefill tokens"),
				}
				if s.Add(1, a); model[id].Request == "" {
					model[id] = a
				}
			case 2:
				if s.PrefillCompleted(id); model[id].Request != "" {
					a := model[id]
					a.Prefill = 0
					model[id] = a
				}
			case 3:
				s.Free(id)
				delete(model, id)
			}
			_, ask := blockhash.Rolling(rapid.SliceOfN(rapid.Uint32Range(0, 1), 0, 20).Draw(t, "asked"), 4, false, 0, nil)
			for _, replica := range []wire.Replica{"a", "b"} {
				want := Load{State: LoadKnown}
				active := map[uint64]bool{}
				for _, a := range model {
					if a.Replica != replica {
						continue
					}
					want.Requests++
					if rules.Prefill {
						want.PrefillTokens += a.Prefill
					}
					if !rules.Blocks {
						continue
					}
					if !rules.Reuse {
						want.Blocks += len(a.Blocks)
						continue
					}
					for _, h := range a.Blocks {
						active[h] = true
					}
				}
				want.Blocks += len(active)
				if want.Prefix = slices.IndexFunc(ask, func(h uint64) bool { return !active[h] }); want.Prefix < 0 {
					want.Prefix = len(ask)
				}
				if got := s.Load(replica, ask); got != want {
					t.Fatalf("%s: %+v, want %+v", replica, got, want)
				}
			}
		}
	})
}

// TestSequencesBound fills the book.
func TestSequencesBound(t *testing.T) {
	t.Parallel()
	s := NewSequences(rulesOf(t))
	s.Add(1, Added{Request: "x", Replica: "a", Blocks: make([]uint64, maxBooked+1)})
	s.Add(1, Added{Request: "y", Replica: "a", Prefill: -1})
	s.Add(1, Added{Request: "z", Replica: "a", Prefill: math.MaxInt})
	if s.Refused != 3 || len(s.requests) != 0 {
		t.Errorf("%d refused, %d booked", s.Refused, len(s.requests))
	}
}

func TestSequencesApply(t *testing.T) {
	t.Parallel()
	s := NewSequences(rulesOf(t))
	for _, step := range []struct {
		a    wire.Activity
		want Load
	}{
		{wire.Activity{Kind: wire.RequestAdded, Request: "x", Replica: "5/0", Blocks: []uint64{1, 2}, PrefillTokens: 7}, Load{State: LoadKnown, PrefillTokens: 7, Blocks: 2, Prefix: 1, Requests: 1}},
		{wire.Activity{Kind: wire.PrefillCompleted, Request: "x", Replica: "5/0"}, Load{State: LoadKnown, PrefillTokens: 0, Blocks: 2, Prefix: 1, Requests: 1}},
		{wire.Activity{Kind: wire.BadActivity}, Load{State: LoadKnown, PrefillTokens: 0, Blocks: 2, Prefix: 1, Requests: 1}},
		{wire.Activity{Kind: wire.RequestFreed, Request: "x"}, Load{State: LoadKnown}},
	} {
		s.Apply(1, &step.a)
		if got := s.Load("5/0", []uint64{1}); got != step.want {
			t.Errorf("after %+v: %+v, want %+v", step.a, got, step.want)
		}
	}
}
