package tap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvscope/kvscope/wire"
)

func TestQuietPublisherStays(t *testing.T) {
	tests := []struct {
		name    string
		m       manners
		want    State
		connect uint64
		pings   bool
	}{
		{"it answers PING", manners{minor: 1}, Up, 1, true},
		{"its ZMTP 3.0 has no PING", manners{minor: 0, deaf: true}, Up, 1, false},
		{"half open", manners{minor: 1, deaf: true}, Up, 236, true}, // an hour of 15.1 s each
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				up := w.publisher("a:5557", tt.m)
				tp := New(w.options())
				defer tp.Close()
				add(t, tp, engine)
				first := <-up
				go func() { // the others are of no interest
					for {
						select {
						case <-up:
						case <-t.Context().Done():
							return
						}
					}
				}()
				time.Sleep(time.Hour)
				st := statsOf(t, tp, "a")
				if st.State != tt.want || st.Connects < tt.connect*9/10 || st.Connects > tt.connect*11/10 {
					t.Errorf("after an hour of silence: %s, %d connections, %q", st.State, st.Connects, st.LastError)
				}
				if tt.m.deaf && tt.m.minor > 0 && st.LastError != "no sign of life for 15s, not even an answer to PING" {
					t.Errorf("says %q", st.LastError)
				}
				if n := len(first.frames()) - 1; tt.pings != (n > 0) {
					t.Errorf("%d times pinged", n)
				}
			})
		})
	}
}

func TestRefusalsInOneSentence(t *testing.T) {
	says := func(b []byte) func(net.Conn) {
		return func(conn net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			_, _ = conn.Write(b)
		}
	}
	hangsUp := func(b []byte) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = io.ReadFull(conn, make([]byte, 64))
			_, _ = conn.Write(b)
			_, _ = conn.Read(make([]byte, 1))
			conn.Close()
		}
	}
	old := greetingOf(manners{})
	old[10] = 2
	plain := greetingOf(manners{mechanism: "PLAIN"})
	tests := []struct {
		name string
		who  func(net.Conn)
		user string
		want string
	}{
		{"curve", says(greetingOf(manners{mechanism: "CURVE"})), "", "the publisher demands CURVE: " + noCurve},
		{"plain", says(plain), "", `the publisher's mechanism is "PLAIN", and ours is set to NULL`},
		{"null", says(greetingOf(manners{})), "u", `the publisher's mechanism is "NULL", and ours is set to PLAIN`},
		{"a wrong password", hangsUp(plain), "u", "the publisher hung up during the PLAIN handshake: wrong user or password?"},
		{"an error", says(append(greetingOf(manners{}), rawFrame(4, "\x05ERROR\x04away")...)), "", `the publisher refuses us: "away"`},
		{"libzmq's error", says(append(slices.Clone(plain), rawFrame(4, "^RROR\x03400")...)), "u", "the publisher rejects this user and password"},
		{"a web server", says([]byte("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 64))), "", "what listens there does not speak ZMQ: is this the right port?"},
		{"ZMTP 2", says(old), "", "the peer speaks ZMTP 2, older than any engine's"},
		{"the replay port", says(append(greetingOf(manners{}), ready("ROUTER")...)), "", "what listens there is not the counterpart of a SUB socket: are event and replay port swapped?"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.serve("a:5557", tt.who)
				tp := New(w.options())
				defer tp.Close()
				add(t, tp, Endpoint{Name: "a", Address: "tcp://a:5557", User: tt.user})
				time.Sleep(10 * time.Millisecond)
				if st := statsOf(t, tp, "a"); st.State != Refused || st.LastError != tt.want {
					t.Errorf("%s, %q", st.State, st.LastError)
				}
				got := collect(t, tp, time.Second, until(wire.Link, 2))
				if last := got[1]; last.Link != wire.LinkRefused || last.Err != tt.want {
					t.Errorf("told: %s", said(got))
				}
				time.Sleep(time.Minute)
				if st := statsOf(t, tp, "a"); st.Attempts < 10 {
					t.Errorf("%d attempts in a minute: a restarted publisher may be set up otherwise", st.Attempts)
				}
			})
		})
	}
}

func TestPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		hello := make(chan string, 8)
		w.serve("a:5557", func(conn net.Conn) {
			r := newRaw(conn)
			_, _ = io.ReadFull(r, make([]byte, 64))
			_, _ = conn.Write(greetingOf(manners{minor: 1, mechanism: "PLAIN"}))
			f, _ := readRaw(r)
			hello <- f.body
			_, _ = conn.Write(rawFrame(4, "\x07WELCOME"))
			_, _ = readRaw(r)
			_, _ = conn.Write(ready("PUB"))
			_, _ = readRaw(r) // the subscription
			_, _ = conn.Write(message("", string(be(4)), "x"))
			_ = conn.Close()
		})
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, Endpoint{Name: "a", Address: "tcp://a:5557", User: "me", Password: "secret"})
		collect(t, tp, 10*time.Second, until(wire.Frames, 2))
		for range 2 { // on the second connection too
			if h := <-hello; h != "\x05HELLO\x02me\x06secret" {
				t.Errorf("hello: %q", h)
			}
		}
	})
}

func TestSubscribesOnEachConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		up := w.publisher("a:5557", manners{minor: 1})
		tp := New(w.options())
		defer tp.Close()
		long := strings.Repeat("k", 300)
		add(t, tp, Endpoint{Name: "a", Address: "tcp://a:5557", Topics: []string{"kv@a", long}})
		for range 3 {
			p := <-up
			synctest.Wait()
			if got := p.frames(); !slices.Equal(got, []frame{{0, "\x01kv@a"}, {2, "\x01" + long}}) {
				t.Errorf("sent %q", got)
			}
			p.conn.Close()
		}
	})
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var at []time.Duration
		began := time.Now()
		opt := w.options()
		opt.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
			if network != "tcp" || address != "engine.example:5557" {
				t.Errorf("dials %s %s: the name is to be resolved each time", network, address)
			}
			at = append(at, time.Since(began).Round(time.Millisecond))
			return nil, errors.New("no such host")
		}
		tp := New(opt)
		add(t, tp, Endpoint{Name: "a", Address: "tcp://engine.example:5557"})
		time.Sleep(20 * time.Second)
		tp.Close()
		want := "[0s 100ms 300ms 700ms 1.5s 3.1s 6.3s 11.3s 16.3s]"
		if got := fmt.Sprint(at); got != want {
			t.Errorf("attempts at %s, want %s", got, want)
		}
	})
	for _, r := range []float64{0, 0.5, 0.999} {
		b := backoff{min: 100 * time.Millisecond, max: 5 * time.Second, rand: func() float64 { return r }}
		for range 20 {
			if d := b.next(); d < b.wait/2 || d > b.wait {
				t.Errorf("jitter %v: %s of %s", r, d, b.wait)
			}
		}
	}
}

// TestHangUpAfterHandshake is a peer that lets everybody in and hangs up: it is
// not dialled in a loop without pause.
func TestHangUpAfterHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.serve("a:5557", func(conn net.Conn) {
			if _, err := greet(conn, manners{minor: 1}); err == nil {
				conn.Close()
			}
		})
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, engine)
		time.Sleep(time.Minute)
		if n := w.dialled("a:5557"); n > 20 {
			t.Errorf("%d connections in a minute", n)
		}
	})
}

func TestDialTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := Options{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		tp := New(opt)
		defer tp.Close()
		add(t, tp, engine)
		time.Sleep(3010 * time.Millisecond)
		if st := statsOf(t, tp, "a"); st.LastError != "no answer to the attempt to connect to a:5557 in 3s" {
			t.Errorf("%s, %q", st.State, st.LastError)
		}
	})
}

