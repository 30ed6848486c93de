package diagnose

import (
	"fmt"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// Herding: one replica gets this share of at least so many requests, and it costs.
// Six families of unequal popularity give the hottest of many replicas 45 %, two
// replicas part as badly as 70 to 30; 80 % is neither.
const (
	herdShare    = 0.8
	herdRequests = 50
)

func herding(v View, m Memory) []Finding {
	var out []Finding
	t := m.(*traffic)
	for _, all := range t.flows(v) {
		if len(all) < 2 || !allLoaded(all) {
			continue
		}
		hot, total := most(all, requestsOf)
		cost := strain(all, hot)
		// What is on its way counts: a replica that chokes finishes nothing.
		if total < herdRequests || hot.requests < herdShare*total || cost == "" {
			continue
		}
		f := about(hot.Replica, Warning, 0)
		f.Title = fmt.Sprintf("gets %s of %s requests in %s (even: %s; cv %.1f), and %s",
			share(hot.requests, total), rounded(total), t.over(v), share(1, float64(len(all))), cv(all, requestsOf), cost)
		if hot.hit > hot.queried/2 {
			f.Title += fmt.Sprintf("; its hit rate of %s hides it", share(hot.hit, hot.queried))
		}
		f.Counterfactual = fmt.Sprintf("spread evenly, each of the %d replicas would get %s requests in %s", len(all), rounded(total/float64(len(all))), t.over(v))
		f.Next = "look at the router's load term: its weight above 0, loads that are not all 0, and a threshold for imbalance that is neither off nor infinite; or lower the weight of the overlap"
		out = append(out, f)
	}
	return out
}

// Saturation: so many requests wait on one replica, while another has nobody waiting
// and at most a quarter of its requests.
const (
	saturatedWaiting = 8
	saturatedTimes   = 4
)

func saturatedHotReplica(v View, _ Memory) []Finding {
	var out []Finding
	free := map[string]*Replica{} // the idlest of each model
	fresh := func(r *Replica) bool { return r.Load.Known && v.Now-r.Load.At <= freshLoad && reachable(r) }
	busy := func(r *Replica) float64 { return r.Load.Running + r.Load.Waiting }
	for i := range v.Replicas {
		if r := &v.Replicas[i]; fresh(r) && r.Load.Waiting == 0 && (free[r.Model] == nil || busy(r) < busy(free[r.Model])) {
			free[r.Model] = r
		}
	}
	for i := range v.Replicas {
		r := &v.Replicas[i]
		idle := free[r.Model]
		if !fresh(r) || idle == nil || r.Load.Waiting < saturatedWaiting || busy(r) < saturatedTimes*busy(idle) {
			continue
		}
		f := about(r, Warning, 0)
		f.Title = fmt.Sprintf("%s requests wait behind %s that run, while %s runs %s and has none waiting",
			rounded(r.Load.Waiting), rounded(r.Load.Running), wire.Printable(string(idle.Replica)), rounded(idle.Load.Running))
		if rate, ok := r.Load.HitRate(); ok {
			f.Title += fmt.Sprintf("; its hit rate is %.0f %%", 100*rate)
		}
		f.Counterfactual = "a request that waits there would start at once on " + wire.Printable(string(idle.Replica)) + ", and compute its whole prompt once"
		f.Next = "raise the weight of the load against that of the overlap, or lower the threshold from which the router balances; if the two serve different roles (prefill and decode), nothing is wrong"
		out = append(out, f)
	}
	return out
}

// Starvation: a replica got nothing while its even part was so many requests, and the
// others had so many at a time. Where traffic is thinner than that, all of it can
// rightly go to who has its prefix.
const (
	starvedPart   = 20
	starvedFlight = 2
)

func starvedReplica(v View, m Memory) []Finding {
	var out []Finding
	t := m.(*traffic)
	for _, all := range t.flows(v) {
		if len(all) < 2 || !allLoaded(all) {
			continue
		}
		_, total := most(all, requestsOf)
		part := total / float64(len(all))
		for i := range all {
			r := &all[i]
			rest := others(all, r, flightOf)
			if r.requests > 0 || r.flight > 0 || r.stored() > 0 || part < starvedPart || rest < starvedFlight {
				continue
			}
			f := about(r.Replica, Warning, 0)
			f.Title = fmt.Sprintf("got no request for %s, while the others served %s with %.1f at a time on each", t.over(v), rounded(total), rest)
			if r.Joined > v.Replicas[0].Joined+window || r.Facts.Started > v.Replicas[0].Joined {
				f.Title += fmt.Sprintf("; it came %s ago", (time.Duration(v.Now-r.Joined) * time.Nanosecond).Round(time.Second))
			}
			if n := r.Facts.Capacity; n > 0 {
				f.Effect.Blocks = p(n - r.Index.Copies)
				f.Effect.Share = p(float64(n-r.Index.Copies) / float64(n))
			}
			f.Counterfactual = fmt.Sprintf("its even part is %s requests in %s", rounded(part), t.over(v))
			f.Next = "check that the router knows it (its list of workers, its health check) and that a replica without any prefix can win: the load term must outweigh the overlap of the others"
			out = append(out, f)
		}
	}
	return out
}

// A pile-up: of at least so many chains that begin with a block that nobody has, one
// replica gets this share. Two replicas that are chosen by chance come to it once in
// five million windows.
const (
	pileChains = 40
	pileShare  = 0.9
)

func coldIndexPileup(v View, m Memory) []Finding {
	var out []Finding
	t := m.(*traffic)
	for _, all := range t.flows(v) {
		hot, total := most(all, coldOf)
		if len(all) < 2 || total < pileChains || coldOf(hot) < pileShare*total {
			continue
		}
		f := about(hot.Replica, Info, 0)
		f.Title = fmt.Sprintf("gets %s of the %s prompts in %s that no replica has anything of", rounded(coldOf(hot)), rounded(total), t.over(v))
		if cost := strain(all, hot); cost != "" {
			f.Severity = Warning
			f.Title += ", and " + cost
		}
		f.Counterfactual = fmt.Sprintf("the least loaded replica would do as well for them: %s for each of %d", rounded(total/float64(len(all))), len(all))
		f.Next = "look at what the router does without any overlap: it should take the least loaded and break ties by chance, not take the first or the one with the smallest tree"
		out = append(out, f)
	}
	return out
}

// Ping-pong: so many turns went elsewhere than the turn before, and this share of all
// turns. Of simulated conversations that a router sends astray once in twenty, 2 to
// 8 % of the turns move; without a router that knows caches, half on two replicas and
// more on more.
const (
	movedTurns = 20
	movedShare = 0.3
)

func pingPong(v View, m Memory) []Finding {
	var out []Finding
	t := m.(*traffic)
	for _, all := range t.flows(v) {
		var sum flow
		size, hit, queried := 0, 0.0, 0.0
		for i := range all {
			sum.turns = sum.turns.Add(all[i].turns)
			size = max(size, all[i].Index.BlockSize)
			hit, queried = hit+all[i].hit, queried+all[i].queried
		}
		moved := sum.turns.Moved
		turns := sum.turns.Kept + moved
		if len(all) < 2 || moved < movedTurns || float64(moved) < movedShare*float64(turns) {
			continue
		}
		f := ofModel(Finding{Severity: Warning, Subject: "fleet"}, all)
		f.Title = fmt.Sprintf("%s of %s turns of conversations in %s went to another replica than the turn before", wire.Grouped(moved), wire.Grouped(turns), t.over(v))
		if sum.turns.Returned > 0 {
			f.Title += fmt.Sprintf(", %s of them back to one they had left", wire.Grouped(sum.turns.Returned))
		}
		if queried > 0 {
			f.Title += fmt.Sprintf("; the hit rate is %s", share(hit, queried))
		}
		f.Effect.Blocks, f.Effect.Tokens = p(int(sum.turns.MovedBlocks)), p(int(sum.turns.MovedBlocks)*size)
		f.Counterfactual = fmt.Sprintf("had they stayed, %s blocks would not have been computed again", wire.Grouped(sum.turns.MovedBlocks))
		f.Next = "check that the router gets cache events and weighs the overlap, or give it session affinity; several routers without shared state do this too"
		out = append(out, f)
	}
	return out
}

// Nothing to reuse: of so many requests with so many prompt tokens this share at the
// most came from caches, and as small a share of what was stored had been anywhere
// before.
const (
	uniformRequests = 100
	uniformTokens   = 10_000
	uniformShare    = 0.02
)

func noReuseToFind(v View, m Memory) []Finding {
	var out []Finding
	t := m.(*traffic)
	for _, all := range t.flows(v) {
		var sum flow
		for i := range all {
			f := &all[i]
			sum.requests, sum.queried, sum.hit = sum.requests+f.requests, sum.queried+f.queried, sum.hit+f.hit
			sum.ledger = sum.ledger.Add(f.ledger)
		}
		stored := float64(sum.stored())
		if len(all) < 2 || !allLoaded(all) || sum.requests < uniformRequests || sum.queried < uniformTokens ||
			sum.hit > uniformShare*sum.queried || stored == 0 || stored-float64(sum.ledger.First) > uniformShare*stored {
			continue
		}
		f := ofModel(Finding{Severity: Info, Subject: "fleet"}, all)
		f.Title = fmt.Sprintf("nothing to reuse: of %s requests with %s prompt tokens in %s, %s came from a cache, and %s of the blocks stored are new",
			rounded(sum.requests), rounded(sum.queried), t.over(v), share(sum.hit, sum.queried), share(float64(sum.ledger.First), stored))
		f.Counterfactual = "no choice of replica would have found more: what the overlap term moves is load alone, and the slowest requests pay for it"
		f.Next = "if prompts should share a beginning, compare two of them (kvscope diff) for a clock or an id at the head; if not, use round robin or least load"
		out = append(out, f)
	}
	return out
}

// The weight cancels: so many requests, shorter on average than a block, of which
// nothing came from a cache.
const cancelRequests = 100

func weightCancels(v View, m Memory) []Finding {
	t := m.(*traffic)
	var out []Finding
	for _, all := range t.flows(v) {
		requests, queried, hit, size := 0.0, 0.0, 0.0, 0
		for i := range all {
			f := &all[i]
			requests, queried, hit = requests+f.requests, queried+f.queried, hit+f.hit
			if n := max(f.Facts.BlockSize, f.Index.BlockSize); size == 0 || n < size {
				size = n
			}
		}
		if len(all) < 2 || !allLoaded(all) || requests < cancelRequests || queried == 0 || hit > 0 || queried >= requests*float64(size) {
			continue
		}
		f := ofModel(Finding{Severity: Info, Subject: "fleet"}, all)
		f.Title = fmt.Sprintf("the overlap is 0 on all %d replicas: %s requests in %s have %s prompt tokens each, less than a block of %d",
			len(all), rounded(requests), t.over(v), rounded(queried/requests), size)
		f.Counterfactual = "only a prompt of more than one whole block can be found in a cache; until then the weight of the overlap cancels, and load alone decides"
		f.Next = "leave the weight as it is: choose smaller blocks if the prompts share anything, or route by load"
		out = append(out, f)
	}
	return out
}
