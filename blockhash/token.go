package blockhash

// Token is a token id. Engines use 32-bit ids; the recipes say what they do
// with wider ones.
type Token interface{ ~uint32 | ~uint64 }

// Blocks is the number of complete blocks of size tokens in a sequence of n
// tokens. With bigram a block is made of size overlapping pairs, so it spans
// size+1 tokens and shares the last one with its successor (EAGLE speculative
// decoding in Dynamo 1.6.1 and SGLang 0.5.23). A size below 1 gives 0.
func Blocks(n, size int, bigram bool) int {
	if bigram {
		n--
	}
	if size < 1 || n < size {
		return 0
	}
	return n / size
}

// Window is the part of tokens that block i covers: size tokens, one more with
// bigram. It is nil where there is no such complete block.
func Window[T any](tokens []T, size, i int, bigram bool) []T {
	if i < 0 || i >= Blocks(len(tokens), size, bigram) {
		return nil
	}
	end := (i + 1) * size
	if bigram {
		end++
	}
	return tokens[i*size : end]
}
