package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// member is a fixed engine at a host.
func member(name string) fleet.Member {
	return fleet.Member{
		Name: wire.Replica(name), Events: "tcp://" + name + ":5557", Replay: "tcp://" + name + ":5558",
		Metrics: "http://" + name + "/metrics", Rank: -1, Found: "test",
	}
}

// healthy lets an engine serve all that a member has.
func (w *world) healthy(t *testing.T, name string, l like) fleet.Member {
	w.at[name+":5557"] = publishes(l.batch(t))
	w.at[name+":5558"] = w.answers
	w.pages["http://"+name+"/metrics"] = page("True", 3)
	return member(name)
}

const dialsOut = `it dials tcp://10.0.0.9:5557 instead of listening: configure "endpoint": "tcp://*:5557"`

func TestFaults(t *testing.T) {
	t.Parallel()
	usual := like{topic: "kv@a@m", size: 16}
	tests := []struct {
		name  string
		fleet func(*testing.T, *world) []fleet.Member
		// want are all warnings and errors, and fix is in the fix of the first.
		want []string
		fix  string
	}{
		{"all is well", func(t *testing.T, w *world) []fleet.Member {
			return []fleet.Member{w.healthy(t, "a", usual), w.healthy(t, "b", usual)}
		}, nil, ""},
		{"nothing listens", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			m.Events = "tcp://a:5559"
			return []fleet.Member{m, w.healthy(t, "b", usual)}
		}, []string{
			"a error connects: nothing can be reached at tcp://a:5559: connection refused",
			"a error events: it serves (3 requests finished within 10s), and its event socket cannot be reached: its events are off, or elsewhere",
		}, "check the port"},
		{"the HTTP server's port", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			w.at["a:5557"] = func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 64))
				_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 64)))
			}
			w.pages[m.Metrics] = page("True", 0)
			return []fleet.Member{m, w.healthy(t, "b", usual)}
		}, []string{
			"a error handshake: the handshake at tcp://a:5557 fails: what listens there does not speak ZMQ: is this the right port?",
		}, "give the event socket's port"},
		{"the ports swapped", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			m.Events, m.Replay = m.Replay, m.Events
			w.pages[m.Metrics] = page("True", 0)
			return []fleet.Member{m, w.healthy(t, "b", usual)}
		}, []string{
			"a error handshake: the handshake at tcp://a:5558 fails: what listens there is not the counterpart of a SUB socket: are event and replay port swapped?",
			"a error replay: the replay socket tcp://a:5557 does not answer: cannot ask for a replay: what listens there is not the counterpart of a DEALER socket: are event and replay port swapped?",
		}, "give the event socket's port"},
		{"a wrong topic", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			m.Topics = []string{"kv@b", "events"}
			return []fleet.Member{m}
		}, []string{
			`a error topic: it publishes as "kv@a@m", and none of the topics wanted, "kv@b", "events", begins that`,
		}, "set topics to the beginning"},
		{"it dials out", func(t *testing.T, w *world) []fleet.Member {
			m := member("a")
			m.Events, m.Replay, m.Metrics, m.Problem = "", "", "", dialsOut
			return []fleet.Member{m, w.healthy(t, "b", usual)}
		}, []string{
			"a error address: " + dialsOut,
			"a warning metrics: no metrics page is known, so its load, capacity and restarts are not either",
		}, ""},
		{"events off while serving", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			w.at["a:5557"] = publishes(silent)
			return []fleet.Member{m, w.healthy(t, "b", usual)}
		}, []string{
			"a warning first-batch: nothing came within 10s; an idle engine publishes nothing",
			"a error events: it serves, and publishes nothing: 3 requests finished within 10s and no batch came",
		}, "send it a prompt"},
		{"prefix caching off", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			w.at["a:5557"] = publishes(silent)
			w.pages[m.Metrics] = page("False", 3)
			return []fleet.Member{m, w.healthy(t, "b", usual)}
		}, []string{
			"a warning first-batch: nothing came within 10s; an idle engine publishes nothing",
			"a error prefix-caching: prefix caching is off, so the engine reuses nothing and publishes nothing",
		}, "send it a prompt"},
		{"mixed block sizes", func(t *testing.T, w *world) []fleet.Member {
			return []fleet.Member{
				w.healthy(t, "a", usual), w.healthy(t, "b", usual), w.healthy(t, "c", like{size: 32}),
			}
		}, []string{
			"fleet error block-size: block sizes differ: 16 on a, b, 32 on c; a router that hashes by one of them finds nothing on the others",
		}, "the same --block-size"},
		{"mixed releases", func(t *testing.T, w *world) []fleet.Member {
			return []fleet.Member{w.healthy(t, "a", usual), w.healthy(t, "b", like{size: 16, asMap: true})}
		}, []string{
			"fleet warning dialect: the engines' events differ in form: vllm-array-8 on a, vllm-map on b",
		}, "finish the upgrade"},
		{"mixed seeds", func(t *testing.T, w *world) []fleet.Member {
			return []fleet.Member{w.healthy(t, "a", usual), w.healthy(t, "b", like{size: 16, hash: 1000})}
		}, []string{
			"fleet warning hash: a and b hash the same first block differently; kvscope compares content, but routers that compare engines' hashes find nothing in common",
		}, "PYTHONHASHSEED"},
		{"the replay port is closed", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			delete(w.at, "a:5558")
			return []fleet.Member{m}
		}, []string{
			"a error replay: the replay socket tcp://a:5558 does not answer: cannot ask for a replay: dial: connection refused",
		}, "check the port of replay_endpoint"},
		{"the replay socket is silent", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			w.at["a:5558"] = func(conn net.Conn) {
				if r, ok := greet(conn, "ROUTER"); ok {
					for ok {
						_, ok = readFrame(r)
					}
				}
			}
			return []fleet.Member{m}
		}, []string{
			"a error replay: the replay socket tcp://a:5558 does not answer: the replay socket gave no answer within 5s",
		}, "check the port of replay_endpoint"},
		{"no replay socket", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			m.Replay = ""
			return []fleet.Member{m}
		}, []string{
			"a warning replay: no replay socket is known: what is lost between engine and tap then stays lost",
		}, "replay_endpoint"},
		{"base port and rank", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			m.Events = "tcp://a:65537"
			return []fleet.Member{m, w.healthy(t, "b", usual)}
		}, []string{
			`a error address: a: "tcp://a:65537": port 65537 is above 65535`,
			"a error events: it serves (3 requests finished within 3s), and its event socket cannot be reached: its events are off, or elsewhere",
		}, "a lower base port"},
		{"no such host", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			m.Events, m.Replay = "tcp://nowhere:5557", ""
			w.pages[m.Metrics] = page("True", 0)
			return []fleet.Member{m, w.healthy(t, "b", usual)}
		}, []string{
			"a error resolves: nowhere has no address: no such host",
			"a warning replay: no replay socket is known: what is lost between engine and tap then stays lost",
		}, "correct the name"},
		{"other frames", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			w.at["a:5557"] = publishes(func(uint64) []byte { return message("one", "two") })
			return []fleet.Member{m}
		}, []string{
			"a error frames: its messages do not have the frames of cache events: unexpected frames: 2 of them, want topic, sequence and payload",
		}, "check the address"},
		{"no metrics", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			delete(w.pages, m.Metrics)
			return []fleet.Member{m}
		}, []string{
			"a error metrics: the metrics page cannot be had or read: GET http://a/metrics: connection refused",
		}, "reached from here"},
		{"another page", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			w.pages[m.Metrics] = func(int) (fleet.Page, error) { return fleet.Page{Body: []byte("go_goroutines 3\n")}, nil }
			return []fleet.Member{m}
		}, []string{
			"a error metrics: http://a/metrics is no metrics page of an engine: metrics page: no vLLM or SGLang metric on the page",
		}, "give metrics"},
		{"a clock ahead", func(t *testing.T, w *world) []fleet.Member {
			return []fleet.Member{w.healthy(t, "a", like{size: 16, ahead: 3 * time.Second})}
		}, []string{
			"a warning clock: its batches are from 3s in the future: its clock is ahead of ours",
		}, "NTP"},
		{"the server's clock", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual)
			w.pages[m.Metrics] = func(turn int) (fleet.Page, error) {
				p, err := page("True", 0)(turn)
				p.Date -= 60e9
				return p, err
			}
			return []fleet.Member{m}
		}, []string{"a warning clock: its clock is at least 58s behind ours"}, "NTP"},
		{"a short buffer", func(t *testing.T, w *world) []fleet.Member {
			m := w.healthy(t, "a", usual) // 10 batches a second
			m.Buffer, m.HWM = 64, 100_000
			return []fleet.Member{m}
		}, []string{
			"a warning buffers: buffer_steps of 64 holds 6.4s at 10 batches a second: a longer outage of the tap cannot be made good by a replay",
		}, "raise buffer_steps in --kv-events-config to 600 or more"},
		{"another after its restart", func(t *testing.T, w *world) []fleet.Member {
			return []fleet.Member{w.healthy(t, "a", like{size: 16, restarts: 8})}
		}, []string{
			"a warning last-epoch: it restarted, and its block size is 32 where it was 16",
		}, "as it was before"},
		{"nobody dials in", func(t *testing.T, w *world) []fleet.Member {
			return []fleet.Member{{Name: "a", Events: "tcp://*:5557", Bind: true, Rank: -1}, w.healthy(t, "b", usual)}
		}, []string{
			"a error connects: no engine has dialled tcp://*:5557 within 10s",
			"a warning metrics: no metrics page is known, so its load, capacity and restarts are not either",
		}, "name this machine"},
		{"a router listens there", func(t *testing.T, w *world) []fleet.Member {
			return []fleet.Member{{Name: "a", Events: "tcp://*:1", Bind: true, Rank: -1}, w.healthy(t, "b", usual)}
		}, []string{
			"a error connects: it cannot be listened at tcp://*:1: cannot listen: address already in use",
			"a warning metrics: no metrics page is known, so its load, capacity and restarts are not either",
		}, "only one can listen"},
		{"nobody", func(*testing.T, *world) []fleet.Member { return nil }, []string{"fleet error members: no replica was found"}, "--replica"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				members := tt.fleet(t, w)
				opt := w.options()
				opt.Tap.Listen = func(_, address string) (net.Listener, error) {
					if address == ":1" {
						return nil, errors.New("address already in use")
					}
					return newNobody(), nil
				}
				r := Run(t.Context(), members, opt)
				w.serving.Wait()
				if got, want := said(&r), strings.Join(tt.want, "\n"); got != want {
					t.Errorf("says\n%s\nwant\n%s", got, want)
				}
				for _, c := range slices.Concat(all(&r), r.Fleet) {
					if (c.Status == Error || c.Status == Warning) && c.Code != "address" && c.Fix == "" {
						t.Errorf("%s has no fix", c.Code)
					}
					if strings.ContainsAny(c.Text+c.Fix, "\n") {
						t.Errorf("%s is more than a sentence: %q %q", c.Code, c.Text, c.Fix)
					}
				}
				if fix := firstFix(&r); !strings.Contains(fix, tt.fix) {
					t.Errorf("the fix is %q, want %q in it", fix, tt.fix)
				}
				// No replay socket was asked twice, or for anything that is kept.
				for _, from := range w.asked {
					if from != math.MaxUint64 {
						t.Errorf("asked for a replay from %d", from)
					}
				}
				if len(w.asked) > len(members) {
					t.Errorf("%d replay requests to %d members", len(w.asked), len(members))
				}
			})
		})
	}
}

