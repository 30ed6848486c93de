package sim

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// libzmq is testdata/sub.py in a process of its own.
type libzmq struct {
	t     *testing.T
	in    io.Writer
	lines *bufio.Scanner
}

// startLibzmq skips the test where KVSCOPE_PYTHON does not name a Python with
// pyzmq.
func startLibzmq(t *testing.T, events, replay string) *libzmq {
	t.Helper()
	name := os.Getenv("KVSCOPE_PYTHON")
	if name == "" {
		t.Skip("KVSCOPE_PYTHON names no Python with pyzmq, so nothing is held against libzmq")
	}
	cmd := exec.Command(name, filepath.Join("testdata", "sub.py"), events, replay)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { _ = cmd.Process.Kill() })
	limit := time.AfterFunc(time.Minute, stop) // nothing here waits for ever
	t.Cleanup(func() {
		limit.Stop()
		_ = in.Close()
		stop()
		_ = cmd.Wait()
	})
	c := &libzmq{t: t, in: in, lines: bufio.NewScanner(out)}
	c.expect("ready")
	return c
}

func (c *libzmq) say(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *libzmq) expect(want string) {
	c.t.Helper()
	if !c.lines.Scan() {
		c.t.Fatal("libzmq's process ended: ", c.lines.Err())
	}
	if got := c.lines.Text(); got != want {
		c.t.Fatalf("libzmq has %q, want %q", got, want)
	}
}

// TestInterop holds both sockets against libzmq's own clients: subscriptions,
// heartbeats and both shapes of answers.
func TestInterop(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("old=%t", old), func(t *testing.T) {
			t.Parallel()
			p, r := openPublisher(t, PublisherOptions{}), openReplayer(t, ReplayerOptions{Old: old, Buffer: 500})
			c := startLibzmq(t, p.Address(), r.Address())
			subscriptions := func(n int) {
				t.Helper()
				c.expect("done")
				eventually(t, "the subscriptions", func() bool { return p.Stats().Subscriptions == n })
			}
			seq := uint64(0)
			publish := func(topic string) {
				p.Publish(topic, seq, payloadOf(seq))
				r.Keep(topic, seq, payloadOf(seq))
				seq++
			}
			c.say("subscribe kv@a")
			subscriptions(1)
			c.say("subscribe other")
			subscriptions(2)
			for _, topic := range []string{"kv@b", "kv@ab", "", "other", "kv@a"} {
				publish(topic)
			}
			c.say("receive 3")
			for _, n := range []int{1, 3, 4} {
				c.expect(fmt.Sprintf("live %s %d payload %d", []string{"", "kv@ab", "", "other", "kv@a"}[n], n, n))
			}
			c.say("unsubscribe other")
			subscriptions(1)
			publish("other")
			// Longer than libzmq waits for an answer to its PINGs.
			c.say("quiet 2.3")
			c.expect("disconnects 0")
			c.say("receive 1000")
			for range 1000 {
				publish("kv@a")
			}
			for n := range 1000 {
				c.expect(fmt.Sprintf("live kv@a %d payload %d", n+6, n+6))
			}
			// The buffer holds the last half.
			shape := "kv@a"
			end := "end 4"
			if old {
				shape, end = "-", "end 3"
			}
			for _, from := range []int{0, 900} {
				c.say("replay %d", from)
				for n := max(from, 506); n < 1006; n++ {
					c.expect(fmt.Sprintf("kept %s %d payload %d", shape, n, n))
				}
				c.expect(end)
			}
			if st := p.Stats(); st.Dropped != 0 || !strings.HasPrefix(p.Address(), "tcp://127.0.0.1:") {
				t.Errorf("%+v", st)
			}
		})
	}
}
