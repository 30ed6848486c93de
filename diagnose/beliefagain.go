package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// again remembers blocks that were computed anew though the index had them.
type again struct {
	of map[wire.Replica]*recomputed
}

// recomputed counts a replica's stored blocks in the current window of time and in
// the one before it.
type recomputed struct {
	window    wire.Time
	now, past anew
	// since is when the first block was computed anew, and the batches are those of
	// the first and the last.
	since    wire.Time
	from, to uint64
}

// anew counts blocks stored, and those that were there: in chains that go on from a
// block, and from the root.
type anew struct{ stored, behind, root int }

const (
	againWindow = 5 * minute
	// A finding needs this many blocks in two windows, and this share of all that
	// was stored in them.
	againBlocks = 32
	againShare  = 0.05
)

func newAgain() Memory { return &again{of: map[wire.Replica]*recomputed{}} }

func (m *again) Clone() Memory {
	c := &again{of: make(map[wire.Replica]*recomputed, len(m.of))}
	for name, r := range m.of {
		one := *r
		c.of[name] = &one
	}
	return c
}

func (m *again) Step(s *stream.Step, idx *index.Index) {
	if s.Kind == stream.Drop || s.Kind == stream.Forget {
		delete(m.of, s.Replica)
	}
	if s.Kind != stream.Apply {
		return
	}
	emptied := false
	for i := range s.Batch.Events {
		e := &s.Batch.Events[i]
		switch {
		case e.Kind == wire.Cleared:
			emptied = true
		case e.Tier != wire.Device || e.Plane:
		case e.Kind == wire.Stored && wire.Dense(e.Spec) && e.Aligned():
			there := 0
			if !emptied {
				there = m.there(s.Replica, s.Batch.Events[:i], e, idx)
			}
			m.count(s, e, there)
		}
	}
}

// there counts a store's leading blocks that the index has, less those that the events
// before it in the batch removed. One alone is no sign: the last block of a prompt is
// computed anew whenever the prompt ends with it.
func (m *again) there(name wire.Replica, before []wire.Event, e *wire.Event, idx *index.Index) int {
	n := 0
	if len(e.Hashes) < 2 {
		return 0
	}
	for n < len(e.Hashes) && idx.Holds(name, index.Place{Group: e.Group, Tier: e.Tier}, e.Hashes[n]) {
		n++
	}
	if n < 2 {
		return 0 // as nearly always, so that what was removed need not be known
	}
	gone := map[wire.Handle]bool{}
	for i := range before {
		if b := &before[i]; b.Kind == wire.Removed && b.Tier == wire.Device && !b.Plane {
			for _, h := range b.Hashes {
				gone[h] = true
			}
		}
	}
	if first := slices.IndexFunc(e.Hashes[:n], func(h wire.Handle) bool { return gone[h] }); first >= 0 {
		n = first
	}
	if n < 2 {
		return 0
	}
	return n
}

func (m *again) count(s *stream.Step, e *wire.Event, there int) {
	r := m.of[s.Replica]
	if r == nil {
		if len(m.of) >= maxRemembered {
			return
		}
		r = &recomputed{window: s.At / againWindow}
		m.of[s.Replica] = r
	}
	r.roll(s.At)
	r.now.stored += len(e.Hashes)
	if there == 0 {
		return
	}
	if e.Parent.Set {
		r.now.behind += there
	} else {
		r.now.root += there
	}
	if r.since == 0 {
		r.since, r.from = s.At, s.Batch.Seq
	}
	r.to = s.Batch.Seq
}

// roll begins a new window when it is time.
func (r *recomputed) roll(at wire.Time) {
	switch w := at / againWindow; {
	case w <= r.window:
	case w == r.window+1:
		r.window, r.past, r.now = w, r.now, anew{}
	default:
		*r = recomputed{window: w}
	}
	if r.now.behind+r.now.root+r.past.behind+r.past.root == 0 {
		r.since = 0
	}
}

