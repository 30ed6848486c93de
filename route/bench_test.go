package route

import (
	"fmt"
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
