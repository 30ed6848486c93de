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
	// byNames says that it hashes what replicas are called.
	byNames bool
	// queue says that it reads the engines' queues and the usage of their caches.
	queue bool
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
	// pair takes one of the eligible candidates where two of them are drawn, in this
	// order. drawn says whether they are, nil that they always are; else chances hold.
	pair  func(in *input, first, second int) int
	drawn func(in *input) bool
	// steps tells what the rule did, and then names what ties are broken by.
	steps func(in *input) []string
	then  string
}

// draws says that two of the eligible candidates are drawn.
func (p *Policy) draws(in *input) bool { return p.pair != nil && (p.drawn == nil || p.drawn(in)) }

// ReadsQueue says whether a rule goes by how many requests wait in an engine's
// queue and how full its cache is.
func (p *Policy) ReadsQueue() bool { return p.queue }

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
		Name:   "power-of-two",
		System: "a yardstick",
		Sticks: LoadOnly,
		Rule:   "of two candidates drawn at random, the one with fewer active requests",
		rank:   rankLeastLoaded,
		tell:   tellLeastLoaded,
		pair:   shorterOfTwo,
		steps:  powerOfTwoSteps,
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
		Name:   "sglang-power-of-two",
		System: "SGLang router 0.3.2",
		Sticks: LoadOnly,
		Rule:   "of two workers drawn at random, the one with the lower token load",
		rank:   rankSGLangPower,
		tell:   tellSGLangPower,
		pair:   sglangPowerOfTwo,
		steps:  sglangPowerSteps,
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
		byNames:  true,
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
		byNames:  true,
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
		pair:     sglangSetOfTwo,
		drawn:    sglangSetDrawn,
		steps:    sglangSetSteps,
	},

	// Ray Serve LLM: ray*.go.
	{
		Name:     "ray-kv-aware",
		System:   "Ray Serve LLM 2.60.0",
		Sticks:   CacheAffinity,
		Rule:     "Dynamo's lowest cost; without tokens, any replica",
		settings: rayKVSettings,
		infer:    inferDynamo,
		finish:   finishDynamo,
		rank:     rankRayKV,
		tell:     tellRayKV,
		chances:  rayKVChances,
		steps:    rayKVSteps,
	},
	{
		Name:     "ray-prefix-affinity",
		System:   "Ray Serve LLM 2.60.0",
		Sticks:   PrefixAffinity,
		Rule:     "the shorter queue of two if the queues differ much; else the shortest queue of those sent the longest match, or of those with the fewest characters if it is short",
		settings: rayPrefixSettings,
		memory:   newRayPrefixes,
		rank:     rankRayPrefix,
		tell:     tellRayPrefix,
		pair:     shorterOfTwo,
		drawn:    rayPrefixDrawn,
		steps:    rayPrefixSteps,
		then:     "place_in_group",
	},
	{
		Name:     "ray-consistent-hashing",
		System:   "Ray Serve 2.60.0",
		Sticks:   SessionAffinity,
		Rule:     "the next replica clockwise from the session on a hash ring; without a session, from a fresh key",
		settings: rayHashSettings,
		finish:   finishRayHash,
		byNames:  true,
		rank:     rankRayHash,
		tell:     tellRayHash,
		chances:  rayHashChances,
		steps:    rayHashSteps,
	},

	// llm-d: llmd*.go.
	{
		Name:     "llm-d-precise",
		System:   "llm-d-router 0.10",
		Sticks:   CacheAffinity,
		Rule:     "highest score = the sum of weight * scorer: the share of the prompt that is cached, by cache events, the queue and the cache's usage",
		settings: llmdPreciseSettings,
		queue:    true,
		memory:   newLLMDPrecise,
		rank:     llmdPrecise.rank,
		tell:     llmdPrecise.tell,
		chances:  llmdChances,
		steps:    llmdPreciseSteps,
	},
	{
		Name:     "llm-d-approximate",
		System:   "llm-d-router 0.10",
		Sticks:   PrefixAffinity,
		Rule:     "highest score = the sum of weight * scorer: the queue, the cache's usage and the share of the prompt that was sent there before",
		settings: llmdApproximateSettings,
		queue:    true,
		memory:   newLLMDApproximate,
		rank:     llmdApproximate.rank,
		tell:     llmdApproximate.tell,
		chances:  llmdChances,
		steps:    llmdApproximateSteps,
	},

	// AIBrix, the vLLM production stack and TensorRT-LLM: a file each.
	{
		Name:     "trtllm-kv-cache-aware",
		System:   "TensorRT-LLM 00895e31",
		Sticks:   CacheAffinity,
		Rule:     "highest score = matched tokens / padded tokens - active requests / max_batch_size; ties go round",
		settings: trtCacheSettings,
		memory:   newRobin,
		rank:     rankTRTCache,
		tell:     tellTRTCache,
		steps:    trtCacheSteps,
		then:     "turns_to_wait",
	},
	{
		Name:     "trtllm-load-balancing",
		System:   "TensorRT-LLM 00895e31",
		Sticks:   LoadOnly,
		Rule:     "the fewest active requests; ties go round",
		settings: trtLoadSettings,
		memory:   newRobin,
		rank:     rankTRTLoad,
		tell:     tellLeastLoaded,
		steps:    trtSteps,
		then:     "turns_to_wait",
	},
	{
		Name:     "aibrix-prefix-cache",
		System:   "AIBrix e3e10f9",
		Sticks:   PrefixAffinity,
		Rule:     "the longest match of those not much above the mean of running requests; else the fewest running requests",
		settings: aibrixSettings,
		finish:   finishAIBrix,
		memory:   newAIBrixTable,
		rank:     rankAIBrix,
		tell:     tellAIBrix,
		steps:    aibrixSteps,
		then:     "running_requests",
	},
	{
		Name:     "production-stack-kvaware",
		System:   "vLLM production stack a6c01db",
		Sticks:   CacheAffinity,
		Rule:     "the first holder of the prompt's first chunk, if it holds nearly all of it; else by session, or the lowest QPS",
		settings: stackKVSettings,
		finish:   finishStackKV,
		memory:   newStackKV,
		rank:     rankStackKV,
		tell:     tellStackKV,
		chances:  stackKVChances,
		steps:    stackKVSteps,
		then:     "fallback",
	},
	{
		Name:     "production-stack-prefix",
		System:   "vLLM production stack a6c01db",
		Sticks:   PrefixAffinity,
		Rule:     "any of those sent the longest match, whatever their load",
		settings: stackPrefixSettings,
		memory:   newStackPrefix,
		rank:     rankStackPrefix,
		tell:     tellStackPrefix,
		steps:    stackPrefixSteps,
		then:     "list_order",
	},
	{
		Name:     "production-stack-session",
		System:   "vLLM production stack a6c01db",
		Sticks:   SessionAffinity,
		Rule:     "the session's place on a hash ring; without a session, the lowest QPS",
		settings: stackSessionSettings,
		memory:   newStackSession,
		byNames:  true,
		rank:     rankStackSession,
		tell:     tellStackSession,
		steps:    stackSessionSteps,
		then:     "list_order",
	},
}

// Remembers reports whether a router of the policy goes by what it remembers of
// earlier prompts.
func (p *Policy) Remembers() bool { return p.memory != nil && p.Sticks == PrefixAffinity }

// HashesNames reports whether a rule hashes what replicas are called, so that it is
// the router's own only where that calls them the same.
func (p *Policy) HashesNames() bool { return p.byNames }

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
