package route

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// longPrompt is 128k tokens on 64 replicas that are busy with parts of it.
func longPrompt(b *testing.B) (tokens []uint32, book *Sequences, req Request, cands []Candidate) {
	b.Helper()
	const size = 16
	tokens = make([]uint32, 128<<10)
	for i := range tokens {
		tokens[i] = uint32(i * 2654435761)
	}
	_, seq := blockhash.Rolling(tokens, size, false, 0, nil)
	book = NewSequences(rulesOf(b))
	req = Request{Tokens: len(tokens), BlockSize: size}
	for i := range 64 {
		c := Candidate{Replica: wire.Replica(fmt.Sprintf("worker-%d/0", i))}
		c.Match[wire.Device] = i * 100
		c.Match[wire.Host] = i * 10
		for n := range i {
			book.Add(1, Added{Request: fmt.Sprint(i, n), Replica: c.Replica, Blocks: seq[:n*17], Prefill: n * 300})
		}
		cands = append(cands, c)
	}
	return tokens, book, req, cands
}

// BenchmarkAll is all that comes between tokens and a full answer, but for the
// index: hashes, loads, the decision with its words, and the flips.
func BenchmarkAll(b *testing.B) {
	tokens, book, req, cands := longPrompt(b)
	cfg := configured(b, "dynamo", "decode_active_request_weight=1")
	for b.Loop() {
		_, seq := blockhash.Rolling(tokens, req.BlockSize, false, 0, nil)
		for i := range cands {
			cands[i].Load = book.Load(cands[i].Replica, seq)
		}
		d, err := Decide(cfg, &req, cands)
		if err != nil || len(d.Best) == 0 {
			b.Fatal(err)
		}
		if Flips(cfg, &req, cands) == nil {
			b.Fatal("no flip")
		}
	}
}

func BenchmarkLoads(b *testing.B) {
	tokens, book, req, cands := longPrompt(b)
	_, seq := blockhash.Rolling(tokens, req.BlockSize, false, 0, nil)
	for b.Loop() {
		for i := range cands {
			cands[i].Load = book.Load(cands[i].Replica, seq)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	_, _, req, cands := longPrompt(b)
	cfg := configured(b, "dynamo")
	for b.Loop() {
		if _, err := Decide(cfg, &req, cands); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFlips(b *testing.B) {
	_, _, req, cands := longPrompt(b)
	cfg := configured(b, "dynamo")
	for b.Loop() {
		Flips(cfg, &req, cands)
	}
}

// BenchmarkRoute is a router's work for one request of a workload without text: 24
// symbols, half of them a conversation's own, on 8 busy replicas.
func BenchmarkRoute(b *testing.B) {
	for _, name := range Policies() {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			r := NewRouter(*configured(b, name), rng)
			req := Request{Tokens: 24 * 512, BlockSize: 512, Width: 512, Symbols: make([]rune, 24)}
			cands := make([]Candidate, 8)
			for i := range cands {
				cands[i] = cand(wire.Replica(fmt.Sprint("w", i)), 0, 0, 0, 0)
			}
			for n := 0; b.Loop(); n++ {
				talk := rng.IntN(100_000)
				for i := range req.Symbols[12:] {
					req.Symbols[12+i] = rune(talk*16 + i + 1000)
				}
				req.Session, req.At = fmt.Sprint(talk), wire.Time(n)*1e6
				if n%2 == 0 {
					req.Session = ""
				}
				for i := range cands {
					cands[i].Load.Requests = rng.IntN(8)
					cands[i].Match[wire.Device] = rng.IntN(25)
				}
				if r.Route(&req, cands) < 0 {
					b.Fatal("nobody")
				}
			}
		})
	}
}

// BenchmarkFlipsOf looks for the flips of each policy among 16 replicas.
func BenchmarkFlipsOf(b *testing.B) {
	for _, name := range Policies() {
		b.Run(name, func(b *testing.B) {
			req := Request{Tokens: 4096, BlockSize: 16, Session: "s", Contents: []string{strings.Repeat("word ", 4096)}}
			var cands []Candidate
			for i := range 16 {
				cands = append(cands, cand(wire.Replica(fmt.Sprint("w", i)), i*9%200, i*100, i*7, i%5))
			}
			cfg := configured(b, name)
			for b.Loop() {
				Flips(cfg, &req, cands)
			}
		})
	}
}
