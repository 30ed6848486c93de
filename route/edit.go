package route

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// field is a number of a candidate that can be edited.
type field struct {
	name string
	kind kind // whole or fraction
	// step is what a search for flips goes on by.
	step float64
	get  func(c *Candidate) float64
	set  func(c *Candidate, v float64)
}

// The fields that flips change.
const (
	fieldPrefill = iota
	fieldBlocks
	fieldRequests
	fieldWaiting
	fieldUsage
	fieldMatch
)

var fields = []field{
	fieldPrefill: {
		"active_prefill_tokens", whole, 1,
		func(c *Candidate) float64 { return float64(c.load().PrefillTokens) },
		func(c *Candidate, v float64) { c.know(); c.Load.PrefillTokens = int(v) },
	},
	fieldBlocks: {
		"active_decode_blocks", whole, 1,
		func(c *Candidate) float64 { return float64(c.load().Blocks) },
		func(c *Candidate, v float64) {
			c.know()
			c.Load.Blocks, c.Load.Prefix = int(v), min(c.Load.Prefix, int(v))
		},
	},
	// Those that wait are among the active ones.
	fieldRequests: {
		"active_requests", whole, 1,
		func(c *Candidate) float64 { return float64(c.load().Requests) },
		func(c *Candidate, v float64) {
			c.know()
			c.Load.Requests, c.Load.Waiting = int(v), min(c.Load.Waiting, int(v))
		},
	},
	fieldWaiting: {
		"waiting_requests", whole, 1,
		func(c *Candidate) float64 { return float64(c.load().Waiting) },
		func(c *Candidate, v float64) {
			c.know()
			c.Load.Waiting, c.Load.Requests = int(v), max(c.Load.Requests, int(v))
		},
	},
	fieldUsage: {
		"kv_cache_usage", fraction, 0.01,
		func(c *Candidate) float64 { return c.load().Usage },
		func(c *Candidate, v float64) { c.know(); c.Load.Usage = v },
	},
	fieldMatch: {
		"matched_blocks", whole, 1,
		func(c *Candidate) float64 { return float64(c.matched()) },
		func(c *Candidate, v float64) { c.rematch(int(v)) },
	},
}

// know makes a load one that was given by hand: what was unknown of it is 0.
func (c *Candidate) know() {
	c.Load = c.load()
	c.Load.State = LoadKnown
}

// rematch makes the match n blocks long: it ends at a block that was evicted, or
// goes on in the tier where it ended.
func (c *Candidate) rematch(n int) {
	last := wire.Device
	for tier, blocks := range c.Match {
		if blocks > 0 {
			last = wire.Tier(tier)
		}
	}
	for tier := range c.Match {
		if wire.Tier(tier) != last {
			c.Match[tier] = min(c.Match[tier], n)
			n -= c.Match[tier]
			continue
		}
		c.Match[tier], n = n, 0
	}
}

// Edit gives a configuration and candidates with one value changed. The key is
// the name of a setting, or REPLICA:FIELD with one of the fields of EditFields.
// What was given stays as it is.
func Edit(cfg *Config, cands []Candidate, key, val string) (*Config, []Candidate, error) {
	at := strings.LastIndexByte(key, ':')
	if at < 0 {
		out := Config{policy: cfg.policy, values: slices.Clone(cfg.values)}
		layer := []Setting{{key, val, "set"}}
		if err := out.put(layer[0]); err != nil {
			return nil, nil, err
		}
		if out.policy.infer != nil {
			out.policy.infer(&out, layer)
		}
		if out.policy.finish != nil {
			out.policy.finish(&out)
		}
		return &out, cands, nil
	}
	who := slices.IndexFunc(cands, func(c Candidate) bool { return string(c.Replica) == key[:at] })
	if who < 0 {
		return nil, nil, fmt.Errorf("%s is no candidate: the key is a setting's name or REPLICA:FIELD", wire.Printable(key[:at]))
	}
	what := slices.IndexFunc(fields, func(f field) bool { return f.name == key[at+1:] })
	if what < 0 {
		return nil, nil, fmt.Errorf("a candidate has no %s: it has %s", wire.Printable(key[at+1:]), strings.Join(EditFields(), ", "))
	}
	b := bounds[fields[what].kind]
	n, ok := b.read(val)
	if !ok {
		return nil, nil, fmt.Errorf("%s: %q is not %s", wire.Printable(key), wire.Printable(val), b.says)
	}
	out := slices.Clone(cands)
	fields[what].set(&out[who], n)
	return cfg, out, nil
}

// EditFields names the fields of a candidate that Edit can change.
func EditFields() []string {
	out := make([]string, len(fields))
	for i := range fields {
		out[i] = fields[i].name
	}
	return out
}
