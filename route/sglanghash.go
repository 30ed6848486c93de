package route

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/kvscope/kvscope/wire"
)

// This file is consistent_hashing and prefix_hash of smg 1.13.0, as SGLang's router
// is called since: a key, or the beginning of the prompt, has a place on a ring of
// workers. Workers stand there by their URLs, so a candidate must be called by its
// URL, or by host and port where that is http.

// conRing is off for router 0.3.2 over HTTP, which has the policy in its library:
// there the key chooses by its remainder, in the order of the router's list.
const conRing = 0

var sglangConsistentSettings = []setting{conRing: {name: "hash_ring", def: "true", kind: onOff}}

const (
	preCount = iota
	preFactor
	preAbs
)

// Router 0.3.2 has no balance_abs_threshold: 0 is its rule.
var sglangPrefixSettings = []setting{
	preCount:  {name: "prefix_token_count", flag: "--prefix-token-count", def: "256", kind: whole},
	preFactor: {name: "load_factor", flag: "--prefix-hash-load-factor", def: "1.25", kind: ratio, weight: true},
	preAbs:    {name: "balance_abs_threshold", flag: "--prefix-hash-balance-abs-threshold", def: "10", kind: whole, weight: true},
}

// sglangOrder gives the order of the eligible candidates on the ring from a key.
func sglangOrder(in *input, key string) []int {
	order := ringOf(in, &sglangRing, sglangVnodes).steps(key)
	at := make([]int, len(order)) // by step: the eligible candidate there, from 1 on
	for n, i := range in.eligible {
		at[order[i]] = n + 1
	}
	out, next := make([]int, len(in.eligible)), 0
	for _, n := range at {
		if n > 0 {
			out[n-1] = next
			next++
		}
	}
	return out
}

func rankSGLangConsistent(in *input) {
	switch key := in.req.Session; {
	case key == "" || len(in.eligible) == 0:
	case in.cfg.on(conRing):
		for n, place := range sglangOrder(in, key) {
			in.keys[n].cost = float64(place)
		}
	case in.ordered:
		size := uint64(len(in.eligible))
		at := sglangPosition([]byte(key)) % size
		for n := range in.eligible {
			in.keys[n].cost = float64((uint64(n) + size - at) % size)
		}
	}
}

func tellSGLangConsistent(_ *input, _ int, s *Scored) {
	s.Terms = []Term{{"ring_order", s.Cost, s.Cost}}
	s.Rule = fmt.Sprintf("%s: %s workers before it from the key on", wire.Printable(string(s.Replica)), number(s.Cost))
}

// sglangURLs says what the ring stands on.
const sglangURLs = "the ring is of workers' URLs: the answer holds where replicas are called by URL, or host:port"

func sglangConsistentSteps(in *input) []string {
	switch {
	case in.req.Session == "":
		return []string{"random_fallback: no key, so a worker is drawn"}
	case in.cfg.on(conRing):
		return []string{sglangURLs, "routing_key_hit: the first available worker clockwise from the key"}
	case in.ordered:
		return []string{"routing_key_hit: the key's hash modulo the number of available workers, in the order of the list"}
	}
	return []string{"routing_key_hit: the key's hash modulo the number of available workers; the router's list is not known, so it can be any"}
}

// sglangPrefix is what prefix_hash looked at.
type sglangPrefix struct {
	key   string // on the ring, "" where nothing is known of the prompt
	order []int
	mean  float64 // load, with this request
	walk  bool    // the first one on the ring has too much
}

// sglangPrefixKey hashes the routing key, if the client sent one, or else the
// beginning of the prompt: four times as many characters of its text as tokens are
// asked for, or those tokens where ids came in place of text. A workload's symbols
// stand for Width tokens each.
func sglangPrefixKey(in *input) string {
	r, count := in.req, int(in.cfg.num(preCount))
	var bytes []byte
	switch {
	case r.Session != "":
		bytes = []byte(r.Session)
	case len(r.Contents) > 0:
		bytes = sglangBeginning(r.Contents, count*symbolChars)
	case len(r.IDs) > 0:
		for _, id := range r.IDs[:min(count, len(r.IDs))] {
			bytes = binary.LittleEndian.AppendUint32(bytes, uint32(id))
		}
	default:
		width := max(1, r.Width)
		for _, c := range r.Symbols[:min(count/width+min(1, count%width), len(r.Symbols))] {
			bytes = binary.LittleEndian.AppendUint32(bytes, uint32(c))
		}
	}
	if len(bytes) == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", xxh3.Hash(bytes))
}

// sglangBeginning gives the first characters of texts that are joined by spaces.
func sglangBeginning(texts []string, chars int) []byte {
	var out []byte
	for i, s := range texts {
		if i > 0 && chars > 0 {
			out = append(out, ' ')
			chars--
		}
		for _, c := range s {
			if chars == 0 {
				return out
			}
			out = utf8.AppendRune(out, c)
			chars--
		}
	}
	return out
}

func readSGLangPrefix(in *input) (v sglangPrefix) {
	if v.key = sglangPrefixKey(in); v.key == "" || len(in.eligible) == 0 {
		return v
	}
	v.order = sglangOrder(in, v.key)
	total := 0
	for _, i := range in.eligible {
		total += in.cands[i].load().Requests
	}
	v.mean = float64(total+1) / float64(len(in.eligible))
	for n, place := range v.order {
		v.walk = v.walk || place == 0 && !v.takes(in, n)
	}
	return v
}

// takes reports whether the load of an eligible candidate is acceptable: not far
// above the mean by both measures.
func (v *sglangPrefix) takes(in *input, n int) bool {
	load := float64(in.cands[in.eligible[n]].load().Requests)
	return load <= v.mean*in.cfg.num(preFactor) || load-v.mean <= in.cfg.num(preAbs)
}

// cost is the place on the ring, or the load if the first one there takes no more.
// The least loaded always does.
func (v *sglangPrefix) cost(in *input, n int) (place, load Term) {
	place.Name, load.Name = "ring_order", "load"
	load.Value = float64(in.cands[in.eligible[n]].load().Requests)
	if v.order != nil {
		place.Value = float64(v.order[n])
	}
	if v.walk {
		load.Cost = load.Value
	} else {
		place.Cost = place.Value
	}
	return place, load
}

func rankSGLangPrefix(in *input) {
	v := readSGLangPrefix(in)
	if v.key == "" {
		return
	}
	for n := range in.eligible {
		place, load := v.cost(in, n)
		in.keys[n] = key{cost: place.Cost + load.Cost, then: in.listed(n)}
	}
}

func tellSGLangPrefix(in *input, at int, s *Scored) {
	v := readSGLangPrefix(in)
	place, load := v.cost(in, at)
	s.Terms = []Term{place, load}
	s.Rule = fmt.Sprintf("%s: %s workers before it on the ring, load %s",
		wire.Printable(string(s.Replica)), number(place.Value), number(load.Value))
}

func sglangPrefixSteps(in *input) []string {
	v := readSGLangPrefix(in)
	if v.key == "" {
		return []string{"no text and no token ids: the router fails the request"}
	}
	steps := []string{sglangURLs, fmt.Sprintf("the mean load with this request is %s; too much is more than %s times it, and more than %s above it",
		number(v.mean), number(in.cfg.num(preFactor)), number(in.cfg.num(preAbs)))}
	if v.walk {
		return append(steps, "load_balance_walk: the first on the ring has too much, so the least loaded")
	}
	return append(steps, "ring_hit: the first available worker clockwise from the prefix")
}
