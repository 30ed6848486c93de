package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// The shape of the traffic, in tokens unless it says otherwise.
const (
	families = 6 // shared system prompts
	maxTurns = 6 // of one conversation
	// oneOff requests share nothing with anyone, one in so many.
	oneOff = 12

	minSystem, maxSystem = 150, 700
	minUser, maxUser     = 10, 90
	minOutput, maxOutput = 8, 48
	minOneOff, maxOneOff = 60, 400
)

// traffic makes the requests of many conversations.
type traffic struct {
	rng *rand.Rand
	// say makes up tokens, and marks are those around turns.
	say     voice
	marks   *marks
	systems [][]wire.Token
	// open conversations are always as many: one that ends is begun anew.
	open []*conversation
	// limit bounds a conversation, so that its requests fit into a cache.
	limit int

	// clock is the family whose system prompt begins with the time of day, and
	// whole the one whose prompts are whole blocks of so many tokens and are sent
	// twice; both -1 for none.
	clock, whole int
	wholeSize    int
}

// conversation is a history that grows.
type conversation struct {
	family, turn int
	history      []wire.Token
	// busy is set while a request of it is on its way.
	busy bool
	// again is a prompt that is to be sent a second time.
	again []wire.Token
}

func newTraffic(rng *rand.Rand, conversations, limit int, encode func(string) []wire.Token) *traffic {
	t := &traffic{rng: rng, limit: limit, clock: -1, whole: -1}
	t.say, t.marks = newVoice(encode)
	for range families {
		t.systems = append(t.systems, t.say(rng, between(rng, min(minSystem, limit/4), min(maxSystem, limit/2))))
	}
	for len(t.open) < conversations {
		t.open = append(t.open, t.begin())
	}
	return t
}

func between(rng *rand.Rand, low, high int) int { return low + rng.IntN(max(high-low, 0)+1) }

// begin starts a conversation; low families are more popular.
func (t *traffic) begin() *conversation {
	return &conversation{family: t.rng.IntN(1 + t.rng.IntN(families))}
}

// next gives a request: a turn of a conversation, which is busy then, or one
// that belongs to none. It gives no prompt if all conversations are busy.
func (t *traffic) next(now wire.Time) (*conversation, Job) {
	if t.rng.IntN(oneOff) == 0 {
		return nil, Job{Prompt: t.say(t.rng, min(between(t.rng, minOneOff, maxOneOff), t.limit)), Output: t.output()}
	}
	var idle []*conversation
	for _, c := range t.open {
		if !c.busy {
			idle = append(idle, c)
		}
	}
	if len(idle) == 0 {
		return nil, Job{}
	}
	c := idle[t.rng.IntN(len(idle))]
	c.busy = true
	return c, Job{Prompt: t.prompt(c, now), Output: t.output()}
}

func (t *traffic) output() []wire.Token { return t.say(t.rng, between(t.rng, minOutput, maxOutput)) }

func (t *traffic) prompt(c *conversation, now wire.Time) []wire.Token {
	if c.again != nil {
		return c.again
	}
	c.turn++
	c.history = slices.Concat(c.history, t.marks.user, t.say(t.rng, between(t.rng, minUser, maxUser)), t.marks.assistant)
	var clock []wire.Token
	if c.family == t.clock {
		clock = t.marks.clock(now)
	}
	prompt := slices.Concat(t.marks.system, clock, t.systems[c.family], t.marks.systemEnd, c.history)
	if c.family == t.whole && len(prompt) > t.wholeSize {
		prompt = prompt[:len(prompt)/t.wholeSize*t.wholeSize]
	}
	return prompt
}

// answered takes the answer to a conversation's request.
func (t *traffic) answered(c *conversation, j Job) {
	c.busy = false
	if c.family == t.whole && c.again == nil {
		c.again = j.Prompt
		return
	}
	c.again = nil
	c.history = slices.Concat(c.history, j.Output, t.marks.end)
	if c.turn >= maxTurns || len(t.systems[c.family])+len(c.history)+maxUser+maxOutput > t.limit {
		*c = *t.begin()
	}
}

// failed takes back a request that nobody answered. Its conversation is over.
func (t *traffic) failed(c *conversation) { *c = *t.begin() }
