package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// stalled gives a record for each value sent, and blocks whatever becomes of
// the context.
type stalled chan wire.Record

func (s stalled) Next(context.Context) (wire.Record, error) {
	rec, ok := <-s
	if !ok {
		return rec, io.EOF
	}
	return rec, nil
}

// TestPatient: a pipe that stalls holds nobody up, and loses nothing.
func TestPatient(t *testing.T) {
	t.Parallel()
	src := make(stalled)
	defer close(src)
	p := newPatient(src)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { src <- wire.Record{At: 1} }()
	if rec, err := p.Next(ctx); err != nil || rec.At != 1 {
		t.Fatalf("%+v, %v", rec, err)
	}
	cancel()
	if _, err := p.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("with a context that ended: %v", err)
	}
	go func() { src <- wire.Record{At: 2} }()
	if rec, err := p.Next(context.Background()); err != nil || rec.At != 2 {
		t.Errorf("the record that was waited for is lost: %+v, %v", rec, err)
	}
}
