package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// What routing is judged over. A look is taken every lookEvery, and all numbers are
// of the last window: long enough for shares to mean something at a request a second,
// short enough to be told while it matters.
const (
	window    = wire.Time(60e9)
	lookEvery = wire.Time(5e9)
	// freshLoad is how old a load may be: pages are fetched every two seconds.
	freshLoad = wire.Time(10e9)
	// maxLooked is how many replicas are judged; those beyond are not.
	maxLooked = 512
)

// look is what a replica had done by a moment, and how busy it was.
type look struct {
	replica wire.Replica
	epoch   int
	load    wire.Load
	fresh   bool
	ledger  index.Ledger
	turns   index.Turns
	removed uint64
}

func lookAt(v View, r *Replica) look {
	return look{
		replica: r.Replica, epoch: r.Epoch, load: r.Load, fresh: r.Load.Known && v.Now-r.Load.At <= freshLoad,
		ledger: r.Index.Ledger, turns: r.Index.Turns, removed: r.Index.Removed,
	}
}

// traffic remembers looks at a fleet over a window. A look never changes, so copies
// share them.
type traffic struct {
	at    []wire.Time
	looks [][]look // by name, as a View has them
	// known are the flows of one View, which several checks ask for; of and when tell
	// which.
	known [][]flow
	of    *Replica
	when  wire.Time
}

func newTraffic() Memory { return &traffic{} }

// Step needs nothing: all is in the View.
func (*traffic) Step(*stream.Step, *index.Index) {}

// Clone copies it.
func (t *traffic) Clone() Memory {
	return &traffic{at: slices.Clone(t.at), looks: slices.Clone(t.looks)}
}

// see takes a look if one is due, and forgets those that nobody needs any more: one
// from before the window is kept, to count from.
func (t *traffic) see(v View) {
	if n := len(t.at); n > 0 && v.Now < t.at[n-1]+lookEvery {
		if v.Now < t.at[n-1] { // a clock that was set back
			*t = traffic{}
		}
		return
	}
	var all []look
	for i := range v.Replicas[:min(len(v.Replicas), maxLooked)] {
		all = append(all, lookAt(v, &v.Replicas[i]))
	}
	t.at, t.looks = append(t.at, v.Now), append(t.looks, all)
	drop := 0
	for drop+1 < len(t.at) && t.at[drop+1] <= v.Now-window {
		drop++
	}
	t.at, t.looks = slices.Delete(t.at, 0, drop), slices.Delete(t.looks, 0, drop)
}

// flow is what a replica did in the window.
type flow struct {
	*Replica
	// loaded says that its load was known all the time; without it what follows
	// of load and of requests is 0.
	loaded bool
	// requests were finished; of queried prompt tokens hit came from the cache.
	requests, queried, hit float64
	// flight is how many requests it had at a time, on average.
	flight  float64
	ledger  index.Ledger
	turns   index.Turns
	removed uint64
}

// stored is how many blocks were stored on the device.
func (f *flow) stored() uint64 {
	l := f.ledger
	return l.First + l.Elsewhere + l.EvictedHere + l.EvictedElsewhere + l.Duplicate + l.Unattached
}

// seconds says how long a time is.
func seconds(d wire.Time) string { return fmt.Sprintf("%d s", d/1e9) }

// over says how long the window is: up to a look longer than window.
func (t *traffic) over(v View) string { return seconds(v.Now - t.at[0]) }

// flows gives what the replicas of each model did, all of which could have been
// chosen for the whole window: there from before it, reached, and not restarted. It
// gives nothing before a window is over.
func (t *traffic) flows(v View) [][]flow {
	if len(v.Replicas) == 0 {
		t.see(v)
		return nil
	}
	if of := &v.Replicas[0]; t.of != of || t.when != v.Now {
		t.see(v)
		t.known, t.of, t.when = t.count(v), of, v.Now
	}
	return t.known
}

// count gives the flows of a View.
func (t *traffic) count(v View) [][]flow {
	if len(t.at) == 0 || t.at[0] > v.Now-window {
		return nil
	}
	byModel := map[string][]flow{}
	var models []string
	for i := range v.Replicas[:min(len(v.Replicas), maxLooked)] {
		r := &v.Replicas[i]
		f, ok := t.flow(v, i)
		if !ok {
			continue
		}
		if byModel[r.Model] == nil {
			models = append(models, r.Model)
		}
		byModel[r.Model] = append(byModel[r.Model], f)
	}
	slices.Sort(models)
	var out [][]flow
	for _, m := range models {
		out = append(out, byModel[m])
	}
	return out
}

// reachable reports whether requests can be sent to a replica, as far as is known.
func reachable(r *Replica) bool {
	return r.Link != wire.LinkDown && r.Link != wire.LinkRefused && r.Link != wire.LinkGone
}

// lookOf finds a replica among the looks of one moment; it is mostly where it is now.
func lookOf(all []look, name wire.Replica, where int) *look {
	if where < len(all) && all[where].replica == name {
		return &all[where]
	}
	i, ok := slices.BinarySearchFunc(all, name, func(l look, name wire.Replica) int { return cmp.Compare(l.replica, name) })
	if !ok {
		return nil
	}
	return &all[i]
}

