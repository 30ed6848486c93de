package observe

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// spoken is a Speech made of a table.
type spoken map[wire.Token]string

func (s spoken) Text(t wire.Token) (string, bool) { text, ok := s[t]; return text, ok }

func (s spoken) Encode(context.Context, string) ([]wire.Token, []prompt.Span, error) {
	return nil, nil, fmt.Errorf("nothing is encoded")
}

// ofShift are the codes of the checks that compare chains.
var ofShift = []string{"boundary-shift", "order-shift", "template-drift", "multimodal-first"}

func shiftsIn(findings []diagnose.Finding) []diagnose.Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f diagnose.Finding) bool { return !slices.Contains(ofShift, f.Code) })
}

// told is what a finding of a recording must say.
type told struct {
	code          string
	token, blocks int
	requests      string
	what          string // without and with a tokenizer, parted by a bar
	can           string
}

// recordedShifts are the families of b_timestamp, the newest first. That 5 blocks are
// lost behind a time and an id, and 10 behind shuffled tools, is what the engine itself
// reported as cached tokens of the same prompts with these at the tail or in order.
var recordedShifts = []told{
	// 6 shuffled ones, and the first of those that are stable.
	{"order-shift", 172, 59, "7 of", "the same tokens in another order|tool order (8 tools)", "15 of 15 blocks of such a request are reused, now 5"},
	{"boundary-shift", 6, 24, "6 of", "tokens resized|id (UUID)", "5 of 6 blocks of such a request are reused, now 0"},
	{"boundary-shift", 22, 45, "10 of", "4 tokens replaced by as many|timestamp (second), 20 tokens replaced by as many", "5 of 6 blocks of such a request are reused, now 0"},
}

// TestShiftRecorded: families of a recording of a real engine, on tokens alone and
// with the vocabulary of the model.
func TestShiftRecorded(t *testing.T) {
	t.Parallel()
	for i, words := range []spoken{nil, vocabulary(t)} {
		events, err := fixtures.Open("b_timestamp/events.jsonl.gz")
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := fixtures.Open("b_timestamp/metrics.jsonl.gz")
		if err != nil {
			t.Fatal(err)
		}
		opt := Options{Scrape: fleet.ParseMetrics}
		if words != nil {
			opt.Speech = words
		}
		o := New(opt)
		if err := o.Run(t.Context(), wire.Merge(wire.NewJSONL(events, "events"), wire.NewJSONL(metrics, "metrics")), nil); err != nil {
			t.Fatal(err)
		}
		wantShifts(t, o.Snapshot().Findings, i)
	}
}

func wantShifts(t *testing.T, findings []diagnose.Finding, spelled int) {
	t.Helper()
	found := shiftsIn(findings)
	if len(found) != len(recordedShifts) {
		t.Fatalf("%d findings: %s", len(found), inWords(found))
	}
	for i, want := range recordedShifts {
		f := found[i]
		t.Log(f.Title, "·", f.Counterfactual)
		token := want.token
		if spelled == 1 {
			token = map[int]int{172: 168, 6: 6, 22: 7}[token] // the whole of what changes
		}
		what := strings.Split(want.what, "|")[spelled]
		if f.Code != want.code || *f.Evidence.Token != token || *f.Effect.Blocks != want.blocks || f.Severity != diagnose.Warning ||
			!strings.HasPrefix(f.Title, want.requests) || !strings.Contains(f.Title, what) || !strings.Contains(f.Counterfactual, want.can) {
			t.Errorf("%+v, want %+v", f, want)
		}
		if says := strings.Contains(f.Next, "--tokenizer"); says == (spelled == 1) {
			t.Errorf("next: %s", f.Next)
		}
	}
}

// vocabulary gives the texts of the tokens of b_timestamp.
func vocabulary(t *testing.T) spoken {
	t.Helper()
	var words map[string]string
	if err := json.Unmarshal(read(t, filepath.Join("..", "explain", "diff", "testdata", "b_timestamp_tokens.json")), &words); err != nil {
		t.Fatal(err)
	}
	out := spoken{}
	for id, word := range words {
		n, err := strconv.Atoi(id)
		if err != nil {
			t.Fatal(err)
		}
		if digits, is := strings.CutPrefix(word, "hex:"); is {
			b, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatal(err)
			}
			word = string(b)
		}
		out[wire.Token(n)] = word
	}
	return out
}

// TestOracleShift: of all recordings of real fleets, b_timestamp has families and no
// other has.
func TestOracleShift(t *testing.T) {
	t.Parallel()
	files := refdata.Files(t, refdata.Root(t), "vllm/*/events.jsonl.gz", "dynamo/live/vllm_wire.jsonl.gz")
	looked := 0
	for _, path := range files {
		name := filepath.Base(filepath.Dir(path))
		for spelled, words := range []spoken{nil, vocabulary(t)} {
			opt := Options{Scrape: fleet.ParseMetrics}
			if words != nil {
				opt.Speech = words
			}
			o := New(opt)
			if err := o.Run(t.Context(), source(t, path), nil); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			looked++
			found := shiftsIn(o.Snapshot().Findings)
			if name == "b_timestamp" {
				wantShifts(t, found, spelled)
				continue
			}
			for _, f := range found {
				if f.Severity >= diagnose.Warning {
					t.Errorf("%s: %s %s", path, f.Code, f.Title)
				}
			}
		}
	}
	t.Logf("%d times a recording was followed", looked)
}

