package fleet_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/fleet"
)

// pod is an endpoint of a slice; ready is yes, no or unsaid.
func pod(name, address, ready string) map[string]any {
	e := map[string]any{"addresses": []string{address, "10.9.9.9"}, "conditions": map[string]any{}}
	if name != "" {
		e["targetRef"] = map[string]any{"kind": "Pod", "name": name, "namespace": "prod"}
	}
	if ready != "unsaid" {
		e["conditions"] = map[string]any{"ready": ready == "yes"}
	}
	return e
}

// slicePage is a page of slices of one family each.
func slicePage(t *testing.T, next string, families map[string][]map[string]any) string {
	t.Helper()
	items := []any{}
	for _, family := range []string{"IPv6", "IPv4", "FQDN"} {
		if e, ok := families[family]; ok {
			items = append(items, map[string]any{"addressType": family, "endpoints": e})
		}
	}
	b, err := json.Marshal(map[string]any{
		"kind": "EndpointSliceList", "metadata": map[string]any{"resourceVersion": "1", "continue": next}, "items": items,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// cluster is what a pod sees of Kubernetes.
type cluster struct {
	env     map[string]string
	account fstest.MapFS
}

func inCluster() cluster {
	return cluster{
		map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
		fstest.MapFS{"token": {Data: []byte("the-token\n")}, "namespace": {Data: []byte("prod")}},
	}
}

func (c cluster) options(w *web) fleet.Options {
	opt := fleet.Options{
		LookupHost: noHosts,
		Getenv:     func(key string) string { return c.env[key] },
		OpenDir:    func(string) fs.FS { return c.account },
	}
	if w != nil {
		opt.Do = w.do
	}
	return opt
}

const slicesURL = "https://10.0.0.1:443/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dvllm&limit=20"

var vllmService = fleet.Spec{Kubernetes: []fleet.Kubernetes{{Service: "vllm", Ports: fleet.Ports{Events: 5557, Replay: 5558}}}}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	w := newWeb(map[string]string{
		slicesURL: slicePage(t, "more/of it", map[string][]map[string]any{
			"IPv6": {pod("vllm-b", "fd00::2", "yes"), pod("vllm-six", "fd00::6", "yes")},
			"IPv4": {pod("vllm-b", "10.1.0.2", "yes"), pod("vllm-off", "10.1.0.9", "no")},
		}),
	})
	second := strings.Replace(slicesURL, "?", "?continue=more%2Fof+it&", 1)
	w.set(second, slicePage(t, "", map[string][]map[string]any{
		"IPv4": {pod("vllm-a", "10.1.0.1", "unsaid"), pod("", "10.1.0.3", "yes")},
		"FQDN": {pod("vllm-name", "engine.example", "yes")},
	}))
	w.other = func(req *http.Request) *http.Response {
		if got := req.Header.Get("Authorization"); got != "Bearer the-token" {
			t.Errorf("authorization %q", got)
		}
		return nil
	}
	f := finder(t, vllmService, inCluster().options(w))
	want := []string{
		"10.1.0.3:5557 tcp://10.1.0.3:5557 tcp://10.1.0.3:5558",
		"vllm-a tcp://10.1.0.1:5557 tcp://10.1.0.1:5558",
		"vllm-b tcp://10.1.0.2:5557 tcp://10.1.0.2:5558",
		"vllm-name tcp://engine.example:5557 tcp://engine.example:5558",
		"vllm-six tcp://[fd00::6]:5557 tcp://[fd00::6]:5558",
	}
	look := func(problems ...string) {
		t.Helper()
		members, errs := f.Look(t.Context())
		wantErrors(t, errs, problems...)
		var got []string
		for _, m := range members {
			got = append(got, string(m.Name)+" "+m.Events+" "+m.Replay)
			if m.Found != "kubernetes vllm" {
				t.Errorf("found by %q", m.Found)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	}
	look()
	w.set(second, "[]")
	asked, _, _ := strings.Cut(second, "?")
	look("kubernetes vllm: GET " + asked + ": the answer is no list of EndpointSlices: its 5 engines of before are kept")
	w.set(second, slicePage(t, "", nil))
	want = []string{want[2], want[4]}
	look()
	w.harmless(t)
}

func TestKubernetesProblems(t *testing.T) {
	t.Parallel()
	status := func(code int) func(*web) {
		return func(w *web) {
			w.other = func(*http.Request) *http.Response { return answer(code, `{"kind":"Status"}`) }
		}
	}
	tests := []struct {
		name    string
		cluster func(c *cluster)
		web     func(w *web)
		want    string
	}{
		{name: "outside", cluster: func(c *cluster) { c.env = nil }, want: "KUBERNETES_SERVICE_HOST and _PORT are not set: run kvscope in a pod of the cluster, or give dns or replicas"},
		{name: "no token", cluster: func(c *cluster) { delete(c.account, "token") }, want: "the service account's token: open token: file does not exist: mount it"},
		{name: "no namespace", cluster: func(c *cluster) { delete(c.account, "namespace") }, want: "the pod's own namespace is not to be found: give namespace"},
		{name: "a namespace that is none", cluster: func(c *cluster) { c.account["namespace"] = &fstest.MapFile{Data: []byte("../../secrets")} }, want: "namespace is not to be found"},
		{name: "not allowed", web: status(http.StatusForbidden), want: "403 Forbidden: give the pod's service account a Role with verb list on endpointslices of discovery.k8s.io"},
		{name: "a stale token", web: status(http.StatusUnauthorized), want: "401 Unauthorized: give the pod's service account"},
		{name: "the list changed", web: status(http.StatusGone), want: "410 Gone: the list changed while it was read"},
		{name: "down", want: "connect: connection refused"},
		{name: "types", web: func(w *web) { w.set(slicesURL, `{"items":[{"endpoints":5}]}`) }, want: "the answer is no list of EndpointSlices"},
		{
			name: "an address that is none",
			web: func(w *web) {
				w.set(slicesURL, `{"items":[{"endpoints":[{"addresses":["a b/c"],"targetRef":{"kind":"Pod","name":"p"}}]}]}`)
			},
			want: `the endpoint "p" has no address`,
		},
		{
			name: "without end",
			web: func(w *web) {
				w.other = func(*http.Request) *http.Response { return answer(http.StatusOK, `{"metadata":{"continue":"x"}}`) }
			},
			want: "more than 64 pages of 20 EndpointSlices",
		},
		{
			name: "a crowd",
			web: func(w *web) {
				var b strings.Builder
				for i := range 5000 {
					fmt.Fprintf(&b, `,{"addresses":["10.0.%d.%d"]}`, i/250, i%250)
				}
				w.set(slicesURL, `{"items":[{"endpoints":[`+b.String()[1:]+`]}]}`)
			},
			want: "more than 4096 endpoints",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, w := inCluster(), newWeb(nil)
			if tt.cluster != nil {
				tt.cluster(&c)
			}
			if tt.web != nil {
				tt.web(w)
			}
			members, problems := finder(t, vllmService, c.options(w)).Look(t.Context())
			wantErrors(t, problems, tt.want)
			if len(members) != 0 {
				t.Errorf("members %+v", members)
			}
		})
	}
}

// A real server with a certificate of its own: trusted by the cluster's
// authority and by nothing else.
func TestKubernetesTLS(t *testing.T) {
	t.Parallel()
	body := slicePage(t, "", map[string][]map[string]any{"IPv4": {pod("vllm-a", "10.1.0.1", "yes")}})
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = w.Write([]byte(body)) // the client tells
	}))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := inCluster()
	c.env["KUBERNETES_SERVICE_HOST"], c.env["KUBERNETES_SERVICE_PORT"], err = net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	f := finder(t, vllmService, c.options(nil))
	_, problems := f.Look(t.Context())
	wantErrors(t, problems, "the cluster's authority: open ca.crt: file does not exist: mount the service account")
	c.account["ca.crt"] = &fstest.MapFile{Data: []byte("nonsense")}
	_, problems = f.Look(t.Context())
	wantErrors(t, problems, "ca.crt holds no certificate")
	c.account["ca.crt"] = &fstest.MapFile{Data: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})}
	members, problems := f.Look(t.Context())
	wantErrors(t, problems)
	if len(members) != 1 || members[0].Name != "vllm-a" {
		t.Errorf("members %+v", members)
	}
	p := fleet.NewProber(fleet.Options{})
	if _, err := p.Probe(t.Context(), srv.URL); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a stranger's certificate: error %v", err)
	}
}

// The default client follows a redirect only within the host.
func TestProbeRedirects(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	defer srv.Close()
	closing := func(w http.ResponseWriter) { w.Header().Set("Connection", "close") }
	mux.HandleFunc("/in", func(w http.ResponseWriter, r *http.Request) {
		closing(w)
		http.Redirect(w, r, "/page", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/out", func(w http.ResponseWriter, r *http.Request) {
		closing(w)
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) {
		closing(w)
		http.Redirect(w, r, "/round", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		closing(w)
		_, _ = w.Write([]byte("x"))
	})
	p := fleet.NewProber(fleet.Options{})
	for path, want := range map[string]int{"/in": http.StatusOK, "/out": http.StatusTemporaryRedirect, "/round": http.StatusTemporaryRedirect} {
		page, err := p.Probe(t.Context(), srv.URL+path)
		if page.Status != want || (err == nil) != (want == http.StatusOK) {
			t.Errorf("%s: status %d, error %v; want %d", path, page.Status, err, want)
		}
		if want == http.StatusOK && page.Date == 0 {
			t.Errorf("%s: no date", path)
		}
	}
}
