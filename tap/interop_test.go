package tap

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// The tests of this file hold the tap against libzmq itself, in a child process
// with pyzmq, on loopback and ports that the system chooses. KVSCOPE_PYTHON
// names the Python to use.

var python = sync.OnceValues(func() (string, error) {
	name := or2(os.Getenv("KVSCOPE_PYTHON"), "python3")
	if out, err := exec.Command(name, "-c", "import zmq").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s has no pyzmq, so nothing is held against libzmq: %w %s", name, err, lastLine(out))
	}
	return name, nil
})

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// libzmq is a publisher in a process of its own.
type libzmq struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.WriteCloser
	lines   *bufio.Scanner
	address string
	replay  string
	stop    func()
}

func startPublisher(t *testing.T, args ...string) *libzmq {
	t.Helper()
	name, err := python()
	if err != nil {
		t.Skip(err)
	}
	c := &libzmq{t: t, cmd: exec.Command(name, append([]string{filepath.Join("testdata", "pub.py")}, args...)...)}
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Nothing here may wait for ever, whatever the child does.
	limit := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	c.stop = sync.OnceFunc(func() {
		c.in.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		limit.Stop()
	})
	t.Cleanup(c.stop)
	c.lines = bufio.NewScanner(out)
	if _, err := fmt.Sscanf(c.line(), "ready %s %s", &c.address, &c.replay); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *libzmq) line() string {
	c.t.Helper()
	if !c.lines.Scan() {
		c.t.Fatal("the publisher ended: ", c.lines.Err())
	}
	return c.lines.Text()
}

// publish sends n batches, and waits until they are sent.
func (c *libzmq) publish(n int) {
	c.t.Helper()
	c.say("publish", n)
	c.line()
}

// subscribed waits until libzmq has installed that many subscriptions in all.
func (c *libzmq) subscribed(n int) {
	c.t.Helper()
	c.say("subscribed", n)
	c.line()
}

func (c *libzmq) say(word string, n int) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, "%s %d\n", word, n); err != nil {
		c.t.Fatal(err)
	}
}

// soon bounds what takes milliseconds, on a machine with other things to do.
const soon = 30 * time.Second

// await waits until a link is as wanted.
func await(t *testing.T, tp *Tap, name wire.Replica, what string, ok func(Stats) bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(statsOf(t, tp, name)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never %s: %+v", what, statsOf(t, tp, name))
		}
	}
}

// freeAddress gives one to bind and, after a while, to bind again: its port is
// below those that systems give out by themselves, so nobody is given it
// meanwhile.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(10_000))
		if ln, err := net.Listen("tcp", address); err == nil {
			ln.Close()
			return "tcp://" + address
		}
	}
	t.Fatal("no free port")
	return ""
}

func span(from, to int64) []int64 {
	var out []int64
	for ; from <= to; from++ {
		out = append(out, from)
	}
	return out
}

func newTap(t *testing.T, opt Options) *Tap {
	t.Helper()
	tp := New(opt)
	t.Cleanup(func() { _ = tp.Close() })
	return tp
}

// TestInteropLongOutage stands first because it waits the longest.
func TestInteropLongOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("10 s of outage")
	}
	t.Parallel()
	restart(t, 10*time.Second)
}

func TestInteropRestart(t *testing.T) {
	t.Parallel()
	restart(t, 500*time.Millisecond)
}

// restart has two publishers, of which one is away for a while.
func restart(t *testing.T, outage time.Duration) {
	t.Helper()
	a, b := startPublisher(t, "--endpoint", freeAddress(t)), startPublisher(t)
	tp := newTap(t, Options{})
	add(t, tp, Endpoint{Name: "a", Address: a.address})
	add(t, tp, Endpoint{Name: "b", Address: b.address})
	a.subscribed(1)
	b.subscribed(1)
	a.publish(50)
	b.publish(50)
	// What libzmq has not written yet ends with its process.
	got := collect(t, tp, soon, until(wire.Frames, 100))
	a.stop()
	time.Sleep(outage)
	a = startPublisher(t, "--endpoint", a.address)
	a.subscribed(1)
	a.publish(50)
	b.publish(150)
	got = append(got, collect(t, tp, soon, until(wire.Frames, 200))...)
	if g := seqs(got, "a"); !slices.Equal(g, append(span(0, 49), span(0, 49)...)) {
		t.Errorf("a, restarted: %v", g)
	}
	if g := seqs(got, "b"); !slices.Equal(g, span(0, 199)) { // none twice, none lost
		t.Errorf("b: %v", g)
	}
}

