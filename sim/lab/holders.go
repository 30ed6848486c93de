package lab

import "math/bits"

// holders says which replicas hold which blocks: a bit for each replica.
type holders struct {
	words int
	bits  []uint64 // by block, words each
}

// holdersSize is how many bytes holders take.
func holdersSize(replicas int, last block) int { return (replicas + 63) / 64 * 8 * (int(last) + 1) }

// newHolders makes one for blocks up to last.
func newHolders(replicas int, last block) *holders {
	words := (replicas + 63) / 64
	return &holders{words, make([]uint64, words*(int(last)+1))}
}

func (h *holders) add(replica int, b block) {
	h.bits[int(b)*h.words+replica/64] |= 1 << (replica % 64)
}

func (h *holders) remove(replica int, b block) {
	h.bits[int(b)*h.words+replica/64] &^= 1 << (replica % 64)
}

// depths gives, for each of the first len(out) replicas, how many blocks of a path it
// holds, from the first one on without a hole.
func (h *holders) depths(path []block, out []int) {
	for word := range (len(out) + 63) / 64 {
		of := out[word*64 : min(len(out), word*64+64)]
		live := ^uint64(0) >> (64 - len(of))
		for i, b := range path {
			next := live & h.bits[int(b)*h.words+word]
			for lost := live &^ next; lost != 0; lost &= lost - 1 {
				of[bits.TrailingZeros64(lost)] = i
			}
			if live = next; live == 0 {
				break
			}
		}
		for ; live != 0; live &= live - 1 {
			of[bits.TrailingZeros64(live)] = len(path)
		}
	}
}
