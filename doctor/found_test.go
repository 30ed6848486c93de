package doctor

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// TestLoadSocket: an engine and its load socket have one name, as SGLang's do.
func TestLoadSocket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := w.healthy(t, "a", like{size: 16})
		load := fleet.Member{Name: "a", Kind: fleet.LoadOnly, Events: "tcp://a:5561", Topics: []string{"load"}, Rank: -1}
		w.at["a:5561"] = publishes(func(seq uint64) []byte { return message("load", be(seq), "\x90") })
		r := Run(t.Context(), []fleet.Member{a, load}, w.options())
		if s := said(&r); s != "" {
			t.Errorf("said %s", s)
		}
		for i, kind := range []string{"engine", "load"} {
			if m := r.Members[i]; m.Replica != "a" || m.Kind != kind {
				t.Errorf("member %d is %s, %s", i, m.Replica, m.Kind)
			}
		}
		w.serving.Wait()
	})
}

// natsAt serves a NATS server that sends messages once it was asked for them,
// and keeps what was subscribed to.
func natsAt(w *world, address string, send []string) *[]string {
	var subscribed []string
	w.at[address] = func(conn net.Conn) {
		_, _ = conn.Write([]byte(`INFO {"server_id":"x"}` + "\r\n"))
		in := bufio.NewScanner(conn)
		for in.Scan() {
			if subject, ok := strings.CutPrefix(in.Text(), "SUB "); ok {
				subscribed = append(subscribed, subject)
			}
			if in.Text() == "PING" {
				say := []byte("PONG\r\n" + strings.Join(send, ""))
				send = nil
				w.serving.Go(func() { _, _ = conn.Write(say) })
			}
		}
	}
	return &subscribed
}

// TestNATS: what comes over a NATS server is its publishers', whose names only
// the messages tell.
func TestNATS(t *testing.T) {
	t.Parallel()
	var send []string
	for _, file := range refdata.Files(t, filepath.Join("..", "wire", "testdata"), "plane/nats_raw.jsonl.gz") {
		refdata.Each(t, file, func(_ int, line struct{ Subject, Data string }) {
			body, err := hex.DecodeString(line.Data)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(line.Subject, "."+wire.PlaneEvents) || strings.HasSuffix(line.Subject, "."+wire.PlaneLoad) {
				send = append(send, fmt.Sprintf("MSG %s 1 %d\r\n%s\r\n", line.Subject, len(body), body))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		subscribed := natsAt(w, "n:4222", send)
		silent := natsAt(w, "m:4000", nil)
		w.at["z:4222"] = func(conn net.Conn) { _, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n")) }
		at := func(url string, topics ...string) fleet.Member {
			return fleet.Member{Name: wire.Replica(strings.TrimPrefix(url, "nats://")), Kind: fleet.Plane, Events: url, Topics: topics, Rank: -1, Found: "nats"}
		}
		r := Run(t.Context(), []fleet.Member{at("nats://n", "namespace.>"), at("nats://m:4000"), at("nats://z"), at("nats://gone:1")}, w.options())
		want := strings.Join([]string{
			"m:4000 warning first-batch: nothing came within 10s; an idle engine publishes nothing",
			"z error handshake: the NATS server at nats://z lets nobody in: what listens there does not speak NATS: is this the right port?",
			"gone:1 error connects: nothing can be reached at nats://gone:1: connection refused",
		}, "\n")
		lines := slices.DeleteFunc(strings.Split(said(&r), "\n"), func(s string) bool {
			return strings.Contains(s, " clock: ") // it was recorded at another time
		})
		if s := strings.Join(lines, "\n"); s != want {
			t.Errorf("said\n%s\nwant\n%s", s, want)
		}
		if len(*subscribed) != 1 || (*subscribed)[0] != "namespace.> 1" || len(*silent) != 3 {
			t.Errorf("subscribed to %q and %q", *subscribed, *silent)
		}
		w.serving.Wait()
	})
}

// TestProblemsAreWritten: what discovery could not find out is part of what is
// written, also where it found nobody.
func TestProblemsAreWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := Run(t.Context(), nil, newWorld().options())
		if r.Waited != 0 {
			t.Errorf("listened for %s to nobody", r.Waited)
		}
		r.Problems = []string{"dns \x1b[2J: there is no such name"}
		var text, js strings.Builder
		if err := errors.Join(Text(&text, &r), JSON(&js, &r)); err != nil {
			t.Fatal(err)
		}
		if want := "discovery\n  problem  dns ?[2J: there is no such name\n"; !strings.Contains(text.String(), want) {
			t.Errorf("wrote\n%s, want in it\n%s", text.String(), want)
		}
		var got struct {
			Problems, Replicas []any
			Errors             int
			Fleet              []struct{ Code, Status string }
		}
		if err := json.Unmarshal([]byte(js.String()), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Problems) != 1 || got.Problems[0] != r.Problems[0] || got.Replicas == nil || got.Errors != 1 || got.Fleet[0].Code != "members" {
			t.Errorf("wrote %s", js.String())
		}
	})
}

func TestRedacted(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://a:1/metrics":                   "http://a:1/metrics",
		"http://u:s3cret@a/m?key=s3cret@b#x@y": "http://a/m",
		"http://a?s3cret":                      "http://a",
		"nothing":                              "nothing",
	} {
		if got := redacted(url); got != want {
			t.Errorf("%q is shown as %q, want %q", url, got, want)
		}
	}
}
