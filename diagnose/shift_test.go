package diagnose

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// engine stores prompts as one would that has room for all.
type engine struct {
	m    *shifts
	x    *index.Index
	at   wire.Time
	size int
	have map[uint64]bool // chains, by a number that their tokens make
	seq  uint64
}

func newEngine(size int) *engine {
	return &engine{m: newShifts().(*shifts), x: index.New(index.Options{}), size: size, at: 1e9, have: map[uint64]bool{}}
}

// serve stores the blocks of a prompt that are not there, and lets time pass.
func (g *engine) serve(tokens []wire.Token) {
	e := wire.Event{Kind: wire.Stored, Group: -1, BlockSize: g.size}
	name := uint64(1)
	for i := g.size; i <= len(tokens); i += g.size {
		for _, t := range tokens[i-g.size : i] {
			name = (name ^ uint64(t)) * 0x9E3779B97F4A7C15
			name ^= name >> 32
		}
		h := wire.Handle{N: name, Set: true}
		if g.have[name] {
			e.Parent = h
			continue
		}
		g.have[name] = true
		e.Hashes = append(e.Hashes, h)
		e.Tokens = append(e.Tokens, tokens[i-g.size:i]...)
	}
	if len(e.Hashes) > 0 {
		b := &wire.Batch{Events: []wire.Event{e}}
		g.m.Step(&stream.Step{Kind: stream.Apply, Replica: "r1", At: g.at, Batch: b}, g.x)
		g.x.Apply("r1", &b.Events[0], false)
	}
	g.at += 2e9
	g.m.Pass(g.at, g.x)
}

func random(r *rand.Rand, n int) []wire.Token {
	out := make([]wire.Token, n)
	for i := range out {
		out[i] = wire.Token(r.IntN(50_000))
	}
	return out
}

func (g *engine) findings() (out []Finding) {
	for i := range Checks {
		if c := &Checks[i]; c.Code == "boundary-shift" || c.With == "boundary-shift" {
			for _, f := range c.Now(View{Now: g.at}, g.m) {
				f.Code = c.Code
				out = append(out, f)
			}
		}
	}
	return out
}

// TestShiftOneTokenPrepended: nine blocks are lost, and all are back with the token
// at the end.
func TestShiftOneTokenPrepended(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	g := newEngine(16)
	prompt := random(r, 9*16)
	g.serve(prompt)
	g.serve(append([]wire.Token{60_000}, prompt...))
	if len(g.m.families) != 1 {
		t.Fatalf("%d families", len(g.m.families))
	}
	f := g.m.families[0]
	t.Logf("%d blocks of %d reused, %d with the token moved", f.now, f.total, f.can)
	if f.code != "boundary-shift" || f.lost() != 9 || f.can != 9 || f.now != 0 || f.token != 0 || f.kind != diff.Resized {
		t.Errorf("%+v", f.shift)
	}
	if len(g.findings()) != 0 {
		t.Error("two prompts are a finding")
	}
}

// TestShiftUnrelated: of 1,000 pairs of prompts that have nothing in common none is a
// family, neither alone nor all together.
func TestShiftUnrelated(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2, 2))
	all, found := newEngine(16), 0
	for range 1000 {
		a, b := random(r, 100+r.IntN(200)), random(r, 100+r.IntN(200))
		pair := newEngine(16)
		for _, p := range [][]wire.Token{a, b} {
			pair.serve(p)
			all.serve(p)
		}
		found += len(pair.m.families)
	}
	t.Logf("1000 unrelated pairs: %d pairs and %d families found", found, len(all.m.families))
	if found+len(all.m.families) > 0 {
		t.Error("unrelated prompts are held to share content")
	}
}

// TestShiftNaturalFork: users ask different things after one system prompt, some word
// by word alike, and get a template's words in between.
func TestShiftNaturalFork(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 3))
	g := newEngine(16)
	system, markup := random(r, 300), random(r, 10)
	for range 300 {
		p := slices.Clone(system)
		for range 1 + r.IntN(3) {
			p = slices.Concat(p, markup, random(r, 5+r.IntN(120)))
			g.serve(p)
		}
	}
	if len(g.m.families) > 0 {
		t.Errorf("%+v", g.m.families[0])
	}
}

