package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/fleet"
)

func finder(t *testing.T, spec fleet.Spec, opt fleet.Options) *fleet.Finder {
	t.Helper()
	f, err := fleet.NewFinder(spec, opt)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func lookAt(t *testing.T, w *web, replicas ...fleet.Replica) ([]fleet.Member, []error) {
	t.Helper()
	f := finder(t, fleet.Spec{Replicas: replicas}, fleet.Options{Do: w.do, LookupHost: noHosts})
	defer w.harmless(t)
	return f.Look(t.Context())
}

func noHosts(context.Context, string) ([]string, error) { return nil, errTest }

func TestFixed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   fleet.Replica
		want []fleet.Member
	}{
		{
			"an address alone",
			fleet.Replica{Events: "tcp://10.0.0.5:5557"},
			[]fleet.Member{{Name: "10.0.0.5:5557", Events: "tcp://10.0.0.5:5557", Rank: -1}},
		},
		{
			"all that can be given",
			fleet.Replica{
				Name: "a", Events: "tcp://a:5557", Replay: "tcp://a:5558", Topics: []string{"kv@"},
				Metrics: "http://a:9/m", User: "u", Password: "p",
			},
			[]fleet.Member{{
				Name: "a", Events: "tcp://a:5557", Replay: "tcp://a:5558", Topics: []string{"kv@"},
				Metrics: "http://a:9/m", Rank: -1, User: "u", Password: "p",
			}},
		},
		{
			"ranks",
			fleet.Replica{Name: "a", Events: "tcp://[fd00::5]:5557", Replay: "tcp://[fd00::5]:6557", Metrics: "http://a/m", Ranks: 2},
			[]fleet.Member{
				{Name: "a/0", Events: "tcp://[fd00::5]:5557", Replay: "tcp://[fd00::5]:6557", Metrics: "http://a/m"},
				{Name: "a/1", Events: "tcp://[fd00::5]:5558", Replay: "tcp://[fd00::5]:6558", Metrics: "http://a/m", Rank: 1},
			},
		},
		{
			"ranks that dial out",
			fleet.Replica{Name: "a", Events: "tcp://*:7000", Bind: true, Ranks: 2},
			[]fleet.Member{
				{Name: "a/0", Events: "tcp://*:7000", Bind: true},
				{Name: "a/1", Events: "tcp://*:7001", Bind: true, Rank: 1},
			},
		},
		{
			"ipc",
			fleet.Replica{Name: "a", Events: "ipc:///tmp/kv", Replay: "ipc:///tmp/replay"},
			[]fleet.Member{{Name: "a", Events: "ipc:///tmp/kv", Replay: "ipc:///tmp/replay", Rank: -1}},
		},
		{
			"a port beyond the last",
			fleet.Replica{Name: "a", Events: "tcp://h:65534", Ranks: 3},
			[]fleet.Member{
				{Name: "a/0", Events: "tcp://h:65534"},
				{Name: "a/1", Events: "tcp://h:65535", Rank: 1},
				{Name: "a/2", Rank: 2, Problem: "rank 2: port 65534 + 2 is above 65535: give the engine a lower port"},
			},
		},
		{
			"a replay port beyond the last",
			fleet.Replica{Name: "a", Events: "tcp://h:5557", Replay: "tcp://h:65535", Ranks: 2},
			[]fleet.Member{
				{Name: "a/0", Events: "tcp://h:5557", Replay: "tcp://h:65535"},
				{Name: "a/1", Rank: 1, Problem: "replay: rank 1: port 65535 + 1 is above 65535: give the engine a lower port"},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, problems := lookAt(t, newWeb(nil), tt.in)
			wantErrors(t, problems)
			for i := range tt.want {
				tt.want[i].Found = "replicas[0]"
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestSpecMistakes(t *testing.T) {
	t.Parallel()
	one := func(r fleet.Replica) fleet.Spec { return fleet.Spec{Replicas: []fleet.Replica{r}} }
	long := strings.Repeat("x", 3000)
	tests := []struct {
		name string
		in   fleet.Spec
		want string
	}{
		{"nothing", fleet.Spec{}, "nothing says where replicas are: give replicas, dns, dynamo or kubernetes"},
		{"no address", one(fleet.Replica{Name: "a"}), "replicas[0]: give events, the event socket, or engine"},
		{"no port", one(fleet.Replica{Events: "tcp://h"}), `events: "tcp://h" is no address: give tcp://host:port`},
		{"port 0", one(fleet.Replica{Events: "tcp://h:0"}), "no port from 1 to 65535"},
		{"a port too high", one(fleet.Replica{Events: "tcp://h:65536"}), "no port from 1 to 65535"},
		{"a negative port", one(fleet.Replica{Events: "tcp://h:-1"}), "no port from 1 to 65535"},
		{"no scheme", one(fleet.Replica{Events: "h:5557"}), `"h:5557" is no address: give tcp://host:port or ipc://path`},
		{"inproc", one(fleet.Replica{Events: "inproc://kv"}), "reaches only within the engine's own process"},
		{"a long address", one(fleet.Replica{Events: "tcp://" + long}), "an address of 3006 bytes"},
		{"wildcard", one(fleet.Replica{Events: "tcp://*:5557"}), `is where an engine listens: give the engine's host in place of *`},
		{"wildcard to replay", one(fleet.Replica{Events: "tcp://*:5557", Bind: true, Replay: "tcp://0.0.0.0:1"}), "replay: "},
		{"ranks of ipc", one(fleet.Replica{Events: "ipc://x", Ranks: 2}), "events: an ipc address has no port to add a rank to: give tcp://host:port, or one entry for each rank"},
		{"negative ranks", one(fleet.Replica{Events: "tcp://h:1", Ranks: -1}), "ranks -1: give 1 to 1024"},
		{"many ranks", one(fleet.Replica{Events: "tcp://h:1", Ranks: 1025}), "ranks 1025: give 1 to 1024"},
		{"engine is no URL", one(fleet.Replica{Engine: "h:8000"}), "engine: "},
		{"engine has a bad URL", one(fleet.Replica{Engine: "http://u:secret@h:x"}), "engine: not a URL: give http://host:port"},
		{"metrics of another scheme", one(fleet.Replica{Events: "tcp://h:1", Metrics: "file:///etc/passwd"}), "is no address of an HTTP server"},
		{"a long URL", one(fleet.Replica{Engine: "http://" + long}), "a URL of 3007 bytes"},
		{"bind to nothing", one(fleet.Replica{Engine: "http://h", Bind: true}), "bind: give events"},
		{"bind with PLAIN", one(fleet.Replica{Events: "tcp://*:1", Bind: true, User: "u"}), "PLAIN works only when connecting"},
		{"password alone", one(fleet.Replica{Events: "tcp://h:1", Password: "p"}), "PLAIN needs a user"},
		{"a long password", one(fleet.Replica{Events: "tcp://h:1", User: "u", Password: long}), "at most 255 bytes"},
		{"a long name", one(fleet.Replica{Name: long, Events: "tcp://h:1"}), "a name of 3000 bytes"},
		{"a long topic", one(fleet.Replica{Events: "tcp://h:1", Topics: []string{long}}), "a topic of 3000 bytes"},
		{"many topics", one(fleet.Replica{Events: "tcp://h:1", Topics: make([]string, 65)}), "65 topics"},
		{"dns without ports", fleet.Spec{DNS: []fleet.DNS{{Name: "x"}}}, "dns[0]: give events, the port of the event socket, or http"},
		{"dns with a port in the name", fleet.Spec{DNS: []fleet.DNS{{Name: "x:1"}}}, `dns[0]: name "x:1"`},
		{"dns with a port too high", fleet.Spec{DNS: []fleet.DNS{{Name: "x", Ports: fleet.Ports{Events: 65536}}}}, "dns[0]: events 65536: give a port from 1 to 65535"},
		{"dynamo without a folder", fleet.Spec{Dynamo: []fleet.Dynamo{{}}}, "dynamo[0]: give dir"},
		{"kubernetes without a service", fleet.Spec{Kubernetes: []fleet.Kubernetes{{}}}, "kubernetes[0]: give service"},
		{"a service that is a path", fleet.Spec{Kubernetes: []fleet.Kubernetes{{Service: "a/b"}}}, `kubernetes[0]: service "a/b"`},
		{"a namespace that is a path", fleet.Spec{Kubernetes: []fleet.Kubernetes{{Service: "a", Namespace: "../x"}}}, `namespace "../x"`},
		{"a name twice", fleet.Spec{Replicas: []fleet.Replica{{Name: "a", Events: "tcp://h:1"}, {Events: "tcp://h:3"}, {Name: "a", Events: "tcp://h:2"}}}, "replicas[2]: it is called a, as replicas[0] is: give each a name of its own, or leave one out"},
		{"an address twice", fleet.Spec{Replicas: []fleet.Replica{{Engine: "http://u:secret@h:1/a"}, {Engine: "http://h:1/b"}}}, "replicas[1]: it is called h:1, as replicas[0] is"},
		{"too eager", fleet.Spec{Replicas: []fleet.Replica{{Events: "tcp://h:1"}}, Refresh: time.Millisecond}, "refresh 1ms: give 1s to 1h"},
		{"too late", fleet.Spec{Replicas: []fleet.Replica{{Events: "tcp://h:1"}}, Refresh: 2 * time.Hour}, "refresh 2h0m0s: give 1s to 1h"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, err := fleet.NewFinder(tt.in, fleet.Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) || f != nil {
				t.Fatalf("error %v, want %q in it", err, tt.want)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q: one sentence without secrets is wanted", err)
			}
		})
	}
	_, err := fleet.NewFinder(fleet.Spec{Replicas: make([]fleet.Replica, 3)}, fleet.Options{})
	if n := strings.Count(err.Error(), "\n"); n != 2 {
		t.Errorf("%q: want one line for each of 3 mistakes", err)
	}
}

// An engine that cannot be asked keeps what it said before, and only it.
func TestLookKeeps(t *testing.T) {
	t.Parallel()
	w := newWeb(map[string]string{
		"http://a:8000/kv_event_sources": vllmSources(0, "tcp://*:5557"),
		"http://b:8000/kv_event_sources": vllmSources(0, "tcp://*:5557"),
	})
	f := finder(t, fleet.Spec{Replicas: []fleet.Replica{{Engine: "http://a:8000"}, {Engine: "http://b:8000"}}},
		fleet.Options{Do: w.do, LookupHost: noHosts})
	before, problems := f.Look(t.Context())
	wantErrors(t, problems)
	if len(before) != 2 || before[0].Events != "tcp://a:5557" {
		t.Fatalf("members %+v", before)
	}
	w.switchOff("a:8000", true)
	w.set("http://b:8000/kv_event_sources", vllmSources(0, "tcp://*:6000"))
	for range 2 {
		after, problems := f.Look(t.Context())
		wantErrors(t, problems, "GET http://a:8000/kv_event_sources: connect: connection refused: its 1 members of before are kept")
		if d := cmp.Diff(before[0], after[0]); d != "" {
			t.Errorf("a changed: %s", d)
		}
		if after[1].Events != "tcp://b:6000" {
			t.Errorf("b is %+v", after[1])
		}
	}
	w.set("http://b:8000/kv_event_sources", "[]")
	_, problems = f.Look(t.Context())
	wantErrors(t, problems, "a:8000", "GET http://b:8000/kv_event_sources: the answer is not vLLM's: expected an object of publishers by rank: its 1 members of before are kept")
}

// TestGivenKeeps: what an engine said beside an address that was given holds
// when its HTTP server hiccups, so that no link is made anew for that.
func TestGivenKeeps(t *testing.T) {
	t.Parallel()
	const metrics = `vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="11"} 1
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="1",num_gpu_blocks="11"} 1
`
	w := newWeb(map[string]string{"http://a/kv_event_sources": twoRanks, "http://a/metrics": metrics})
	f := finder(t, fleet.Spec{Replicas: []fleet.Replica{{Name: "a", Engine: "http://a", Events: "tcp://a:7000"}}},
		fleet.Options{Do: w.do, LookupHost: noHosts})
	w.switchOff("a", true)
	first, problems := f.Look(t.Context())
	wantErrors(t, problems, "connection refused: what the configuration gives is used alone")
	if len(first) != 1 || first[0].Events != "tcp://a:7000" || first[0].Replay != "" {
		t.Errorf("before anything was said: %+v", first)
	}
	w.switchOff("a", false)
	before, problems := f.Look(t.Context())
	wantErrors(t, problems)
	if len(before) != 2 || before[1].Replay != "tcp://a:6558" || before[1].HWM != 100 || before[1].Facts.BlockSize != 16 {
		t.Fatalf("members %+v", before)
	}
	w.switchOff("a", true)
	for range 2 {
		after, problems := f.Look(t.Context())
		wantErrors(t, problems, "connection refused: its 2 members of before are kept")
		if d := cmp.Diff(before, after); d != "" {
			t.Errorf("changed (-before +after):\n%s", d)
		}
	}
}

// TestCachingOffKeeps: that prefix caching is off holds while the page that says
// so cannot be read.
func TestCachingOffKeeps(t *testing.T) {
	t.Parallel()
	const url = "http://a/metrics"
	w := newWeb(map[string]string{
		"http://a/kv_event_sources": vllmSources(0, "tcp://*:5557"),
		url:                         `vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="0",num_gpu_blocks="11"} 1` + "\n",
	})
	f := finder(t, fleet.Spec{Replicas: []fleet.Replica{{Engine: "http://a"}}}, fleet.Options{Do: w.do, LookupHost: noHosts})
	before, _ := f.Look(t.Context())
	w.other = func(req *http.Request) *http.Response {
		if req.URL.Path == "/metrics" {
			return answer(http.StatusServiceUnavailable, "no")
		}
		return nil
	}
	after, problems := f.Look(t.Context())
	wantErrors(t, problems)
	if d := cmp.Diff(before, after); d != "" || before[0].Problem == "" {
		t.Errorf("changed from %+v:\n%s", before, d)
	}
}

func TestNamesClash(t *testing.T) {
	t.Parallel()
	got, problems := lookAt(t, newWeb(nil),
		fleet.Replica{Name: "a", Events: "tcp://h:1", Ranks: 2},
		fleet.Replica{Name: "a/0", Events: "tcp://h:1"}, // the same once more
		fleet.Replica{Name: "a/1", Events: "tcp://h:9"},
	)
	wantErrors(t, problems, `two replicas are called a/1, at "tcp://h:2" and, left out here, "tcp://h:9" (replicas[2]): give one of them another name`)
	if len(got) != 2 || got[1].Events != "tcp://h:2" {
		t.Errorf("members %+v", got)
	}
}

// TestSecretsAreNotShown: a query can hold a token, as the password is one.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	const query = "?token=s3cret"
	w := newWeb(map[string]string{
		// These hosts are up.
		"http://silent/": "", "http://odd/": "", "http://many/": "", "http://off/": "",
		"http://u:pass@odd/kv_event_sources?token=s3cret": "[]",
		"http://u:pass@off/server_info?token=s3cret":      `{"page_size":1}`,
		"http://u:pass@many/server_info?token=s3cret":     sglangWith(`{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557,"dp_size":100000}`),
	})
	var replicas []fleet.Replica
	for _, host := range []string{"silent", "odd", "gone", "many", "off"} {
		replicas = append(replicas, fleet.Replica{Engine: "http://u:pass@" + host + query})
	}
	got, problems := lookAt(t, w, replicas...)
	for _, m := range got {
		problems = append(problems, errors.New(m.Problem))
	}
	_, err := fleet.NewFinder(fleet.Spec{Replicas: []fleet.Replica{{Engine: "ftp://u:pass@h/?token=s3cret"}, {Metrics: "x?token=s3cret", Events: "tcp://a:1"}}}, fleet.Options{})
	problems = append(problems, err)
	page, err := fleet.NewProber(fleet.Options{Do: w.do}).Probe(t.Context(), "http://u:pass@gone/metrics?token=s3cret#frag")
	problems = append(problems, err, errors.New(page.URL))
	for _, text := range texts(problems) {
		if strings.Contains(text, "s3cret") || strings.Contains(text, "pass") || strings.Contains(text, "frag") {
			t.Errorf("shows a secret: %s", text)
		}
	}
	if !strings.Contains(got[0].Problem, "http://u:xxxxx@silent: it does not say") || !strings.Contains(got[1].Problem, "/kv_event_sources: the answer is not vLLM's") {
		t.Errorf("say %q, %q", got[0].Problem, got[1].Problem)
	}
	if want := "GET http://u:xxxxx@many/server_info: 100000 ranks: the limit is 1024: give events, or the address of an engine"; got[3].Problem != want {
		t.Errorf("says %q, want %q", got[3].Problem, want)
	}
	if got[3].Metrics != "http://u:pass@many/metrics?token=s3cret" { // which is to be asked
		t.Errorf("metrics at %s", got[3].Metrics)
	}
}

func TestManyMembers(t *testing.T) {
	t.Parallel()
	var all []fleet.Replica
	for i := range 5 {
		all = append(all, fleet.Replica{Name: fmt.Sprint(i), Events: "tcp://h:1", Ranks: 1024})
	}
	got, problems := lookAt(t, newWeb(nil), all...)
	wantErrors(t, problems, "more than 4096 members: the others are left out")
	if len(got) != 4096 {
		t.Errorf("%d members, want 4096", len(got))
	}
}

func TestDNS(t *testing.T) {
	t.Parallel()
	var hosts []string
	var fail error
	lookup := func(_ context.Context, name string) ([]string, error) {
		if name != "vllm.svc" {
			t.Errorf("looked up %q", name)
		}
		return hosts, fail
	}
	w := newWeb(map[string]string{"http://10.0.0.9:8000/kv_event_sources": vllmSources(0, "tcp://*:5557")})
	f := finder(t, fleet.Spec{DNS: []fleet.DNS{{Name: "vllm.svc", Ports: fleet.Ports{HTTP: 8000, Events: 5557, Replay: 5558}}}},
		fleet.Options{Do: w.do, LookupHost: lookup})
	names := func(members []fleet.Member) (out []string) {
		for _, m := range members {
			out = append(out, string(m.Name)+" "+m.Events+" "+m.Replay)
			if m.Found != "dns vllm.svc" {
				t.Errorf("found by %q", m.Found)
			}
		}
		return out
	}
	// Both families, unordered, twice.
	hosts = []string{"10.0.0.10", "fd00::1", "10.0.0.9", "10.0.0.10"}
	got, problems := f.Look(t.Context())
	wantErrors(t, problems, "10.0.0.10:8000/kv_event_sources: connect: connection refused: what the configuration gives is used alone")
	want := []string{
		"10.0.0.9:8000 tcp://10.0.0.9:5557 tcp://10.0.0.9:5558",
		"10.0.0.10:8000 tcp://10.0.0.10:5557 tcp://10.0.0.10:5558",
	}
	if d := cmp.Diff(want, names(got)); d != "" {
		t.Error(d)
	}
	hosts = []string{"10.0.0.9"} // one went
	got, problems = f.Look(t.Context())
	wantErrors(t, problems)
	if d := cmp.Diff(want[:1], names(got)); d != "" {
		t.Error(d)
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&net.DNSError{Err: "no such host", Name: "vllm.svc", IsNotFound: true}, "dns vllm.svc: there is no such name: correct it, or start an engine behind it: its 1 engines of before are kept"},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true}, "dns vllm.svc: no answer within 2s"},
		{errTest, "dns vllm.svc: the test says no: its 1 engines"},
		{
			&net.DNSError{Err: "read udp 10.0.0.1:33333->10.0.0.2:53: connection refused", Name: "vllm.svc"},
			"dns vllm.svc: no address of vllm.svc: connection refused: its 1 engines",
		},
	} {
		hosts, fail = nil, tt.err
		got, problems = f.Look(t.Context())
		wantErrors(t, problems, tt.want)
		if d := cmp.Diff(want[:1], names(got)); d != "" {
			t.Error(d)
		}
	}
	hosts, fail = []string{"fd00::2"}, nil
	got, _ = f.Look(t.Context())
	if d := cmp.Diff([]string{"[fd00::2]:8000 tcp://[fd00::2]:5557 tcp://[fd00::2]:5558"}, names(got)); d != "" {
		t.Error(d)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(map[string]string{"http://a/kv_event_sources": vllmSources(0, "tcp://*:5557")})
		f := finder(t, fleet.Spec{Replicas: []fleet.Replica{{Engine: "http://a"}}, Refresh: 10 * time.Second},
			fleet.Options{Do: w.do, LookupHost: noHosts})
		ctx, cancel := context.WithCancel(t.Context())
		type report struct {
			events   string
			problems int
		}
		var got []report
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx, func(members []fleet.Member, problems []error) {
				got = append(got, report{members[0].Events, len(problems)})
			})
		}()
		expect := func(want ...report) {
			t.Helper()
			synctest.Wait()
			if d := cmp.Diff(want, got, cmp.AllowUnexported(report{})); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			got = nil
		}
		expect(report{"tcp://a:5557", 0})
		time.Sleep(25 * time.Second) // no news
		expect()
		w.set("http://a/kv_event_sources", vllmSources(0, "tcp://*:5600"))
		time.Sleep(10 * time.Second)
		expect(report{"tcp://a:5600", 0})
		w.switchOff("a", true)
		time.Sleep(30 * time.Second) // the same problem each time
		expect(report{"tcp://a:5600", 1})
		w.switchOff("a", false)
		time.Sleep(10 * time.Second)
		expect(report{"tcp://a:5600", 0})
		if n := w.count("http://a/kv_event_sources"); n != 8 {
			t.Errorf("asked %d times in 75 s, want 8", n)
		}
		cancel()
		<-done
		expect()
	})
}