func TestHeartbeatsThatAreNone(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"no time to live", "\x04PING\x00", "a PING of 1 bytes"},
		{"a long context", "\x04PING\x00\x00" + strings.Repeat("x", 17), "a PING of 19 bytes"},
		{"no name", "", "ends within its name"},
		{"a short name", "\x09PING", "ends within its name"},
		{"an error", "\x05ERROR\x04gone", `the peer says ERROR "gone"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				up := w.publisher("a:5557", manners{minor: 1})
				tp := New(w.options())
				defer tp.Close()
				add(t, tp, engine)
				(<-up).write(rawFrame(4, tt.body))
				time.Sleep(10 * time.Millisecond)
				if st := statsOf(t, tp, "a"); !strings.Contains(st.LastError, tt.want) {
					t.Errorf("%q", st.LastError)
				}
			})
		})
	}
}

func TestRTTAndStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		up := w.publisher("a:5557", manners{minor: 1, deaf: true})
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, engine)
		p := <-up
		p.publish("kv", 0, "12345")
		p.publish("kv", 1, "12345")
		f, err := p.await(func(f frame) bool { return f.flags == 4 })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Millisecond)
		p.write(rawFrame(4, "\x04PONG"+f.body[7:]))
		p.write(rawFrame(4, "\x04PONGelse")) // not ours
		p.write(rawFrame(4, "\x07UNKNOWN"))
		synctest.Wait()
		st := statsOf(t, tp, "a")
		if st.State != Up || st.RTT != 3*time.Millisecond || st.Messages != 2 || st.Bytes != 2*(2+8+5) || st.Queued != 4 {
			t.Errorf("%+v", st)
		}
	})
}

// TestSendsNothingElse keeps every byte that a long life of a link sends: with
// it, nothing but subscriptions and heartbeats reaches the event socket.
func TestSendsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		up := w.publisher("a:5557", manners{minor: 1})
		w.serve("a:5558", func(conn net.Conn) { t.Error("the replay socket was dialled"); conn.Close() })
		opt := w.options()
		opt.Replay.Policy, _ = ParsePolicy("never")
		tp := New(opt)
		defer tp.Close()
		ep := engine
		ep.Replay = "tcp://a:5558"
		add(t, tp, ep)
		var peers []*peer
		for i := range 3 {
			p := <-up
			peers = append(peers, p)
			p.publish("", uint64(10*i), "x")
			p.publish("", uint64(10*i+5), "x") // a gap
			p.write(message("neither", "this"))
			p.write(rawFrame(4, "\x04PING\x00\x00ctx"))
			tp.Want(Want{Replica: "a", From: 1})
			time.Sleep(time.Minute)
			p.conn.Close()
		}
		for _, p := range peers {
			for i, f := range p.frames() {
				switch {
				case i == 0 && f == frame{0, "\x01"}:
				case f.flags == 4 && len(f.body) == 15 && strings.HasPrefix(f.body, "\x04PING\x00\x00"):
				case f == frame{4, "\x04PONGctx"}:
				default:
					t.Errorf("sent %+v", f)
				}
			}
			if n := len(p.frames()); n < 12 || n > 15 {
				t.Errorf("%d frames in a minute", n)
			}
		}
	})
}

func TestMembersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		tp := New(w.options())
		a, b := w.publisher("a:5557", manners{minor: 1}), w.publisher("b:5557", manners{minor: 1})
		add(t, tp, engine)
		if err := tp.Add(engine); err == nil || err.Error() != "there is a replica a already" {
			t.Errorf("again: %v", err)
		}
		pa := <-a
		synctest.Wait()
		add(t, tp, Endpoint{Name: "b", Address: "tcp://b:5557"})
		pb := <-b
		synctest.Wait()
		pa.publish("", 0, "x")
		synctest.Wait()
		if !tp.Remove("a") || tp.Remove("a") {
			t.Error("Remove")
		}
		<-pa.ended
		pb.publish("", 0, "x")
		synctest.Wait()
		if n := len(tp.Stats()); n != 1 {
			t.Errorf("%d links", n)
		}
		tp.Want(Want{Replica: "a", From: 3})
		add(t, tp, engine) // back again
		(<-a).publish("", 1, "x")
		synctest.Wait()
		tp.Close()
		tp.Close()
		if err := tp.Add(engine); !errors.Is(err, ErrClosed) {
			t.Errorf("after closing: %v", err)
		}
		var got []wire.Record
		for {
			rec, err := tp.Next(t.Context())
			if err != nil {
				if err != io.EOF {
					t.Error(err)
				}
				break
			}
			got = append(got, rec)
		}
		want := "a connecting ; a up ; b connecting ; b up ; a #0; a gone removed; b #0; " +
			`end "no replay socket of this replica is known"; a connecting ; a up ; a #1; `
		if s := said(got); s != want {
			t.Errorf("got %s\nwant %s", s, want)
		}
	})
}

