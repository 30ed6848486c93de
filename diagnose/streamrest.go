package diagnose

import (
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// orphanChains tells of blocks behind a parent that nobody announced. Where batches
// are missing that is no wonder, and worth knowing only.
func orphanChains(v View, _ Memory) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		if r.Index.Orphans == 0 || r.Index.OrphanParents == 0 {
			continue
		}
		f := about(r, Warning, 0)
		f.Title = fmt.Sprintf("%s behind a parent that was never announced: its hits are a lower bound", count(uint64(r.Index.Orphans), "block"))
		f.Effect = blocksEffect(r, r.Index.Orphans)
		f.Next = "look for what else writes to this cache: blocks taken over from a prefill engine, or an engine whose first blocks name a parent (SGLang did)"
		if slices.ContainsFunc(r.Trust.Reasons, func(why stream.Reason) bool {
			return why == stream.LateJoin || why == stream.GapOpen || why == stream.ReplayClipped || why == stream.Undecodable
		}) {
			f.Severity = Info
			f.Next = "nothing beyond what explains it (" + string(r.Trust.Reasons[0]) + "): the chains join up as their beginnings are used again"
		}
		f.Counterfactual = "with the parents announced, these blocks would count as hits"
		out = append(out, f)
	}
	return out
}

// dropsOver is how long after the last drop the tap counts as having caught up.
const dropsOver = wire.Time(60e9)

func tapTooSlow(v View) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		d := &r.Drops
		if d.Messages == 0 {
			continue
		}
		f := about(r, Warning, d.First)
		if v.Now-d.Last >= dropsOver {
			f.Until = p(d.Last)
		}
		f.Title = fmt.Sprintf("kvscope fell behind and dropped %s of this replica, in %s", count(d.Messages, "message"), count(uint64(d.Times), "burst"))
		f.Counterfactual = "the engine and its other subscribers lost nothing: this loss is kvscope's own"
		f.Next = "give kvscope more CPU or fewer replicas, or record only (kvscope record), and let a replay fill the gaps"
		out = append(out, f)
	}
	return out
}

// deadReplicaBlocks tells of replicas that are gone without a goodbye: nothing on
// the wire takes their blocks out of a router's index.
func deadReplicaBlocks(v View, _ Memory) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		down, is := downSince(r)
		answers := r.Load.Known && r.ScrapeError == "" && r.Load.At > down
		blocks := told(r.Index)
		if !is || answers || blocks <= 0 {
			continue
		}
		f := about(r, Warning, down)
		f.Evidence.SeqTo = p(r.Last)
		f.Effect = blocksEffect(r, blocks)
		f.Title = fmt.Sprintf("has been gone since batch %s, and %s never removed", wire.Grouped(r.Last), are(blocks, "block"))
		if r.ScrapeError != "" {
			f.Title += "; its metrics page does not answer either"
		}
		f.Counterfactual = "a router that drops a replica when its connection ends counts none of these blocks"
		f.Next = "check that the router took this replica out; if it still counts it, re-register or remove the worker there"
		if r.Link == wire.LinkGone {
			f.Severity = Info
			f.Title = fmt.Sprintf("left the fleet, and %s never removed", are(blocks, "block"))
		}
		out = append(out, f)
	}
	return out
}

func are(n int, one string) string {
	if n == 1 {
		return "1 " + one + " of it was"
	}
	return fmt.Sprintf("%s %ss of it were", wire.Grouped(n), one)
}

// downSince gives when a replica's link was lost.
func downSince(r *Replica) (wire.Time, bool) {
	if r.Link == wire.LinkUp || r.Link == wire.LinkUnknown {
		return 0, false
	}
	for i := len(r.Marks) - 1; i >= 0; i-- {
		if m := &r.Marks[i]; m.Kind == stream.MarkLinkDown {
			return m.At, true
		}
	}
	return 0, false
}