func TestInteropTopics(t *testing.T) {
	t.Parallel()
	c := startPublisher(t, "--topic", "kv@a", "--topic", "kv@ab", "--topic", "other")
	tp := newTap(t, Options{})
	filters := map[wire.Replica][]string{"all": nil, "kv": {"kv@"}, "ab": {"kv@ab"}, "two": {"kv@ab", "oth"}, "none": {"nothing"}}
	n := 0
	for name, topics := range filters {
		add(t, tp, Endpoint{Name: name, Address: c.address, Topics: topics})
		n += max(1, len(topics))
	}
	c.subscribed(n)
	c.publish(6)
	got := collect(t, tp, soon, until(wire.Frames, 6+4+2+4))
	for name, want := range map[wire.Replica][]int64{"all": span(0, 5), "kv": {0, 1, 3, 4}, "ab": {1, 4}, "two": {1, 2, 4, 5}, "none": nil} {
		if g := seqs(got, name); !slices.Equal(g, want) {
			t.Errorf("%s: %v, want %v", name, g, want)
		}
	}
}

func TestInteropLateBind(t *testing.T) {
	t.Parallel()
	if _, err := python(); err != nil {
		t.Skip(err)
	}
	address := freeAddress(t)
	tp := newTap(t, Options{})
	add(t, tp, Endpoint{Name: "a", Address: address})
	await(t, tp, "a", "refused twice", func(st Stats) bool { return st.Attempts > 2 })
	c := startPublisher(t, "--endpoint", address)
	c.subscribed(1)
	c.publish(3)
	got := collect(t, tp, soon, until(wire.Frames, 3))
	if s := said(got); !strings.HasPrefix(s, "a connecting ; a down ") || !strings.HasSuffix(s, "a up ; a #0; a #1; a #2; ") {
		t.Errorf("got %s", s)
	}
}

func TestInteropHeartbeats(t *testing.T) {
	t.Parallel()
	c := startPublisher(t, "--pub", "--heartbeat", "100", "--rate", "50")
	tp := newTap(t, Options{PingEvery: 600 * time.Millisecond})
	add(t, tp, Endpoint{Name: "a", Address: c.address})
	await(t, tp, "a", "up", func(st Stats) bool { return st.State == Up })
	time.Sleep(2500 * time.Millisecond) // quiet for longer than either side would wait for an answer
	c.publish(50)
	got := collect(t, tp, soon, until(wire.Frames, 50))
	st := statsOf(t, tp, "a")
	if g := seqs(got, "a"); !slices.Equal(g, span(0, 49)) || st.Connects != 1 || st.RTT <= 0 {
		t.Errorf("%v, %+v", g, st)
	}
	t.Logf("libzmq answered our PING in %s", st.RTT)
}

func TestInteropMechanisms(t *testing.T) {
	t.Parallel()
	plain, curve, null := startPublisher(t, "--plain"), startPublisher(t, "--curve"), startPublisher(t)
	tp := newTap(t, Options{})
	for _, tt := range []struct {
		ep   Endpoint
		want string
	}{
		{Endpoint{Name: "right", Address: plain.address, User: "me", Password: "secret"}, ""},
		{Endpoint{Name: "wrong", Address: plain.address, User: "me", Password: "guess"}, "the publisher rejects this user and password"},
		{Endpoint{Name: "without", Address: plain.address}, `the publisher's mechanism is "PLAIN", and ours is set to NULL`},
		{Endpoint{Name: "curve", Address: curve.address}, "the publisher demands CURVE: " + noCurve},
		{Endpoint{Name: "needless", Address: null.address, User: "me"}, `the publisher's mechanism is "NULL", and ours is set to PLAIN`},
	} {
		add(t, tp, tt.ep)
		if tt.want == "" {
			plain.subscribed(1)
			plain.publish(1)
			collect(t, tp, soon, until(wire.Frames, 1))
			continue
		}
		await(t, tp, tt.ep.Name, tt.want, func(st Stats) bool { return st.State == Refused && st.LastError == tt.want })
	}
}

// TestInteropIPC also reads a message of 30 MB.
func TestInteropIPC(t *testing.T) {
	t.Parallel()
	path := "ipc://" + filepath.Join(t.TempDir(), "kv")
	c := startPublisher(t, "--endpoint", path, "--size", "30000000")
	tp := newTap(t, Options{})
	add(t, tp, Endpoint{Name: "a", Address: path})
	c.subscribed(1)
	c.publish(2)
	got := collect(t, tp, soon, until(wire.Frames, 2))
	if n := len(got[len(got)-1].Frames[2]); n != 30_000_000 {
		t.Errorf("%d bytes", n)
	}
}

