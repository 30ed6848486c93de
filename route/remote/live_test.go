package remote_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/route/remote"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// fleetFile is what the fleet's scripts write: where everything is.
type fleetFile struct {
	Model     string `json:"model"`
	BlockSize int    `json:"block_size"`
	Frontend  string `json:"frontend"`
	Indexer   string `json:"indexer"`
	Selector  string `json:"select_service"`
	Replicas  []struct {
		Worker uint64 `json:"worker_id"`
		Rank   int    `json:"dp_rank"`
		Events string `json:"events"`
		Replay string `json:"replay"`
	} `json:"replicas"`
}

// liveFleet skips the test where no fleet runs. Its requests log, if there is
// one, gives prompts that its caches may hold.
func liveFleet(t *testing.T) (f fleetFile, prompts [][]wire.Token) {
	t.Helper()
	file := os.Getenv("KVSCOPE_DYNAMO_FLEET")
	if file == "" {
		t.Skip("KVSCOPE_DYNAMO_FLEET names no fleet.json of a running Dynamo fleet")
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	log, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "requests.jsonl")) // there may be none
	for line := range bytes.Lines(log) {
		var row struct {
			Tokens []wire.Token `json:"token_ids"`
		}
		if json.Unmarshal(line, &row) == nil && len(row.Tokens) > 0 {
			prompts = append(prompts, row.Tokens)
		}
	}
	return f, prompts
}

// shadow follows the fleet's engines from the first event that they still have.
func (f *fleetFile) shadow(t *testing.T) *observe.Live {
	t.Helper()
	full, err := tap.ParsePolicy("full")
	if err != nil {
		t.Fatal(err)
	}
	var opt tap.Options
	opt.Replay.Policy = full
	listening := tap.New(opt)
	live := observe.NewLive(observe.Options{Want: func(r wire.Replica, from uint64) { listening.Want(tap.Want{Replica: r, From: from}) }}, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = live.Run(t.Context(), listening) // ends with the test
	}()
	t.Cleanup(func() {
		_ = listening.Close() // gives no error
		<-done
	})
	for _, r := range f.Replicas {
		ep := tap.Endpoint{Name: wire.Replica(fmt.Sprintf("%d/%d", r.Worker, r.Rank)), Address: r.Events, Replay: r.Replay}
		if err := listening.Add(ep); err != nil {
			t.Fatal(err)
		}
	}
	return live
}

// booked finds a worker's load in a frontend's metrics page.
var booked = regexp.MustCompile(`(?m)^dynamo_frontend_worker_active_(decode_blocks|prefill_tokens)\{dp_rank="(\d+)",worker_id="(\d+)".* (\d+)$`)

