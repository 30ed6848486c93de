package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/route/remote"
	"github.com/kvscope/kvscope/web"
	"github.com/kvscope/kvscope/wire"
)

// askFlags say which routers are asked for their own answer.
type askFlags struct {
	router, indexer, selector, trace string
	chat                             bool
	rename                           []string
}

func (f *askFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.router, "ask-router", "", "URL of a Dynamo frontend to ask where it would send the prompt: GETs /metrics and, if they show a KV router, POSTs the token ids as a query-only completion, which it counts as a request but does not run")
	fl.BoolVar(&f.chat, "ask-chat", false, "with --ask-router: send the chat itself and not its token ids, so that the router makes tokens of it too, and hold those against ours")
	fl.StringVar(&f.indexer, "ask-indexer", "", "URL of Dynamo's standalone indexer to ask who holds the prompt: GETs /workers and POSTs the block hashes to /query_by_hash; no token id is sent")
	fl.StringVar(&f.selector, "ask-selector", "", "URL of Dynamo's selection service to ask for its choice: POSTs the token ids to /select and /overlap_scores and GETs /loads; nothing is reserved")
	fl.StringVar(&f.trace, "trace", "", "request trace of a Dynamo frontend (file of DYN_REQUEST_TRACE) to look up what it decided for this prompt; nothing is sent")
	fl.StringSliceVar(&f.rename, "map", nil, "workers that are called otherwise here: WORKER/RANK=REPLICA,…")
}

// places are what is to be asked, and by which flag.
func (f *askFlags) places() []struct{ flag, url string } {
	return []struct{ flag, url string }{{"ask-router", f.router}, {"ask-indexer", f.indexer}, {"ask-selector", f.selector}}
}

// check refuses what can be refused before anything is observed.
func (f *askFlags) check() error {
	asks := f.trace != ""
	for _, p := range f.places() {
		if p.url == "" {
			continue
		}
		asks = true
		if err := remote.CheckURL(p.url); err != nil {
			return usageError("--%s: %w", p.flag, err)
		}
	}
	if f.chat && f.router == "" {
		return usageError("--ask-chat says what the router is sent: give --ask-router too")
	}
	if len(f.rename) > 0 && !asks {
		return usageError("--map says what a router's workers are called here: give --ask-router, --ask-indexer, --ask-selector or --trace too")
	}
	for _, pair := range f.rename {
		if theirs, ours, ok := strings.Cut(pair, "="); !ok || theirs == "" || ours == "" {
			return usageError("--map %q: give WORKER/RANK=REPLICA", pair)
		}
	}
	if f.trace != "" {
		file, err := os.Open(f.trace)
		if err != nil {
			return inputError(fmt.Errorf("the request trace: %w", err))
		}
		return file.Close()
	}
	return nil
}

// asking is one prompt's questions to routers.
type asking struct {
	*remote.Client
	fleet  seen
	query  explain.Query
	answer *explain.Answer
	prompt remote.Prompt
	// about is what is asked, and body the chat to send, nil for token ids.
	about question
	body  []byte
	names map[wire.Replica]wire.Replica
	// sockets are our names by the event sockets.
	sockets map[string]wire.Replica
}

