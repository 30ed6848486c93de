package tui

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/observe"
)

func TestBlockStrip(t *testing.T) {
	t.Parallel()
	const h, m, d, l, b = observe.Hit, observe.Miss, observe.Doubtful, observe.Lower, observe.Beyond
	for _, c := range []struct {
		name  string
		cells []observe.Cell
		w     int
		want  string
	}{
		{"nothing", nil, 10, ""},
		{"no room", []observe.Cell{h}, 0, ""},
		{"one each", []observe.Cell{h, h, l, m, m}, 10, "##h.."},
		{"a hole", []observe.Cell{h, m, b, b, m}, 10, "#o++."},
		{"doubt", []observe.Cell{h, d, m}, 10, "#?."},
		{"halved", []observe.Cell{h, h, h, m, m, m}, 3, "#.."},
		{"the worst of each", []observe.Cell{h, h, h, m, b, b, b, b, m, m}, 5, "#o++."},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			for _, k := range blockStrip(c.cells, c.w) {
				got += cellKinds[k].ascii
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// However much a strip is compressed, no place promises more than the blocks
// that it stands for.
func TestBlockStripNeverPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cells := make([]observe.Cell, rapid.IntRange(1, 400).Draw(t, "blocks"))
		for i := range cells {
			cells[i] = observe.Cell(rapid.IntRange(0, 5).Draw(t, "cell")) // 5 is a kind to come
		}
		w := rapid.IntRange(1, 220).Draw(t, "w")
		got := blockStrip(cells, w)
		if want := min(len(cells), w); len(got) != want {
			t.Fatalf("%d places, want %d", len(got), want)
		}
		for i, c := range cells {
			k := got[i*len(got)/len(cells)]
			if c == observe.Hit || c == observe.Lower && k >= cellLower || c == observe.Doubtful && k >= cellDoubt || c == observe.Beyond && k >= cellBeyond {
				continue
			}
			if k < cellMiss {
				t.Fatalf("block %d is %d and shows as %q", i, c, cellKinds[k].words)
			}
			if later := slices.ContainsFunc(cells[i:], func(c observe.Cell) bool { return c > observe.Miss && c <= observe.Beyond }); later != (k == cellHole) && c == observe.Miss && !later && len(got) == len(cells) {
				t.Fatalf("block %d: hole %v, held later %v", i, k == cellHole, later)
			}
		}
	})
}
