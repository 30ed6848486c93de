package explain

import (
	"fmt"
	"testing"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// longPrompt is 128k tokens on 64 busy replicas. Each holds of the prompt what
// share says, and other prompts that begin alike.
func longPrompt(b *testing.B, share func(replica, blocks int) int) (Fleet, Query) {
	b.Helper()
	const size = 16
	q := Query{Tokens: make([]wire.Token, 128<<10), PrefillRate: 1e4}
	for i := range q.Tokens {
		q.Tokens[i] = wire.Token(uint32(i * 2654435761))
	}
	policy, err := route.Named("dynamo")
	if err != nil {
		b.Fatal(err)
	}
	cfg, err := policy.Configure(route.Sources{Set: []route.Setting{{Name: "decode_active_request_weight", Value: "1"}}})
	if err != nil {
		b.Fatal(err)
	}
	q.Config = &cfg
	_, seq := blockhash.Rolling(q.Tokens, size, false, 0, nil)
	f := Fleet{Now: 1, Index: index.New(index.Options{}), Loads: NewLoads()}
	f.Loads.routers[1] = &router{books: true}
	store := func(name wire.Replica, blocks int) {
		e := wire.Event{Kind: wire.Stored, BlockSize: size, Group: -1, Tokens: q.Tokens[:blocks*size]}
		for n := range blocks {
			e.Hashes = append(e.Hashes, wire.IntHandle(seq[n]))
		}
		f.Index.Apply(name, &e, false)
	}
	name := func(i int) wire.Replica { return wire.Replica(fmt.Sprintf("worker-%d/0", i)) }
	for i := range 64 {
		store(name(i), 4) // as in a fleet that runs for a while, all share their beginnings
	}
	for i := range 64 {
		name := name(i)
		store(name, share(i, len(seq)))
		for n := range i {
			f.Loads.book.Add(1, route.Added{Request: fmt.Sprint(i, n), Replica: name, Blocks: seq[:n*17], Prefill: n * 300})
		}
		f.Replicas = append(f.Replicas, Replica{Name: name, Trust: Trust{Exact: true, Known: true, Model: "m"}})
	}
	return f, q
}

// BenchmarkExplain is everything after tokenization: hashes, matches, loads, the
// decision with its words, the flips and where the prompt diverges.
func BenchmarkExplain(b *testing.B) {
	for _, c := range []struct {
		name  string
		share func(replica, blocks int) int
		// doubt says that every replica has missed something since.
		doubt bool
	}{
		{"a part each", func(r, blocks int) int { return blocks * r / 64 }, false},
		{"all of it everywhere", func(_, blocks int) int { return blocks }, false},
		{"all of it on one", func(r, blocks int) int { return 64 + blocks*(r/63)*63/64 }, false},
		{"a part each, all in doubt", func(r, blocks int) int { return blocks * r / 64 }, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			f, q := longPrompt(b, c.share)
			for i := range f.Replicas {
				if c.doubt {
					f.Index.Doubt(f.Replicas[i].Name)
				}
			}
			for b.Loop() {
				a, err := Candidates(f, q)
				if err != nil || len(a.Candidates) != 64 || len(a.Flips) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
