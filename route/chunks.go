package route

import (
	"encoding/binary"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/kvscope/kvscope/wire"
)

// This file is what routers share that remember prompts by the hashes of their
// pieces: AIBrix's and the vLLM production stack's.

// cutter says how a router cuts text into chunks.
type cutter struct {
	sep  string
	size int // characters of a chunk
	// bytes counts bytes as characters, rest hashes what is left at the end, and
	// most ends it, 0 for never.
	bytes, rest bool
	most        int
}

// cut appends a hash of each chunk with all before it to dst. Equal prompts have
// equal hashes, which is all that is asked of them: they are not the router's own.
// Where a symbol is longer than a chunk, one hash stands for weight chunks, which
// come and go together.
func (c cutter) cut(dst []uint64, r *Request, seed uint64) (hashes []uint64, weight int) {
	h, from := seed, len(dst)
	full := func() bool { return c.most > 0 && len(dst)-from == c.most }
	if len(r.Contents) > 0 && c.bytes {
		s := strings.Join(r.Contents, c.sep)
		for len(s) > 0 && !full() && (len(s) >= c.size || c.rest) {
			n := min(c.size, len(s))
			h = xxh3.HashStringSeed(s[:n], h)
			dst, s = append(dst, h), s[n:]
		}
		return dst, 1
	}
	text, chars := runesOf(r, c.sep)
	per := max(1, c.size/chars)
	var b [4]byte
	for len(text) > 0 && !full() && (len(text) >= per || c.rest) {
		n := min(per, len(text))
		for _, s := range text[:n] {
			binary.LittleEndian.PutUint32(b[:], uint32(s))
			h = xxh3.HashSeed(b[:], h)
		}
		dst, text = append(dst, h), text[n:]
	}
	return dst, max(1, chars/c.size)
}

// holders remembers which worker was sent which chunk, the least recently sent
// ones no longer. The chunks lie in one list without pointers, which the collector
// passes over.
type holders struct {
	most   int       // chunks, by their weight
	places int       // entries of the list, whatever their weight
	ttl    wire.Time // below 0 keeps them for ever
	weight int
	at     map[uint64]int32
	chunks []sentChunk // the first one is the edge between the newest and the oldest
	free   []int32
	more   map[int32][]int32 // the owners beyond the few
	ids    map[wire.Replica]int32
	slots  []int // by id: the position among the workers asked about, or -1
}

// sentChunk is a chunk. Its owners come in the order in which they got it first.
type sentChunk struct {
	key          uint64
	sent         wire.Time
	newer, older int32
	weight       int32
	owners       int32
	few          [4]int32
}

// maxChunks bounds the table where the router's own has no bound or a higher one:
// about 100 MB.
const maxChunks = 1 << 20

func newHolders(most int, ttl wire.Time) *holders {
	return &holders{
		most: most, places: maxChunks, ttl: ttl, at: make(map[uint64]int32), chunks: make([]sentChunk, 1),
		more: make(map[int32][]int32), ids: make(map[wire.Replica]int32),
	}
}

func (h *holders) id(r wire.Replica) int32 {
	id, ok := h.ids[r]
	if !ok {
		id = int32(len(h.ids))
		h.ids[r] = id
	}
	return id
}

// get finds a chunk that is not too old; 0 is none.
func (h *holders) get(key uint64, now wire.Time) int32 {
	c := h.at[key]
	if c == 0 || h.old(c, now) {
		return 0
	}
	return c
}

func (h *holders) old(c int32, now wire.Time) bool { return h.ttl >= 0 && now-h.chunks[c].sent > h.ttl }

// put notes that chunks went to a worker.
func (h *holders) put(keys []uint64, weight int, r wire.Replica, now wire.Time) {
	for old := h.chunks[0].newer; old != 0 && h.old(old, now); old = h.chunks[0].newer {
		h.drop(old)
	}
	id := h.id(r)
	for _, key := range keys {
		c := h.at[key]
		if c == 0 {
			c = h.make(key, weight)
		} else {
			h.unlink(c)
		}
		last := h.chunks[0].older
		h.chunks[c].sent, h.chunks[c].newer, h.chunks[c].older = now, 0, last
		h.chunks[last].newer, h.chunks[0].older = c, c
		h.own(c, id)
		for h.chunks[0].newer != c && (h.weight > h.most || len(h.at) > h.places) {
			h.drop(h.chunks[0].newer)
		}
	}
}

func (h *holders) make(key uint64, weight int) int32 {
	c := int32(len(h.chunks))
	if n := len(h.free); n > 0 {
		c, h.free = h.free[n-1], h.free[:n-1]
	} else {
		h.chunks = append(h.chunks, sentChunk{})
	}
	h.chunks[c] = sentChunk{key: key, weight: int32(weight)}
	h.at[key] = c
	h.weight += weight
	return c
}

// owner gives the nth owner of a chunk.
func (h *holders) owner(c int32, n int) int32 {
	if few := &h.chunks[c].few; n < len(few) {
		return few[n]
	}
	return h.more[c][n-len(h.chunks[c].few)]
}

func (h *holders) own(c, id int32) {
	x := &h.chunks[c]
	for n := range int(x.owners) {
		if h.owner(c, n) == id {
			return
		}
	}
	if n := int(x.owners); n < len(x.few) {
		x.few[n] = id
	} else {
		h.more[c] = append(h.more[c], id)
	}
	x.owners++
}

func (h *holders) unlink(c int32) {
	x := &h.chunks[c]
	h.chunks[x.newer].older, h.chunks[x.older].newer = x.older, x.newer
}

func (h *holders) drop(c int32) {
	h.unlink(c)
	x := &h.chunks[c]
	delete(h.at, x.key)
	delete(h.more, c)
	h.weight -= int(x.weight)
	h.free = append(h.free, c)
}

// depths gives how many of the chunks, from the first one on, each of the eligible
// candidates was sent.
func (h *holders) depths(in *input, keys []uint64) []int {
	depth := make([]int, len(in.eligible))
	h.slots = h.slots[:0]
	for range h.ids {
		h.slots = append(h.slots, -1)
	}
	for n, i := range in.eligible {
		if id, ok := h.ids[in.cands[i].Replica]; ok {
			h.slots[id] = n
		}
	}
	for i, key := range keys {
		c := h.get(key, in.req.At)
		if c == 0 {
			break
		}
		on := false
		for o := range int(h.chunks[c].owners) {
			if n := h.slots[h.owner(c, o)]; n >= 0 && depth[n] == i {
				depth[n], on = i+1, true
			}
		}
		if !on {
			break
		}
	}
	return depth
}
