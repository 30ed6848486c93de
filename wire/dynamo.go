package wire

import (
	"math"
	"slices"
)

// DynamoVerdict is what the relay of Dynamo 1.6 does with one payload: the
// component in each engine's pod that feeds Dynamo's routers.
type DynamoVerdict struct {
	// Lost says, in plain words, why the relay cannot read the payload. It
	// drops the whole batch then, with one warning in its log and without a
	// gap that a router could see. Empty if the payload is read.
	Lost string
	// Events holds what becomes of each event, in the batch's order; nil if
	// the batch is lost.
	Events []DynamoEvent
}

// DynamoEvent is what the relay makes of one event.
type DynamoEvent struct {
	// Kind is Unknown for the tag Ignored.
	Kind EventKind
	// Filtered is the reason for which the event is dropped, as the label of
	// the relay's counter kv_publisher_zmq_filtered_events_total; empty if it
	// is published.
	Filtered string
	// Tier is where the router puts the blocks.
	Tier Tier
	// Hashes are the blocks as published, stored or removed, and Parent the
	// block that stored ones continue, if HasParent.
	Hashes    []uint64
	Parent    uint64
	HasParent bool
	// Dropped counts blocks of a store that are not published, and Why says
	// why: one of the Dropped constants. The event itself is still published,
	// with Hashes that are left.
	Dropped int
	Why     string
	// Salt is the cache namespace that goes into the router's block hashes:
	// the event's own or that of its parent.
	Salt string
	// Media holds, for each of Hashes, the multimodal hashes that go into the
	// router's block hashes, or is nil.
	Media [][]uint64
}

// Reasons for which the relay leaves blocks out of a store.
const (
	// DroppedSize: the event's block size is not the router's. Nothing of the
	// store is published but its empty shell.
	DroppedSize = "block_size_mismatch"
	// DroppedShort: there are too few token ids for the rest of the blocks.
	DroppedShort = "token_ids_too_short"
	// DroppedRepeat: a hash comes twice, or is its own parent. An empty remove
	// is published in place of the store.
	DroppedRepeat = "duplicate_hash"
)

// DynamoRelay follows one engine's stream as a relay does: what it filters
// depends on what it has seen. It is not safe for concurrent use.
type DynamoRelay struct {
	// BlockSize is the router's, in tokens; 0 if not known, and then taken
	// from each event.
	BlockSize int
	// Rank is the data-parallel rank of batches that do not say.
	Rank int

	groups map[rankGroup]string
	// salts holds, for each rank, the hashes stored with a salt; salted counts
	// them all.
	salts  map[int64]map[uint64]chainSalt
	salted int
}

type rankGroup struct{ rank, group int64 }

// chainSalt is the namespace that blocks pass on to the blocks behind them.
type chainSalt struct {
	salt string
	// ambiguous says that the hash has been stored in more than one.
	ambiguous bool
}

// The relay itself keeps these without a bound; beyond ours, groups are not
// learned and salts not passed on.
const (
	maxGroups   = 1 << 12
	maxSalted   = 1 << 18
	maxSaltSize = 1 << 9
)

// Judge gives the verdict on the next payload of the stream.
func (r *DynamoRelay) Judge(payload []byte) DynamoVerdict {
	s := serde{b: payload}
	events, rank, ok := s.batch()
	if !ok {
		return DynamoVerdict{Lost: s.fault}
	}
	if rank < math.MinInt32 {
		rank = int64(r.Rank)
	}
	v := DynamoVerdict{Events: make([]DynamoEvent, len(events))}
	for i := range events {
		e := &events[i]
		d := &v.Events[i]
		d.Kind = e.kind
		d.Tier, _ = TierOf(e.medium)
		if d.Filtered = r.filter(e, rank); d.Filtered == "" {
			r.convert(e, d)
		}
	}
	return v
}

// filter gives the label of the reason to drop an event, or "".
func (r *DynamoRelay) filter(e *serdeEvent, rank int64) string {
	switch {
	case e.hasOwner && e.ownership == "kvcr":
		return "unsupported_ownership"
	case e.hasOwner:
		return "unknown_ownership"
	case e.kind == Unknown:
		return "ignored_event"
	case e.nonLocal:
		return "non_local_locality"
	}
	// Unlike our decoder, Dynamo minds the case of letters.
	tier, known := media[e.medium]
	if !known {
		return "unknown_medium"
	}
	if tier == Disk || tier == External {
		return ""
	}
	if e.kind == Stored {
		r.learn(e, rank)
	}
	if reason := r.groupReason(e, rank); reason != "" {
		return reason
	}
	return r.passSalt(e, rank)
}

