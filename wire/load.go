package wire

import (
	"fmt"
	"strings"
)

// loadSuffix ends the names of publishers that send load alone.
const loadSuffix = "/load"

// LoadName is what a publisher is called that sends nothing but a replica's
// load, such as SGLang's load socket, or the bookings of a router. It is no
// replica itself.
func LoadName(of Replica) Replica { return of + loadSuffix }

// LoadOf gives the replica whose load a publisher of that name sends, and false
// where the name is a replica's own.
func LoadOf(name Replica) (Replica, bool) {
	of, ok := strings.CutSuffix(string(name), loadSuffix)
	return Replica(of), ok
}

// routerSuffix ends the names of routers, which are no replicas.
const routerSuffix = "/router"

// RouterName is what a router is called whose metrics pages are among the records.
func RouterName(name string) Replica { return Replica(name + routerSuffix) }

// IsRouter reports whether a name is a router's.
func IsRouter(name Replica) bool { return strings.HasSuffix(string(name), routerSuffix) }

// LoadReport is what one load message says. Of its numbers, those that it does
// not say are negative.
type LoadReport struct {
	// Replica is who it is about, where the message names it: on Dynamo's event
	// plane. Rank is its data-parallel rank, always given.
	Replica Replica
	Rank    int
	// Running and Waiting count requests.
	Running, Waiting float64
	// KVUsage is the share of the device tier that running requests hold, 0 to
	// 1, and UsedBlocks the blocks of it.
	KVUsage, UsedBlocks float64
}

// Onto gives what is known of a load once the report came, at a moment: what it
// does not say stays, and blocks need a known capacity to say anything.
func (r *LoadReport) Onto(load Load, facts Facts, at Time) Load {
	usage := r.KVUsage
	if r.UsedBlocks >= 0 && facts.Capacity > 0 {
		usage = r.UsedBlocks / float64(facts.Capacity)
	}
	for _, v := range []struct {
		to *float64
		is float64
	}{{&load.Running, r.Running}, {&load.Waiting, r.Waiting}, {&load.KVUsage, min(usage, 1)}} {
		if v.is >= 0 {
			*v.to, load.Known, load.At = v.is, true, at
		}
	}
	return load
}

// loadStat begins SGLang's load messages.
const loadStat = "LoadStat"

// DecodeLoad reads a load message: of SGLang,
//
//	["load", sequence, ["LoadStat", running, waiting, used tokens, max tokens, rank, ...]]
//
// or of Dynamo's event plane under the topic kv_metrics, as a worker sends it:
// {worker_id, dp_rank, kv_used_blocks}. What a router sends under that topic is
// its own reckoning and says nothing here. ok tells a load message from others,
// and err why it cannot be read.
func DecodeLoad(frames [][]byte) (r LoadReport, ok bool, err error) {
	r = LoadReport{Running: -1, Waiting: -1, KVUsage: -1, UsedBlocks: -1}
	switch {
	case isLoadStat(frames):
		err = r.readStat(frames[2])
	case isPlane(frames) && isTopic(frames, PlaneLoad):
		var env envelope
		if _, env, err = splitPlane(frames); err == nil {
			err = r.readActive(env.payload)
		}
	default:
		return r, false, nil
	}
	if err != nil {
		err = fmt.Errorf("a load message that cannot be read: %w", err)
	}
	return r, true, err
}

func isLoadStat(frames [][]byte) bool {
	if len(frames) != 3 || string(frames[0]) != "load" {
		return false
	}
	_, b, err := readList(frames[2])
	if err != nil {
		return false
	}
	word, _, err := readText(b)
	return err == nil && string(word) == loadStat
}

// readStat reads SGLang's list, of which older releases have six elements.
func (r *LoadReport) readStat(b []byte) error {
	const fields = 6
	n, b, err := readList(b)
	if err == nil && n < fields {
		err = fmt.Errorf("%d elements, and there should be %d", n, fields)
	}
	if err == nil {
		b, err = skip(b) // the word
	}
	var is [4]uint64
	for i := 0; i < len(is) && err == nil; i++ {
		is[i], b, err = readUint(b)
	}
	if err != nil {
		return err
	}
	r.Running, r.Waiting = float64(is[0]), float64(is[1])
	if used, most := float64(is[2]), float64(is[3]); most > 0 {
		r.KVUsage = min(used/most, 1)
	}
	r.Rank, _, err = readRank(b)
	return err
}

// readActive reads Dynamo's ActiveLoad.
func (r *LoadReport) readActive(b []byte) error {
	worker, rank, err := readOwner(b)
	if err != nil {
		return err
	}
	r.Replica, r.Rank = planeName(worker, rank), rank
	n, b, err := readMap(b)
	for ; n > 0 && err == nil; n-- {
		key, value := mapKey(b)
		if _, isNil := readNil(value); isNil || string(key) != "kv_used_blocks" {
			b, err = skipValues(b, 2)
			continue
		}
		var used uint64
		if used, b, err = readUint(value); err != nil {
			return fieldError(key, err)
		}
		r.UsedBlocks = float64(used)
	}
	return err
}
