package explain

import "github.com/kvscope/kvscope/wire"

// Pairs count pairs of bookings that came within PairWithin: of two routers (Across)
// and of one (Within), and those of them that went to the same replica.
type Pairs struct{ Across, AcrossSame, Within, WithinSame uint64 }

// PairWithin is how close two bookings are that count as a pair: long enough for a
// router to choose again, and hardly enough for it to hear of another's choice.
const PairWithin = wire.Time(100e6)

// maxPaired is how many routers are compared with each other.
const maxPaired = 16

// pairing is the newest booking of each router.
type pairing struct {
	last [maxPaired]struct {
		router  uint64
		at      wire.Time
		replica wire.Replica
	}
	n     int
	pairs Pairs
}

// book counts a booking with those just before it.
func (p *pairing) book(at wire.Time, router uint64, replica wire.Replica) {
	own := -1
	for i := range p.last[:p.n] {
		l := &p.last[i]
		near, same := at-l.at <= PairWithin && at >= l.at, uint64(0)
		if l.replica == replica {
			same = 1
		}
		switch {
		case l.router == router:
			own = i
			if near {
				p.pairs.Within++
				p.pairs.WithinSame += same
			}
		case near:
			p.pairs.Across++
			p.pairs.AcrossSame += same
		}
	}
	if own < 0 {
		if p.n == maxPaired {
			return
		}
		own = p.n
		p.n++
	}
	p.last[own].router, p.last[own].at, p.last[own].replica = router, at, replica
}

// Pairs gives how bookings came close together so far.
func (l *Loads) Pairs() Pairs { return l.pairing.pairs }
