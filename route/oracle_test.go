package route

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// testRoot holds samples of the reference data.
const testRoot = "testdata"

// truthLine is a row of dynamo/live/truth_joined or dynamo/variants.
type truthLine struct {
	Kind      string         `json:"kind"`
	BlockSize int            `json:"block_size"` // of the row meta
	Config    map[string]any `json:"config"`     // of the rows variant
	Request   string         `json:"request_id"`
	TokenIDs  []uint32       `json:"token_ids"`
	Overlap   overlaps       `json:"overlap_before"`
	Loads     []truthLoad    `json:"potential_loads_before"`
	Best      []uint64       `json:"best_worker"` // worker, rank, overlap
	Log       *struct {
		Worker uint64   `json:"worker_id"`
		Ranked []uint64 `json:"worker"`
		Logit  *float64 `json:"logit"`
	} `json:"router_log"`
	Costs map[string]float64 `json:"recomputed_cost"` // by worker, or worker:rank
}

// rankOf names a worker's rank.
type rankOf struct {
	Worker uint64 `json:"worker_id"`
	Rank   uint64 `json:"dp_rank"`
}

func (r rankOf) name() wire.Replica { return wire.Replica(fmt.Sprintf("%d/%d", r.Worker, r.Rank)) }

// truthLoad is a load as it would be with the request.
type truthLoad struct {
	rankOf
	Prefill  int `json:"potential_prefill_tokens"`
	Blocks   int `json:"potential_decode_blocks"`
	Requests int `json:"active_requests"`
}

type overlap struct {
	rankOf
	Device int  `json:"device_blocks"`
	Host   int  `json:"host_pinned_extension_blocks"`
	Disk   int  `json:"disk_extension_blocks"`
	Shared *int `json:"shared_beyond_device_blocks"`
}

// overlaps come as a list, bare or within a map.
type overlaps []overlap

func (o *overlaps) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]overlap)(o))
	}
	var in struct {
		Workers []overlap `json:"workers"`
	}
	err := json.Unmarshal(b, &in)
	*o = in.Workers
	return err
}

// candidates gives what the router knew: the loads are recorded as they would be
// with the request, so its own share comes off.
func (l *truthLine) candidates(t *testing.T, req *Request) []Candidate {
	t.Helper()
	var out []Candidate
	for _, o := range l.Overlap {
		c := Candidate{Replica: o.name()}
		c.Match[wire.Device], c.Match[wire.Host], c.Match[wire.Disk] = o.Device, o.Host, o.Disk
		if o.Shared != nil {
			c.Shared = *o.Shared
		}
		for _, load := range l.Loads {
			if load.name() == c.Replica {
				c.Load = Load{
					State:         LoadKnown,
					PrefillTokens: load.Prefill - max(0, req.Tokens-o.Device*req.BlockSize),
					Blocks:        max(0, load.Blocks-req.Blocks()), // 0 where they are not tracked
					Requests:      load.Requests,
				}
			}
		}
		if c.Load.State == LoadUnknown {
			t.Errorf("%s: no load of %s", l.Request, c.Replica)
		}
		out = append(out, c)
	}
	return out
}

// chosen names the worker that the router took.
func (l *truthLine) chosen() wire.Replica {
	if l.Log.Ranked != nil {
		return rankOf{l.Log.Ranked[0], l.Log.Ranked[1]}.name()
	}
	return rankOf{l.Log.Worker, 0}.name()
}

// each goes through the rows of both files with the router's configuration.
func each(t *testing.T, root string, do func(file string, cfg *Config, size int, l *truthLine)) {
	t.Helper()
	p, err := Named("dynamo")
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	// The meta row of the first says the block size of both: it is one fleet.
	for _, name := range []string{"dynamo/live/truth_joined.jsonl.gz", "dynamo/variants.jsonl.gz"} {
		cfg, err := p.Configure(Sources{})
		if err != nil {
			t.Fatal(err)
		}
		refdata.Each(t, refdata.Files(t, root, name)[0], func(_ int, l truthLine) {
			switch l.Kind {
			case "meta":
				size = l.BlockSize
			case "variant":
				var set []Setting
				for key, val := range l.Config {
					set = append(set, Setting{key, fmt.Sprint(val), "KvRouterConfig"})
				}
				if cfg, err = p.Configure(Sources{Flags: set}); err != nil {
					t.Fatal(err)
				}
			}
			do(name, &cfg, size, &l)
		})
	}
}

