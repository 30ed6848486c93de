package route

import (
	"fmt"
	"slices"
	"strings"
)

// Policy is one router's rule.
type Policy struct {
	Name string
	// System is the router that has it, with its version.
	System string
	// Sticks is what holds a prompt to a replica.
	Sticks Affinity
	// Rule is the rule in one line.
	Rule string
	// settings are what it can be configured with.
	settings []setting
	// affinity says that an eligible candidate that a session went to before is
	// the only one looked at.
	affinity bool
	// infer adds what a layer of settings implies, finish what all of them do.
	infer  func(c *Config, layer []Setting)
	finish func(c *Config)
	// memory makes what a Router of this policy remembers; nil for nothing.
	memory func(c *Config) memory
	// rank fills the keys of the eligible candidates.
	rank func(in *input)
	// tell fills the terms and the words of an eligible candidate.
	tell func(in *input, at int, s *Scored)
	// chances fills the probabilities of the eligible candidates; nil leaves ties
	// to chance and nothing else.
	chances func(in *input, p []float64)
	// steps tells what the rule did, and then names what ties are broken by.
	steps func(in *input) []string
	then  string
}

// Affinity is what a policy holds a prompt to a replica by.
type Affinity uint8

// The affinities, each more faithful to the caches than the one before.
const (
	LoadOnly        Affinity = iota // nothing
	SessionAffinity                 // a key that the client sends
	PrefixAffinity                  // what the router remembers of earlier prompts
	CacheAffinity                   // what the engines announce of their caches
)

var affinityWords = [...]string{"load only", "session affinity", "prefix affinity", "KV-cache affinity"}

func (a Affinity) String() string { return affinityWords[min(int(a), len(affinityWords)-1)] }