// at sums up both windows as of a moment.
func (r *recomputed) at(now wire.Time) anew {
	switch now/againWindow - r.window {
	case 0:
		return anew{r.now.stored + r.past.stored, r.now.behind + r.past.behind, r.now.root + r.past.root}
	case 1:
		return r.now
	}
	return anew{}
}

// finding tells of blocks that were computed anew, if they are many.
func (r *recomputed) finding(rep *Replica, blocks, stored int) (Finding, bool) {
	if blocks < againBlocks || float64(blocks) < againShare*float64(stored) {
		return Finding{}, false
	}
	f := about(rep, Warning, r.since)
	f.Evidence.SeqFrom, f.Evidence.SeqTo = p(r.from), p(r.to)
	f.Effect.Blocks, f.Effect.Tokens = p(blocks), p(blocks*rep.Index.BlockSize)
	return f, true
}

func percent(part, of int) string {
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(max(1, of)))
}

// groupsOf names a replica's groups that need every block of a prefix, and the others.
func groupsOf(r *Replica) (dense, partial []string) {
	for _, g := range r.Index.Groups {
		word := cmp.Or(wire.Printable(g.Spec), "of unknown kind")
		if g.Window > 0 {
			word += fmt.Sprintf(" of %d tokens", g.Window)
		}
		if wire.Dense(g.Spec) {
			dense = append(dense, word)
		} else {
			partial = append(partial, word)
		}
	}
	slices.Sort(partial)
	return dense, slices.Compact(partial)
}

// eachWithGroups calls f for the replicas that have not left and have stored something.
func eachWithGroups(v View, f func(*Replica)) {
	for i := range v.Replicas {
		if r := &v.Replicas[i]; r.Link != wire.LinkGone && len(r.Index.Groups) > 0 {
			f(r)
		}
	}
}

// about gives what is remembered of a replica.
func (m *again) about(name wire.Replica) *recomputed {
	if r := m.of[name]; r != nil {
		return r
	}
	return new(recomputed)
}

func hybridOverprediction(v View, mem Memory) []Finding {
	var out []Finding
	eachWithGroups(v, func(r *Replica) {
		c := mem.(*again).about(r.Replica)
		dense, partial := groupsOf(r)
		if len(dense) == 0 || len(partial) == 0 {
			return
		}
		n := c.at(v.Now)
		others := strings.Join(partial[:min(len(partial), 3)], ", ")
		f, much := c.finding(r, n.root+n.behind, n.stored)
		f.Title = fmt.Sprintf("%s that full attention still had were computed anew in up to 10 min, %s of what was stored: the %s group lacked its part",
			count(uint64(n.root+n.behind), "block"), percent(n.root+n.behind, n.stored), others)
		f.Counterfactual = "a router that asks every group predicts no hit there; kvscope's depth does, and shows full attention's as the upper bound"
		f.Next = "compare cached_tokens with the router's overlap; give the model more cache, or have the router count hits of this model for less"
		if !much {
			f = about(r, Info, 0)
			f.Title = fmt.Sprintf("%s for prefixes (%s), %d that need a part of it (%s): full attention's depth is an upper bound of a hit",
				count(uint64(len(dense)), "group"), dense[0], len(r.Index.Groups)-len(dense), others)
			f.Counterfactual = "a model of one group hits as deep as its blocks go"
			f.Next = "look whether the router counts full attention alone, as Dynamo does: it then overpredicts where a short prompt is the beginning of a longer one"
		}
		out = append(out, f)
	})
	return out
}

func phantomHit(v View, mem Memory) []Finding {
	var out []Finding
	eachWithGroups(v, func(r *Replica) {
		c := mem.(*again).about(r.Replica)
		if len(r.Index.Groups) > 1 {
			return // of which hybrid-overprediction tells
		}
		// From the root on blocks are also announced for requests that ask for it
		// (kv_cache_report_mode=full), or that do not look at the cache
		// (prompt_logprobs).
		n := c.at(v.Now)
		f, much := c.finding(r, n.behind, n.stored)
		if !much {
			return
		}
		f.Title = fmt.Sprintf("%s that the index calls resident were computed anew in up to 10 min, %s of what was stored: they were phantoms",
			count(uint64(n.behind), "block"), percent(n.behind, n.stored))
		f.Counterfactual = "had their removals been seen, no hit would have been predicted for them"
		f.Next = "look for lost batches and undecodable events of this replica, and on SGLang for an extra_key that its hashes leave out; a router on the same stream has the same phantoms until the cache is cleared"
		out = append(out, f)
	})
	return out
}