// ask adds what the routers say to an answer. An error says who gave none.
func (f *askFlags) ask(ctx context.Context, s seen, members []fleet.Member, q explain.Query, a *explain.Answer, about question) error {
	k := &asking{
		Client: remote.New(remote.Options{}), fleet: s, query: q, answer: a, about: about,
		prompt: remote.Prompt{Model: a.Model, Tokens: q.Tokens, LoRA: q.LoRA, Salt: q.Salt},
		names:  map[wire.Replica]wire.Replica{}, sockets: eventSockets(members),
	}
	if f.chat {
		k.body = about.request.Body()
	}
	for i := range a.Candidates { // in a recording names are all there is
		name := a.Candidates[i].Replica
		if place := socketPlace(string(name)); k.sockets[place] == "" {
			k.sockets[place] = name
		}
	}
	for _, pair := range f.rename {
		theirs, ours, _ := strings.Cut(pair, "=")
		k.names[wire.Replica(theirs)] = wire.Replica(ours)
	}
	var errs []error
	for _, of := range []struct {
		who, at string
		ask     func(context.Context, string) (remote.Answer, *explain.Asked, error)
	}{
		{"indexer", f.indexer, k.indexer}, // first: it knows the workers' sockets
		{"router", f.router, k.router},
		{"selector", f.selector, k.selector},
		{"trace", f.trace, k.trace},
	} {
		if of.at == "" {
			continue
		}
		theirs, said, err := of.ask(ctx, of.at)
		if err == nil {
			err = k.compare(ctx, &theirs, said)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", of.who, err))
			said = &explain.Asked{Err: err.Error()}
		}
		said.Who, said.At = of.who, of.at
		if u, err := web.Parse(of.at); err == nil { // the trace is a file
			said.At = web.Shown(u)
		}
		a.Asked = append(a.Asked, *said)
	}
	return together(errs...)
}

// together makes one sentence of errors, nil of none.
func together(errs ...error) error {
	var out error
	for _, err := range errs {
		switch {
		case out == nil:
			out = err
		case err != nil:
			out = fmt.Errorf("%w; %w", out, err)
		}
	}
	return out
}

// router probes a frontend.
func (k *asking) router(ctx context.Context, at string) (remote.Answer, *explain.Asked, error) {
	if k.body == nil {
		choice, err := k.Probe(ctx, at, k.prompt)
		return remote.Answer{Choice: choice}, &explain.Asked{}, err
	}
	choice, err := k.ProbeChat(ctx, at, k.body)
	if err != nil {
		return remote.Answer{}, nil, err
	}
	return remote.Answer{Choice: choice}, &explain.Asked{Said: k.reads(choice.Tokens)}, nil
}

// reads says how the tokens that a router made of a chat stand to ours.
func (k *asking) reads(theirs []wire.Token) string {
	said := fmt.Sprintf("it reads the chat as %s, here it is %d", wire.Counted(len(theirs), "token"), len(k.about.prompt.Tokens))
	m, differs := explain.Mismatched(k.about.request, k.about.prompt, theirs, k.about.speech())
	switch {
	case !differs && len(theirs) != len(k.about.prompt.Tokens):
		return said + ", and none differs up to where the shorter one ends"
	case !differs:
		return said + ", and none differs"
	}
	return fmt.Sprintf("%s, and they differ from token %d on (%s): %s", said, m.Token, m.Kind, m.Line("in the router"))
}

// indexer asks by hash, so that no token leaves.
func (k *asking) indexer(ctx context.Context, at string) (remote.Answer, *explain.Asked, error) {
	fail := func(err error) (remote.Answer, *explain.Asked, error) { return remote.Answer{}, nil, err }
	listeners, err := k.Workers(ctx, at)
	if err != nil {
		return fail(err)
	}
	size := 0
	nameBySockets(k.names, listeners, k.sockets, func(r wire.Replica) bool { return k.candidate(r) != nil })
	for _, l := range listeners {
		if l.Model == k.prompt.Model {
			size = cmp.Or(size, l.BlockSize)
		}
	}
	locals, _ := blockhash.Rolling(k.query.Tokens, k.answer.BlockSize, k.answer.Given.Request.Bigram, blockhash.NamespaceOf(k.query.LoRA, k.query.Salt), nil)
	m, err := k.QueryByHash(ctx, at, k.prompt.Model, locals)
	if err != nil {
		return fail(err)
	}
	m.BlockSize = size
	return remote.Answer{Matches: m}, &explain.Asked{Said: k.holds(m)}, nil
}

