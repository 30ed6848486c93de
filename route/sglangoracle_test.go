package route

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// sglangLine is a row of a recording of the real router before fake workers.
type sglangLine struct {
	Kind    string            `json:"kind"`
	Router  string            `json:"router"`                 // of the row meta
	Workers []wire.Replica    `json:"workers"`                // of the row meta
	Order   []wire.Replica    `json:"workers_endpoint_order"` // of the row meta
	Args    []string          `json:"args"`                   // of the row meta
	ID      string            `json:"id"`
	Body    json.RawMessage   `json:"body"`
	Headers map[string]string `json:"headers"`
	Load    []int             `json:"load_before"` // by worker
	Worker  int               `json:"worker"`      // that it went to
	Seconds float64           `json:"seconds"`     // of the row pause
}

// sglangBody is a request as clients send it.
type sglangBody struct {
	Text     *string      `json:"text"`
	Prompt   *string      `json:"prompt"`
	IDs      []wire.Token `json:"input_ids"`
	Messages []struct {
		Content sglangContent `json:"content"`
	} `json:"messages"`
}

// sglangContent is a text, or the texts of a message's parts.
type sglangContent []string

func (c *sglangContent) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		*c = make([]string, 1)
		return json.Unmarshal(b, &(*c)[0])
	}
	var parts []struct {
		Text string `json:"text"`
	}
	err := json.Unmarshal(b, &parts)
	for _, p := range parts {
		*c = append(*c, p.Text)
	}
	return err
}

// request gives what the router reads of a row, which came at a time.
func (l *sglangLine) request(t *testing.T, at wire.Time) Request {
	t.Helper()
	var body sglangBody
	if err := json.Unmarshal(l.Body, &body); err != nil {
		t.Fatal(err)
	}
	req := Request{At: at, BlockSize: 1, IDs: body.IDs, Session: l.Headers["X-SMG-Routing-Key"]}
	for _, s := range []*string{body.Text, body.Prompt} {
		if s != nil {
			req.Contents = []string{*s}
		}
	}
	for _, m := range body.Messages {
		req.Contents = append(req.Contents, m.Content...)
	}
	return req
}

// sglangPolicy reads the policy and its settings off the router's command line.
// A setting that has no flag follows from which router it is.
func sglangPolicy(t *testing.T, router string, args []string) *Config {
	t.Helper()
	name := args[slices.Index(args, "--policy")+1]
	p, err := Named("sglang-" + strings.ReplaceAll(name, "_", "-"))
	if err != nil {
		t.Fatal(err)
	}
	flags, err := p.FromFlags(args)
	if err != nil {
		t.Fatal(err)
	}
	if name == "consistent_hashing" && router == "sglang-router" {
		flags = append(flags, Setting{"hash_ring", "false", "0.3.2"})
	}
	cfg, err := p.Configure(Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return &cfg
}

// sglangScore is how a recording came out.
type sglangScore struct {
	rows, certain, equal, sticky int
}

// replaySGLang asks for every decision, in the order of the recording. What is
// left to chance is remembered as the real router drew it.
func replaySGLang(t *testing.T, file string) (s sglangScore, policy string) {
	t.Helper()
	var meta sglangLine
	var cfg *Config
	var router *Router
	var now wire.Time
	at := make(map[string]int) // where a key went
	refdata.Each(t, file, func(_ int, l sglangLine) {
		switch l.Kind {
		case "meta":
			meta, cfg, now = l, sglangPolicy(t, l.Router, l.Args), 0
			router = NewRouter(*cfg, rand.New(rand.NewPCG(1, 2)))
		case "pause":
			now += wire.Time(l.Seconds * 1e9)
		case "req":
			s.rows++
			req := l.request(t, now)
			cands := make([]Candidate, len(meta.Order))
			for i, name := range meta.Order {
				n := slices.Index(meta.Workers, name)
				cands[i] = Candidate{Replica: name, Load: Load{State: LoadKnown, Requests: l.Load[n]}}
			}
			want := slices.Index(meta.Order, meta.Workers[l.Worker])
			d, err := router.Decide(&req, cands)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(d.Choice, want) {
				t.Errorf("%s: went to %s, and it can go to %v: %q", l.ID, meta.Order[want], d.Names(d.Choice), d.Trace)
			}
			if len(d.Choice) == 1 {
				s.certain++
				if d.Choice[0] == want {
					s.equal++
				}
			}
			if _, seen := at[req.Session]; seen && req.Session != "" {
				s.sticky++
				if len(d.Choice) != 1 {
					t.Errorf("%s: a known key can go to %v", l.ID, d.Names(d.Choice))
				}
			}
			at[req.Session] = want
			router.routeTo(&req, cands, want)
		}
	})
	return s, cfg.policy.Name
}

// routeTo remembers that a request went to a candidate, whatever would have been
// drawn.
func (r *Router) routeTo(req *Request, cands []Candidate, to int) {
	r.in.begin(req, cands)
	r.cfg.policy.rank(&r.in)
	if r.mem != nil {
		r.mem.took(&r.in, slices.Index(r.in.eligible, to))
	}
}

func TestOracleSGLangRouter(t *testing.T) {
	t.Parallel()
	testSGLangRouter(t, refdata.Root(t))
}

// TestSGLangRouterSamples reads the samples that every clone has.
func TestSGLangRouterSamples(t *testing.T) {
	t.Parallel()
	testSGLangRouter(t, testRoot)
}

func testSGLangRouter(t *testing.T, root string) {
	var all sglangScore
	for _, file := range refdata.Files(t, root, "sglang-router/*.jsonl.gz") {
		s, policy := replaySGLang(t, file)
		t.Logf("%s: %s: %d of %d decisions are certain, %d of them equal; %d by a known key", file, policy, s.certain, s.rows, s.equal, s.sticky)
		all.rows, all.certain, all.equal, all.sticky = all.rows+s.rows, all.certain+s.certain, all.equal+s.equal, all.sticky+s.sticky
	}
	t.Logf("all: %d decisions, %d of them certain and %d equal", all.rows, all.certain, all.equal)
}
