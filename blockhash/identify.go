package blockhash

import "slices"

// maxIdentify bounds the block size that Identify looks at, in tokens, and so
// the cost of refusing a store.
const maxIdentify = 1 << 14

// Store is a store event that begins at the root of its chain.
type Store[T Token] struct {
	Run[T]
	// Handles are the stored blocks' hashes in integer form; for byte hashes
	// their last 8 bytes, big-endian.
	Handles []uint64
	// Bytes are the byte hashes whole, where the wire has such; it may be
	// shorter than Handles and have empty elements.
	Bytes []string
}

// Identify finds the recipe that gives every block of s its handle. It tries all
// algorithms, and for those that start from a seed text the usual seeds
// (vllm-none-hash, 0, 1, 42, random, 12345) and then the given ones. It reports
// false where none fits: a random root, hashes that cover what is not published,
// an unknown algorithm, or tokens that do not align with the handles.
//
// The recipe's Form is AnyForm if s has no extra keys; identify again on a store
// that has some. A store that fits nothing costs one block's hash for each
// candidate, about 25 of them or 75 with extra keys.
func Identify[T Token](s Store[T], more ...string) (Recipe, bool) {
	n := Blocks(len(s.Tokens), s.BlockSize, s.Bigram)
	if n == 0 || n != len(s.Handles) || s.BlockSize > maxIdentify {
		return Recipe{}, false
	}
	keyed := s.hasKeys(n)
	for i := range algorithms {
		a := &algorithms[i]
		if s.Bigram && !a.bigram {
			continue
		}
		for _, seed := range a.seeds(more) {
			r := newRecipe(a, seed)
			for _, r.Form = range a.candidateForms(keyed) {
				if s.fits(r, 1) && s.fits(r, n) {
					return r, true
				}
			}
		}
	}
	return Recipe{}, false
}

func (a *algorithm) seeds(more []string) []string {
	if a.seedRoot == nil {
		return []string{""}
	}
	return slices.Concat(seeds[:], more)
}

func (a *algorithm) candidateForms(keyed bool) []Form {
	if keyed && len(a.forms) > 0 {
		return a.forms
	}
	return []Form{AnyForm}
}

// hasKeys tells whether any of the first n blocks has extra keys.
func (s *Store[T]) hasKeys(n int) bool {
	return s.hasLoRA() || s.Salt+s.ExtraKey != "" ||
		slices.ContainsFunc(s.Extra[:min(n, len(s.Extra))], func(keys []Value) bool { return len(keys) > 0 })
}

// fits tells whether r gives the first n blocks their handles.
func (s *Store[T]) fits(r Recipe, n int) bool {
	links, err := chain(r, Digest{}, &s.Run, n)
	if err != nil {
		return false
	}
	for i := range links {
		l := &links[i]
		if b := at(s.Bytes, i); l.Handle != s.Handles[i] || b != "" && b != string(l.Digest.b[:l.Digest.n]) {
			return false
		}
	}
	return true
}