// small is the fixture's tokenizer.
type small struct{ *tokenizer.Tokenizer }

func (s small) Text(t wire.Token) (string, bool) {
	text, _, ok := s.Token(t)
	return text, ok
}

func (s small) Encode(context.Context, string) ([]wire.Token, []prompt.Span, error) {
	return nil, nil, fmt.Errorf("nothing is encoded")
}

func (s small) tokens(t *testing.T, text string) []wire.Token {
	t.Helper()
	e, err := s.Tokenizer.Encode(text, false)
	if err != nil {
		t.Fatal(err)
	}
	return e.IDs
}

const instructions = `You are a careful agent that answers questions about orders, invoices and shipments. ` +
	`Please answer the question with the documents that are given below. If you do not know the answer, say so and ask one question back. ` +
	`Use the tools when they help. Do not call a tool twice with the same arguments. Your parcel left the depot this morning. ` +
	`A prefix is reused only when every token before it is the same, block by block. Answer in short, plain sentences.` + "\n"

// TestPainsOfPrompts: the cases of the pain log that are seen in the event stream. Each
// gives the text of request n; its blocks are of four tokens.
func TestPainsOfPrompts(t *testing.T) {
	t.Parallel()
	tok, err := tokenizer.Load(mustRead(t, "tokenizer/tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	words := small{tok}
	system := func(text string) string {
		return "<|im_start|>system\n" + text + "<|im_end|>\n<|im_start|>user\nWhere is my parcel?<|im_end|>\n<|im_start|>assistant\n"
	}
	ids := []string{"fa690", "0b1c7", "77d2e", "c4a01", "9e3f5", "21bb8"}
	tool := func(name string) string {
		return `{"name": "` + name + `", "description": "Use it for ` + name + ` when the question is about ` + name + ` and nothing else will do", "parameters": {"type": "object", "properties": {"` + name + `": {"type": "string"}}}}` + "\n"
	}
	orders := [][]string{{"zeta", "alpha", "mu"}, {"alpha", "mu", "zeta"}, {"mu", "zeta", "alpha"}, {"mu", "alpha", "zeta"}, {"alpha", "zeta", "mu"}, {"zeta", "mu", "alpha"}}
	listed := func(n int) string {
		out := ""
		for _, name := range orders[n%len(orders)] {
			out += tool(name)
		}
		return out
	}
	answer := "Your parcel left the depot this morning and will be delivered before noon. The driver could not find the address, so it went back to the depot."
	for _, p := range []promptPain{
		{"P01", "boundary-shift", "header line", "<|im_start|>system\n", func(n int) string {
			return system("x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=" + ids[n] + ";\n" + instructions)
		}},
		{"P03", "boundary-shift", "timestamp (minute)", "<|im_start|>system\nCurrent time: ", func(n int) string {
			return system(fmt.Sprintf("Current time: 2026-02-06 14:3%d\n", n) + instructions)
		}},
		{"P06", "boundary-shift", "timestamp (µs)", "<|im_start|>system\ncurrent_date: ", func(n int) string {
			return system(fmt.Sprintf("current_date: 2026-06-16T10:1%d:12.34567%d\n", n, n+2) + instructions)
		}},
		{"P13", "order-shift", "tool order", "", func(n int) string {
			return system("You may call these tools:\n<tools>\n" + listed(n) + "</tools>\n" + instructions)
		}},
		{"P14", "order-shift", "tool order", "", func(n int) string {
			// Each chat goes on after the server of the first tool came back.
			names := []string{"zeta", "alpha", "mu"}
			if n%2 == 1 {
				names = []string{"alpha", "mu", "zeta"}
			}
			out := "<|im_start|>system\n" + instructions
			for _, name := range names {
				out += tool(name)
			}
			out += fmt.Sprintf("<|im_end|>\n<|im_start|>user\nOrder %d: ", 1042+n/2*31)
			for i := range 30 {
				out += fmt.Sprint(" parcel ", 7*(n/2+1)*(i+3))
			}
			return out + "<|im_end|>\n<|im_start|>assistant\n"
		}},
		{"P19", "template-drift", "think block", "", func(n int) string {
			// Each chat's answer, and then its next turn, whose template leaves out the thought.
			think := "<think>\n\n</think>\n\n"
			chat := system(fmt.Sprintf("Request %d. %s", 1042+n/2*31, instructions))
			if n%2 == 0 {
				return chat + think + answer + "<|im_end|>\n"
			}
			return chat + answer + "<|im_end|>\n<|im_start|>user\nThank you, that helps.<|im_end|>\n<|im_start|>assistant\n"
		}},
	} {
		t.Run(p.id, func(t *testing.T) {
			t.Parallel()
			p.found(t, words)
		})
	}
}

func mustRead(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := fixtures.FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