func all(r *Report) (out []Result) {
	for _, m := range r.Members {
		out = append(out, m.Checks...)
	}
	return out
}

func firstFix(r *Report) string {
	for _, c := range slices.Concat(all(r), r.Fleet) {
		if c.Status == Error || c.Status == Warning {
			return c.Fix
		}
	}
	return ""
}

// nobody is a listener that nobody dials.
type nobody struct{ closed chan struct{} }

func newNobody() *nobody { return &nobody{make(chan struct{})} }

func (n *nobody) Accept() (net.Conn, error) {
	<-n.closed
	return nil, net.ErrClosed
}

func (n *nobody) Close() error {
	select {
	case <-n.closed:
	default:
		close(n.closed)
	}
	return nil
}
func (*nobody) Addr() net.Addr { return &net.TCPAddr{Port: 5557} }

// TestTimes says how long it takes, and that never asks nothing.
func TestTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		opt := w.options()
		opt.Tap.Replay.Policy, _ = tap.ParsePolicy("never")
		a := w.healthy(t, "a", like{size: 16})
		r := Run(t.Context(), []fleet.Member{a}, opt)
		if r.Waited != 3*time.Second || said(&r) != "" || len(w.asked) != 0 {
			t.Errorf("after %s: %s, %d requests", r.Waited, said(&r), len(w.asked))
		}
		full, err := tap.ParsePolicy("full")
		opt.Tap.Replay.Policy = full
		if r = Run(t.Context(), []fleet.Member{a}, opt); err != nil || len(w.asked) != 1 || w.asked[0] != math.MaxUint64 {
			t.Errorf("full asked for %d", w.asked)
		}
		w.at["a:5557"] = publishes(silent)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if r = Run(ctx, []fleet.Member{a}, opt); r.Waited != 5*time.Second {
			t.Errorf("it ended after %s", r.Waited)
		}
		w.serving.Wait()
	})
}