// learn remembers the attention kind of a group, which removes do not carry.
func (r *DynamoRelay) learn(e *serdeEvent, rank int64) {
	if e.group < 0 || !e.hasSpec {
		return
	}
	if r.groups == nil {
		r.groups = make(map[rankGroup]string)
	}
	key := rankGroup{rank, e.group}
	if _, known := r.groups[key]; known || len(r.groups) < maxGroups {
		r.groups[key] = e.spec
	}
}

// groupReason keeps blocks of full-attention groups only.
func (r *DynamoRelay) groupReason(e *serdeEvent, rank int64) string {
	spec, other := e.spec, "non_main_attention_kind"
	if !e.hasSpec {
		if e.group < 0 {
			return ""
		}
		learned := false
		if spec, learned = r.groups[rankGroup{rank, e.group}]; !learned {
			if e.group == 0 {
				return ""
			}
			return "unlearned_group_idx"
		}
		other = "non_main_attention_group"
	}
	main, known := attentionKinds[spec]
	switch {
	case main:
		return ""
	case !known:
		return "unknown_kind"
	}
	return other
}

// passSalt gives a store the salt of its parent, and remembers its own.
func (r *DynamoRelay) passSalt(e *serdeEvent, rank int64) string {
	known := r.salts[rank]
	switch e.kind {
	case Cleared:
		r.salted -= len(known)
		delete(r.salts, rank)
	case Removed:
		for _, h := range e.hashes {
			// An ambiguous hash stays so: another copy may live.
			if old, ok := known[h]; ok && !old.ambiguous {
				r.salted--
				delete(known, h)
			}
		}
	case Stored:
		if e.salt == "" && e.hasParent {
			if known[e.parent].ambiguous {
				return "ambiguous_cache_namespace"
			}
			e.salt = known[e.parent].salt
		}
		for _, h := range e.hashes {
			r.remember(rank, h, e.salt)
		}
	}
	return ""
}

func (r *DynamoRelay) remember(rank int64, hash uint64, salt string) {
	old, known := r.salts[rank][hash]
	switch {
	case known && old.salt != salt:
		old.ambiguous = true
		r.salts[rank][hash] = old
	case !known && salt != "" && r.salted < maxSalted && len(salt) <= maxSaltSize:
		if r.salts == nil {
			r.salts = make(map[int64]map[uint64]chainSalt)
		}
		if r.salts[rank] == nil {
			r.salts[rank] = make(map[uint64]chainSalt)
		}
		r.salts[rank][hash] = chainSalt{salt: salt}
		r.salted++
	}
}

// convert turns an event into what is published.
func (r *DynamoRelay) convert(e *serdeEvent, d *DynamoEvent) {
	d.Hashes = e.hashes
	if e.kind != Stored {
		return
	}
	if repeats(e) {
		d.Hashes, d.Dropped, d.Why = nil, len(e.hashes), DroppedRepeat
		return
	}
	d.Parent, d.HasParent, d.Salt = e.parent, e.hasParent, e.salt
	published := r.published(e)
	if d.Dropped = len(e.hashes) - published; d.Dropped > 0 {
		d.Why = DroppedShort
		if r.BlockSize > 0 && e.blockSize != uint64(r.BlockSize) {
			d.Why = DroppedSize
		}
	}
	d.Hashes = e.hashes[:published]
	for _, m := range e.media {
		if m.block >= published {
			continue
		}
		if d.Media == nil {
			d.Media = make([][]uint64, published)
		}
		d.Media[m.block] = append(d.Media[m.block], m.hash)
	}
}

// published is the number of leading blocks that have their tokens.
func (r *DynamoRelay) published(e *serdeEvent) int {
	size := e.blockSize
	if r.BlockSize > 0 && size != uint64(r.BlockSize) || size == 0 {
		return 0
	}
	tokens := uint64(e.tokens)
	if e.bigram {
		tokens-- // each block takes the first token of the next one too
	}
	return int(min(uint64(len(e.hashes)), tokens/size))
}

// repeats reports whether a hash of the store comes twice or is its parent.
func repeats(e *serdeEvent) bool {
	if e.hasParent && slices.Contains(e.hashes, e.parent) {
		return true
	}
	sorted := slices.Sorted(slices.Values(e.hashes))
	return len(slices.Compact(sorted)) < len(e.hashes)
}
