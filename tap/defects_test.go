package tap

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kvscope/kvscope/wire"
)

// The tests of this file are the defects that were reproduced in the library's
// own sockets, one each, in the order of the list.

var engine = Endpoint{Name: "a", Address: "tcp://a:5557"}

func TestDefect1NoReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		up := w.publisher("a:5557", manners{minor: 1})
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, engine)
		p := <-up
		p.publish("", 7, "x")
		collect(t, tp, time.Second, until(wire.Frames, 1))
		w.serve("a:5557", nil)
		p.conn.Close()
		time.Sleep(500 * time.Millisecond)
		up = w.publisher("a:5557", manners{minor: 1})
		(<-up).publish("", 0, "y")
		got := said(collect(t, tp, 2*time.Second, until(wire.Frames, 1)))
		want := "a down the peer closed the connection; a down connection refused; a up ; a #0; "
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
}

func TestDefect2SilentGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, engine)
		time.Sleep(24 * time.Hour)
		if st := statsOf(t, tp, "a"); st.State != BackingOff || st.LastError != "connection refused" || st.Attempts < 17000 {
			t.Errorf("after a day: %s, %q, %d attempts", st.State, st.LastError, st.Attempts)
		}
		up := w.publisher("a:5557", manners{minor: 1})
		began := time.Now()
		(<-up).publish("", 3, "x")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("back after %s", took)
		}
		// A day of outage is two records, not one for every attempt.
		got := said(collect(t, tp, time.Second, until(wire.Frames, 1)))
		if want := "a connecting ; a down connection refused; a up ; a #3; "; got != want {
			t.Errorf("got %s", got)
		}
	})
}

func TestDefect3TwoEndpointsOneRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		tp := New(w.options())
		defer tp.Close()
		up := map[wire.Replica]<-chan *peer{}
		for _, name := range []wire.Replica{"a", "b"} {
			up[name] = w.publisher(string(name)+":5557", manners{minor: 1})
			add(t, tp, Endpoint{Name: name, Address: "tcp://" + string(name) + ":5557"})
		}
		a, b := <-up["a"], <-up["b"]
		a.publish("", 0, "x")
		a.conn.Close()
		a = <-up["a"]
		for seq := range uint64(50) {
			b.publish("", seq, "x")
			a.publish("", seq, "x")
		}
		got := collect(t, tp, time.Second, until(wire.Frames, 101))
		want := make([]int64, 50)
		for i := range want {
			want[i] = int64(i)
		}
		if g := seqs(got, "b"); !slices.Equal(g, want) {
			t.Errorf("the one that stayed: %v", g)
		}
		if g := seqs(got, "a"); !slices.Equal(g, append([]int64{0}, want...)) {
			t.Errorf("the one that restarted: %v", g)
		}
		if a, b := w.dialled("a:5557"), w.dialled("b:5557"); a != 2 || b != 1 {
			t.Errorf("%d and %d connections", a, b)
		}
	})
}

func TestDefect4Heartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		up := w.publisher("a:5557", manners{minor: 1})
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, engine)
		p := <-up
		for i := range 20 {
			p.write(rawFrame(4, "\x04PING\x00\x0a"+string(rune('a'+i))))
			// libzmq can send one between two frames of a message.
			p.write(slices.Concat(rawFrame(1, "t"), rawFrame(4, "\x04PING\x00\x0amid"), rawFrame(1, string(be(uint64(i)))), rawFrame(0, "x")))
			if _, err := p.await(func(f frame) bool { return f.flags == 4 && f.body == "\x04PONG"+string(rune('a'+i)) }); err != nil {
				t.Fatal(err)
			}
		}
		got := collect(t, tp, time.Second, until(wire.Frames, 20))
		if g := seqs(got, "a"); len(g) != 20 || slices.Contains(g, -1) {
			t.Errorf("delivered: %v", g)
		}
		n := 0
		for _, f := range p.frames() {
			if f.flags == 4 && f.body == "\x04PONGmid" {
				n++
			}
		}
		if n != 20 {
			t.Errorf("%d of 20 heartbeats within a message answered", n)
		}
	})
}

