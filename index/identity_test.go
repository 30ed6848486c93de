package index

import (
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// TestHoldsAndRoot: what a replica has by its handles, and who shares a root.
func TestHoldsAndRoot(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	store := func(name wire.Replica, handle uint64) {
		x.Store(name, Store{Blocks: []Block{{wire.IntHandle(handle), 7}}})
	}
	store("a", 1<<40|1)
	store("b", 1<<40|1)
	store("c", 1<<40|2)
	if x.Root("a") != x.Root("b") || x.Root("a") == x.Root("c") || x.Root("nobody") != 0 || x.Root("a") == 0 {
		t.Errorf("roots %d, %d, %d, %d", x.Root("a"), x.Root("b"), x.Root("c"), x.Root("nobody"))
	}
	host := Place{Tier: wire.Host}
	for _, tt := range []struct {
		name wire.Replica
		at   Place
		n    uint64
		want bool
	}{{"a", Place{}, 1<<40 | 1, true}, {"a", Place{Group: -1}, 1<<40 | 1, true}, {"a", host, 1<<40 | 1, false}, {"a", Place{}, 5, false}, {"nobody", Place{}, 1<<40 | 1, false}} {
		if got := x.Holds(tt.name, tt.at, wire.IntHandle(tt.n)); got != tt.want {
			t.Errorf("%s %+v %x: %v", tt.name, tt.at, tt.n, got)
		}
	}
	x.Remove("a", Place{}, []wire.Handle{wire.IntHandle(1<<40 | 1)})
	if x.Holds("a", Place{}, wire.IntHandle(1<<40|1)) {
		t.Error("it holds what was removed")
	}
}
