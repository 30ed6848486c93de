package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// Decision is what a router took a replica to hold of a prompt when it chose it.
type Decision struct {
	At wire.Time
	// Replica is our name of the one that it chose.
	Replica wire.Replica
	// Blocks are the sequence hashes of the prompt's full blocks of BlockSize tokens,
	// and Overlap how many of them it took for cached, those on lower tiers by their
	// weights.
	Blocks             []uint64
	BlockSize, Overlap int
}

// underWay is how long an engine's event takes to a router at most: any overlap that
// the replica had in so long before a decision is right.
const underWay = wire.Time(250e6)

// decisions holds a router's decisions against the index while it changes.
type decisions struct {
	rows []Decision // in order of their times
	next int        // the first that is not open yet
	open []*openDecision
	by   map[wire.Replica]*diagnose.Decided
	// outside are those before the first record or behind the last, strange those for
	// a replica that is none of ours or has another block size, and unsure those for
	// one that was in doubt.
	outside, strange, unsure int
}

// openDecision is one whose time is near. The replica had low to high blocks of it, on
// the device and on any tier.
type openDecision struct {
	*Decision
	low, high int
}

func newDecisions(rows []Decision) *decisions {
	return &decisions{
		rows: slices.SortedStableFunc(slices.Values(rows), func(a, b Decision) int { return cmp.Compare(a.At, b.At) }),
		by:   map[wire.Replica]*diagnose.Decided{},
	}
}

// before is told that something changes at a moment.
func (d *decisions) before(o *Observer, at wire.Time) {
	for ; d.next < len(d.rows) && d.rows[d.next].At-underWay <= at; d.next++ {
		row := &d.rows[d.next]
		if row.At < o.from {
			d.outside++
			continue
		}
		one := &openDecision{Decision: row}
		one.low, one.high = o.idx.Depth(row.Replica, row.Blocks)
		d.open = append(d.open, one)
	}
	for len(d.open) > 0 && d.open[0].At < at {
		d.judge(o, d.open[0])
		d.open = d.open[1:]
	}
}

// after is told that a replica's blocks changed.
func (d *decisions) after(o *Observer, name wire.Replica) {
	for _, one := range d.open {
		if one.Replica == name {
			device, all := o.idx.Depth(name, one.Blocks)
			one.low, one.high = min(one.low, device), max(one.high, all)
		}
	}
}

func (d *decisions) judge(o *Observer, one *openDecision) {
	s, ours := o.tracker.State(one.Replica)
	x := o.idx.Stats(one.Replica)
	switch {
	case !ours || x.BlockSize != 0 && x.BlockSize != one.BlockSize:
		d.strange++
		return
	case !o.trust(&s, x).Exact():
		d.unsure++
		return
	}
	row := d.by[one.Replica]
	if row == nil {
		row = &diagnose.Decided{Replica: one.Replica}
		d.by[one.Replica] = row
	}
	row.Rows++
	row.Met += b2i(one.high > 0)
	switch {
	case one.Overlap > one.high:
		row.More++
		row.MoreBlocks += one.Overlap - one.high
	case one.Overlap < one.low:
		row.Fewer++
		row.FewerBlocks += one.low - one.Overlap
	default:
		return
	}
	if row.Since == 0 {
		row.Since = one.At
	}
}

// Decided ends the judging of the decisions of Options, for the check
// router-divergence, and gives how many were compared. The error says why some or all
// were not.
func (o *Observer) Decided() (compared int, err error) {
	d := o.decided
	if d == nil {
		return 0, nil
	}
	o.decided = nil
	d.before(o, o.now+1)
	d.outside += len(d.rows) - d.next + len(d.open)
	if o.belief == nil {
		o.belief = &diagnose.Belief{At: o.now}
	}
	for _, name := range slices.SortedFunc(maps.Keys(d.by), compareNames) {
		compared += d.by[name].Rows
		o.belief.Decided = append(o.belief.Decided, *d.by[name])
	}
	if compared == 0 {
		return 0, fmt.Errorf("none of %d decisions can be compared: %d are outside the recording's time, %d of replicas that are not in it or have another block size (say with --map what they are called here), %d of replicas in doubt",
			len(d.rows), d.outside, d.strange, d.unsure)
	}
	return compared, nil
}

func compareNames(a, b wire.Replica) int { return cmp.Compare(a, b) }
