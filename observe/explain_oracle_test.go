package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// dynamoDefault is Dynamo's default policy as it comes.
func dynamoDefault(t testing.TB) *route.Config {
	t.Helper()
	p, err := route.Named("dynamo")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := p.Configure(route.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	return &cfg
}

// routed is a request of the recorded Dynamo fleet as its router decided it.
type routed struct {
	At     float64      `json:"t"`
	Tokens []wire.Token `json:"token_ids"`
	Log    struct {
		Worker uint64  `json:"worker_id"`
		Logit  float64 `json:"logit"`
	} `json:"router_log"`
	Costs    map[string]float64 `json:"recomputed_cost"` // by worker
	Response struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
}

// upTo pushes the records up to a moment, of which the first that is later stays
// in next.
func upTo(t *testing.T, o *Observer, src wire.Source, next *wire.Record, at wire.Time) {
	t.Helper()
	for {
		if next.At == 0 {
			rec, err := src.Next(t.Context())
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			*next = rec
		}
		if next.At > at {
			return
		}
		o.Push(*next)
		next.At = 0
	}
}

// TestOracleExplainDynamo: from the recorded events alone, those of the event
// plane and those of the engines' sockets, the cost of the worker that the router
// chose is the logit that it logged, and it is among our choice. The plane knows
// of no load, since the fleet's router does not tell of its bookings.
func TestOracleExplainDynamo(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	file := func(name string) string { return refdata.Files(t, root, "dynamo/live/"+name)[0] }
	var rows []routed
	refdata.Each(t, file("truth_joined.jsonl.gz"), func(_ int, r routed) {
		if r.At > 0 {
			rows = append(rows, r)
		}
	})
	slices.SortFunc(rows, func(a, b routed) int { return int(math.Copysign(1, a.At-b.At)) })
	facts := wire.Facts{Model: "qwen3-mock", BlockSize: 16}
	workers, sockets := map[wire.Replica]wire.Facts{}, map[wire.Replica]wire.Facts{}
	for id := range rows[0].Costs {
		workers[wire.Replica(id+"/0")] = facts
	}
	refdata.Each(t, file("vllm_wire.jsonl.gz"), func(_ int, line struct{ Endpoint wire.Replica }) { sockets[line.Endpoint] = facts })
	if len(rows) != 46 || len(workers) != 4 || len(sockets) != 4 {
		t.Fatalf("%d rows, %d workers, %d sockets", len(rows), len(workers), len(sockets))
	}
	cfg, costs, cached := dynamoDefault(t), 0, 0
	for name, of := range map[string]map[wire.Replica]wire.Facts{"event_plane.jsonl.gz": workers, "vllm_wire.jsonl.gz": sockets} {
		o, src := New(Options{Facts: of}), source(t, file(name))
		var next wire.Record
		for _, r := range rows {
			at, _ := wire.TimeOf(r.At)
			upTo(t, o, src, &next, at)
			a, err := o.Explain(t.Context(), explain.Query{Tokens: r.Tokens, Config: cfg})
			if err != nil || len(a.Candidates) != 4 {
				t.Fatalf("%s at %f: %+v, %v", name, r.At, a, err)
			}
			// The sockets do not say whose they are.
			ours, want := []float64{}, slices.Sorted(maps.Values(r.Costs))
			for i := range a.Candidates {
				c := &a.Candidates[i]
				ours = append(ours, c.Cost)
				costs++
				if name != "event_plane.jsonl.gz" {
					continue
				}
				if c.Replica == wire.Replica(fmt.Sprintf("%d/0", r.Log.Worker)) {
					if math.Abs(c.Cost-r.Log.Logit) > 1e-6 || !slices.Contains(a.Choice, c.Replica) || c.CachedTokens != r.Response.Usage.Details.Cached {
						t.Errorf("at %f: cost %v of %s with %d cached tokens, logit %v, %d were cached; our choice %v",
							r.At, c.Cost, c.Replica, c.CachedTokens, r.Log.Logit, r.Response.Usage.Details.Cached, a.Choice)
					}
					cached += c.CachedTokens
				}
				if c.Load.State != route.LoadUnknown {
					t.Errorf("at %f: a load %+v from nowhere", r.At, c.Load)
				}
			}
			for i, cost := range slices.Sorted(slices.Values(ours)) {
				if math.Abs(cost-want[i]) > 1e-6 {
					t.Errorf("%s at %f: costs %v, want %v", name, r.At, ours, want)
					break
				}
			}
		}
	}
	t.Logf("46 logits equal; %d costs equal from plane and sockets; %d tokens cached as predicted", costs, cached)
}

// TestOracleExplainCached asks at the start of ten requests spread over a
// recording of real engines: the replica that served each reports as many cached
// tokens as predicted.
func TestOracleExplainCached(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	file := func(name string) string { return refdata.Files(t, root, "vllm/a_fleet/"+name)[0] }
	player, err := Load(t.Context(), source(t, file("events.jsonl.gz")), Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	type served struct {
		Kind     string
		Replica  wire.Replica
		Start    float64 `json:"t_start"`
		End      float64 `json:"t_end"`
		Response struct {
			Tokens  []wire.Token `json:"prompt_token_ids"`
			Choices []struct {
				Tokens []wire.Token `json:"prompt_token_ids"`
			}
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
	}
	var rows []served
	for _, r := range refdata.All[served](t, file("truth.jsonl.gz")) {
		if len(r.Response.Tokens) == 0 && len(r.Response.Choices) > 0 {
			r.Response.Tokens = r.Response.Choices[0].Tokens
		}
		if len(r.Response.Tokens) > 0 && r.Kind != "admin" {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b served) int { return int(math.Copysign(1, a.Start-b.Start)) })
	// A request that begins beside or right behind another finds what is not yet
	// heard of: the audit asks about those as long as they run. Here are those
	// that found their replica at rest.
	const rest = 0.1 // seconds
	alone := slices.DeleteFunc(slices.Clone(rows), func(r served) bool {
		return slices.ContainsFunc(rows, func(o served) bool {
			return o.Replica == r.Replica && o.Start != r.Start && o.Start <= r.Start && o.End+rest > r.Start
		})
	})
	right, hits, at := 0, 0, []float64{}
	for _, r := range rows {
		start, _ := wire.TimeOf(r.Start)
		if _, err := player.SeekTime(context.Background(), start); err != nil {
			t.Fatal(err)
		}
		a, err := player.Explain(t.Context(), explain.Query{Tokens: r.Response.Tokens, Config: dynamoDefault(t), BlockSize: 32})
		if errors.Is(err, explain.ErrNobody) && r.Start == rows[0].Start {
			continue // nothing was published yet
		}
		if err != nil {
			t.Fatal(err)
		}
		predicted, cached := 0, r.Response.Usage.Details.Cached
		for _, c := range a.Candidates {
			if c.Replica == r.Replica {
				predicted = c.CachedTokens
			}
		}
		rested := slices.ContainsFunc(alone, func(o served) bool { return o.Start == r.Start })
		switch {
		case predicted > cached, predicted != cached && rested:
			t.Errorf("%s at %f, at rest %t: %d of %d tokens cached, predicted %d", r.Replica, r.Start, rested, cached, a.Tokens, predicted)
		case predicted == cached:
			right++
			hits += cached
		}
		if rested {
			at = append(at, math.Round(r.Start-rows[0].Start))
		}
	}
	const asked = 10
	if len(at) < asked || right < len(rows)*8/10 {
		t.Errorf("%d requests at rest, %d of %d right", len(at), right, len(rows))
	}
	t.Logf("%d requests: %d predicted rightly at their start with %d cached tokens, no other too much; among them all %d that found their replica at rest, %v s after the first",
		len(rows), right, hits, len(at), at)
}
