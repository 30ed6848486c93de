package diagnose

import (
	"fmt"

	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// isNewest reports whether a mark is the newest of its kind.
func isNewest(r *Replica, m stream.Mark) bool {
	for i := len(r.Marks) - 1; i >= 0; i-- {
		if r.Marks[i].Kind == m.Kind {
			return r.Marks[i] == m
		}
	}
	return false
}

// takenEffect tells of blocks that a clear or restart took.
func takenEffect(r *Replica, blocks int) Effect {
	if blocks <= 0 {
		return Effect{}
	}
	return blocksEffect(r, blocks)
}

// blocksEffect puts a number of a replica's blocks in tokens and as a share, where
// that is known.
func blocksEffect(r *Replica, blocks int) Effect {
	e := Effect{Blocks: p(blocks)}
	if r.Index.BlockSize > 0 {
		e.Tokens = p(blocks * r.Index.BlockSize)
	}
	if r.Facts.Capacity > 0 {
		e.Share = p(min(1, float64(blocks)/float64(r.Facts.Capacity)))
	}
	return e
}

// leastHeld is from how long on a clear counts as held back: shorter is a step.
const leastHeld = wire.Time(1e9)

// heldBack gives how long a clear can have gone unannounced, 0 where it was told at
// once.
func heldBack(m *stream.Mark) wire.Time {
	if held := m.At - m.Since; m.Since > 0 && held >= leastHeld {
		return held
	}
	return 0
}

func clearHeldBack(v View) []Finding {
	return eachMark(v, stream.MarkCleared, Info, func(r *Replica, m stream.Mark, f *Finding) {
		held := heldBack(&m)
		if held == 0 {
			return
		}
		f.Since, f.Until = m.Since, p(m.At)
		f.Title = fmt.Sprintf("cleared its prefix cache while idle, and announced it up to %s later, with the next request's blocks (batch %s)", ago(held), wire.Grouped(m.Seq))
		f.Counterfactual = "announced at once, no router would have counted the old blocks in that time"
		f.Next = "expect the first request after a reset of an idle engine to be routed by blocks that are gone; send one small request right after each reset"
		if isNewest(r, m) {
			f.Effect = takenEffect(r, r.Index.LastClear)
		}
	})
}

// ago words a length of time.
func ago(d wire.Time) string {
	switch s := d.Seconds(); {
	case s < 1:
		return fmt.Sprintf("%.0f ms", 1000*s)
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 120:
		return fmt.Sprintf("%.0f s", s)
	case s < 7200:
		return fmt.Sprintf("%.0f min", s/60)
	default:
		return fmt.Sprintf("%.0f h", s/3600)
	}
}
