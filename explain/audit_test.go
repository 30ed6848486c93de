package explain

import (
	"testing"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/wire"
)

// store announces blocks of four tokens, block i with tokens 4i to 4i+3 and
// handle i+1.
func store(name wire.Replica, x *index.Index, first, n int) {
	e := wire.Event{Kind: wire.Stored, BlockSize: 4, Group: -1}
	if first > 0 {
		e.Parent = wire.IntHandle(uint64(first))
	}
	for i := first; i < first+n; i++ {
		e.Hashes = append(e.Hashes, wire.IntHandle(uint64(i+1)))
	}
	e.Tokens = tokens(4*first, 4*n)
	x.Apply(name, &e, false)
}

func tokens(from, n int) []wire.Token {
	out := make([]wire.Token, n)
	for i := range out {
		out[i] = wire.Token(from + i)
	}
	return out
}

func TestAudit(t *testing.T) {
	t.Parallel()
	exact := Trust{Exact: true, Known: true, Words: "EXACT"}
	degraded := Trust{Known: true, Words: "DEGRADED(late-join)"}
	request := func(name string, start, end wire.Time, prompt, cached int) Request {
		return Request{Start: start, End: end, Replica: name, Tokens: tokens(0, prompt), Cached: cached, Known: true}
	}
	// Replica a holds 2 blocks from time 10 on and 4 from time 20 on; b, which
	// no log names, holds nothing.
	for name, c := range map[string]struct {
		request Request
		trust   Trust
		want    string
	}{
		"before anything":            {request("a", 1, 2, 17, 0), exact, "agree"},
		"what was there":             {request("a", 12, 13, 17, 8), exact, "agree"},
		"more came while it ran":     {request("a", 12, 25, 17, 16), exact, "agree"},
		"something in between":       {request("a", 12, 25, 17, 12), exact, "agree"},
		"too little":                 {request("a", 12, 13, 17, 12), exact, "under"},
		"too much":                   {request("a", 12, 13, 17, 4), exact, "over"},
		"the last token":             {request("a", 21, 22, 16, 12), exact, "agree"},
		"more than the last allows":  {request("a", 21, 22, 16, 16), exact, "under"},
		"after the last batch":       {request("a", 90, 91, 17, 16), exact, "agree"},
		"a bound that holds":         {request("a", 12, 13, 17, 16), degraded, "agree"},
		"a bound that fails":         {request("a", 12, 13, 17, 4), degraded, "over"},
		"a link that is down":        {request("a", 12, 13, 17, 0), Trust{Known: true, Stale: true, Words: "STALE"}, "agree"},
		"never heard":                {request("a", 12, 13, 17, 0), Trust{Words: "BLIND"}, "unverifiable"},
		"not judged on a free one":   {request("a", 12, 13, 17, 0), exact, "over"},
		"another name, found free":   {request("z", 12, 13, 17, 0), exact, "agree"},
		"another name, fits neither": {request("z", 12, 13, 17, 2), exact, "under"},
		"before the recording":       {request("a", -9, 0, 17, 0), exact, "unverifiable"},
		"behind its end":             {request("a", 96, 97, 17, 16), exact, "unverifiable"},
		"by design":                  {Request{Replica: "a", Start: 12, End: 13, Excluded: "prompt_logprobs"}, exact, "excluded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := index.New(index.Options{})
			a := NewAuditor(x, []Request{c.request}, nil, func(wire.Replica) Trust { return c.trust })
			change := func(name wire.Replica, at wire.Time, do func()) {
				a.Before(name, at)
				do()
				a.After(name)
			}
			change("b", 5, func() {})
			change("a", 10, func() { store("a", x, 0, 2) })
			change("a", 20, func() { store("a", x, 2, 2) })
			got := a.Finish([]wire.Replica{"a", "b"}, 1, 95)
			sum := map[string]int{
				"agree": got.Agree, "over": got.Over, "under": got.Under,
				"unverifiable": got.Unverifiable, "excluded": got.Excluded,
			}
			for kind, n := range sum {
				if want := map[bool]int{true: 1}[kind == c.want]; n != want {
					t.Errorf("%s: %d, want %s; %+v", kind, n, c.want, got)
				}
			}
		})
	}
}
