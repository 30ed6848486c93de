package tui

import (
	"slices"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// whatIfRow is a replica: what it holds of the prompt, and what the router makes
// of it as a candidate.
type whatIfRow struct {
	*observe.Row
	// cand is nil where it is none.
	cand *explain.Candidate
	// matched says that its match was set by hand.
	matched bool
	// strip is the row's at the width that it was last drawn with.
	strip  []cellKind
	stripW int
}

// blocks gives the row's strip of at most w places.
func (r *whatIfRow) blocks(w int) []cellKind {
	if r.stripW != w {
		r.strip, r.stripW = blockStrip(r.Cells, w), w
	}
	return r.strip
}

// all joins the answers: candidates in the order of their ranks, then who is none.
func (v *whatIf) all(s *scene) []*whatIfRow {
	if v.answer == nil {
		return nil
	}
	if of := [2]any{v.answer, v.why}; v.joinedOf != of {
		v.joined, v.joinedOf = v.join(s.snap), of
	}
	return v.joined
}

func (v *whatIf) join(snap *observe.Snapshot) []*whatIfRow {
	held := make(map[wire.Replica]*observe.Row, len(v.answer.Rows))
	for i := range v.answer.Rows {
		held[v.answer.Rows[i].Replica] = &v.answer.Rows[i]
	}
	var out []*whatIfRow
	if v.why != nil {
		for i := range v.why.Candidates {
			c := &v.why.Candidates[i]
			row := held[c.Replica]
			if row == nil { // no cache event came of it: it can be chosen all the same
				row = &observe.Row{Replica: c.Replica}
				for at := range snap.Replicas {
					if snap.Replicas[at].Replica == c.Replica {
						row.Trust = snap.Replicas[at].Trust
					}
				}
			}
			delete(held, c.Replica)
			by := slices.ContainsFunc(v.edits, func(e explain.Edit) bool { return e.Key == string(c.Replica)+":matched_blocks" })
			out = append(out, &whatIfRow{Row: row, cand: c, matched: by})
		}
	}
	for i := range v.answer.Rows {
		if r := &v.answer.Rows[i]; held[r.Replica] != nil {
			out = append(out, &whatIfRow{Row: r})
		}
	}
	return out
}

// tier is how many blocks match on a tier: what the engine holds, or what was set
// by hand.
func (r *whatIfRow) tier(at int) int {
	if r.matched {
		return r.cand.Match[at]
	}
	return tierColumns[at].n(r.Row)
}

func (r *whatIfRow) cached() int {
	if r.cand != nil {
		return r.cand.CachedTokens
	}
	return r.CachedTokens
}

// byHand marks what was edited.
const byHand = "*"

func (r *whatIfRow) rank() string {
	switch {
	case r.cand == nil:
		return ""
	case r.cand.Rank == 0:
		return "out"
	}
	return wire.Grouped(r.cand.Rank)
}

func (r *whatIfRow) cost() string {
	switch {
	case r.cand == nil:
		return glyphNone
	case r.cand.Rank == 0:
		return "out"
	}
	return about(r.Row) + explain.Number(r.cand.Cost)
}

func (r *whatIfRow) chance() string {
	if r.cand == nil || r.cand.Probability == 0 {
		return ""
	}
	return percent(r.cand.Probability, 1)
}

func (r *whatIfRow) load() string {
	switch {
	case r.cand == nil:
		return ""
	case r.cand.Load.ByHand():
		return r.cand.Load.State.String() + byHand
	}
	return r.cand.Load.State.String()
}

func (r *whatIfRow) loadFrom() string {
	if r.cand == nil {
		return ""
	}
	return clean(r.cand.Load.From)
}

// term is what a term adds to the cost.
func (r *whatIfRow) term(at int) string {
	if r.cand == nil || at >= len(r.cand.Terms) {
		return ""
	}
	return explain.Number(r.cand.Terms[at].Cost)
}
