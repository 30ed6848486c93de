package blockhash

import "slices"

// Context is what, besides the tokens, makes the content of a chain of blocks.
type Context struct {
	// LoRA is the adapter's name, empty for the base model.
	LoRA string
	// LoRAPath is the adapter's path as the engine was given it; not
	// published. Hashes of vLLM 0.31 and later cover it.
	LoRAPath string
	// LoRAID is vLLM's integer id of the adapter. Hashes up to 0.11.0 cover it.
	LoRAID *int64
	// Salt is the request's cache salt. For events of vLLM, which put it among
	// the extra keys, it stays empty.
	Salt string
	// ExtraKey is SGLang's internal cache key of the adapter; not published.
	ExtraKey string
}

func (c *Context) hasLoRA() bool { return c.LoRA != "" || c.LoRAID != nil }

// Run is a run of consecutive blocks.
type Run[T Token] struct {
	Context
	// Tokens are those of all blocks; an incomplete block at the end is
	// ignored. See [Blocks].
	Tokens    []T
	BlockSize int
	Bigram    bool
	// Extra holds each block's extra keys as vLLM publishes them, untagged. It
	// may be shorter than the blocks.
	Extra [][]Value
	// Lookahead holds, for each block, the tokens behind it that its hash
	// covers too (vLLM 0.33.0 with a speculative drafter).
	Lookahead [][]T
}

// Link is one block of a chain.
type Link struct {
	// Digest is what the next block continues from.
	Digest Digest
	// Handle is the hash on the wire in its integer form, signed ones
	// reinterpreted. Where vLLM sends bytes, they are those of the Digest.
	Handle uint64
}

// work is the state of one chain's computation: the block at hand and scratch.
type work struct {
	ctx       Context
	form      Form
	bigram    bool
	first     bool // at the root
	parent    Digest
	tokens    []uint64
	ahead     []uint64
	published []Value

	keys    []Value
	pairs   []uint64
	buf     []byte
	pickler pickler
	cbor    cborWriter
}

// Chain computes the links of all complete blocks of run behind parent; the zero
// Digest starts at the root. On an error the links before it are good.
func Chain[T Token](r Recipe, parent Digest, run Run[T]) ([]Link, error) {
	return chain(r, parent, &run, Blocks(len(run.Tokens), run.BlockSize, run.Bigram))
}

// chain does the first n blocks.
func chain[T Token](r Recipe, parent Digest, run *Run[T], n int) ([]Link, error) {
	switch {
	case r.alg == nil:
		return nil, errRecipe
	case run.Bigram && !r.alg.bigram:
		return nil, errBigram
	}
	w := work{ctx: run.Context, bigram: run.Bigram}
	if slices.Contains(r.alg.forms, r.Form) {
		w.form = r.Form
	}
	w.parent, w.first = parent, parent.IsZero()
	if w.first {
		w.parent = r.root(&run.Context)
	}
	links := make([]Link, 0, n)
	for i := range n {
		w.tokens = appendWords(w.tokens[:0], Window(run.Tokens, run.BlockSize, i, run.Bigram))
		w.ahead = appendWords(w.ahead[:0], at(run.Lookahead, i))
		w.published = at(run.Extra, i)
		d, err := r.alg.block(&w)
		if err != nil {
			return links, err
		}
		h, err := r.alg.handle(&d, &w)
		if err != nil {
			return links, err
		}
		links = append(links, Link{Digest: d, Handle: h})
		w.parent, w.first = d, false
	}
	return links, nil
}

func appendWords[T Token](words []uint64, tokens []T) []uint64 {
	for _, t := range tokens {
		words = append(words, uint64(t))
	}
	return words
}

// dynamoBlock is the hash of engines that put Dynamo's own sequence hash on the
// wire, as Dynamo's mocker 1.6.1 does.
func dynamoBlock(w *work) (Digest, error) {
	salt, objects := Content(w.published, w.ctx.LoRA, w.first)
	if salt != "" {
		w.ctx.Salt = salt // all later blocks of the chain have it too
	}
	local := Local(w.tokens, NamespaceOf(w.ctx.LoRA, w.ctx.Salt), objects)
	return wordDigest(Next(w.parent.last(), local, w.first)), nil
}
