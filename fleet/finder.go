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
	// look gives the source's members in an order that stays. With problems
	// they can be those of an earlier round.
	look(ctx context.Context, p *Prober) ([]Member, []error)
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
	f.mu.Lock()
	defer f.mu.Unlock()
	found := make([][]Member, len(f.sources))
	errs := make([][]error, len(f.sources))
	var wg sync.WaitGroup
	for i, s := range f.sources {
		wg.Go(func() { found[i], errs[i] = s.look(ctx, f.prober) })
	}
	wg.Wait()
	problems = slices.Concat(errs...)
	type key struct {
		Kind
		name string
	}
	seen := map[key]string{}
	for _, m := range slices.Concat(found...) {
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
	return members, problems
}

// Run looks now and then every Refresh, and calls report with the first result
// and with each that differs from the one before, until ctx is done.
func (f *Finder) Run(ctx context.Context, report func(members []Member, problems []error)) {
	var last []Member
	var said []string
	for first := true; ; first = false {
		members, problems := f.Look(ctx)
		if ctx.Err() != nil { // what failed because of that is no news
			return
		}
		words := make([]string, len(problems))
		for i, p := range problems {
			words[i] = p.Error()
		}
		if first || !slices.Equal(words, said) || !reflect.DeepEqual(members, last) {
			report(members, problems)
		}
		last, said = members, words
		next, stop := f.prober.opt.Clock.After(f.refresh)
		select {
		case <-next:
		case <-ctx.Done():
			stop()
			return
		}
	}
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

func (l *listed) look(ctx context.Context, p *Prober) (members []Member, problems []error) {
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
	found := make([][]Member, len(l.engines))
	errs := make([]error, len(l.engines))
	work := make(chan int)
	var wg sync.WaitGroup
	for range min(len(l.engines), p.opt.Parallel) {
		wg.Go(func() {
			for i := range work {
				found[i], errs[i] = l.engines[i].look(ctx, p)
			}
		})
	}
	for i := range l.engines {
		work <- i
	}
	close(work)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			problems = append(problems, err)
		}
	}
	return slices.Concat(found...), problems
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
