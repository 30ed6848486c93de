package fleet

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"
)

// maxMembers bounds a fleet.
const maxMembers = 1 << 12

// Finder looks for the members of a fleet.
type Finder struct {
	prober  *Prober
	refresh time.Duration
	sources []source
	// mu lets one round pass at a time.
	mu sync.Mutex
}

// source is one entry of a Spec.
type source interface {
	// look finds the source's members, in an order that stays. With problems
	// they can be those of an earlier round.
	look(ctx context.Context, p *Prober, found *findings) []error
}

// NewFinder makes a Finder. The error joins one for each mistake in the Spec.
func NewFinder(spec Spec, opt Options) (*Finder, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	f := &Finder{prober: NewProber(opt), refresh: spec.Refresh}
	or(&f.refresh, 10*time.Second)
	fixed := &listed{list: func(context.Context, *Prober) ([]target, error) {
		return fixedTargets(spec.Replicas), nil
	}}
	f.sources = append(f.sources, fixed)
	for _, d := range spec.DNS {
		f.sources = append(f.sources, &listed{list: dnsTargets(d)})
	}
	for _, d := range spec.Dynamo {
		f.sources = append(f.sources, &dynamoDir{Dynamo: d})
	}
	for _, k := range spec.Kubernetes {
		slices := &endpointSlices{Kubernetes: k}
		f.sources = append(f.sources, &listed{list: slices.targets})
	}
	return f, nil
}

// Look looks once. Members come in the order of the Spec, and no two of one
// Kind share a Name. A source that fails keeps the members that it gave before;
// problems say so, or what else went wrong. It is safe for concurrent use;
// rounds come one after the other.
func (f *Finder) Look(ctx context.Context) (members []Member, problems []error) {
	return f.round(ctx, make([]findings, len(f.sources)))
}

// round is Look, with what is found on the way.
func (f *Finder) round(ctx context.Context, found []findings) (members []Member, problems []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([][]error, len(f.sources))
	var wg sync.WaitGroup
	for i, s := range f.sources {
		wg.Go(func() { errs[i] = s.look(ctx, f.prober, &found[i]) })
	}
	wg.Wait()
	members, twice := join(found)
	return members, append(slices.Concat(errs...), twice...)
}

// join gives all members that were found, each once.
func join(found []findings) (members []Member, problems []error) {
	type key struct {
		Kind
		name string
	}
	seen := map[key]string{}
	for i := range found {
		for _, m := range found[i].all() {
			k := key{m.Kind, string(m.Name)}
			first, twice := seen[k]
			switch {
			case twice && first == m.Events:
				continue // found in two ways
			case twice:
				problems = append(problems, fmt.Errorf("two replicas are called %s, at %q and, left out here, %q (%s): give one of them another name", m.Name, first, m.Events, m.Found))
				continue
			case len(members) == maxMembers:
				return members, append(problems, fmt.Errorf("more than %d members: the others are left out", maxMembers))
			}
			seen[k] = m.Events
			members = append(members, m)
		}
	}
	return members, problems
}

// Run looks now and then every Refresh, and calls report with the first result
// and with each that differs from the one before, until ctx is done.
//
// The first round can take long, since engines that do not answer are waited
// for. Until it is over, report is called with the members that were found so
// far, and no problems, whenever they have become more: first after 0.1 s, then
// after waits that double up to 2 s. It is not called as long as there are none,
// so that a report without members always means that none were found.
func (f *Finder) Run(ctx context.Context, report func(members []Member, problems []error)) {
	var last []Member
	var said []string
	told := false
	tell := func(members []Member, problems []error) {
		words := make([]string, len(problems))
		for i, p := range problems {
			words[i] = p.Error()
		}
		if !told || !slices.Equal(words, said) || !reflect.DeepEqual(members, last) {
			report(members, problems)
		}
		last, said, told = members, words, true
	}
	members, problems := f.first(ctx, tell)
	for ctx.Err() == nil { // what failed because of that is no news
		tell(members, problems)
		next, stop := f.prober.opt.Clock.After(f.refresh)
		select {
		case <-next:
		case <-ctx.Done():
			stop()
			return
		}
		members, problems = f.Look(ctx)
	}
}

// first is the first round. It tells of the members that are found on the way.
func (f *Finder) first(ctx context.Context, tell func([]Member, []error)) (members []Member, problems []error) {
	found := make([]findings, len(f.sources))
	over := make(chan struct{})
	go func() {
		defer close(over)
		members, problems = f.round(ctx, found)
	}()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		next, stop := f.prober.opt.Clock.After(wait)
		select {
		case <-next:
		case <-over:
			stop()
			return members, problems
		}
		if known, _ := join(found); len(known) > 0 && ctx.Err() == nil {
			tell(known, nil)
		}
	}
}

// findings are what a source has found so far, in its order.
type findings struct {
	mu    sync.Mutex
	parts [][]Member
}

// expect makes room for as many parts.
func (f *findings) expect(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts = make([][]Member, n)
}

func (f *findings) put(part int, members []Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts[part] = members
}

func (f *findings) all() []Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Concat(f.parts...)
}

// target is an engine that a source lists.
type target struct {
	Replica
	found string
}

// listed is a source that lists engines, each of which is then asked.
type listed struct {
	// list gives the engines, or says why it cannot; those of before stay then.
	list    func(ctx context.Context, p *Prober) ([]target, error)
	engines []*engine
	ever    bool
}

func (l *listed) look(ctx context.Context, p *Prober, found *findings) (problems []error) {
	targets, err := l.list(ctx, p)
	switch {
	case err != nil && l.ever:
		problems = append(problems, fmt.Errorf("%w: its %d engines of before are kept", err, len(l.engines)))
	case err != nil:
		problems = append(problems, err)
	default:
		l.ever = true
		if len(targets) > maxMembers {
			problems = append(problems, fmt.Errorf("%s: %d engines: those after the first %d are left out", targets[0].found, len(targets), maxMembers))
			targets = targets[:maxMembers]
		}
		l.update(targets)
	}
	found.expect(len(l.engines))
	errs := make([]error, len(l.engines))
	look := func(i int) {
		members, err := l.engines[i].look(ctx, p)
		found.put(i, members)
		errs[i] = err
	}
	var asked []int
	for i, e := range l.engines {
		if e.Engine == "" { // there is nothing to wait for
			look(i)
		} else {
			asked = append(asked, i)
		}
	}
	work := make(chan int)
	var wg sync.WaitGroup
	for range min(len(asked), p.opt.Parallel) {
		wg.Go(func() {
			for i := range work {
				look(i)
			}
		})
	}
	for _, i := range asked {
		work <- i
	}
	close(work)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// update keeps the engines that are still listed, with what they said.
func (l *listed) update(targets []target) {
	old := map[string]*engine{}
	for _, e := range l.engines {
		old[e.key()] = e
	}
	l.engines = make([]*engine, len(targets))
	for i, t := range targets {
		e := &engine{target: t}
		if was := old[e.key()]; was != nil {
			was.target, e = t, was
			delete(old, e.key())
		}
		l.engines[i] = e
	}
}

// fixedTargets are engines at addresses that were given.
func fixedTargets(replicas []Replica) []target {
	targets := make([]target, len(replicas))
	for i, r := range replicas {
		targets[i] = target{r, fmt.Sprintf("replicas[%d]", i)}
	}
	return targets
}
