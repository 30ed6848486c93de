package remote_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/route/remote"
	"github.com/kvscope/kvscope/wire"
)

// traced reads a trace to its end, whose error is nil if it is clean.
func traced(r io.Reader) (out []remote.Traced, err error) {
	t := remote.NewTrace(r, "x")
	for {
		row, err := t.Next()
		if err != nil {
			if _, again := t.Next(); again == nil || again.Error() != err.Error() {
				return out, errors.New("another error after the end")
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return out, err
		}
		out = append(out, row)
	}
}

// sequence are the hashes of a prompt's complete blocks of 16 tokens.
func sequence(tokens []wire.Token) []uint64 {
	_, seq := blockhash.Rolling(tokens, 16, false, blockhash.NamespaceOf("", ""), nil)
	return seq
}

func TestTrace(t *testing.T) {
	t.Parallel()
	text := golden(t, "trace.jsonl")
	got, err := traced(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	// The second request had 20 other tokens at its end, so its fourth block is
	// one of them.
	other := got[1].Blocks
	want := []remote.Traced{
		{
			At: 1796035744937e6, Ended: 1796035744943e6, Request: "ba1c252d-079c-4f5f-aa71-3aa918b0fb95",
			Choice: remote.Choice{Prefill: first, Decode: first}, Length: 100, Output: 2, BlockSize: 16, Blocks: sequence(numbers(7000, 100)),
		},
		{
			At: 1796035744946e6, Ended: 1796035744952e6, Request: "95d67634-2ab4-4e34-b771-39cd04224357",
			Choice: remote.Choice{Prefill: second, Decode: second}, Length: 72, Output: 2, BlockSize: 16,
			Blocks: sequence(append(numbers(7000, 52), numbers(9000, 20)...)),
		},
		{
			At: got[2].At, Ended: got[2].Ended, Request: got[2].Request,
			Choice: remote.Choice{Prefill: first, Decode: first}, Length: 150, Cached: 96, HitRate: 0.6, BlockSize: 16, Blocks: sequence(numbers(7000, 150)),
			Unanswered: true,
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("trace (-want +got):\n%s", d)
	}
	if len(other) != 4 {
		t.Errorf("%d blocks of 72 tokens", len(other))
	}
	// Six of ten blocks, the one begun counted too.
	a := got[2].Answer()
	wantMatches := &remote.Matches{BlockSize: 16, Partial: true, Rows: []remote.Held{{Replica: first, Tokens: [wire.NumTiers]int{96}, Weighted: true}}}
	if d := cmp.Diff(wantMatches, a.Matches); d != "" || a.Choice.Decode != first {
		t.Errorf("answer (-want +got):\n%s", d)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(text)) // a buffer takes all
	_ = z.Close()
	again, err := traced(&zipped)
	if d := cmp.Diff(got, again); d != "" || err != nil {
		t.Errorf("zipped: error %v, trace (-want +got):\n%s", err, d)
	}
}

func TestTraceDamaged(t *testing.T) {
	t.Parallel()
	text := golden(t, "trace.jsonl")
	one := text[:strings.IndexByte(text, '\n')+1]
	with := func(old, is string) string { return strings.Replace(one, old, is, 1) }
	for _, tt := range []struct {
		name, text string
		rows       int
		want       string // "" is a clean end
	}{
		{"empty", "", 0, ""},
		{"empty lines", "\n\n" + one + "\n", 1, ""},
		{"no line end", strings.TrimSpace(one), 1, ""},
		{"a line that is being written", one + one[:100], 1, ""},
		{"a damaged line", "x\n" + one, 1, "request trace x: 1 of 2 lines could not be read; first: line 1: it is no JSON"},
		{"damage at the end", one + "x", 1, "1 of 2 lines could not be read; first: line 2"},
		{"a share above 1", one + with(`"kv_hit_rate":0.0`, `"kv_hit_rate":1.5`), 1, "line 2: kv_hit_rate is no share"},
		{"a time before all", one + with(`"request_received_ms":`, `"request_received_ms":-`), 1, "line 2: a time is out of range"},
		{"a late time", one + with(`"request_received_ms":`, `"request_received_ms":1796035744`), 1, "line 2: "},
		{"a negative count", one + with(`"input_tokens":`, `"input_tokens":-`), 1, "line 2: it is no JSON"},
		{"another kind of row", one + with("request_end", "request_start"), 1, ""},
		{"nobody chosen", one + with(`"worker":{`, `"x":{`), 1, ""},
		{"another file", `{"t":1}` + "\n" + `{"t":2}` + "\n", 0, "none of its 2 lines is the end of a request"},
		{"a line that is too long", strings.Repeat("x", 17<<20) + "\n" + one, 1, "1 of 2 lines could not be read"},
		{"a cut archive", "\x1f\x8b\x08", 0, "request trace x: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rows, err := traced(strings.NewReader(tt.text))
			if len(rows) != tt.rows {
				t.Errorf("%d rows, want %d", len(rows), tt.rows)
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

// More blocks than the prompt has, or fewer, are no reason to fail.
func TestTraceBlocks(t *testing.T) {
	t.Parallel()
	text := golden(t, "trace.jsonl")
	one := text[:strings.IndexByte(text, '\n')]
	for replay, want := range map[string]int{
		`"trace_block_size":16,`: 6, `"trace_block_size":64,`: 1, `"trace_block_size":2,`: 7, `"trace_block_size":0,`: 7, ``: 7,
	} {
		rows, err := traced(strings.NewReader(strings.Replace(one, `"trace_block_size":16,`, replay, 1)))
		if err != nil || len(rows[0].Blocks) != want {
			t.Errorf("%s: %v, %d blocks, want %d", replay, err, len(rows[0].Blocks), want)
		}
		_ = rows[0].Answer()
	}
}

func TestOracleRequestTrace(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	rows, err := traced(bytes.NewReader(refdata.Unpack(t, filepath.Join(root, "dynamo", "request_trace.jsonl.gz"))))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 15 {
		t.Errorf("%d rows, want 15", len(rows))
	}
	for i, r := range rows {
		if r.At == 0 || r.Ended < r.At || r.Unanswered || r.Output == 0 || len(r.Blocks) != r.Length/r.BlockSize {
			t.Errorf("row %d: %+v", i, r)
		}
		// What the router took for cached, the engine reused in every row.
		if a := r.Answer(); a.Matches.Rows[0].Tokens[wire.Device] != r.Cached {
			t.Errorf("row %d: %+v, and %d tokens cached", i, a.Matches.Rows, r.Cached)
		}
	}
}

func FuzzTrace(f *testing.F) {
	f.Add([]byte(golden(f, "trace.jsonl")))
	f.Fuzz(func(_ *testing.T, text []byte) {
		rows, _ := traced(bytes.NewReader(text)) // an error is fine
		for i := range rows {
			_ = rows[i].Answer()
		}
	})
}
