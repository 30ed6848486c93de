package route

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/crypto/blake2b"

	"github.com/kvscope/kvscope/wire"
)

// This file is Ray Serve LLM 2.60.0's KVAwareRouter. The choice is that of
// Dynamo's selection service, which runs within Ray's ingress: Dynamo's default
// policy, read from Dynamo's variables.

// rayKVProgress is behind Dynamo's own settings.
const rayKVProgress = dynLoadAware + 1

// rayKVSettings are Dynamo's, which Ray takes from variables alone, and Ray's.
var rayKVSettings = func() []setting {
	own := slices.Clone(dynamoSettings)
	for i := range own {
		own[i].flag, own[i].off, own[i].moves = "", "", false
	}
	return append(own, setting{
		name: "enable_decode_block_progress", vars: []string{"RAY_SERVE_LLM_ENABLE_DECODE_BLOCK_PROGRESS"}, def: "false", kind: onOff,
	})
}()

// RayWorkerID gives the number by which Dynamo's selection service, and its logs,
// know a replica of Ray Serve: the BLAKE2b digest of 8 bytes, big-endian, of the
// replica's unique id (Ray 2.60.0, get_worker_id).
func RayWorkerID(unique string) uint64 {
	h, err := blake2b.New(8, nil)
	if err != nil {
		panic(err) // only for a size or key out of range
	}
	h.Write([]byte(unique))
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// rayTokens says that the ingress made tokens of the prompt: it does not of a
// batch of prompts, of a body that it cannot parse, and of one that HAProxy cut.
func rayTokens(in *input) bool { return in.req.Tokens > 0 && !in.req.Cut }

func rankRayKV(in *input) {
	if rayTokens(in) {
		rankDynamo(in)
	}
}

func rayKVChances(in *input, p []float64) {
	if rayTokens(in) {
		dynamoChances(in, p)
		return
	}
	in.uniform(p)
}

func tellRayKV(in *input, at int, s *Scored) {
	id := fmt.Sprintf("%s is worker %d if that is its unique id", wire.Printable(string(s.Replica)), RayWorkerID(string(s.Replica)))
	if !rayTokens(in) {
		s.Rule = id
		return
	}
	tellDynamo(in, at, s)
	s.Rule += "; " + id
}

func rayKVSteps(in *input) []string {
	if !rayTokens(in) {
		return []string{"no tokens: any replica, evenly at random"}
	}
	steps := dynamoSteps(in)
	if in.cfg.on(rayKVProgress) {
		steps = append(steps, "decode progress is reported: generated blocks count too")
	}
	return steps
}