func ghostMiss(v View, _ Memory) []Finding {
	var out []Finding
	eachWithGroups(v, func(r *Replica) {
		dense, partial := groupsOf(r)
		if len(dense) > 0 || r.Load.QueriedTokens < ghostTokens || r.Load.HitTokens > 0 {
			return
		}
		f := about(r, Warning, 0)
		f.Effect.Tokens = p(int(r.Load.QueriedTokens))
		f.Title = fmt.Sprintf("0 of %s prompt tokens were cache hits, and no group that holds whole prefixes stores blocks (%s alone)", rounded(r.Load.QueriedTokens), strings.Join(partial[:min(len(partial), 3)], ", "))
		f.Counterfactual = "with blocks stored for full attention a repeated prompt would hit"
		f.Next = "look whether the engine supports prefix caching for this model and mode: it stores nothing that can be used again, so round robin costs nothing here"
		out = append(out, f)
	})
	return out
}

// ghostTokens is how many prompt tokens an engine must have looked up before none
// found says something.
const ghostTokens = 1000

// An audit's disagreements are a finding from this many on, and from this share of
// the requests that could be judged.
const (
	auditRequests = 3
	auditShare    = 0.05
)

// audited makes a finding of a replica's requests on which index and engine disagree
// in one way.
func audited(v View, wrong func(*explain.Verdict) int, tell func(f *Finding, requests, of int)) []Finding {
	if v.Audit == nil {
		return nil
	}
	var out []Finding
	for i := range v.Audit.PerReplica {
		row := &v.Audit.PerReplica[i]
		if len(row.Replicas) != 1 {
			continue // nobody knows whose fault it is
		}
		f := Finding{Severity: Warning, Subject: string(row.Replicas[0]), Evidence: Evidence{Replica: row.Replicas[0]}}
		requests, tokens := 0, 0
		for k := range v.Audit.Disagreements {
			d := &v.Audit.Disagreements[k]
			n := wrong(d)
			if d.Log != row.Log || d.Start > v.Now || n <= 0 {
				continue
			}
			if requests++; requests == 1 {
				f.Since = d.Start
			}
			tokens += n
		}
		judged := row.Agree + row.Over + row.Under
		if requests < auditRequests || float64(requests) < auditShare*float64(judged) {
			continue
		}
		f.Effect.Tokens = p(tokens)
		tell(&f, requests, judged)
		out = append(out, f)
	}
	return out
}

func phantomAudit(v View) []Finding {
	return audited(v, func(d *explain.Verdict) int { return d.Predicted - d.Actual }, func(f *Finding, n, of int) {
		f.Title = fmt.Sprintf("%s of %s requests reused fewer tokens than the index promised, by %s in sum", wire.Grouped(n), wire.Grouped(of), wire.Grouped(*f.Effect.Tokens))
		f.Counterfactual = "with a true index the promise would be what the engine reports as cached"
		f.Next = "kvscope audit lists the requests; look for lost removals, groups of a hybrid model, and requests that skip the cache"
	})
}

func ghostAudit(v View) []Finding {
	return audited(v, func(d *explain.Verdict) int { return d.Actual - d.Predicted }, func(f *Finding, n, of int) {
		f.Title = fmt.Sprintf("%s of %s requests reused more tokens than the index knew of, by %s in sum", wire.Grouped(n), wire.Grouped(of), wire.Grouped(*f.Effect.Tokens))
		f.Counterfactual = "with all stores seen the index would have promised what the engine reused"
		f.Next = "kvscope audit lists the requests; look for stores that never came, and for tiers and adapters that the engine does not announce"
		if v.Audit.Funnel.Somewhere == 0 {
			f.Title += "; no token of any request is known here"
			f.Next = sameFleet + f.Next
		}
	})
}
