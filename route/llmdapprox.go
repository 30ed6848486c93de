package route

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/kvscope/kvscope/hashtable"
	"github.com/kvscope/kvscope/wire"
)

// This file is the index of llm-d's approximate prefix producer (llm-d-router
// 0.10): what it sent where, by hashes of its own.

// llmdLeastBlock is the smallest block it hashes, in tokens, and llmdBytes how
// many bytes of text stand for a token.
const (
	llmdLeastBlock = 64
	llmdBytes      = 4
)

// llmdHashes names the blocks of a prompt, the last one cut short included, up to
// most of them, onto out:
//
//	h0 = XXH64(model)
//	h(i) = XXH64(XXH64(block) || h(i-1) as u64 LE)
//
// A block is size tokens as u32 LE, or size*4 bytes of text where there are no
// ids. Of a prompt that has neither it is the symbols that it touches and its
// length, as u32 LE: equal for prompts that are equal up to there, as the others.
func llmdHashes(out []uint64, req *Request, size, most int) []uint64 {
	var buf [2 * llmdBytes * llmdLeastBlock]byte
	var pair [16]byte
	prev, block := xxhash.Sum64String(req.Model), buf[:0]
	next := func() {
		binary.LittleEndian.PutUint64(pair[:], xxhash.Sum64(block))
		binary.LittleEndian.PutUint64(pair[8:], prev)
		prev = xxhash.Sum64(pair[:])
		out, block = append(out, prev), block[:0]
	}
	switch {
	case len(req.IDs) > 0:
		for at := 0; at < len(req.IDs) && len(out) < most; at += size {
			for _, id := range req.IDs[at:min(at+size, len(req.IDs))] {
				block = binary.LittleEndian.AppendUint32(block, uint32(id))
			}
			next()
		}
	case len(req.Contents) > 0:
		for _, text := range req.Contents {
			for len(text) > 0 && len(out) < most {
				n := min(len(text), size*llmdBytes-len(block))
				block, text = append(block, text[:n]...), text[n:]
				if len(block) == size*llmdBytes {
					next()
				}
			}
		}
		if len(block) > 0 && len(out) < most {
			next()
		}
	case len(req.Symbols) > 0:
		width := max(1, req.Width)
		tokens := min(req.Tokens, width*len(req.Symbols))
		for at := 0; at < tokens && len(out) < most; at += size {
			end := min(at+size, tokens)
			for _, s := range req.Symbols[at/width : (end-1)/width+1] {
				block = binary.LittleEndian.AppendUint32(block, uint32(s))
			}
			block = binary.LittleEndian.AppendUint32(block, uint32(end-at))
			next()
		}
	}
	return out
}

// llmdSent is which pods were sent which blocks. Each pod's are kept as in an LRU
// cache of size blocks. A prompt longer than that pushes its own first blocks out
// and is then listed with all of them: those that are listed and not kept stay so
// until the pod is sent them again.
type llmdSent struct {
	size    int
	first   hashtable.Table[int32] // the first entry of a block
	entries []llmdSentEntry        // entry 0 is none
	free    []int32
	pods    map[wire.Replica]int32
	kept    []llmdKept // by pod
	// loose counts entries that are listed and not kept.
	loose int
}

// llmdSentEntry is a block that a pod was sent.
type llmdSentEntry struct {
	hash       uint64
	pod        int32
	same       int32 // the next entry of the block
	prev, next int32 // of the pod, in the order of use, where kept
	kept       bool
}

// llmdKept is a pod's cache.
type llmdKept struct{ oldest, newest, n int32 }

// maxLoose bounds what is listed and not kept.
const maxLoose = 1 << 20

func newLLMDSent(size int) *llmdSent {
	return &llmdSent{
		size: max(1, size), entries: make([]llmdSentEntry, 1), pods: map[wire.Replica]int32{},
	}
}

// number gives a pod's, which lasts for good.
func (s *llmdSent) number(name wire.Replica) int32 {
	n, known := s.pods[name]
	if !known {
		n = int32(len(s.kept))
		s.pods[name] = n
		s.kept = append(s.kept, llmdKept{})
	}
	return n
}

// match counts, by pod, the blocks of a prompt that it was sent, up to the first
// that nobody was. A pod with a hole counts on behind it.
func (s *llmdSent) match(counts []int, hashes []uint64) []int {
	counts = append(counts[:0], make([]int, len(s.kept))...)
	for _, h := range hashes {
		e := s.first.Get(h)
		if e == 0 {
			break
		}
		for ; e != 0; e = s.entries[e].same {
			counts[s.entries[e].pod]++
		}
	}
	return counts
}

// add books a prompt that a pod was sent.
func (s *llmdSent) add(name wire.Replica, hashes []uint64) {
	pod := s.number(name)
	for _, h := range hashes {
		e := s.find(h, pod)
		switch {
		case e == 0:
			e = s.list(h, pod)
		case s.entries[e].kept:
			s.unkeep(e)
		default:
			s.loose--
		}
		s.keep(e)
		if k := s.kept[pod]; int(k.n) > s.size {
			s.unkeep(k.oldest)
			s.unlist(k.oldest)
		}
	}
	if len(hashes) <= s.size {
		return
	}
	for _, h := range hashes {
		if s.find(h, pod) == 0 && s.loose < maxLoose {
			s.list(h, pod)
			s.loose++
		}
	}
}

// left empties a pod's cache.
func (s *llmdSent) left(name wire.Replica) {
	pod, known := s.pods[name]
	for known && s.kept[pod].n > 0 {
		e := s.kept[pod].oldest
		s.unkeep(e)
		s.unlist(e)
	}
}

func (s *llmdSent) find(hash uint64, pod int32) int32 {
	e := s.first.Get(hash)
	for e != 0 && s.entries[e].pod != pod {
		e = s.entries[e].same
	}
	return e
}

// list makes an entry that is not kept.
func (s *llmdSent) list(hash uint64, pod int32) int32 {
	var e int32
	if n := len(s.free); n > 0 {
		e, s.free = s.free[n-1], s.free[:n-1]
	} else {
		e = int32(len(s.entries))
		s.entries = append(s.entries, llmdSentEntry{})
	}
	s.entries[e] = llmdSentEntry{hash: hash, pod: pod, same: s.first.Get(hash)}
	s.first.Set(hash, e)
	return e
}

func (s *llmdSent) unlist(e int32) {
	hash, same := s.entries[e].hash, s.entries[e].same
	switch at := s.first.Get(hash); {
	case at != e:
		for s.entries[at].same != e {
			at = s.entries[at].same
		}
		s.entries[at].same = same
	case same == 0:
		s.first.Remove(hash)
	default:
		s.first.Set(hash, same)
	}
	s.free = append(s.free, e)
}

// keep makes an entry the newest of its pod's cache.
func (s *llmdSent) keep(e int32) {
	x := &s.entries[e]
	k := &s.kept[x.pod]
	x.kept, x.prev, x.next = true, k.newest, 0
	if k.newest != 0 {
		s.entries[k.newest].next = e
	} else {
		k.oldest = e
	}
	k.newest = e
	k.n++
}

func (s *llmdSent) unkeep(e int32) {
	x := &s.entries[e]
	k := &s.kept[x.pod]
	if x.prev != 0 {
		s.entries[x.prev].next = x.next
	} else {
		k.oldest = x.next
	}
	if x.next != 0 {
		s.entries[x.next].prev = x.prev
	} else {
		k.newest = x.prev
	}
	x.kept = false
	k.n--
}