// TestRunDoesNotWait: engines that hang hold up nobody else's first report, and
// a round that has found nobody yet is no empty fleet.
func TestRunDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		replicas := []fleet.Replica{{Name: "slow", Engine: "http://slow"}}
		for i := range 100 { // in the way of those after them
			replicas = append(replicas, fleet.Replica{Engine: fmt.Sprintf("http://dead%d", i)})
		}
		replicas = append(replicas, fleet.Replica{Name: "quick", Engine: "http://quick"}, fleet.Replica{Name: "fixed", Events: "tcp://fixed:5557"})
		for _, tt := range []struct {
			name     string
			replicas []fleet.Replica
			want     []string
		}{
			{"all", replicas, []string{
				"100ms: fixed, 0 dead, 0 problems",
				"3.1s: slow fixed, 31 dead, 0 problems",
				"5.1s: slow fixed, 63 dead, 0 problems",
				"7.1s: slow quick fixed, 95 dead, 0 problems",
				"8s: slow quick fixed, 100 dead, 100 problems",
			}},
			{"none that is fixed", replicas[:1], []string{"2.5s: slow, 0 dead, 0 problems"}},
			{"no slow one", replicas[101:], []string{"0s: quick fixed, 0 dead, 0 problems"}},
			{"nobody", replicas[1:2], []string{"2s:, 1 dead, 1 problems"}},
		} {
			t.Log(tt.name)
			began := time.Now()
			w := newWeb(map[string]string{"http://quick/kv_event_sources": vllmSources(0, "tcp://*:5557")})
			f := finder(t, fleet.Spec{Replicas: tt.replicas, Refresh: time.Hour}, fleet.Options{
				LookupHost: noHosts,
				Do: func(req *http.Request) (*http.Response, error) {
					switch {
					case req.URL.Host == "slow" && req.URL.Path == "/kv_event_sources":
						time.Sleep(1500 * time.Millisecond)
						return answer(http.StatusOK, vllmSources(0, "tcp://*:5557")), nil
					case req.URL.Host == "slow":
						time.Sleep(time.Second)
						return answer(http.StatusNotFound, ""), nil
					case strings.HasPrefix(req.URL.Host, "dead"):
						<-req.Context().Done()
						return nil, req.Context().Err()
					}
					return w.do(req)
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			var got []string
			done := make(chan struct{})
			go func() {
				defer close(done)
				f.Run(ctx, func(members []fleet.Member, problems []error) {
					dead, text := 0, ""
					for _, m := range members {
						if m.Problem != "" {
							dead++
						} else {
							text += " " + string(m.Name)
						}
					}
					got = append(got, fmt.Sprintf("%v:%s, %d dead, %d problems", time.Since(began), text, dead, len(problems)))
				})
			}()
			time.Sleep(time.Minute)
			cancel()
			<-done
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s (-want +got)\n%s", tt.name, d)
			}
		}
	})
}
