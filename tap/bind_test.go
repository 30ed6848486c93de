package tap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// hall is a listener of pipes.
type hall struct {
	come chan net.Conn
	gone chan struct{}
	once sync.Once
}

func newHall() *hall { return &hall{come: make(chan net.Conn), gone: make(chan struct{})} }

func (h *hall) Accept() (net.Conn, error) {
	select {
	case c := <-h.come:
		return c, nil
	case <-h.gone:
		return nil, net.ErrClosed
	}
}
func (h *hall) Close() error   { h.once.Do(func() { close(h.gone) }); return nil }
func (h *hall) Addr() net.Addr { return &net.TCPAddr{Port: 5557} }

// enter dials in as a publisher.
func (h *hall) enter(t *testing.T) *peer {
	t.Helper()
	ours, theirs := net.Pipe()
	h.come <- ours
	p, err := greet(theirs, manners{minor: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.await(isSubscribe); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		tp := New(Options{MaxPublishers: 3, Listen: func(network, address string) (net.Listener, error) {
			if network != "tcp" || address != ":5557" {
				t.Errorf("listens on %s %s", network, address)
			}
			return h, nil
		}})
		defer tp.Close()
		add(t, tp, Endpoint{Name: "in", Address: "tcp://*:5557", Bind: true, Topics: []string{"kv@"}})
		a, b := h.enter(t), h.enter(t)
		for seq := range uint64(2) {
			a.publish("kv@a", seq, "x")
			synctest.Wait()
			b.publish("kv@b", seq, "x")
			synctest.Wait()
		}
		silent, _ := net.Pipe() // holds up nobody
		h.come <- silent
		synctest.Wait()
		full, theirs := net.Pipe()
		h.come <- full
		if _, err := theirs.Read(make([]byte, 1)); err == nil {
			t.Error("a fourth publisher was let in")
		}
		st := statsOf(t, tp, "in")
		if st.State != Listening || len(st.Publishers) != 3 || st.Bound != ":5557" || st.LastError != "3 publishers are connected, which is the limit" {
			t.Errorf("%+v", st)
		}
		a.conn.Close()
		synctest.Wait()
		a = h.enter(t)
		a.publish("kv@a", 0, "y")
		synctest.Wait()
		tp.Want(Want{Replica: "in/kv@a", From: 0})
		got := said(collect(t, tp, time.Second, until(wire.ReplayEnd, 1)))
		want := "in/kv@a up ; in/kv@a #0; in/kv@b up ; in/kv@b #0; in/kv@a #1; in/kv@b #1; " +
			"in/kv@a down the peer closed the connection; in/kv@a up ; in/kv@a #0; " +
			`end "publishers that dial in do not say where their replay socket is"; `
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
}

// TestBindSharedTopic: two publishers that nobody can tell apart are a fact,
// and the name is down only when both are gone.
func TestBindSharedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		tp := New(Options{Listen: func(string, string) (net.Listener, error) { return h, nil }})
		defer tp.Close()
		add(t, tp, Endpoint{Name: "in", Address: "tcp://*:5557", Bind: true})
		a, b := h.enter(t), h.enter(t)
		a.publish("", 0, "x")
		synctest.Wait()
		b.publish("", 0, "x")
		synctest.Wait()
		a.conn.Close()
		synctest.Wait()
		b.publish("", 1, "x")
		b.publish(strings.Repeat("t", 2000), 1, "x")
		synctest.Wait()
		got := said(collect(t, tp, time.Second, func(rec wire.Record) bool { return rec.Link == wire.LinkDown }))
		want := "in up ; in #0; 2 connections to tcp://*:5557 publish as in: unless their data-parallel ranks differ, " +
			"give each publisher a topic of its own; in #0; in #1; in down its topic has 2000 bytes, and the limit is 1024; "
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
}

func TestBindTooManyTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		tp := New(Options{Listen: func(string, string) (net.Listener, error) { return h, nil }})
		defer tp.Close()
		add(t, tp, Endpoint{Name: "in", Address: "tcp://*:5557", Bind: true})
		p := h.enter(t)
		for i := range maxNamesEach + 1 {
			p.publish(fmt.Sprint(i), 0, "x")
		}
		<-p.ended
		synctest.Wait()
		if st := statsOf(t, tp, "in"); st.Messages != maxNamesEach || !strings.HasSuffix(st.LastError, "more topics than can be told apart") {
			t.Errorf("%d messages, %q", st.Messages, st.LastError)
		}
	})
}

func TestBindFailureIsToldAndPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		busy.Store(true)
		tp := New(Options{Listen: func(string, string) (net.Listener, error) {
			if busy.Load() {
				return nil, errors.New("address already in use")
			}
			return newHall(), nil
		}})
		defer tp.Close()
		add(t, tp, Endpoint{Name: "in", Address: "tcp://*:5557", Bind: true})
		time.Sleep(time.Minute)
		busy.Store(false)
		time.Sleep(5 * time.Second)
		got := said(collect(t, tp, time.Second, func(rec wire.Record) bool { return rec.Link == wire.LinkUp }))
		if got != "in down cannot listen: address already in use; in up ; " {
			t.Errorf("got %s", got)
		}
	})
}

// TestBindIPC: a socket file that was left behind is replaced, one that
// somebody listens on is not.
func TestBindIPC(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kv.sock")
	old, err := net.Listen("unix", path)
	if err != nil {
		t.Skip("no unix sockets here: ", err)
	}
	tp := New(Options{BackoffMax: 50 * time.Millisecond, HandshakeTimeout: soon})
	defer tp.Close()
	add(t, tp, Endpoint{Name: "in", Address: "ipc://" + path, Bind: true})
	settle := func(want State) {
		t.Helper()
		await(t, tp, "in", want.String(), func(st Stats) bool { return st.State == want })
	}
	settle(BackingOff)
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	old.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	settle(Listening)
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := greet(conn, manners{minor: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.publish("kv", 4, "x")
	collect(t, tp, soon, until(wire.Frames, 1))
	tp.Close()
	<-p.ended
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket file is still there")
	}
}
