package observe

import (
	"slices"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// run gives so many tokens from a number on.
func numbered(from, n int) []wire.Token {
	out := make([]wire.Token, n)
	for i := range out {
		out[i] = wire.Token(from + i)
	}
	return out
}

// asked are requests, three seconds apart, each of which stores the blocks of four
// tokens that no one before it stored. A prompt's picture is of the block by that
// number.
func asked(t *testing.T, pictures int, prompts ...[]wire.Token) []wire.Record {
	t.Helper()
	var out []wire.Record
	have := map[uint64]bool{}
	for i, p := range prompts {
		var parent any
		hashes, tokens, extra := []uint64{}, []wire.Token{}, []any{}
		name := uint64(1)
		for b := range len(p) / 4 {
			for _, token := range p[4*b : 4*b+4] {
				name = (name ^ uint64(token)) * 0x9E3779B97F4A7C15
				name ^= name >> 32
			}
			var keys any
			if b == pictures {
				name += uint64(i)
				keys = []any{[]any{"picture " + string(rune('a'+i)), 0}}
			}
			if have[name] {
				parent = name
				continue
			}
			have[name] = true
			hashes, tokens, extra = append(hashes, name), append(tokens, p[4*b:4*b+4]...), append(extra, keys)
		}
		event := map[string]any{
			"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
			"block_size": 4, "lora_id": nil, "medium": "GPU", "extra_keys": extra,
		}
		out = append(out, frame(t, float64(1+3*i), r1, uint64(i), event))
	}
	return append(out, frame(t, float64(1+3*len(prompts)), r1, uint64(len(prompts))))
}

// plainly are requests without pictures.
func plainly(prompts ...[]wire.Token) func(*testing.T) []wire.Record {
	return func(t *testing.T) []wire.Record { t.Helper(); return asked(t, -1, prompts...) }
}

// shifted also wants how many blocks were lost, and the token.
func shifted(blocks, token int, parts ...string) func(*testing.T, *diagnose.Finding) {
	return func(t *testing.T, f *diagnose.Finding) {
		t.Helper()
		titled(diagnose.Warning, parts...)(t, f)
		if *f.Effect.Blocks != blocks || *f.Evidence.Token != token || *f.Evidence.Block != token/4 || f.Counterfactual == "" {
			t.Errorf("%d blocks at token %d of block %d (%s); %s", *f.Effect.Blocks, *f.Evidence.Token, *f.Evidence.Block, f.Title, f.Counterfactual)
		}
	}
}

var (
	head    = numbered(100, 6)
	stable  = numbered(1000, 60)
	section = [][]wire.Token{numbered(3000, 20), numbered(4000, 20), numbered(5000, 20)}
)

// doubled are four chats that two paths render, the second with so many tokens for the
// beginning of text.
func doubled(n int) (out [][]wire.Token) {
	for i := range 4 {
		text := numbered(2000*(i+1), 60)
		out = append(out, slices.Concat(numbered(1, 1), text), slices.Concat(slices.Repeat(numbered(1, 1), n), text))
	}
	return out
}

var shiftScenarios = []scenario{
	{
		code: "boundary-shift", name: "two tokens in the head",
		fault: plainly(
			slices.Concat(head, numbered(7000, 2), stable), slices.Concat(head, numbered(7100, 2), stable),
			slices.Concat(head, numbered(7200, 2), stable), slices.Concat(head, numbered(7300, 2), stable),
		),
		twin: plainly(
			slices.Concat(head, stable, numbered(7000, 2)), slices.Concat(head, stable, numbered(7100, 2)),
			slices.Concat(head, stable, numbered(7200, 2)), slices.Concat(head, stable, numbered(7300, 2)),
		),
		want: shifted(45, 6, "4 of 4 requests", "token 6 (block 1)", "2 tokens replaced by as many", "45 blocks"),
	},
	{
		code: "boundary-shift", name: "one token more each time",
		fault: plainly(
			slices.Concat(head, numbered(7000, 1), stable), slices.Concat(head, numbered(7100, 2), stable),
			slices.Concat(head, numbered(7200, 3), stable), slices.Concat(head, numbered(7300, 4), stable),
		),
		twin: plainly( // a few may always part
			slices.Concat(head, numbered(7000, 1), stable), slices.Concat(head, numbered(7100, 2), stable),
			slices.Concat(head, numbered(7200, 3), stable),
		),
		want: shifted(45, 6, "4 of 4 requests", "token 6 (block 1)", "resized"),
	},
	{
		code: "order-shift", name: "three tools",
		fault: plainly(
			slices.Concat(head, section[0], section[1], section[2]), slices.Concat(head, section[1], section[2], section[0]),
			slices.Concat(head, section[2], section[0], section[1]), slices.Concat(head, section[2], section[1], section[0]),
		),
		twin: plainly(
			slices.Concat(head, section[0], section[1], section[2], numbered(7000, 8)), slices.Concat(head, section[0], section[1], section[2], numbered(7100, 8)),
			slices.Concat(head, section[0], section[1], section[2], numbered(7200, 8)), slices.Concat(head, section[0], section[1], section[2], numbered(7300, 8)),
		),
		want: shifted(40, 6, "4 of 4 requests", "token 6 (block 1)", "in another order"),
	},
	{
		code: "template-drift", name: "the beginning doubled on one path",
		fault: plainly(doubled(2)...), twin: plainly(doubled(1)...),
		want: titled(diagnose.Warning, "4 of 8 requests", "bos (doubled)", "60 blocks"),
	},
	{
		code: "multimodal-first", name: "a picture before the instructions",
		fault: func(t *testing.T) []wire.Record { return asked(t, 1, stable, stable, stable, stable) },
		twin:  func(t *testing.T) []wire.Record { return asked(t, 14, stable, stable, stable, stable) },
		want:  shifted(39, 4, "4 of 4 requests", "block 1"),
	},
}