// policies is the table of rules.
var policies = []Policy{
	{
		Name:     "dynamo",
		System:   "Dynamo 1.6.1",
		Sticks:   CacheAffinity,
		Rule:     "lowest cost = prefill_load_scale * max(0, raw_prefill_blocks - overlap_credit_blocks) + decode_blocks + active_request_cost_blocks",
		settings: dynamoSettings,
		affinity: true,
		infer:    inferDynamo,
		finish:   finishDynamo,
		rank:     rankDynamo,
		tell:     tellDynamo,
		chances:  dynamoChances,
		steps:    dynamoSteps,
	},
	{
		Name:     "dynamo-two-tier-cost-fn",
		System:   "Dynamo 1.6.1",
		Sticks:   CacheAffinity,
		Rule:     "the least loaded if the loads differ much, else the least loaded of those with the longest overlap if it is long, else the least loaded",
		settings: twoTierSettings,
		rank:     rankTwoTier,
		tell:     tellTwoTier,
		steps:    twoTierSteps,
		then:     "active_requests",
	},
	{
		Name:   "affinity",
		System: "a yardstick",
		Sticks: CacheAffinity,
		Rule:   "the longest match, whatever the load",
		rank:   rankAffinity,
		tell:   tellAffinity,
		steps:  noSteps,
	},
	{
		Name:   "least-loaded",
		System: "a yardstick",
		Sticks: LoadOnly,
		Rule:   "the fewest active requests, whatever the match",
		rank:   rankLeastLoaded,
		tell:   tellLeastLoaded,
		steps:  noSteps,
	},
	{
		Name:     "round-robin",
		System:   "a yardstick",
		Sticks:   LoadOnly,
		Rule:     "one after the other, in the order given",
		settings: roundRobinSettings,
		memory:   newRobin,
		rank:     rankRoundRobin,
		tell:     tellRoundRobin,
		steps:    roundRobinSteps,
	},
	{
		Name:    "power-of-two",
		System:  "a yardstick",
		Sticks:  LoadOnly,
		Rule:    "of two candidates drawn at random, the one with fewer active requests",
		rank:    rankLeastLoaded,
		tell:    tellLeastLoaded,
		chances: powerOfTwoChances,
		steps:   powerOfTwoSteps,
	},

	// SGLang's routers: sglang*.go.
	{
		Name:     "sglang-cache-aware",
		System:   "SGLang router 0.3.2",
		Sticks:   PrefixAffinity,
		Rule:     "the least loaded if the loads differ much, else the first owner of the matched text if enough is matched, else the least loaded",
		settings: sglangCacheSettings,
		memory:   newSGLangMemory,
		rank:     rankSGLangCache,
		tell:     tellSGLangCache,
		steps:    sglangCacheSteps,
		then:     "list_order",
	},
	{
		Name:    "sglang-power-of-two",
		System:  "SGLang router 0.3.2",
		Sticks:  LoadOnly,
		Rule:    "of two workers drawn at random, the one with the lower token load",
		rank:    rankSGLangPower,
		tell:    tellSGLangPower,
		chances: sglangPowerChances,
		steps:   sglangPowerSteps,
	},
	{
		Name:     "sglang-round-robin",
		System:   "SGLang router 0.3.2",
		Sticks:   LoadOnly,
		Rule:     "one after the other, in the order of the router's list",
		settings: roundRobinSettings,
		memory:   newRobin,
		rank:     rankRoundRobin,
		tell:     tellRoundRobin,
		steps:    roundRobinSteps,
	},
	{
		Name:   "sglang-random",
		System: "SGLang router 0.3.2",
		Sticks: LoadOnly,
		Rule:   "any worker",
		rank:   rankSGLangRandom,
		tell:   tellSGLangRandom,
		steps:  noSteps,
	},
	{
		Name:     "sglang-manual",
		System:   "SGLang router 0.3.2",
		Sticks:   SessionAffinity,
		Rule:     "the worker that the routing key was given to; a new key's by its assignment mode",
		settings: sglangManualSettings,
		memory:   newSGLangKeys,
		rank:     rankSGLangManual,
		tell:     tellSGLangManual,
		steps:    sglangManualSteps,
	},
	{
		Name:     "sglang-consistent-hashing",
		System:   "smg 1.13.0, SGLang's router",
		Sticks:   SessionAffinity,
		Rule:     "the first worker clockwise from the routing key on a ring of workers",
		settings: sglangConsistentSettings,
		memory:   newSGLangRing,
		rank:     rankSGLangConsistent,
		tell:     tellSGLangConsistent,
		steps:    sglangConsistentSteps,
	},
	{
		Name:     "sglang-prefix-hash",
		System:   "smg 1.13.0, SGLang's router",
		Sticks:   PrefixAffinity,
		Rule:     "the first worker clockwise from the hash of the prompt's beginning, unless its load is far above the mean: then the least loaded",
		settings: sglangPrefixSettings,
		memory:   newSGLangRing,
		rank:     rankSGLangPrefix,
		tell:     tellSGLangPrefix,
		steps:    sglangPrefixSteps,
		then:     "list_order",
	},
	{
		Name:     "sglang-candidate-set",
		System:   "SGLang's experimental sgl-router, autumn 2026",
		Sticks:   CacheAffinity,
		Rule:     "of the workers that hold enough, one with the least uncached tokens, or near it and materially less pressed; without one, the less pressed of two drawn at random",
		settings: sglangSetSettings,
		rank:     rankSGLangSet,
		tell:     tellSGLangSet,
		chances:  sglangSetChances,
		steps:    sglangSetSteps,
	},

	// Ray Serve LLM: ray*.go.

	// llm-d: llmd*.go.

	// AIBrix, the vLLM production stack and TensorRT-LLM: a file each.
}

// policyTypes are the names of policies in Dynamo's policy file.
var policyTypes = map[string]string{
	"default":                 "dynamo",
	"dynamo-default-cost-fn":  "dynamo",
	"dynamo-two-tier-cost-fn": "dynamo-two-tier-cost-fn",
}

// Policies names all policies, Dynamo's default first.
func Policies() []string {
	out := make([]string, len(policies))
	for i := range policies {
		out[i] = policies[i].Name
	}
	return out
}

// Named finds a policy.
func Named(name string) (*Policy, error) {
	at := slices.IndexFunc(policies, func(p Policy) bool { return p.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("no policy is called %q: there are %s", name, strings.Join(Policies(), ", "))
	}
	return &policies[at], nil
}
