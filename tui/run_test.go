package tui

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// soon bounds what takes milliseconds, on a machine with other things to do.
const soon = 30 * time.Second

// wires is a terminal's output that can be waited for.
type wires struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *wires) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *wires) wait(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		found := strings.Contains(w.buf.String(), text)
		w.mu.Unlock()
		if found {
			return
		}
	}
	t.Errorf("%q never came", text)
}

// TestRun runs the whole program on a pipe and leaves no goroutine behind.
func TestRun(t *testing.T) { // not parallel: other tests' goroutines would count
	defer goleak.VerifyNone(t)
	for name, end := range map[string]func(in io.Writer, cancel context.CancelFunc){
		"q":      func(in io.Writer, _ context.CancelFunc) { _, _ = io.WriteString(in, "q") },
		"ctrl-c": func(in io.Writer, _ context.CancelFunc) { _, _ = io.WriteString(in, "\x03") },
		"cancel": func(_ io.Writer, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			p := recording(t, "c_reset")
			in, keys := io.Pipe()
			out := &wires{}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := Run(ctx, Options{Feed: p, Player: p, Look: Look{Theme: "dark", Auto: true}}, in, out, []string{"TERM=xterm-256color"})
				done <- err
			}()
			out.wait(t, "\x1b[?2004h") // it takes input
			end(keys, cancel)
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(soon):
				t.Error("it does not end")
			}
			_ = keys.Close()
			_ = in.Close()
		})
	}
}
