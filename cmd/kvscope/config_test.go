package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/tap"
)

// TestBadConfigs says what is wrong with each in one sentence, with the line.
func TestBadConfigs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown key", "replcas: []", `c:1: there is no key "replcas": is it replicas?`},
		{"an unknown key within", "\nreplicas:\n  - event: tcp://a:1\n    engine: http://a", `c:3: replicas[0]: there is no key "event": is it events?`},
		{"a key of nowhere", "scrape: {speed: 3}", `c:1: scrape: there is no key "speed" here: the known ones are interval, routers`},
		{"a key twice", "max_index: 1\nrefresh: 2s\nmax_index: 2", "c:3: max_index is given a second time, after line 1: keep one of them"},
		{"no list", "dns: vllm", "c:1: dns: give a list: each entry begins with -"},
		{"a list of texts", "dns: [vllm]", "c:1: dns[0]: give its fields below it, two spaces further in"},
		{"topics as a text", "dns: [{name: v, events: 1, topics: kv}]", "c:1: dns[0].topics: give a list, such as [kv-events]"},
		{"a list as a text", "replicas: [{engine: [a]}]", "c:1: replicas[0].engine: give http://host:port, and no list or section"},
		{"nothing needed", "replicas:\n- name: a", "c:2: replicas[0]: give engine or events"},
		{"no port", "dns: [{name: v}]", "c:1: dns[0]: give http or events"},
		{"a port too high", "kubernetes: [{service: v, events: 65536}]", `c:1: kubernetes[0].events: "65536": give a port from 1 to 65535`},
		{"a port in quotes", `dns: [{name: v, http: "80"}]`, `c:1: dns[0].http: "80": write it without quotes`},
		{"an octal port", "dns: [{name: v, http: 010}]", `c:1: dns[0].http: "010": give a port from 1 to 65535`},
		{"ranks", "replicas: [{events: 'tcp://a:1', ranks: 0}]", `c:1: replicas[0].ranks: "0": give a whole number from 1 to 1024`},
		{"no unit", "refresh: 10", `c:1: refresh: "10": give a duration from 1s to 1h`},
		{"too short", "scrape:\n  interval: 1ms", `c:2: scrape.interval: "1ms": give a duration from 500ms to 5m`},
		{"no address", "replicas: [{events: 'a:5557'}]", `c:1: replicas[0].events: "a:5557": give tcp://host:port or ipc://path`},
		{"no port of an address", "replicas: [{events: 'tcp://a'}]", `c:1: replicas[0].events: "tcp://a": give tcp://host:port`},
		{"a port of an address", "replicas: [{events: 'tcp://a:65536'}]", `c:1: replicas[0].events: "tcp://a:65536": give a port from 1 to 65535`},
		{"inproc", "replicas: [{events: 'inproc://a'}]", `c:1: replicas[0].events: "inproc://a" reaches only within the engine's own process: let it publish at tcp://*:5557`},
		{"no URL", "replicas: [{engine: '10.0.0.5:8000'}]", "c:1: replicas[0].engine: give http://host:port"},
		{"NATS over TLS", "nats: [{url: 'tls://u:secret@a'}]", "c:1: nats[0].url: kvscope speaks no TLS to NATS: give a listener of the server without it, nats://host:port"},
		{"no NATS", "nats: [{url: 'http://a'}]", "c:1: nats[0].url: give nats://host:port"},
		{"truth", "replicas: [{events: 'tcp://a:1', bind: yes}]", `c:1: replicas[0].bind: "yes": give true or false`},
		{"a policy", "replay: {policy: always}", `c:1: replay.policy: replay policy "always": want never, gaps, recent, recent:N or full`},
		{"too many requests", "replay: {per_minute: 1000}", `c:1: replay.per_minute: "1000": give a whole number from 1 to 600`},
		{"no index", "max_index: 0", `c:1: max_index: "0": give a whole number from 1 to 1073741824`},
		{"an anchor", "replicas: &a []\ndns: *a", "c:2: dns: YAML's anchors are not followed: write the value out, or put a text that begins with * in quotes"},
		{"a tag", "replicas: [{engine: !x http://a}]", "c:1: replicas[0].engine: write the value without a tag, and a text that begins with ! in quotes"},
		{"no YAML", "replicas:\n\t- a", "c:2: not YAML: found character that cannot start any token"},
		{"no mapping", "- a", "c:1: give its fields below it, two spaces further in"},
		{"two documents", "refresh: 2s\n---\nrefresh: 3s", "c:2: a second document: put everything into the first"},
		{"two mistakes", "a: 1\nmax_index: b", "c:1: there is no key \"a\" here: the known ones are replicas, dns, dynamo, kubernetes, refresh, nats, replay, scrape, max_index, tokenizer, chat_template\n" +
			`c:2: max_index: "b": give a whole number from 1 to 1073741824`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseConfig([]byte(tt.text), "c")
			if err == nil || err.Error() != tt.want {
				t.Errorf("says\n%v, want\n%s", err, tt.want)
			}
		})
	}
}

