package lab

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// TestTraceForms reads what traces may look like.
func TestTraceForms(t *testing.T) {
	t.Parallel()
	w := trace(t,
		`{"timestamp": 1000, "input_length": 250, "output_length": 5, "hash_ids": [7,8,9], "session_id": "a"}`,
		``,
		`{"delay": 500, "input_length": 350, "output_length": 0, "hash_ids": [7,8,10,11], "session_id": "a"}`,
		`{"timestamp": 100, "input_length": 100, "output_length": 5, "hash_ids": [8]}`,
		`{"delay": 50, "input_length": 300, "output_length": 5, "hash_ids": [7,8,12]}`,
		`{"delay": 0, "input_length": 301, "output_length": 5, "hash_ids": [7,8,12,13]}`,
	)
	if w.Requests() != 5 || len(w.roots) != 4 || w.roots[0] != 2 || w.requests[3].at != 150*second/1000 || w.requests[1].at != second/2 {
		t.Errorf("%+v, roots %v", w.requests, w.roots)
	}
	if w.requests[0].next != 1 || w.requests[1].session != w.requests[0].session || w.requests[1].output != 1 {
		t.Errorf("the session is %+v", w.requests[:2])
	}
	// The fifth begins with the whole of the fourth.
	if w.requests[4].session != w.requests[3].session || w.requests[3].session == w.requests[2].session || !w.Inferred || w.sessions != 3 {
		t.Errorf("%d sessions: %+v", w.sessions, w.requests)
	}
	// Equal ids behind different ones are different blocks.
	if a, b := w.paths[2][0], w.paths[0][1]; a == b {
		t.Error("hash id 8 is one block at two places")
	}
	if !slices.Equal(w.paths[0][:2], w.paths[1][:2]) || w.paths[0][2] == w.paths[1][2] {
		t.Errorf("paths %v", w.paths[:2])
	}
	// Cut into smaller blocks, as many are shared.
	w, err := ReadTrace(strings.NewReader(`{"timestamp":0,"input_length":250,"output_length":1,"hash_ids":[1,2,3]}
{"timestamp":0,"input_length":280,"output_length":1,"hash_ids":[1,2,4]}`), "", 100, 25)
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for same < 10 && w.paths[0][same] == w.paths[1][same] {
		same++
	}
	if len(w.paths[0]) != 10 || len(w.paths[1]) != 12 || same != 8 {
		t.Errorf("%v share %d", w.paths, same)
	}
}