func TestEndpoints(t *testing.T) {
	tests := []struct {
		ep   Endpoint
		want string
	}{
		{Endpoint{Name: "a", Address: "tcp://10.0.0.1:5557"}, ""},
		{Endpoint{Name: "a", Address: "tcp://[::1]:5557", Replay: "tcp://[::1]:5558"}, ""},
		{Endpoint{Name: "a", Address: "ipc:///tmp/x.sock", Topics: []string{"kv@"}}, ""},
		{Endpoint{Name: "a", Address: "tcp://*:5557", Bind: true}, ""},
		{Endpoint{Name: "a", Address: "tcp://0.0.0.0:0", Bind: true}, ""},
		{Endpoint{Name: "a", Address: "tcp://a:1", Mechanism: "plain", User: "u"}, ""},
		{Endpoint{Address: "tcp://a:1"}, "the endpoint tcp://a:1 has no name"},
		{Endpoint{Name: "a", Address: "a:1"}, `a: "a:1" is no address: want tcp://host:port or ipc://path`},
		{Endpoint{Name: "a", Address: "ipc://"}, `a: "ipc://" is no address: want tcp://host:port or ipc://path`},
		{Endpoint{Name: "a", Address: "tcp://a"}, `a: "tcp://a": want tcp://host:port`},
		{Endpoint{Name: "a", Address: "tcp://a:x"}, `a: "tcp://a:x": "x" is no port number`},
		{Endpoint{Name: "a", Address: "tcp://a:65536"}, `a: "tcp://a:65536": port 65536 is above 65535`},
		{Endpoint{Name: "a", Address: "tcp://a:0"}, `a: "tcp://a:0": port 0 cannot be connected to`},
		{Endpoint{Name: "a", Address: "tcp://*:5557"}, `a: "tcp://*:5557": an address to connect to needs the name of a host`},
		{Endpoint{Name: "a", Address: "inproc://x"}, "a: inproc addresses reach only within the engine's own process"},
		{Endpoint{Name: "a", Address: "epgm://x"}, `a: "epgm://x": epgm is not supported, only tcp and ipc`},
		{Endpoint{Name: "a", Address: "tcp://a:1", Replay: "tcp://*:2"}, `a: replay: "tcp://*:2": an address to connect to needs the name of a host`},
		{Endpoint{Name: "a", Address: "tcp://a:1", Topics: []string{strings.Repeat("x", 1025)}}, "a: a topic of 1025 bytes, and the limit is 1024"},
		{Endpoint{Name: "a", Address: "tcp://a:1", Mechanism: "CURVE"}, "a: " + noCurve},
		{Endpoint{Name: "a", Address: "tcp://a:1", Mechanism: "GSSAPI"}, `a: there is no mechanism "GSSAPI", only NULL and PLAIN`},
		{Endpoint{Name: "a", Address: "tcp://a:1", Mechanism: "NULL", User: "u"}, "a: a user or password is of no use with NULL; say PLAIN"},
		{Endpoint{Name: "a", Address: "tcp://a:1", Mechanism: "PLAIN"}, "a: PLAIN needs a user"},
		{Endpoint{Name: "a", Address: "tcp://a:1", User: strings.Repeat("u", 256)}, "a: user and password can have at most 255 bytes each"},
		{Endpoint{Name: "a", Address: "tcp://*:1", Bind: true, User: "u"}, "a: PLAIN works only when connecting, and this endpoint is bound"},
	}
	for _, tt := range tests {
		got := ""
		if err := tt.ep.check(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.ep, got, tt.want)
		}
	}
	var b bytes.Buffer
	fmt.Fprint(&b, Endpoint{Name: "a", Address: "tcp://a:1", User: "u", Password: "secret"})
	if b.String() != "a tcp://a:1" {
		t.Errorf("prints %s", b.String())
	}
}

// TestProbesMechanism is a peer as libzmq: it hangs up on a whole greeting with
// another mechanism before it has named its own. How much it has said by then
// depends on who was quicker.
func TestProbesMechanism(t *testing.T) {
	for name, early := range map[string]int{"a signature": 10, "nothing": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.serve("a:5557", func(conn net.Conn) {
					defer conn.Close()
					hello := greetingOf(manners{minor: 1, mechanism: "CURVE"})
					said := make(chan struct{})
					go func() {
						defer close(said)
						if early > 0 {
							_, _ = conn.Write(hello[:early])
						}
					}()
					b := make([]byte, 64)
					n, _ := conn.Read(b)
					<-said
					if n > 12 {
						return
					}
					_, _ = conn.Write(hello[early:])
					if n, _ = conn.Read(b); n > 0 && string(b[:4]) != "NULL" {
						t.Errorf("sent %q", b[:n])
					}
				})
				tp := New(w.options())
				defer tp.Close()
				add(t, tp, engine)
				time.Sleep(20 * time.Millisecond)
				if st := statsOf(t, tp, "a"); st.State != Refused || !strings.HasPrefix(st.LastError, "the publisher demands CURVE") || w.dialled("a:5557") != 2 {
					t.Errorf("%s, %q after %d connections", st.State, st.LastError, w.dialled("a:5557"))
				}
			})
		})
	}
}

// TestHangsUpAtOnce is a peer that takes connections and says nothing, such as
// a proxy without anybody behind it.
func TestHangsUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.serve("a:5557", func(conn net.Conn) { conn.Close() })
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, engine)
		time.Sleep(20 * time.Millisecond)
		if st := statsOf(t, tp, "a"); st.State != BackingOff || st.LastError != "the peer hung up before its greeting was whole" {
			t.Errorf("%s, %q", st.State, st.LastError)
		}
		time.Sleep(time.Minute)
		if n := w.dialled("a:5557"); n > 40 {
			t.Errorf("%d connections in a minute", n)
		}
	})
}