// TestShiftVolatileSpan: 1,000 pairs with other text of 1 to 40 tokens in the head.
func TestShiftVolatileSpan(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 4))
	const pairs = 1000
	found, findings := 0, 0
	for range pairs {
		size := []int{16, 32, 64}[r.IntN(3)]
		g := newEngine(size)
		head, rest := random(r, r.IntN(4*size)), random(r, (4+r.IntN(8))*size)
		same := r.IntN(2) == 0
		n := 1 + r.IntN(40)
		var prompts [][]wire.Token
		for range 4 {
			span := random(r, n)
			span[0] = wire.Token(60_000 + len(prompts)) // so that it is known where they part
			p := slices.Concat(head, span, rest, random(r, r.IntN(60)))
			prompts = append(prompts, p)
			if !same {
				n = 1 + r.IntN(40)
			}
		}
		g.serve(prompts[0])
		g.serve(prompts[1])
		if fs := g.m.families; len(fs) == 1 && fs[0].code == "boundary-shift" && fs[0].token == len(head) && fs[0].lost() > 0 && (fs[0].kind == diff.Replaced) == (fs[0].was == fs[0].is) {
			found++
		}
		g.serve(prompts[2])
		g.serve(prompts[3])
		if fs := g.findings(); len(fs) == 1 && *fs[0].Evidence.Token == len(head) && fs[0].Code == "boundary-shift" {
			findings++
		}
	}
	t.Logf("%d of %d pairs found with the right position; %d of %d families of four are a finding", found, pairs, findings, pairs)
	if found < 990 || findings < 990 {
		t.Error("want at least 990")
	}
}

// TestShiftForgets: what is remembered is bounded, whatever comes, and a copy goes its
// own way.
func TestShiftForgets(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	g := newEngine(4)
	stable := random(r, 64)
	for range 8_500 {
		p := slices.Concat(random(r, r.IntN(8)), stable[:16+r.IntN(48)], random(r, r.IntN(8)))
		g.seq += 100
		g.at += wire.Time(r.IntN(3)) * 1e8
		e := wire.Event{Kind: wire.Stored, Group: -1, BlockSize: 4, Tokens: p[:len(p)/4*4]}
		for k := range len(e.Tokens) / 4 {
			e.Hashes = append(e.Hashes, wire.Handle{N: g.seq + uint64(k), Set: true})
		}
		b := &wire.Batch{Events: []wire.Event{e}}
		g.m.Step(&stream.Step{Kind: stream.Apply, Replica: "r1", At: g.at, Batch: b}, g.x)
		g.x.Apply("r1", &b.Events[0], false)
	}
	m := g.m
	if len(m.families) > maxFamilies || len(m.tails) > maxChains || len(m.suspects) > maxSuspects || len(m.chains) != maxChains || len(m.prints) > maxPrints {
		t.Errorf("%d families, %d tails, %d suspects", len(m.families), len(m.tails), len(m.suspects))
	}
	before := fmt.Sprint(len(m.families), len(m.tails), m.next, m.requests, len(m.suspects))
	c := m.Clone().(*shifts)
	other := *g
	other.m, other.x = c, g.x.Clone()
	for range 50 {
		other.serve(slices.Concat(random(r, 3), stable))
	}
	if after := fmt.Sprint(len(m.families), len(m.tails), m.next, m.requests, len(m.suspects)); after != before {
		t.Errorf("the original changed with its copy: %s, %s", before, after)
	}
}

// TestShiftWordsAreWhole: every finding says what, where, how much and what next.
func TestShiftWordsAreWhole(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"boundary-shift", "order-shift", "template-drift", "multimodal-first"} {
		f := family{shift: shift{code: code, can: 9, total: 9, is: 1}, size: 16, members: 4, last: 1e9}
		f.hour.add(1e9, 3, 27)
		m := newShifts().(*shifts)
		m.families = []*family{&f}
		found := shiftsOf(code)(View{Now: 2e9}, m)
		if len(found) != 1 {
			t.Fatal(code)
		}
		w := found[0]
		if w.Title == "" || w.Next == "" || w.Counterfactual == "" || *w.Effect.Blocks != 27 || *w.Effect.Tokens != 27*16 || strings.Contains(w.Title+w.Next+w.Counterfactual, "%!") {
			t.Errorf("%s: %+v", code, w)
		}
	}
}
