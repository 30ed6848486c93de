package main

import (
	"context"

	"github.com/kvscope/kvscope/wire"
)

// patient reads a source that blocks whatever becomes of the context, such as a
// pipe, in a goroutine of its own. That one stays in its read when nobody wants
// more; it ends with the program.
type patient struct {
	src  wire.Source
	next chan read
	end  error
	busy bool
}

type read struct {
	rec wire.Record
	err error
}

func newPatient(src wire.Source) *patient { return &patient{src: src, next: make(chan read, 1)} }

// Next gives the next record, or the context's error as soon as that ends.
func (p *patient) Next(ctx context.Context) (wire.Record, error) {
	if p.end != nil {
		return wire.Record{}, p.end
	}
	if !p.busy {
		p.busy = true
		go func() {
			rec, err := p.src.Next(context.WithoutCancel(ctx))
			p.next <- read{rec, err}
		}()
	}
	select {
	case r := <-p.next:
		p.busy = false
		p.end = r.err
		return r.rec, r.err
	case <-ctx.Done():
		return wire.Record{}, ctx.Err()
	}
}
