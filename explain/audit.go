package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/wire"
)

// Audit is the result of holding predictions against a requests log. Every
// request is counted in exactly one of Agree, Over, Under, Unverifiable and
// Excluded.
type Audit struct {
	Requests     int
	Agree        int
	Over         int // promised more than was cached
	Under        int // cached more than was promised
	Unverifiable int
	Excluded     int
	// Bounds counts those of Agree that were judged by a lower bound, because
	// the replica was not EXACT; Tight those of Bounds where the full
	// prediction was right as well.
	Bounds, Tight int
	// AtStart counts those of Agree where the promise at the request's start
	// alone was right.
	AtStart    int
	Funnel     Funnel
	PerReplica []ReplicaAudit
	// Spelled are the requests by log whose tokens a Speller compared, nil where none
	// were.
	Spelled []Spelling
	// Disagreements lists over and under, Exclusions the rest that has a
	// reason; both in order of start.
	Disagreements, Exclusions []Verdict
}

// Funnel says where reuse is lost on the way, in prompt tokens of the judged requests:
// those that were Asked for, those that some replica of the model had as the request
// came, those that the Chosen one had, and those that its engine reused. What is lost
// at the first step is new work or was evicted, at the second it was the routing.
type Funnel struct {
	Asked     int `json:"asked"`
	Somewhere int `json:"somewhere"`
	Chosen    int `json:"chosen"`
	Cached    int `json:"cached"`
}

// ReplicaAudit is one replica's share, by the log's name.
type ReplicaAudit struct {
	Log                                                  string
	Replicas                                             []wire.Replica
	Requests, Agree, Over, Under, Unverifiable, Excluded int
	Bounds, BoundsTight                                  int
	// Predicted and Cached sum, over the judged requests, what the index
	// promised at their start and what the engine reused, in tokens.
	Predicted, Cached int
}

// Verdict is what became of one request.
type Verdict struct {
	Start   wire.Time
	Replica wire.Replica
	Log     string
	// Predicted is the promise in tokens nearest to Actual; Low and High are
	// the least and the most that was promised while the request ran.
	Predicted, Low, High, Actual int
	Why                          string
}

// Auditor collects promises while batches are applied. It is driven by the one
// goroutine that owns the index: Before and After around every change of a
// replica, then Finish.
type Auditor struct {
	idx      *index.Index
	trust    func(wire.Replica) Trust
	requests []Request
	rename   map[string]wire.Replica
	tracks   map[wire.Replica]*track
	claimed  map[wire.Replica]bool
	results  []result
	// from and until are the recording's span.
	from, until wire.Time
}

// Trust is what an audit needs to know of a replica's state.
type Trust struct {
	// Exact: predictions are exact. Known: there is a state to speak of, be
	// it old. Model is the base model served.
	Exact, Known bool
	Stale        bool
	Words        string
	Model        string
}

// result gathers a request's promises, for each replica that it may have
// been on.
type result struct {
	prompt   *index.Prompt
	promises []*promise
}

type promise struct {
	replica         wire.Replica
	low, high, sure int // tokens
	start           int
	somewhere       int // what the replica that had most of it had at the start
	exact, seen     bool
	words           string
}

// track is a replica's requests: those to come by start, those running.
type track struct {
	name    wire.Replica
	next    int
	pending []*running
	active  []*running
}

type running struct {
	req *Request
	res *result
	p   *promise
}

// NewAuditor prepares an audit. rename maps names of the log to replicas of
// the recording; other names stand for the replica of the same name, and a
// name that the recording does not have for all replicas that no log name
// claims. trust is asked at the moment of each promise.
func NewAuditor(idx *index.Index, requests []Request, rename map[string]wire.Replica, trust func(wire.Replica) Trust) *Auditor {
	a := &Auditor{
		idx: idx, trust: trust, requests: requests, rename: rename,
		tracks: map[wire.Replica]*track{}, results: make([]result, len(requests)),
		claimed: map[wire.Replica]bool{},
	}
	for _, q := range requests {
		a.claimed[a.claim(q.Replica)] = true
	}
	return a
}

