package blockhash

// This file is how llm-d's router names blocks (llm-d-kv-cache 0.8.1, its token
// processor with the hash algorithm fnv64a). The names are the router's own:
// engines' hashes are opaque to it, so neither seed nor block size need be
// theirs.

// FNV-1a, 64 bits.
const (
	fnvBasis = 14695981039346656037
	fnvPrime = 1099511628211
)

func fnv1a[T ~string | ~[]byte](text T) uint64 {
	h := uint64(fnvBasis)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	return h
}

// LLMDRoot is what llm-d's chains of a model, or of a LoRA adapter by its name,
// start from:
//
//	FNV-1a64(canonical CBOR of [FNV-1a64(seed), null, model])
//
// The seed is the router's hashSeed, "" unless configured.
func LLMDRoot(seed, model string) uint64 {
	var w cborWriter
	w.openTuple(3)
	w.uint(fnv1a(seed))
	w.none()
	w.text(model, false)
	return fnv1a(w.out)
}

// LLMDKeys is llm-d's key of every complete block of size tokens, which follow a
// parent: the root, or the last key of what comes before. Each is
//
//	FNV-1a64(canonical CBOR of [parent, [tokens...], objects])
//
// where objects are null, or {"Hash": id} of each multimodal item or cache salt
// in the block. They are given per block, and may be shorter than the blocks.
func LLMDKeys[T Token](parent uint64, tokens []T, size int, objects [][]string) []uint64 {
	keys := make([]uint64, Blocks(len(tokens), size, false))
	var w cborWriter
	for i := range keys {
		w.begin(w.out[:0])
		w.openTuple(3)
		w.uint(parent)
		block := Window(tokens, size, i, false)
		w.openTuple(len(block))
		for _, t := range block {
			w.uint(uint64(t))
		}
		if all := at(objects, i); all == nil {
			w.none()
		} else {
			w.openTuple(len(all))
			for _, id := range all {
				w.head(cborMap, 1)
				w.text("Hash", false)
				w.text(id, false)
			}
		}
		keys[i] = fnv1a(w.out)
		parent = keys[i]
	}
	return keys
}
