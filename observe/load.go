package observe

import (
	"errors"

	"github.com/kvscope/kvscope/wire"
)

var errNoLoad = errors.New("what comes from its load socket is no load message: is this the right port?")

// load takes what a publisher of load sends, and reports whether that is what
// it was: such a message has no place in a stream of events.
func (o *Observer) load(rec wire.Record) bool {
	of, only := wire.LoadOf(rec.Replica)
	if rec.Kind != wire.Frames {
		return only
	}
	report, ok, err := wire.DecodeLoad(rec.Frames)
	switch {
	case !ok && !only:
		return false
	case !ok:
		err = errNoLoad
	case report.Replica != "":
		of = report.Replica
	}
	name := o.ofRank(of, report.Rank)
	s, seen := o.tracker.State(name)
	switch {
	case err == nil && name != "":
		o.apply(o.tracker.Tell(name, rec.At, s.Facts, report.Onto(s.Load, s.Facts, rec.At)))
	case seen:
		o.apply(o.tracker.Describe(name, rec.At, s.Facts, s.Load, err.Error()))
	}
	return true
}

// ofRank finds the replica of a data-parallel rank among those that share a
// name, empty if there is none; one that has not said its rank is taken to be
// the only one.
func (o *Observer) ofRank(name wire.Replica, rank int) wire.Replica {
	all := o.tracker.Ranks(name)
	for _, one := range all {
		s, seen := o.tracker.State(one)
		if s.Rank == rank || len(all) == 1 && (!seen || s.Rank < 0) {
			return one
		}
	}
	return ""
}

// Describe takes what is known of a replica from elsewhere than its metrics
// page, such as discovery: of what is left out, what is known stays.
func (o *Observer) Describe(name wire.Replica, at wire.Time, facts wire.Facts) {
	s, _ := o.tracker.State(name)
	facts = merge(s.Facts, facts)
	o.apply(o.tracker.Tell(name, at, facts, s.Load))
	o.learn(name, facts)
}
