package wire

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/kvscope/kvscope/refdata"
)

func TestActivity(t *testing.T) {
	t.Parallel()
	checkActivities(t, testRoot, "plane/*.jsonl.gz")
}

func TestOracleActivity(t *testing.T) {
	t.Parallel()
	checkActivities(t, refdata.Root(t), "dynamo/live/event_plane.jsonl.gz", "dynamo/nats/nats_raw.jsonl.gz")
}

// checkActivities compares with what another msgpack decoder reads.
func checkActivities(t *testing.T, root string, patterns ...string) {
	t.Helper()
	for _, file := range refdata.Files(t, root, patterns...) {
		messages, others, kinds := 0, 0, map[ActivityKind]int{}
		refdata.Each(t, file, func(n int, line planeLine) {
			frames, topic, env := line.message(t)
			got, ok, err := DecodeActivity(frames)
			if topic != PlaneActivity {
				if others++; ok || err != nil {
					t.Errorf("%s %d: a message of %s was taken: %v", file, n, topic, err)
				}
				return
			}
			messages++
			var payload dict
			unpack(t, env["payload"].([]byte), &payload)
			events, isList := payload["events"].([]any)
			if !isList {
				events = []any{any(payload)}
			}
			var want []Activity
			for _, e := range events {
				want = append(want, wantActivity(e))
				kinds[want[len(want)-1].Kind]++
			}
			if !ok || err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s %d: %v\n got %+v\nwant %+v", file, n, err, got, want)
			}
		})
		t.Logf("%s: %d messages equal (added, prefill completed, freed: %d, %d, %d), %d of other topics left alone",
			filepath.Base(file), messages, kinds[RequestAdded], kinds[PrefillCompleted], kinds[RequestFreed], others)
	}
}

func wantActivity(v any) Activity {
	e := v.(dict)
	worker := e["worker"].(map[string]any)
	a := Activity{
		Request: text(e["request_id"]), Router: u64(e["router_id"]), LoRA: text(e["lora_name"]),
		Replica: Replica(fmt.Sprintf("%d/%d", u64(worker["worker_id"]), u64(worker["dp_rank"]))),
	}
	switch data := e["data"].(type) {
	case string:
		a.Kind = map[string]ActivityKind{"MarkPrefillCompleted": PrefillCompleted, "Free": RequestFreed}[data]
	case map[string]any:
		a.Kind = RequestAdded
		added := data["AddRequest"].(map[string]any)
		for _, h := range added["token_sequence"].([]any) {
			a.Blocks = append(a.Blocks, u64(h))
		}
		if hint, ok := added["prefill_load_hint"].(map[string]any); ok && added["track_prefill_tokens"] == true {
			a.PrefillTokens = int(u64(hint["initial_effective_prefill_tokens"]))
		}
		a.ExpectedOutput = int(u64(added["expected_output_tokens"]))
	}
	return a
}

// activity is an event of request r on worker 5, rank 1.
func activity(data any, more dict) dict {
	a := dict{"request_id": "r", "worker": dict{"worker_id": uint64(5), "dp_rank": 1}, "data": data, "router_id": uint64(9), "lora_name": nil}
	for k, v := range more {
		a[k] = v
	}
	return a
}