// TestHostileTraces each give one clear error that names the line.
func TestHostileTraces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:         "it has no request",
		`{`:        "line 1: unexpected end",
		`[]`:       "line 1: json: cannot unmarshal array",
		`{}`:       "line 1: an input_length of 0",
		"\n{}":     "line 2: an input_length of 0",
		"\x1f\x8b": "trace x: ",
		`{"timestamp":0,"input_length":99999999999,"hash_ids":[]}`:                                       "an input_length of 99999999999",
		`{"timestamp":0,"input_length":-1,"hash_ids":[]}`:                                                "an input_length of -1",
		`{"timestamp":0,"input_length":10,"output_length":-1,"hash_ids":[1]}`:                            "an output_length of -1",
		`{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1,2]}`:                           "2 hash_ids for 10 tokens, and with 100 tokens each it takes 1",
		`{"timestamp":0,"input_length":10,"output_length":1}`:                                            "0 hash_ids for 10 tokens",
		`{"input_length":10,"output_length":1,"hash_ids":[1]}`:                                           "either timestamp or delay",
		`{"timestamp":1,"delay":1,"input_length":10,"hash_ids":[1]}`:                                     "either timestamp or delay",
		`{"timestamp":-1,"input_length":10,"output_length":1,"hash_ids":[1]}`:                            "a time of -1 ms",
		`{"timestamp":1e300,"input_length":10,"output_length":1,"hash_ids":[1]}`:                         "a time of 1e+300 ms",
		`{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1e40]}`:                          "line 1: json: cannot unmarshal number",
		strings.Repeat("{\"delay\":34e9,\"input_length\":10,\"output_length\":1,\"hash_ids\":[1]}\n", 3): "line 2: it comes later than 400 days",
		strings.Repeat(" ", maxTraceLine+1) + "{":                                                        "line 1: bufio.Scanner: token too long",
	} {
		w, err := ReadTrace(strings.NewReader(text), "x", 100, 100)
		if err == nil || !strings.Contains(err.Error(), want) || w != nil {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	zw.Write([]byte(strings.Repeat(`{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1]}`+"\n", 1000)))
	zw.Close()
	if _, err := ReadTrace(bytes.NewReader(packed.Bytes()[:packed.Len()-20]), "x", 100, 100); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file cut short: %v", err)
	}
	for _, sizes := range [][2]int{{100, 0}, {100, 30}, {0, 16}, {50, 100}, {1 << 30, 16}} {
		if _, err := ReadTrace(strings.NewReader(`{}`), "x", sizes[0], sizes[1]); err == nil || strings.Contains(err.Error(), "line") {
			t.Errorf("%v: %v", sizes, err)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add([]byte(`{"timestamp":0,"input_length":250,"output_length":1,"hash_ids":[1,2,3]}`), uint8(25))
	f.Add([]byte(`{"delay":5,"input_length":250,"output_length":1,"hash_ids":[1,2,3],"session_id":"s"}`), uint8(100))
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		w, err := ReadTrace(bytes.NewReader(text), "fuzz", 100, int(size))
		if err != nil {
			return
		}
		total := 0
		for _, r := range w.requests {
			total += int(r.prompt)
		}
		if total > 1<<20 {
			return
		}
		o := Options{Workload: w, Policy: policy(t, "dynamo"), Replicas: 2, Capacity: 64, Rates: DefaultRates()}
		if r, err := Run(context.Background(), o); err != nil || r.Requests+r.Refused != w.Requests() {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}

// TestFromLog makes requests of served ones.
func TestFromLog(t *testing.T) {
	t.Parallel()
	prompt := func(n int) []wire.Token {
		out := make([]wire.Token, n)
		for i := range out {
			out[i] = wire.Token(i)
		}
		return out
	}
	w, err := FromLog("log", []Logged{
		{At: 7 * second, Took: 2 * second, Tokens: prompt(70), Cached: 32, Known: true},
		{At: 5 * second, Took: 0, Tokens: prompt(40), Known: true},
		{At: 9 * second, Tokens: prompt(70), Salt: "x"},
		{At: 10 * second, Tokens: prompt(20), Salt: "y", Cached: 21, Known: true},
		{At: 10 * second, Tokens: prompt(20), Salt: "z", Cached: -1, Known: true},
		{At: 9 * second},
	}, 16, 50)
	if err != nil {
		t.Fatal(err)
	}
	if w.Requests() != 5 || w.requests[0].prompt != 40 || w.requests[1].at != 2*second || w.requests[1].output != 100 || w.requests[0].output != 1 {
		t.Errorf("%+v", w.requests)
	}
	if !slices.Equal(w.paths[0][:2], w.paths[1][:2]) || w.paths[1][0] == w.paths[2][0] || len(w.paths[0]) != 3 {
		t.Errorf("paths %v", w.paths)
	}
	if w.requests[0].session != w.requests[1].session || w.requests[2].session == w.requests[0].session {
		t.Errorf("sessions of %+v", w.requests)
	}
	if w.Known != 2 || w.Unknown != 3 {
		t.Errorf("%d with usage, %d without", w.Known, w.Unknown)
	}
	near(t, "measured", w.Measured, 32.0/110)
	if _, err := FromLog("log", nil, 16, 50); err == nil {
		t.Error("an empty log is a workload")
	}
}

// TestShapes holds workloads to what they say of themselves.
func TestShapes(t *testing.T) {
	t.Parallel()
	w := made(t, "rollouts", 160)
	long := map[int32]int{}
	for _, r := range w.requests {
		if r.output == 8192 {
			long[r.session]++
		}
	}
	if w.Requests() != 160 || w.Sessions() != 16 || len(long) != 4 || w.all != 16 {
		t.Errorf("%d requests of %d sessions, %d stragglers", w.Requests(), w.Sessions(), len(long))
	}
	if got := w.requests[1].prompt - w.requests[0].prompt - w.requests[0].output; got != 0 {
		t.Errorf("a turn adds %d to what was generated", got)
	}
	if !slices.Equal(w.paths[0][:32], w.paths[7][:32]) || w.paths[0][0] == w.paths[8][0] || w.paths[0][32] == w.paths[1][32] {
		t.Error("groups do not share a prompt of their own")
	}
	if a, b := made(t, "rag", 100), made(t, "rag", 100); !reflect.DeepEqual(a, b) {
		t.Error("the same seed gives another workload")
	}
	for _, bad := range []error{
		refusal(Make("nothing", 1, 64, 1)), refusal(Make("rag", 0, 64, 1)), refusal(Make("rag", 1, 0, 1)), refusal(Make("rag", 1<<30, 64, 1)),
	} {
		if bad == nil {
			t.Error("a workload that cannot be made")
		}
	}
}

func refusal(_ *Workload, err error) error { return err }

// TestOracleTraces reads published traces, and holds a run without evictions
// against the hits that counting ids gives.
func TestOracleTraces(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it serves a whole trace twice, slow under the race detector")
	}
	root := refdata.Root(t)
	requests := 0
	for _, name := range refdata.Files(t, root, "traces/*.jsonl.gz") {
		text := refdata.Unpack(t, name)
		w, err := ReadTrace(bytes.NewReader(text), name, TraceBlock, TraceBlock)
		if err != nil {
			t.Fatal(err)
		}
		// An id stands for all before it too, so a hit is an id that was seen.
		seen := map[int64]bool{}
		lines, asked, hits := 0, 0, 0
		for dec := json.NewDecoder(bytes.NewReader(text)); ; lines++ {
			var row struct {
				Input  int     `json:"input_length"`
				Hashes []int64 `json:"hash_ids"`
			}
			if err := dec.Decode(&row); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			usable := (row.Input - 1) / TraceBlock
			n := 0
			for n < usable && seen[row.Hashes[n]] {
				n++
			}
			for _, id := range row.Hashes[:row.Input/TraceBlock] {
				seen[id] = true
			}
			if usable > 0 {
				asked += row.Input
				hits += n * TraceBlock
			}
		}
		requests += lines
		if w.Requests() != lines {
			t.Errorf("%s: %d requests, want %d", name, w.Requests(), lines)
		}
		for _, engine := range []Engine{VLLM, SGLang} {
			// One sequence at a time, so that what is served is what was computed.
			r := ran(t, Options{
				Workload: w, Policy: policy(t, "affinity"), Engine: engine, Replicas: 1, Capacity: int(w.last) + 1000,
				Rates: Rates{Prefill: 1e9, Decode: 1e9, Slots: 1},
			})
			near(t, name+" on "+engine.String(), r.HitRate, float64(hits)/float64(asked))
		}
	}
	t.Logf("%d requests compared", requests)
}

// TestInferredSessions go on where a prompt goes on, once.
func TestInferredSessions(t *testing.T) {
	t.Parallel()
	w := trace(t,
		`{"timestamp": 0, "input_length": 200, "output_length": 5, "hash_ids": [1,2]}`,
		`{"timestamp": 1, "input_length": 400, "output_length": 5, "hash_ids": [1,2,3,4]}`,
		`{"timestamp": 2, "input_length": 400, "output_length": 5, "hash_ids": [1,2,5,6]}`,
		`{"timestamp": 3, "input_length": 450, "output_length": 5, "hash_ids": [1,2,3,4,7]}`,
		`{"timestamp": 4, "input_length": 500, "output_length": 5, "hash_ids": [1,2,5,6,8]}`,
	)
	var got []int32
	for _, r := range w.requests {
		got = append(got, r.session)
	}
	if want := []int32{0, 0, 1, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("sessions %v, want %v", got, want)
	}
}
