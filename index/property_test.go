package index

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/wire"
)

// history drives the index and the model with one random stream.
type history struct {
	rng   *rand.Rand
	x     *Index
	m     *model
	steps []string
	// chains are contents that were ever stored or asked for.
	chains []string
	tiers  bool
	groups bool
	roots  int
}

// locals gives the local hashes of a content.
func locals(content string) []uint64 {
	var out []uint64
	for _, s := range strings.Split(content, "/") {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			panic(err)
		}
		out = append(out, n)
	}
	return out
}

func (h *history) content() string {
	if len(h.chains) > 0 && h.rng.IntN(4) > 0 {
		c := h.chains[h.rng.IntN(len(h.chains))]
		if h.rng.IntN(3) == 0 { // another way to go on from somewhere in it
			parts := strings.Split(c, "/")
			c = strings.Join(parts[:1+h.rng.IntN(len(parts))], "/")
			c += "/" + fmt.Sprint(1+h.rng.IntN(3))
		}
		return c
	}
	c := fmt.Sprint(1 + h.rng.IntN(3))
	for range h.rng.IntN(6) {
		c += "/" + fmt.Sprint(1+h.rng.IntN(3))
	}
	return c
}

func (h *history) place() Place {
	at := Place{}
	if h.tiers && h.rng.IntN(3) == 0 {
		at.Tier = wire.Tier(h.rng.IntN(3))
	}
	if h.groups && h.rng.IntN(4) == 0 {
		at.Group = 1
	}
	return at
}

func (h *history) step() {
	r := h.m.replicas[h.rng.IntN(len(h.m.replicas))]
	c, at := h.content(), h.place()
	log := func(format string, args ...any) {
		h.steps = append(h.steps, fmt.Sprintf("%s: %s", r.name, fmt.Sprintf(format, args...)))
	}
	switch k := h.rng.IntN(20); {
	case k < 9: // a chain, from its root or from somewhere within
		parts := strings.Split(c, "/")
		from := 0
		if h.rng.IntN(2) == 0 {
			from = h.rng.IntN(len(parts))
		}
		parent := strings.Join(parts[:from], "/")
		log("store %s below %q at %+v", strings.Join(parts[from:], "/"), parent, at)
		st := Store{Place: at}
		if parent != "" {
			st.Parent = wire.IntHandle(handle(r.root, parent))
		}
		content := parent
		for _, p := range parts[from:] {
			content = join(content, p)
			st.Blocks = append(st.Blocks, Block{wire.IntHandle(handle(r.root, content)), locals(p)[0]})
		}
		h.chains = append(h.chains, c)
		h.x.Store(r.name, st)
		h.m.store(r, at, parent, parts[from:])
	case k < 16: // a block, or a chain from its tail on
		log("remove %s at %+v", c, at)
		for c != "" {
			h.x.Remove(r.name, at, []wire.Handle{wire.IntHandle(handle(r.root, c))})
			h.m.remove(r, at, c)
			if c = parentOf(c); h.rng.IntN(2) == 0 {
				break
			}
		}
	case k == 16:
		all := h.rng.IntN(2) == 0
		log("clear, all %t", all)
		h.x.Clear(r.name, all)
		h.m.clear(r, all)
	case k == 17 && h.rng.IntN(2) == 0:
		root := r.root
		if h.rng.IntN(2) == 0 {
			h.roots++
			root = 100 + h.roots
		}
		log("drop, root %d", root)
		h.x.Drop(r.name)
		if h.m.hybrid {
			h.describe(r.name)
		}
		h.m.drop(r, root)
	case k == 18:
		log("doubt")
		h.x.Doubt(r.name)
		r.doubt()
	}
}

// differs compares all numbers and a few queries.
func (h *history) differs() string {
	for _, r := range h.m.replicas {
		got, want := h.x.Stats(r.name), r.numbers()
		got.Turns = Turns{} // the model does not know them; see TestTurns
		// What the model does not count.
		want.MaxCopies, want.LastClear, want.LastDrop, want.Stored, want.Removed, want.Cleared = got.MaxCopies, got.LastClear, got.LastDrop, got.Stored, got.Removed, got.Cleared
		want.Groups, want.Recipe, want.BlockSize = got.Groups, got.Recipe, got.BlockSize
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Sprintf("%s (-model +index):\n%s", r.name, diff)
		}
	}
	for range 4 {
		c := h.content()
		matches := h.x.MatchLocals(locals(c))
		for _, r := range h.m.replicas {
			var got Match
			for _, m := range matches {
				if m.Replica == r.name {
					got = m
				}
			}
			parts := strings.Split(c, "/")
			tiers, certain := h.m.match(r, parts)
			if h.m.hybrid {
				depth, sure, upper := h.m.matchHybrid(r, parts)
				tiers, certain = [wire.NumTiers]int{depth}, sure
				if got.Upper != upper {
					return fmt.Sprintf("%s, query %s: index promises %d at most, model %d", r.name, c, got.Upper, upper)
				}
			}
			if got.Tiers != tiers || got.Certain != certain {
				return fmt.Sprintf("%s, query %s: index %v, %d certain; model %v, %d certain", r.name, c, got.Tiers, got.Certain, tiers, certain)
			}
		}
	}
	if len(h.steps)%4 != 0 { // it looks at everything
		return ""
	}
	return h.residents()
}

func newHistory(seed int) *history {
	rng := rand.New(rand.NewPCG(uint64(seed), 7))
	roots := make([]int, 1+rng.IntN(4))
	for i := range roots {
		roots[i] = i
		if seed%2 == 0 { // some share one
			roots[i] = rng.IntN(2)
		}
	}
	h := &history{
		rng: rng, x: New(Options{}), m: newModel(roots), tiers: seed%3 == 0, groups: seed%5 == 0,
	}
	if h.m.hybrid = h.groups && seed%4 == 1; h.m.hybrid {
		for _, r := range h.m.replicas {
			h.describe(r.name)
		}
	}
	return h
}

// describe tells the index of a hybrid model's groups, as events would.
func (h *history) describe(name wire.Replica) {
	const size = 4
	r := h.x.replica(name)
	r.blockSize = size
	r.noteGroup(0, &wire.Event{Spec: "full_attention"})
	r.noteGroup(1, &wire.Event{Spec: "sliding_window", Window: modelWindow * size})
}

func (h *history) numbersOf(x *Index) []Stats {
	var out []Stats
	for _, r := range h.m.replicas {
		out = append(out, x.Stats(r.name))
	}
	return out
}

// TestPropertyModel: after every step of thousands of random streams the index
// and the naive model say the same. Replicas have handles of their own or
// share a root; processes restart; tiers and groups mix; parents are missing.
func TestPropertyModel(t *testing.T) {
	t.Parallel()
	runs := 2000
	if testing.Short() {
		runs = 300
	}
	for shard := range 4 {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			for seed := shard; seed < runs; seed += 4 {
				h := newHistory(seed)
				for range 60 {
					h.step()
					if diff := h.differs(); diff != "" {
						t.Fatalf("seed %d, after\n%s\n%s", seed, strings.Join(h.steps, "\n"), diff)
					}
				}
			}
		})
	}
}