func TestDefect5SilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.serve("a:5557", func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, engine)
		time.Sleep(500 * time.Millisecond)
		if st := statsOf(t, tp, "a"); st.State != Handshaking {
			t.Errorf("after 0.5 s: %s", st.State)
		}
		time.Sleep(550 * time.Millisecond)
		st := statsOf(t, tp, "a")
		if st.State != BackingOff || !strings.Contains(st.LastError, "said nothing in time") {
			t.Errorf("after 1.05 s: %s, %q", st.State, st.LastError)
		}
		time.Sleep(time.Minute)
		if n := w.dialled("a:5557"); n < 9 || n > 16 {
			t.Errorf("%d attempts in a minute", n)
		}
		up := w.publisher("a:5557", manners{minor: 1})
		(<-up).publish("", 0, "x")
		collect(t, tp, time.Second, until(wire.Frames, 1))
	})
}

// TestDefect5CloseWhileSilent closes at each point at which the library hung.
func TestDefect5CloseWhileSilent(t *testing.T) {
	partial := func(n int) func(net.Conn) {
		return func(conn net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			_, _ = conn.Write(append(greetingOf(manners{}), ready("PUB")...)[:n])
		}
	}
	for name, who := range map[string]func(net.Conn){
		"silent": partial(0), "half a greeting": partial(30), "no handshake": partial(64), "half a handshake": partial(80),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.serve("a:5557", who)
				tp := New(w.options())
				add(t, tp, engine)
				time.Sleep(200 * time.Millisecond)
				began := time.Now()
				tp.Close()
				if took := time.Since(began); took > 0 {
					t.Errorf("closing took %s", took)
				}
			})
		})
	}
}

func TestDefect6Sizes(t *testing.T) {
	header := func(flags byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{flags | 2}, n) }
	up := append(greetingOf(manners{minor: 1}), ready("PUB")...)
	tests := []struct {
		name string
		send []byte
		want string
	}{
		{"2^62 after the handshake", append(slices.Clone(up), header(0, 1<<62)...), "4611686018427387904 bytes"},
		{"2^64-1 after the handshake", append(slices.Clone(up), header(0, 1<<64-1)...), "malformed frame"},
		{"65 MB after the handshake", append(slices.Clone(up), header(1, 65<<20)...), "the limit is 67108864"},
		{"a command of 1 GB", append(slices.Clone(up), header(4, 1<<30)...), "a command of 1073741824 bytes"},
		{"2^62 in the handshake", append(greetingOf(manners{}), header(4, 1<<62)...), "claims a frame of 4611686018427387904"},
		{"1 MB in the handshake", append(greetingOf(manners{}), header(4, 1<<20)...), "claims a frame of 1048576"},
		{"frames without end in the handshake", append(greetingOf(manners{}), make([]byte, 0)...), "more than 65536 bytes of handshake"},
		{"metadata past its end", append(greetingOf(manners{}), rawFrame(4, "\x05READY\x03ab")...), "not ZMTP"},
		{"metadata that ends early", append(greetingOf(manners{}), rawFrame(4, "\x05READY\x20ab")...), "not ZMTP"},
		{"a socket type that is none", append(greetingOf(manners{}), ready("NONE")...), "not ZMTP"},
		{"reserved flags", append(slices.Clone(up), 0x80, 0), "flags 0x80"},
		{"too many frames", append(slices.Clone(up), slices.Repeat([]byte{1, 0}, 17)...), "more than 16 frames"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.serve("a:5557", func(conn net.Conn) {
					go func() { _, _ = io.Copy(io.Discard, conn) }()
					_, err := conn.Write(tt.send)
					for strings.Contains(tt.name, "without end") && err == nil {
						_, err = conn.Write(slices.Repeat([]byte{1, 0}, 1024))
					}
				})
				tp := New(w.options())
				defer tp.Close()
				add(t, tp, engine)
				time.Sleep(20 * time.Millisecond)
				if st := statsOf(t, tp, "a"); !strings.Contains(st.LastError, tt.want) || st.State != BackingOff {
					t.Errorf("%s, %q, want %q", st.State, st.LastError, tt.want)
				}
			})
		})
	}
}