// selector asks the selection service for all that it decides by.
func (k *asking) selector(ctx context.Context, at string) (out remote.Answer, _ *explain.Asked, err error) {
	if out.Choice, err = k.Select(ctx, at, k.prompt); err != nil {
		return out, nil, err
	}
	if out.Matches, err = k.Overlaps(ctx, at, k.prompt); err != nil {
		return out, nil, err
	}
	if out.Loads, err = k.Loads(ctx, at, k.prompt.Model); err != nil {
		return out, nil, err
	}
	return out, &explain.Asked{Said: k.holds(out.Matches)}, nil
}

// trace finds the decision for this prompt that is nearest in time, one of a request
// that was dispatched if there is any.
func (k *asking) trace(_ context.Context, path string) (remote.Answer, *explain.Asked, error) {
	fail := func(err error) (remote.Answer, *explain.Asked, error) { return remote.Answer{}, nil, err }
	file, err := os.Open(path)
	if err != nil {
		return fail(err)
	}
	defer file.Close() // only read from
	var damage error
	best, n, rows := remote.Traced{}, 0, 0
	hashes := map[int][]uint64{} // by block size
	t := remote.NewTrace(file, path)
	for {
		row, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if damage = err; damage != nil {
			break
		}
		if rows++; row.Length != len(k.query.Tokens) || row.BlockSize <= 0 || len(row.Blocks) == 0 {
			continue
		}
		if _, ok := hashes[row.BlockSize]; !ok {
			_, hashes[row.BlockSize] = blockhash.Rolling(k.query.Tokens, row.BlockSize, k.answer.Given.Request.Bigram, blockhash.NamespaceOf(k.query.LoRA, ""), nil)
		}
		if !slices.Equal(row.Blocks, hashes[row.BlockSize]) {
			continue
		}
		if n++; n == 1 || k.better(&row, &best) {
			best = row
		}
	}
	switch {
	case n == 0 && damage != nil:
		return fail(damage)
	case n == 0:
		return fail(fmt.Errorf("%s has no decision for this prompt among %d: its hashes tell prompts apart by their full blocks, and need DYN_REQUEST_TRACE when it is sent", path, rows))
	}
	said := fmt.Sprintf("request %s of %s, kv_hit_rate %.3g", wire.Printable(best.Request), stamp(best.At), best.HitRate)
	if ours, ok := k.share(k.named(best.Prefill)); ok {
		said += fmt.Sprintf(", here %.3g", ours)
	}
	if best.Unanswered {
		said += ", a query-only probe or a request that failed"
	}
	if n > 1 {
		said += fmt.Sprintf("; of %d decisions for this prompt the nearest in time", n)
	}
	if damage != nil { // what was found stands
		said += "; " + damage.Error()
	}
	return best.Answer(), &explain.Asked{
		Said: said, Decision: &explain.Decision{Request: best.Request, At: best.At, HitRate: best.HitRate},
	}, nil
}

// better says which of two decisions for the prompt tells more. A probe, which can be
// our own, gives way to what was dispatched.
func (k *asking) better(a, b *remote.Traced) bool {
	if a.Unanswered != b.Unanswered {
		return b.Unanswered
	}
	return k.away(a.At) <= k.away(b.At)
}

// away is how far from now a moment is.
func (k *asking) away(at wire.Time) wire.Time { return max(at-k.answer.Now, k.answer.Now-at) }

// share is how much of the prompt a replica has on its device, as a router counts
// it: of all blocks that the prompt fills or begins.
func (k *asking) share(r wire.Replica) (float64, bool) {
	c, req := k.candidate(r), &k.answer.Given.Request
	if c == nil {
		return 0, false
	}
	return float64(c.Match[wire.Device]) / float64((req.Tokens+req.BlockSize-1)/req.BlockSize), true
}

// candidate finds one by our name, and is nil where it is none.
func (k *asking) candidate(r wire.Replica) *route.Candidate {
	all := k.answer.Given.Candidates
	if at := slices.IndexFunc(all, func(c route.Candidate) bool { return c.Replica == r }); at >= 0 {
		return &all[at]
	}
	return nil
}

