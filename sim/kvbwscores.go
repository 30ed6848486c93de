package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// KVBWScores is the answer to one query: for each worker that holds at least
// its first block, how many blocks of the query it holds from the start on.
type KVBWScores map[uint32]uint32

// KVBWChecksum folds the scores of all queries, in order, into the number that
// kvbench prints. Equal checksums mean equal scores.
func KVBWChecksum(scores []KVBWScores) uint64 {
	var total uint64
	for _, s := range scores {
		var sum uint64
		for worker, depth := range s {
			sum += (uint64(worker) + 1) * 0x9E3779B97F4A7C15 * (uint64(depth) + 1)
		}
		total = total*31 + sum
	}
	return total
}

// KVBWExpected is a line of a scores file: what Dynamo's RadixTree answered.
type KVBWExpected struct {
	Blocks int        `json:"n"` // length of the query
	Scores KVBWScores `json:"scores"`
}

// ReadKVBWScores reads the JSON Lines that kvbench prints for a workload, one
// for each query in order.
func ReadKVBWScores(r io.Reader) ([]KVBWExpected, error) {
	var out []KVBWExpected
	s := bufio.NewScanner(r)
	for s.Scan() {
		var e KVBWExpected
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("scores line %d: %w", len(out)+1, err)
		}
		out = append(out, e)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("scores: %w", err)
	}
	return out, nil
}
