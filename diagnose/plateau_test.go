package diagnose

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/wire"
)

// TestPlateausKept: however many chats go on behind blocks of their own, a block that
// half of the requests end at is kept with its count, in bounded memory.
func TestPlateausKept(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(8, 2))
	var m plateaus
	const head = 42
	e := &wire.Event{BlockSize: 4, Tokens: make([]wire.Token, 8)}
	want := 0
	for i := range 20_000 {
		first := index.Known{Seq: uint64(1_000_000 + i), Parent: head, Depth: 5}
		if random.IntN(2) == 0 {
			first.Parent = uint64(1000 + i)
		} else {
			want++
		}
		m.begin(wire.Time(i)*1e6, first, e, 1)
	}
	if len(m.all) > maxPlateaus {
		t.Errorf("%d places", len(m.all))
	}
	for i := range m.all {
		if f := &m.all[i]; f.seq == head {
			if n, _ := f.hour.last(20e9); n != want || f.depth != 4 {
				t.Errorf("%d of %d requests, depth %d", n, want, f.depth)
			}
			return
		}
	}
	t.Error("the place is lost")
}

// TestPlateausElsewhere: what another replica has, what comes again, and what was never
// cached are no ends of reuse; they count among all requests.
func TestPlateausElsewhere(t *testing.T) {
	t.Parallel()
	var m plateaus
	e := &wire.Event{BlockSize: 4, Tokens: make([]wire.Token, 4)}
	behind := index.Known{Seq: 7, Parent: 1, Depth: 2}
	for _, c := range []struct {
		name    string
		first   index.Known
		holders int
		counts  bool
	}{
		{"new behind a block", behind, 1, true},
		{"again", behind, 1, false},
		{"elsewhere too", index.Known{Seq: 8, Parent: 1, Depth: 2}, 2, false},
		{"at a root", index.Known{Seq: 9, Depth: 1}, 1, false},
	} {
		if id := m.begin(1e9, c.first, e, c.holders); (id != 0) != c.counts {
			t.Errorf("%s: %d", c.name, id)
		}
	}
	if n, _ := m.turns.last(1e9); n != 4 || m.all[0].requests != 1 {
		t.Errorf("%d requests, %d of them end there", n, m.all[0].requests)
	}
}

// TestPlateausBegun: tokens that are shared inside a block are told of where they end,
// and not where pictures alone tell the blocks apart.
func TestPlateausBegun(t *testing.T) {
	t.Parallel()
	const requests = 40
	for shared, want := range map[int]bool{3: true, 0: false, 4: false} {
		var m plateaus
		for i := range requests {
			tokens := slices.Repeat([]wire.Token{wire.Token(100 + i)}, 4)
			copy(tokens, []wire.Token{1, 2, 3, 4}[:shared])
			e := &wire.Event{BlockSize: 4, Tokens: tokens}
			m.begin(1e9, index.Known{Seq: uint64(10 + i), Parent: 1, Depth: 2}, e, 1)
		}
		f := m.all[0].finding(requests, requests, requests)
		if got := strings.Contains(f.Title, "; 3 more tokens are the same"); got != want || !want && strings.Contains(f.Title+f.Next, "more tokens") {
			t.Errorf("%d of 4 tokens shared: %s; %s", shared, f.Title, f.Next)
		}
	}
}

// BenchmarkPlateaus measures what a request's first store costs, half of them behind
// places that are new.
func BenchmarkPlateaus(b *testing.B) {
	var m plateaus
	e := &wire.Event{BlockSize: 16, Tokens: make([]wire.Token, 512)}
	for i := 0; b.Loop(); i++ {
		first := index.Known{Seq: uint64(1_000_000 + i), Parent: 42, Depth: 5}
		if i%2 == 0 {
			first.Parent = uint64(1000 + i)
		}
		at := wire.Time(i) * 200e3
		m.add(m.begin(at, first, e, 1), at, 32)
	}
}