func TestDecodeActivity(t *testing.T) {
	t.Parallel()
	added := func(fields dict) dict { return dict{"AddRequest": fields} }
	hint := dict{"initial_effective_prefill_tokens": 90, "expected_prefill_duration": nil}
	base := Activity{Request: "r", Replica: "5/1", Router: 9}
	is := func(change func(a *Activity)) Activity {
		a := base
		change(&a)
		return a
	}
	for name, tt := range map[string]struct {
		event any
		want  Activity
		err   string
	}{
		"freed":             {activity("Free", nil), is(func(a *Activity) { a.Kind = RequestFreed }), ""},
		"freed, as a map":   {activity(dict{"Free": nil}, dict{"lora_name": "l"}), is(func(a *Activity) { a.Kind, a.LoRA = RequestFreed, "l" }), ""},
		"prefill completed": {activity("MarkPrefillCompleted", dict{"more": list{1}}), is(func(a *Activity) { a.Kind = PrefillCompleted }), ""},
		"added": {
			activity(added(dict{"token_sequence": list{uint64(1 << 63), 2}, "track_prefill_tokens": true, "expected_output_tokens": 7, "prefill_load_hint": hint, "x": 1}), nil),
			is(func(a *Activity) {
				a.Kind, a.Blocks, a.PrefillTokens, a.ExpectedOutput = RequestAdded, []uint64{1 << 63, 2}, 90, 7
			}), "",
		},
		"added, untracked": {
			activity(added(dict{"prefill_load_hint": hint, "track_prefill_tokens": false, "token_sequence": nil}), nil),
			is(func(a *Activity) { a.Kind = RequestAdded }), "",
		},
		"no map":              {5, Activity{}, "found an integer in place of a map"},
		"no request":          {dict{"data": "Free", "worker": dict{"worker_id": 1, "dp_rank": 0}}, Activity{}, "request_id: missing"},
		"no worker":           {dict{"data": "Free", "request_id": "r"}, Activity{}, "worker: missing"},
		"half a worker":       {activity("Free", dict{"worker": dict{"worker_id": 1}}), Activity{}, "worker: worker_id or dp_rank: missing"},
		"no data":             {dict{"request_id": "r", "worker": dict{"worker_id": 1, "dp_rank": 0}}, Activity{}, "data: missing"},
		"another kind":        {activity("Paused", nil), Activity{}, "data: Paused is no kind that kvscope knows"},
		"two kinds":           {activity(dict{"Free": nil, "x": nil}, nil), Activity{}, "data: a map of 2 in place of one kind"},
		"added, alone":        {activity("AddRequest", nil), Activity{}, "data: AddRequest without a map"},
		"odd blocks":          {activity(added(dict{"token_sequence": list{"x"}}), nil), Activity{}, "data: token_sequence: found text in place of an integer from 0"},
		"odd tracking":        {activity(added(dict{"track_prefill_tokens": 1}), nil), Activity{}, "data: track_prefill_tokens: found an integer in place of true or false"},
		"far too many tokens": {activity(added(dict{"expected_output_tokens": uint64(1 << 41)}), nil), Activity{}, "data: expected_output_tokens: 2199023255552 is no number of tokens"},
		"negative tokens": {
			activity(added(dict{"prefill_load_hint": dict{"initial_effective_prefill_tokens": -1}}), nil),
			Activity{},
			"data: prefill_load_hint: initial_effective_prefill_tokens: found a negative integer in place of an integer from 0",
		},
	} {
		neighbour := activity("Free", nil)
		for form, frames := range map[string][][]byte{
			"a list":   onZMQ(t, envelopeOf(t, PlaneActivity, dict{"events": list{neighbour, tt.event, neighbour}})),
			"one bare": onNATS(t, envelopeOf(t, PlaneActivity, tt.event)),
		} {
			all, ok, err := DecodeActivity(frames)
			if _, isMap := tt.event.(dict); form == "one bare" && !isMap {
				if !ok || err == nil {
					t.Errorf("%s, %s: %+v", name, form, all)
				}
				continue
			}
			if !ok || err != nil {
				t.Errorf("%s, %s: %v %v", name, form, ok, err)
				continue
			}
			got := all[0]
			if form == "a list" {
				if len(all) != 3 || all[0].Kind != RequestFreed || all[2].Kind != RequestFreed {
					t.Errorf("%s: it took its neighbours with it", name)
					continue
				}
				got = all[1]
			}
			says := errText(got.Err)
			if got.Err = nil; !reflect.DeepEqual(got, tt.want) || says != tt.err {
				t.Errorf("%s, %s: %+v %q, want %+v %q", name, form, got, says, tt.want, tt.err)
			}
		}
	}
	if _, ok, _ := DecodeActivity(onNATS(t, envelopeOf(t, PlaneLoad, dict{}))); ok {
		t.Error("a load message was taken for activity")
	}
	if _, ok, err := DecodeActivity(onNATS(t, envelopeOf(t, PlaneActivity, 5))); !ok || errText(err) != "a message of active_sequences_events that cannot be read: found an integer in place of a map" {
		t.Errorf("%v %v", ok, err)
	}
	if all, ok, err := DecodeActivity(onZMQ(t, envelopeOf(t, PlaneActivity, dict{"x": 1, "events": list{}}))); !ok || err != nil || all != nil {
		t.Errorf("no events: %v %v %v", all, ok, err)
	}
}
