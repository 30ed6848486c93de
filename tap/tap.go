package tap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kvscope/kvscope/wire"
)

// ErrClosed says that the Tap was closed.
var ErrClosed = errors.New("the tap is closed")

// maxMembers bounds the endpoints of one Tap.
const maxMembers = 1 << 14

// Tap is a wire.Source over many links. Close it after use.
type Tap struct {
	opt   Options
	queue *queue
	// others takes what comes from no link: answers to wants of nobody, and
	// what Put is given.
	others *lane

	mu      sync.Mutex
	members map[wire.Replica]*member
	// accounts are those of the members, and of those that were.
	accounts map[wire.Replica]*account
	closed   bool
}

// member is one endpoint and what runs for it.
type member struct {
	link   *link
	replay *replayer
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// New makes a Tap without members.
func New(opt Options) *Tap {
	t := &Tap{opt: opt.withDefaults(), members: map[wire.Replica]*member{}, accounts: map[wire.Replica]*account{}}
	t.queue = newQueue(&t.opt)
	t.others = &lane{q: t.queue}
	return t
}

// Add begins to follow an endpoint. It does not wait for the connection: the
// error, one sentence, is about the endpoint's own settings, a name that is
// taken, or ErrClosed.
func (t *Tap) Add(ep Endpoint) error {
	if err := ep.check(); err != nil {
		return err
	}
	ep.Topics = slices.Clone(ep.Topics)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return ErrClosed
	case t.members[ep.Name] != nil:
		return fmt.Errorf("there is a replica %s already", ep.Name)
	case len(t.members) >= maxMembers:
		return fmt.Errorf("%s: %d replicas are the limit", ep.Name, maxMembers)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{cancel: cancel, replay: newReplayer(ctx, &t.opt, ep, t.queue, t.account(ep))}
	m.link = newLink(&t.opt, ep, t.queue, m.replay)
	t.members[ep.Name] = m
	m.done.Go(func() { m.link.run(ctx) })
	return nil
}

// Remove stops following an endpoint and waits until nothing of it runs. Its
// replicas are told of as down. It reports false if there is no such endpoint.
func (t *Tap) Remove(name wire.Replica) bool {
	t.mu.Lock()
	m := t.members[name]
	delete(t.members, name)
	t.mu.Unlock()
	if m == nil {
		return false
	}
	m.stop()
	m.link.gone()
	return true
}

func (m *member) stop() {
	m.cancel()
	m.replay.close()
	m.done.Wait()
}

// Want carries out a stream.Want, or a person's wish, as the policy and the
// budget allow. It returns at once; the answer comes in records: ReplayBegin,
// ReplayFrames in ascending order without repetition, and ReplayEnd, whose Err
// says why the answer is not complete and whose Text what came; or a ReplayEnd
// alone, whose Err says why nothing was asked for. Batches that the publisher
// no longer has, or never sent, are simply not there.
func (t *Tap) Want(w Want) {
	if m := t.member(w.Replica); m != nil {
		m.replay.want(w)
		return
	}
	t.others.force(wire.Record{
		At: t.opt.now(), Replica: w.Replica, Kind: wire.ReplayEnd, Err: "no replay socket of this replica is known",
	})
}

// member finds the endpoint that a replica belongs to: the name itself, or what
// is before the rank or topic.
func (t *Tap) member(name wire.Replica) *member {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if m := t.members[name]; m != nil {
			return m
		}
		cut := strings.LastIndexByte(string(name), '/')
		if cut < 0 {
			return nil
		}
		name = name[:cut]
	}
}

// Put adds a record of another origin, such as a metrics page, so that all that
// was received comes in one order. Pages and notes together have the share of a
// link: those beyond are dropped, and a Note counts them. Other records pass up
// to twice that share.
func (t *Tap) Put(rec wire.Record) { t.others.force(rec) }

// Next gives the next record, of any link. After Close it gives what is left
// and then io.EOF; otherwise its error is that of ctx.
func (t *Tap) Next(ctx context.Context) (wire.Record, error) { return t.queue.next(ctx) }

// Stats gives the state of every link, by name.
func (t *Tap) Stats() []Stats {
	t.mu.Lock()
	members := slices.Collect(maps.Values(t.members))
	t.mu.Unlock()
	out := make([]Stats, len(members))
	for i, m := range members {
		out[i] = m.link.stats()
	}
	slices.SortFunc(out, func(a, b Stats) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Budget says what was asked of a replica's replay socket, and what still may
// be. It reports false for a replica of no endpoint.
func (t *Tap) Budget(name wire.Replica) (Budget, bool) {
	m := t.member(name)
	if m == nil {
		return Budget{}, false
	}
	return m.replay.stats(), true
}

// Close ends all links and waits until nothing runs any more. It may be called
// again, and its error is nil.
func (t *Tap) Close() error {
	t.mu.Lock()
	t.closed = true
	members := slices.Collect(maps.Values(t.members))
	clear(t.members)
	t.mu.Unlock()
	for _, m := range members {
		m.cancel()
	}
	for _, m := range members {
		m.stop()
	}
	t.queue.close()
	return nil
}

var _ wire.Source = (*Tap)(nil)
