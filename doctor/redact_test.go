package doctor

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// TestReportRedacted: no word of an engine, a page or a configuration is left, nor a name
// or an address; what the checks say themselves is.
func TestReportRedacted(t *testing.T) {
	t.Parallel()
	const secret = "ZQSECRET"
	r := Report{Problems: []string{"dns " + secret + ".svc: no such host"}}
	for _, m := range []struct{ name, events string }{
		{"pod-zq", "tcp://zqhost.svc:5557"}, {"10.1.2.3:5557", "tcp://10.1.2.3:5557"}, {"a", "tcp://[fd00::7]:5557"}, {"", "ipc:///run/zqpath"},
	} {
		one := Member{Replica: wire.Replica(m.name), Events: m.events, Found: "dns zqhost.svc"}
		for _, c := range []struct{ code, text string }{
			{"address", "engine " + secret + " has no socket"},
			{"address", "rank 1: " + secret},
			{"resolves", "zqhost.svc has no address: no such host"},
			{"resolves", "zqhost.svc is 10.9.9.9"},
			{"connects", "nothing can be reached at " + m.events + ": connection refused"},
			{"connects", "what has dialled " + m.events + " is no publisher: " + secret},
			{"handshake", "the handshake at " + m.events + " fails: " + secret + ": " + secret},
			{"topic", `it publishes as "kv@` + secret + `", and none of the topics wanted, "` + secret + `\"` + secret + `", begins that`},
			{"frames", "3 batches or events cannot be read: " + secret},
			{"replay", "the replay socket tcp://zqhost.svc:5558 does not answer: no answer within 4s"},
			{"replay", "no replay socket is known: " + staysLost},
			{"metrics", "http://zqhost.svc:8000/metrics?x is no metrics page of an engine: " + secret},
		} {
			one.Checks = append(one.Checks, Result{Code: c.code, Status: Error, Text: c.text, Fix: "do this"})
		}
		r.Members = append(r.Members, one)
	}
	r.Fleet = []Result{
		{Code: "hash", Status: Warning, Text: "hash algorithms differ: " + secret + " on pod-zq"},
		{Code: "hash", Status: Warning, Text: "pod-zq and 10.1.2.3:5557 hash the same first block differently"},
		{Code: "block-size", Status: Error, Text: "block sizes differ: 16 on pod-zq, 32 on 10.1.2.3:5557; a router"},
	}
	hide := func(name wire.Replica) wire.Replica {
		return map[wire.Replica]wire.Replica{"pod-zq": "P1", "10.1.2.3:5557": "P2", "a": "P3", "": "P4"}[name]
	}
	texts := func(hide func(wire.Replica) wire.Replica) string {
		out := r.Redacted(hide)
		var text, js bytes.Buffer
		if Verbose(&text, &out) != nil || JSON(&js, &out) != nil {
			t.Fatal("cannot write")
		}
		return text.String() + js.String()
	}
	got := texts(hide)
	for _, word := range []string{secret, "zqhost", "pod-zq", "10.1.2.3", "10.9.9.9", "fd00", "ipc:", "zqpath"} {
		if strings.Contains(got, word) {
			t.Errorf("%s is left in\n%s", word, got)
		}
	}
	for _, want := range []string{
		"(host) has no address: no such host", "nothing can be reached at (address): connection refused",
		"3 batches or events cannot be read: (left out)", `it publishes as "…", and none of the topics wanted, "…", begins that`,
		"does not answer: no answer within 4s", staysLost, "P1 and P2 hash the same", "16 on P1, 32 on P2; P3 router" /* a replica called "a" */, "→ do this",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	kept := texts(nil)
	if strings.Contains(kept, secret+" ") || !strings.Contains(kept, "16 on pod-zq, 32 on 10.1.2.3:5557") || !strings.Contains(kept, "tcp://zqhost.svc:5557") {
		t.Errorf("with names kept:\n%s", kept)
	}
}
