package route

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/zeebo/blake3"

	"github.com/kvscope/kvscope/wire"
)

// This file is the ring of consistent_hashing and prefix_hash in smg 1.13.0.

// sglangVirtual is how often each worker stands on the ring.
const sglangVirtual = 150

// sglangRing is a hash ring of workers, sorted by position. It is made anew when
// the list of workers changes, available or not.
type sglangRing struct {
	workers []wire.Replica
	entries []sglangEntry
}

type sglangEntry struct {
	pos uint64
	at  int // into workers
}

func newSGLangRing(*Config) memory { return &sglangRing{} }

// took has nothing to remember: the ring knows workers, and no request.
func (r *sglangRing) took(*input, int) {}

// sglangRingOf gives the ring of the candidates. It says nothing of earlier
// requests, so a question to no Router may make one too.
func sglangRingOf(in *input) *sglangRing {
	r, ok := in.mem.(*sglangRing)
	if !ok {
		r = &sglangRing{}
		in.mem = r
	}
	same := len(r.workers) == len(in.cands)
	for i := range in.cands {
		same = same && r.workers[i] == in.cands[i].Replica
	}
	if !same {
		r.build(in.cands)
	}
	return r
}

func (r *sglangRing) build(cands []Candidate) {
	r.workers, r.entries = r.workers[:0], r.entries[:0]
	for i := range cands {
		name := cands[i].Replica
		r.workers = append(r.workers, name)
		text := append([]byte(sglangURL(name)), '#')
		for v := range uint64(sglangVirtual) {
			pos := sglangPosition(strconv.AppendUint(text, v, 10))
			r.entries = append(r.entries, sglangEntry{pos, i})
		}
	}
	slices.SortFunc(r.entries, func(a, b sglangEntry) int { return cmp.Compare(a.pos, b.pos) })
}

// sglangURL is what the router calls a worker. Where its metrics were read, names
// have lost their scheme.
func sglangURL(name wire.Replica) string {
	if strings.Contains(string(name), "://") {
		return string(name)
	}
	return "http://" + string(name)
}

// sglangPosition is where a text stands on the ring: the first 8 bytes of its
// BLAKE3, little-endian.
func sglangPosition(text []byte) uint64 {
	sum := blake3.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:8])
}

// rank fills order with the place of each candidate on the way clockwise from a
// key, from 0. The first that is available takes the request.
func (r *sglangRing) rank(key string, order []int) {
	for i := range order {
		order[i] = -1
	}
	pos := sglangPosition([]byte(key))
	start := sort.Search(len(r.entries), func(i int) bool { return r.entries[i].pos >= pos })
	met := 0
	for i := 0; met < len(order); i++ {
		at := r.entries[(start+i)%len(r.entries)].at
		if order[at] < 0 {
			order[at] = met
			met++
		}
	}
}
