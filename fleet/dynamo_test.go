package fleet_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// entry is a key of a discovery store, and what it holds.
type entry struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

func storeOf(t *testing.T, root string) []entry {
	t.Helper()
	return refdata.All[entry](t, refdata.Files(t, root, "dynamo/live/discovery_file_store.jsonl.gz")[0])
}

// layOut writes a store as Dynamo's file discovery does.
func layOut(t *testing.T, entries []entry) string {
	t.Helper()
	dir := t.TempDir()
	for _, e := range entries {
		put(t, dir, e.Key, string(e.Value))
	}
	return dir
}

func put(t *testing.T, dir, key, value string) {
	t.Helper()
	name := filepath.Join(dir, filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
}

func lookIn(t *testing.T, d fleet.Dynamo) ([]fleet.Member, []error) {
	t.Helper()
	return finder(t, fleet.Spec{Dynamo: []fleet.Dynamo{d}}, fleet.Options{}).Look(t.Context())
}

// The independent reading of an entry: one regular expression for each fact.
var (
	anyTopic     = regexp.MustCompile(`"topic":"([^"]*)"`)
	anyInstance  = regexp.MustCompile(`"instance_id":(\d+)`)
	anyPublisher = regexp.MustCompile(`"publisher_id":(\d+)`)
	anyWorker    = regexp.MustCompile(`"worker":\{"worker_id":(\d+),"dp_rank":(\d+)\}`)
	anyEndpoint  = regexp.MustCompile(`"endpoint":"(tcp://[^"]*)"`)
	anyDisplay   = regexp.MustCompile(`"display_name":"([^"]*)"`)
	anyCardBlock = regexp.MustCompile(`"kv_cache_block_size":(\d+)`)
	anyCardURL   = regexp.MustCompile(`"path":"(http://[^/"]*)/`)
)

// checkStore holds what is found in the real store against that reading.
func checkStore(t *testing.T, root string) {
	t.Helper()
	entries := storeOf(t, root)
	workers := map[string]string{} // by publisher
	ids := map[string]string{}
	models, blocks, pages := map[string]string{}, map[string]string{}, map[string]string{}
	for _, e := range entries {
		v := string(e.Value)
		switch {
		case strings.HasPrefix(e.Key, "v1/event_sources/"):
			w := anyWorker.FindStringSubmatch(v)
			workers[word(anyPublisher, v)], ids[word(anyPublisher, v)] = w[1]+"/"+w[2], w[1]
		case strings.HasPrefix(e.Key, "v1/mdc/"):
			id := word(anyInstance, v)
			models[id], blocks[id], pages[id] = word(anyDisplay, v), word(anyCardBlock, v), word(anyCardURL, v)
		}
	}
	type found struct{ name, events, model, block, metrics string }
	want := map[found]fleet.Kind{}
	for _, e := range entries {
		v := string(e.Value)
		if !strings.HasPrefix(e.Key, "v1/event_channels/") {
			continue
		}
		publisher := word(anyInstance, v)
		switch id := ids[publisher]; word(anyTopic, v) {
		case "kv-events":
			f := found{name: workers[publisher], events: word(anyEndpoint, v), model: models[id], block: blocks[id]}
			if pages[id] != "" {
				f.metrics = pages[id] + "/metrics"
			}
			want[f] = fleet.Plane
		case "kv_metrics", "active_sequences_events":
			n, err := strconv.ParseUint(publisher, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			want[found{name: word(anyTopic, v) + "-" + fmt.Sprintf("%x", n), events: word(anyEndpoint, v), block: "0"}] = fleet.LoadOnly
		}
	}
	if len(want) != 12 {
		t.Fatalf("%d channels in the store, want 12", len(want))
	}
	dir := layOut(t, entries)
	members, problems := lookIn(t, fleet.Dynamo{Dir: dir})
	wantErrors(t, problems)
	got := map[found]fleet.Kind{}
	for _, m := range members {
		got[found{string(m.Name), m.Events, m.Facts.Model, fmt.Sprint(m.Facts.BlockSize), m.Metrics}] = m.Kind
		if m.Problem != "" || m.Found != "dynamo "+dir {
			t.Errorf("%+v", m)
		}
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(found{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestDynamoStore(t *testing.T) {
	t.Parallel()
	checkStore(t, "testdata")
}

func TestOracleDynamoStore(t *testing.T) {
	t.Parallel()
	checkStore(t, refdata.Root(t))
}

func channel(publisher int, topic, kind, endpoint string) string {
	return fmt.Sprintf(`{"type":"EventChannel","topic":%q,"instance_id":%d,"transport":{"kind":%q,"config":{"endpoint":%q}}}`, topic, publisher, kind, endpoint)
}

func TestDynamoEntries(t *testing.T) {
	t.Parallel()
	const source = `{"publisher_id":255,"metadata":{"worker":{"worker_id":18446744073709551615,"dp_rank":3}}}`
	tests := []struct {
		name     string
		host     string
		files    map[string]string
		want     []fleet.Member
		problems []string
	}{
		{
			name:  "a fleet that has not begun",
			files: map[string]string{"v1/instances/x": "{}"},
		},
		{
			name:     "another folder",
			files:    map[string]string{"x": "{}"},
			problems: []string{"it holds no folder v1: give the directory that DYN_FILE_KV names"},
		},
		{
			name: "another host, and a worker with the highest id",
			host: "10.0.0.7",
			files: map[string]string{
				"v1/event_channels/a": channel(255, "kv-events", "Zmq", "tcp://127.0.0.1:5000"),
				"v1/event_sources/a":  source,
			},
			want: []fleet.Member{{Name: "18446744073709551615/3", Kind: fleet.Plane, Events: "tcp://10.0.0.7:5000", Rank: 3}},
		},
		{
			name:  "nobody says whose it is",
			files: map[string]string{"v1/event_channels/a": channel(255, "kv-events", "Zmq", "tcp://h:5000")},
			want:  []fleet.Member{{Name: "kv-events-ff", Kind: fleet.Plane, Events: "tcp://h:5000", Rank: -1}},
		},
		{
			name:  "everywhere",
			files: map[string]string{"v1/event_channels/a": channel(255, "kv-events", "Zmq", "tcp://0.0.0.0:5000")},
			want:  []fleet.Member{{Name: "kv-events-ff", Kind: fleet.Plane, Rank: -1, Problem: "its address is tcp://0.0.0.0:5000, which is everywhere: give host beside dir, or start it with DYN_EVENT_PLANE_HOST"}},
		},
		{
			name:  "on NATS",
			files: map[string]string{"v1/event_channels/a": channel(255, "kv-events", "Nats", "")},
			want:  []fleet.Member{{Name: "kv-events-ff", Kind: fleet.Plane, Rank: -1, Problem: `its events go by "Nats", not by ZMQ sockets: start Dynamo with DYN_EVENT_PLANE=zmq, or give the server itself with --nats nats://host:port`}},
		},
		{
			name:  "no address",
			files: map[string]string{"v1/event_channels/a": channel(255, "kv-events", "Zmq", "tcp://h:-1")},
			want:  []fleet.Member{{Name: "kv-events-ff", Kind: fleet.Plane, Rank: -1, Problem: `"tcp://h:-1" has no port from 1 to 65535: give tcp://host:port`}},
		},
		{
			name: "a worker that publishes nothing",
			files: map[string]string{
				"v1/mdc/a": `{"instance_id":7,"card_json":{"display_name":"m","kv_cache_block_size":-1,"runtime_config":{"kv_event_publishing_enabled":false}}}`,
			},
			want: []fleet.Member{{Name: "7/0", Kind: fleet.Plane, Facts: wire.Facts{Model: "m"}, Problem: "the worker publishes no cache events: turn on its KV events (--kv-events-config of vLLM and SGLang, --publish-events-and-metrics of TensorRT-LLM)"}},
		},
		{
			name: "entries that are none do not take the others with them",
			files: map[string]string{
				"v1/event_channels/a": channel(255, "kv-events", "Zmq", "tcp://h:5000"),
				"v1/event_channels/b": `{"topic":"kv-events","instance_id":-1}`,
				"v1/event_channels/c": "",
				"v1/event_channels/d": strings.Repeat(" ", 1<<20+1),
				"v1/event_channels/e": `{"topic":"forward-pass-metrics"}`,
				"v1/event_sources/a":  `{"publisher_id":"x"}`,
			},
			want: []fleet.Member{{Name: "kv-events-ff", Kind: fleet.Plane, Events: "tcp://h:5000", Rank: -1}},
			problems: []string{
				"v1/event_channels/b: it is not an entry of Dynamo 1.6", "v1/event_channels/c: it is not an entry",
				"v1/event_channels/d: more than 1048576 bytes", "v1/event_sources/a: it is not an entry",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range tt.files {
				put(t, dir, name, text)
			}
			got, problems := lookIn(t, fleet.Dynamo{Dir: dir, Host: tt.host})
			wantErrors(t, problems, tt.problems...)
			for i := range tt.want {
				tt.want[i].Found = "dynamo " + dir
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// Members come and go: by their files, or by files that nobody renews.
func TestDynamoFollows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "v1/event_channels/a", channel(1, "kv-events", "Zmq", "tcp://h:1"))
	f := finder(t, fleet.Spec{Dynamo: []fleet.Dynamo{{Dir: dir}}}, fleet.Options{})
	look := func(want string, problems ...string) {
		t.Helper()
		members, errs := f.Look(t.Context())
		wantErrors(t, errs, problems...)
		var got string
		for _, m := range members {
			got += m.Events + " "
		}
		if got != want {
			t.Errorf("found %q, want %q", got, want)
		}
	}
	age := func(name string, by time.Duration) {
		t.Helper()
		at := time.Now().Add(-by)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	look("tcp://h:1 ")
	put(t, dir, "v1/event_channels/b", channel(2, "kv-events", "Zmq", "tcp://h:2"))
	look("tcp://h:1 tcp://h:2 ")
	age("v1/event_channels/a", time.Minute)
	look("tcp://h:2 ")
	age("v1/event_channels/b", time.Minute) // now neither is
	look("tcp://h:1 tcp://h:2 ", "nobody has renewed an entry for more than 30s: has the fleet stopped?")
	if err := os.RemoveAll(filepath.Join(dir, "v1")); err != nil {
		t.Fatal(err)
	}
	look("tcp://h:1 tcp://h:2 ", "it holds no folder v1: give the directory that DYN_FILE_KV names: its 2 members of before are kept")
}
