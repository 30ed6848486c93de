package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// liveHold is how many live batches a replica holds back behind a gap while a
// replay may fill it: a minute, the longest replay, of 130 batches a second.
const liveHold = 8192

// attachment is a running fleet that is listened to: a wire.Source of all that
// comes from it. Close it after use.
type attachment struct {
	*tap.Tap
	replay  tap.Policy
	stop    context.CancelFunc
	running sync.WaitGroup
	// looked is closed once the members are known.
	looked chan struct{}

	mu      sync.Mutex
	members map[wire.Replica]fleet.Member // by the name of their endpoint
	known   bool
	// describe is told what discovery knows of replicas.
	describe func(wire.Replica, wire.Facts)
}

// lookout finds out who is there, until ctx ends: it tells of the members as
// often as they change, and of what went wrong.
type lookout func(ctx context.Context, changed func([]fleet.Member, []error))

// scraper fetches the members' metrics pages again and again, until ctx ends.
type scraper func(ctx context.Context, members func() []fleet.Member, emit func(wire.Record))

// attach begins to listen to the members that look finds.
func attach(ctx context.Context, opt tap.Options, look lookout, scrape scraper) *attachment {
	ctx, stop := context.WithCancel(ctx)
	a := &attachment{
		Tap: tap.New(opt), replay: opt.Replay.Policy, stop: stop,
		looked: make(chan struct{}), members: map[wire.Replica]fleet.Member{},
	}
	a.running.Go(func() { look(ctx, a.update) })
	a.running.Go(func() {
		select { // until the first look is over there is nobody to ask
		case <-a.looked:
			scrape(ctx, a.list, a.Put)
		case <-ctx.Done():
		}
	})
	return a
}

// Close ends all that listens. Next then gives what is left, and io.EOF.
func (a *attachment) Close() error {
	a.stop()
	a.running.Wait()
	return a.Tap.Close()
}

// list gives the members.
func (a *attachment) list() []fleet.Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]fleet.Member, 0, len(a.members))
	for _, m := range a.members {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b fleet.Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

// update follows those who came, and lets go of those who went.
func (a *attachment) update(members []fleet.Member, problems []error) {
	now := wire.Time(time.Now().UnixNano())
	for _, err := range problems {
		a.Put(wire.Record{At: now, Kind: wire.Note, Text: err.Error()})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	next := map[wire.Replica]fleet.Member{}
	for _, m := range members {
		next[endpoint(m).Name] = m
	}
	for name, was := range a.members {
		is, ok := next[name]
		switch {
		case !ok:
			if !a.Remove(name) { // it was never tapped
				a.Put(wire.Record{At: now, Replica: name, Kind: wire.Link, Link: wire.LinkGone, Text: wire.LinkGone.String(), Err: "removed"})
			}
			delete(a.members, name)
		case is.Problem != was.Problem || !reflect.DeepEqual(endpoint(is), endpoint(was)):
			a.Remove(name)
			delete(a.members, name)
		default: // the link stays, whatever else is new
			a.members[name] = is
			a.tell(is)
		}
	}
	for _, m := range members {
		name := endpoint(m).Name
		if _, ok := a.members[name]; ok {
			continue
		}
		a.members[name] = m
		a.tell(m)
		if err := a.add(m); err != nil {
			a.Put(wire.Record{At: now, Replica: name, Kind: wire.Link, Link: wire.LinkRefused, Text: wire.LinkRefused.String(), Err: err.Error()})
		}
	}
	if !a.known {
		a.known = true
		close(a.looked)
	}
}

func (a *attachment) add(m fleet.Member) error {
	if m.Problem != "" {
		return errors.New(m.Problem)
	}
	return a.Add(endpoint(m))
}

// endpoint is where a member is listened to. One that sends load alone is no
// replica, and may have the name of one.
func endpoint(m fleet.Member) tap.Endpoint {
	name := m.Name
	if m.Kind == fleet.LoadOnly {
		name = wire.LoadName(name)
	}
	return tap.Endpoint{
		Name: name, Address: m.Events, Bind: m.Bind, Topics: m.Topics, Replay: m.Replay,
		User: m.User, Password: m.Password,
	}
}

// tell passes on what discovery knows of a member. It is called with a.mu held.
func (a *attachment) tell(m fleet.Member) {
	facts := m.Facts
	facts.Buffer, facts.HWM = m.Buffer, m.HWM
	if a.describe != nil && facts != (wire.Facts{}) {
		a.describe(m.Name, facts)
	}
}

// inform makes describe hear of all that discovery knows, now and later.
func (a *attachment) inform(describe func(wire.Replica, wire.Facts)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.describe = describe
	for _, name := range slices.Sorted(maps.Keys(a.members)) { // the order shows
		a.tell(a.members[name])
	}
}

// facts waits for the first look around, and gives what it told.
func (a *attachment) facts(ctx context.Context) []capture.ReplicaFacts {
	wait(ctx, a.looked)
	var out []capture.ReplicaFacts
	for _, m := range a.list() {
		if m.Facts != (wire.Facts{}) {
			out = append(out, capture.ReplicaFacts{Replica: m.Name, Facts: m.Facts})
		}
	}
	return out
}

// options makes the index ask for what it misses.
func (a *attachment) options(opt observe.Options) observe.Options {
	if !a.replay.Never() {
		opt.Stream.Hold = liveHold
		opt.Want = func(r wire.Replica, from uint64) { a.Want(tap.Want{Replica: r, From: from}) }
	}
	opt.Replay = a.asked
	return opt
}

// asked says what was asked of a replica's replay socket.
func (a *attachment) asked(r wire.Replica) (observe.Replay, bool) {
	b, ok := a.Budget(r)
	return observe.Replay{
		Address: b.Address, Policy: b.Policy.String(), Requests: b.Requests, Batches: b.Batches, Bytes: b.Bytes,
		Left: b.Left, Running: b.Running, Last: b.Last,
	}, ok
}

// recent offers a replay of what a replica published before its first batch
// that was seen.
func (a *attachment) recent(r wire.Replica, first uint64) (offer string, send func(), err error) {
	b, ok := a.Budget(r)
	switch {
	case !ok || b.Address == "":
		return "", nil, fmt.Errorf("no replay socket of %s is known: give its address, or start the engine with one", r)
	case a.replay.Never():
		return "", nil, errors.New("the replay policy is never: start with --replay=gaps to be able to ask")
	case b.Left == 0:
		return "", nil, fmt.Errorf("the replay requests that %s may be asked in a minute are used up", r)
	}
	from := first - min(first, tap.DefaultRecent)
	offer = fmt.Sprintf("Sends a request to %s for all batches from %d to now, of which %d are from before the first one seen (%d). "+
		"The publisher answers from its buffer, between batches of its own, and publishes nothing in that time. "+
		"%d more requests may be sent to it within this minute.", b.Address, from, first-from, first, b.Left)
	return offer, func() { a.Want(tap.Want{Replica: r, From: from}) }, nil
}
