package route

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/kvscope/kvscope/wire"
)

// ring is a consistent-hash ring: those of Ray, smg and the vLLM production stack
// differ in the hash, the number of points a worker has and their names.
type ring struct {
	kind   *ringKind
	vnodes int
	names  []wire.Replica // as the candidates came
	points []ringPoint
}

// ringKind says how points come about: each is the hash of a worker's name, sep
// and the point's number among the worker's own.
type ringKind struct {
	sep  string
	hash func(name string) (hi, lo uint64)
	// worker gives the name that a replica has there; nil for its own.
	worker func(name string) string
	// atKey says that a point at a key itself comes first, and not last.
	atKey bool
}

// maxVnodes bounds the points of a worker.
const maxVnodes = 10_000

// ringPoint is a place on the ring, a number of 128 bits, and the position of the
// candidate that it belongs to.
type ringPoint struct {
	hi, lo uint64
	owner  int
}

func (p ringPoint) compare(o ringPoint) int {
	return cmp.Or(cmp.Compare(p.hi, o.hi), cmp.Compare(p.lo, o.lo))
}

// ringOf gives the ring of all candidates, whether eligible or not.
func ringOf(in *input, kind *ringKind, vnodes int) *ring {
	if r := in.ring; r != nil && r.kind == kind && r.vnodes == vnodes &&
		slices.EqualFunc(r.names, in.cands, func(n wire.Replica, c Candidate) bool { return n == c.Replica }) {
		return r
	}
	in.ring = newRing(kind, vnodes, in.cands)
	return in.ring
}

func newRing(kind *ringKind, vnodes int, cands []Candidate) *ring {
	r := &ring{kind: kind, vnodes: vnodes}
	for at := range cands {
		name := string(cands[at].Replica)
		r.names = append(r.names, cands[at].Replica)
		if kind.worker != nil {
			name = kind.worker(name)
		}
		for i := range vnodes {
			hi, lo := r.kind.hash(name + r.kind.sep + strconv.Itoa(i))
			r.points = append(r.points, ringPoint{hi, lo, at})
		}
	}
	slices.SortStableFunc(r.points, ringPoint.compare)
	return r
}

// steps gives for each candidate how many others come before it on the way
// clockwise from a key.
func (r *ring) steps(key string) []int {
	out := make([]int, len(r.names))
	for i := range out {
		out[i] = -1
	}
	hi, lo := r.kind.hash(key)
	start, _ := slices.BinarySearchFunc(r.points, ringPoint{hi: hi, lo: lo}, func(p, key ringPoint) int {
		if c := p.compare(key); c < 0 || c == 0 && !r.kind.atKey {
			return -1
		}
		return 1
	})
	next := 0
	for i := 0; i < len(r.points) && next < len(out); i++ {
		if owner := r.points[(start+i)%len(r.points)].owner; out[owner] < 0 {
			out[owner] = next
			next++
		}
	}
	return out
}

// shares gives for each eligible candidate the part of all keys that fall to it:
// the parts of the ring that end at one of its points, counted by the upper 64
// bits.
func (r *ring) shares(in *input, p []float64) {
	if len(p) < 2 {
		for n := range p {
			p[n] = 1
		}
		return
	}
	slot := make([]int, len(r.names))
	for i := range slot {
		slot[i] = -1
	}
	for n, i := range in.eligible {
		slot[i] = n
	}
	// Backwards around, so that the next eligible one is known; the last point is
	// where the first one's part begins.
	next := -1
	for _, p := range r.points {
		if slot[p.owner] >= 0 {
			next = slot[p.owner]
			break
		}
	}
	for i := len(r.points) - 1; i >= 0; i-- {
		// The part behind this point belongs to what comes next.
		to := r.points[(i+1)%len(r.points)].hi
		p[next] += float64(to-r.points[i].hi) / (1 << 64)
		if n := slot[r.points[i].owner]; n >= 0 {
			next = n
		}
	}
}