func (a *Auditor) claim(log string) wire.Replica {
	if r, ok := a.rename[log]; ok {
		return r
	}
	return wire.Replica(log)
}

// track finds a replica's requests, which are decided when it first shows up.
func (a *Auditor) track(name wire.Replica) *track {
	t := a.tracks[name]
	if t != nil {
		return t
	}
	t = &track{name: name}
	a.tracks[name] = t
	free := !a.claimed[name]
	for i := range a.requests {
		q := &a.requests[i]
		_, mapped := a.rename[q.Replica]
		if a.claim(q.Replica) != name && (!free || mapped) {
			continue
		}
		t.pending = append(t.pending, &running{req: q, res: &a.results[i]})
	}
	return t
}

// Before must be called before a replica changes at the given engine time.
func (a *Auditor) Before(name wire.Replica, at wire.Time) {
	t := a.track(name)
	keep := t.active[:0]
	for _, r := range t.active {
		if r.req.End >= at {
			keep = append(keep, r)
		}
	}
	t.active = keep
	for ; t.next < len(t.pending) && t.pending[t.next].req.Start < at; t.next++ {
		r := t.pending[t.next]
		if r.req.Excluded != "" || !r.req.Known {
			continue
		}
		a.promise(name, r)
		if r.req.End >= at {
			t.active = append(t.active, r)
		}
	}
}

// After must be called when the change is applied.
func (a *Auditor) After(name wire.Replica) {
	for _, r := range a.track(name).active {
		a.promise(name, r)
	}
}

// promise notes what the index promises now.
func (a *Auditor) promise(name wire.Replica, r *running) {
	trust := a.trust(name)
	if r.p == nil {
		r.p = &promise{replica: name, exact: true}
		r.res.promises = append(r.res.promises, r.p)
	}
	if r.res.prompt == nil {
		q := index.Query{Model: trust.Model, Tokens: r.req.Tokens, Salt: r.req.Salt}
		if r.req.Model != trust.Model && trust.Model != "" {
			q.LoRA = r.req.Model
		}
		r.res.prompt = index.NewPrompt(q)
	}
	p, m := r.p, a.idx.MatchOn(name, r.res.prompt)
	n := len(r.req.Tokens)
	full := index.CachedTokens(m.Depth(), m.BlockSize, n)
	sure := index.CachedTokens(m.Certain, m.BlockSize, n)
	if trust.Stale {
		sure = 0
	}
	if !p.seen {
		p.low, p.high, p.sure, p.start, p.somewhere = full, full, sure, full, full
		for _, m := range a.idx.Match(r.res.prompt) {
			p.somewhere = max(p.somewhere, index.CachedTokens(m.Depth(), m.BlockSize, n))
		}
	}
	p.low, p.high, p.sure = min(p.low, full), max(p.high, full), min(p.sure, sure)
	if !trust.Exact {
		p.exact, p.words = false, trust.Words
	}
	p.seen = p.seen || trust.Known
}

// Finish judges all requests. replicas are those of the recording, which spans
// the time from one moment to another: a request that ended before or began
// after is not judged.
func (a *Auditor) Finish(replicas []wire.Replica, from, until wire.Time) Audit {
	a.from, a.until = from, until
	for _, name := range replicas {
		a.Before(name, 1<<62)
	}
	var audit Audit
	rows := map[string]*ReplicaAudit{}
	for i := range a.requests {
		q := &a.requests[i]
		row := rows[q.Replica]
		if row == nil {
			row = &ReplicaAudit{Log: q.Replica}
			rows[q.Replica] = row
		}
		a.judge(&audit, row, q, &a.results[i])
	}
	for _, row := range rows {
		slices.Sort(row.Replicas)
		audit.PerReplica = append(audit.PerReplica, *row)
	}
	slices.SortFunc(audit.PerReplica, func(a, b ReplicaAudit) int { return cmp.Compare(a.Log, b.Log) })
	audit.Spelled = a.spelled(audit.PerReplica)
	return audit
}