// loads are what the router has booked by now, of the fleet's replicas alone.
func (f *fleetFile) loads(t *testing.T) map[wire.Replica]route.Load {
	t.Helper()
	res, err := http.Get(f.Frontend + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	page, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := map[wire.Replica]route.Load{}
	for _, m := range booked.FindAllStringSubmatch(string(page), -1) {
		name := wire.Replica(m[3] + "/" + m[2])
		l := out[name]
		l.State = route.LoadKnown
		n, err := strconv.Atoi(m[4])
		if err != nil {
			t.Fatal(err)
		}
		if m[1] == "decode_blocks" {
			l.Blocks = n
		} else {
			l.PrefillTokens = n
		}
		out[name] = l
	}
	return out
}

// candidates are the fleet's replicas as we know them, with these loads.
func (f *fleetFile) candidates(t *testing.T, live *observe.Live, tokens []wire.Token, loads map[wire.Replica]route.Load) []route.Candidate {
	t.Helper()
	a, err := live.Ask(t.Context(), observe.Question{Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	var out []route.Candidate
	for _, r := range f.Replicas {
		c := route.Candidate{Replica: wire.Replica(fmt.Sprintf("%d/%d", r.Worker, r.Rank)), Load: route.Load{State: route.LoadKnown}}
		if l, ok := loads[c.Replica]; ok {
			c.Load = l
		}
		for _, row := range a.Rows {
			if row.Replica == c.Replica {
				c.Match = [wire.NumTiers]int{row.Device, row.Host, row.Disk, row.External}
			}
		}
		out = append(out, c)
	}
	return out
}

// A hundred prompts that no engine has seen as they are: what the running
// router, the indexer and the selection service say of them is what is reckoned
// here of an idle fleet. Under traffic the router's choice may also be the one by the
// loads that it had booked just before or after.
func TestLiveFleet(t *testing.T) {
	f, known := liveFleet(t)
	live := f.shadow(t)
	time.Sleep(3 * time.Second) // for the replays
	client := remote.New(remote.Options{})
	policy, err := route.Named("dynamo")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := policy.Configure(route.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(6, 4))
	matched, hits, alone, byLoad := 0, 0, 0, 0
	const n = 100
	for i := range n {
		tokens := fresh(random, known)
		req := route.Request{Tokens: len(tokens), BlockSize: f.BlockSize}
		q := remote.Question{Config: &cfg, Request: req, Candidates: f.candidates(t, live, tokens, nil), Tokens: tokens}
		if slices.ContainsFunc(q.Candidates, func(c route.Candidate) bool { return c.Match[wire.Device] > 0 }) {
			matched++
		}
		p := remote.Prompt{Model: f.Model, Tokens: tokens}
		answers := map[string]remote.Answer{}
		ask := func(name string, a remote.Answer, err error) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			answers[name] = a
		}
		around := []map[wire.Replica]route.Load{f.loads(t)}
		choice, err := client.Probe(t.Context(), f.Frontend, p)
		around = append(around, f.loads(t))
		ask("frontend", remote.Answer{Choice: choice}, err)
		if f.Indexer != "" {
			byTokens, err := client.Query(t.Context(), f.Indexer, p)
			ask("indexer", remote.Answer{Matches: byTokens}, err)
			locals, _ := blockhash.Rolling(tokens, f.BlockSize, false, blockhash.NamespaceOf("", ""), nil)
			byHash, err := client.QueryByHash(t.Context(), f.Indexer, f.Model, locals)
			ask("indexer, by hash", remote.Answer{Matches: byHash}, err)
		}
		if f.Selector != "" {
			choice, err := client.Select(t.Context(), f.Selector, p)
			ask("selection", remote.Answer{Choice: choice}, err)
			matches, err := client.Overlaps(t.Context(), f.Selector, p)
			ask("overlap scores", remote.Answer{Matches: matches}, err)
			loads, err := client.Loads(t.Context(), f.Selector, f.Model)
			ask("loads", remote.Answer{Loads: loads}, err)
		}
		q.After = f.candidates(t, live, tokens, nil)
		loaded := func(chosen wire.Replica) bool {
			return slices.ContainsFunc(around, func(loads map[wire.Replica]route.Load) bool {
				d, err := route.Decide(&cfg, &req, f.candidates(t, live, tokens, loads))
				return err == nil && slices.Contains(d.Names(d.Choice), chosen)
			})
		}
		for who, a := range answers {
			c, err := remote.Compare(&q, &a)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.Agrees:
			case who == "frontend" && loaded(c.Chosen):
				byLoad++
			default:
				t.Errorf("prompt %d, %d tokens: %s: %s", i, len(tokens), who, c.Why)
			}
			if who == "frontend" && c.Agrees {
				hits++
				if len(c.Ours.Choice) == 1 {
					alone++
				}
			}
		}
	}
	t.Logf("%d of %d: the router's choice is in ours, which is one replica %d times; %d more are by the loads that it had booked just before or after; %d prompts are held in part by somebody",
		hits, n, alone, byLoad, matched)
}

// fresh makes a prompt: what was sent before up to some token, and new ones.
func fresh(random *rand.Rand, known [][]wire.Token) []wire.Token {
	var out []wire.Token
	if len(known) > 0 {
		from := known[random.IntN(len(known))]
		out = append(out, from[:random.IntN(len(from)+1)]...)
	}
	for range 1 + random.IntN(200) {
		out = append(out, wire.Token(random.IntN(150000)))
	}
	return out
}
