package tap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/go-zeromq/zmq4"

	"github.com/kvscope/kvscope/wire"
)

// answer is how far the answer to one want is. It can take several requests.
type answer struct {
	*replayer
	want Want
	// next is the batch that is due.
	next uint64
	// requests, batches and bytes count over all requests, got the batches of
	// the newest one.
	requests, batches, bytes, got int
	// clipped batches are missing at the start, missing ones further on; skipped
	// ones too, and were not asked for again.
	clipped, missing, skipped uint64
	// life is the live session when the want began. again says that a connection
	// was lost since, and that the want went on with a new one.
	life  uint64
	again bool
}

// outcome is how one request ended.
type outcome uint8

const (
	broken outcome = iota
	whole
	// truncated: no more came, and no end marker. Routers with a full queue
	// drop either (vLLM before 0.33).
	truncated
	// holed: something was left out in the middle.
	holed
	// lost: the connection ended.
	lost
)

var errBytes = errors.New("the answer is larger than what may be read for one want")

// String says what came, for people.
func (a *answer) String() string {
	var b strings.Builder
	batches := "batches"
	if a.batches == 1 {
		batches = "batch"
	}
	fmt.Fprintf(&b, "%d %s from %d on", a.batches, batches, a.want.From)
	if a.requests > 1 {
		fmt.Fprintf(&b, ", in %d requests", a.requests)
	}
	if a.clipped > 0 {
		fmt.Fprintf(&b, "; the first %d are no longer kept", a.clipped)
	}
	if a.missing > 0 {
		fmt.Fprintf(&b, "; %d in between cannot be had", a.missing)
	}
	return b.String()
}

// complete asks until the answer is complete, or as complete as it gets: it asks
// again where one broke off, and stops when that brings nothing new.
func (a *answer) complete(ctx context.Context) error {
	wait := a.opt.backoff()
	a.life = a.session.Load()
	for {
		how, err := a.request(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case how == whole && a.skipped > 0:
			return fmt.Errorf("the answer leaves out %d batches, and %d requests for one want are the limit", a.skipped, a.requests)
		case how == whole:
			return nil
		case how == broken || how == lost && (!a.same() || a.requests > 1 && a.got == 0):
			return err
		case how == truncated && a.got == 0 && a.batches > 0:
			return fmt.Errorf("the answer ends before batch %d without saying that it is over", a.next)
		case how == truncated && a.got == 0:
			return fmt.Errorf("the replay socket gave no answer within %s", a.opt.Replay.Idle)
		case a.requests >= a.opt.Replay.MaxRequests:
			return fmt.Errorf("the answer broke off before batch %d, and again after each of %d requests", a.next, a.requests)
		}
		if !a.opt.sleep(ctx, wait.next()) {
			return context.Cause(ctx)
		}
		a.again = a.again || how == lost
		if a.again && !a.same() {
			return err
		}
	}
}

// same reports whether the live link has been up without a break since the want
// began. Then the process is the same one, and so are the numbers of its batches.
func (a *answer) same() bool { return a.life%2 == 1 && a.session.Load() == a.life }

// request asks for what is due and beyond, on a connection of its own: what an
// earlier answer still has on its way cannot get between.
func (a *answer) request(ctx context.Context) (outcome, error) {
	s, err := a.reach(ctx)
	if err != nil {
		return broken, fmt.Errorf("cannot ask for a replay: %w", err)
	}
	defer s.close()
	if !a.spend() {
		return broken, fmt.Errorf("the budget of %d replay requests a minute is used up before batch %d", a.opt.Replay.PerMinute, a.next)
	}
	a.requests++
	a.got = 0
	if err := s.send(appendMessage(nil, nil, binary.BigEndian.AppendUint64(nil, a.next))); err != nil {
		return broken, fmt.Errorf("cannot ask for a replay: %w", err)
	}
	for {
		_ = s.conn.SetReadDeadline(a.opt.Clock.Now().Add(a.opt.Replay.Idle))
		frames, err := s.in.message()
		switch {
		case isTimeout(err):
			return truncated, nil
		case err != nil:
			how := broken
			if isLost(err) {
				how = lost
			}
			return how, fmt.Errorf("the connection was lost before batch %d: %w", a.next, err)
		case a.again && !a.same():
			// Another process may be answering: its numbers mean other batches.
			return broken, fmt.Errorf("the connection was lost before batch %d, and the live one meanwhile", a.next)
		}
		if how, done, err := a.take(ctx, frames); done {
			return how, err
		}
	}
}

// take passes on one message of an answer and reports whether the answer ends
// with it.
func (a *answer) take(ctx context.Context, frames [][]byte) (how outcome, done bool, err error) {
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	a.count(0, size)
	if a.bytes += size; a.bytes > a.opt.Replay.MaxBytes {
		return broken, true, fmt.Errorf("%w: %d bytes", errBytes, a.opt.Replay.MaxBytes)
	}
	reply, err := wire.SplitReply(frames)
	switch {
	case err != nil:
		return broken, true, err
	case reply.End:
		return whole, true, a.pass(ctx, frames)
	case reply.Seq < a.next:
		return 0, false, nil // had already
	case reply.Seq > a.next && a.got > 0 && a.requests < a.opt.Replay.MaxRequests:
		return holed, true, nil
	case reply.Seq > a.next && a.got > 0:
		a.skipped += reply.Seq - a.next
	case reply.Seq > a.next && a.batches == 0:
		a.clipped = reply.Seq - a.next
	case reply.Seq > a.next: // asked for, and not there
		a.missing += reply.Seq - a.next
	}
	if err := a.pass(ctx, frames); err != nil {
		return broken, true, err
	}
	a.next = reply.Seq + 1
	a.batches++
	a.got++
	a.count(1, 0)
	return 0, false, nil
}

// pass puts a message into the queue. It waits for room: the publisher's socket
// then drops what it cannot send, and that is asked for again.
func (a *answer) pass(ctx context.Context, frames [][]byte) error {
	return a.lane.wait(ctx, wire.Record{At: a.opt.now(), Replica: a.want.Replica, Kind: wire.ReplayFrames, Frames: frames})
}

// reach connects to the replay socket. A publisher that is just starting is
// given as long as an answer may take; no request has been sent by then.
func (a *answer) reach(ctx context.Context) (*session, error) {
	began, wait := a.opt.Clock.Now(), a.opt.backoff()
	for {
		s, err := dial(ctx, a.opt, a.ep, a.ep.Replay, zmq4.Dealer, nil)
		refused := (*refusedError)(nil)
		if err == nil || errors.As(err, &refused) || a.opt.Clock.Now().Sub(began) >= a.opt.Replay.Idle {
			return s, err
		}
		if !a.opt.sleep(ctx, wait.next()) {
			return nil, context.Cause(ctx)
		}
	}
}

// isLost reports whether an error is of the connection and not of what came
// over it.
func isLost(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}
