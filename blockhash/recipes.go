package blockhash

import (
	"errors"
	"fmt"
	"strings"
)

// algorithm is one way of engines to hash blocks. In the table a nil function
// means that the algorithm has no such part.
type algorithm struct {
	name string
	// seedRoot makes the root of all chains from a seed text. An algorithm
	// that has it needs a seed to be a recipe.
	seedRoot func(seed string) Digest
	// root makes the root of one chain.
	root func(*Context) Digest
	// block makes the digest of w's block.
	block func(w *work) (Digest, error)
	// handle makes the integer on the wire.
	handle func(*Digest, *work) (uint64, error)
	// forms are those that the algorithm knows.
	forms []Form
	// bigram says that blocks of overlapping pairs exist.
	bigram bool
}

// algorithms are the known ones, in the order in which Identify tries them.
var algorithms = [...]algorithm{
	vllm("vllm/sha256", vllmHash{pickled, sumSHA256}),
	vllm("vllm/sha256_cbor", vllmHash{cbored, sumSHA256}),
	vllm("vllm/xxhash", vllmHash{pickled, sumXXH128}),
	vllm("vllm/xxhash_cbor", vllmHash{cbored, sumXXH128}),
	{
		name: "sglang/page", root: sglangRoot, block: sglangPage, handle: sglangHandle,
		forms: []Form{SGLangDefault, SGLangDynamo}, bigram: true,
	},
	{name: "dynamo/sequence", block: dynamoBlock, handle: lastBytes, bigram: true},
}

// seeds are the values of PYTHONHASHSEED that Identify always tries, the first
// being what vLLM uses from 0.29 on where none is set.
var seeds = [...]string{"vllm-none-hash", "0", "1", "42", "random", "12345"}

func vllm(name string, h vllmHash) algorithm {
	return algorithm{
		name: name, seedRoot: h.root, block: h.block, handle: lastBytes,
		forms: []Form{Tagged, Bare, BareID},
	}
}

// lastBytes is vLLM's integer form of a hash: the last 8 bytes of the digest,
// big-endian.
func lastBytes(d *Digest, _ *work) (uint64, error) { return d.last(), nil }

// Errors of [Chain]. Those that say what exactly is missing wrap one of them.
var (
	// ErrUnpublished says that the hash covers something that events do not
	// carry and the Context does not give.
	ErrUnpublished = errors.New("blockhash: not computable from events alone")
	// ErrForm says that a block has extra keys and the Recipe's form of them
	// is not known yet.
	ErrForm = errors.New("blockhash: the engine's form of extra keys is not known")
	// ErrInput says that the Recipe has no such blocks.
	ErrInput = errors.New("blockhash: no such block in this recipe")

	errLoRAPath = fmt.Errorf("%w: the path of the LoRA adapter (vLLM 0.31 and later hash it)", ErrUnpublished)
	errLoRAName = fmt.Errorf("%w: the name of the LoRA adapter (published from vLLM 0.14 on)", ErrUnpublished)
	errLoRAID   = fmt.Errorf("%w: the integer id of the LoRA adapter", ErrUnpublished)
	errExtraKey = fmt.Errorf("%w: the cache key of the LoRA adapter (SGLang)", ErrUnpublished)
	errOddKey   = fmt.Errorf("%w: an extra key of unknown shape", ErrInput)
	errBigram   = fmt.Errorf("%w: overlapping pairs", ErrInput)
	errRecipe   = fmt.Errorf("%w: the zero Recipe", ErrInput)
)

// Recipe is an algorithm and the root that its chains start from. Engines of one
// Recipe give equal blocks equal handles. Recipes are comparable; the zero
// Recipe is none.
type Recipe struct {
	alg  *algorithm
	seed string
	base Digest
	// Form is how the engine hashes extra keys. It is no part of the name:
	// blocks without extra keys do not depend on it. A form of other engines
	// counts as AnyForm.
	Form Form
}

const seedWord = " seed="

// Name is the recipe's stable name, such as "vllm/sha256 seed=0", "sglang/page"
// or "dynamo/sequence"; empty for the zero Recipe.
func (r Recipe) Name() string {
	switch {
	case r.alg == nil:
		return ""
	case r.alg.seedRoot == nil:
		return r.alg.name
	}
	return r.alg.name + seedWord + r.seed
}

// Named is the recipe of that [Recipe.Name], with any form of extra keys. It
// reports false for an unknown algorithm, and where a seed is missing.
func Named(name string) (Recipe, bool) {
	algName, seed, hasSeed := strings.Cut(name, seedWord)
	for i := range algorithms {
		a := &algorithms[i]
		if a.name == algName && (a.seedRoot != nil) == hasSeed {
			return newRecipe(a, seed), true
		}
	}
	return Recipe{}, false
}

func newRecipe(a *algorithm, seed string) Recipe {
	r := Recipe{alg: a, seed: seed}
	if a.seedRoot != nil {
		r.base = a.seedRoot(seed)
	}
	return r
}

// IsZero tells the zero Recipe.
func (r Recipe) IsZero() bool { return r.alg == nil }

// Root is the digest that all chains start from, where the recipe has one: for
// vLLM the NONE_HASH of the seed, else the zero Digest.
func (r Recipe) Root() Digest { return r.base }

// root is the digest before the first block of one chain.
func (r Recipe) root(c *Context) Digest {
	if r.alg.root != nil {
		return r.alg.root(c)
	}
	return r.base
}