func TestDecisions(t *testing.T)       { t.Parallel(); checkDecisions(t, testRoot) }
func TestOracleDecisions(t *testing.T) { t.Parallel(); checkDecisions(t, refdata.Root(t)) }

// checkDecisions compares costs with the logit that the router logged, and with
// what others reckoned for those it did not choose.
func checkDecisions(t *testing.T, root string) {
	t.Helper()
	rows, all, drawn := map[string]int{}, 0, 0
	each(t, root, func(file string, cfg *Config, size int, l *truthLine) {
		if l.Log == nil || l.Log.Logit == nil {
			return
		}
		rows[file]++
		where := fmt.Sprintf("%s: row %d %s", file, rows[file], l.Request)
		req := Request{Tokens: len(l.TokenIDs), BlockSize: size}
		d, err := Decide(cfg, &req, l.candidates(t, &req))
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		at := slices.IndexFunc(d.Candidates, func(s Scored) bool { return s.Replica == l.chosen() })
		if at < 0 || math.Abs(d.Candidates[at].Cost-*l.Log.Logit) > 1e-6 {
			t.Fatalf("%s: %+v, and the router logged %v for %s", where, d.Candidates, *l.Log.Logit, l.chosen())
		}
		set := d.Best
		if cfg.num(dynTemperature) > 0 {
			set = d.Choice
			drawn++
		}
		if !slices.Contains(set, at) {
			t.Errorf("%s: the choice is %v, and the router chose %s", where, d.Names(set), l.chosen())
		}
		for i := range d.Candidates {
			s := &d.Candidates[i]
			want, ok := l.Costs[fmt.Sprintf("%d:%d", l.Overlap[i].Worker, l.Overlap[i].Rank)]
			if !ok {
				want, ok = l.Costs[fmt.Sprint(l.Overlap[i].Worker)]
			}
			sum := 0.0
			for _, term := range s.Terms {
				sum += term.Cost
			}
			if !ok || math.Abs(s.Cost-want) > 1e-6 || math.Abs(s.Cost-sum) > 1e-9 {
				t.Errorf("%s: cost %v of %s, terms sum up to %v, want %v", where, s.Cost, s.Replica, sum, want)
			}
			all++
		}
	})
	t.Logf("rows with a logit: %v; %d of them drawn at a temperature; %d candidates' costs equal", rows, drawn, all)
}

func TestBookings(t *testing.T)       { t.Parallel(); checkBookings(t, testRoot) }
func TestOracleBookings(t *testing.T) { t.Parallel(); checkBookings(t, refdata.Root(t)) }

// checkBookings books what the router booked and compares the loads that it had
// before each request.
func checkBookings(t *testing.T, root string) {
	t.Helper()
	var book *Sequences
	var file string
	compared, booked, now := 0, 0, wire.Time(1)
	each(t, root, func(name string, cfg *Config, size int, l *truthLine) {
		if l.Kind == "variant" || name != file {
			book, file = NewSequences(cfg.Booking(size)), name
		}
		switch l.Kind {
		case "prefill_complete":
			book.PrefillCompleted(l.Request)
		case "free":
			book.Free(l.Request)
		}
		if l.Loads == nil {
			return
		}
		req := Request{Tokens: len(l.TokenIDs), BlockSize: size}
		_, seq := blockhash.Rolling(l.TokenIDs, size, false, 0, nil)
		for _, o := range l.Overlap {
			load := book.Load(o.name(), seq)
			at := slices.IndexFunc(l.Loads, func(w truthLoad) bool { return w.name() == o.name() })
			blocks := load.Blocks + req.Blocks() - load.Prefix
			if !cfg.on(dynTrackBlocks) {
				blocks = 0
			}
			got := [3]int{load.PrefillTokens + max(0, req.Tokens-o.Device*size), blocks, load.Requests}
			if want := [3]int{l.Loads[at].Prefill, l.Loads[at].Blocks, l.Loads[at].Requests}; got != want {
				t.Errorf("%s: %s: prefill tokens, blocks, requests of %s: %v, want %v", name, l.Request, o.name(), got, want)
			}
			compared++
		}
		if l.Kind == "booked" {
			booked++
			book.Add(now, Added{
				Request: l.Request, Replica: rankOf{l.Best[0], l.Best[1]}.name(), Blocks: seq,
				Tokens: req.Tokens, Prefill: max(0, req.Tokens-int(l.Best[2])*size),
			})
		}
	})
	t.Logf("%d bookings, %d loads equal", booked, compared)
}
