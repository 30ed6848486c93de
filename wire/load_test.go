package wire

import (
	"encoding/json"
	"testing"

	"github.com/kvscope/kvscope/refdata"
)

func TestLoad(t *testing.T)       { t.Parallel(); checkLoad(t, testRoot) }
func TestOracleLoad(t *testing.T) { t.Parallel(); checkLoad(t, refdata.Root(t)) }

// checkLoad compares SGLang's load messages with the values that it put in.
func checkLoad(t *testing.T, root string) {
	t.Helper()
	loads, others := 0, 0
	for _, file := range refdata.Files(t, root, "sglang/*.jsonl.gz") {
		refdata.Each(t, file, func(n int, line sglangLine) {
			if len(line.Frames) == 0 {
				return
			}
			r, ok, err := DecodeLoad(frames64(t, line.Frames))
			if line.Values == nil {
				if others++; ok {
					t.Errorf("%s %d: a batch was taken for a load message", file, n)
				}
				return
			}
			loads++
			is := func(name string) float64 {
				v, err := line.Values[name].(json.Number).Float64()
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			want := LoadReport{
				Running: is("num_running_reqs"), Waiting: is("num_waiting_reqs"),
				KVUsage: is("num_used_tokens") / is("max_total_num_tokens"), UsedBlocks: -1,
			}
			if !ok || err != nil || r != want {
				t.Errorf("%s %d: %+v, %v; want %+v", file, n, r, err, want)
			}
		})
	}
	t.Logf("%d load messages equal, %d batches are none", loads, others)
}

func TestDecodeLoad(t *testing.T) {
	t.Parallel()
	stat := func(v ...any) [][]byte {
		return [][]byte{[]byte("load"), be64(1), pack(t, append(list{"LoadStat"}, v...))}
	}
	active := func(v any) [][]byte { return onNATS(t, envelopeOf(t, PlaneLoad, v)) }
	none := LoadReport{Running: -1, Waiting: -1, KVUsage: -1, UsedBlocks: -1}
	for name, tt := range map[string]struct {
		in     [][]byte
		ok     bool
		err    string
		report LoadReport
	}{
		"six fields":          {stat(1, 2, 30, 60, 4), true, "", LoadReport{Rank: 4, Running: 1, Waiting: 2, KVUsage: 0.5, UsedBlocks: -1}},
		"no room":             {stat(1, 2, 0, 0, 0), true, "", LoadReport{Running: 1, Waiting: 2, KVUsage: -1, UsedBlocks: -1}},
		"more than there is":  {stat(1, 2, 90, 60, 0), true, "", LoadReport{Running: 1, Waiting: 2, KVUsage: 1, UsedBlocks: -1}},
		"five fields":         {stat(1, 2, 3, 4), true, "a load message that cannot be read: 5 elements, and there should be 6", none},
		"text":                {stat("x", 2, 3, 4, 5), true, "a load message that cannot be read: found text in place of an integer from 0", none},
		"a worker":            {active(dict{"worker_id": 5, "dp_rank": 1, "kv_used_blocks": 22, "active_decode_blocks": nil}), true, "", LoadReport{Replica: "5/1", Rank: 1, Running: -1, Waiting: -1, KVUsage: -1, UsedBlocks: 22}},
		"a router":            {active(dict{"worker_id": 5, "dp_rank": 1, "kv_used_blocks": nil, "active_decode_blocks": 3}), true, "", LoadReport{Replica: "5/1", Rank: 1, Running: -1, Waiting: -1, KVUsage: -1, UsedBlocks: -1}},
		"nobody":              {active(dict{"kv_used_blocks": 1}), true, "a load message that cannot be read: worker_id or dp_rank: missing", none},
		"a batch under load":  {[][]byte{[]byte("load"), be64(1), pack(t, batchOf())}, false, "", none},
		"events of the plane": {onNATS(t, envelopeOf(t, PlaneEvents, list{})), false, "", none},
		"nothing":             {nil, false, "", none},
	} {
		r, ok, err := DecodeLoad(tt.in)
		if got := errText(err); ok != tt.ok || got != tt.err || err == nil && r != tt.report {
			t.Errorf("%s: %+v %v %q", name, r, ok, got)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestLoadOnto(t *testing.T) {
	t.Parallel()
	old := Load{At: 1, Known: true, Running: 3, Waiting: 4, KVUsage: 0.1, HitTokens: 5, QueriedTokens: 10}
	blocks := LoadReport{Running: -1, Waiting: -1, KVUsage: -1, UsedBlocks: 50}
	want := old
	want.At, want.KVUsage = 9, 0.25
	if got := blocks.Onto(old, Facts{Capacity: 200}, 9); got != want {
		t.Errorf("blocks of a known capacity: %+v", got)
	}
	if got := blocks.Onto(old, Facts{}, 9); got != old {
		t.Errorf("blocks of an unknown capacity: %+v", got)
	}
	all := LoadReport{Running: 0, Waiting: 1, KVUsage: 0.5, UsedBlocks: -1}
	if got := all.Onto(Load{}, Facts{}, 9); got != (Load{At: 9, Known: true, Waiting: 1, KVUsage: 0.5}) {
		t.Errorf("onto nothing: %+v", got)
	}
	if of, ok := LoadOf(LoadName("a/1")); of != "a/1" || !ok {
		t.Errorf("the load of %s, %v", of, ok)
	}
	if of, ok := LoadOf("a/1"); of != "a/1" || ok {
		t.Errorf("%s, %v", of, ok)
	}
}
