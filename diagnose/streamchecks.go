package diagnose

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

func p[T any](v T) *T { return &v }

// about starts a finding on a replica.
func about(r *Replica, s Severity, since wire.Time) Finding {
	return Finding{
		Severity: s, Subject: string(r.Replica), Since: since,
		Evidence: Evidence{Replica: r.Replica},
	}
}

// doubtEffect puts a number on a replica's doubt where it is known.
func doubtEffect(r *Replica) Effect {
	if r.Doubt < 0 || r.Facts.Capacity <= 0 {
		return Effect{}
	}
	e := Effect{Blocks: p(r.Doubt), Share: p(float64(r.Doubt) / float64(r.Facts.Capacity))}
	if r.Index.BlockSize > 0 {
		e.Tokens = p(r.Doubt * r.Index.BlockSize)
	}
	return e
}

func count(n uint64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	first, rest, _ := strings.Cut(one, " ")
	if strings.HasSuffix(first, "h") {
		first += "e"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %ss %s", wire.Grouped(n), first, rest))
}

// rounded writes a measured number of requests, tokens or blocks as count does.
func rounded(n float64) string {
	const most = 1 << 53 // pages of metrics may say anything
	if !(math.Abs(n) <= most) {
		return fmt.Sprintf("%.0f", n)
	}
	return wire.Grouped(int(math.RoundToEven(n)))
}

// endedBy finds when the doubt that arose at a moment ended: the next clear of
// the cache or restart of the process.
func endedBy(r *Replica, since wire.Time) *wire.Time {
	for _, m := range r.Marks {
		if m.At >= since && (m.Kind == stream.MarkCleared || m.Kind == stream.MarkRestart) {
			return p(m.At)
		}
	}
	return nil
}

// eachMark makes a finding of every mark of a kind, save where tell gives no title.
func eachMark(v View, kind stream.MarkKind, severity Severity, tell func(*Replica, stream.Mark, *Finding)) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		for _, m := range r.Marks {
			if m.Kind == kind {
				f := about(r, severity, m.At)
				f.Evidence.SeqFrom, f.Evidence.SeqTo = p(m.Seq), p(m.Seq)
				if tell(r, m, &f); f.Title != "" {
					out = append(out, f)
				}
			}
		}
	}
	return out
}

func lateJoin(v View) []Finding {
	return eachMark(v, stream.MarkJoin, Info, func(r *Replica, m stream.Mark, f *Finding) {
		if m.Seq == 0 || m.Clipped {
			return
		}
		f.Evidence.SeqFrom, f.Evidence.SeqTo = p(uint64(0)), p(m.Seq-1)
		f.Until = endedBy(r, m.At)
		f.Title = fmt.Sprintf("joined at batch %s: what was cached before is unknown until it is used again", wire.Grouped(m.Seq))
		f.Next = "fetch what the publisher still keeps (R on the screen, --replay recent or full), or wait: what is used again shows"
		if f.Until == nil && slices.Contains(r.Trust.Reasons, stream.LateJoin) {
			f.Effect = doubtEffect(r)
		}
	})
}

func replicaRestart(v View) []Finding {
	return eachMark(v, stream.MarkRestart, Warning, func(r *Replica, m stream.Mark, f *Finding) {
		f.Until = p(m.At)
		f.Evidence.SeqTo = p(m.To)
		f.Title = fmt.Sprintf("restarted: batches began again at %s after %s (%s); its cache is empty and its old blocks are gone", wire.Grouped(m.To), wire.Grouped(m.Seq), m.Text)
		f.Next = "check that the router dropped the old process's blocks too; expect cold prefills on this replica"
		if isNewest(r, m) {
			f.Effect = takenEffect(r, r.Index.LastDrop)
		}
	})
}

func cacheCleared(v View) []Finding {
	return eachMark(v, stream.MarkCleared, Info, func(r *Replica, m stream.Mark, f *Finding) {
		if heldBack(&m) > 0 {
			return
		}
		f.Until = p(m.At)
		f.Title = fmt.Sprintf("cleared its whole prefix cache in batch %s", wire.Grouped(m.Seq))
		f.Next = "find who called reset_prefix_cache or flush_cache; vLLM announces a clear only with its next batch, so it happened earlier than it shows"
		if isNewest(r, m) {
			f.Effect = takenEffect(r, r.Index.LastClear)
		}
	})
}

func undecodableEvents(v View) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		if r.Undecodable == 0 {
			continue
		}
		f := about(r, Error, r.Joined)
		for _, m := range r.Marks {
			if m.Kind == stream.MarkUndecodable {
				if f.Evidence.SeqFrom == nil {
					f.Since, f.Evidence.SeqFrom = m.At, p(m.Seq)
				}
				f.Evidence.SeqTo = p(m.Seq)
				f.Until = endedBy(r, m.At)
			}
		}
		if f.Until != nil {
			f.Severity = Warning
		}
		f.Title = fmt.Sprintf("%s could not be read: %s", count(r.Undecodable, "event"), r.LastError)
		f.Next = "compare the engine's version with docs/architecture.md; what routers do with such a batch is worse (Dynamo drops it whole)"
		out = append(out, f)
	}
	return out
}

func overCapacity(v View) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		over := r.Index.Copies - r.Facts.Capacity
		if r.Facts.Capacity <= 0 || over <= 0 || slices.Contains(r.Trust.Reasons, stream.GapOpen) {
			continue // removals may be among the batches that were missed, which is a finding already
		}
		f := about(r, Warning, r.Joined)
		f.Effect.Blocks = p(over)
		f.Effect.Share = p(float64(over) / float64(r.Facts.Capacity))
		f.Title = fmt.Sprintf("%s block copies are announced and not removed, %s more than the engine has (%s)", wire.Grouped(r.Index.Copies), wire.Grouped(over), wire.Grouped(r.Facts.Capacity))
		f.Counterfactual = "a true index holds at most the engine's blocks; the surplus are phantom hits"
		f.Next = "look for requests with kv_cache_report_mode=full, which announce blocks again, or for removals that never came"
		out = append(out, f)
	}
	return out
}
