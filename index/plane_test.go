package index

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// onPlane gives a store as Dynamo's relay passes it on: block hashes, which are
// 1,000 and the place here, and content hashes.
func onPlane(chain []wire.Token, from int, ns blockhash.Namespace) *wire.Event {
	locals, _ := blockhash.Rolling(chain, 4, false, ns, nil)
	e := &wire.Event{Kind: wire.Stored, Plane: true, Locals: locals[from:]}
	for i := range locals[from:] {
		e.Hashes = append(e.Hashes, wire.IntHandle(uint64(1000+from+i)))
	}
	if from > 0 {
		e.Parent = wire.IntHandle(uint64(1000 + from - 1))
	}
	return e
}

// TestPlaneIsTheSame: a replica seen through its engine and one seen through
// the event plane have the same blocks, also with adapter and salt, and each
// can go on where the other was first.
func TestPlaneIsTheSame(t *testing.T) {
	t.Parallel()
	chain := ids(1, 20)
	short := chain[:8]
	for name, tt := range map[string]struct{ lora, salt string }{"plain": {}, "LoRA": {lora: "a"}, "salt": {salt: "s"}} {
		for _, planeFirst := range []bool{false, true} {
			x := New(Options{})
			ns := blockhash.NamespaceOf(tt.lora, tt.salt)
			engine := func(tokens []wire.Token, from int) {
				e := vllm(t, recipe, tokens, from)
				e.LoRAName, e.Salt = tt.lora, tt.salt
				x.Apply("engine", e, false)
			}
			x.SetBlockSize("plane", 4)
			if planeFirst {
				x.Apply("plane", onPlane(chain, 0, ns), false)
			}
			engine(short, 0)
			engine(chain, 2)
			if !planeFirst {
				x.Apply("plane", onPlane(short, 0, ns), false)
				x.Apply("plane", onPlane(chain, 2, ns), false)
			}
			if diff := cmp.Diff(x.residents("engine"), x.residents("plane")); diff != "" {
				t.Errorf("%s, plane first %v: (-engine +plane)\n%s", name, planeFirst, diff)
			}
			if known, _, shared := x.Blocks(); known != 5 || shared != 5 {
				t.Errorf("%s: %d blocks known, %d shared", name, known, shared)
			}
			p := NewPrompt(Query{Tokens: chain, LoRA: tt.lora, Salt: tt.salt})
			if m := x.MatchOn("plane", p); m.Depth() != 5 || m.BlockSize != 4 {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
}

// TestPlaneCopies: the relay passes on every store, and only the removal of the
// last copy.
func TestPlaneCopies(t *testing.T) {
	t.Parallel()
	chain := ids(1, 8)
	for name, from := range map[string]int{"from the root": 0, "behind an unknown parent": 1} {
		x := New(Options{})
		for range 3 {
			x.Apply("r", onPlane(chain, from, 0), false)
		}
		if st := x.Stats("r"); st.Copies != 2 || st.Duplicates == 0 {
			t.Errorf("%s: %+v", name, st)
		}
		x.Apply("r", &wire.Event{Kind: wire.Removed, Plane: true, Hashes: []wire.Handle{wire.IntHandle(1001)}}, false)
		x.Apply("r", &wire.Event{Kind: wire.Removed, Plane: true, Hashes: []wire.Handle{wire.IntHandle(1000)}}, false)
		if st := x.Stats("r"); st.Copies != 0 || st.Resident[wire.Device] != 0 || st.Orphans != 0 {
			t.Errorf("%s, after the removal: %+v", name, st)
		}
	}
}

// TestBlockSizeOfEvents: what the events say counts.
func TestBlockSizeOfEvents(t *testing.T) {
	t.Parallel()
	x := New(Options{})
	x.SetBlockSize("r", 32)
	x.SetBlockSize("r", 0)
	if st := x.Stats("r"); st.BlockSize != 32 {
		t.Errorf("block size %d", st.BlockSize)
	}
	x.Apply("r", vllm(t, recipe, ids(1, 8), 0), false)
	x.SetBlockSize("r", 32)
	if st := x.Stats("r"); st.BlockSize != 4 {
		t.Errorf("block size %d", st.BlockSize)
	}
}
