package diagnose

import (
	"fmt"
	"strings"

	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// Belief is what a router said of the caches, held against our index: its whole
// index, its decisions, or both.
type Belief struct {
	// Source says where its index came from, "" without one, and At when it was
	// compared.
	Source string
	At     wire.Time
	// Rows are the replicas that were compared, by name.
	Rows []Divergence
	// Strangers are those of the router's replicas that are none of ours, and
	// StrangeBlocks what it counts for them.
	Strangers     []wire.Replica
	StrangeBlocks int
	// RelayLoss says that relay-loss was open then.
	RelayLoss bool
	// Decided are its decisions, by the replica that it chose.
	Decided []Decided
}

// Divergence compares what a router's index and ours hold of one replica, in distinct
// blocks on each tier.
type Divergence struct {
	Replica wire.Replica
	// BlockSize is that of the router's index, in tokens, 0 where it does not say.
	BlockSize int
	// Router and Ours count the blocks of either, Both those that both have.
	Router, Ours, Both int
	// Stale are those that the router alone has, of which Gone were removed here;
	// Missing are those that we alone have, of which Keyed belong to prompts with an
	// adapter or a cache salt. Of two looks only what differed in both is counted.
	Stale, Gone, Missing, Keyed int
	// Passing are those that differed in the second of two looks alone.
	Passing int
	// Unplaced are blocks of the router's behind a parent that it does not hold.
	Unplaced int
}

// Decided holds a router's decisions for one replica against our index at their time.
type Decided struct {
	Replica wire.Replica
	// Rows were compared. In More of them the router took more blocks for cached than
	// the replica had, MoreBlocks in all, and in Fewer fewer.
	Rows, More, MoreBlocks, Fewer, FewerBlocks int
	// Met counts those of whose prompt the replica had any block.
	Met int
	// Since is the time of the first that differs.
	Since wire.Time
}

const (
	// divergedShare of a replica's blocks must differ to warn: less is what a dump
	// differs by that was made a moment before or after.
	divergedShare = 0.05
	// divergedRows decisions must differ to warn, and divergedShare of all.
	divergedRows = 4
)

// sameFleet comes first where a recording and what it is held against have nothing in
// common.
const sameFleet = "first see that both are of one fleet, time and model, and the recording not redacted: otherwise nothing can be the same; then "

// routerDivergence gives at most one finding for a replica's blocks and one for its
// decisions.
func routerDivergence(v View) []Finding {
	if v.Belief == nil {
		return nil
	}
	var out []Finding
	for i := range v.Belief.Rows {
		d := &v.Belief.Rows[i]
		if r := replicaOf(v, d.Replica); r != nil {
			if f, ok := d.finding(r, v.Belief); ok {
				out = append(out, f)
			}
		}
	}
	for i := range v.Belief.Decided {
		if f, ok := v.Belief.Decided[i].finding(); ok {
			out = append(out, f)
		}
	}
	if n := len(v.Belief.Strangers); n > 0 {
		f := Finding{Severity: Info, Subject: "fleet", Since: v.Belief.At, about: "strangers"}
		f.Effect.Blocks = p(v.Belief.StrangeBlocks)
		verb := "are"
		if n == 1 {
			verb = "is"
		}
		f.Title = fmt.Sprintf("the router counts %s for %s that %s not observed here: %s",
			count(uint64(v.Belief.StrangeBlocks), "block"), count(uint64(n), "replica"), verb, some(v.Belief.Strangers))
		f.Counterfactual = "if they are gone, prompts go by what nobody has"
		f.Next = "say with --map what they are called here, observe them too, or have the router forget them"
		out = append(out, f)
	}
	return out
}

func replicaOf(v View, name wire.Replica) *Replica {
	for i := range v.Replicas {
		if v.Replicas[i].Replica == name {
			return &v.Replicas[i]
		}
	}
	return nil
}

// finding words what differs of one replica, and reports false where nothing does.
func (d *Divergence) finding(r *Replica, b *Belief) (Finding, bool) {
	f := about(r, Warning, b.At)
	size := r.Index.BlockSize
	if d.BlockSize > 0 && size > 0 && d.BlockSize != size && d.Router > 0 {
		f.Title = fmt.Sprintf("the router's index has blocks of %d tokens, the replica of %d: none of its %s can be found", d.BlockSize, size, count(uint64(d.Ours), "block"))
		f.Effect.Blocks = p(d.Ours)
		f.Counterfactual = "with one size the router would find what the replica has"
		f.Next = "give the router the engine's own block size"
		return f, true
	}
	if d.Stale+d.Missing == 0 {
		return f, false
	}
	f.Effect.Blocks = p(d.Stale + d.Missing)
	if r.Trust.Word == stream.Blind && d.Ours == 0 {
		f.Severity = Info
		f.Title = fmt.Sprintf("the router counts %s here, and nothing is known that they could be held against: %s", count(uint64(d.Router), "block"), r.Trust)
		f.Next = "listen from the replica's first event on (--replay=full where it has a replay socket), or until it has cleared its cache"
		return f, true
	}
	if size > 0 {
		f.Effect.Tokens = p((d.Stale + d.Missing) * size)
	}
	var says, then, next []string
	if d.Stale > 0 {
		says = append(says, fmt.Sprintf("counts %s that the replica has not, %s of its %s", count(uint64(d.Stale), "block"), percent(d.Stale, d.Router), wire.Grouped(d.Router)))
		then = append(then, fmt.Sprintf("no prompt would be sent there for %s", count(uint64(d.Stale), "block")))
		next = append(next, "have the router read this replica's state anew (Dynamo does when the worker is registered anew or the router restarts)")
	}
	if d.Missing > 0 {
		says = append(says, fmt.Sprintf("lacks %s that the replica has, %s of %s", count(uint64(d.Missing), "block"), percent(d.Missing, d.Ours), wire.Grouped(d.Ours)))
		then = append(then, fmt.Sprintf("prompts would find %s more", count(uint64(d.Missing), "block")))
		next = append(next, "see that the router hears this replica's events from the first on: kvscope doctor, the status of its own listener, and its log")
	}
	f.Title = "the router " + strings.Join(says, ", and ") + d.why(r, b)
	f.Counterfactual = "with a true index " + strings.Join(then, ", and ")
	f.Next = strings.Join(next, "; ")
	if d.Router > 0 && d.Ours > 0 && d.Both+d.Gone+d.Passing == 0 {
		f.Title += "; no block is the same on both sides"
		f.Next = sameFleet + f.Next
	}
	if d.Passing > 0 {
		f.Title += fmt.Sprintf("; %s more differed in one of two looks, as events on their way do", wire.Grouped(d.Passing))
	}
	switch {
	case !r.Trust.Exact():
		f.Severity = Info
		f.Title += fmt.Sprintf("; our own side is in doubt (%s), so it may be ours that is wrong", r.Trust)
		f.Next = "first make our side sure: see the findings on " + wire.Printable(string(r.Replica)) + "'s stream; then " + f.Next
	case 2*d.Keyed > d.Missing+d.Stale:
		f.Severity = Info
		f.Title += fmt.Sprintf("; %s are of prompts with an adapter or a cache salt, which the router may name otherwise", wire.Grouped(d.Keyed))
	case float64(d.Stale+d.Missing) < divergedShare*float64(max(d.Router, d.Ours)):
		f.Severity = Info
	}
	return f, true
}

// why says what is proved of where the difference comes from.
func (d *Divergence) why(r *Replica, b *Belief) (out string) {
	if d.Gone > 0 {
		out = fmt.Sprintf("; %s of the former were removed here", wire.Grouped(d.Gone))
		if r.Restarts > 0 {
			out += fmt.Sprintf(", and the replica restarted (%s)", count(uint64(r.Restarts), "time"))
		} else if r.Index.Cleared > 0 {
			out += ", and its cache was cleared"
		}
	}
	if d.Missing > 0 && b.RelayLoss {
		out += "; Dynamo's relay loses events (relay-loss)"
	}
	if d.Missing > 0 && d.Unplaced > 0 {
		out += fmt.Sprintf("; %s of the router's hang on a parent that it does not hold", count(uint64(d.Unplaced), "block"))
	}
	return out
}

// finding words which decisions went by something else, and reports false where none
// did.
func (d *Decided) finding() (Finding, bool) {
	differ := d.More + d.Fewer
	f := Finding{Severity: Info, Subject: string(d.Replica), Since: d.Since, Evidence: Evidence{Replica: d.Replica}, about: "trace"}
	if differ == 0 {
		return f, false
	}
	if differ >= divergedRows && float64(differ) >= divergedShare*float64(d.Rows) {
		f.Severity = Warning
	}
	f.Effect.Blocks = p(d.MoreBlocks + d.FewerBlocks)
	var says []string
	if d.More > 0 {
		says = append(says, fmt.Sprintf("%s took %s more for cached than it had", wire.Grouped(d.More), count(uint64(d.MoreBlocks), "block")))
	}
	if d.Fewer > 0 {
		says = append(says, fmt.Sprintf("%s took %s fewer than it had", wire.Grouped(d.Fewer), count(uint64(d.FewerBlocks), "block")))
	}
	f.Title = fmt.Sprintf("of the router's %s to send a prompt there, %s", count(uint64(d.Rows), "decision"), strings.Join(says, ", and "))
	f.Counterfactual = fmt.Sprintf("with a true index %s would have gone by what the replica has", count(uint64(differ), "decision"))
	f.Next = "compare its whole index: --ask-indexer URL, or --router-dump FILE with a recording"
	if d.Met == 0 {
		f.Title += "; it had no block of any of these prompts"
		f.Next = sameFleet + f.Next
	}
	return f, true
}
