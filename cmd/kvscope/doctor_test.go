package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/sim"
)

// engines starts a simulated fleet for a test.
func engines(t *testing.T, opt sim.Options) []sim.Member {
	t.Helper()
	f, err := sim.StartFleet(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f.Members()
}

// tapped is the flag that follows an engine by its addresses alone.
func tapped(m sim.Member, more string) string {
	return fmt.Sprintf("--replica=%s=%s,replay=%s,metrics=%s%s", m.Name, m.Events, m.Replay, m.Metrics, more)
}

// TestDoctorNamesWhatIsWrong: what stands between an operator and the events of
// a fleet is named in one sentence with the fix, and the exit code is 1.
func TestDoctorNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	well := engines(t, sim.Options{Replicas: 2, Rate: 40})
	silent := engines(t, sim.Options{Replicas: 1, Rate: 40, Faults: []string{"silent"}})
	uncached := engines(t, sim.Options{Replicas: 1, Rate: 40, Faults: []string{"no-caching"}})
	mixed := engines(t, sim.Options{Replicas: 2, Rate: 40, Faults: []string{"block-size"}})
	dialling := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/kv_event_sources" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://router.example:5557","topic":""}}`)
	}))
	t.Cleanup(dialling.Close)
	web := strings.TrimPrefix(well[0].URL, "http://")
	for _, tt := range []struct {
		name string
		args []string
		code string
		// text is part of the sentence.
		text string
	}{
		{"wrong port", []string{"--replica=r=tcp://127.0.0.1:1"}, "connects", "connection refused"},
		{"another server's port", []string{"--replica=r=tcp://" + web}, "handshake", "the handshake at tcp://"},
		{"wrong topic", []string{tapped(well[0], ",topic=kv@other")}, "topic", "kv@sim-0"},
		{"dial-out engine", []string{"--engine=" + dialling.URL}, "address", "router.example"},
		{"events off while serving", []string{tapped(silent[0], "")}, "events", "serves"},
		{"prefix caching off", []string{tapped(uncached[0], "")}, "prefix-caching", "off"},
		{"mixed block sizes", []string{tapped(mixed[0], ""), tapped(mixed[1], "")}, "block-size", "32"},
		{
			"closed replay port",
			[]string{fmt.Sprintf("--replica=r=%s,replay=tcp://127.0.0.1:1", well[0].Events)},
			"replay", "does not answer",
		},
		{"base port and rank", []string{"--replica=r=tcp://127.0.0.1:65535,ranks=2"}, "address", "65535 + 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			args := append([]string{"doctor", "--json", "--for", "4s"}, tt.args...)
			if code := run(context.Background(), args, strings.NewReader(""), &out, &errs); code != exitFindings {
				t.Errorf("exit code %d, want %d: %s", code, exitFindings, errs.String())
			}
			type check struct{ Code, Status, Text, Fix string }
			var got struct {
				Schema   string
				Replicas []struct{ Checks []check }
				Fleet    []check
			}
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%v in %s", err, out.String())
			}
			if got.Schema != "kvscope.doctor/1" {
				t.Errorf("schema %q", got.Schema)
			}
			all := got.Fleet
			for _, r := range got.Replicas {
				all = append(all, r.Checks...)
			}
			found := false
			for _, c := range all {
				if c.Code != tt.code || c.Status != "error" {
					continue
				}
				found = true
				if !strings.Contains(c.Text, tt.text) || c.Fix == "" && !strings.Contains(c.Text, ": ") {
					t.Errorf("%s says %q, fix %q; want %q in it", c.Code, c.Text, c.Fix, tt.text)
				}
				if strings.Contains(c.Text, ". ") || strings.Contains(c.Text, "\n") {
					t.Errorf("not one sentence: %q", c.Text)
				}
			}
			if !found {
				t.Errorf("%s is no error:\n%s", tt.code, out.String())
			}
		})
	}
	t.Run("nothing wrong", func(t *testing.T) {
		t.Parallel()
		var out, errs bytes.Buffer
		args := []string{"doctor", "--for", "5s", "--engine=" + well[0].URL, "--engine=" + well[1].URL}
		if code := run(context.Background(), args, strings.NewReader(""), &out, &errs); code != exitFine {
			t.Errorf("exit code %d: %s\n%s", code, errs.String(), out.String())
		}
	})
}

// TestDoctorJSONOfFailedDiscovery: what cannot be found out is said in the JSON
// that was asked for.
func TestDoctorJSONOfFailedDiscovery(t *testing.T) {
	t.Parallel()
	empty := "--dynamo=" + t.TempDir()
	for _, tt := range []struct {
		name string
		args []string
		// replicas and errors are counted.
		replicas, errors, code int
	}{
		{"nobody", []string{empty}, 0, 1, exitInput},
		{"somebody", []string{empty, "--replica=r=tcp://127.0.0.1:1"}, 1, 2, exitFindings},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			args := append([]string{"doctor", "--json", "--for", "1s"}, tt.args...)
			if code := run(context.Background(), args, strings.NewReader(""), &out, &errs); code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, errs.String())
			}
			var got struct {
				Schema   string
				Errors   int
				Replicas []any
				Problems []string
			}
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%v in %s", err, out.String())
			}
			if got.Schema != "kvscope.doctor/1" || len(got.Replicas) != tt.replicas || got.Errors != tt.errors ||
				len(got.Problems) != 1 || !strings.Contains(got.Problems[0], "it holds no folder v1") {
				t.Errorf("wrote %s", out.String())
			}
		})
	}
}
