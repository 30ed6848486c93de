package stream

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// maxRanks bounds the data-parallel ranks of one name.
const maxRanks = 1 << 10

// Ranks lists the replicas that share a name's endpoint: itself, and one for
// each further data-parallel rank seen on it.
func (t *Tracker) Ranks(name wire.Replica) []wire.Replica {
	names := []wire.Replica{name}
	for _, r := range t.ranks[name] {
		names = append(names, r.Replica)
	}
	return names
}

// ofRank finds the replica for a batch's rank: the first rank seen keeps the
// plain name.
func (t *Tracker) ofRank(r *replica, rank int) *replica {
	if rank < 0 || r.Rank == rank {
		return r
	}
	if r.Rank < 0 {
		r.Rank = rank
		return r
	}
	name := wire.Replica(fmt.Sprintf("%s/%d", r.Replica, rank))
	sub := t.replicas[name]
	if sub == nil {
		if len(t.ranks[r.Replica]) == maxRanks-1 {
			return nil
		}
		if sub = t.get(name); sub == nil {
			return nil
		}
		sub.Rank = rank
		sub.Link, sub.LinkText = r.Link, r.LinkText
		t.ranks[r.Replica] = append(t.ranks[r.Replica], sub)
	}
	return sub
}

// nextIs finds whose batch it is that does not say its rank: the replica's own
// where the name has one rank, else that of the rank which is due to send it.
func (t *Tracker) nextIs(r *replica, seq uint64) *replica {
	subs := t.ranks[r.Replica]
	if len(subs) == 0 {
		return r
	}
	var due *replica
	for _, one := range append([]*replica{r}, subs...) {
		if one.Heard && one.next == seq {
			if due != nil {
				return nil
			}
			due = one
		}
	}
	return due
}

// unplaced notes a message that has no place in a sequence. Any rank of the
// name may have sent it.
func (t *Tracker) unplaced(r *replica, at wire.Time, err error) {
	for _, one := range append([]*replica{r}, t.ranks[r.Replica]...) {
		one.undecodable(at, one.Last, err)
		t.emit(one, Step{Kind: Doubt, At: at})
	}
}