// TestInteropDialOut: engines with a concrete host in their endpoint dial out.
func TestInteropDialOut(t *testing.T) {
	t.Parallel()
	if _, err := python(); err != nil {
		t.Skip(err)
	}
	tp := newTap(t, Options{})
	add(t, tp, Endpoint{Name: "in", Address: "tcp://127.0.0.1:0", Bind: true, Topics: []string{"kv@"}})
	await(t, tp, "in", "listening", func(st Stats) bool { return st.State == Listening })
	address := "tcp://" + statsOf(t, tp, "in").Bound
	a := startPublisher(t, "--connect", "--endpoint", address, "--topic", "kv@a")
	b := startPublisher(t, "--connect", "--endpoint", address, "--topic", "kv@b", "--heartbeat", "100")
	a.subscribed(1)
	b.subscribed(1)
	a.publish(20)
	b.publish(20)
	got := collect(t, tp, soon, until(wire.Frames, 40))
	a.stop()
	got = append(got, collect(t, tp, soon, until(wire.Link, 1))...)
	a = startPublisher(t, "--connect", "--endpoint", address, "--topic", "kv@a")
	a.subscribed(1)
	a.publish(20)
	got = append(got, collect(t, tp, soon, until(wire.Frames, 20))...)
	if g := seqs(got, "in/kv@a"); !slices.Equal(g, append(span(0, 19), span(0, 19)...)) {
		t.Errorf("a: %v", g)
	}
	if g := seqs(got, "in/kv@b"); !slices.Equal(g, span(0, 19)) {
		t.Errorf("b: %v", g)
	}
	if s := said(got); !strings.Contains(s, "in/kv@a down") {
		t.Error("the one that restarted was not told of as down")
	}
}

// TestInteropSlowConsumer: 200 MB for a program that stands still. The
// publisher is not held up, the loss shows as a gap and is told of, and memory
// stays within the queue's bounds.
func TestInteropSlowConsumer(t *testing.T) {
	c := startPublisher(t, "--size", "10000", "--hwm", "100")
	tp := newTap(t, Options{LaneRecords: 500, Patience: 50 * time.Millisecond})
	add(t, tp, Endpoint{Name: "a", Address: c.address})
	c.subscribed(1)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c.publish(20_000)
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if grown > 20<<20 {
		t.Errorf("the heap grew by %d MB", grown>>20)
	}
	st := statsOf(t, tp, "a")
	// Reads on, until a batch comes that was published after that. As long as
	// the publisher's queue is full, what it publishes is lost.
	var got []wire.Record
	for end, later := time.Now().Add(soon), false; !later; {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		rec, err := tp.Next(ctx)
		cancel()
		switch {
		case err == nil:
			got = append(got, rec)
			later = rec.Kind == wire.Frames && seqOf(rec) >= 20_000
		case time.Now().After(end):
			t.Fatalf("%v after %d records", err, len(got))
		default:
			c.publish(5)
		}
	}
	g := seqs(got, "a")
	missing := 0
	for i := 1; i < len(g); i++ {
		if g[i] <= g[i-1] {
			t.Fatalf("%d after %d", g[i], g[i-1])
		}
		missing += int(g[i] - g[i-1] - 1)
	}
	if st.Dropped == 0 || missing < int(st.Dropped) || st.Queued > 510 || !strings.Contains(said(got), "kvscope fell behind and dropped") {
		t.Errorf("%d dropped here, %d missing, %d queued", st.Dropped, missing, st.Queued)
	}
	t.Logf("20,000 messages of 10 KB: heap %+d KB, %d queued, %d dropped here, %d by the publisher", grown>>10, st.Queued, st.Dropped, missing-int(st.Dropped))
}

func TestInteropNothingLost(t *testing.T) {
	t.Parallel()
	const n = 20_000
	c := startPublisher(t, "--size", "2000", "--hwm", "0")
	tp := newTap(t, Options{})
	add(t, tp, Endpoint{Name: "a", Address: c.address})
	c.subscribed(1)
	began := time.Now()
	c.say("publish", n)
	next := int64(0)
	for next < n {
		rec, err := tp.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if rec.Kind != wire.Frames {
			continue
		}
		if seq := seqOf(rec); seq != next || len(rec.Frames[2]) != 2000 || binary.BigEndian.Uint64(rec.Frames[2]) != uint64(seq) {
			t.Fatalf("%d, want %d", seq, next)
		}
		next++
	}
	t.Logf("%d messages of 2 KB, flat out: %.0f a second", n, n/time.Since(began).Seconds())
}

