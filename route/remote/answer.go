package remote

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// Choice is where a router would send a prompt, or sent it. Replicas are named
// as on Dynamo's event plane, worker/rank.
type Choice struct {
	// Prefill computes the prompt and Decode answers it: the same one where the
	// fleet does not part the two.
	Prefill, Decode wire.Replica
	// Tokens is the prompt as the router read it, nil where it does not say.
	Tokens []wire.Token
}

// workers are those that Dynamo names for a request.
type workers struct {
	Prefill     *uint64 `json:"prefill_worker_id"`
	PrefillRank uint32  `json:"prefill_dp_rank"`
	Decode      *uint64 `json:"decode_worker_id"`
	DecodeRank  uint32  `json:"decode_dp_rank"`
}

// choice is nil where no worker is named.
func (w *workers) choice() *Choice {
	var c Choice
	if w.Prefill != nil {
		c.Prefill = name(*w.Prefill, w.PrefillRank)
	}
	if w.Decode != nil {
		c.Decode = name(*w.Decode, w.DecodeRank)
	}
	if c.Prefill == "" && c.Decode == "" {
		return nil
	}
	c.Prefill, c.Decode = cmp.Or(c.Prefill, c.Decode), cmp.Or(c.Decode, c.Prefill)
	return &c
}

// Matches is what an index says that replicas hold of a prompt.
type Matches struct {
	// BlockSize is its own, in tokens, 0 where it does not say.
	BlockSize int
	// Rows are in order of their names. A replica without a row holds nothing,
	// unless Partial: then it was not asked about.
	Rows    []Held
	Partial bool
}

// Held is what one replica holds of a prompt.
type Held struct {
	Replica wire.Replica
	// Tokens are per tier the continuation of the tiers before. Dynamo counts
	// external as disk. With DeviceOnly nothing is known of the lower tiers, and
	// with Weighted they are in the device's count, by their weights.
	Tokens               [wire.NumTiers]int
	DeviceOnly, Weighted bool
}

func (m *Matches) sort() {
	slices.SortFunc(m.Rows, func(a, b Held) int { return cmp.Compare(a.Replica, b.Replica) })
}

// Load is what a router holds against one replica, whatever the prompt.
type Load struct {
	Replica wire.Replica
	route.Load
}

// name is how a worker's rank is called on Dynamo's event plane.
func name(worker uint64, rank uint32) wire.Replica {
	return wire.Replica(fmt.Sprintf("%d/%d", worker, rank))
}

// named reads a worker's id and a rank that are keys of an object.
func named(worker, rank string) (wire.Replica, error) {
	id, err := strconv.ParseUint(worker, 10, 64)
	r, err2 := strconv.ParseUint(rank, 10, 32)
	if err != nil || err2 != nil {
		return "", errors.New("a worker of the answer is not named by numbers")
	}
	return name(id, uint32(r)), nil
}

// count is a number of tokens, blocks or requests. Null is 0.
type count int

const maxCount = 1 << 40

func (c *count) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil || n > maxCount {
		return errors.New("a number in it is no count of tokens, blocks or requests")
	}
	*c = count(n)
	return nil
}

// group parts the name of an index, model:group; a model's own name can have a
// colon.
func group(key string) (model, group string) {
	at := strings.LastIndexByte(key, ':')
	if at < 0 {
		return key, ""
	}
	return key[:at], key[at+1:]
}

func sortLoads(l []Load) {
	slices.SortFunc(l, func(a, b Load) int { return cmp.Compare(a.Replica, b.Replica) })
}
