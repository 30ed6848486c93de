package diagnose

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// Blocks are the shadow index's numbers over all replicas.
type Blocks struct {
	// Known are the distinct blocks kept, Resident those of them that are somewhere,
	// Shared those on more than one replica.
	Known, Resident, Shared int
	// Max is how many are kept at most.
	Max int
}

const (
	// fullShare is the share of its bound at which our own index is nearly full.
	fullShare = 0.9
	// An index without bound is worth a word from this many blocks on, if resident
	// ones are at most one of so many.
	growthBlocks = 100_000
	growthTimes  = 10
)

func indexGrowth(v View, _ Memory) []Finding {
	var out []Finding
	var stored, left uint64
	since := v.Now
	for i := range v.Replicas {
		r := &v.Replicas[i]
		stored += r.Index.Ledger.First
		left += r.Index.Unindexed
		if r.Joined > 0 {
			since = min(since, r.Joined)
		}
	}
	b := v.Blocks
	if b.Max > 0 && (left > 0 || float64(b.Resident) >= fullShare*float64(b.Max)) {
		f := Finding{Severity: Warning, Subject: "fleet", about: "ours"}
		f.Effect.Blocks = p(int(min(left, 1<<62)))
		f.Title = fmt.Sprintf("kvscope's own index is full: %s of %s blocks are resident, %s left out", wire.Grouped(b.Resident), wire.Grouped(b.Max), count(left, "block"))
		f.Counterfactual = "with room for all, no block would be missing from what is shown"
		f.Next = "give kvscope a larger --max-index, or let it watch fewer replicas"
		out = append(out, f)
	}
	if stored >= growthBlocks && stored >= growthTimes*uint64(max(0, b.Resident)) {
		f := Finding{Severity: Info, Subject: "fleet", about: "router"}
		dead := stored - uint64(b.Resident)
		f.Effect.Blocks = p(int(min(dead, 1<<62)))
		f.Title = fmt.Sprintf("%s different blocks were stored so far and %s are resident: an index without bound would hold the rest too, %s of it%s",
			wire.Grouped(stored), wire.Grouped(b.Resident), percent(int(min(dead, 1<<52)), int(min(stored, 1<<52))), perHour(stored, v.Now-since))
		f.Counterfactual = fmt.Sprintf("an index that drops what nobody has would hold %s blocks", wire.Grouped(b.Resident))
		f.Next = "watch the router's memory: give it a bound, a time to live or a restart plan if it keeps what no replica has (production-stack's prefix trie drops nothing)"
		out = append(out, f)
	}
	return out
}

// perHour says how fast a number grew, where it was watched for long enough.
func perHour(n uint64, over wire.Time) string {
	if over < minute {
		return ""
	}
	return fmt.Sprintf(", growing by %s blocks an hour", rounded(float64(n)/(float64(over)/float64(60*minute))))
}
