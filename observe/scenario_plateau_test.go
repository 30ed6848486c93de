package observe

import (
	"slices"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// questions are n prompts of one system prompt of so many tokens, each with 60 tokens
// of its own behind it.
func questions(system, n int) (out [][]wire.Token) {
	for i := range n {
		out = append(out, slices.Concat(numbered(100, system), numbered(10_000+100*i, 60)))
	}
	return out
}

// chatting are n chats with one system prompt, one after the other, of so many turns
// each.
func chatting(system, n, turns int) (out [][]wire.Token) {
	for i := range n {
		for turn := range turns {
			out = append(out, slices.Concat(numbered(100, system), numbered(10_000+1000*i, 60*(turn+1))))
		}
	}
	return out
}

// ends wants where reuse ends, how many requests do so of how many, and the blocks that
// they stored.
func ends(token, blocks int, parts ...string) func(*testing.T, *diagnose.Finding) {
	return func(t *testing.T, f *diagnose.Finding) {
		t.Helper()
		titled(diagnose.Info, parts...)(t, f)
		if *f.Evidence.Token != token || *f.Evidence.Block != token/4 || *f.Effect.Blocks != blocks {
			t.Errorf("token %d, block %d, %d blocks: %s", *f.Evidence.Token, *f.Evidence.Block, *f.Effect.Blocks, f.Title)
		}
	}
}

var plateauScenarios = []scenario{
	{ // 39 of 40 find 12 blocks of 4 and store 15: 468 of 1,053
		code: "reuse-plateau", name: "one system prompt and nothing else in common",
		fault: plainly(questions(48, 40)...), twin: plainly(chatting(48, 40, 3)...),
		want: ends(48, 39*15, "39 of 40 requests", "token 48 (block 12)", "44 % of their blocks"),
	},
	{
		code: "reuse-plateau", name: "a system prompt that ends inside a block",
		fault: plainly(questions(51, 40)...), twin: plainly(questions(51, 32)...), // of which 31 count
		want: ends(48, 39*15, "39 of 40 requests", "3 more tokens are the same, but end inside a block of 4"),
	},
	{ // the shift is named with what it costs, so where it begins is not told again
		code: "reuse-plateau", name: "and not where a shift begins",
		fault: plainly(questions(48, 34)...),
		twin: func(t *testing.T) []wire.Record {
			var prompts [][]wire.Token
			for i := range 40 {
				prompts = append(prompts, slices.Concat(numbered(100, 48), numbered(10_000+100*i, 4), numbered(1000, 60)))
			}
			return plainly(prompts...)(t)
		},
		want: ends(48, 33*15, "33 of 34 requests"),
	},
}
