package doctor

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/wire"
)

// fleetCheck is one row of the table of what must agree.
type fleetCheck struct {
	code string
	run  func([]*sight) Result
}

var fleetChecks = []fleetCheck{
	{"members", members},
	{"block-size", blockSize},
	{"dialect", dialect},
	{"hash", hash},
}

func members(seen []*sight) Result {
	if len(seen) == 0 {
		return fail("give --replica, --engine, --dns, --dynamo or --kubernetes, or write a configuration with kvscope init", "no replica was found")
	}
	up := 0
	for _, s := range seen {
		if isUp(s) {
			up++
		}
	}
	if up == 0 {
		return fail("see the checks above", "none of %s can be tapped", count(len(seen), "replica"))
	}
	return fine("%d of %s can be tapped", up, count(len(seen), "replica"))
}

// agree compares the members of each model by a trait; "" is unknown. A load
// socket has none.
func agree(seen []*sight, trait func(*sight) string) (known int, differing string) {
	type key struct{ model, value string }
	models := map[string][]string{}
	names := map[key][]string{}
	for _, s := range seen {
		v := trait(s)
		if v == "" || s.Kind == fleet.LoadOnly {
			continue
		}
		known++
		k := key{s.facts().Model, v}
		if names[k] == nil {
			models[k.model] = append(models[k.model], v)
		}
		names[k] = append(names[k], string(s.Name))
	}
	for _, model := range slices.Sorted(maps.Keys(models)) {
		values := models[model]
		if len(values) < 2 {
			continue
		}
		// The one that most have comes first.
		slices.SortStableFunc(values, func(a, b string) int {
			return cmp.Compare(len(names[key{model, b}]), len(names[key{model, a}]))
		})
		var parts []string
		for _, v := range values {
			parts = append(parts, fmt.Sprintf("%s on %s", v, some(names[key{model, v}])))
		}
		return known, strings.Join(parts, ", ")
	}
	return known, ""
}

// some lists the first few of many names.
func some(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func blockSize(seen []*sight) Result {
	known, differing := agree(seen, func(s *sight) string { return s.blockSizes(s.facts().BlockSize) })
	switch {
	case differing != "":
		return fail("start all engines of a model with the same --block-size (SGLang: --page-size), the router's own",
			"block sizes differ: %s; a router that hashes by one of them finds nothing on the others", differing)
	case known == 0:
		return skip("no block size is known")
	}
	return fine("block sizes agree on %s", count(known, "replica"))
}

func dialect(seen []*sight) Result {
	known, differing := agree(seen, func(s *sight) string { return s.dialect.String() })
	switch {
	case differing != "":
		return warn("finish the upgrade, or see that the router reads both", "the engines' events differ in form: %s", differing)
	case known == 0:
		return skip("no event was seen")
	}
	return fine("events have the same form on %s", count(known, "replica"))
}

// hash compares algorithms, forms, and what the same first block is hashed to.
func hash(seen []*sight) Result {
	const fix = "start all with the same --prefix-caching-hash-algo, PYTHONHASHSEED and version"
	algorithms, differing := agree(seen, func(s *sight) string { return s.facts().HashAlgo })
	if differing != "" {
		return warn(fix, "hash algorithms differ: %s; kvscope compares content, but routers that compare engines' hashes find nothing in common", differing)
	}
	forms, differing := agree(seen, func(s *sight) string { return s.form() })
	if differing != "" {
		return warn("set VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES alike on all", "hashes are written differently: %s", differing)
	}
	type first struct {
		hash string
		by   wire.Replica
	}
	roots := map[[sha256.Size]byte]first{}
	shared := 0
	for _, s := range seen {
		for content, hash := range s.roots {
			was, ok := roots[content]
			switch {
			case !ok:
				roots[content] = first{hash, s.Name}
			case was.hash != hash:
				return warn(fix, "%s and %s hash the same first block differently; kvscope compares content, but routers that compare engines' hashes find nothing in common", was.by, s.Name)
			default:
				shared++
			}
		}
	}
	switch {
	case algorithms+forms == 0:
		return skip("no hash was seen")
	case shared > 0:
		return fine("replicas hash the same tokens alike, on %d first blocks", shared)
	}
	return fine("nothing differs in algorithm and form; no first block came from two replicas to compare")
}
