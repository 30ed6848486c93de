package index

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// script is one history of dynamo/index*.jsonl.gz with what Dynamo's RadixTree
// made of it.
type script struct {
	Steps []struct {
		Event *struct {
			Type   string
			Worker int
			Parent *uint64
			Blocks [][2]uint64 // engine hash, local hash
			Hashes []uint64
		}
		Result string
		Query  []uint64
		Scores [][2]int
	}
}

// TestOracleDynamoIndex runs the scripts and compares scores. Where they
// differ, ours must go on at a block that a documented shortcut of the
// reference took from it:
//
//   - a removal truncates its edge: the blocks behind it go too,
//   - orphans are dropped: a store whose parent the worker does not have is
//     not applied, so what it announces and what it proves is lost.
//
// Dynamo counts copies in its relay, in front of this index, so a removal in a
// script means the last copy.
func TestOracleDynamoIndex(t *testing.T) {
	t.Parallel()
	for _, path := range refdata.Files(t, refdata.Root(t), "dynamo/index*.jsonl.gz") {
		scripts, queries, equal := 0, 0, 0
		rules := map[string]int{}
		for _, s := range refdata.All[script](t, path) {
			scripts++
			x := New(Options{})
			full := &follower{x: x, copies: map[[2]uint64]int{}, lost: map[[2]uint64]string{}, mine: map[[2]uint64]bool{}, up: map[uint64]uint64{}}
			for _, st := range s.Steps {
				if st.Event == nil {
					queries++
					got := full.scores(st.Query)
					want := map[int]int{}
					for _, sc := range st.Scores {
						want[sc[0]] = sc[1]
					}
					rule := full.explain(got, want, st.Query)
					if rule == "" {
						equal++
						continue
					}
					rules[rule]++
					if rule == "unexplained" {
						t.Errorf("%s, script %d, query %v: ours %v, reference %v", filepath.Base(path), scripts-1, st.Query, got, want)
					}
				} else {
					e := st.Event
					full.apply(e.Type, e.Worker, e.Parent, e.Blocks, e.Hashes, st.Result)
				}
			}
		}
		t.Logf("%s: %d scripts, %d queries: %d equal, differing by a documented shortcut: %v", filepath.Base(path), scripts, queries, equal, rules)
		if equal == 0 {
			t.Error("no query was equal")
		}
	}
}

// follower applies a script to our index and keeps book of what the reference
// lost by which rule. Engine hashes name content in these scripts.
type follower struct {
	x *Index
	// copies, mine and lost are by worker and hash: how many copies ours has
	// been told of, whether it was told at all, and the rule by which the
	// reference lost it.
	copies map[[2]uint64]int
	mine   map[[2]uint64]bool
	lost   map[[2]uint64]string
	up     map[uint64]uint64 // parent of each hash, 0 at a root
}

func (h *follower) apply(kind string, worker int, parent *uint64, blocks [][2]uint64, hashes []uint64, result string) {
	name := wire.Replica(fmt.Sprint(worker))
	key := func(hash uint64) [2]uint64 { return [2]uint64{uint64(worker), hash} }
	switch kind {
	case "stored":
		st := Store{}
		var last uint64
		if parent != nil {
			st.Parent, last = wire.IntHandle(*parent), *parent
		}
		for _, b := range blocks {
			st.Blocks = append(st.Blocks, Block{wire.IntHandle(b[0]), b[1]})
			h.up[b[0]] = last
			last = b[0]
			h.mine[key(b[0])] = true
			h.copies[key(b[0])]++
			if result == "ok" {
				delete(h.lost, key(b[0]))
			} else {
				h.lost[key(b[0])] = "orphans are dropped"
			}
		}
		if parent != nil && result != "ok" {
			// What the store proves of its ancestors, the reference drops too.
			for a := *parent; a != 0; a = h.up[a] {
				if h.lost[key(a)] == "" {
					h.lost[key(a)] = "orphans are dropped"
				}
				h.copies[key(a)] = max(1, h.copies[key(a)])
			}
		}
		h.x.Store(name, st)
	case "removed":
		var st []wire.Handle
		for _, hash := range hashes {
			for range max(1, h.copies[key(hash)]) {
				st = append(st, wire.IntHandle(hash))
			}
			delete(h.copies, key(hash))
			delete(h.mine, key(hash))
			delete(h.lost, key(hash))
			// The reference may take along what lies behind it in its edge.
			for child := range h.up {
				for a := h.up[child]; a != 0; a = h.up[a] {
					if a == hash && h.mine[key(child)] && h.lost[key(child)] == "" {
						h.lost[key(child)] = "a removal truncates its edge"
					}
				}
			}
		}
		h.x.Remove(name, Place{}, st)
	case "cleared":
		of := func(k [2]uint64) bool { return k[0] == uint64(worker) }
		maps.DeleteFunc(h.mine, func(k [2]uint64, _ bool) bool { return of(k) })
		maps.DeleteFunc(h.lost, func(k [2]uint64, _ string) bool { return of(k) })
		maps.DeleteFunc(h.copies, func(k [2]uint64, _ int) bool { return of(k) })
		h.x.Clear(name, true)
	}
}

func (h *follower) scores(query []uint64) map[int]int {
	out := map[int]int{}
	for _, m := range h.x.MatchLocals(query) {
		var w int
		fmt.Sscan(string(m.Replica), &w)
		out[w] = m.Depth()
	}
	return out
}

// explain names the rule behind a difference: ours goes on where the reference
// stops, at a block that a shortcut took from it.
func (h *follower) explain(got, want map[int]int, query []uint64) string {
	var workers []int
	for w := range got {
		workers = append(workers, w)
	}
	for w := range want {
		workers = append(workers, w)
	}
	slices.Sort(workers)
	rule := ""
	for _, w := range slices.Compact(workers) {
		if got[w] == want[w] {
			continue
		}
		if got[w] < want[w] {
			return "unexplained" // we never hold less than the reference
		}
		// The first block that the reference lacks.
		var seq uint64
		for i := range want[w] + 1 {
			seq = blockhash.Next(seq, query[i], i == 0)
		}
		if rule = h.lost[[2]uint64{uint64(w), seq}]; rule == "" {
			return "unexplained"
		}
	}
	return rule
}
