package route

import (
	"math"
	"slices"
	"strconv"

	"github.com/kvscope/kvscope/wire"
)

// FlipKind is what a flip changes.
type FlipKind uint8

// The kinds of flip.
const (
	FlipLoad   FlipKind = iota // one load value of one candidate
	FlipWeight                 // one setting
	FlipBlock                  // one block, stored or evicted on one candidate
)

var flipWords = [...]string{"load", "weight", "block"}

func (k FlipKind) String() string { return flipWords[k] }

// Flip is one change after which a candidate that was among the best is so no
// more. What and To are what Edit takes.
type Flip struct {
	Kind     FlipKind
	What     string
	From, To string
	// Then are the best after it.
	Then []wire.Replica
	// size compares flips of one kind.
	size float64
}

// flipReach is how many candidates are tried behind the best, and how many of
// the best where many tie: a change elsewhere is larger.
const flipReach = 8

// Flips finds the smallest change of each kind that flips the choice, in the
// order of the kinds. Where the reckoning bends, as with a credit that decays, a
// smaller one may exist; those that are named do flip it. A pinned request has
// none.
func Flips(cfg *Config, req *Request, cands []Candidate) []Flip {
	if check(req, cands) != nil {
		return nil
	}
	own := Config{policy: cfg.policy, values: slices.Clone(cfg.values)}
	f := flipper{in: newInput(&own, req, slices.Clone(cands))}
	if len(f.in.eligible) < 2 {
		return nil
	}
	f.begin()
	f.loads()
	f.weights()
	f.blocks()
	var out []Flip
	for _, found := range f.found {
		if found != nil {
			found.Then = f.then(found)
			out = append(out, *found)
		}
	}
	return out
}

// flipper searches on copies of the configuration and the candidates, which it
// changes and restores.
type flipper struct {
	in *input
	// was holds the positions, among the eligible, of those that are best, and
	// near the positions of those that come next.
	was, near []int
	found     [len(flipWords)]*Flip
}

func (f *flipper) begin() {
	in := f.in
	in.cfg.policy.rank(in)
	order := make([]int, len(in.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return in.keys[a].compare(in.keys[b]) })
	_, ties := in.best()
	f.was = order[:ties]
	f.near = order[ties:min(len(order), ties+flipReach)]
}

// flipped ranks the candidates as they are now.
func (f *flipper) flipped() bool {
	f.in.cfg.policy.rank(f.in)
	best, _ := f.in.best()
	return slices.ContainsFunc(f.was, func(at int) bool { return f.in.keys[at] != best })
}

// then gives the best after a flip.
func (f *flipper) then(flip *Flip) []wire.Replica {
	cfg, cands, err := Edit(f.in.cfg, f.in.cands, flip.What, flip.To)
	if err != nil {
		return nil
	}
	in := newInput(cfg, f.in.req, cands)
	cfg.policy.rank(in)
	best, _ := in.best()
	var out []wire.Replica
	for n, i := range in.eligible {
		if in.keys[n] == best {
			out = append(out, cands[i].Replica)
		}
	}
	return out
}

func (f *flipper) offer(flip Flip) {
	if old := f.found[flip.Kind]; old == nil || flip.size < old.size {
		f.found[flip.Kind] = &flip
	}
}

// try reports whether the choice flips with a field of a candidate at v.
func (f *flipper) try(c *Candidate, what *field, v float64) bool {
	was := *c
	what.set(c, v)
	flips := f.flipped()
	*c = was
	return flips
}