func TestInteropReplay(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		shapes   string
		args     []string
		from     uint64
		want     []int64
		err      string
		requests uint64
		// idle is short only where it has to pass.
		idle time.Duration
	}{
		{"complete", "34", []string{"--keep", "0:4999"}, 10, span(10, 4999), "", 1, soon},
		{"clipped start", "4", []string{"--keep", "81:144"}, 0, span(81, 144), "", 1, soon},
		{"the future", "34", []string{"--keep", "0:9"}, 500, nil, "", 1, soon},
		{"truncated without marker", "34", []string{"--keep", "0:99", "--limit", "60"}, 0, span(0, 99), "", 2, 3 * time.Second},
		{"exactly truncated", "3", []string{"--keep", "0:59", "--limit", "60"}, 0, span(0, 59), "", 1, soon},
		{"hole", "4", []string{"--keep", "0:20", "--holes", "7,8"}, 0, append(span(0, 6), span(9, 20)...), "", 2, soon},
		{"silent", "4", []string{"--mute"}, 0, nil, "the replay socket gave no answer within 500ms", 1, 500 * time.Millisecond},
	}
	for _, tt := range tests {
		for _, shape := range tt.shapes {
			t.Run(tt.name+" "+string(shape), func(t *testing.T) {
				t.Parallel()
				c := startPublisher(t, append([]string{"--replay", "--router-hwm", "0", "--shape", string(shape)}, tt.args...)...)
				tp := newTap(t, Options{Replay: ReplayOptions{Idle: tt.idle}})
				add(t, tp, Endpoint{Name: "a", Address: c.address, Replay: c.replay})
				tp.Want(Want{Replica: "a", From: tt.from})
				got := collect(t, tp, soon, until(wire.ReplayEnd, 1))
				var replayed []int64
				for _, rec := range got {
					if r, err := wire.SplitReply(rec.Frames); rec.Kind == wire.ReplayFrames && err == nil && !r.End {
						replayed = append(replayed, int64(r.Seq))
						if len(rec.Frames) != int(shape-'0') || binary.BigEndian.Uint64(r.Payload) != r.Seq {
							t.Fatalf("%d frames, %x", len(rec.Frames), r.Payload)
						}
					}
				}
				if !slices.Equal(replayed, tt.want) || got[len(got)-1].Err != tt.err {
					t.Errorf("%d batches, %q: %v", len(replayed), got[len(got)-1].Err, replayed)
				}
				if b := statsOf(t, tp, "a").Replay; b.Requests != tt.requests || b.Batches != uint64(len(tt.want)) {
					t.Errorf("%+v", b)
				}
			})
		}
	}
}

// TestInteropRouterDrops: a router drops what its queue has no room for, the
// marker too; 1,000 is libzmq's default and vLLM's before 0.33. What comes has no
// hole unless the answer says so, and how often was asked is bounded.
func TestInteropRouterDrops(t *testing.T) {
	t.Parallel()
	for _, hwm := range []string{"50", "1000"} {
		t.Run(hwm, func(t *testing.T) {
			t.Parallel()
			c := startPublisher(t, "--replay", "--router-hwm", hwm, "--keep", "0:3999", "--size", "16000")
			tp := newTap(t, Options{BackoffMax: 200 * time.Millisecond, Replay: ReplayOptions{Idle: 500 * time.Millisecond}})
			add(t, tp, Endpoint{Name: "a", Address: c.address, Replay: c.replay})
			tp.Want(Want{Replica: "a", From: 0})
			got := collect(t, tp, soon, until(wire.ReplayEnd, 1))
			next, holes, last := uint64(0), false, got[len(got)-1]
			for _, rec := range got {
				if r, err := wire.SplitReply(rec.Frames); rec.Kind == wire.ReplayFrames && err == nil && !r.End {
					if r.Seq < next {
						t.Fatalf("batch %d after %d", r.Seq, next-1)
					}
					holes = holes || r.Seq > next
					next = r.Seq + 1
				}
			}
			b := statsOf(t, tp, "a").Replay
			if b.Requests < 1 || b.Requests > 8 || last.Err == "" && (holes || next != 4000) {
				t.Errorf("%d requests, holes %v, up to %d, %q", b.Requests, holes, next, last.Err)
			}
			t.Logf("%s, %q", last.Text, last.Err)
		})
	}
}
