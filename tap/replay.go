package tap

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// Want is a request for a replay: all that the replica's publisher still keeps
// from batch From on.
type Want struct {
	Replica wire.Replica
	From    uint64
}

// After a request that failed, none is sent for retryMin, and up to retryMax
// the more of them fail.
const (
	retryMin = time.Second
	retryMax = 30 * time.Second
)

const removed = "the replica was removed"

// replayer carries out the wants of one endpoint, one after the other. Its
// methods may be called from any goroutine.
type replayer struct {
	opt *Options
	ep  Endpoint
	// lane is apart from the live one: an answer that waits for room holds up
	// nothing but itself.
	lane *lane
	ctx  context.Context
	done sync.WaitGroup
	// session counts the ups and downs of the live link: it is odd while one
	// session lasts.
	session atomic.Uint64

	account *account

	mu      sync.Mutex
	pending []Want
	budget  Budget
	closed  bool
}

func newReplayer(ctx context.Context, opt *Options, ep Endpoint, q *queue, acc *account) *replayer {
	return &replayer{
		opt: opt, ep: ep, lane: &lane{q: q}, ctx: ctx, account: acc,
		budget: Budget{Address: ep.Replay, Policy: opt.Replay.Policy},
	}
}

// want takes a want and answers it in records, at once if it is refused. One
// that waits already is answered together with it.
func (p *replayer) want(w Want) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget.Wants++
	if why := p.refusal(); why != "" {
		p.budget.Refused++
		p.end(w, why, "")
		return
	}
	same := slices.IndexFunc(p.pending, func(v Want) bool { return v.Replica == w.Replica })
	if same >= 0 {
		p.pending[same].From = min(p.pending[same].From, w.From)
		return
	}
	p.pending = append(p.pending, w)
	if !p.budget.Running {
		p.budget.Running = true
		p.done.Go(p.work)
	}
}

// refusal says why nothing is ever asked of this endpoint, if so. It is called
// with p.mu held.
func (p *replayer) refusal() string {
	switch {
	case p.closed:
		return removed
	case p.opt.Replay.Policy.Never():
		return "the replay policy is never"
	case p.ep.Bind:
		return "publishers that dial in do not say where their replay socket is"
	case p.ep.Replay == "":
		return "no replay socket of this replica is known"
	}
	return ""
}

// work answers wants until none is left.
func (p *replayer) work() {
	for {
		w, ok := p.pop()
		if !ok {
			return
		}
		p.carryOut(w)
	}
}

func (p *replayer) pop() (Want, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 {
		p.budget.Running = false
		return Want{}, false
	}
	w := p.pending[0]
	p.pending = p.pending[1:]
	return w, true
}

func (p *replayer) carryOut(w Want) {
	if why := p.notNow(); why != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.budget.Refused++
		p.end(w, why, "")
		return
	}
	p.lane.force(wire.Record{At: p.opt.now(), Replica: w.Replica, Kind: wire.ReplayBegin, From: w.From})
	ctx, free := p.opt.within(p.ctx, p.opt.Replay.Total, fmt.Errorf("the replay took longer than %s", p.opt.Replay.Total))
	a := answer{replayer: p, want: w, next: w.From}
	err := a.complete(ctx)
	free()
	p.mu.Lock()
	defer p.mu.Unlock()
	var failed string
	switch {
	case err == nil:
		p.account.ended(p.opt.now(), false)
	case p.ctx.Err() != nil:
		failed = removed
	default:
		failed = words(err)
		p.account.ended(p.opt.now(), true)
	}
	p.end(w, failed, a.String())
}

// notNow says why a want that could be asked for is not asked for now.
func (p *replayer) notNow() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, until := p.opt.now(), p.account.until()
	switch {
	case p.closed:
		return removed
	case now < until && p.budget.Last == "":
		return fmt.Sprintf("the last replay before the replica was removed failed, and none is asked for in the %s after it",
			time.Duration(until-now).Round(100*time.Millisecond))
	case now < until:
		return fmt.Sprintf("the last replay failed (%s), and none is asked for in the %s after it",
			p.budget.Last, time.Duration(until-now).Round(100*time.Millisecond))
	case p.left() == 0:
		return fmt.Sprintf("the budget of %d replay requests a minute is used up", p.opt.Replay.PerMinute)
	}
	return ""
}

// left is how many requests the minute still allows.
func (p *replayer) left() int {
	return p.account.left(p.opt.Clock.Now(), p.opt.Replay.PerMinute)
}

// spend takes one request from the budget, and reports false if there is none.
func (p *replayer) spend() bool {
	if !p.account.spend(p.opt.Clock.Now(), p.opt.Replay.PerMinute) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget.Requests++
	return true
}

// count adds what was received.
func (p *replayer) count(batches, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget.Batches += uint64(batches)
	p.budget.Bytes += uint64(bytes)
}

// end emits the record that every want ends with. It is called with p.mu held.
func (p *replayer) end(w Want, failed, text string) {
	if p.budget.Last = failed; failed == "" {
		p.budget.Last = text
	}
	p.lane.force(wire.Record{At: p.opt.now(), Replica: w.Replica, Kind: wire.ReplayEnd, Text: text, Err: failed})
}

// up is called when the link is up.
func (p *replayer) up() {
	if p.opt.Replay.Policy.kind == full {
		p.once(0)
	}
}

// joined is called with the first message of the link.
func (p *replayer) joined(frames [][]byte) {
	_, seq, _, err := wire.SplitFrames(frames)
	if err != nil {
		return
	}
	if from, ok := p.opt.Replay.Policy.joined(seq); ok {
		p.once(from)
	}
}

// once asks for the one replay that the policy allows for a late join.
func (p *replayer) once(from uint64) {
	p.mu.Lock()
	refused := p.refusal() != ""
	p.mu.Unlock()
	if !refused && p.account.once() {
		p.want(Want{Replica: p.ep.Name, From: from})
	}
}

func (p *replayer) stats() Budget {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.budget
	b.Left, b.NotBefore, b.Waiting = p.left(), p.account.until(), len(p.pending)
	return b
}

// close refuses what is still wanted. Its context has ended before, and nothing
// of it runs afterwards.
func (p *replayer) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.done.Wait()
}
