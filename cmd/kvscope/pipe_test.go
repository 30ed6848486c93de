//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// heard is standard error that another goroutine reads.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
	come chan struct{} // gets one for each write
}

func (s *heard) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.text.Write(b)
	s.come <- struct{}{}
	return n, err
}

// A pipe to which nobody writes is told of, and then read.
func TestPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	errs := &heard{come: make(chan struct{}, 9)}
	code := make(chan int)
	go func() {
		code <- run(context.Background(), []string{"diff", "@" + pipe, "[1, 2]"}, strings.NewReader(""), io.Discard, errs)
	}()
	select {
	case <-errs.come:
	case c := <-code:
		t.Fatalf("ended with %d: %s", c, errs.text.String())
	}
	if got := errs.text.String(); !strings.Contains(got, "waiting for the end of ") || !strings.Contains(got, "pipe") {
		t.Errorf("heard %q", got)
	}
	if err := os.WriteFile(pipe, []byte("[1, 2]"), 0o600); err != nil {
		t.Error(err)
	}
	if c := <-code; c != exitFine {
		t.Errorf("ended with %d: %s", c, errs.text.String())
	}
}

// An engine that does not answer is an input that cannot be reached.
func TestEngineUnreachable(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	args := []string{"diff", "a b", "a c", "--tokenize-with", "http://127.0.0.1:1"}
	if c := run(context.Background(), args, strings.NewReader(""), io.Discard, &errs); c != exitInput {
		t.Errorf("ended with %d: %s", c, errs.String())
	}
}
