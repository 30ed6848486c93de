package tap

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// TestLargeMessagesShareABudget: those who dial in cannot make us hold a large
// message of each of them at the same time.
func TestLargeMessagesShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		tp := New(Options{QueueBytes: 4 << 20, LaneBytes: 16 << 20, Listen: func(string, string) (net.Listener, error) { return h, nil }})
		defer tp.Close()
		add(t, tp, Endpoint{Name: "in", Address: "tcp://*:5557", Bind: true})
		m := message("", string(be(0)), strings.Repeat("x", 6<<20))
		a, b := h.enter(t), h.enter(t)
		a.write(m[:4<<20])
		b.write(m[:1<<19]) // what is small needs no room
		synctest.Wait()
		if used := tp.opt.large.used; used < 3<<20 || used > 8<<20 {
			t.Errorf("%d bytes are held for 4 MB on their way", used)
		}
		go b.write(m[1<<19:])
		<-b.ended
		synctest.Wait()
		if said := statsOf(t, tp, "in").LastError; !strings.Contains(said, "other large messages are on their way, of 4194304 bytes together at the most") {
			t.Errorf("said %q", said)
		}
		a.write(m[4<<20:])
		got := collect(t, tp, time.Second, until(wire.Frames, 1))
		if n := len(got[len(got)-1].Frames[2]); n != 6<<20 {
			t.Errorf("got %d bytes", n)
		}
		for range 2 { // there is room again, and it is given back
			p := h.enter(t)
			p.write(m)
			collect(t, tp, time.Second, until(wire.Frames, 1))
			p.conn.Close()
		}
		a.write(message("", string(be(1)), "x"))
		collect(t, tp, time.Second, until(wire.Frames, 1))
		synctest.Wait()
		if used := tp.opt.large.used; used != 0 {
			t.Errorf("%d bytes are still held", used)
		}
	})
}

// TestSmallFramesAddUp: a message of many frames is as large as all of them,
// and commands are no part of it.
func TestSmallFramesAddUp(t *testing.T) {
	var in strings.Builder
	for range 2000 {
		in.Write(rawFrame(4, "\x04PING\x00\x00"+strings.Repeat("p", 1000)))
	}
	in.Write(message(strings.Repeat("x", 200<<10), strings.Repeat("y", 200<<10)))
	frame := strings.Repeat("x", 200<<10)
	in.Write(message(frame, frame, frame, frame, frame, frame, frame, frame))
	budget := &largeBudget{most: 1 << 19}
	if !budget.take(0, 1) { // somebody else
		t.Fatal("no room for one byte")
	}
	f := newFrames(strings.NewReader(in.String()), func([]byte) error { return nil })
	f.maxMessage, f.maxFrames, f.held.of = 64<<20, 16, budget
	if _, err := f.message(); err != nil || f.held.taken != 0 {
		t.Errorf("a message of 400 KB after 2 MB of commands: %v, %d taken", err, f.held.taken)
	}
	if _, err := f.message(); err == nil || !strings.HasPrefix(err.Error(), "no room for a message of 16") {
		t.Errorf("a message of 1.6 MB in frames of 200 KB: %v", err)
	}
	f.held.release()
	if budget.used != 1 {
		t.Errorf("%d bytes are held", budget.used)
	}
}