// judge counts one request.
func (a *Auditor) judge(audit *Audit, row *ReplicaAudit, q *Request, res *result) {
	audit.Requests++
	row.Requests++
	v := Verdict{Start: q.Start, Log: q.Replica, Replica: a.claim(q.Replica), Actual: q.Cached}
	if q.Excluded != "" {
		audit.Excluded++
		row.Excluded++
		v.Why = q.Excluded
		audit.Exclusions = append(audit.Exclusions, v)
		return
	}
	best := res.best(a.claim(q.Replica), q.Cached)
	if best == nil || a.outside(q) {
		audit.Unverifiable++
		row.Unverifiable++
		v.Why = a.unverifiable(q, res)
		audit.Exclusions = append(audit.Exclusions, v)
		return
	}
	if !slices.Contains(row.Replicas, best.replica) {
		row.Replicas = append(row.Replicas, best.replica)
	}
	v.Replica, v.Low, v.High = best.replica, best.low, best.high
	v.Predicted = min(max(q.Cached, best.low), best.high)
	row.Predicted += best.start
	row.Cached += q.Cached
	f := &audit.Funnel
	f.Asked, f.Somewhere = f.Asked+len(q.Tokens), f.Somewhere+best.somewhere
	f.Chosen, f.Cached = f.Chosen+best.start, f.Cached+q.Cached
	if best.agrees(q.Cached) {
		audit.Agree++
		row.Agree++
		if best.start == q.Cached {
			audit.AtStart++
		}
		if !best.exact {
			audit.Bounds++
			row.Bounds++
			if best.tight(q.Cached) {
				audit.Tight++
				row.BoundsTight++
			}
		}
		return
	}
	if q.Cached > best.high {
		audit.Under++
		row.Under++
		v.Why = fmt.Sprintf("the engine reused %d tokens, the index knew of at most %d while the request ran", q.Cached, best.high)
	} else {
		audit.Over++
		row.Over++
		v.Why = fmt.Sprintf("the index promised at least %d tokens, the engine reused %d", best.floor(), q.Cached)
	}
	if !best.exact {
		v.Why += "; replica " + best.words
	}
	audit.Disagreements = append(audit.Disagreements, v)
}

func (a *Auditor) outside(q *Request) bool { return q.End < a.from || q.Start > a.until }

func (a *Auditor) unverifiable(q *Request, res *result) string {
	_, mapped := a.rename[q.Replica]
	switch {
	case a.outside(q):
		return "it ran outside the time that was observed"
	case len(q.Tokens) == 0:
		return "the log has no prompt token ids (ask the engine with return_token_ids)"
	case !q.Known:
		return "no response of the log says what was cached (start the engine with --enable-prompt-tokens-details)"
	case len(res.promises) == 0 && mapped:
		return fmt.Sprintf("the recording has no replica %q, which --map names", a.claim(q.Replica))
	case len(res.promises) == 0:
		return fmt.Sprintf("the recording has no replica %q (name it with --map)", q.Replica)
	}
	return "nothing was known of the replica yet"
}

// best picks the promise to judge by: the named replica's, and if the recording
// has no events of that name one that agrees, else the nearest.
func (r *result) best(named wire.Replica, actual int) *promise {
	var best *promise
	for _, p := range r.promises {
		switch {
		case !p.seen:
		case p.replica == named:
			return p
		case best == nil || p.miss(actual) < best.miss(actual):
			best = p
		}
	}
	return best
}

// floor is the least that was promised for certain.
func (p *promise) floor() int {
	if p.exact {
		return p.low
	}
	return p.sure
}

func (p *promise) tight(actual int) bool { return p.low <= actual && actual <= p.high }

// agrees judges: an exact promise holds if the actual value lies between the
// least and the most that was promised while the request ran; on a replica
// that was not EXACT the promise is a lower bound.
func (p *promise) agrees(actual int) bool {
	return p.miss(actual) == 0
}

// miss is by how many tokens a promise failed.
func (p *promise) miss(actual int) int {
	switch {
	case actual < p.floor():
		return p.floor() - actual
	case p.exact && actual > p.high:
		return actual - p.high
	}
	return 0
}