// edit searches from a field's value towards far for the nearest that flips.
func (f *flipper) edit(at, what int, far float64, kind FlipKind, unit float64) {
	c, fl := &f.in.cands[f.in.eligible[at]], &fields[what]
	from := fl.get(c)
	span := int(math.Ceil(math.Abs(far-from) / fl.step))
	if span == 0 || !f.try(c, fl, far) {
		return
	}
	to := func(steps int) float64 {
		if steps >= span {
			return far
		}
		v := from + math.Copysign(float64(steps)*fl.step, far-from)
		if fl.step < 1 {
			v = math.Round(v*1e6) / 1e6 // no digits of rounding
		}
		return v
	}
	// Double the distance until it flips, then halve the rest.
	low, high := 0, 1
	for high < span && !f.try(c, fl, to(high)) {
		low, high = high, high*2
	}
	high = min(high, span)
	for high-low > 1 {
		if mid := low + (high-low)/2; f.try(c, fl, to(mid)) {
			high = mid
		} else {
			low = mid
		}
	}
	f.offer(Flip{
		Kind: kind, What: string(c.Replica) + ":" + fl.name,
		From: text(from), To: text(to(high)), size: float64(high) / unit,
	})
}

// loads makes each of them busier and less so. Tokens count by the block, the
// cache's usage by the hundredth.
func (f *flipper) loads() {
	for _, what := range []int{fieldPrefill, fieldBlocks, fieldRequests, fieldWaiting, fieldUsage} {
		most, unit := min(1<<40, bounds[fields[what].kind].high), 1.0
		if what == fieldPrefill {
			unit = float64(f.in.req.BlockSize)
		}
		for _, at := range slices.Concat(f.was[:min(len(f.was), flipReach)], f.near) {
			f.edit(at, what, most, FlipLoad, unit)
			f.edit(at, what, 0, FlipLoad, unit)
		}
	}
}

// blocks evicts one block of the best, which cuts their match off there, and
// stores the next one of any of them.
func (f *flipper) blocks() {
	for _, at := range f.was[:min(len(f.was), flipReach)] {
		f.edit(at, fieldMatch, 0, FlipBlock, 1)
	}
	for _, at := range slices.Concat(f.was[:min(len(f.was), flipReach)], f.near) {
		if n := f.in.cands[f.in.eligible[at]].matched() + 1; n <= f.in.req.Blocks() {
			f.edit(at, fieldMatch, float64(n), FlipBlock, 1)
		}
	}
}

// weights changes each weight in growing steps, both ways, and then looks for
// the place between the last two where the choice flips.
func (f *flipper) weights() {
	cfg := f.in.cfg
	for at := range cfg.policy.settings {
		s := &cfg.policy.settings[at]
		if !s.weight {
			continue
		}
		from, b := cfg.num(at), bounds[s.kind]
		for _, way := range [...]float64{-1, 1} {
			if to, ok := f.weight(at, from, way, b.low, b.high, b.whole); ok {
				f.offer(Flip{
					Kind: FlipWeight, What: s.name, From: text(from), To: text(to),
					size: math.Abs(to-from) / max(1, math.Abs(from)),
				})
			}
		}
	}
}

// The steps by which weights are tried.
const (
	firstStep = 1.0 / 64
	lastStep  = 64
)

func (f *flipper) weight(at int, from, way, low, high float64, whole bool) (float64, bool) {
	was := f.in.cfg.values[at]
	defer func() { f.in.cfg.values[at] = was }()
	try := func(to float64) bool {
		f.in.cfg.values[at] = value{text: "set", num: to}
		return f.flipped()
	}
	scale := max(1, from)
	near, far := from, from
	for step := firstStep; ; step *= 2 {
		near, far = far, min(high, max(low, from+way*step*scale))
		if far == near {
			return 0, false
		}
		if try(far) {
			break
		}
		if step >= lastStep {
			return 0, false
		}
	}
	for range 40 {
		if mid := (near + far) / 2; try(mid) {
			far = mid
		} else {
			near = mid
		}
	}
	// The shortest number not far beyond the edge.
	for decimals := range 10 {
		unit := math.Pow10(-decimals)
		to := math.Ceil(far/unit) * unit
		if way < 0 {
			to = math.Floor(far/unit) * unit
		}
		to, err := strconv.ParseFloat(strconv.FormatFloat(to, 'f', decimals, 64), 64)
		if err != nil || to < low || to > high {
			continue
		}
		if (math.Abs(to-far) <= scale/100 || whole) && try(to) {
			return to, true
		}
		if whole {
			return 0, false
		}
	}
	return far, try(far)
}