// TestDefect6Lie claims 63 MB, within the limit, and sends nothing of it.
func TestDefect6Lie(t *testing.T) {
	var before, after runtime.MemStats
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		up := w.publisher("a:5557", manners{minor: 1})
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, engine)
		p := <-up
		runtime.ReadMemStats(&before)
		for range 10 {
			p.write(binary.BigEndian.AppendUint64([]byte{3}, 63<<20))
			p.write([]byte("little"))
			synctest.Wait()
			p.conn.Close()
			p = <-up
		}
		runtime.ReadMemStats(&after)
	})
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
		t.Errorf("10 lies of 63 MB each took %d MB", n>>20)
	}
}

func TestDefect7CloseWithFullQueue(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for range 10 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var flood sync.WaitGroup
		flood.Go(func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				p, err := greet(conn, manners{minor: 1})
				for seq := uint64(0); err == nil; seq++ {
					_, err = conn.Write(message("", string(be(seq)), strings.Repeat("x", 2000)))
				}
				conn.Close()
				if p != nil {
					<-p.ended
				}
			}
		})
		tp := New(Options{LaneRecords: 100, Patience: time.Hour})
		add(t, tp, Endpoint{Name: "a", Address: "tcp://" + ln.Addr().String()})
		for end := time.Now().Add(20 * time.Second); statsOf(t, tp, "a").Queued < 100; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%+v", statsOf(t, tp, "a"))
			}
		}
		if st := statsOf(t, tp, "a"); st.LastError != "" {
			t.Logf("a first attempt failed: %s", st.LastError)
		}
		tp.Close()
		ln.Close()
		flood.Wait()
		n := 0
		for _, err = tp.Next(t.Context()); err == nil; _, err = tp.Next(t.Context()) {
			n++
		}
		if err != io.EOF || n < 100 {
			t.Errorf("%d records after closing, then %v", n, err)
		}
	}
}

func TestDefect8StateIsVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.serve("a:5557", func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		opt := w.options()
		opt.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			select { // a host that swallows packets for a second
			case <-time.After(time.Second):
				return w.dial(ctx, network, address)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		tp := New(opt)
		defer tp.Close()
		began := time.Now()
		add(t, tp, engine) // does not wait
		if took := time.Since(began); took > 0 {
			t.Errorf("Add took %s", took)
		}
		var up <-chan *peer
		for _, step := range []struct {
			after time.Duration
			want  State
			do    func()
		}{
			{500 * time.Millisecond, Connecting, nil},
			{time.Second, Handshaking, nil},
			{550 * time.Millisecond, BackingOff, func() { up = w.publisher("a:5557", manners{minor: 1}) }},
			{2 * time.Second, Up, func() { (<-up).conn.Close() }},
			{10 * time.Millisecond, BackingOff, func() { w.publisher("a:5557", manners{mechanism: "CURVE"}) }},
			{1500 * time.Millisecond, Refused, nil},
		} {
			time.Sleep(step.after)
			if st := statsOf(t, tp, "a"); st.State != step.want {
				t.Fatalf("%s (%s), want %s", st.State, st.LastError, step.want)
			}
			if step.do != nil {
				step.do()
			}
		}
		if st := statsOf(t, tp, "a"); !strings.Contains(st.LastError, "CURVE") || st.Connects != 1 {
			t.Errorf("%+v", st)
		}
	})
}