func (t *traffic) flow(v View, where int) (flow, bool) {
	r := &v.Replicas[where]
	f := flow{Replica: r, loaded: true}
	now, n := lookAt(v, r), 0
	for _, all := range t.looks {
		l := lookOf(all, r.Replica, where)
		if l == nil || l.epoch != now.epoch {
			return f, false
		}
		n++
		f.flight += l.load.Running + l.load.Waiting
		f.loaded = f.loaded && l.fresh
	}
	old := lookOf(t.looks[0], r.Replica, where)
	f.flight /= float64(n)
	f.requests, f.queried, f.hit = now.load.Requests-old.load.Requests, now.load.QueriedTokens-old.load.QueriedTokens, now.load.HitTokens-old.load.HitTokens
	if now.removed < old.removed || now.ledger.First < old.ledger.First || f.requests < 0 || f.queried < 0 || f.hit < 0 {
		return f, false // it was counted anew
	}
	if f.loaded = f.loaded && now.fresh; !f.loaded {
		f.requests, f.queried, f.hit, f.flight = 0, 0, 0, 0
	}
	f.ledger, f.turns, f.removed = since(now.ledger, old.ledger), turnsSince(now.turns, old.turns), now.removed-old.removed
	return f, reachable(r)
}

func since(l, m index.Ledger) index.Ledger {
	return index.Ledger{
		First: l.First - m.First, Elsewhere: l.Elsewhere - m.Elsewhere, EvictedHere: l.EvictedHere - m.EvictedHere,
		EvictedElsewhere: l.EvictedElsewhere - m.EvictedElsewhere, Duplicate: l.Duplicate - m.Duplicate, Unattached: l.Unattached - m.Unattached,
	}
}

func turnsSince(t, u index.Turns) index.Turns {
	return index.Turns{
		Cold: t.Cold - u.Cold, Kept: t.Kept - u.Kept, Moved: t.Moved - u.Moved,
		Returned: t.Returned - u.Returned, MovedBlocks: t.MovedBlocks - u.MovedBlocks,
	}
}

// allLoaded reports whether the load of all is known: a share of what only some tell
// of is none.
func allLoaded(all []flow) bool {
	return !slices.ContainsFunc(all, func(f flow) bool { return !f.loaded })
}

// most gives the one that has most of something, and how much all have.
func most(all []flow, of func(*flow) float64) (hot *flow, total float64) {
	for i := range all {
		f := &all[i]
		if total += of(f); hot == nil || of(f) > of(hot) {
			hot = f
		}
	}
	return hot, total
}

// others is the average of something over all but one.
func others(all []flow, hot *flow, of func(*flow) float64) float64 {
	sum := 0.0
	for i := range all {
		if f := &all[i]; f != hot {
			sum += of(f)
		}
	}
	return sum / float64(len(all)-1)
}

// cv is the coefficient of variation: the standard deviation by the mean. It is 0 for
// equal shares, and the root of n-1 where one of n has all.
func cv(all []flow, of func(*flow) float64) float64 {
	_, total := most(all, of)
	mean, sum := total/float64(len(all)), 0.0
	for i := range all {
		d := of(&all[i]) - mean
		sum += d * d
	}
	if mean == 0 {
		return 0
	}
	return math.Sqrt(sum/float64(len(all))) / mean
}

func requestsOf(f *flow) float64 { return f.requests }
func flightOf(f *flow) float64   { return f.flight }
func coldOf(f *flow) float64     { return float64(f.turns.Cold) }

// What a share of the traffic costs: a queue, or evictions, that others would not
// have. Without one of them a high share is what cache-aware routing is for.
const (
	// strainFlight requests at a time on one replica, and strainTimes as many as the
	// others have on average, is more than a router with a limit lets come: one that
	// sends to the longest prefix until it has s more than the idlest keeps below
	// four times for any s up to 6, and a larger s is a limit that helps nobody.
	strainFlight, strainTimes = 8, 4
	// strainRemoved blocks were evicted where the others evicted none.
	strainRemoved = 100
)

// strain says what the share of the hottest costs it, "" if nothing.
func strain(all []flow, hot *flow) string {
	if rest := others(all, hot, flightOf); allLoaded(all) && hot.flight >= strainFlight && hot.flight >= strainTimes*rest {
		return fmt.Sprintf("%.0f requests at a time are on it, %.1f on each of the others", hot.flight, rest)
	}
	roomy := hot.removed >= strainRemoved
	for i := range all {
		f := &all[i]
		roomy = roomy && (f == hot || f.removed == 0 && f.Facts.Capacity > 0 && f.Index.Copies <= f.Facts.Capacity/2)
	}
	if roomy {
		return fmt.Sprintf("it evicted %s, and the others have room", count(hot.removed, "block"))
	}
	return ""
}

// share writes a part of a whole.
func share(part, whole float64) string { return fmt.Sprintf("%.0f %%", 100*part/whole) }

// ofModel tells the fleets of several models apart in a finding about all of one.
func ofModel(f Finding, all []flow) Finding {
	f.about = all[0].Model
	return f
}
