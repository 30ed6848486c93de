package index

import (
	"github.com/zeebo/xxh3"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// usual are the recipes that are tried on a replica whose own is not known:
// the defaults of engines that publish events.
var usual = recipes(
	"vllm/sha256 seed=vllm-none-hash", "vllm/sha256_cbor seed=vllm-none-hash",
	"vllm/sha256 seed=0", "vllm/sha256_cbor seed=0", "vllm/xxhash seed=0", "vllm/xxhash_cbor seed=0",
	"sglang/page", "dynamo/sequence",
)

func recipes(names ...string) []blockhash.Recipe {
	var out []blockhash.Recipe
	for _, name := range names {
		if r, ok := blockhash.Named(name); ok {
			out = append(out, r)
		}
	}
	return out
}

// proveByPrompt computes a prompt's own handles, and where a replica has a
// chain waiting for one of them, that chain's beginning is now known.
func (x *Index) proveByPrompt(p *Prompt, s shape, cut *shaped) {
	for _, r := range x.byID {
		if len(r.orphans) == 0 || r.blockSize != s.size || r.bigram != s.bigram {
			continue
		}
		candidates := usual
		if known := x.recipe(r); !known.IsZero() {
			candidates = []blockhash.Recipe{known}
		}
		for _, recipe := range candidates {
			links, ok := cut.chains[recipe]
			if !ok {
				links = p.links(recipe, s)
				cut.chains[recipe] = links
			}
			if x.proveChain(r, recipe, links, cut.locals, p.namespace()) {
				break
			}
		}
	}
}

// links are the handles of a prompt's blocks under a recipe, as far as they
// can be computed. Where the engine's form of extra keys is not known, the
// form that gets furthest is taken.
func (p *Prompt) links(recipe blockhash.Recipe, s shape) []blockhash.Link {
	run := blockhash.Run[wire.Token]{
		Context: blockhash.Context{LoRA: p.LoRA, Salt: p.Salt},
		Tokens:  p.Tokens, BlockSize: s.size, Bigram: s.bigram, Extra: p.Extra,
	}
	forms := []blockhash.Form{recipe.Form, blockhash.Tagged, blockhash.Bare}
	var best []blockhash.Link
	for _, recipe.Form = range forms {
		links, err := blockhash.Chain(recipe, blockhash.Digest{}, run)
		if len(links) > len(best) {
			best = links
		}
		if err == nil {
			break
		}
	}
	return best
}

// proveChain attaches the orphans of a replica that a chain of handles names,
// and reports whether there were any.
func (x *Index) proveChain(r *replica, recipe blockhash.Recipe, links []blockhash.Link, locals []uint64, ns blockhash.Namespace) bool {
	keys := make([]uint64, min(len(links), len(locals)))
	last := -1
	for i := range keys {
		keys[i] = links[i].Handle
		if r.bytes {
			keys[i] = xxh3.Hash(links[i].Digest.Bytes())
		}
		if r.orphans[keys[i]] != nil {
			last = i
		}
	}
	if last < 0 {
		return false
	}
	if x.recipe(r).IsZero() {
		x.identified(r, recipe)
	}
	id := none
	for i := 0; i <= last; i++ {
		c := x.child(id, locals[i], ns)
		if c == none {
			break
		}
		id = c
		x.name(r, keys[i], id)
	}
	for ; id != none; id = x.nodes[id].parent {
		if k := keys[x.nodes[id].depth-1]; r.orphans[k] != nil {
			x.learn(r, k, id, keys)
		}
	}
	return true
}
