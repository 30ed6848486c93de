package diagnose

import (
	"fmt"

	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// shownGaps is how many lost gaps of a replica and cause are findings of their own;
// what is older is one more.
const shownGaps = 8

// causeOf is a gap's cause by all that is known. An answer that begins behind a gap
// was clipped only if the buffer cannot have held the gap too.
func causeOf(r *Replica, g *stream.Gap) stream.Cause {
	holds := max(r.Kept, uint64(max(0, r.Facts.Buffer)))
	if g.Cause == stream.Clipped && holds > g.Kept+g.To-g.From {
		return stream.Unfillable
	}
	return g.Cause
}

// eachLost makes findings of the gaps of one cause that stayed.
func eachLost(v View, cause stream.Cause, tell func(*Replica, *stream.Gap, *Finding)) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		lost, more := 0, 0
		var older *Finding
		for k := len(r.Gaps) - 1; k >= 0; k-- {
			g := &r.Gaps[k]
			switch {
			case g.Healed, causeOf(r, g) != cause,
				r.Trust.Word == stream.Replaying && g.Reason == stream.NotReplayed: // it is being asked for
			case lost < shownGaps:
				lost++
				f := lostGap(r, g)
				tell(r, g, &f)
				out = append(out, f)
			case older == nil:
				f := lostGap(r, g)
				tell(r, g, &f)
				older, more = &f, 1
			default:
				more++
				*older.Evidence.SeqFrom, older.Since = g.From, g.Seen
			}
		}
		if older != nil {
			if cause == stream.Unexplained {
				more += r.GapsLost
			}
			older.Title = fmt.Sprintf("%s were lost before that (report --json lists up to 1 024)", count(uint64(more), "run of batches"))
			out = append(out, *older)
		}
	}
	return out
}

// lostGap is what findings of lost batches have in common.
func lostGap(r *Replica, g *stream.Gap) Finding {
	f := about(r, Error, g.Seen)
	f.Evidence.SeqFrom, f.Evidence.SeqTo = p(g.From), p(g.To)
	f.Counterfactual = "with these batches the index of " + string(r.Replica) + " would be exact"
	if f.Until = endedBy(r, g.Seen); f.Until != nil {
		f.Severity = Warning
	} else {
		f.Effect = doubtEffect(r)
	}
	f.Title = fmt.Sprintf("%s lost (%s–%s), %s", count(g.To-g.From+1, "batch"), wire.Grouped(g.From), wire.Grouped(g.To), g.Reason)
	return f
}

const exactAgain = "; clearing its prefix cache would make the index exact, and cost all its hits"

func seqGap(v View) []Finding {
	out := eachLost(v, stream.Unexplained, func(r *Replica, g *stream.Gap, f *Finding) {
		f.Next = "give the engine a replay_endpoint, so that what is missed can be fetched, and look for what loses batches" + exactAgain
		if d := r.Drops; d.Messages > 0 && d.First <= g.Seen && g.Seen <= d.Last {
			f.Next = "see tap-too-slow: kvscope itself dropped messages of this replica at that time" + exactAgain
		}
	})
	for i := range v.Replicas {
		r := &v.Replicas[i]
		for k := range r.Gaps {
			if g := &r.Gaps[k]; g.Healed {
				out = append(out, healedGap(r, g))
			}
		}
	}
	return out
}

func healedGap(r *Replica, g *stream.Gap) Finding {
	f := about(r, Info, g.Seen)
	f.Evidence.SeqFrom, f.Evidence.SeqTo = p(g.From), p(g.To)
	f.Until = p(g.HealedAt)
	f.Title = fmt.Sprintf("%s missed live (%s–%s) and recovered by replay", count(g.To-g.From+1, "batch"), wire.Grouped(g.From), wire.Grouped(g.To))
	f.Next = "nothing to do; if it comes back, look for a slow link or a small high-water mark (hwm)"
	return f
}

// replayClipped tells of answers that begin later than what was asked for: in a gap,
// or when what was joined late was to be rebuilt.
func replayClipped(v View) []Finding {
	out := eachLost(v, stream.Clipped, func(r *Replica, g *stream.Gap, f *Finding) {
		f.Title = fmt.Sprintf("%s lost (%s–%s): the publisher's replay begins only at batch %s, as it keeps no more than %s",
			count(g.To-g.From+1, "batch"), wire.Grouped(g.From), wire.Grouped(g.To), wire.Grouped(g.To+1), count(g.Kept, "batch"))
		if g.From == g.To {
			f.Title += ", or this one was never sent"
		}
		f.Counterfactual = fmt.Sprintf("a buffer_steps of %d would have held them", g.Kept+g.To-g.From+1)
		f.Next = "raise buffer_steps in the engine's --kv-events-config so that it outlasts such an outage, and look for what loses batches" + exactAgain
	})
	return append(out, eachMark(v, stream.MarkJoin, Warning, func(r *Replica, m stream.Mark, f *Finding) {
		if !m.Clipped || m.Seq == 0 {
			return
		}
		f.Evidence.SeqFrom, f.Evidence.SeqTo = p(m.Asked), p(m.Seq-1)
		if f.Until = endedBy(r, m.At); f.Until == nil {
			f.Effect = doubtEffect(r)
		}
		f.Title = fmt.Sprintf("a replay from batch %s on was asked for, and begins at %s: what was cached in %s–%s is unknown until it is used again", wire.Grouped(m.Asked), wire.Grouped(m.Seq), wire.Grouped(m.Asked), wire.Grouped(m.Seq-1))
		f.Counterfactual = fmt.Sprintf("a buffer_steps of %d more would have held them", m.Seq-m.Asked)
		f.Next = "raise buffer_steps in the engine's --kv-events-config, or start kvscope together with the engines; what is used again shows by itself"
	})...)
}

func replayTruncated(v View) []Finding {
	return eachLost(v, stream.BrokenOff, func(r *Replica, g *stream.Gap, f *Finding) {
		f.Title = fmt.Sprintf("%s lost (%s–%s): the replay broke off before them, %s", count(g.To-g.From+1, "batch"), wire.Grouped(g.From), wire.Grouped(g.To), g.Reason)
		f.Next = "ask again (R on the screen); vLLM below 0.33 drops what a slow reader of a long replay leaves after 1 000 messages, so look for a slow link or upgrade" + exactAgain
	})
}

func unfillableHole(v View) []Finding {
	return eachLost(v, stream.Unfillable, func(r *Replica, g *stream.Gap, f *Finding) {
		f.Title = fmt.Sprintf("%s (%s–%s) in no replay: the publisher's buffer has what comes before and after, so asking again brings nothing", count(g.To-g.From+1, "batch"), wire.Grouped(g.From), wire.Grouped(g.To))
		if g.Cause == stream.Clipped {
			f.Title = fmt.Sprintf("%s (%s–%s) in no replay: the answer began behind, though the publisher keeps more than that, so asking again brings nothing", count(g.To-g.From+1, "batch"), wire.Grouped(g.From), wire.Grouped(g.To))
		}
		f.Next = "look in the engine's log for a batch that failed to encode (vLLM before 0.11: hashes too large for an integer); kvscope does not ask for it again" + exactAgain
	})
}