// TestManyMistakes ends, in a file that has nothing to do with us.
func TestManyMistakes(t *testing.T) {
	t.Parallel()
	_, err := parseConfig([]byte(strings.Repeat("- a: 1\n", 1<<16)), "c")
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a list: %v", err)
	}
	_, err = parseConfig([]byte("replicas:\n"+strings.Repeat("- a: 1\n", 1<<13)), "c")
	if err == nil || strings.Count(err.Error(), "\n") != maxMistakes-1 {
		t.Errorf("%d mistakes told", strings.Count(err.Error(), "\n")+1)
	}
}

// TestPasswordsStayIn looks at what errors say where a password is near.
func TestPasswordsStayIn(t *testing.T) {
	t.Parallel()
	const word = "hunter2"
	for _, text := range []string{
		"replicas: [{events: 'tcp://a:1', password: *" + word + "}]",
		"replicas: [{events: 'tcp://a:1', password: !" + word + " x}]",
		"replicas: [{events: 'tcp://a:1', password: [" + word + "]}]",
		"replicas: [{events: 'tcp://a:1', password: {" + word + ": 1}}]",
		"replicas: [{events: 'tcp://a:1', password: '" + strings.Repeat(word, 40) + "'}]",
		"replicas: [{engine: 'ftp://u:" + word + "@a'}]",
		"replicas: [{engine: 'http://u:" + word + "@a:b:c%zz'}]",
		"nats: [{url: 'http://u:" + word + "@a'}]",
		"replicas: [{events: 'tcp://a:1', password: \"" + word + "}]",
		"replicas: [{events: 'tcp://a:1', password: @" + word + "}]",
		"replicas: [{events: 'tcp://a:1', password: %" + word + "}]",
	} {
		_, err := parseConfig([]byte(text), "c")
		if err == nil || strings.Contains(err.Error(), word) {
			t.Errorf("%s\nsays %v", text, err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(uncommented(configText())))
	f.Add([]byte("a: &a [*a]\n<<: *a\n? [b]: c"))
	f.Fuzz(func(t *testing.T, b []byte) {
		cfg, err := parseConfig(b, "c")
		if err == nil {
			if _, err := cfg.live("c"); err != nil {
				t.Errorf("%q passed the check and then: %v", b, err)
			}
		}
	})
}

func uncommented(text string) string {
	return regexp.MustCompile(`(?m)^#([^#])`).ReplaceAllString(text, "$1")
}

// TestInitLoads takes all examples of what init writes, and nothing of it.
func TestInitLoads(t *testing.T) {
	t.Parallel()
	cfg, err := parseConfig([]byte(configText()), "c")
	if diff := cmp.Diff(config{}, cfg); err != nil || diff != "" {
		t.Errorf("commented out: %v\n%s", err, diff)
	}
	cfg, err = parseConfig([]byte(uncommented(configText())), "c")
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Replicas) != 5 || cfg.Replicas[2].Ranks != 2 || cfg.Replicas[4].Password != "in quotes" ||
		len(cfg.DNS) != 1 || cfg.DNS[0].Replay != 5558 || len(cfg.Dynamo) != 1 ||
		len(cfg.Kubernetes) != 1 || cfg.Kubernetes[0].Events != 5557 || len(cfg.NATS) != 1 {
		t.Errorf("%+v", cfg)
	}
	live, err := cfg.live("c")
	if err != nil {
		t.Fatal(err)
	}
	// The values shown of what is no list are the defaults.
	defaults, err := (&config{}).live("c")
	if err != nil {
		t.Fatal(err)
	}
	defaults.Fleet.Replicas, defaults.Fleet.DNS, defaults.Fleet.Dynamo = cfg.Replicas, cfg.DNS, cfg.Dynamo
	defaults.Fleet.Kubernetes, defaults.NATS, defaults.Routers = cfg.Kubernetes, cfg.NATS, cfg.Scrape.Routers
	if diff := cmp.Diff(defaults, live, cmp.AllowUnexported(tap.Policy{})); diff != "" {
		t.Errorf("(-defaults +shown)\n%s", diff)
	}
}

// TestSettingsAreTheFields holds the table against the types that it describes.
func TestSettingsAreTheFields(t *testing.T) {
	t.Parallel()
	var compare func(path string, of reflect.Type, rows []setting)
	compare = func(path string, of reflect.Type, rows []setting) {
		want := map[string]reflect.Type{}
		for _, f := range reflect.VisibleFields(of) {
			key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if key != "" && options == "" && !slices.Contains([]string{"", "-"}, key) {
				want[key] = f.Type
			}
		}
		for _, row := range rows {
			typ := want[row.key]
			if typ == nil {
				t.Errorf("%s.%s is in the table and in no type", path, row.key)
				continue
			}
			delete(want, row.key)
			if row.help == "" || row.kind != section && row.def == "" {
				t.Errorf("%s.%s is not explained", path, row.key)
			}
			if row.fields != nil {
				if typ.Kind() == reflect.Slice {
					typ = typ.Elem()
				}
				compare(path+"."+row.key, typ, row.fields)
			}
		}
		for key := range want {
			t.Errorf("%s.%s is not in the table", path, key)
		}
	}
	compare("", reflect.TypeFor[config](), settings)
}

// parse runs flags through a command.
func parse(t *testing.T, env map[string]string, args ...string) (liveConfig, error) {
	t.Helper()
	var l liveFlags
	cmd := &cobra.Command{Use: "x"}
	l.add(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return l.config(cmd, func(key string) string { return env[key] })
}

func TestLayers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "kvscope", "config.yaml")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "replicas: [{engine: 'http://file:8000'}]\nreplay: {policy: never, per_minute: 3}\nscrape: {interval: 5s}\nmax_index: 77\nrefresh: 1m"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := func(s string) tap.Policy {
		p, err := tap.ParsePolicy(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	xdg := map[string]string{"XDG_CONFIG_HOME": dir}
	base := liveConfig{
		File: file, Fleet: fleet.Spec{Replicas: []fleet.Replica{{Engine: "http://file:8000"}}, Refresh: time.Minute},
		Replay: policy("never"), ReplayPerMinute: 3, Scrape: 5 * time.Second, MaxIndex: 77,
	}
	replicas := func(r ...fleet.Replica) func(*liveConfig) {
		return func(c *liveConfig) { c.Fleet.Replicas = r }
	}
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		want func(*liveConfig)
	}{
		{"the file", nil, nil, func(*liveConfig) {}},
		{"flags over the file", nil, []string{"--replay", "recent:5", "--max-index", "9"}, func(c *liveConfig) {
			c.Replay, c.MaxIndex = policy("recent:5"), 9
		}},
		{"the environment over the file", map[string]string{"KVSCOPE_REPLAY": "full", "KVSCOPE_MAX_INDEX": "8"}, nil, func(c *liveConfig) {
			c.Replay, c.MaxIndex = policy("full"), 8
		}},
		{"flags over the environment", map[string]string{"KVSCOPE_REPLAY": "full"}, []string{"--replay=gaps"}, func(c *liveConfig) {
			c.Replay = policy("gaps")
		}},
		{
			"places of the environment",
			map[string]string{"KVSCOPE_ENGINE": "http://a:1 http://b:2", "KVSCOPE_REPLICA": "c=tcp://c:3,bind"},
			nil, replicas(fleet.Replica{Name: "c", Events: "tcp://c:3", Bind: true}, fleet.Replica{Engine: "http://a:1"}, fleet.Replica{Engine: "http://b:2"}),
		},
		{
			"places of flags stand for all",
			map[string]string{"KVSCOPE_ENGINE": "http://a:1"},
			[]string{"--dns", "v,events=1,topic=a,topic=b"},
			func(c *liveConfig) {
				c.Fleet.Replicas = nil
				c.Fleet.DNS = []fleet.DNS{{Name: "v", Ports: fleet.Ports{Events: 1, Topics: []string{"a", "b"}}}}
			},
		},
		{
			"a replica with all", nil,
			[]string{"--replica", "a=tcp://a:1,replay=tcp://a:2,metrics=http://a:3/metrics,topic=kv@,ranks=4"},
			replicas(fleet.Replica{Name: "a", Events: "tcp://a:1", Replay: "tcp://a:2", Metrics: "http://a:3/metrics", Topics: []string{"kv@"}, Ranks: 4}),
		},
		{"the others", nil, []string{"--dynamo", "/d,host=h", "--kubernetes", "ns/svc,http=8000", "--kubernetes", "s,events=1", "--nats", "nats://n:4222,subject=a.>"}, func(c *liveConfig) {
			c.Fleet.Replicas = nil
			c.Fleet.Dynamo = []fleet.Dynamo{{Dir: "/d", Host: "h"}}
			c.Fleet.Kubernetes = []fleet.Kubernetes{
				{Namespace: "ns", Service: "svc", Ports: fleet.Ports{HTTP: 8000}}, {Service: "s", Ports: fleet.Ports{Events: 1}},
			}
			c.NATS = []natsServer{{URL: "nats://n:4222", Subjects: []string{"a.>"}}}
		}},
		{"no file", map[string]string{"XDG_CONFIG_HOME": filepath.Join(dir, "no")}, nil, func(c *liveConfig) {
			*c = liveConfig{Fleet: fleet.Spec{Refresh: 10 * time.Second}, Replay: policy(""), ReplayPerMinute: 12, Scrape: 2 * time.Second, MaxIndex: 8 << 20}
		}},
		{"a file by its variable", map[string]string{"XDG_CONFIG_HOME": "", "KVSCOPE_CONFIG": file}, nil, func(*liveConfig) {}},
		{"the home", map[string]string{"XDG_CONFIG_HOME": "not/absolute", "HOME": filepath.Join(dir, "no")}, nil, func(c *liveConfig) {
			*c = liveConfig{Fleet: fleet.Spec{Refresh: 10 * time.Second}, Replay: policy(""), ReplayPerMinute: 12, Scrape: 2 * time.Second, MaxIndex: 8 << 20}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{}
			for _, m := range []map[string]string{xdg, tt.env} {
				for k, v := range m {
					env[k] = v
				}
			}
			want := base
			tt.want(&want)
			got, err := parse(t, env, tt.args...)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(tap.Policy{})); err != nil || diff != "" {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
			if nothing := want.File == ""; (got.check() != nil) != nothing {
				t.Errorf("empty: %t", (got.check() != nil))
			}
		})
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, []string{"--replica", "tcp://a:1"}, `--replica: "tcp://a:1": give NAME=ADDRESS, such as r1=tcp://10.0.0.5:5557`},
		{nil, []string{"--replica", "a=tcp://a:1,reply=tcp://a:2"}, `--replica: there is no key "reply": is it replay?`},
		{nil, []string{"--replica", "a=tcp://a:1,bind=yes"}, "--replica: bind: bind=yes: bind takes no value"},
		{nil, []string{"--replica", "a=tcp://a:99999"}, `--replica: "tcp://a:99999": give a port from 1 to 65535`},
		{nil, []string{"--replica", "a=tcp://a:1,ranks=x"}, `--replica: ranks: "x": give a whole number from 1 to 1024`},
		{nil, []string{"--engine", "a:8000"}, "--engine: give http://host:port"},
		{nil, []string{"--dns", "a"}, "--dns: give events=PORT or http=PORT after the name"},
		{nil, []string{"--kubernetes", "a/b"}, "--kubernetes: give events=PORT or http=PORT after the name"},
		{nil, []string{"--dynamo", ""}, "--dynamo: this is empty: give text of at most 4096 bytes"},
		{nil, []string{"--nats", "a:4222"}, "--nats: give nats://host:port"},
		{nil, []string{"--replay", "often"}, `--replay: replay policy "often": want never, gaps, recent, recent:N or full`},
		{map[string]string{"KVSCOPE_REPLAY": "often"}, nil, `KVSCOPE_REPLAY: replay policy "often": want never, gaps, recent, recent:N or full`},
		{map[string]string{"KVSCOPE_DNS": "a"}, nil, "KVSCOPE_DNS: give events=PORT or http=PORT after the name"},
		{map[string]string{"KVSCOPE_MAX_INDEX": "many"}, nil, `KVSCOPE_MAX_INDEX: "many": give a whole number from 1 to 1073741824`},
		{nil, []string{"--max-index", "0"}, "--max-index 0: give the number of blocks to keep, 1 or more"},
		{nil, []string{"--config", "no-such-file"}, "the configuration cannot be read: open no-such-file: no such file or directory"},
	} {
		_, err := parse(t, tt.env, tt.args...)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%v %v\nsays %v\nwant %s", tt.env, tt.args, err, tt.want)
		}
	}
}