// compare looks at the index once more, and holds an answer against ours.
func (k *asking) compare(ctx context.Context, theirs *remote.Answer, said *explain.Asked) error {
	given := &k.answer.Given
	if stranger, all := k.strangers(theirs); all {
		said.Why = fmt.Sprintf("none of their replicas is a candidate here, %s for one: say with --map %s=REPLICA what it is called here", stranger, stranger)
		return nil
	}
	q := remote.Question{
		Config: given.Config, Request: given.Request, Candidates: given.Candidates, Tokens: k.query.Tokens, Names: k.names,
	}
	if said.Decision == nil { // what has come since tells nothing of an old decision
		if after, err := k.fleet.Explain(ctx, k.query); err == nil {
			q.After = after.Given.Candidates
		}
	}
	c, err := remote.Compare(&q, theirs)
	if err != nil {
		return err
	}
	said.Choice, said.Agrees, said.Why = c.Chosen, c.Agrees, c.Why
	for _, d := range c.Differences {
		said.Differences = append(said.Differences, explain.AskedDifference(d))
	}
	return nil
}

// strangers gives one of their replicas, and whether none that they name is a
// candidate.
func (k *asking) strangers(theirs *remote.Answer) (one wire.Replica, all bool) {
	var named []wire.Replica
	if c := theirs.Choice; c != nil {
		named = append(named, c.Prefill, c.Decode)
	}
	if theirs.Matches != nil {
		for _, h := range theirs.Matches.Rows {
			named = append(named, h.Replica)
		}
	}
	for _, l := range theirs.Loads {
		named = append(named, l.Replica)
	}
	for _, r := range named {
		if k.candidate(k.named(r)) != nil {
			return "", false
		}
		one = r
	}
	return one, len(named) > 0
}

// holds says who holds what of the prompt, the most first.
func (k *asking) holds(m *remote.Matches) string {
	type row struct {
		who    wire.Replica
		tokens int
	}
	var rows []row
	for _, h := range m.Rows {
		r := row{who: k.named(h.Replica)}
		for _, n := range h.Tokens {
			r.tokens += n
		}
		if r.tokens > 0 {
			rows = append(rows, r)
		}
	}
	if rows == nil {
		return "it knows of nobody who holds any of it"
	}
	slices.SortStableFunc(rows, func(a, b row) int { return b.tokens - a.tokens })
	const most = 8
	var out []string
	for _, r := range rows[:min(len(rows), most)] {
		out = append(out, fmt.Sprintf("%s %d", wire.Printable(string(r.who)), r.tokens))
	}
	if more := len(rows) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return "tokens of it held: " + strings.Join(out, ", ")
}

func (k *asking) named(r wire.Replica) wire.Replica { return cmp.Or(k.names[r], r) }

// eventSockets are the engines' names by the places of their event sockets.
func eventSockets(members []fleet.Member) map[string]wire.Replica {
	out := map[string]wire.Replica{}
	for i := range members {
		if m := &members[i]; m.Events != "" && m.Kind == fleet.Engine {
			out[socketPlace(m.Events)] = m.Name
		}
	}
	return out
}

// nameBySockets adds to names, theirs to ours, what an indexer's workers are called
// here by the sockets that it listens to. Those that have a name, or are called as one
// of ours, keep it.
func nameBySockets(names map[wire.Replica]wire.Replica, listeners []remote.Listener, sockets map[string]wire.Replica, known func(wire.Replica) bool) {
	for _, l := range listeners {
		if ours, ok := sockets[socketPlace(l.Endpoint)]; ok && names[l.Replica] == "" && !known(l.Replica) {
			names[l.Replica] = ours
		}
	}
}

// socketPlace is the place of an event socket, however it is written.
func socketPlace(address string) string {
	if _, place, ok := strings.Cut(address, "://"); ok {
		address = place
	}
	if host, port, err := net.SplitHostPort(address); err == nil && host == "localhost" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}