func TestWrite(t *testing.T) {
	t.Parallel()
	r := Report{At: 5e9, Waited: 1500 * time.Millisecond, Members: []Member{{
		Replica: "a\x1b[2J", Events: "tcp://a:1", Found: "dns v", Kind: "engine", Checks: []Result{
			{"address", OK, "tcp://a:1", ""}, {"topic", Error, "it publishes as \"<x>\"", "leave it out"},
		},
	}}, Fleet: []Result{{"hash", Warning, "they differ", "start all alike"}}}
	var text, js strings.Builder
	if err := errors.Join(Text(&text, &r), JSON(&js, &r)); err != nil {
		t.Fatal(err)
	}
	want := `1 replica: 1 error, 1 warning; listened for 1.5s.

a?[2J · tcp://a:1 · dns v · 1 ok
  error    topic           it publishes as "<x>"
                           → leave it out
fleet
  warning  hash            they differ
                           → start all alike
`
	if text.String() != want {
		t.Errorf("wrote\n%s, want\n%s", text.String(), want)
	}
	var got struct {
		Schema           string
		At               float64
		Waited           float64 `json:"waited_seconds"`
		Errors, Warnings int
		Replicas         []struct {
			Replica, Kind string
			Checks        []struct{ Code, Status, Text, Fix string }
		}
		Fleet []struct{ Status string }
	}
	if err := json.Unmarshal([]byte(js.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Schema != "kvscope.doctor/1" || got.At != 5 || got.Waited != 1.5 || got.Errors != 1 || got.Warnings != 1 ||
		got.Replicas[0].Kind != "engine" || got.Replicas[0].Checks[1].Status != "error" || got.Fleet[0].Status != "warning" {
		t.Errorf("%+v", got)
	}
}
